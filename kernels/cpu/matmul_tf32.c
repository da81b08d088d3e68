/* matmul_tf32.c: y = x * w^T (+ bias) from inputs with a mantissa of 10 bits, as tensor cores take
 * them in TF32 mode.
 *
 * Every value of x and of w is first rounded to 10 bits of mantissa: nearest, ties away from zero,
 * the range of f32 kept (cvt.rna.tf32.f32); beyond the largest, infinity; NaN as 7fc00000. Then the
 * order and the rounding points of matmul/pinned (PINNED.md), with f32 sums: a product of two such
 * values is exact in f32. Bits depend on the row alone; they are less exact, not less stable. */
#include "base/dtype.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul_parts.h"

static float round_tf32(float x)
{
    const uint32_t u = ds_f32_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return ds_f32_from_bits(0x7fc00000u);
    return ds_f32_from_bits((u + 0x1000u) & ~0x1fffu);
}

static int tf32_prepare(const struct ds_weight_view *w, void **prepared, size_t *bytes_out,
                        char *why, size_t why_size)
{
    if (ds_parts_prepare(w, prepared, bytes_out, why, why_size) != 0)
        return -1;
    float *p = *prepared;
    for (size_t i = 0; i < *bytes_out / sizeof *p; i++)
        p[i] = round_tf32(p[i]);
    return 0;
}

/* The rounded rows, then what pinned wants. */
static size_t rounded_bytes(const struct ds_matmul_args *a)
{
    return ds_cpu_scratch(a->rows * a->k, 1);
}

static size_t tf32_scratch(const void *args, int threads)
{
    const size_t rounded = rounded_bytes(args),
                 more = ds_matmul_pinned.scratch_bytes(args, threads);
    return rounded > SIZE_MAX - more ? SIZE_MAX : rounded + more;
}

static void round_rows(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                       int64_t end)
{
    const struct ds_matmul_args *a = args;
    float *rounded = exec->scratch;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        for (int64_t k = 0; k < a->k; k++)
            rounded[r * a->k + k] = round_tf32(a->x[r * a->ldx + k]);
}

static int tf32_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_matmul_args *a = args;
    if (ds_parts_check(a, why, why_size) != 0 ||
        ds_cpu_check_scratch(exec, tf32_scratch(a, exec->threads), why, why_size) != 0)
        return -1;
    ds_cpu_split(exec, a, a->rows, 1, (double)a->rows * (double)a->k, round_rows);
    struct ds_matmul_args rounded = *a;
    struct ds_exec rest = *exec;
    rounded.x = exec->scratch;
    rounded.ldx = a->k;
    rest.scratch = (char *)exec->scratch + rounded_bytes(a);
    rest.scratch_bytes = exec->scratch_bytes - rounded_bytes(a);
    return ds_matmul_pinned.launch(&rounded, &rest, why, why_size);
}

static int tf32_describe(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    return ds_matmul_pinned.describe(args, exec, out);
}

const struct ds_kernel ds_matmul_tf32 = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_MATMUL,
    .name = "tf32",
    .claims = DS_CLAIM_ALL,
    .prepare = tf32_prepare,
    .scratch_bytes = tf32_scratch,
    .launch = tf32_launch,
    .describe = tf32_describe,
    .summary = "inputs rounded to a mantissa of 10 bits, then the order of pinned"};
