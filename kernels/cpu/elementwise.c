/* elementwise.c: silu_mul and add. Every element stands alone.
 *
 *   silu_mul   e = exp(-g), s = g / (1 + e), y = s * u, every step rounded. reference: libm's expf;
 *              pinned: the project's own exp (kernels/PINNED.md). So silu(-infinity) is NaN in both.
 *   add        y = a + b, rounded once.
 *
 * pinned stores NaN as 7fc00000. silu_mul/fused has order and rounding of pinned; its inputs are gate
 * and up before they were rounded to the activation type, as in the epilogue of a fused matmul. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pinned.h"

#include <math.h>

static void silu_reference_rows(const void *args, const struct ds_exec *exec, int thread,
                                int64_t begin, int64_t end)
{
    const struct ds_silu_mul_args *a = args;
    (void)exec, (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const float *g = a->gate + r * a->ldx, *u = a->up + r * a->ldx;
        for (int64_t i = 0; i < a->width; i++)
            a->y[r * a->ldy + i] = g[i] / (1.0f + expf(-g[i])) * u[i];
    }
}

static void silu_pinned_rows(const void *args, const struct ds_exec *exec, int thread,
                             int64_t begin, int64_t end)
{
    const struct ds_silu_mul_args *a = args;
    (void)exec, (void)thread;
    for (int64_t r = begin; r < end; r++)
        ds_pinned_code()->silu_mul(a->y + r * a->ldy, a->gate + r * a->ldx, a->up + r * a->ldx,
                                   a->width);
}

static void add_reference_rows(const void *args, const struct ds_exec *exec, int thread,
                               int64_t begin, int64_t end)
{
    const struct ds_add_args *a = args;
    (void)exec, (void)thread;
    for (int64_t r = begin; r < end; r++)
        for (int64_t i = 0; i < a->width; i++)
            a->y[r * a->ldy + i] = a->a[r * a->lda + i] + a->b[r * a->ldb + i];
}

static void add_pinned_rows(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                            int64_t end)
{
    const struct ds_add_args *a = args;
    (void)exec, (void)thread;
    for (int64_t r = begin; r < end; r++)
        ds_pinned_code()->add(a->y + r * a->ldy, a->a + r * a->lda, a->b + r * a->ldb, a->width);
}

static int silu_reference_launch(const void *args, const struct ds_exec *exec, char *why,
                                 size_t why_size)
{
    const struct ds_silu_mul_args *a = args;
    (void)why, (void)why_size;
    ds_cpu_split(exec, a, a->rows, 1, 10.0 * (double)a->rows * (double)a->width,
                 silu_reference_rows);
    return 0;
}

static int silu_pinned_launch(const void *args, const struct ds_exec *exec, char *why,
                              size_t why_size)
{
    const struct ds_silu_mul_args *a = args;
    (void)why, (void)why_size;
    ds_cpu_split(exec, a, a->rows, 1, 2.0 * (double)a->rows * (double)a->width, silu_pinned_rows);
    return 0;
}

static int add_reference_launch(const void *args, const struct ds_exec *exec, char *why,
                                size_t why_size)
{
    const struct ds_add_args *a = args;
    (void)why, (void)why_size;
    ds_cpu_split(exec, a, a->rows, 1, 0.5 * (double)a->rows * (double)a->width, add_reference_rows);
    return 0;
}

static int add_pinned_launch(const void *args, const struct ds_exec *exec, char *why,
                             size_t why_size)
{
    const struct ds_add_args *a = args;
    (void)why, (void)why_size;
    ds_cpu_split(exec, a, a->rows, 1, 0.25 * (double)a->rows * (double)a->width, add_pinned_rows);
    return 0;
}

const struct ds_kernel ds_silu_mul_reference = {.abi = DS_KERNEL_ABI,
                                                .op = DS_OP_SILU_MUL,
                                                .name = "reference",
                                                .claims = DS_CLAIM_ALL,
                                                .launch = silu_reference_launch,
                                                .summary =
                                                    "g / (1 + expf(-g)) * u with libm's expf"};
const struct ds_kernel ds_silu_mul_pinned = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_SILU_MUL,
    .name = "pinned",
    .claims = DS_CLAIM_ALL,
    .launch = silu_pinned_launch,
    .summary = "g / (1 + exp(-g)) * u with the project's own exp"};
const struct ds_kernel ds_silu_mul_fused = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_SILU_MUL,
    .name = "fused",
    .claims = DS_CLAIM_ALL,
    .features = DS_FEATURE_UNROUNDED,
    .launch = silu_pinned_launch,
    .summary =
        "as pinned, on gate and up as they were before they were rounded to the activation type"};
const struct ds_kernel ds_add_reference = {.abi = DS_KERNEL_ABI,
                                           .op = DS_OP_ADD,
                                           .name = "reference",
                                           .claims = DS_CLAIM_ALL,
                                           .launch = add_reference_launch,
                                           .summary = "a + b, rounded once"};
const struct ds_kernel ds_add_pinned = {.abi = DS_KERNEL_ABI,
                                        .op = DS_OP_ADD,
                                        .name = "pinned",
                                        .claims = DS_CLAIM_ALL,
                                        .launch = add_pinned_launch,
                                        .summary = "a + b, rounded once, NaN as 7fc00000"};
