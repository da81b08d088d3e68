/* verb_replay.c: `driftscope replay RECORD`: a recorded serving run, or one of its requests, run again and
 * held against the record; then with one thing changed. See storm.h; what differs is dumps/storm's to say. */
#include "cli/replay.h"
#include "cli/require.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* ---- what is run ----------------------------------------------------------------------------- */

static void free_arms(struct ds_arm *arms, size_t n)
{
    for (size_t a = 0; arms && a < n; a++) {
        for (int f = 0; arms[a].values && f < DS_FACTOR_COUNT; f++)
            free(arms[a].values[f]);
        free(arms[a].values);
    }
    free(arms);
}

/* An arm of the record, with what is to be another one. */
static int add_arm(struct ds_replay *r, uint32_t arm, struct ds_error *err)
{
    const struct ds_header *h = ds_record_header(r->record);
    struct ds_arm *to = &r->header.arms[r->header.n_arms];
    if (!(to->values = ds_calloc(DS_FACTOR_COUNT, sizeof *to->values, "arm", err)))
        return -1;
    r->header.n_arms++;
    for (int f = 0; f < DS_FACTOR_COUNT; f++) {
        const char *value = h->arms[arm].values[f],
                   *other = f == DS_FACTOR_KERNELS   ? ds_opt_text(r->o, "kernels")
                            : f == DS_FACTOR_THREADS ? ds_opt_text(r->o, "threads")
                                                     : NULL;
        struct ds_factor_values v = {0};
        if (ds_factor_parse(f, other ? other : value, &v, err) != 0)
            return -1;
        to->values[f] = strdup(v.value[0]);
        ds_factor_free(&v);
        if (!to->values[f])
            return ds_fail(err, "out of memory");
    }
    r->arms[r->n_arms++] = arm;
    return 0;
}

static int choose_arms(struct ds_replay *r, struct ds_error *err)
{
    const struct ds_header *h = ds_record_header(r->record);
    int64_t only = -1;
    if (h->n_factors != DS_FACTOR_COUNT)
        return ds_fail(err, "the record has %zu factors; this version knows %d", h->n_factors,
                       DS_FACTOR_COUNT);
    if (ds_opt_given(r->o, "arm") && ds_opt_int(r->o, "arm", 0, INT32_MAX, &only, err) != 0)
        return -1;
    if (only >= (int64_t)h->n_arms)
        return ds_fail(err, "unknown arm %lld: the record has 0..%lld", (long long)only,
                       (long long)h->n_arms - 1);
    r->header = *h;
    r->header.n_arms = 0;
    r->header.arms = ds_calloc(h->n_arms, sizeof *r->header.arms, "arms", err);
    r->arms = ds_calloc(h->n_arms, sizeof *r->arms, "arms", err);
    r->matches = ds_calloc(h->n_arms, sizeof *r->matches, "arms", err);
    r->launches = ds_calloc(h->n_arms, sizeof *r->launches, "arms", err);
    r->followed = ds_calloc(h->n_arms, sizeof *r->followed, "arms", err);
    r->n_followed = ds_calloc(h->n_arms, sizeof *r->n_followed, "arms", err);
    if (!r->header.arms || !r->arms || !r->matches || !r->launches || !r->followed ||
        !r->n_followed)
        return -1;
    for (uint32_t a = 0; a < h->n_arms; a++)
        if ((only < 0 || only == (int64_t)a) && add_arm(r, a, err) != 0)
            return -1;
    return 0;
}

static int choose_request(struct ds_replay *r, struct ds_error *err)
{
    const int alone = ds_opt_flag(r->o, "alone"), others = ds_opt_flag(r->o, "other-neighbours");
    r->request = -1;
    if (ds_opt_given(r->o, "request") &&
        ds_opt_int(r->o, "request", 0, DS_SERVE_MOST_REQUESTS, &r->request, err) != 0)
        return -1;
    if (r->request >= r->setup.serve.n_requests)
        return ds_fail(err, "unknown request %lld: the record has 0..%d", (long long)r->request,
                       r->setup.serve.n_requests - 1);
    if (alone && others)
        return ds_fail(err, "--alone and --other-neighbours: one of them");
    if ((alone || others) && r->request < 0)
        return ds_fail(err, "--%s: which request? give --request N",
                       alone ? "alone" : "other-neighbours");
    if (others)
        return ds_replay_neighbours(&r->setup, (int32_t)r->request, r->setup.plan.model->hp.vocab,
                                    &r->others, err);
    return alone ? ds_serve_only(&r->setup.serve, (int32_t)r->request, r->setup.prompts,
                                 r->setup.n_prompts, &r->alone, err)
                 : 0;
}

static int start(struct ds_replay *r, struct ds_error *err)
{
    const char *path = ds_opt_operand(r->o, 0);
    if (ds_record_open(path, &r->record, err) != 0)
        return -1;
    if (ds_storm_setup_record(r->o, r->record, &r->setup, err) != 0)
        return ds_prefix(err, "%s", path);
    if (ds_storm_hits(&r->setup.serve, &r->hits, &r->n_hits, err) != 0)
        return -1;
    return choose_arms(r, err) != 0 || ds_cli_require(r->o, &r->header, "--kernels", err) != 0
               ? -1
               : choose_request(r, err);
}

/* ---- running and comparing ------------------------------------------------------------------- */

const struct ds_trial_data *ds_replay_recorded(struct ds_record *r, uint32_t arm,
                                               struct ds_error *err)
{
    for (size_t i = 0; i < ds_record_trial_count(r); i++) {
        const struct ds_trial *t = ds_record_trial(r, i);
        if (t->arm == arm && t->pass == DS_PASS_NATURAL)
            return ds_record_load(r, i, err);
    }
    ds_fail(err, "the record has no trial of arm %u", arm);
    return NULL;
}

static int take_trial(void *ctx, const struct ds_trial_data *t, const double *seconds,
                      struct ds_error *err)
{
    struct ds_replay *r = ctx;
    const size_t arm = t->info.arm;
    const struct ds_trial_data *was = ds_replay_recorded(r->record, r->arms[arm], err);
    struct ds_storm_match *m = &r->matches[arm];
    const int alone = r->alone.n_steps > 0;
    (void)seconds;
    if (!was || ds_storm_match(&r->header, t, was, (size_t)r->setup.serve.n_requests, r->request,
                               alone ? r->hits : NULL, alone ? r->n_hits : 0, m, err) != 0)
        return -1;
    if (m->differs)
        r->launches[arm] = t->launches[m->launch];
    if (r->setup.plan.inputs.calls && !alone && !r->others.changed &&
        ds_inputs_judge(r->setup.plan.inputs.calls, r->setup.plan.inputs.n_calls, t,
                        (size_t)r->setup.serve.n_requests, &r->followed[arm], &r->n_followed[arm],
                        err) != 0)
        return -1;
    r->n_matches++;
    return m->compared ? 0 : ds_fail(err, "nothing could be compared");
}

static int run(struct ds_replay *r, int *interrupted, struct ds_error *err)
{
    const int others = r->others.plan.n_steps > 0;
    const struct ds_serve_run s = {.model = r->setup.plan.model,
                                   .header = &r->header,
                                   .plan = others             ? &r->others.plan
                                           : r->alone.n_steps ? &r->alone
                                                              : &r->setup.serve,
                                   .prompts = others ? r->others.prompts : r->setup.prompts,
                                   .n_prompts = others ? r->others.n_prompts : r->setup.n_prompts,
                                   .f32_at = r->setup.plan.options.f32_at,
                                   .resid_only = r->setup.resid_only,
                                   .sampler = r->setup.plan.options.sampler,
                                   .n_arms = (int32_t)r->header.n_arms,
                                   .last = 1,
                                   .ctx = r,
                                   .sink = take_trial,
                                   .stop = ds_cli_stop()};
    return ds_serve_run(&s, interrupted, err);
}

const struct ds_storm_match *ds_replay_different(const struct ds_replay *r, size_t *arm)
{
    for (size_t i = 0; i < r->n_matches; i++)
        if (r->matches[i].differs || r->matches[i].tokens_differ) {
            *arm = i;
            return &r->matches[i];
        }
    return NULL;
}

int ds_verb_replay(const struct ds_options *o)
{
    struct ds_replay r = {.o = o};
    struct ds_error err = {{0}, {0}};
    int interrupted = 0, code;
    size_t arm;
    if (ds_opt_given(o, "export-schedule") || ds_opt_given(o, "export-inputs"))
        return ds_replay_export(o, &err) == 0 ? DS_EXIT_SAME : ds_cli_error(o, &err);
    ds_cli_stop_on_signal();
    if (start(&r, &err) != 0 || run(&r, &interrupted, &err) != 0)
        code = ds_cli_error(o, &err);
    else if (interrupted) {
        ds_cli_note(o, "interrupted: nothing was compared");
        code = DS_EXIT_INTERRUPTED;
    } else if (ds_replay_report(&r, &err) != 0)
        code = ds_cli_error(o, &err);
    else
        code = ds_replay_different(&r, &arm) ? DS_EXIT_DRIFT : DS_EXIT_SAME;
    free_arms(r.header.arms, r.header.n_arms);
    free(r.arms);
    free(r.matches);
    free(r.launches);
    for (size_t i = 0; r.followed && i < r.header.n_arms; i++)
        free(r.followed[i]);
    free(r.followed);
    free(r.n_followed);
    free(r.hits);
    ds_serve_plan_free(&r.alone);
    ds_changed_run_free(&r.others);
    ds_storm_setup_free(&r.setup);
    if (r.record)
        ds_record_close(r.record);
    return code;
}
