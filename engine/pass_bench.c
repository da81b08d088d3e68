/* pass_bench.c: a forward pass of fixed shape with a probe that can be left out. Must not know what
 * the times are for. */
#include "engine/pass_bench.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/team.h"
#include "engine/forward.h"
#include "engine/sweep.h"

#include <stdlib.h>
#include <string.h>

struct ds_pass_bench {
    struct ds_pass_config c;
    struct ds_forward *forward;
    struct ds_probe *probe;
    struct ds_site *sites;
    struct ds_edge *edges;
    uint8_t *site_on;
    struct ds_batch_seq *seqs;
    int32_t *tokens;
};

void ds_pass_bench_free(struct ds_pass_bench *b)
{
    if (!b)
        return;
    ds_probe_free(b->probe);
    ds_forward_free(b->forward);
    free(b->sites);
    free(b->edges);
    free(b->site_on);
    free(b->seqs);
    free(b->tokens);
    free(b);
}

static int make_probe(struct ds_pass_bench *b, const struct ds_model *m, struct ds_error *err)
{
    uint32_t n_sites, n_edges;
    if (ds_forward_sites(m, DS_F32, &b->sites, &n_sites, &b->edges, &n_edges, err) != 0 ||
        !(b->site_on = ds_calloc(n_sites, 1, "sites", err)))
        return -1;
    for (uint32_t i = 0; i < n_sites; i++)
        b->site_on[i] =
            b->c.sites != DS_PASS_RESIDUALS || strcmp(b->sites[i].stage, "resid_ffn") == 0;
    struct ds_probe_config pc = {.sites = b->sites,
                                 .n_sites = n_sites,
                                 .edges = b->edges,
                                 .n_edges = n_edges,
                                 .site_on = b->site_on,
                                 .no_watch = b->c.sites == DS_PASS_ALL,
                                 .team = ds_forward_team(b->forward)};
    return ds_probe_new(&pc, &b->probe, err);
}

static int setup(struct ds_pass_bench *b, struct ds_model *m, struct ds_error *err)
{
    const struct ds_pass_config *c = &b->c;
    struct ds_forward_config fc = {.kernels = c->kernels,
                                   .device_number = c->device_number,
                                   .graph = c->graph,
                                   .dtype = DS_F32,
                                   .threads = c->threads,
                                   .n_requests = c->batch,
                                   .max_rows = c->prefill > c->batch ? c->prefill : c->batch,
                                   .capacity = c->prefill ? c->prefill : DS_PASS_DECODE_STEPS};
    if (c->batch < 1 || c->prefill < 0 || fc.capacity > m->hp.context)
        return ds_fail(err, "%s: a pass of %d tokens, batch %d, does not fit its context of %d",
                       m->name, (int)fc.capacity, (int)c->batch, (int)m->hp.context);
    if (ds_kernel_set_uses(&c->kernels, DS_OP_MATMUL, "openblas") && !ds_blas_is_open() &&
        ds_blas_open(NULL, err) != 0)
        return -1;
    if (ds_model_prepare_set(m, &c->kernels, c->threads, err) != 0 ||
        ds_forward_new(m, &fc, &b->forward, err) != 0 || make_probe(b, m, err) != 0 ||
        !(b->seqs = ds_calloc((size_t)c->batch, sizeof *b->seqs, "batch", err)) ||
        !(b->tokens = ds_calloc((size_t)fc.max_rows, sizeof *b->tokens, "tokens", err)))
        return -1;
    for (int32_t i = 0; i < fc.max_rows; i++)
        b->tokens[i] = (int32_t)((uint32_t)i * 2654435761u % (uint32_t)m->hp.vocab);
    return 0;
}

int ds_pass_bench_new(struct ds_model *m, const struct ds_pass_config *c,
                      struct ds_pass_bench **out, struct ds_error *err)
{
    struct ds_pass_bench *b = ds_calloc(1, sizeof *b, "bench", err);
    *out = NULL;
    if (!b)
        return -1;
    b->c = *c;
    if (setup(b, m, err) != 0) {
        ds_pass_bench_free(b);
        return -1;
    }
    *out = b;
    return 0;
}

/* One call of the forward pass: the whole prompt, or one token of every request. */
static int one_call(struct ds_pass_bench *b, int probed, int32_t step, struct ds_error *err)
{
    const int32_t prefill = b->c.prefill, batch = b->c.batch;
    for (int32_t i = 0; i < batch; i++)
        b->seqs[i] = (struct ds_batch_seq){.request = i,
                                           .tokens = b->tokens + i,
                                           .record = 1,
                                           .step = step,
                                           .n_tokens = prefill ? prefill : 1,
                                           .logits_from = prefill ? prefill - 1 : 0};
    struct ds_batch call = {b->seqs, batch, prefill ? DS_PHASE_PREFILL : DS_PHASE_DECODE};
    const float *logits;
    const int32_t *tokens;
    int32_t n;
    if (ds_forward_run(b->forward, &call, probed ? b->probe : NULL, &logits, &tokens, &n, err) != 0)
        return -1;
    return probed ? ds_probe_end_call(b->probe, err) : 0;
}

int ds_pass_bench_run(struct ds_pass_bench *b, int probed, struct ds_error *err)
{
    const int calls = b->c.prefill ? 1 : DS_PASS_DECODE_STEPS;
    struct ds_trial info = {0};
    struct ds_trial_data data = {0};
    ds_forward_reset(b->forward);
    if (probed && ds_probe_begin_trial(b->probe, &info, NULL, 0, err) != 0)
        return -1;
    for (int i = 0; i < calls; i++)
        if (one_call(b, probed, i, err) != 0)
            return -1;
    if (!probed)
        return 0;
    int rc = ds_probe_end_trial(b->probe, &data, err);
    ds_trial_data_free(&data);
    return rc;
}

int ds_pass_bench_bind(struct ds_pass_bench *b, const int *cpus, int n)
{
    return ds_team_bind(ds_forward_team(b->forward), cpus, n);
}

double ds_pass_bench_tokens(const struct ds_pass_bench *b)
{
    return b->c.prefill ? b->c.prefill : (double)DS_PASS_DECODE_STEPS * b->c.batch;
}

double ds_pass_bench_probe_seconds(const struct ds_pass_bench *b)
{
    return ds_probe_cpu_seconds(b->probe);
}
