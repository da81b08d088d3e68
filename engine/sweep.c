/* sweep.c: runs the trials of a plan, arm by arm, in worker processes. See sweep.h. */
#include "engine/sweep.h"

#include "base/clock.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "dumps/verdict.h"
#include "engine/failure.h"
#include "engine/forward.h"
#include "engine/load.h"
#include "engine/site_map.h"
#include "engine/worker.h"
#include "kernels/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* What belongs to one storage format: held rows and the sites as that format stores them. */
struct format {
    struct ds_hold *hold;
    struct ds_site *sites;
    int ready;
};

/* What the natural trials of an arm showed: what there is to heal. */
struct seen {
    uint8_t drifted[DS_FACTOR_COUNT]; /* from this reference, in some trial */
    uint8_t parted;                   /* repeats gave unlike bits */
    uint32_t trials;
    uint64_t digest; /* of the first */
};

struct sweep_state {
    const struct ds_sweep *s;
    struct ds_setting *settings; /* [n_arms] */
    uint32_t (*refs)[DS_FACTOR_COUNT];
    uint32_t *n_refs;
    uint8_t *is_ref, *rehearsed, *failed;
    struct seen *seen; /* [n_arms] */
    uint8_t *site_on;
    struct format format[DS_DTYPE_COUNT];
    struct ds_worker worker;
    struct ds_place *place;                         /* of the running worker, shared with it */
    char key[96];                                   /* what the running worker was made for */
    char died[sizeof(((struct ds_error *)0)->msg)]; /* what the last lost trial said */
    int32_t workers;
    int32_t *forced; /* the base arm's tokens, once known */
    int32_t n_forced;
    struct ds_load load;
    uint32_t dumping; /* arm + 1 of the first trial that dumped rows, 0 = none yet */
    double start, done, total;
    struct ds_sweep_result *result;
    uint32_t *missing; /* not NULL: trials are counted, not run */
};

/* ---- setting up ------------------------------------------------------------------------------ */

static int setup_arms(struct sweep_state *st, struct ds_error *err)
{
    const struct ds_header *h = st->s->header;
    size_t n = h->n_arms;
    st->settings = ds_calloc(n, sizeof *st->settings, "arms", err);
    st->refs = ds_calloc(n, sizeof *st->refs, "arms", err);
    st->n_refs = ds_calloc(n, sizeof *st->n_refs, "arms", err);
    st->is_ref = ds_calloc(n, 1, "arms", err);
    st->rehearsed = ds_calloc(n, 1, "arms", err);
    st->failed = ds_calloc(n, 1, "arms", err);
    st->seen = ds_calloc(n, sizeof *st->seen, "arms", err);
    if (!st->seen || !st->settings || !st->refs || !st->n_refs || !st->is_ref || !st->rehearsed ||
        !st->failed)
        return -1;
    if (h->n_factors != DS_FACTOR_COUNT)
        return ds_fail(err, "the plan has %zu factors; this version knows %d", h->n_factors,
                       DS_FACTOR_COUNT);
    for (uint32_t a = 0; a < n; a++) {
        if (ds_setting_parse(h->arms[a].values, &st->settings[a], err) != 0)
            return ds_prefix(err, "arm %u", a);
        for (uint32_t f = 0; f < DS_FACTOR_COUNT; f++) {
            int64_t ref = ds_arm_reference(h, a, f);
            if (ref < 0)
                continue;
            st->refs[a][st->n_refs[a]++] = (uint32_t)ref;
            st->is_ref[ref] = 1;
        }
        /* What nobody else can heal: its repeats, each to the first. */
        if (st->s->options.heal && st->n_refs[a] == 0 && st->s->options.repeats > 1)
            st->is_ref[a] = 1;
    }
    /* Sizes of what its own repeats change are wanted of the base arm at least. */
    if (st->s->options.repeats > 1)
        st->is_ref[0] = 1;
    return 0;
}

/* Which sites are digested. */
static int setup_sites(struct sweep_state *st, struct ds_error *err)
{
    const struct ds_header *h = st->s->header;
    if (!st->s->options.resid_only)
        return 0;
    st->site_on = ds_calloc(h->n_sites, 1, "sites", err);
    if (!st->site_on)
        return -1;
    for (size_t i = 0; i < h->n_sites; i++)
        st->site_on[i] =
            strcmp(h->sites[i].stage, "resid_ffn") == 0 || h->sites[i].layer == h->n_layers;
    return 0;
}

/* Padding rows that an arm records: see trial_batch.c. */
static uint32_t subject_pads(const struct ds_sweep *s, const struct ds_setting *a)
{
    int64_t wide = a->padding ? (int64_t)s->requests[0].n_prompt + a->padding : 0;
    for (int32_t i = 1;
         a->padding && a->neighbours == DS_NEIGHBOURS_VARIED && i < a->batch && i < s->n_requests;
         i++)
        wide = s->requests[i].n_prompt > wide ? s->requests[i].n_prompt : wide;
    return wide ? (uint32_t)(wide - s->requests[0].n_prompt) : 0;
}

static int setup_format(struct sweep_state *st, int dtype, struct ds_error *err)
{
    const struct ds_sweep *s = st->s;
    struct format *f = &st->format[dtype];
    if (f->ready)
        return 0;
    const uint32_t n_sites = (uint32_t)s->header->n_sites;
    f->sites = ds_site_stored_as(s->header->sites, n_sites, dtype, err);
    if (!f->sites)
        return -1;
    uint32_t *arms = ds_calloc(s->header->n_arms, sizeof *arms, "held arms", err), n_arms = 0;
    uint32_t *rows = ds_calloc(n_sites, sizeof *rows, "held rows", err);
    uint32_t pads = 0;
    int rc = arms && rows ? 0 : -1;
    for (uint32_t a = 0; a < s->header->n_arms && rc == 0; a++)
        if (st->is_ref[a] && st->settings[a].dtype == dtype) {
            arms[n_arms++] = a;
            uint32_t own = subject_pads(s, &st->settings[a]);
            pads = own > pads ? own : pads;
        }
    for (uint32_t i = 0; i < n_sites && rc == 0; i++) {
        int few = strcmp(f->sites[i].stage, "logits") == 0 ||
                  strcmp(f->sites[i].stage, "token") == 0 ||
                  strcmp(f->sites[i].stage, "logits_processed") == 0;
        int off = st->site_on && !st->site_on[i];
        uint32_t prompt = (uint32_t)s->requests[0].n_prompt;
        rows[i] = off ? 0
                      : (uint32_t)s->options.steps +
                            (few ? (s->options.all_logits ? prompt : 1u) : prompt + pads);
    }
    if (rc == 0 && n_arms > 0) {
        struct ds_hold_config hc = {.sites = f->sites,
                                    .n_sites = n_sites,
                                    .site_rows = rows,
                                    .arms = arms,
                                    .n_arms = n_arms,
                                    .budget = s->options.hold};
        rc = ds_hold_new(&hc, &f->hold, err);
        if (rc == 0 && ds_hold_spilled(f->hold) > 0 && s->note) {
            char text[160];
            snprintf(text, sizeof text,
                     "held reference rows exceed --hold: %.1f MB go to a temporary file",
                     (double)ds_hold_spilled(f->hold) / 1e6);
            s->note(s->ctx, text);
        }
    }
    free(arms);
    free(rows);
    f->ready = rc == 0;
    return rc;
}

/* Memory in which a worker says what it is doing: the one thing that is left when it dies. */
static int setup_place(struct sweep_state *st, struct ds_error *err)
{
    void *shared =
        mmap(NULL, sizeof *st->place, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return ds_fail(err, "out of memory for a shared page");
    st->place = shared;
    return 0;
}

/* The matmul kernel whose repacked weights every worker can share: the only one of the arms that
 * repacks, else NULL. With two of them the parent's copy would lie beside a worker's, a third copy
 * of the weights; what a plugin repacks is left to the workers, too: it may crash. */
static const struct ds_kernel *shared_packer(const struct sweep_state *st)
{
    const struct ds_kernel *found = NULL;
    for (size_t a = 0; a < st->s->header->n_arms; a++) {
        const struct ds_kernel *k;
        for (int32_t i = 0; (k = ds_kernel_set_used(&st->settings[a].kernels, DS_OP_MATMUL, i));
             i++) {
            if (k->prepare && found && found != k)
                return NULL;
            if (k->prepare)
                found = k;
        }
    }
    return found && !ds_plugin_of(found) ? found : NULL;
}

/* Rope tables and repacked weights, before the first fork, so that every worker shares them. */
static int setup_model(struct sweep_state *st, struct ds_error *err)
{
    const struct ds_sweep *s = st->s;
    int64_t positions;
    if (ds_sweep_fits(s, &positions, err) != 0 ||
        ds_model_rope_table(s->model, positions, err) != 0)
        return -1;
    ds_model_seal(s->model);
    const struct ds_kernel *packer = shared_packer(st);
    int threads = st->settings[0].threads > 2 ? st->settings[0].threads : 2;
    return packer ? ds_model_prepare(s->model, packer, threads, err) : 0;
}

static void teardown(struct sweep_state *st)
{
    ds_worker_stop(&st->worker);
    ds_load_stop(&st->load);
    for (int d = 0; d < DS_DTYPE_COUNT; d++) {
        ds_hold_free(st->format[d].hold);
        free(st->format[d].sites);
    }
    if (st->place)
        munmap(st->place, sizeof *st->place);
    free(st->settings);
    free(st->refs);
    free(st->n_refs);
    free(st->is_ref);
    free(st->rehearsed);
    free(st->failed);
    free(st->seen);
    free(st->site_on);
    free(st->forced);
}

/* ---- trials ---------------------------------------------------------------------------------- */

/* Makes the running worker fit (arm, repeat): same BLAS core, same storage format, same process. */
static int fit_worker(struct sweep_state *st, uint32_t arm, uint32_t repeat, struct ds_error *err)
{
    const struct ds_setting *set = &st->settings[arm];
    struct ds_worker_context c = {.sweep = st->s, .site_on = st->site_on, .place = st->place};
    char key[sizeof st->key];
    /* A BLAS that no arm of this worker asks for is not opened: the pinned set must not depend on
     * one. */
    c.open_blas = ds_kernel_set_uses(&set->kernels, DS_OP_MATMUL, "openblas") || set->blas_core[0];
    c.open_cblas = ds_kernel_set_uses_cblas(&set->kernels);
    int n = snprintf(key, sizeof key, "%d %d %d %s", set->dtype, c.open_blas, c.open_cblas,
                     set->blas_core);
    if (set->processes > 1)
        snprintf(key + n, sizeof key - (size_t)n, " %u %d", arm, (int)repeat % set->processes);
    if (st->worker.pid && strcmp(key, st->key) == 0)
        return 0;
    ds_worker_stop(&st->worker);
    if (setup_format(st, set->dtype, err) != 0)
        return -1;
    c.hold = st->format[set->dtype].hold;
    c.sites = st->format[set->dtype].sites;
    memcpy(c.blas_core, set->blas_core, sizeof c.blas_core);
    memcpy(st->key, key, sizeof key);
    st->worker.time_limit = st->s->options.trial_timeout;
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

/* The arm's natural trials stand, and judge what they can. */
static int not_healed(const struct sweep_state *st, const struct ds_trial *want,
                      const struct ds_error *err)
{
    char text[400];
    snprintf(text, sizeof text, "arm %u could not be healed to arm %u: %.300s", want->arm,
             want->healed_to, err->msg);
    if (st->s->note)
        st->s->note(st->s->ctx, text);
    return 0;
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
    seen->digest = seen->trials++ ? seen->digest : t->info.run_digest;
}

static int is_held(const struct sweep_state *st, uint32_t arm)
{
    const struct format *f = &st->format[st->settings[arm].dtype];
    return f->hold && ds_hold_has(f->hold, arm);
}

/* Before an arm is compared with another, that one's rows must be held. After a resume it is run
 * again, unrecorded. */
static int rehearse(struct sweep_state *st, uint32_t ref, struct ds_error *err)
{
    const struct ds_trial first = {.arm = ref, .pass = DS_PASS_NATURAL};
    struct ds_trial_data t;
    if (is_held(st, ref) || st->rehearsed[ref] || st->failed[ref])
        return 0;
    st->rehearsed[ref] = 1;
    int rc = run_trial(st, &first, &t, err);
    if (rc == DS_WORKER_OK)
        ds_trial_data_free(&t);
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
            return not_healed(st, want, err);
        if (arm == 0)
            return ds_prefix(err, "base arm");
        return lost(st, want, rc, err);
    }
    rc = want->pass != DS_PASS_BARE ? ds_trial_data_check(s->header, &t, err) : 0;
    if (st->dumping == 0 && t.n_blobs > 0)
        st->dumping = arm + 1;
    if (rc == 0 && arm == 0 && want->pass == DS_PASS_NATURAL)
        rc = keep_tokens(st, &t, err);
    if (rc == 0 && want->pass == DS_PASS_NATURAL)
        look_at(st, &t);
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
 * and held, and the first that dumps. */
static int check_probes(struct sweep_state *st, uint32_t arm, struct ds_error *err)
{
    const struct ds_trial bare = {.arm = arm, .pass = DS_PASS_BARE};
    return arm == 0 || st->dumping == arm + 1 ? complete(st, &bare, err) : 0;
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
    int rc = setup_arms(&st, err);
    *missing = 0;
    st.missing = missing;
    if (rc == 0 && count_missing(&st, missing) == 0)
        for (uint32_t a = 0; a < s->header->n_arms && rc == 0; a++)
            rc = heal_arm(&st, a, err);
    teardown(&st);
    return rc;
}

int ds_sweep_run(const struct ds_sweep *s, struct ds_sweep_result *result, struct ds_error *err)
{
    memset(result, 0, sizeof *result);
    struct sweep_state st = {.s = s, .result = result, .start = ds_seconds(CLOCK_MONOTONIC)};
    int rc = setup_arms(&st, err);
    if (rc == 0)
        rc = setup_sites(&st, err);
    if (rc == 0)
        rc = setup_place(&st, err);
    if (rc == 0)
        rc = setup_model(&st, err);
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
    teardown(&st);
    return rc < 0 ? -1 : 0;
}

/* ---- the model's part of a header ------------------------------------------------------------ */

static int describe_weights(const struct ds_model *m, struct ds_header *h, struct ds_error *err)
{
    h->weights = ds_calloc(m->n_weights, sizeof *h->weights, "weights", err);
    if (!h->weights)
        return -1;
    h->n_weights = m->n_weights;
    for (size_t i = 0; i < m->n_weights; i++) {
        const struct ds_weight *w = &m->weights[i];
        struct ds_record_weight *r = &h->weights[i];
        memcpy(r->name, w->name, sizeof r->name);
        memcpy(r->dtype, w->file_dtype, sizeof r->dtype);
        r->rows = w->rows;
        r->cols = w->cols;
        r->digest = w->digest;
        r->loaded = w->loaded;
    }
    return 0;
}

/* What the rope kernels read, as one more hyperparameter: the table is computed with the host's
 * libm. */
static int describe_rope(struct ds_model *m, struct ds_header *h, struct ds_error *err)
{
    enum { MOST = 8192 };
    int64_t positions = m->hp.context < MOST ? m->hp.context : MOST;
    if (ds_model_rope_table(m, positions, err) != 0)
        return -1;
    struct ds_text *t = &h->hparams[h->n_hparams];
    uint64_t digest =
        ds_digest(m->rope_table, (size_t)positions * (size_t)m->hp.rope_dim * sizeof(float));
    t->name = strdup("rope_table_digest");
    if (asprintf(&t->value, "%016llx over %lld positions", (unsigned long long)digest,
                 (long long)positions) < 0)
        t->value = NULL;
    h->n_hparams++;
    return t->name && t->value ? 0 : ds_fail(err, "out of memory");
}

static int describe_hparams(const struct ds_model *m, struct ds_header *h, struct ds_error *err)
{
    const char *name;
    char text[128];
    size_t n = 0;
    while (ds_hparam_text(&m->hp, n, &name, text, sizeof text) == 0)
        n++;
    h->hparams = ds_calloc(n + 1, sizeof *h->hparams, "hyperparameters", err);
    if (!h->hparams)
        return -1;
    for (h->n_hparams = 0; h->n_hparams < n; h->n_hparams++) {
        struct ds_text *t = &h->hparams[h->n_hparams];
        if (ds_hparam_text(&m->hp, h->n_hparams, &name, text, sizeof text) != 0)
            break;
        t->name = strdup(name);
        t->value = strdup(text);
        if (!t->name || !t->value) {
            h->n_hparams++;
            return ds_fail(err, "out of memory");
        }
    }
    return 0;
}

/* What all arms together want to see: stages that some arm with a 16-bit format reads before
 * rounding, partial sums, borders between devices. All arms show them, so that they can be compared. */
static int gather_wants(const struct ds_model *m, const struct ds_header *h, uint8_t *boundary,
                        struct ds_site_wants *wants, struct ds_error *err)
{
    struct ds_setting s;
    for (size_t a = 0; a < h->n_arms; a++) {
        if (ds_setting_parse(h->arms[a].values, &s, err) != 0)
            return ds_prefix(err, "arm %zu", a);
        if (s.dtype != DS_F32)
            wants->unrounded |= ds_forward_unrounded(m, &s.kernels);
        wants->processed |= ds_kernel_set_changes(&s.kernels, DS_OP_PROCESS);
        wants->watched |= ds_kernel_set_added(&s.kernels, DS_OP_CACHE);
        wants->slots |= ds_kernel_set_changes(&s.kernels, DS_OP_SCHEDULE);
        if (ds_placement_check(&s.place, m->hp.n_layers, err) != 0 ||
            ds_ranks_check(&m->hp, s.ranks, err) != 0)
            return -1;
        wants->ranks = s.ranks > wants->ranks ? s.ranks : wants->ranks;
        for (int32_t l = 0; l < m->hp.n_layers; l++)
            boundary[l] |= ds_placement_boundary(&s.place, l);
    }
    wants->boundary = boundary;
    return 0;
}

int ds_sweep_describe_model(struct ds_model *m, int dtype, int32_t score_keys, struct ds_header *h,
                            struct ds_error *err)
{
    struct ds_site_wants wants = {.score_keys = score_keys};
    uint32_t n_sites, n_edges;
    snprintf(h->model_name, sizeof h->model_name, "%s", m->name);
    snprintf(h->model_arch, sizeof h->model_arch, "%s", m->hp.arch);
    h->model_digest = m->digest;
    h->n_layers = m->hp.n_layers;
    h->n_heads = m->hp.n_heads;
    h->n_kv_heads = m->hp.n_kv_heads;
    h->head_dim = m->hp.head_dim;
    uint8_t *boundary = ds_calloc((size_t)m->hp.n_layers, 1, "borders", err);
    int rc = boundary ? gather_wants(m, h, boundary, &wants, err) : -1;
    if (rc == 0)
        rc = ds_site_list(&m->hp, dtype, &wants, &h->sites, &n_sites, &h->edges, &n_edges, err);
    free(boundary);
    if (rc != 0)
        return -1;
    h->n_sites = n_sites;
    h->n_edges = n_edges;
    if (describe_weights(m, h, err) != 0)
        return -1;
    return describe_hparams(m, h, err) != 0 ? -1 : describe_rope(m, h, err);
}
