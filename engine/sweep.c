/* sweep.c: runs the trials of a plan, arm by arm, in worker processes. See sweep.h. */
#include "engine/sweep_internal.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "kernels/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- trials ---------------------------------------------------------------------------------- */

static void waiting(void *ctx)
{
    struct sweep_state *st = ctx;
    char place[320], text[480];
    if (!ds_stalled(&st->stall, st->place, ds_seconds(CLOCK_MONOTONIC)) || !st->s->note)
        return;
    ds_place_text(st->place, &st->settings[st->arm].kernels, st->s->header->n_layers, place,
                  sizeof place);
    snprintf(text, sizeof text,
             "arm %u: no progress for %d s%s; --trial-timeout N ends a trial after N seconds",
             st->arm, DS_STALL_SECONDS, place);
    st->s->note(st->s->ctx, text);
}

/* Makes the running worker fit (arm, repeat): same BLAS core, same storage format, same process. */
static int fit_worker(struct sweep_state *st, uint32_t arm, uint32_t repeat, struct ds_error *err)
{
    const struct ds_setting *set = &st->settings[arm];
    struct ds_worker_context c = {.sweep = st->s, .site_on = st->site_on, .place = st->place};
    char key[sizeof st->key];
    ds_worker_libraries(&c, set);
    int n = snprintf(key, sizeof key, "%d %d %d %s", set->dtype, c.open_blas, c.open_cblas,
                     set->blas_core);
    if (set->processes > 1)
        snprintf(key + n, sizeof key - (size_t)n, " %u %d", arm, (int)repeat % set->processes);
    if (st->worker.pid && strcmp(key, st->key) == 0)
        return 0;
    ds_worker_stop(&st->worker);
    if (sweep_setup_format(st, set->dtype, err) != 0)
        return -1;
    c.hold = st->format[set->dtype].hold;
    c.sites = st->format[set->dtype].sites;
    memcpy(st->key, key, sizeof key);
    st->worker.time_limit = st->s->options.trial_timeout;
    st->worker.waiting = waiting;
    st->worker.waiting_ctx = st;
    return ds_worker_start(&st->worker, &c, ++st->workers, err);
}

/* Whose fault the end of the worker probably is. */
static void add_place(const struct sweep_state *st, uint32_t arm, struct ds_error *err)
{
    struct ds_error died = *err;
    char text[320];
    ds_place_text(st->place, &st->settings[arm].kernels, st->s->header->n_layers, text,
                  sizeof text);
    ds_fail(err, "%.600s%s", died.msg, text);
}

/* Runs one trial; on DS_WORKER_OK the data is the caller's. */
static int run_trial(struct sweep_state *st, const struct ds_trial *want, struct ds_trial_data *out,
                     struct ds_error *err)
{
    const uint32_t arm = want->arm;
    if (fit_worker(st, arm, want->repeat, err) != 0)
        return DS_WORKER_FAILED;
    struct ds_trial_order order = {.arm = arm,
                                   .repeat = want->repeat,
                                   .pass = want->pass,
                                   .healed_to = want->healed_to,
                                   .start_s = ds_seconds(CLOCK_MONOTONIC) - st->start,
                                   .worker = st->worker.number,
                                   .n_refs = st->n_refs[arm],
                                   .n_forced = st->n_forced};
    memcpy(order.refs, st->refs[arm], sizeof st->refs[arm]);
    /* A repeat that differs from the first trial needs sizes as much as an arm that does. */
    if (st->is_ref[arm] && want->repeat > 0)
        order.refs[order.n_refs++] = arm;
    if (want->pass == DS_PASS_HEAL) {
        order.refs[0] = want->healed_to;
        order.n_refs = 1;
    }
    st->place->doing = DS_DOING_NOTHING;
    st->stall = (struct ds_stall){0};
    st->arm = arm;
    int rc = ds_worker_trial(&st->worker, &order, st->forced, st->s->stop, out, err);
    if (rc == DS_WORKER_FAILED || rc == DS_WORKER_DIED)
        snprintf(st->died, sizeof st->died, "%s", err->msg);
    if (rc == DS_WORKER_DIED)
        add_place(st, arm, err);
    return rc;
}

/* Takes the base arm's tokens from its first trial. */
static int keep_tokens(struct sweep_state *st, const struct ds_trial_data *t, struct ds_error *err)
{
    if (st->forced)
        return 0;
    st->forced = ds_calloc((size_t)st->s->options.steps, sizeof *st->forced, "forced tokens", err);
    if (!st->forced)
        return -1;
    for (size_t i = 0; i < t->n_steps && st->n_forced < st->s->options.steps; i++)
        if (t->steps[i].step == st->n_forced)
            st->forced[st->n_forced++] = t->steps[i].token;
    return 0;
}

/* Counts and hands over a lost trial; an arm that failed once is not tried again. */
static int lost(struct sweep_state *st, const struct ds_trial *want, int rc, struct ds_error *err)
{
    struct ds_trial_data t = {.info = {.arm = want->arm,
                                       .repeat = want->repeat,
                                       .start_s = ds_seconds(CLOCK_MONOTONIC) - st->start,
                                       .worker = st->worker.number,
                                       .threads_asked = st->settings[want->arm].threads,
                                       .threads_max = DS_UNKNOWN,
                                       .threads_seen = DS_UNKNOWN,
                                       .blas_threads = DS_UNKNOWN}};
    const int how = rc != DS_WORKER_DIED ? DS_FAILED_REFUSED
                    : st->worker.late    ? DS_FAILED_LATE
                                         : DS_FAILED_DIED;
    if (ds_failure_trial(st->s->header, &st->settings[want->arm].kernels, st->place, how, st->died,
                         &t, err) != 0)
        return -1;
    if (st->result->failed++ == 0) {
        st->result->first_failure = *err;
        ds_prefix(&st->result->first_failure, "arm %u, repeat %u", want->arm, want->repeat);
    }
    st->failed[want->arm] = 1;
    rc = st->s->sink(st->s->ctx, &t, err);
    ds_trial_data_free(&t);
    return rc;
}

/* The natural trials stand, and judge what they can. `what` could not be done: it is said here, and the
 * verdict notes which arms were not healed. */
static void not_healed(const struct sweep_state *st, const char *what, const struct ds_error *err)
{
    char text[400];
    snprintf(text, sizeof text, "%s: %.300s", what, err->msg);
    if (st->s->note)
        st->s->note(st->s->ctx, text);
    /* What cannot be followed is a finding; want of memory is none, and the answer lacks something. */
    if (ds_error_is_memory(err) && st->result->failed++ == 0) {
        st->result->first_failure = *err;
        ds_prefix(&st->result->first_failure, "%s", what);
    }
}

/* What a trial came to: tokens and whole logits rows, which a pass without probes has, too. */
static uint64_t answer_of(const struct ds_trial_data *t)
{
    uint64_t h = t->n_steps;
    for (size_t i = 0; i < t->n_steps; i++) {
        const struct ds_step *s = &t->steps[i];
        const uint64_t words[] = {h, s->digest, (uint32_t)s->token,
                                  (uint64_t)(uint32_t)s->request << 32 | (uint32_t)s->step};
        h = ds_hash(words, sizeof words);
    }
    return h;
}

/* Takes from a natural trial, fresh or of the record that is resumed, what it says of healing. */
static void look_at(struct sweep_state *st, const struct ds_trial_data *t)
{
    struct seen *seen = &st->seen[t->info.arm];
    const uint32_t *refs = st->refs[t->info.arm];
    for (size_t i = 0; i < t->n_drifts; i++)
        for (uint32_t k = 0; k < st->n_refs[t->info.arm]; k++)
            seen->drifted[k] |= t->drifts[i].ref_arm == refs[k];
    seen->parted |= seen->trials > 0 && t->info.run_digest != seen->digest;
    seen->answer = seen->trials ? seen->answer : answer_of(t);
    seen->digest = seen->trials++ ? seen->digest : t->info.run_digest;
}

static int is_held(const struct sweep_state *st, uint32_t arm)
{
    const struct format *f = &st->format[st->settings[arm].dtype];
    return f->hold && ds_hold_has(f->hold, arm);
}

/* Before an arm is compared with another, that one's rows must be held. After a resume it is run
 * again, unrecorded. If that fails, what is compared with it has no sizes and is not healed. */
static int rehearse(struct sweep_state *st, uint32_t ref, struct ds_error *err)
{
    const struct ds_trial first = {.arm = ref, .pass = DS_PASS_NATURAL};
    struct ds_trial_data t;
    if (is_held(st, ref) || st->rehearsed[ref] || st->failed[ref])
        return 0;
    st->rehearsed[ref] = 1;
    int rc = run_trial(st, &first, &t, err);
    if (rc == DS_WORKER_OK) {
        ds_trial_data_free(&t);
    } else if (rc != DS_WORKER_STOPPED) {
        char what[96];
        snprintf(what, sizeof what, "nothing can be healed to arm %u, which failed when run again",
                 ref);
        not_healed(st, what, err);
    }
    return rc == DS_WORKER_STOPPED ? rc : 0;
}

static int rehearse_all(struct sweep_state *st, const struct ds_trial *want, struct ds_error *err)
{
    if (want->pass == DS_PASS_HEAL)
        return rehearse(st, want->healed_to, err);
    for (uint32_t i = 0; want->pass == DS_PASS_NATURAL && i < st->n_refs[want->arm]; i++)
        if (rehearse(st, st->refs[want->arm][i], err) == DS_WORKER_STOPPED)
            return DS_WORKER_STOPPED;
    return 0;
}

static int heal_failed(const struct sweep_state *st, const struct ds_trial *want,
                       const struct ds_error *err)
{
    char what[96];
    snprintf(what, sizeof what, "arm %u could not be healed to arm %u", want->arm, want->healed_to);
    not_healed(st, what, err);
    return 0;
}

/* One trial from plan to sink. 0, 1 when interrupted, -1 on an error that ends the sweep. */
static int do_trial(struct sweep_state *st, const struct ds_trial *want, struct ds_error *err)
{
    const struct ds_sweep *s = st->s;
    const uint32_t arm = want->arm;
    struct ds_trial_data t;
    if (rehearse_all(st, want, err) == DS_WORKER_STOPPED)
        return 1;
    if (want->pass == DS_PASS_HEAL && !is_held(st, want->healed_to))
        return 0; /* its reference was lost, which was said */
    int rc = run_trial(st, want, &t, err);
    if (rc == DS_WORKER_STOPPED)
        return 1;
    if (rc != DS_WORKER_OK) {
        if (want->pass == DS_PASS_HEAL)
            return heal_failed(st, want, err);
        if (arm == 0)
            return ds_prefix(err, "base arm");
        return lost(st, want, rc, err);
    }
    rc = want->pass != DS_PASS_BARE ? ds_trial_data_check(s->header, &t, err) : 0;
    /* A sample of the base arm's rows is no dump of drifting ones. */
    if (st->dumper == 0 && t.n_blobs > 0 && (t.n_drifts > 0 || s->options.dump == DS_DUMP_ALL))
        st->dumper = arm + 1;
    if (rc == 0 && arm == 0 && want->pass == DS_PASS_NATURAL)
        rc = keep_tokens(st, &t, err);
    if (rc == 0 && want->pass == DS_PASS_NATURAL)
        look_at(st, &t);
    if (rc == 0 && want->pass == DS_PASS_BARE)
        st->seen[arm].bare_differs = st->seen[arm].trials && answer_of(&t) != st->seen[arm].answer;
    if (rc == 0)
        rc = s->sink(s->ctx, &t, err);
    ds_trial_data_free(&t);
    if (rc == 0)
        st->result->trials++;
    return rc;
}

/* Work of a trial in rows, for the progress bar: a decode step costs about as much as a few prompt
 * rows. */
static double cost(const struct sweep_state *st, uint32_t arm)
{
    const struct ds_setting *set = &st->settings[arm];
    double calls = set->mode == DS_MODE_DECODE ? st->s->requests[0].n_prompt : 1;
    return set->batch * (double)st->s->requests[0].n_prompt + 8.0 * (st->s->options.steps + calls);
}

static int wanted(const struct sweep_state *st, const struct ds_trial *t)
{
    return !(st->s->have && st->s->have(st->s->ctx, t));
}

static int natural_wanted(const struct sweep_state *st, uint32_t arm, uint32_t repeat)
{
    const struct ds_trial t = {.arm = arm, .repeat = repeat, .pass = DS_PASS_NATURAL};
    return wanted(st, &t);
}

/* Does the trial unless it is there. */
static int complete(struct sweep_state *st, const struct ds_trial *t, struct ds_error *err)
{
    if (!wanted(st, t) || st->failed[t->arm])
        return 0;
    if (!st->missing)
        return do_trial(st, t, err);
    ++*st->missing;
    return 0;
}

/* ---- healing --------------------------------------------------------------------------------- */

/* The trials of an arm healed to another one, or to its own first. */
static int heal_to(struct sweep_state *st, uint32_t arm, uint32_t ref, uint32_t trials,
                   struct ds_error *err)
{
    int rc = 0;
    for (uint32_t r = 0; r < trials && rc == 0; r++) {
        const struct ds_trial t = {.arm = arm, .repeat = r, .pass = DS_PASS_HEAL, .healed_to = ref};
        rc = complete(st, &t, err);
    }
    return rc;
}

/* Nobody has a say between the kernels of a captured call, and without the graph it is another arm. */
static int leave_unhealed(const struct sweep_state *st, uint32_t arm)
{
    int drifts = st->seen[arm].parted;
    char text[128];
    for (uint32_t k = 0; k < st->n_refs[arm]; k++)
        drifts |= st->seen[arm].drifted[k];
    snprintf(text, sizeof text,
             "arm %u is not healed: in a captured call no row can be changed between kernels", arm);
    if (drifts && st->s->note)
        st->s->note(st->s->ctx, text);
    return 0;
}

/* An arm that equals its reference has no row to heal: its natural trial is the healed one. Where
 * repeats part, every kernel must show on equal inputs whether it agrees with itself, as often as
 * there are repeats: healed to the arm's own rows if they are held, else to a reference's. */
static int heal_arm(struct sweep_state *st, uint32_t arm, struct ds_error *err)
{
    const struct seen *seen = &st->seen[arm];
    uint32_t many = seen->parted ? seen->trials : 1;
    int rc = 0;
    if (!st->s->options.heal)
        return 0;
    if (st->settings[arm].graph)
        return leave_unhealed(st, arm);
    if (seen->parted && st->is_ref[arm]) {
        rc = heal_to(st, arm, arm, many, err);
        many = 1;
    }
    for (uint32_t k = 0; k < st->n_refs[arm] && rc == 0; k++)
        if (seen->drifted[k]) {
            rc = heal_to(st, arm, st->refs[arm][k], many, err);
            many = 1;
        }
    return rc;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void count_work(struct sweep_state *st)
{
    for (uint32_t a = 0; a < st->s->header->n_arms; a++)
        for (uint32_t r = 0; r < (uint32_t)st->s->options.repeats; r++)
            st->total += natural_wanted(st, a, r) ? cost(st, a) : 0;
}

/* The probe self-check stands beside the trial it is compared with: the base arm, which is digested
 * and held, and the first that dumps. A pass without probes that has another answer is run once more: only
 * if both agree are the probes what makes the difference, and not a kernel that is unstable. */
static int check_probes(struct sweep_state *st, uint32_t arm, struct ds_error *err)
{
    struct ds_trial bare = {.arm = arm, .pass = DS_PASS_BARE};
    if (arm != 0 && st->dumper != arm + 1)
        return 0;
    int rc = complete(st, &bare, err);
    if (rc == 0 && st->seen[arm].bare_differs) {
        bare.repeat = 1;
        rc = complete(st, &bare, err);
    }
    return rc;
}

static int natural_trial(struct sweep_state *st, uint32_t arm, uint32_t repeat,
                         struct ds_error *err)
{
    const struct ds_sweep *s = st->s;
    const struct ds_trial t = {.arm = arm, .repeat = repeat, .pass = DS_PASS_NATURAL};
    if (!wanted(st, &t)) {
        const struct ds_trial_data *old = s->recall ? s->recall(s->ctx, arm, repeat) : NULL;
        if (old)
            look_at(st, old);
        return 0;
    }
    if (st->failed[arm])
        return 0;
    if (s->options.until_stable && st->seen[arm].parted) {
        st->total -= cost(st, arm); /* it is known to be unstable */
        return 0;
    }
    int rc = do_trial(st, &t, err);
    if (rc == 0) {
        st->done += cost(st, arm);
        if (s->progress)
            s->progress(s->ctx, st->done, st->total);
    }
    return rc;
}

static int all_trials(struct sweep_state *st, struct ds_error *err)
{
    const struct ds_sweep *s = st->s;
    count_work(st);
    /* The bar's clock starts here, so that the first trial's time counts. */
    if (s->progress)
        s->progress(s->ctx, 0, st->total);
    int rc = 0;
    for (uint32_t a = 0; a < s->header->n_arms && rc == 0; a++) {
        for (uint32_t r = 0; r < (uint32_t)s->options.repeats && rc == 0; r++) {
            rc = natural_trial(st, a, r, err);
            if (rc == 0 && r == 0)
                rc = check_probes(st, a, err);
        }
        if (rc == 0)
            rc = heal_arm(st, a, err);
    }
    return rc;
}

static int count_missing(struct sweep_state *st, uint32_t *missing)
{
    const struct ds_sweep *s = st->s;
    for (uint32_t a = 0; a < s->header->n_arms; a++)
        for (uint32_t r = 0; r < (uint32_t)s->options.repeats; r++) {
            int there = !natural_wanted(st, a, r);
            const struct ds_trial_data *old = there && s->recall ? s->recall(s->ctx, a, r) : NULL;
            if (old)
                look_at(st, old);
            *missing += !there && !(s->options.until_stable && st->seen[a].parted);
        }
    return *missing > 0;
}

int ds_sweep_missing(const struct ds_sweep *s, uint32_t *missing, struct ds_error *err)
{
    struct sweep_state st = {.s = s};
    int rc = sweep_setup_arms(&st, err);
    *missing = 0;
    st.missing = missing;
    if (rc == 0 && count_missing(&st, missing) == 0)
        for (uint32_t a = 0; a < s->header->n_arms && rc == 0; a++)
            rc = heal_arm(&st, a, err);
    sweep_teardown(&st);
    return rc;
}

int ds_sweep_run(const struct ds_sweep *s, struct ds_sweep_result *result, struct ds_error *err)
{
    memset(result, 0, sizeof *result);
    struct sweep_state st = {.s = s, .result = result, .start = ds_seconds(CLOCK_MONOTONIC)};
    int rc = sweep_setup_arms(&st, err);
    if (rc == 0)
        rc = sweep_setup(&st, err);
    if (rc == 0 && s->forced) {
        st.forced = ds_calloc((size_t)s->n_forced, sizeof *st.forced, "forced tokens", err);
        rc = st.forced ? 0 : -1;
        for (; rc == 0 && st.n_forced < s->n_forced; st.n_forced++)
            st.forced[st.n_forced] = s->forced[st.n_forced];
    }
    if (rc == 0)
        rc = ds_load_start(&st.load, s->options.load, err);
    if (rc == 0)
        rc = all_trials(&st, err);
    if (rc == 1)
        result->interrupted = 1;
    sweep_teardown(&st);
    return rc < 0 ? -1 : 0;
}
