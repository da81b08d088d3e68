/* serve_trial.c: a plan, fed step by step through the forward pass: one call a step, the requests' own
 * tokens back to them. See serve.h. Runs inside a worker; knows no record. */
#include "engine/serve.h"

#include "base/clock.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/mem.h"
#include "dumps/storm.h"
#include "engine/forward.h"
#include "engine/site_map.h"
#include "engine/trial.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_HELD = 256 << 20 }; /* bytes; what is more goes to a file */

struct serving {
    const struct ds_serve_run *run;
    struct ds_setting setting;
    struct ds_site *sites;
    uint8_t *site_on, *sized;
    struct ds_forward *forward;
    struct ds_probe *probe;
    int32_t *tokens;   /* [n_requests][room] prompt and what was chosen */
    int32_t *known;    /* [n_requests] */
    int32_t *computed; /* [n_requests][room] how often a position was */
    int32_t *
        streams; /* [header->n_prompts] the first prompt with the same tokens: equal ones draw alike */
    size_t room;
    struct ds_batch_seq *seqs; /* [slots] */
    struct ds_batch_row *rows; /* [max_rows] */
    double cpu[2], probe_cpu[2];
    double aside; /* of the step at hand: seconds that are not the scheduler's */
};

static void stop(struct serving *s)
{
    ds_probe_free(s->probe);
    ds_forward_free(s->forward);
    free(s->sites);
    free(s->site_on);
    free(s->sized);
    free(s->tokens);
    free(s->known);
    free(s->computed);
    free(s->streams);
    free(s->seqs);
    free(s->rows);
}

static int start_memory(struct serving *s, struct ds_error *err)
{
    const struct ds_serve_plan *p = s->run->plan;
    const size_t n = (size_t)p->n_requests;
    s->room = (size_t)p->capacity + 1;
    s->tokens = ds_calloc(n * s->room, sizeof *s->tokens, "tokens", err);
    s->known = ds_calloc(n, sizeof *s->known, "requests", err);
    s->computed = ds_calloc(n * s->room, sizeof *s->computed, "rows", err);
    s->seqs = ds_calloc((size_t)p->slots, sizeof *s->seqs, "slots", err);
    s->rows = ds_calloc((size_t)p->max_rows, sizeof *s->rows, "call rows", err);
    if (!s->tokens || !s->known || !s->computed || !s->seqs || !s->rows ||
        ds_storm_prompts(s->run->header, &s->streams, err) != 0)
        return -1;
    for (size_t r = 0; r < n; r++) {
        const struct ds_serve_prompt *q = &s->run->prompts[r % (size_t)s->run->n_prompts];
        /* A plan may feed less than the prompt: what does not fit is not fed. */
        size_t fits = (size_t)q->n < s->room ? (size_t)q->n : s->room;
        memcpy(s->tokens + r * s->room, q->tokens, fits * sizeof *s->tokens);
        s->known[r] = q->n;
    }
    return 0;
}

/* Ends of layers, and what the head reads. */
static int is_sized(const struct ds_site *s)
{
    return !s->part[0] &&
           (strcmp(s->stage, "resid_ffn") == 0 || strcmp(s->stage, "final_norm") == 0);
}

static int start_sites(struct serving *s, struct ds_error *err)
{
    const struct ds_header *h = s->run->header;
    s->sites =
        ds_site_stored_as(h->sites, (uint32_t)h->n_sites, s->setting.dtype, s->run->f32_at, err);
    s->site_on = ds_calloc(h->n_sites, 1, "sites", err);
    s->sized = ds_calloc(h->n_sites, 1, "sites", err);
    if (!s->sites || !s->site_on || !s->sized)
        return -1;
    for (size_t i = 0; i < h->n_sites; i++) {
        s->sized[i] = (uint8_t)is_sized(&h->sites[i]);
        s->site_on[i] = !s->run->resid_only || strcmp(h->sites[i].stage, "resid_ffn") == 0 ||
                        h->sites[i].layer == h->n_layers;
    }
    return 0;
}

static int32_t prompt_of(const struct serving *s, int32_t request)
{
    return s->run->scored ? s->run->scored[request]
                          : s->run->prompts[request % s->run->n_prompts].n;
}

/* A row from which a token is chosen: one number for all that the same tokens stand before. */
static uint64_t kin_of(void *ctx, const struct ds_row *row)
{
    const struct serving *s = ctx;
    if (row->occurrence || row->position + 1 < prompt_of(s, row->request))
        return 0;
    return ds_hash(s->tokens + (size_t)row->request * s->room,
                   ((size_t)row->position + 1) * sizeof *s->tokens) |
           1;
}

static int start(struct serving *s, struct ds_place *place, struct ds_error *err)
{
    const struct ds_serve_plan *p = s->run->plan;
    const struct ds_header *h = s->run->header;
    if (start_memory(s, err) != 0 || start_sites(s, err) != 0)
        return -1;
    struct ds_forward_config config = {.kernels = s->setting.kernels,
                                       .dtype = s->setting.dtype,
                                       .f32_at = s->run->f32_at,
                                       .threads = s->setting.threads,
                                       .max_rows = p->max_rows,
                                       .n_requests = p->slots,
                                       .capacity = p->capacity,
                                       .sites = s->sites,
                                       .n_sites = h->n_sites,
                                       .device_number = s->setting.device_number,
                                       .placement = s->setting.place,
                                       .ranks = s->setting.ranks,
                                       .sampler = s->run->sampler,
                                       .place = place};
    if (ds_forward_new(s->run->model, &config, &s->forward, err) != 0)
        return -1;
    struct ds_probe_config pc = {.sites = s->sites,
                                 .n_sites = (uint32_t)h->n_sites,
                                 .edges = h->edges,
                                 .n_edges = (uint32_t)h->n_edges,
                                 .site_on = s->site_on,
                                 .dump = DS_DUMP_NONE,
                                 .hold = s->run->hold,
                                 .kin = kin_of,
                                 .kin_ctx = s,
                                 .kin_on = s->sized,
                                 .team = ds_forward_team(s->forward)};
    return ds_probe_new(&pc, &s->probe, err);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* The piece's slot as it must be before the call. */
static int take_slot(struct serving *s, const struct ds_serve_piece *p, struct ds_error *err)
{
    if (p->takes && p->copy >= 0)
        return ds_forward_copy(s->forward, p->slot, p->copy, p->cached, err);
    if (p->takes)
        ds_forward_keep(s->forward, p->slot, p->cached);
    return 0;
}

/* The sequence of a piece. Returns whether it is one decode row. */
static int fill_seq(struct serving *s, const struct ds_serve_piece *p, struct ds_batch_row *rows,
                    struct ds_batch_seq *seq)
{
    const int32_t prompt = prompt_of(s, p->request),
                  first = s->run->scored ? prompt - 1 - p->cached : p->n_tokens - 1;
    const size_t at = (size_t)p->request * s->room + (size_t)p->cached;
    for (int32_t i = 0; i < p->n_tokens; i++) {
        const int32_t position = p->cached + i;
        rows[i] = (struct ds_batch_row){.request = p->request,
                                        .occurrence = s->computed[at + (size_t)i]++,
                                        .step = position < prompt ? 0 : position - prompt + 1};
    }
    *seq =
        (struct ds_batch_seq){.request = p->slot,
                              .tokens = s->tokens + at,
                              .n_tokens = p->n_tokens,
                              .record = 1,
                              .logits_from = p->chooses ? first : p->n_tokens,
                              .stream = s->streams[p->request % (int32_t)s->run->header->n_prompts],
                              .rows = rows};
    return p->n_tokens == 1 && p->cached >= prompt;
}

/* Hands one choice to the probe, and keeps its logits if somebody wants them. */
static int take_choice(struct serving *s, int32_t request, int32_t step, int32_t row,
                       const float *logits, int32_t token, int32_t fed, struct ds_error *err)
{
    const struct ds_serve_run *run = s->run;
    const size_t vocab = (size_t)run->model->hp.vocab, begin = (size_t)row * vocab;
    const float *drawn = ds_forward_drawn(s->forward);
    const double before = ds_seconds(CLOCK_MONOTONIC);
    if (run->keep && step < (int32_t)(run->keep_at[request + 1] - run->keep_at[request]))
        memcpy(run->keep + (run->keep_at[request] + (size_t)step) * vocab,
               ds_forward_logits(s->forward) + begin, vocab * sizeof *run->keep);
    const int rc = ds_probe_step(s->probe, request, step, logits + begin,
                                 drawn ? drawn + begin : NULL, (uint32_t)vocab, token, fed, err);
    s->aside += ds_seconds(CLOCK_MONOTONIC) - before;
    return rc;
}

/* Of a text that is scored: a choice for each of its rows from the prompt's last on, beside the token that
 * was generated there and is fed next. */
static int score(struct serving *s, const struct ds_serve_piece *x, int32_t row,
                 const float *logits, const int32_t *chosen, struct ds_error *err)
{
    const int32_t prompt = prompt_of(s, x->request), n = x->cached + x->n_tokens - prompt + 1;
    const int32_t *text = s->tokens + (size_t)x->request * s->room;
    for (int32_t k = 0; k < n; k++)
        if (take_choice(s, x->request, k, row + k, logits, chosen[row + k],
                        k + 1 < n ? text[prompt + k] : -1, err) != 0)
            return -1;
    return 0;
}

/* Takes the tokens that were chosen. Where the plan never feeds one, none is said to be fed. */
static int choose(struct serving *s, size_t step, const float *logits, const int32_t *chosen,
                  int32_t n, struct ds_error *err)
{
    const struct ds_serve_plan *p = s->run->plan;
    int32_t row = 0;
    for (size_t k = p->first[step]; k < p->first[step + 1]; k++) {
        const struct ds_serve_piece *x = &p->pieces[k];
        if (!x->chooses)
            continue;
        const int32_t prompt = prompt_of(s, x->request),
                      rows = s->run->scored ? x->cached + x->n_tokens - prompt + 1 : 1;
        if (rows > n - row)
            return ds_fail(err, "the forward pass gave %d logits rows, row %d was asked for", n,
                           row + rows - 1);
        if (s->run->scored) {
            if (score(s, x, row, logits, chosen, err) != 0)
                return -1;
        } else {
            const int32_t at = s->known[x->request]++, token = chosen[row];
            if ((size_t)at < s->room)
                s->tokens[(size_t)x->request * s->room + (size_t)at] = token;
            if (take_choice(s, x->request, at - prompt, row, logits, token,
                            at - prompt + 1 < p->tokens ? token : -1, err) != 0)
                return -1;
        }
        row += rows;
    }
    return 0;
}

static int run_step(struct serving *s, size_t step, struct ds_error *err)
{
    const struct ds_serve_plan *p = s->run->plan;
    const size_t first = p->first[step], n_seqs = p->first[step + 1] - first;
    int decode = 1;
    int32_t used = 0;
    for (size_t k = 0; k < n_seqs; k++) {
        if (take_slot(s, &p->pieces[first + k], err) != 0)
            return ds_prefix(err, "step %zu", step);
        decode &= fill_seq(s, &p->pieces[first + k], s->rows + used, &s->seqs[k]);
        used += p->pieces[first + k].n_tokens;
    }
    struct ds_batch batch = {.seqs = s->seqs,
                             .n_seqs = (int32_t)n_seqs,
                             .phase = decode ? DS_PHASE_DECODE : DS_PHASE_PREFILL};
    const float *logits;
    const int32_t *tokens;
    int32_t n;
    const double cpu = ds_seconds(CLOCK_PROCESS_CPUTIME_ID), probe = ds_probe_cpu_seconds(s->probe);
    double before = ds_seconds(CLOCK_MONOTONIC);
    int rc = ds_forward_run(s->forward, &batch, s->probe, &logits, &tokens, &n, err);
    s->aside += ds_seconds(CLOCK_MONOTONIC) - before;
    if (rc != 0 || choose(s, step, logits, tokens, n, err) != 0)
        return ds_prefix(err, "step %zu", step);
    before = ds_seconds(CLOCK_MONOTONIC);
    rc = ds_probe_end_call(s->probe, err);
    s->aside += ds_seconds(CLOCK_MONOTONIC) - before;
    if (rc != 0)
        return ds_prefix(err, "step %zu", step);
    s->cpu[batch.phase] += ds_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    s->probe_cpu[batch.phase] += ds_probe_cpu_seconds(s->probe) - probe;
    return 0;
}

/* ---- all steps ------------------------------------------------------------------------------- */

static int run_steps(struct serving *s, double *seconds, struct ds_error *err)
{
    double before = ds_seconds(CLOCK_MONOTONIC);
    const size_t n = s->run->plan->n_steps;
    for (size_t step = 0; step < n; step++) {
        s->aside = 0;
        if (run_step(s, step, err) != 0)
            return -1;
        const double now = ds_seconds(CLOCK_MONOTONIC);
        if (seconds) {
            seconds[step] = now - before;
            seconds[n + step] = now - before - s->aside;
        }
        before = now;
    }
    return 0;
}

static int finish(const struct serving *s, const double *seconds, double wall, double cpu,
                  struct ds_trial *info, struct ds_error *err)
{
    struct ds_serve_wait wait;
    info->wall_s = ds_seconds(CLOCK_MONOTONIC) - wall;
    info->cpu_s = ds_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    info->prefill_cpu_s = s->cpu[DS_PHASE_PREFILL];
    info->decode_cpu_s = s->cpu[DS_PHASE_DECODE];
    info->probe_prefill_cpu_s = s->probe_cpu[DS_PHASE_PREFILL];
    info->probe_decode_cpu_s = s->probe_cpu[DS_PHASE_DECODE];
    if (!seconds)
        return 0;
    if (ds_serve_waits(s->run->plan, seconds, &wait, err) != 0)
        return -1;
    for (size_t step = 0; step < s->run->plan->n_steps; step++)
        info->steps_s += seconds[step];
    info->first_median_s = wait.median_s;
    info->first_most_s = wait.most_s;
    return 0;
}

int ds_serve_hold(const struct ds_header *h, uint64_t f32_at, uint32_t arm, size_t rows,
                  struct ds_hold **out, struct ds_error *err)
{
    struct ds_setting setting;
    *out = NULL;
    if (ds_setting_parse(h->arms[arm].values, &setting, err) != 0)
        return -1;
    if (rows > UINT32_MAX)
        return ds_fail(err, "%zu tokens are too many", rows);
    struct ds_site *sites =
        ds_site_stored_as(h->sites, (uint32_t)h->n_sites, setting.dtype, f32_at, err);
    uint32_t *site_rows = sites ? ds_calloc(h->n_sites, sizeof *site_rows, "held rows", err) : NULL;
    int rc = site_rows ? 0 : -1;
    for (size_t i = 0; i < h->n_sites && rc == 0; i++)
        site_rows[i] = is_sized(&h->sites[i]) ? (uint32_t)rows : 0;
    const struct ds_hold_config c = {.sites = sites,
                                     .n_sites = (uint32_t)h->n_sites,
                                     .site_rows = site_rows,
                                     .arms = &arm,
                                     .n_arms = 1,
                                     .budget = MOST_HELD};
    if (rc == 0)
        rc = ds_hold_new(&c, out, err);
    free(sites);
    free(site_rows);
    return rc;
}

int ds_serve_trial(void *trial, const struct ds_trial_order *order, struct ds_trial_data *out,
                   struct ds_error *err)
{
    struct ds_serve_trial *t = trial;
    struct serving s = {.run = t->run};
    memset(out, 0, sizeof *out);
    if (ds_setting_parse(t->run->header->arms[order->arm].values, &s.setting, err) != 0)
        return -1;
    int rc = start(&s, t->place, err);
    const double wall = ds_seconds(CLOCK_MONOTONIC), cpu = ds_seconds(CLOCK_PROCESS_CPUTIME_ID);
    if (rc == 0) {
        const struct ds_trial info =
            ds_trial_info(order, &s.setting, ds_forward_team(s.forward), t->trials, t->calls);
        ds_forward_seed(s.forward, ds_trial_seed(order));
        rc = ds_probe_begin_trial(s.probe, &info, t->run->against, t->run->against != NULL, err);
    }
    if (rc == 0 && (rc = run_steps(&s, t->seconds, err)) != 0)
        ds_probe_abort_trial(s.probe);
    if (rc == 0)
        rc = ds_probe_end_trial(s.probe, out, err);
    if (rc == 0 && (rc = finish(&s, t->seconds, wall, cpu, &out->info, err)) != 0)
        ds_trial_data_free(out);
    t->trials++;
    t->calls += (uint32_t)t->run->plan->n_steps;
    stop(&s);
    return rc;
}
