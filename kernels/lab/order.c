/* order.c: which op is measured how, and the launch they share. */
#include "kernels/lab/order.h"

#include "base/mem.h"
#include "base/plural.h"
#include "base/team.h"
#include "kernels/call.h"
#include "kernels/lab/far.h"
#include "kernels/lab/order_ops.h"
#include "kernels/registry.h"

#include <stdlib.h>
#include <string.h>

/* Deeper sums would need more memory than is worth it: a round asks a question per term. */
enum { MOST_TERMS = 65536 };

static const struct {
    int op;
    int (*measure)(const struct ds_order_setting *, struct ds_order_library *, struct ds_order *,
                   struct ds_error *);
} ops[] = {
    {DS_OP_MATMUL, ds_order_matmul},       {DS_OP_RMSNORM, ds_order_rmsnorm},
    {DS_OP_ATTENTION, ds_order_attention}, {DS_OP_SOFTMAX, ds_order_softmax},
    {DS_OP_COMBINE, ds_order_combine},     {DS_OP_ALLREDUCE, ds_order_allreduce},
};
enum { N_OPS = sizeof ops / sizeof ops[0] };

int ds_order_knows(int op)
{
    for (int i = 0; i < N_OPS; i++)
        if (ops[i].op == op)
            return 1;
    return 0;
}

static int64_t terms_of(const struct ds_order_setting *s)
{
    switch (s->kernel->op) {
    case DS_OP_MATMUL:
        return s->shape.k;
    case DS_OP_ATTENTION:
        return s->visible;
    case DS_OP_COMBINE:
        return s->shape.top_k;
    case DS_OP_ALLREDUCE:
        return s->shape.ranks;
    default:
        return s->shape.width;
    }
}

int ds_order_measure(const struct ds_order_setting *s, struct ds_order_library *lib,
                     struct ds_order *out, struct ds_error *err)
{
    memset(out, 0, sizeof *out);
    if (terms_of(s) > MOST_TERMS)
        return ds_fail(err, "a sum of %lld terms is too long to be measured (at most %d)",
                       (long long)terms_of(s), MOST_TERMS);
    if (s->rows < 1 || terms_of(s) < 1)
        return ds_fail(err, "nothing to measure in %lld row%s of %lld term%s", (long long)s->rows,
                       ds_plural(s->rows), (long long)terms_of(s), ds_plural(terms_of(s)));
    if (s->kernel->op == DS_OP_ATTENTION && s->queries > s->visible)
        return ds_fail(err, "%lld new token%s do not fit in %lld KV slot%s", (long long)s->queries,
                       ds_plural(s->queries), (long long)s->visible, ds_plural(s->visible));
    for (int i = 0; i < N_OPS; i++)
        if (ops[i].op == s->kernel->op)
            return ops[i].measure(s, lib, out, err);
    return ds_fail(err, "%s adds nothing up", ds_op_name(s->kernel->op));
}

void ds_order_free(struct ds_order *o)
{
    for (int i = 0; i < o->n_sums; i++) {
        free(o->sum[i].classes);
        free(o->sum[i].class_of);
    }
    memset(o, 0, sizeof *o);
}

/* ---- launching ------------------------------------------------------------------------------- */

static void run_team(void *team, void (*fn)(void *, int, int), void *arg)
{
    ds_team_run(team, fn, arg);
}

static int get_scratch(struct ds_order_call *c, const void *args, struct ds_exec *exec,
                       struct ds_error *err)
{
    size_t need = ds_call_scratch(c->kernel, args, c->threads);
    if (need > c->scratch_bytes) {
        free(c->scratch);
        c->scratch_bytes = 0;
        c->scratch = ds_alloc_aligned(need, 1, "scratch memory", err);
        if (!c->scratch)
            return -1;
        c->scratch_bytes = need;
    }
    exec->scratch = need ? c->scratch : NULL;
    exec->scratch_bytes = need;
    return 0;
}

int ds_order_launch(struct ds_order_call *c, const void *args, struct ds_error *err)
{
    const struct ds_kernel *k = c->kernel;
    const int here = k->device == DS_DEVICE_CPU;
    char why[256] = "";
    struct ds_exec exec = {
        .threads = c->threads, .team = c->team, .run = run_team, .seed = ++c->seed};
    if (here && get_scratch(c, args, &exec, err) != 0)
        return -1;
    if ((here ? ds_call_launch(k, args, &exec, why, sizeof why)
              : ds_far_launch(&c->far, k, args, c->prepared_bytes, &exec, why, sizeof why)) == 0)
        return 0;
    return ds_fail(err, "%s/%s refused the call: %s", ds_op_name(k->op), k->name, why);
}

void ds_order_call_free(struct ds_order_call *c)
{
    free(c->scratch);
    c->scratch = NULL;
    c->scratch_bytes = 0;
    ds_far_free(c->far);
    c->far = NULL;
}
