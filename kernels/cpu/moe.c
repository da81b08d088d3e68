/* moe.c: router and combine, the two ends of a mixture of experts.
 *
 * router: p = softmax of the row's logits over all experts, as softmax.c has it for the same
 * variant. Choice j of top_k is the largest logit not chosen yet; the lower index wins a tie (-0
 * ties with +0); NaN comes after everything else, lower index first. Its weight is p of that
 * expert; with `normalise`, s = the chosen p added in the order of choice, the first assigned, and
 * the weight is p / s. Choosing is comparisons only, so both variants choose alike.
 *
 * combine:
 *   reference  s = s + weight * x in ascending e from +0, product and sum rounded.
 *   pinned     s = fmaf(weight, x, s) in ascending e from +0; NaN as 7fc00000. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pinned.h"

#include <math.h>

/* ---- router ---------------------------------------------------------------------------------- */

/* Whether expert i stands before expert j in the order of choice: a strict order of all indices. */
static int before(const float *x, int64_t i, int64_t j)
{
    const int i_nan = x[i] != x[i], j_nan = x[j] != x[j];
    if (i_nan != j_nan)
        return j_nan;
    if (!i_nan && x[i] != x[j])
        return x[i] > x[j];
    return i < j;
}

/* The best expert that stands after `last` in that order; last -1: the best of all. */
static int64_t next_choice(const float *x, int64_t experts, int64_t last)
{
    int64_t best = -1;
    for (int64_t i = 0; i < experts; i++)
        if ((last < 0 || before(x, last, i)) && (best < 0 || before(x, i, best)))
            best = i;
    return best;
}

static void route(const struct ds_router_args *a, int64_t row, const float *p)
{
    const float *x = a->logits + row * a->ldx;
    int32_t *ids = a->ids + row * a->top_k;
    float *weights = a->weights + row * a->top_k, sum = 0.0f;
    int64_t choice = -1;
    for (int64_t j = 0; j < a->top_k; j++) {
        choice = next_choice(x, a->experts, choice);
        ids[j] = (int32_t)choice;
        weights[j] = p[choice];
        sum = j == 0 ? weights[j] : sum + weights[j];
    }
    for (int64_t j = 0; a->normalise && j < a->top_k; j++)
        weights[j] = weights[j] / sum;
}

static void reference_rows(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                           int64_t end)
{
    const struct ds_router_args *a = args;
    float *p = ds_cpu_scratch_of(exec, a->experts, thread);
    for (int64_t r = begin; r < end; r++) {
        ds_cpu_softmax_reference(p, a->logits + r * a->ldx, a->experts);
        route(a, r, p);
    }
}

static void pinned_rows(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                        int64_t end)
{
    const struct ds_router_args *a = args;
    float *p = ds_cpu_scratch_of(exec, a->experts, thread);
    for (int64_t r = begin; r < end; r++) {
        float *weights = a->weights + r * a->top_k;
        ds_pinned_code()->softmax(p, a->logits + r * a->ldx, a->experts);
        route(a, r, p);
        ds_pinned_code()->copy(weights, weights, a->top_k); /* NaN */
    }
}

static size_t router_scratch(const void *args, int threads)
{
    return ds_cpu_scratch(((const struct ds_router_args *)args)->experts, threads);
}

static int router_launch(const void *args, const struct ds_exec *exec, ds_cpu_part_fn fn, char *why,
                         size_t why_size)
{
    const struct ds_router_args *a = args;
    if (a->experts < 1 || a->experts > INT32_MAX || a->top_k < 1 || a->top_k > a->experts)
        return ds_cpu_refuse(why, why_size, "%lld of %lld experts cannot be chosen",
                             (long long)a->top_k, (long long)a->experts);
    if (ds_cpu_check_scratch(exec, router_scratch(a, exec->threads), why, why_size) != 0)
        return -1;
    ds_cpu_split(exec, a, a->rows, 1,
                 (double)a->rows * (double)a->experts * (10.0 + (double)a->top_k), fn);
    return 0;
}

static int router_reference(const void *args, const struct ds_exec *exec, char *why,
                            size_t why_size)
{
    return router_launch(args, exec, reference_rows, why, why_size);
}

static int router_pinned(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    return router_launch(args, exec, pinned_rows, why, why_size);
}

/* ---- combine --------------------------------------------------------------------------------- */

static void combine_reference_rows(const void *args, const struct ds_exec *exec, int thread,
                                   int64_t begin, int64_t end)
{
    const struct ds_combine_args *a = args;
    (void)exec, (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const float *x = a->x + r * a->top_k * a->ldx, *w = a->weights + r * a->top_k;
        for (int64_t i = 0; i < a->width; i++) {
            float s = 0.0f;
            for (int64_t e = 0; e < a->top_k; e++)
                s += w[e] * x[e * a->ldx + i];
            a->y[r * a->ldy + i] = s;
        }
    }
}

static void combine_pinned_rows(const void *args, const struct ds_exec *exec, int thread,
                                int64_t begin, int64_t end)
{
    (void)exec, (void)thread;
    for (int64_t r = begin; r < end; r++)
        ds_pinned_code()->combine(args, r);
}

static int combine_launch(const void *args, const struct ds_exec *exec, ds_cpu_part_fn fn,
                          char *why, size_t why_size)
{
    const struct ds_combine_args *a = args;
    if (a->top_k < 1)
        return ds_cpu_refuse(why, why_size, "%lld experts to combine", (long long)a->top_k);
    ds_cpu_split(exec, a, a->rows, 1, 0.5 * (double)a->rows * (double)a->width * (double)a->top_k,
                 fn);
    return 0;
}

static int combine_reference(const void *args, const struct ds_exec *exec, char *why,
                             size_t why_size)
{
    return combine_launch(args, exec, combine_reference_rows, why, why_size);
}

static int combine_pinned(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    return combine_launch(args, exec, combine_pinned_rows, why, why_size);
}

const struct ds_kernel ds_router_reference = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_ROUTER,
    .name = "reference",
    .claims = DS_CLAIM_ALL,
    .scratch_bytes = router_scratch,
    .launch = router_reference,
    .summary = "plain softmax over all experts; lower index on a tie, NaN last"};
const struct ds_kernel ds_router_pinned = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_ROUTER,
    .name = "pinned",
    .claims = DS_CLAIM_ALL,
    .scratch_bytes = router_scratch,
    .launch = router_pinned,
    .summary = "softmax/pinned over all experts; lower index on a tie, NaN last"};
const struct ds_kernel ds_combine_reference = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_COMBINE,
    .name = "reference",
    .claims = DS_CLAIM_ALL,
    .launch = combine_reference,
    .summary = "experts in the order of choice, product and sum rounded"};
const struct ds_kernel ds_combine_pinned = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_COMBINE,
    .name = "pinned",
    .claims = DS_CLAIM_ALL,
    .launch = combine_pinned,
    .summary = "one fma chain over the experts in the order of choice"};
