/* verb_show.c: `driftscope show`: the verdict of a record again, its grid of sites, or one site's
 * values. Reads only. */
#include "cli/cli.h"
#include "cli/damage.h"
#include "cli/export_rows.h"
#include "cli/record_view.h"
#include "cli/render_json.h"
#include "cli/verdict.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int record_blob(void *ctx, int side, uint64_t digest, struct ds_blob *out,
                       struct ds_error *err)
{
    (void)side;
    return ds_record_blob(ctx, digest, out, err);
}

static int read_arm(const struct ds_options *o, const char *name, const struct ds_report_view *w,
                    uint32_t *out, struct ds_error *err)
{
    int64_t arm;
    if (ds_opt_int(o, name, 0, (int64_t)w->s->header->n_arms - 1, &arm, err) != 0)
        return -1;
    *out = (uint32_t)arm;
    return ds_analysis_trials(w->a, *out)
               ? 0
               : ds_fail(err, "arm %" PRIu32 " has no complete trial", *out);
}

/* The pair to look at: --arm N with --against M or its reference, else the one that the verdict is
 * about. */
static int choose_pair(const struct ds_options *o, struct ds_report_view *w,
                       const struct ds_verdict *v, struct ds_error *err)
{
    if (!ds_opt_given(o, "arm"))
        return ds_report_pair(v, w->a, w->s->header->n_arms, &w->arm, &w->ref)
                   ? 0
                   : ds_fail(err, "nothing to show: %s", v->reason);
    if (read_arm(o, "arm", w, &w->arm, err) != 0)
        return -1;
    w->ref = ds_report_reference(v, w->a, w->arm);
    return ds_opt_given(o, "against") ? read_arm(o, "against", w, &w->ref, err) : 0;
}

static int render(const struct ds_options *o, enum ds_view view, struct ds_report_view *w,
                  const struct ds_verdict *v, struct ds_buf *out, struct ds_error *err)
{
    int rc = 0;
    switch (view) {
    case DS_VIEW_VERDICT:
        if (ds_opt_flag(o, "json"))
            return ds_render_verdict_json(w->r, out, err);
        ds_report_verdict(w->r, out);
        return 0;
    case DS_VIEW_RUNS:
        if (ds_opt_flag(o, "long"))
            rc = ds_report_trials(w->r, w->s, out, err);
        ds_report_runs(w->r, out);
        ds_report_sentence(w->r, out);
        ds_buf_puts(out, "\n");
        return rc;
    case DS_VIEW_WEIGHTS:
        return ds_view_weights(o, w->r, w->s, NULL, out, err);
    case DS_VIEW_ENVIRONMENT:
        return ds_view_environment(o, w->r, w->s, w->s->header, NULL, out, err);
    default:
        return choose_pair(o, w, v, err) != 0 ? -1 : ds_view_pair(o, view, w, out, err);
    }
}

static int render_all(const struct ds_options *o, struct ds_report_view *w,
                      const struct ds_verdict *v, struct ds_error *err)
{
    struct ds_buf out = {0};
    enum ds_view view;
    int rc = ds_view_chosen(o, 1, &view, err);
    if (rc == 0 && w->a)
        rc = render(o, view, w, v, &out, err);
    else if (rc != 0)
        return rc;
    else if (ds_opt_flag(o, "json"))
        rc = ds_render_verdict_json(w->r, &out, err);
    else
        ds_report_verdict(w->r, &out);
    if (rc == 0)
        rc = ds_cli_emit(o, &out, err);
    ds_buf_free(&out);
    return rc;
}

/* damage[0] is of the record. */
static int show(const struct ds_options *o, struct ds_record *record, const char *path,
                struct ds_damage_side *damage, int *exit_code, struct ds_error *err)
{
    struct ds_source s;
    struct ds_analysis *a = NULL;
    struct ds_verdict v;
    ds_source_record(&s, record);
    ds_damage_no_verdict(&v);
    if (ds_damage_verify(damage, record, ds_opt_flag(o, "verify"), err) != 0)
        return -1;
    if (damage->trials == 0 &&
        (ds_analysis_new(&s, NULL, &a, err) != 0 || ds_analysis_verdict(a, &v, err) != 0)) {
        ds_analysis_free(a);
        return ds_prefix(err, "%s", path);
    }
    struct ds_report r = {.header = s.header,
                          .v = &v,
                          .path = path,
                          .incomplete = ds_record_incomplete(record),
                          .damaged = ds_record_damaged(record) - damage->trials,
                          .damage = damage};
    ds_cli_report(o, &r);
    struct ds_report_view w = {.r = &r, .a = a, .s = &s, .blob = record_blob, .ctx = record};
    int rc = ds_damage_rest(damage, 1, &v, 0, err);
    rc = rc ? rc : ds_damage_collect(damage, err);
    const int damaged = rc == 0 && ds_report_damage_judge(&r, &v);
    if (rc == 0)
        rc = render_all(o, &w, &v, err);
    *exit_code = ds_cli_exit(o, damaged ? DS_EXIT_ERROR : ds_verdict_exit(&v));
    ds_verdict_free(&v);
    ds_analysis_free(a);
    return rc;
}

int ds_verb_show(const struct ds_options *o)
{
    struct ds_error err = {{0}, {0}};
    struct ds_record *record;
    struct ds_damage_side damage[2] = {{0}, {0}};
    const char *path = ds_opt_operand(o, 0);
    enum ds_view view;
    int exit_code = DS_EXIT_ERROR;
    if (ds_view_chosen(o, 1, &view, &err) != 0)
        return ds_cli_error(o, &err);
    if (ds_record_open(path, &record, &err) != 0)
        return ds_cli_error(o, &err);
    int rc = ds_opt_given(o, "rows-to")
                 ? ds_cli_export_rows(record, ds_opt_text(o, "rows-to"), &err)
                 : 0;
    rc = rc == 0 ? show(o, record, path, damage, &exit_code, &err) : rc;
    ds_damage_free(damage);
    ds_record_close(record);
    return rc != 0 ? ds_cli_error(o, &err) : exit_code;
}
