/* rmsnorm.c: y = x / sqrt(mean(x^2) + eps) * weight, row by row.
 *
 *   reference  s = s + x*x in ascending order from +0, product and sum rounded; s / width; + eps;
 *              1 / sqrtf; (x * inv) * weight.
 *   rows       what engines do on a CPU, one row a thread: 4 interleaved sums p[j] = p[j] + x*x,
 *              then (p0 + p1) + (p2 + p3); the rest as in reference.
 *   pinned     16 interleaved sums p[j] = fmaf(x, x, p[j]), a fixed tree (lanes 8, 4, 2, 1 apart);
 *              the rest as in reference; NaN as 7fc00000.
 *   fused      order and rounding of pinned; its input is the residual sum before that was rounded
 *              to the activation type, as in engines that add and normalise in one kernel. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/pinned.h"

#include <math.h>

/* Four lanes, so that the interleaved sums of `rows` are one vector; also where there are no
 * vectors. */
typedef float v4 __attribute__((vector_size(16)));
typedef float v4_any __attribute__((vector_size(16), aligned(4), may_alias));

float ds_norm_inverse(const struct ds_rmsnorm_args *a, float sum)
{
    return 1.0f / sqrtf(sum / (float)a->width + a->eps);
}

void ds_norm_scale(const struct ds_rmsnorm_args *a, int64_t row, float sum)
{
    const float *x = a->x + row * a->ldx;
    float *y = a->y + row * a->ldy;
    const float inv = ds_norm_inverse(a, sum);
    int64_t i = 0;
    for (; i + 4 <= a->width; i += 4)
        *(v4_any *)(y + i) = *(const v4_any *)(x + i) * inv * *(const v4_any *)(a->weight + i);
    for (; i < a->width; i++)
        y[i] = x[i] * inv * a->weight[i];
}

static void reference_rows(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                           int64_t end)
{
    const struct ds_rmsnorm_args *a = args;
    (void)exec, (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const float *x = a->x + r * a->ldx;
        float sum = 0.0f;
        for (int64_t i = 0; i < a->width; i++)
            sum += x[i] * x[i];
        ds_norm_scale(a, r, sum);
    }
}

/* Elements from i on, fewer than four, and the sum over the lanes. */
static float finish_sum(v4 p, const float *x, int64_t i, int64_t n)
{
    for (int j = 0; i < n; i++, j++)
        p[j] += x[i] * x[i];
    return (p[0] + p[1]) + (p[2] + p[3]);
}

float ds_norm_sum4(const float *x, int64_t n)
{
    v4 p = {0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        v4 v = *(const v4_any *)(x + i);
        p += v * v;
    }
    return finish_sum(p, x, i, n);
}

/* Four rows at a time: each row's sum is one chain of additions that wait for each other. */
static void four_rows(const struct ds_rmsnorm_args *a, int64_t row)
{
    const float *x[4];
    v4 p[4] = {{0}};
    int64_t i = 0;
    for (int k = 0; k < 4; k++)
        x[k] = a->x + (row + k) * a->ldx;
    for (; i + 4 <= a->width; i += 4)
        for (int k = 0; k < 4; k++) {
            v4 v = *(const v4_any *)(x[k] + i);
            p[k] += v * v;
        }
    for (int k = 0; k < 4; k++)
        ds_norm_scale(a, row + k, finish_sum(p[k], x[k], i, a->width));
}

void ds_norm_rows(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                  int64_t end)
{
    const struct ds_rmsnorm_args *a = args;
    int64_t r = begin;
    (void)exec, (void)thread;
    for (; r + 4 <= end; r += 4)
        four_rows(a, r);
    for (; r < end; r++)
        ds_norm_scale(a, r, ds_norm_sum4(a->x + r * a->ldx, a->width));
}

static void pinned_rows(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                        int64_t end)
{
    (void)exec, (void)thread;
    for (int64_t r = begin; r < end; r++)
        ds_pinned_code()->rmsnorm(args, r);
}

static double work(const struct ds_rmsnorm_args *a)
{
    return (double)a->rows * (double)a->width;
}

static int reference_launch(const void *args, const struct ds_exec *exec, char *why,
                            size_t why_size)
{
    const struct ds_rmsnorm_args *a = args;
    (void)why, (void)why_size;
    ds_cpu_split(exec, a, a->rows, 1, 2.0 * work(a), reference_rows);
    return 0;
}

static int rows_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_rmsnorm_args *a = args;
    (void)why, (void)why_size;
    ds_cpu_split(exec, a, a->rows, 1, work(a), ds_norm_rows);
    return 0;
}

static int pinned_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_rmsnorm_args *a = args;
    (void)why, (void)why_size;
    ds_cpu_split(exec, a, a->rows, 1, 0.5 * work(a), pinned_rows);
    return 0;
}

static int rows_describe(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    const struct ds_rmsnorm_args *a = args;
    *out = (struct ds_launch_info){
        .tile_rows = 1, .split = 4, .threads = ds_cpu_threads(exec, a->rows, work(a))};
    return 0;
}

static int pinned_describe(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    const struct ds_rmsnorm_args *a = args;
    *out = (struct ds_launch_info){
        .tile_rows = 1, .split = 16, .threads = ds_cpu_threads(exec, a->rows, 0.5 * work(a))};
    return 0;
}

const struct ds_kernel ds_rmsnorm_reference = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_RMSNORM,
    .name = "reference",
    .claims = DS_CLAIM_ALL,
    .launch = reference_launch,
    .summary = "one sum in ascending order, product and sum rounded"};
const struct ds_kernel ds_rmsnorm_rows = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_RMSNORM,
    .name = "rows",
    .claims = DS_CLAIM_ALL,
    .launch = rows_launch,
    .describe = rows_describe,
    .summary = "one row per thread, 4 interleaved sums, then (p0+p1)+(p2+p3), as CPU engines do"};
const struct ds_kernel ds_rmsnorm_pinned = {.abi = DS_KERNEL_ABI,
                                            .op = DS_OP_RMSNORM,
                                            .name = "pinned",
                                            .claims = DS_CLAIM_ALL,
                                            .launch = pinned_launch,
                                            .describe = pinned_describe,
                                            .summary =
                                                "16 interleaved fma chains, then a fixed tree"};
const struct ds_kernel ds_rmsnorm_fused = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_RMSNORM,
    .name = "fused",
    .claims = DS_CLAIM_ALL,
    .features = DS_FEATURE_UNROUNDED,
    .launch = pinned_launch,
    .describe = pinned_describe,
    .summary =
        "as pinned, on the residual sum as it was before it was rounded to the activation type"};
