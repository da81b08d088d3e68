/* verb_risk.c: `driftscope risk RECORD [RECORD...]`: how near a record's choices are to other ones, and what it foretells of
 * others that it has not seen. Reads; what margins and drift mean is dumps/risk's. */
#include "cli/cli.h"
#include "cli/risk.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first sound natural trial of each arm. */
static int load_trials(struct ds_record *r, const struct ds_trial_data ***out, struct ds_error *err)
{
    const struct ds_header *h = ds_record_header(r);
    size_t found = 0;
    const struct ds_trial_data **trials = ds_calloc(h->n_arms, sizeof *trials, "arms", err);
    if (!trials)
        return -1;
    for (size_t i = 0; i < ds_record_trial_count(r); i++) {
        const struct ds_trial *t = ds_record_trial(r, i);
        if (t->pass != DS_PASS_NATURAL || t->arm >= h->n_arms || trials[t->arm])
            continue;
        if (!(trials[t->arm] = ds_record_load(r, i, err))) {
            free(trials);
            return -1;
        }
        found++;
    }
    *out = trials;
    if (found)
        return 0;
    free(trials);
    *out = NULL;
    return ds_fail(err, "the record has no complete trial");
}

/* Of an interrupted record, or one with arms that could not be run, what is said is not said of all of it. */
static void note_missing(const struct ds_options *o, const struct ds_risk_record *x)
{
    const uint32_t n = ds_record_header(x->record)->n_arms;
    uint32_t missing = 0;
    for (uint32_t a = 0; a < n; a++)
        missing += x->trials[a] == NULL;
    if (missing)
        ds_cli_note(o, "%s: %u of %u arms have no complete trial and are left out", x->path,
                    missing, n);
}

static int open(const struct ds_options *o, struct ds_risk_record *x, const char *path,
                struct ds_error *err)
{
    x->path = path;
    if (ds_record_open(path, &x->record, err) != 0)
        return -1;
    int rc = load_trials(x->record, &x->trials, err);
    if (rc == 0 && ds_record_damaged(x->record) > 0)
        rc = ds_fail(err, "%zu of its trials are damaged", ds_record_damaged(x->record));
    if (rc == 0)
        note_missing(o, x);
    return rc != 0 ? ds_prefix(err, "%s", path) : 0;
}

static void close_record(struct ds_risk_record *x)
{
    free(x->trials);
    if (x->record)
        ds_record_close(x->record);
}

static int foretell(struct ds_risk_result *r, struct ds_risk_record *x, struct ds_error *err)
{
    const struct ds_header *h = ds_record_header(r->own.record), *g = ds_record_header(x->record);
    const size_t before = r->n_tests;
    for (uint32_t a = 0; a < g->n_arms; a++) {
        if (!x->trials[a])
            continue;
        if (ds_grow(&r->tests, &r->cap_tests, r->n_tests + 1, sizeof *r->tests, "tests", err) != 0)
            return -1;
        struct ds_risk_foretold *t = &r->tests[r->n_tests];
        t->path = x->path;
        const int rc = ds_risk_foretell(h, &r->risk, g, x->trials[a], a, &t->t, err);
        if (rc < 0)
            return ds_prefix(err, "%s", x->path);
        r->n_tests += (size_t)rc;
    }
    return r->n_tests > before ? 0
                               : ds_fail(err, "%s: none of its kernel sets is among those of %s",
                                         x->path, r->own.path);
}

/* Prompts are the same: that was asked before anything was foretold. */
static int compare_precision(struct ds_risk_result *r, const struct ds_risk_record *x,
                             struct ds_error *err)
{
    const struct ds_header *h = ds_record_header(r->own.record), *g = ds_record_header(x->record);
    struct ds_risk theirs;
    if (ds_risk_make(g, x->trials, &theirs, err) != 0)
        return ds_prefix(err, "%s", x->path);
    int rc = 0;
    for (size_t i = 0; i < theirs.n_groups && rc >= 0; i++) {
        if ((rc = ds_grow(&r->precise, &r->cap_precise, r->n_precise + 1, sizeof *r->precise,
                          "groups", err)) != 0)
            break;
        struct ds_risk_precise *p = &r->precise[r->n_precise];
        *p = (struct ds_risk_precise){.path = x->path};
        rc = ds_risk_precision(h, &r->risk, g, &theirs, i, &p->g, err);
        if (rc > 0) {
            snprintf(p->stages, sizeof p->stages, "%s", p->g.exchanged);
            p->g.exchanged = NULL;
            r->n_precise++;
        }
    }
    ds_risk_free(&theirs);
    return rc < 0 ? -1 : 0;
}

static int run(struct ds_risk_result *r, struct ds_error *err)
{
    if (open(r->o, &r->own, ds_opt_operand(r->o, 0), err) != 0)
        return -1;
    const struct ds_header *h = ds_record_header(r->own.record);
    if (ds_risk_make(h, r->own.trials, &r->risk, err) != 0 ||
        ds_risk_gains(h, &r->risk, &r->gains, &r->n_gains, err) != 0)
        return ds_prefix(err, "%s", r->own.path);
    for (size_t i = 1; i < ds_opt_operands(r->o); i++) {
        struct ds_risk_record x = {0};
        int rc = open(r->o, &x, ds_opt_operand(r->o, i), err);
        if (rc == 0)
            rc = foretell(r, &x, err);
        if (rc == 0)
            rc = compare_precision(r, &x, err);
        close_record(&x);
        if (rc != 0)
            return -1;
    }
    const char *model = ds_opt_text(r->o, "model");
    struct ds_run_plan *plan = &r->plan;
    if (model && ds_plan_model(r->o, NULL, plan, err) != 0)
        return -1;
    return model ? ds_plan_check_model(h, plan->model, err) : 0;
}

int ds_verb_risk(const struct ds_options *o)
{
    struct ds_risk_result r = {.o = o};
    struct ds_error err = {{0}, {0}};
    struct ds_buf out = {0};
    int64_t most;
    int rc = ds_opt_int(o, "most", 0, 1000000, &most, &err);
    r.most = (size_t)(rc == 0 ? most : 0);
    if (rc == 0)
        rc = run(&r, &err);
    if (rc == 0 && ds_opt_flag(o, "json"))
        rc = ds_risk_json(&out, &r, &err);
    else if (rc == 0)
        ds_risk_text(&out, &r);
    if (rc == 0)
        rc = out.failed ? ds_fail(&err, "out of memory") : ds_cli_emit(o, &out, &err);
    const int code = rc != 0 ? ds_cli_error(o, &err) : ds_cli_exit(o, ds_risk_code(&r));
    ds_buf_free(&out);
    ds_risk_free(&r.risk);
    free(r.gains);
    free(r.precise);
    free(r.tests);
    close_record(&r.own);
    ds_run_plan_free(&r.plan);
    return code;
}
