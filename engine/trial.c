/* trial.c: see trial.h. Lays out the calls of an arm (batch, slot, neighbours, padding, chunk,
 * mode) and feeds them through the forward pass. Knows no files and no processes. */
#include "engine/trial.h"

#include "base/clock.h"
#include "base/mem.h"
#include "kernels/cblas.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* One request of the batch while its trial runs. */
struct member {
    const int32_t *prompt;
    int32_t n_prompt, n_pad;
    const int32_t *feed; /* tokens of the decode steps, repeated; NULL: those of the subject */
    int32_t fed;         /* prompt tokens fed so far */
    int32_t request;     /* 0 = the subject, whatever its slot: rows are compared by request */
    int subject;
};

struct batch {
    struct member *member; /* [n] in call order */
    struct ds_batch_seq *seqs;
    int32_t *space; /* tokens of the current call */
    int32_t n, max_rows, capacity, longest;
    int32_t logits_row_of_subject;
};

/* Prompt tokens of a request in one call. */
static int32_t chunk_of(const struct ds_setting *s)
{
    return s->mode == DS_MODE_DECODE ? 1 : s->chunk > 0 ? s->chunk : INT32_MAX;
}

static void batch_free(struct batch *b)
{
    free(b->member);
    free(b->seqs);
    free(b->space);
}

static int batch_setup(const struct ds_sweep *sw, const struct ds_setting *s, struct batch *b,
                       struct ds_error *err)
{
    memset(b, 0, sizeof *b);
    b->n = s->batch;
    b->member = ds_calloc((size_t)b->n, sizeof *b->member, "batch", err);
    b->seqs = ds_calloc((size_t)b->n, sizeof *b->seqs, "batch", err);
    if (!b->member || !b->seqs)
        return -1;
    int32_t place = s->slot == DS_SLOT_FIRST ? 0 : s->slot == DS_SLOT_MIDDLE ? b->n / 2 : b->n - 1;
    if (s->slot >= 0)
        place = s->slot;
    if (place >= b->n)
        return ds_fail(err, "slot %d does not exist in a batch of %d", place, b->n);
    int64_t rows = 0;
    int32_t neighbour = 0; /* number of the last one placed */
    for (int32_t i = 0; i < b->n; i++) {
        struct member *m = &b->member[i];
        m->subject = i == place;
        m->request = m->subject ? 0 : ++neighbour;
        if (s->neighbours == DS_NEIGHBOURS_VARIED && m->request >= sw->n_requests)
            return ds_fail(err, "batch %d needs %d neighbours; only %d are there", b->n, b->n - 1,
                           sw->n_requests - 1);
        int own = m->subject || s->neighbours == DS_NEIGHBOURS_COPIES;
        const struct ds_sweep_request *r = &sw->requests[own ? 0 : m->request];
        m->prompt = r->tokens;
        m->n_prompt = r->n_prompt;
        m->feed = own ? NULL : r->tokens;
        m->n_pad = m->subject ? s->padding : 0;
        int32_t first = m->n_prompt < chunk_of(s) ? m->n_prompt : chunk_of(s);
        rows += first + m->n_pad;
        int64_t slots = (int64_t)m->n_pad + m->n_prompt + sw->options.steps;
        if (slots > INT32_MAX / 2)
            return ds_fail(err, "a request of %lld tokens is too long", (long long)slots);
        b->capacity = slots > b->capacity ? (int32_t)slots : b->capacity;
        b->longest = m->n_prompt > b->longest ? m->n_prompt : b->longest;
    }
    if (rows > INT32_MAX / 2)
        return ds_fail(err, "a call of %lld rows is too large", (long long)rows);
    b->max_rows = (int32_t)rows > b->n ? (int32_t)rows : b->n;
    b->space = ds_calloc((size_t)b->max_rows, sizeof *b->space, "call tokens", err);
    return b->space ? 0 : -1;
}

/* Fills b->seqs with the next chunk of every request that has prompt left. */
static int32_t next_chunk(struct batch *b, const struct ds_setting *s)
{
    int32_t n_seqs = 0, used = 0, logits_rows = 0;
    b->logits_row_of_subject = -1;
    for (int32_t i = 0; i < b->n; i++) {
        struct member *m = &b->member[i];
        int32_t left = m->n_prompt - m->fed, take = left < chunk_of(s) ? left : chunk_of(s);
        if (take == 0)
            continue;
        int32_t pad = m->fed == 0 ? m->n_pad : 0, *tokens = b->space + used;
        for (int32_t k = 0; k < pad; k++)
            tokens[k] = m->prompt[0]; /* any token: pad rows are seen by nobody */
        memcpy(tokens + pad, m->prompt + m->fed, (size_t)take * sizeof *tokens);
        m->fed += take;
        int last = m->fed == m->n_prompt;
        if (last && m->subject)
            b->logits_row_of_subject = logits_rows;
        logits_rows += last;
        b->seqs[n_seqs++] = (struct ds_batch_seq){.request = m->request,
                                                  .tokens = tokens,
                                                  .n_tokens = pad + take,
                                                  .n_pad = pad,
                                                  .record = m->subject,
                                                  .logits_from = last ? pad + take - 1 : pad + take,
                                                  .step = 0};
        used += pad + take;
    }
    return n_seqs;
}

/* One token of every request. */
static int32_t next_step(struct batch *b, int32_t step, int32_t subject_token)
{
    for (int32_t i = 0; i < b->n; i++) {
        struct member *m = &b->member[i];
        b->space[i] = m->feed ? m->feed[(step - 1) % m->n_prompt] : subject_token;
        if (m->subject)
            b->logits_row_of_subject = i;
        b->seqs[i] = (struct ds_batch_seq){.request = m->request,
                                           .tokens = b->space + i,
                                           .n_tokens = 1,
                                           .record = m->subject,
                                           .logits_from = 0,
                                           .step = step};
    }
    return b->n;
}

/* ---- the pass -------------------------------------------------------------------------------- */

struct running {
    struct ds_trial_runner *r;
    struct batch b;
    struct ds_probe *probe; /* NULL in a bare pass */
    const int32_t *forced;
    int32_t n_forced;
    double cpu[2], probe_cpu[2]; /* by phase */
    struct ds_step *steps;       /* of a bare pass */
    size_t n_steps, cap_steps;
};

static int record_step(struct running *u, int32_t step, const float *logits, int32_t token,
                       int32_t forced, struct ds_error *err)
{
    uint32_t vocab = (uint32_t)u->r->sweep->model->hp.vocab;
    if (u->probe)
        return ds_probe_step(u->probe, 0, step, logits, vocab, token, forced, err);
    if (ds_grow(&u->steps, &u->cap_steps, u->n_steps + 1, sizeof *u->steps, "steps", err) != 0)
        return -1;
    ds_probe_step_fill(0, step, logits, vocab, token, forced, &u->steps[u->n_steps++]);
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
    if (ds_forward_run(u->r->forward, &batch, u->probe, &logits, &tokens, &n, err) != 0)
        return -1;
    *token = -1;
    int32_t row = u->b.logits_row_of_subject;
    if (row >= 0) {
        if (row >= n)
            return ds_fail(err, "the forward pass gave %d logits rows, row %d was asked for", n,
                           row);
        *token = tokens[row];
        int32_t forced = step < u->n_forced && step < sw->options.steps ? u->forced[step]
                         : step < sw->options.steps                     ? *token
                                                                        : -1;
        if (record_step(u, step, logits + (size_t)row * (size_t)sw->model->hp.vocab, *token, forced,
                        err) != 0)
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

static int all_calls(struct running *u, struct ds_error *err)
{
    const struct ds_setting *s = &u->r->setting;
    int phase = s->mode == DS_MODE_DECODE ? DS_PHASE_DECODE : DS_PHASE_PREFILL;
    int32_t token = -1, subject_token = -1, n_seqs;
    while ((n_seqs = next_chunk(&u->b, s)) > 0) {
        if (one_call(u, n_seqs, phase, 0, &token, err) != 0)
            return -1;
        if (token != -1)
            subject_token = token;
    }
    for (int32_t step = 1; step <= u->r->sweep->options.steps && subject_token >= 0; step++) {
        next_step(&u->b, step, subject_token);
        if (one_call(u, u->b.n, DS_PHASE_DECODE, step, &subject_token, err) != 0)
            return -1;
    }
    return 0;
}

/* Makes forward pass and probe fit the arm; keeps them when the arm is the same as before. */
static int prepare(struct ds_trial_runner *r, uint32_t arm, const struct batch *b,
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
                                       .placement = r->setting.place,
                                       .ranks = r->setting.ranks,
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
    r->probe = NULL;
    r->forward = NULL;
    r->arm = 0;
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

static struct ds_trial trial_info(const struct ds_trial_runner *r,
                                  const struct ds_trial_order *order)
{
    struct ds_trial info = {.arm = order->arm,
                            .repeat = order->repeat,
                            .pass = order->pass,
                            .healed_to = order->healed_to,
                            .start_s = order->start_s,
                            .worker = order->worker,
                            .threads_asked = r->setting.threads,
                            .threads_max = ds_team_threads(ds_forward_team(r->forward)),
                            .threads_seen = DS_UNKNOWN,
                            .blas_threads = DS_UNKNOWN};
    if (ds_kernel_set_uses(&r->setting.kernels, DS_OP_MATMUL, "cblas")) {
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
static uint64_t trial_seed(const struct ds_trial_order *order)
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
    if (batch_setup(r->sweep, &r->setting, &u.b, err) != 0 ||
        prepare(r, order->arm, &u.b, err) != 0) {
        batch_free(&u.b);
        return -1;
    }
    ds_forward_reset(r->forward);
    ds_forward_seed(r->forward, trial_seed(order));
    u.probe = order->pass == DS_PASS_BARE ? NULL : r->probe;
    struct ds_trial info = trial_info(r, order);
    struct ds_thread_times before;
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
    }
    free(u.steps);
    batch_free(&u.b);
    return rc;
}
