/* trial.c: see trial.h. Feeds the calls of an arm (trial_batch.h) through the forward pass. Knows no
 * files and no processes. */
#include "engine/trial.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/trial_batch.h"
#include "kernels/cblas.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- the pass -------------------------------------------------------------------------------- */

struct running {
    struct ds_trial_runner *r;
    struct ds_trial_batch b;
    struct ds_probe *probe; /* NULL in a bare pass */
    const int32_t *forced;
    int32_t n_forced;
    double cpu[2], probe_cpu[2]; /* by phase */
    struct ds_step *steps;       /* of a bare pass */
    size_t n_steps, cap_steps;
    /* [prefix][vocab] logits of the rows that a prefix hit does not compute again. */
    float *results;
};

/* scores: as ds_probe_step has them, or NULL. */
static int record_step(struct running *u, int32_t step, const float *logits, const float *scores,
                       int32_t token, int32_t forced, struct ds_error *err)
{
    uint32_t vocab = (uint32_t)u->r->sweep->model->hp.vocab;
    if (u->probe)
        return ds_probe_step(u->probe, 0, step, logits, scores, vocab, token, forced, err);
    if (ds_grow(&u->steps, &u->cap_steps, u->n_steps + 1, sizeof *u->steps, "steps", err) != 0)
        return -1;
    ds_probe_step_fill(0, step, logits, scores, vocab, token, forced, &u->steps[u->n_steps++]);
    return 0;
}

/* One call, timed. *token: the subject's choice, or -1 if it has no logits in this call. */
static int one_call(struct running *u, int32_t n_seqs, int phase, int32_t step, int32_t *token,
                    struct ds_error *err)
{
    const struct ds_sweep *sw = u->r->sweep;
    struct ds_batch batch = {.seqs = u->b.seqs, .n_seqs = n_seqs, .phase = phase};
    const float *logits;
    const int32_t *tokens;
    int32_t n;
    double cpu = ds_seconds(CLOCK_PROCESS_CPUTIME_ID),
           probe = u->probe ? ds_probe_cpu_seconds(u->probe) : 0;
    u->r->calls++;
    if (ds_forward_run(u->r->forward, &batch, u->probe, &logits, &tokens, &n, err) != 0)
        return -1;
    *token = -1;
    int32_t row = u->b.choice;
    if (row >= 0) {
        if (row >= n)
            return ds_fail(err, "the forward pass gave %d logits rows, row %d was asked for", n,
                           row);
        *token = tokens[row];
        int32_t forced = step < u->n_forced && step < sw->options.steps ? u->forced[step]
                         : step < sw->options.steps                     ? *token
                                                                        : -1;
        const size_t at = (size_t)row * (size_t)sw->model->hp.vocab;
        const float *drawn = ds_forward_drawn(u->r->forward);
        if (record_step(u, step, logits + at, drawn ? drawn + at : NULL, *token, forced, err) != 0)
            return -1;
        if (sw->options.free_run && step < u->n_forced && *token != u->forced[step])
            *token = -2; /* the texts part here: what follows has no counterpart */
        else if (forced >= 0)
            *token = forced;
    }
    if (u->probe && ds_probe_end_call(u->probe, err) != 0)
        return -1;
    u->cpu[phase] += ds_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    if (u->probe)
        u->probe_cpu[phase] += ds_probe_cpu_seconds(u->probe) - probe;
    return 0;
}

/* The results that the call gave for prompt tokens from `first` on, as far as a prefix has them. */
static void keep_results(struct running *u, int32_t first)
{
    const size_t vocab = (size_t)u->b.vocab;
    const float *logits = ds_forward_logits(u->r->forward);
    for (int32_t k = 0; k < u->b.n_logits && first + k < u->r->setting.prefix; k++)
        memcpy(u->results + (size_t)(first + k) * vocab,
               logits + (size_t)(u->b.first_logits + k) * vocab, vocab * sizeof *logits);
}

/* The pass before: the same prompts in the same calls, recorded nowhere; of it the subject's first
 * tokens stay in the cache. Then what stands there is shown. */
static int fill_prefix(struct running *u, int phase, struct ds_error *err)
{
    const struct ds_setting *s = &u->r->setting;
    struct ds_forward *f = u->r->forward;
    const int results = u->r->sweep->options.all_logits;
    if (results && !(u->results = ds_calloc((size_t)s->prefix * (size_t)u->b.vocab,
                                            sizeof *u->results, "results of a prefix", err)))
        return -1;
    for (int32_t n_seqs, first = 0; (n_seqs = ds_trial_next_chunk(&u->b, s)) > 0;) {
        struct ds_batch batch = {.seqs = u->b.seqs, .n_seqs = n_seqs, .phase = phase};
        const float *logits;
        const int32_t *tokens;
        int32_t n;
        for (int32_t i = 0; i < n_seqs; i++)
            u->b.seqs[i].record = u->b.seqs[i].record_pads = 0;
        u->r->calls++;
        if (ds_forward_run(f, &batch, NULL, &logits, &tokens, &n, err) != 0)
            return -1;
        if (results)
            keep_results(u, first);
        first += u->b.n_logits;
    }
    ds_trial_batch_rewind(&u->b, s->prefix);
    for (int32_t i = 0; i < u->b.n; i++)
        ds_forward_keep(f, u->b.member[i].request, u->b.member[i].subject ? s->prefix : 0);
    if (!u->probe)
        return 0;
    double probe = ds_probe_cpu_seconds(u->probe), cpu = ds_seconds(CLOCK_PROCESS_CPUTIME_ID);
    int rc = ds_forward_show_kept(f, 0, phase, u->results, u->probe, err) != 0 ||
                     ds_probe_end_call(u->probe, err) != 0
                 ? -1
                 : 0;
    u->cpu[phase] += ds_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    u->probe_cpu[phase] += ds_probe_cpu_seconds(u->probe) - probe;
    return rc;
}

static int all_calls(struct running *u, struct ds_error *err)
{
    const struct ds_setting *s = &u->r->setting;
    int phase = s->mode == DS_MODE_DECODE ? DS_PHASE_DECODE : DS_PHASE_PREFILL;
    int32_t token = -1, subject_token = -1, n_seqs;
    if (s->prefix > 0 && fill_prefix(u, phase, err) != 0)
        return -1;
    while ((n_seqs = ds_trial_next_chunk(&u->b, s)) > 0) {
        if (one_call(u, n_seqs, phase, 0, &token, err) != 0)
            return -1;
        if (token != -1)
            subject_token = token;
    }
    for (int32_t step = 1; step <= u->r->sweep->options.steps && subject_token >= 0; step++) {
        n_seqs = ds_trial_next_step(&u->b, s, step, subject_token,
                                    step < u->n_forced ? u->forced[step] : -1);
        if (one_call(u, n_seqs, DS_PHASE_DECODE, step, &subject_token, err) != 0)
            return -1;
    }
    return 0;
}

/* Makes forward pass and probe fit the arm; keeps them when the arm is the same as before. */
static int prepare(struct ds_trial_runner *r, uint32_t arm, const struct ds_trial_batch *b,
                   struct ds_error *err)
{
    const struct ds_sweep *sw = r->sweep;
    if (r->arm == arm + 1)
        return 0;
    ds_trial_runner_free(r);
    struct ds_forward_config config = {.kernels = r->setting.kernels,
                                       .dtype = r->setting.dtype,
                                       .threads = r->setting.threads,
                                       .max_rows = b->max_rows,
                                       .n_requests = b->n,
                                       .capacity = b->capacity,
                                       .page_size = sw->options.page_size,
                                       .sites = r->sites,
                                       .n_sites = sw->header->n_sites,
                                       .poison = sw->options.poison,
                                       .device_number = r->setting.device_number,
                                       .graph = r->setting.graph,
                                       .placement = r->setting.place,
                                       .ranks = r->setting.ranks,
                                       .position_offset = sw->options.position_offset,
                                       .most_kept = r->setting.prefix,
                                       .sampler = sw->options.sampler,
                                       .f32_at = sw->options.f32_at,
                                       .place = r->place};
    if (ds_forward_new(sw->model, &config, &r->forward, err) != 0)
        return -1;
    struct ds_probe_config pc = {.sites = r->sites,
                                 .n_sites = (uint32_t)sw->header->n_sites,
                                 .edges = sw->header->edges,
                                 .n_edges = (uint32_t)sw->header->n_edges,
                                 .site_on = r->site_on,
                                 .dump = (enum ds_dump)sw->options.dump,
                                 .dump_rows = (uint32_t)sw->options.dump_rows,
                                 .hold = r->hold,
                                 .team = ds_forward_team(r->forward)};
    ds_sample_plan(sw, r->sites, &pc.sample);
    if (ds_probe_new(&pc, &r->probe, err) != 0) {
        ds_trial_runner_free(r);
        return -1;
    }
    r->arm = arm + 1;
    return 0;
}

void ds_trial_runner_free(struct ds_trial_runner *r)
{
    ds_probe_free(r->probe);
    ds_forward_free(r->forward);
    free(r->unlike);
    r->unlike = NULL;
    r->probe = NULL;
    r->forward = NULL;
    r->arm = 0;
}

/* A share of two ranks is another thing than a share of four, and so is what adds them: such rows
 * cannot take each other's place. */
static int leave_out_shares(struct ds_trial_runner *r, const struct ds_trial_order *order,
                            struct ds_error *err)
{
    const struct ds_header *h = r->sweep->header;
    struct ds_setting ref;
    ds_probe_leave_out(r->probe, NULL);
    if (order->pass != DS_PASS_HEAL)
        return 0;
    if (ds_setting_parse(h->arms[order->healed_to].values, &ref, err) != 0)
        return -1;
    if (ref.ranks == r->setting.ranks)
        return 0;
    if (!r->unlike && !(r->unlike = ds_calloc(h->n_sites, 1, "sites", err)))
        return -1;
    for (size_t i = 0; i < h->n_sites; i++) {
        const char *part = h->sites[i].part;
        r->unlike[i] = (part[0] == 'r' && part[1] >= '0' && part[1] <= '9') ||
                       strcmp(h->sites[i].stage, "allreduce") == 0;
    }
    ds_probe_leave_out(r->probe, r->unlike);
    return 0;
}

/* Completes what only the end of the trial knows. */
static void finish(const struct running *u, const struct ds_thread_times *before, double wall,
                   double cpu, struct ds_trial *info)
{
    struct ds_thread_times after;
    ds_thread_times_read(&after);
    info->wall_s = ds_seconds(CLOCK_MONOTONIC) - wall;
    info->cpu_s = ds_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    info->prefill_cpu_s = u->cpu[DS_PHASE_PREFILL];
    info->decode_cpu_s = u->cpu[DS_PHASE_DECODE];
    info->probe_prefill_cpu_s = u->probe_cpu[DS_PHASE_PREFILL];
    info->probe_decode_cpu_s = u->probe_cpu[DS_PHASE_DECODE];
    info->threads_seen = ds_thread_times_moved(before, &after);
}

struct ds_trial ds_trial_info(const struct ds_trial_order *order, const struct ds_setting *s,
                              struct ds_team *team, uint32_t trials, uint32_t calls)
{
    struct ds_trial info = {.arm = order->arm,
                            .repeat = order->repeat,
                            .pass = order->pass,
                            .healed_to = order->healed_to,
                            .start_s = order->start_s,
                            .worker = order->worker,
                            .earlier_trials = trials,
                            .earlier_calls = calls,
                            .threads_asked = s->threads,
                            .threads_max = ds_team_threads(team),
                            .threads_seen = DS_UNKNOWN,
                            .blas_threads = DS_UNKNOWN};
    if (ds_kernel_set_uses_cblas(&s->kernels)) {
        snprintf(info.blas_config, sizeof info.blas_config, "%s", ds_cblas_config());
    } else if (ds_blas_is_open()) {
        info.blas_threads = ds_blas_max_threads();
        snprintf(info.blas_config, sizeof info.blas_config, "%.*s",
                 (int)sizeof info.blas_config - 1, ds_blas_config());
        snprintf(info.blas_core, sizeof info.blas_core, "%.*s", (int)sizeof info.blas_core - 1,
                 ds_blas_core());
    }
    return info;
}

/* Any two trials differ, in one process or in two; only the bare pass repeats a trial, the first. The
 * forward pass counts on from here in even steps (next_seed), so neighbouring trials must not be such a
 * step apart: each would repeat the other's launches, one later. */
uint64_t ds_trial_seed(const struct ds_trial_order *order)
{
    uint64_t healed = order->pass == DS_PASS_HEAL ? (uint64_t)order->healed_to + 1 : 0,
             z = ((uint64_t)order->arm << 32 | order->repeat) + 0xa0761d6478bd642fu +
                 healed * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93u;
    z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93u;
    return z ^ (z >> 32);
}

int ds_trial_run(struct ds_trial_runner *r, const struct ds_trial_order *order,
                 const int32_t *forced, struct ds_trial_data *out, struct ds_error *err)
{
    memset(out, 0, sizeof *out);
    if (ds_setting_parse(r->sweep->header->arms[order->arm].values, &r->setting, err) != 0)
        return -1;
    struct running u = {.r = r, .forced = forced, .n_forced = order->n_forced};
    if (ds_trial_batch_new(r->sweep, &r->setting, &u.b, err) != 0 ||
        prepare(r, order->arm, &u.b, err) != 0 || leave_out_shares(r, order, err) != 0) {
        ds_trial_batch_free(&u.b);
        return -1;
    }
    ds_forward_reset(r->forward);
    const struct ds_trial info =
        ds_trial_info(order, &r->setting, ds_forward_team(r->forward), r->trials, r->calls);
    r->trials++;
    ds_forward_seed(r->forward, ds_trial_seed(order));
    u.probe = order->pass == DS_PASS_BARE ? NULL : r->probe;
    struct ds_thread_times before;
    if (r->most_threads == 0 || r->setting.threads < r->most_threads)
        ds_thread_times_settle();
    r->most_threads = r->setting.threads;
    ds_thread_times_read(&before);
    double wall = ds_seconds(CLOCK_MONOTONIC), cpu = ds_seconds(CLOCK_PROCESS_CPUTIME_ID);
    int rc = u.probe ? ds_probe_begin_trial(u.probe, &info, order->refs, order->n_refs, err) : 0;
    if (rc == 0 && (rc = all_calls(&u, err)) != 0 && u.probe)
        ds_probe_abort_trial(u.probe);
    if (rc == 0 && u.probe)
        rc = ds_probe_end_trial(u.probe, out, err);
    if (rc == 0) {
        if (!u.probe) {
            out->info = info;
            out->steps = u.steps;
            out->n_steps = u.n_steps;
            u.steps = NULL;
        }
        finish(&u, &before, wall, cpu, &out->info);
        if (u.probe && r->sweep->options.digest_packed)
            rc = ds_forward_packed(r->forward, &out->packed, &out->n_packed, err);
        if (rc != 0)
            ds_trial_data_free(out);
    }
    free(u.steps);
    free(u.results);
    ds_trial_batch_free(&u.b);
    return rc;
}
