/* rope.c: rotary position embedding from a table of cosines and sines computed on the host.
 *
 *   reference  y0 = x0*cos - x1*sin, y1 = x0*sin + x1*cos, every product and sum rounded.
 *   pinned     y0 = fmaf(x0, cos, -(x1*sin)), y1 = fmaf(x1, cos, x0*sin): the sine product is
 *              rounded first; NaN as 7fc00000.
 *   fused      order and rounding of pinned; its input is the projection before that was rounded to
 *              the activation type, as in engines that rotate in the matmul's epilogue.
 *
 * Channels from rope_dim on are copied. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pinned.h"

#include <string.h>

static void reference_head(const struct ds_rope_args *a, const float *x, float *y, const float *cs)
{
    const int64_t half = a->rope_dim / 2, step = a->neox ? 1 : 2, apart = a->neox ? half : 1;
    for (int64_t i = 0; i < half; i++) {
        float x0 = x[i * step], x1 = x[i * step + apart], c = cs[2 * i], s = cs[2 * i + 1];
        y[i * step] = x0 * c - x1 * s;
        y[i * step + apart] = x0 * s + x1 * c;
    }
    memcpy(y + 2 * half, x + 2 * half, (size_t)(a->head_dim - 2 * half) * sizeof *y);
}

static void reference_rows(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                           int64_t end)
{
    const struct ds_rope_args *a = args;
    (void)exec, (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const float *cs = a->cos_sin + (int64_t)a->positions[r] * (a->rope_dim / 2) * 2;
        for (int64_t h = 0; h < a->heads; h++)
            reference_head(a, a->x + r * a->ldx + h * a->head_dim,
                           a->y + r * a->ldy + h * a->head_dim, cs);
    }
}

static void pinned_rows(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                        int64_t end)
{
    (void)exec, (void)thread;
    for (int64_t r = begin; r < end; r++)
        ds_pinned_code()->rope(args, r);
}

static int launch(const struct ds_rope_args *a, const struct ds_exec *exec, ds_cpu_part_fn fn,
                  char *why, size_t why_size)
{
    if (a->rope_dim < 0 || a->rope_dim % 2 || a->rope_dim > a->head_dim)
        return ds_cpu_refuse(why, why_size, "rope_dim %lld does not fit heads of %lld channels",
                             (long long)a->rope_dim, (long long)a->head_dim);
    for (int64_t r = 0; r < a->rows; r++)
        if (a->positions[r] < 0 || a->positions[r] >= a->table_positions)
            return ds_cpu_refuse(why, why_size, "row %lld: position %d is not in the table of %lld",
                                 (long long)r, a->positions[r], (long long)a->table_positions);
    ds_cpu_split(exec, a, a->rows, 1, (double)a->rows * (double)(a->heads * a->head_dim) * 0.5, fn);
    return 0;
}

static int reference_launch(const void *args, const struct ds_exec *exec, char *why,
                            size_t why_size)
{
    return launch(args, exec, reference_rows, why, why_size);
}

static int pinned_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    return launch(args, exec, pinned_rows, why, why_size);
}

const struct ds_kernel ds_rope_reference = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_ROPE,
    .name = "reference",
    .claims = DS_CLAIM_ALL,
    .launch = reference_launch,
    .summary = "x0*cos - x1*sin, x0*sin + x1*cos, every step rounded"};
const struct ds_kernel ds_rope_pinned = {.abi = DS_KERNEL_ABI,
                                         .op = DS_OP_ROPE,
                                         .name = "pinned",
                                         .claims = DS_CLAIM_ALL,
                                         .launch = pinned_launch,
                                         .summary =
                                             "fma(x0, cos, -(x1*sin)), fma(x1, cos, x0*sin)"};
const struct ds_kernel ds_rope_fused = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_ROPE,
    .name = "fused",
    .claims = DS_CLAIM_ALL,
    .features = DS_FEATURE_UNROUNDED,
    .launch = pinned_launch,
    .summary =
        "as pinned, on q and k as they were before they were rounded to the activation type"};
