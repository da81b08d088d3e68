/* forward_calls.h: a small model with a pass and a keeping probe, for tests that make single calls.
 */
#ifndef DS_FORWARD_CALLS_H
#define DS_FORWARD_CALLS_H

#include "tests/unit/engine/forward_testing.h"

static const struct setting plain = {.kernels = "reference", .threads = 1};
static const int32_t text[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13,
                               14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26};

static const char call_model[] =
    "random:llama,layers=2,hidden=32,heads=4,kv_heads=1,ffn=48,vocab=67,tied=1,seed=9,ctx=24";

struct fixture {
    struct ds_model *m;
    struct ds_forward *f;
    struct ds_probe *p;
    const float *logits;
    const int32_t *tokens;
    int32_t n;
    struct ds_error err;
};

static inline struct fixture fixture_new(const struct setting *s, int32_t max_rows,
                                         int32_t n_requests, int32_t capacity)
{
    struct fixture x = {.m = open_model(call_model)};
    struct ds_forward_config c = config_of(s, max_rows, n_requests, capacity);
    assert_ok(ds_forward_new(x.m, &c, &x.f, &x.err), x.err);
    x.p = keeper_new(x.m, s->dtype);
    return x;
}

static inline void fixture_free(struct fixture *x)
{
    keeper_free(x->p);
    ds_forward_free(x->f);
    ds_model_close(x->m);
}

static inline int run_call(struct fixture *x, struct ds_batch_seq *seqs, int32_t n)
{
    struct ds_batch batch = {.seqs = seqs, .n_seqs = n, .phase = DS_PHASE_PREFILL};
    return ds_forward_run(x->f, &batch, x->p, &x->logits, &x->tokens, &x->n, &x->err);
}

#endif
