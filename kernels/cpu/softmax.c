/* softmax.c: y = exp(x - max) / sum, row by row.
 *
 *   reference  max by comparisons in ascending order; e = expf(x - max); s = s + e in ascending
 *              order from +0; y = e / s. Every step rounded.
 *   pinned     max over 16 lanes and the fixed tree; e = exp(x - max) with the project's exp, +0
 *              where x is -infinity; the sum in blocks of 256 (16 interleaved sums and the tree in
 *              each), blocks added in ascending order, the first assigned; y = e / s; NaN as
 *              7fc00000. Exactly: kernels/PINNED.md.
 *
 * A NaN in the row, +infinity, or a row of -infinity alone makes the whole row NaN in both. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pinned.h"

#include <math.h>
#include <string.h>

void ds_cpu_softmax_reference(float *y, const float *x, int64_t n)
{
    float max = -INFINITY, sum = 0.0f;
    for (int64_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (int64_t i = 0; i < n; i++) {
        y[i] = expf(x[i] - max);
        sum += y[i];
    }
    for (int64_t i = 0; i < n; i++)
        y[i] /= sum;
}

static void reference_rows(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                           int64_t end)
{
    const struct ds_softmax_args *a = args;
    (void)exec, (void)thread;
    for (int64_t r = begin; r < end; r++)
        ds_cpu_softmax_reference(a->y + r * a->ldy, a->x + r * a->ldx, a->width);
}

static void pinned_rows(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                        int64_t end)
{
    const struct ds_softmax_args *a = args;
    (void)exec, (void)thread;
    for (int64_t r = begin; r < end; r++)
        ds_pinned_code()->softmax(a->y + r * a->ldy, a->x + r * a->ldx, a->width);
}

static double work(const struct ds_softmax_args *a)
{
    return (double)a->rows * (double)a->width;
}

static int reference_launch(const void *args, const struct ds_exec *exec, char *why,
                            size_t why_size)
{
    const struct ds_softmax_args *a = args;
    (void)why, (void)why_size;
    ds_cpu_split(exec, a, a->rows, 1, 10.0 * work(a), reference_rows);
    return 0;
}

static int pinned_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_softmax_args *a = args;
    (void)why, (void)why_size;
    ds_cpu_split(exec, a, a->rows, 1, 2.0 * work(a), pinned_rows);
    return 0;
}

static int pinned_describe(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    const struct ds_softmax_args *a = args;
    *out = (struct ds_launch_info){
        .tile_rows = 1,
        .tile_k = DS_PINNED_BLOCK,
        .split = (int32_t)((a->width + DS_PINNED_BLOCK - 1) / DS_PINNED_BLOCK),
        .threads = ds_cpu_threads(exec, a->rows, 2.0 * work(a)),
    };
    strncpy(out->algo, ds_pinned_code()->name, sizeof out->algo - 1);
    return 0;
}

const struct ds_kernel ds_softmax_reference = {.abi = DS_KERNEL_ABI,
                                               .op = DS_OP_SOFTMAX,
                                               .name = "reference",
                                               .claims = DS_CLAIM_ALL,
                                               .launch = reference_launch,
                                               .summary =
                                                   "libm's expf, one sum in ascending order"};
const struct ds_kernel ds_softmax_pinned = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_SOFTMAX,
    .name = "pinned",
    .claims = DS_CLAIM_ALL,
    .launch = pinned_launch,
    .describe = pinned_describe,
    .summary =
        "the project's own exp, sum in blocks of 256 (16 lanes, fixed tree) added ascending"};
