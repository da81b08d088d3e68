/* sample.c: the index of the largest logit, by comparisons in ascending index: a later one wins
 * only if it is larger, so the lowest index wins a tie (-0 and +0 tie); NaN never wins; a row of
 * NaN alone gives 0. No arithmetic, so the same code is the reference and the pinned variant. At
 * temperatures above 0 the largest score, by sampler.c. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/sampler.h"

static int32_t argmax(const float *x, int64_t n)
{
    int64_t best = 0;
    while (best < n && x[best] != x[best])
        best++;
    if (best == n)
        return 0;
    float max = x[best];
    for (int64_t i = best + 1; i < n; i++) {
        if (x[i] > max) {
            max = x[i];
            best = i;
        }
    }
    return (int32_t)best;
}

static void sample_rows(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                        int64_t end)
{
    const struct ds_sample_args *a = args;
    (void)exec, (void)thread;
    for (int64_t r = begin; r < end; r++)
        a->ids[r] =
            ds_sampler_draws(a->sampler)
                ? ds_sampler_draw(a->sampler, a->logits + r * a->ldx, a->vocab, a->streams[r],
                                  a->steps[r], a->scores ? a->scores + r * a->ldx : NULL)
                : argmax(a->logits + r * a->ldx, a->vocab);
}

static int sample_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_sample_args *a = args;
    if (a->vocab < 1 || a->vocab > INT32_MAX)
        return ds_cpu_refuse(why, why_size, "a vocabulary of %lld", (long long)a->vocab);
    const double each = ds_sampler_draws(a->sampler) ? 8 : 1;
    ds_cpu_split(exec, a, a->rows, 1, each * (double)a->rows * (double)a->vocab, sample_rows);
    return 0;
}

const struct ds_kernel ds_sample_reference = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_SAMPLE,
    .name = "reference",
    .claims = DS_CLAIM_ALL,
    .launch = sample_launch,
    .features = DS_FEATURE_SAMPLER,
    .summary = "largest logit, or drawn by temperature; lowest index on a tie, NaN never"};
const struct ds_kernel ds_sample_pinned = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_SAMPLE,
    .name = "pinned",
    .claims = DS_CLAIM_ALL,
    .launch = sample_launch,
    .features = DS_FEATURE_SAMPLER,
    .summary =
        "largest logit, or drawn by temperature; lowest index on a tie, NaN never (the code of "
        "reference)"};
