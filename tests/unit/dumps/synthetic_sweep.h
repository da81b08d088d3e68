/* synthetic_sweep.h: a sweep in memory whose digests the test controls, for tests of the verdict.
 *
 * Instead of numbers a row's value is a digest: hash(kernel's weights, input digests along the
 * edges, tag). The test's `tag` function plays the kernel: it sees op, M, slot, threads, repeat and
 * so on, and returns 0 for the usual bits, another number for other bits, or TAG_DROP to forget its
 * inputs (a kernel that heals). Everything downstream follows by itself. */
#ifndef DS_SYNTHETIC_SWEEP_H
#define DS_SYNTHETIC_SWEEP_H

#include "base/mem.h"
#include "dumps/verdict.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_DROP = 0x7fffffff, SWEEP_PROMPT = 6, SWEEP_STEPS = 3, SWEEP_WIDTH = 576 };

struct sweep;

struct cell { /* what a kernel can see */
    const struct sweep *sweep;
    const struct ds_site *site;
    uint32_t site_index, arm, repeat, m, slot, phase, call;
    int32_t position, step;
};

struct sweep {
    struct ds_header header;
    struct ds_trial_data *trials;
    size_t n_trials, cap_trials;
    uint64_t seed;                         /* weights: another seed is another model */
    uint32_t (*tag)(const struct cell *c); /* NULL: nothing ever differs */
    void (*launch)(const struct cell *c,
                   struct ds_launch *l); /* NULL: OPS' variants, threads of the arm */
    int32_t (*token)(const struct cell *c, uint64_t logits); /* NULL: always 100 + step */
    double relative;   /* relative rms of every drifting row; 0 = 3e-7 */
    uint32_t elements; /* of each drifting row; 0 = half */
    int no_sizes;
    const char *blas_core;
};

static inline const char *cell_value(const struct cell *c, const char *factor)
{
    for (size_t f = 0; f < c->sweep->header.n_factors; f++)
        if (strcmp(c->sweep->header.factors[f], factor) == 0)
            return c->sweep->header.arms[c->arm].values[f];
    return "";
}

static inline int cell_number(const struct cell *c, const char *factor, int otherwise)
{
    const char *v = cell_value(c, factor);
    return *v ? atoi(v) : otherwise;
}

static inline int cell_is(const struct cell *c, int layer, const char *stage)
{
    return c->site->layer == layer && strcmp(c->site->stage, stage) == 0;
}

static inline uint64_t sweep_mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * UINT64_C(0xff51afd7ed558ccd);
    h = (h ^ h >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return h ^ h >> 29;
}

static inline char *sweep_text(const char *s)
{
    char *copy = malloc(strlen(s) + 1);
    return strcpy(copy, s);
}

static inline uint32_t sweep_site(struct sweep *s, int layer, const char *stage, const char *part,
                                  const char *op, uint32_t width)
{
    struct ds_site *x = &s->header.sites[s->header.n_sites];
    memset(x, 0, sizeof *x);
    x->layer = layer;
    snprintf(x->stage, sizeof x->stage, "%s", stage);
    snprintf(x->part, sizeof x->part, "%s", part);
    snprintf(x->op, sizeof x->op, "%s", op);
    snprintf(x->dtype, sizeof x->dtype, "%s", strcmp(op, "sample") == 0 ? "i32" : "f32");
    x->width = width;
    return (uint32_t)s->header.n_sites++;
}

static inline void sweep_edge(struct sweep *s, uint32_t from, uint32_t to, uint32_t kind)
{
    s->header.edges[s->header.n_edges++] = (struct ds_edge){from, to, kind};
}

/* Sites per layer: attn_norm q_proj k_proj kv_write/k attn_out resid_attn down resid_ffn. */
static inline void sweep_sites(struct sweep *s, int layers)
{
    s->header.n_layers = layers;
    s->header.head_dim = 64;
    s->header.n_heads = 9;
    s->header.n_kv_heads = 3;
    s->header.sites = calloc((size_t)layers * 8 + 8, sizeof *s->header.sites);
    s->header.edges = calloc((size_t)layers * 12 + 8, sizeof *s->header.edges);
    uint32_t x = sweep_site(s, -1, "embed", "", "embed", SWEEP_WIDTH);
    for (int l = 0; l < layers; l++) {
        uint32_t norm = sweep_site(s, l, "attn_norm", "", "rmsnorm", SWEEP_WIDTH);
        uint32_t q = sweep_site(s, l, "q_proj", "", "matmul", SWEEP_WIDTH),
                 k = sweep_site(s, l, "k_proj", "", "matmul", 192);
        uint32_t kv = sweep_site(s, l, "kv_write", "k", "cache", 192);
        uint32_t attn = sweep_site(s, l, "attn_out", "", "attention", SWEEP_WIDTH);
        uint32_t res = sweep_site(s, l, "resid_attn", "", "add", SWEEP_WIDTH);
        uint32_t down = sweep_site(s, l, "down", "", "matmul", SWEEP_WIDTH);
        uint32_t out = sweep_site(s, l, "resid_ffn", "", "add", SWEEP_WIDTH);
        sweep_edge(s, x, norm, DS_EDGE_ROW);
        sweep_edge(s, norm, q, DS_EDGE_ROW);
        sweep_edge(s, norm, k, DS_EDGE_ROW);
        sweep_edge(s, k, kv, DS_EDGE_ROW);
        sweep_edge(s, q, attn, DS_EDGE_ROW);
        sweep_edge(s, kv, attn, DS_EDGE_CAUSAL);
        sweep_edge(s, x, res, DS_EDGE_ROW);
        sweep_edge(s, attn, res, DS_EDGE_ROW);
        sweep_edge(s, res, down, DS_EDGE_ROW);
        sweep_edge(s, res, out, DS_EDGE_ROW);
        sweep_edge(s, down, out, DS_EDGE_ROW);
        x = out;
    }
    uint32_t norm = sweep_site(s, layers, "final_norm", "", "rmsnorm", SWEEP_WIDTH);
    uint32_t logits = sweep_site(s, layers, "logits", "", "matmul", 1000),
             token = sweep_site(s, layers, "token", "", "sample", 1);
    sweep_edge(s, x, norm, DS_EDGE_ROW);
    sweep_edge(s, norm, logits, DS_EDGE_ROW);
    sweep_edge(s, logits, token, DS_EDGE_ROW);
}

/* factors: "batch slot threads". Then one sweep_arm for each arm, the base arm first: "1 first 1".
 */
static inline void sweep_words(const char *text, char ***out, size_t *n)
{
    char *copy = sweep_text(text), *save = NULL;
    *out = calloc(strlen(text) / 2 + 1, sizeof **out);
    *n = 0;
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
        (*out)[(*n)++] = sweep_text(w);
    free(copy);
}

static inline void sweep_init(struct sweep *s, const char *factors, int layers)
{
    memset(s, 0, sizeof *s);
    s->seed = 1;
    s->blas_core = "";
    snprintf(s->header.model_name, sizeof s->header.model_name, "synthetic");
    snprintf(s->header.model_arch, sizeof s->header.model_arch, "llama");
    s->header.command = sweep_text("driftscope run");
    sweep_sites(s, layers);
    sweep_words(factors, &s->header.factors, &s->header.n_factors);
    s->header.prompts = calloc(1, sizeof *s->header.prompts);
    s->header.n_prompts = 1;
    s->header.prompts[0].text = sweep_text("hello");
    s->header.prompts[0].tokens = calloc(SWEEP_PROMPT, sizeof(int32_t));
    s->header.prompts[0].n_tokens = SWEEP_PROMPT;
    for (int i = 0; i < SWEEP_PROMPT; i++)
        s->header.prompts[0].tokens[i] = 10 + i;
}

static inline uint32_t sweep_arm(struct sweep *s, const char *values)
{
    size_t n;
    s->header.arms = realloc(s->header.arms, (s->header.n_arms + 1) * sizeof *s->header.arms);
    sweep_words(values, &s->header.arms[s->header.n_arms].values, &n);
    return (uint32_t)s->header.n_arms++;
}

static inline void sweep_weight(struct sweep *s, const char *name, uint64_t digest)
{
    s->header.weights =
        realloc(s->header.weights, (s->header.n_weights + 1) * sizeof *s->header.weights);
    struct ds_record_weight *w = &s->header.weights[s->header.n_weights++];
    memset(w, 0, sizeof *w);
    snprintf(w->name, sizeof w->name, "%s", name);
    snprintf(w->dtype, sizeof w->dtype, "q4_1");
    w->rows = w->cols = SWEEP_WIDTH;
    w->digest = digest;
}

static inline void sweep_line(struct ds_text **lines, size_t *n, const char *name,
                              const char *value)
{
    *lines = realloc(*lines, (*n + 1) * sizeof **lines);
    (*lines)[(*n)++] = (struct ds_text){sweep_text(name), sweep_text(value)};
}

static inline void sweep_plan_call(struct ds_trial_data *t, uint32_t phase, uint32_t m,
                                   uint32_t sequences, uint32_t first, uint32_t n, int32_t step,
                                   int32_t slot0)
{
    t->calls[t->n_calls] = (struct ds_call){(uint32_t)t->n_calls, phase, m, sequences, first, n};
    for (uint32_t i = 0; i < n; i++)
        t->rows[first + i] = (struct ds_row){.call = (uint32_t)t->n_calls,
                                             .position = (int32_t)(first + i),
                                             .step = step,
                                             .kind = step ? DS_ROW_GENERATED : DS_ROW_PROMPT,
                                             .slot = slot0 + (int32_t)i,
                                             .q_len = (int32_t)n,
                                             .kv_len = (int32_t)(first + i) + 1};
    t->n_rows += n;
    t->n_calls++;
}

/* The calls of an arm: factors batch, chunk and mode decide M as the engine's would. */
static inline void sweep_calls(const struct sweep *s, const struct cell *c, struct ds_trial_data *t)
{
    (void)s;
    uint32_t batch = (uint32_t)cell_number(c, "batch", 1),
             chunk = (uint32_t)cell_number(c, "chunk", 0);
    int one = strcmp(cell_value(c, "mode"), "decode") == 0,
        last = strcmp(cell_value(c, "slot"), "last") == 0;
    uint32_t part = one ? 1 : chunk ? chunk : SWEEP_PROMPT;
    t->calls = calloc(SWEEP_PROMPT + SWEEP_STEPS, sizeof *t->calls);
    t->rows = calloc(SWEEP_PROMPT + SWEEP_STEPS, sizeof *t->rows);
    for (uint32_t at = 0; at < SWEEP_PROMPT; at += part) {
        uint32_t n = at + part > SWEEP_PROMPT ? SWEEP_PROMPT - at : part;
        sweep_plan_call(t, one ? DS_PHASE_DECODE : DS_PHASE_PREFILL, n * batch, batch, at, n, 0,
                        last ? (int32_t)(n * (batch - 1)) : 0);
    }
    for (int k = 1; k <= SWEEP_STEPS; k++)
        sweep_plan_call(t, DS_PHASE_DECODE, batch, batch, SWEEP_PROMPT + (uint32_t)k - 1, 1, k,
                        last ? (int32_t)batch - 1 : 0);
}

static inline void sweep_default_launch(const struct cell *c, struct ds_launch *l)
{
    memset(l, 0, sizeof *l);
    const char *op = c->site->op;
    snprintf(l->op, sizeof l->op, "%s", op);
    snprintf(l->variant, sizeof l->variant, "%s",
             strcmp(op, "matmul") == 0    ? "openblas"
             : strcmp(op, "rmsnorm") == 0 ? "rows"
                                          : "plain");
    l->threads = cell_number(c, "threads", 1);
    if (strcmp(op, "matmul") == 0)
        snprintf(l->algo, sizeof l->algo, "%s", c->sweep->blas_core);
}

static inline int sweep_has_row(const struct ds_site *site, const struct ds_row *r)
{
    int late = strcmp(site->stage, "final_norm") == 0 || strcmp(site->stage, "logits") == 0 ||
               strcmp(site->stage, "token") == 0;
    return !late || r->position >= SWEEP_PROMPT - 1;
}

static inline uint64_t sweep_digest(const struct sweep *s, const struct cell *c,
                                    const uint64_t *table, uint32_t n_rows, uint32_t row)
{
    uint64_t h = sweep_mix(s->seed, c->site_index + 1);
    uint32_t tag = s->tag ? s->tag(c) : 0;
    int inputs = 0;
    for (size_t e = 0; e < s->header.n_edges && tag != TAG_DROP; e++) {
        const struct ds_edge *x = &s->header.edges[e];
        if (x->to != c->site_index)
            continue;
        for (uint32_t r = x->kind == DS_EDGE_CAUSAL ? 0 : row; r <= row; r++)
            h = sweep_mix(h, table[(size_t)x->from * n_rows + r]);
        inputs = 1;
    }
    if (!inputs)
        h = sweep_mix(h, (uint64_t)c->position + 77);
    return tag == TAG_DROP ? h : tag ? sweep_mix(h, tag) : h;
}

static inline void sweep_capture(struct sweep *s, struct ds_trial_data *t, struct cell *c,
                                 uint64_t *table)
{
    const struct ds_call *call = &t->calls[c->call];
    struct ds_capture cap = {.call = c->call,
                             .site = c->site_index,
                             .launch = (uint32_t)t->n_launches,
                             .first_row = call->first_row,
                             .width = c->site->width,
                             .first_digest = t->n_digests};
    for (uint32_t i = 0; i < call->rows; i++) {
        uint32_t row = call->first_row + i;
        const struct ds_row *r = &t->rows[row];
        if (!sweep_has_row(c->site, r)) {
            cap.first_row = row + 1;
            continue;
        }
        c->slot = (uint32_t)r->slot;
        c->position = r->position;
        c->step = r->step;
        uint64_t d = sweep_digest(s, c, table, (uint32_t)t->n_rows, row);
        table[(size_t)c->site_index * t->n_rows + row] = d;
        t->digests[t->n_digests++] = d;
        cap.rows++;
        if (strcmp(c->site->stage, "token") != 0)
            continue;
        uint64_t logits = table[(size_t)(c->site_index - 1) * t->n_rows + row];
        int32_t step = r->step, token = s->token ? s->token(c, logits) : 100 + step;
        t->steps[t->n_steps++] = (struct ds_step){
            .step = step, .token = token, .forced = 100 + step, .margin = 0.25f, .ties = 1};
        t->digests[t->n_digests - 1] = table[(size_t)c->site_index * t->n_rows + row] =
            1000 + (uint64_t)token;
    }
    if (cap.rows == 0)
        return;
    (s->launch ? s->launch : sweep_default_launch)(c, &t->launches[t->n_launches++]);
    t->captures[t->n_captures++] = cap;
}

/* Runs one trial of an arm. */
static inline struct ds_trial_data *sweep_trial(struct sweep *s, uint32_t arm, uint32_t repeat)
{
    if (s->n_trials == s->cap_trials) {
        s->cap_trials = s->cap_trials ? 2 * s->cap_trials : 16;
        s->trials = realloc(s->trials, s->cap_trials * sizeof *s->trials);
    }
    struct ds_trial_data *t = &s->trials[s->n_trials++];
    memset(t, 0, sizeof *t);
    struct cell c = {.sweep = s, .arm = arm, .repeat = repeat};
    t->info = (struct ds_trial){.arm = arm,
                                .repeat = repeat,
                                .prefill_cpu_s = 1,
                                .decode_cpu_s = 2,
                                .probe_prefill_cpu_s = 0.01,
                                .probe_decode_cpu_s = 0.008};
    snprintf(t->info.blas_core, sizeof t->info.blas_core, "%s", s->blas_core);
    t->info.threads_asked = t->info.threads_max = t->info.threads_seen =
        cell_number(&c, "threads", 1);
    sweep_calls(s, &c, t);
    size_t captures = t->n_calls * s->header.n_sites, digests = t->n_rows * s->header.n_sites;
    t->launches = calloc(captures, sizeof *t->launches);
    t->captures = calloc(captures, sizeof *t->captures);
    t->digests = calloc(digests, sizeof *t->digests);
    t->steps = calloc(t->n_rows, sizeof *t->steps);
    uint64_t *table = calloc(digests, sizeof *table);
    for (c.call = 0; c.call < t->n_calls; c.call++)
        for (c.site_index = 0; c.site_index < s->header.n_sites; c.site_index++) {
            c.site = &s->header.sites[c.site_index];
            c.m = t->calls[c.call].m;
            c.phase = t->calls[c.call].phase;
            sweep_capture(s, t, &c, table);
        }
    free(table);
    return t;
}

static inline uint64_t *sweep_find(const struct ds_trial_data *t, uint32_t site, int32_t position,
                                   uint32_t *row)
{
    for (size_t i = 0; i < t->n_captures; i++)
        for (uint32_t j = 0; t->captures[i].site == site && j < t->captures[i].rows; j++)
            if (t->rows[t->captures[i].first_row + j].position == position) {
                *row = t->captures[i].first_row + j;
                return &t->digests[t->captures[i].first_digest + j];
            }
    return NULL;
}

/* Adds sizes of every row that differs from the first trial of `ref`, as the probes do with a held
 * reference. */
static inline void sweep_sizes(struct sweep *s, struct ds_trial_data *t, uint32_t ref)
{
    const struct ds_trial_data *r = NULL;
    for (size_t i = 0; i < s->n_trials && !r; i++)
        if (s->trials[i].info.arm == ref)
            r = &s->trials[i];
    for (uint32_t site = 0; r && r != t && site < s->header.n_sites; site++)
        for (int32_t p = 0; p < SWEEP_PROMPT + SWEEP_STEPS; p++) {
            uint32_t row = 0, ref_row = 0;
            uint64_t *mine = sweep_find(t, site, p, &row),
                     *theirs = sweep_find(r, site, p, &ref_row);
            if (!mine || !theirs || *mine == *theirs)
                continue;
            double relative = s->relative > 0 ? s->relative : 3e-7, ref_sq = 4.0 * SWEEP_WIDTH;
            t->drifts = realloc(t->drifts, (t->n_drifts + 1) * sizeof *t->drifts);
            t->drifts[t->n_drifts++] =
                (struct ds_drift){.site = site,
                                  .row = row,
                                  .ref_arm = ref,
                                  .elements = s->elements ? s->elements : SWEEP_WIDTH / 2,
                                  .max_ulp = 3 + site,
                                  .max_abs = 1e-6,
                                  .ref_sq = ref_sq,
                                  .diff_sq = relative * relative * ref_sq,
                                  .digest = *mine,
                                  .ref_digest = *theirs};
        }
}

/* Runs every arm `repeats` times and adds sizes against every factor's reference and the arm's own
 * first trial. */
static inline void sweep_run(struct sweep *s, uint32_t repeats)
{
    s->header.repeats = repeats;
    for (uint32_t i = 0; i < s->header.n_arms; i++)
        for (uint32_t k = 0; k < repeats; k++)
            sweep_trial(s, i, k);
    for (size_t i = 0; i < s->n_trials && !s->no_sizes; i++) {
        sweep_sizes(s, &s->trials[i], s->trials[i].info.arm);
        for (uint32_t f = 0; f < s->header.n_factors; f++) {
            int64_t ref = ds_arm_reference(&s->header, s->trials[i].info.arm, f);
            if (ref >= 0)
                sweep_sizes(s, &s->trials[i], (uint32_t)ref);
        }
    }
}

static inline const struct ds_trial *sweep_info(void *ctx, size_t i)
{
    return &((struct sweep *)ctx)->trials[i].info;
}

static inline const struct ds_trial_data *sweep_get(void *ctx, size_t i, struct ds_error *err)
{
    (void)err;
    return &((struct sweep *)ctx)->trials[i];
}

static inline int sweep_blob(void *ctx, uint64_t digest, struct ds_blob *out, struct ds_error *err)
{
    const struct sweep *s = ctx;
    return ds_trials_blob(s->trials, s->n_trials, digest, out, err);
}

static inline struct ds_source sweep_source(struct sweep *s)
{
    return (struct ds_source){&s->header, s->n_trials, sweep_info, sweep_get, s, sweep_blob};
}

static inline void sweep_free(struct sweep *s)
{
    for (size_t i = 0; i < s->n_trials; i++)
        ds_trial_data_free(&s->trials[i]);
    free(s->trials);
    ds_header_free(&s->header);
}

#endif
