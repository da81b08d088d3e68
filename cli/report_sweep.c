/* report_sweep.c: the section of a sweep: verdict, matrix, heat map, growth, environment. See report.h. */
#include "cli/report.h"

#include "base/mem.h"
#include "cli/damage.h"
#include "cli/verdict.h"

#include <stdlib.h>
#include <string.h>

struct sweep {
    struct ds_report_maker *m;
    struct ds_record *record;
    struct ds_source s;
    struct ds_analysis *a;
    struct ds_verdict v;
    struct ds_report r;
    struct ds_damage_side damage[2];
};

int ds_report_machine(struct ds_report_maker *m, const struct ds_report *r,
                      struct ds_record *record, struct ds_error *err)
{
    const size_t n = ds_record_trial_count(record);
    const struct ds_trial **trials = ds_calloc(n, sizeof *trials, "trials", err);
    if (!trials)
        return -1;
    for (size_t i = 0; i < n; i++)
        trials[i] = ds_record_trial(record, i);
    const struct ds_env_of of = {.report = r,
                                 .sides = {r->header, NULL},
                                 .trials = trials,
                                 .n_trials = n,
                                 .incomplete = r->incomplete,
                                 .damaged = r->damaged,
                                 .verdict = r->v,
                                 .diff = NULL};
    const int rc = ds_page_environment(&m->page, &of, err);
    free((void *)trials);
    return rc;
}

static int choose_pair(const struct sweep *s, struct ds_report_view *w, struct ds_error *err)
{
    const struct ds_header *h = s->s.header;
    if (s->m->arm < 0)
        return ds_report_pair(&s->v, s->a, h->n_arms, &w->arm, &w->ref);
    if ((uint64_t)s->m->arm >= h->n_arms || !ds_analysis_trials(s->a, (uint32_t)s->m->arm)) {
        ds_fail(err, "arm %lld has no complete trial", (long long)s->m->arm);
        return -1;
    }
    w->arm = (uint32_t)s->m->arm;
    w->ref = ds_report_reference(&s->v, s->a, w->arm);
    return 1;
}

static int add_heat(struct sweep *s, struct ds_error *err)
{
    struct ds_report_view w = {.r = &s->r, .a = s->a, .s = &s->s};
    struct ds_figure f = {0};
    if (!ds_report_wants(s->m, "heat"))
        return 0;
    int rc = choose_pair(s, &w, err);
    if (rc <= 0)
        return rc;
    ds_page_figure_id(&s->m->page, &f);
    rc = ds_figure_heat(&w, &f, err);
    if (rc == 0)
        rc = ds_report_place_figure(s->m, &f, -1, 0, err);
    ds_figure_free(&f);
    return rc;
}

static int add_growth(struct sweep *s, struct ds_error *err)
{
    struct ds_figure f = {0};
    if (!ds_report_wants(s->m, "growth"))
        return 0;
    ds_page_figure_id(&s->m->page, &f);
    ds_figure_growth(&s->r, &f);
    const int rc = ds_report_place_figure(s->m, &f, -1, 0, err);
    ds_figure_free(&f);
    return rc;
}

/* Its answers, for the figure of all records. */
static int add_times(struct sweep *s, struct ds_error *err)
{
    for (size_t i = 0; s->m->times && i < s->s.n_trials; i++) {
        if (s->s.info(s->s.ctx, i)->pass != DS_PASS_NATURAL)
            continue;
        const struct ds_trial_data *t = s->s.get(s->s.ctx, i, err);
        if (!t || ds_report_times_trial(s->m->times, s->s.header, t, err) != 0)
            return -1;
    }
    return 0;
}

static int add_section(struct sweep *s, const char *path, struct ds_error *err)
{
    struct ds_buf sentence = {0};
    ds_report_sentence(&s->r, &sentence);
    ds_page_begin_record(&s->m->page, path, s->s.header, sentence.data ? sentence.data : "",
                         s->v.result == DS_RESULT_DRIFT
                             ? (s->v.stable ? DS_ROLE_DRIFT : DS_ROLE_UNSTABLE)
                         : s->v.result == DS_RESULT_SAME ? DS_ROLE_SAME
                                                         : DS_ROLE_HEAD);
    const int failed = sentence.failed;
    ds_buf_free(&sentence);
    if (failed)
        return ds_fail(err, "out of memory for the page");
    ds_page_matrix(&s->m->page, &s->r);
    if (add_heat(s, err) != 0 || add_growth(s, err) != 0)
        return -1;
    ds_page_verdict(&s->m->page, &s->r);
    if (ds_report_machine(s->m, &s->r, s->record, err) != 0 || add_times(s, err) != 0)
        return -1;
    ds_page_end_record(&s->m->page);
    return 0;
}

int ds_report_sweep(struct ds_report_maker *m, const char *path, struct ds_record *record,
                    struct ds_error *err)
{
    struct sweep s = {.m = m,
                      .record = record,
                      .damage = {{.record = record, .header = ds_record_header(record)}}};
    ds_source_record(&s.s, record);
    ds_damage_no_verdict(&s.v);
    if (ds_analysis_new(&s.s, NULL, &s.a, err) != 0 || ds_analysis_verdict(s.a, &s.v, err) != 0) {
        ds_analysis_free(s.a);
        return -1;
    }
    s.r = (struct ds_report){.header = s.s.header,
                             .v = &s.v,
                             .path = path,
                             .incomplete = ds_record_incomplete(record),
                             .damaged = ds_record_damaged(record),
                             .damage = s.damage,
                             .caller = &ds_cli_caller};
    int rc = ds_damage_rest(s.damage, 1, &s.v, 0, err);
    rc = rc ? rc : ds_damage_collect(s.damage, err);
    if (rc == 0 && (ds_report_damage_judge(&s.r, &s.v) || s.r.damaged > 0))
        rc = ds_fail(err, "the record is damaged: `show --verify` tells where");
    if (rc == 0)
        rc = add_section(&s, path, err);
    m->drifts |= s.v.result == DS_RESULT_DRIFT;
    ds_damage_free(s.damage);
    ds_verdict_free(&s.v);
    ds_analysis_free(s.a);
    return rc;
}
