/* verb_diff.c: `driftscope diff A B`: two records. Reads only. */
#include "cli/cli.h"
#include "cli/damage.h"
#include "cli/record_view.h"
#include "cli/render_json.h"
#include "cli/verdict.h"

#include "base/mem.h"
#include "dumps/diff.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct sides {
    struct ds_record *record[2];
    struct ds_damage_side damage[2];
};

/* What the two records keep in memory. */
static uint64_t sides_loaded(void *ctx)
{
    const struct sides *s = ctx;
    uint64_t bytes = 0;
    for (int side = 0; side < 2; side++)
        bytes += ds_record_loaded(s->record[side]) + ds_record_indexed(s->record[side]);
    return bytes;
}

static void side_locate(void *ctx, int side, uint64_t digest, struct ds_raw_row *out)
{
    ds_record_locate(((struct sides *)ctx)->record[side], digest, out);
}

static void side_fetch(void *ctx, int side, struct ds_raw_row *rows, size_t n, void *room)
{
    ds_record_fetch(((struct sides *)ctx)->record[side], rows, n, room);
}

static void side_believe(void *ctx, int side, const struct ds_raw_row *row)
{
    ds_record_believe(((struct sides *)ctx)->record[side], row);
}

/* A row that both made has one digest, and either may have dumped it. */
static int side_blob(void *ctx, int side, uint64_t digest, struct ds_blob *out,
                     struct ds_error *err)
{
    struct sides *s = ctx;
    int rc = ds_record_blob(s->record[side], digest, out, err);
    return rc == 0 ? ds_record_blob(s->record[!side], digest, out, err) : rc;
}

/* An arm of one side as the joined source numbers it: pairs, that of the first record before that of the
 * second. */
static int read_arm(const struct ds_options *o, const char *name, const struct ds_diff *d,
                    uint32_t side, uint32_t *out, struct ds_error *err)
{
    static const char *const records[2] = {"first", "second"};
    int64_t arm;
    if (ds_opt_int(o, name, 0, INT32_MAX, &arm, err) != 0)
        return -1;
    for (uint32_t i = side; i < d->header.n_arms; i += 2)
        if (d->arm_of[i] == (uint32_t)arm) {
            *out = i;
            return 0;
        }
    ds_fail(err, "arm %d of the %s record is compared with no arm of the %s", (int)arm,
            records[side], records[!side]);
    return ds_hint(err, "arms with equal factor values are compared");
}

/* The pair to look at: --arm N of the second record with --against M of the first or its partner, else that of
 * the first drift, else the first. */
static int choose_pair(const struct ds_options *o, const struct ds_diff *d,
                       struct ds_report_view *w, struct ds_error *err)
{
    w->arm = 1;
    w->ref = 0;
    if (!ds_opt_given(o, "arm")) {
        if (d->verdict.first.found && d->verdict.first.arm != d->verdict.first.ref_arm) {
            w->arm = d->verdict.first.arm;
            w->ref = d->verdict.first.ref_arm;
        }
        return 0;
    }
    if (read_arm(o, "arm", d, 1, &w->arm, err) != 0)
        return -1;
    w->ref = w->arm - 1;
    return ds_opt_given(o, "against") ? read_arm(o, "against", d, 0, &w->ref, err) : 0;
}

static int render(const struct ds_options *o, const struct ds_report *r, const struct ds_diff *d,
                  struct sides *sides, struct ds_buf *out, struct ds_error *err)
{
    enum ds_view view;
    if (ds_view_chosen(o, 0, &view, err) != 0)
        return -1;
    if (view == DS_VIEW_ENVIRONMENT && !sides->damage[0].trials && !sides->damage[1].trials)
        return ds_view_environment(o, r, d->analysis ? &d->joined : NULL,
                                   ds_record_header(sides->record[0]),
                                   ds_record_header(sides->record[1]), out, err);
    if (view == DS_VIEW_WEIGHTS && !sides->damage[0].trials && !sides->damage[1].trials) {
        struct ds_source a, b;
        ds_source_record(&a, sides->record[0]);
        ds_source_record(&b, sides->record[1]);
        return ds_view_weights(o, r, &a, &b, out, err);
    }
    if (view == DS_VIEW_VERDICT || !d->analysis) {
        if (ds_opt_flag(o, "json"))
            return ds_render_verdict_json(r, out, err);
        ds_report_verdict(r, out);
        return 0;
    }
    struct ds_report_view w = {
        .r = r, .a = d->analysis, .s = &d->joined, .blob = side_blob, .ctx = sides};
    return choose_pair(o, d, &w, err) != 0 ? -1 : ds_view_pair(o, view, &w, out, err);
}

/* A tolerance that is no positive number would excuse nothing, or everything. */
static int read_real(const struct ds_options *o, const char *name, double *out,
                     struct ds_error *err)
{
    const char *text = ds_opt_text(o, name);
    char *end;
    if (!text)
        return 0;
    errno = 0;
    *out = strtod(text, &end);
    if (end == text || *end || !isfinite(*out) || !(*out > 0))
        return ds_fail(err, "--%s: %s is not a positive number", name, text);
    return 0;
}

static int read_tolerance(const struct ds_options *o, struct ds_tolerance *t, struct ds_error *err)
{
    int64_t ulp = 0;
    if (ds_opt_given(o, "ulp") && ds_opt_int(o, "ulp", 1, INT64_MAX, &ulp, err) != 0)
        return -1;
    t->ulp = (uint64_t)ulp;
    return read_real(o, "atol", &t->atol, err) != 0 || read_real(o, "rtol", &t->rtol, err) != 0 ||
                   read_real(o, "nmse", &t->nmse, err) != 0
               ? -1
               : 0;
}

/* All texts of an option; malloc'ed. */
static int read_texts(const struct ds_options *o, const char *name, const char *const **out,
                      size_t *n, struct ds_error *err)
{
    *n = ds_opt_count(o, name);
    const char **list = ds_calloc(*n, sizeof *list, name, err);
    for (size_t i = 0; list && i < *n; i++)
        list[i] = ds_opt_at(o, name, i);
    *out = list;
    return list ? 0 : -1;
}

static int read_options(const struct ds_options *o, struct ds_diff_options *d, struct sides *sides,
                        struct ds_error *err)
{
    uint64_t hold;
    if (ds_opt_size(o, "hold", &hold, err) != 0 || read_tolerance(o, &d->tolerance, err) != 0 ||
        read_texts(o, "only", &d->only, &d->n_only, err) != 0 ||
        read_texts(o, "ignore", &d->ignore, &d->n_ignore, err) != 0)
        return -1;
    /* A sixth is for what is there in two forms while it is read, and for gaps between. */
    d->partial = ds_opt_flag(o, "partial");
    d->across_models = ds_opt_flag(o, "across-models");
    d->memory = hold ? hold - hold / 6 : 1;
    d->loaded = sides_loaded;
    for (int side = 0; side < 2; side++)
        d->bulk_bytes = ds_record_hold(sides->record[side], hold / 2);
    return 0;
}

/* What could not be believed may have differed: that is no pass. */
static int exit_code_of(const struct ds_options *o, const struct ds_diff *d, int damaged)
{
    int code = ds_verdict_exit(&d->verdict);
    for (size_t i = 0; i < d->n_items; i++)
        damaged |= d->items[i].kind == DS_DIFF_DAMAGE;
    return ds_cli_exit(o, damaged ? DS_EXIT_ERROR : code);
}

static int compare(const struct ds_options *o, const struct ds_diff_options *options,
                   struct sides *sides, int *exit_code, struct ds_error *err)
{
    struct ds_source a, b;
    struct ds_diff d;
    struct ds_buf out = {0};
    ds_source_record(&a, sides->record[0]);
    ds_source_record(&b, sides->record[1]);
    if (sides->damage[0].trials + sides->damage[1].trials) {
        memset(&d, 0, sizeof d);
        ds_damage_no_verdict(&d.verdict);
    } else if (ds_diff_make(&a, &b, options, &d, err) != 0) {
        if (strstr(err->msg, "B of memory") || strstr(err->msg, "bytes of memory"))
            ds_hint(err, "--hold SIZE allows more");
        return -1;
    }
    struct ds_header header = d.header; /* names of the model come from A, sites from both */
    memcpy(header.model_name, a.header->model_name, sizeof header.model_name);
    struct ds_report r = {.header = &header,
                          .v = &d.verdict,
                          .diff = &d,
                          .path = ds_opt_operand(o, 0),
                          .path_b = ds_opt_operand(o, 1),
                          .incomplete = ds_record_incomplete(sides->record[0]) +
                                        ds_record_incomplete(sides->record[1]),
                          .damaged = ds_record_damaged(sides->record[0]) +
                                     ds_record_damaged(sides->record[1]) - sides->damage[0].trials -
                                     sides->damage[1].trials,
                          .damage = sides->damage};
    ds_cli_report(o, &r);
    int rc = ds_damage_rest(sides->damage, 2, &d.verdict, d.excused, err);
    for (int side = 0; side < 2 && rc == 0; side++)
        rc = ds_damage_collect(&sides->damage[side], err);
    int damaged = rc == 0 && ds_report_damage_judge(&r, &d.verdict);
    if (rc == 0)
        rc = render(o, &r, &d, sides, &out, err);
    if (rc == 0)
        rc = ds_cli_emit(o, &out, err);
    *exit_code = exit_code_of(o, &d, damaged);
    ds_buf_free(&out);
    ds_diff_free(&d);
    return rc;
}

static int diff(const struct ds_options *o, struct sides *sides, int *exit_code,
                struct ds_error *err)
{
    struct ds_diff_options options = {.blob = side_blob,
                                      .locate = side_locate,
                                      .fetch = side_fetch,
                                      .believe = side_believe,
                                      .ctx = sides};
    int rc = read_options(o, &options, sides, err);
    rc = rc ? rc : compare(o, &options, sides, exit_code, err);
    free((void *)options.only);
    free((void *)options.ignore);
    return rc;
}

/* A gate that names one record twice would pass for ever. */
static void note_one_file(const struct ds_options *o)
{
    struct stat a, b;
    if (stat(ds_opt_operand(o, 0), &a) == 0 && stat(ds_opt_operand(o, 1), &b) == 0 &&
        a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        ds_cli_note(o, "both records are one file: %s", ds_opt_operand(o, 1));
}

int ds_verb_diff(const struct ds_options *o)
{
    struct ds_error err = {{0}, {0}};
    struct sides sides = {{NULL, NULL}, {{0}, {0}}};
    enum ds_view view;
    if (ds_view_chosen(o, 0, &view, &err) != 0)
        return ds_cli_error(o, &err);
    int exit_code = DS_EXIT_ERROR,
        rc = ds_record_open(ds_opt_operand(o, 0), &sides.record[0], &err);
    if (rc == 0) {
        rc = ds_record_open(ds_opt_operand(o, 1), &sides.record[1], &err);
        if (rc == 0) {
            for (int side = 0; side < 2 && rc == 0; side++)
                rc = ds_damage_verify(&sides.damage[side], sides.record[side],
                                      ds_opt_flag(o, "verify"), &err);
            note_one_file(o);
            if (rc == 0)
                rc = diff(o, &sides, &exit_code, &err);
            ds_damage_free(&sides.damage[1]);
            ds_record_close(sides.record[1]);
        }
        ds_damage_free(&sides.damage[0]);
        ds_record_close(sides.record[0]);
    }
    return rc != 0 ? ds_cli_error(o, &err) : exit_code;
}
