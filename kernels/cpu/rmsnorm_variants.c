/* rmsnorm_variants.c: the norms of engines that drift, or round elsewhere, on purpose.
 *
 *   split       what an engine does when it has more threads than rows: each row's squares are cut
 *               into threads / rows contiguous parts (part p: elements p*width/parts and on), each
 *               part summed as `rows` sums a row, and the part sums added in ascending order, the
 *               first assigned. With as many rows as threads, or more: one part, and the bits of
 *               `rows`. So bits depend on the number of rows and of threads.
 *   tail        a vector loop as compilers write it: 8 interleaved sums p[j] = p[j] + x*x over the
 *               whole eights, then ((p0+p4)+(p2+p6)) + ((p1+p5)+(p3+p7)), then the squares of the
 *               width % 8 last elements one by one. Bits depend on the row alone.
 *   cast-first  the sum of `rows`; x * inv is rounded to the activation type before the product
 *               with the weight, as models written with `weight * x.to(dtype)` do. In f32 the bits
 *               of `rows`.
 *
 * Where nothing is said, as in `rows`: products and sums rounded, then sum / width, + eps, 1 /
 * sqrtf, (x * inv) * weight. */
#include "base/dtype.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/norm.h"

#include <math.h>

static double work(const struct ds_rmsnorm_args *a)
{
    return (double)a->rows * (double)a->width;
}

/* ---- split ----------------------------------------------------------------------------------- */

static int64_t parts_of(const struct ds_rmsnorm_args *a, int threads)
{
    int64_t parts = a->rows > 0 && a->rows < threads ? threads / a->rows : 1;
    return parts < a->width ? parts : a->width > 0 ? a->width : 1;
}

/* Item i is part i % parts of row i / parts. */
static void sum_parts(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                      int64_t end)
{
    const struct ds_rmsnorm_args *a = args;
    const int64_t parts = parts_of(a, exec->threads);
    float *sums = exec->scratch;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t p = i % parts, from = p * a->width / parts, to = (p + 1) * a->width / parts;
        sums[i] = ds_norm_sum4(a->x + i / parts * a->ldx + from, to - from);
    }
}

static void scale_rows(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                       int64_t end)
{
    const struct ds_rmsnorm_args *a = args;
    const int64_t parts = parts_of(a, exec->threads);
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const float *part = (const float *)exec->scratch + r * parts;
        float sum = part[0];
        for (int64_t p = 1; p < parts; p++)
            sum += part[p];
        ds_norm_scale(a, r, sum);
    }
}

static size_t split_scratch(const void *args, int threads)
{
    const struct ds_rmsnorm_args *a = args;
    int64_t parts = parts_of(a, threads);
    return parts > 1 ? ds_cpu_scratch(a->rows * parts, 1) : 0;
}

static int split_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_rmsnorm_args *a = args;
    if (parts_of(a, exec->threads) == 1) {
        ds_cpu_split(exec, a, a->rows, 1, work(a), ds_norm_rows);
        return 0;
    }
    if (ds_cpu_check_scratch(exec, split_scratch(a, exec->threads), why, why_size) != 0)
        return -1;
    ds_cpu_split(exec, a, a->rows * parts_of(a, exec->threads), 1, work(a), sum_parts);
    ds_cpu_split(exec, a, a->rows, 1, 0.5 * work(a), scale_rows);
    return 0;
}

static int split_describe(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    const struct ds_rmsnorm_args *a = args;
    int64_t parts = parts_of(a, exec->threads);
    *out = (struct ds_launch_info){.tile_rows = 1,
                                   .split = (int32_t)parts,
                                   .threads = ds_cpu_threads(exec, a->rows * parts, work(a))};
    return 0;
}

/* ---- tail ------------------------------------------------------------------------------------ */

static float sum8_and_tail(const float *x, int64_t n)
{
    float p[8] = {0}, sum;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++)
            p[j] += x[i + j] * x[i + j];
    sum = ((p[0] + p[4]) + (p[2] + p[6])) + ((p[1] + p[5]) + (p[3] + p[7]));
    for (; i < n; i++)
        sum += x[i] * x[i];
    return sum;
}

static void tail_rows(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                      int64_t end)
{
    const struct ds_rmsnorm_args *a = args;
    (void)exec, (void)thread;
    for (int64_t r = begin; r < end; r++)
        ds_norm_scale(a, r, sum8_and_tail(a->x + r * a->ldx, a->width));
}

static int tail_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_rmsnorm_args *a = args;
    (void)why, (void)why_size;
    ds_cpu_split(exec, a, a->rows, 1, work(a), tail_rows);
    return 0;
}

static int tail_describe(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    const struct ds_rmsnorm_args *a = args;
    *out = (struct ds_launch_info){
        .tile_rows = 1, .split = 8, .threads = ds_cpu_threads(exec, a->rows, work(a))};
    return 0;
}

/* ---- cast-first ------------------------------------------------------------------------------ */

static float cast(float v, int32_t element)
{
    if (element == DS_ELEMENT_BF16)
        return ds_bf16_value(ds_bf16_round(v));
    return element == DS_ELEMENT_F16 ? ds_f16_value(ds_f16_round(v)) : v;
}

static void cast_rows(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                      int64_t end)
{
    const struct ds_rmsnorm_args *a = args;
    if (exec->dtype == DS_ELEMENT_F32) {
        ds_norm_rows(args, exec, thread, begin, end);
        return;
    }
    for (int64_t r = begin; r < end; r++) {
        const float *x = a->x + r * a->ldx;
        const float inv = ds_norm_inverse(a, ds_norm_sum4(x, a->width));
        for (int64_t i = 0; i < a->width; i++)
            a->y[r * a->ldy + i] = cast(x[i] * inv, exec->dtype) * a->weight[i];
    }
}

static int cast_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_rmsnorm_args *a = args;
    if (exec->dtype != DS_ELEMENT_F32 && exec->dtype != DS_ELEMENT_BF16 &&
        exec->dtype != DS_ELEMENT_F16)
        return ds_cpu_refuse(why, why_size, "activation type %d is not f32, f16 or bf16",
                             (int)exec->dtype);
    ds_cpu_split(exec, a, a->rows, 1, 4.0 * work(a), cast_rows);
    return 0;
}

static int cast_describe(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    const struct ds_rmsnorm_args *a = args;
    *out = (struct ds_launch_info){
        .tile_rows = 1, .split = 4, .threads = ds_cpu_threads(exec, a->rows, 4.0 * work(a))};
    return 0;
}

const struct ds_kernel ds_rmsnorm_split = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_RMSNORM,
    .name = "split",
    .claims = DS_CLAIM_REPEAT | DS_CLAIM_SLOT,
    .scratch_bytes = split_scratch,
    .launch = split_launch,
    .describe = split_describe,
    .summary = "fewer rows than threads: each row's squares in threads / rows parts; else as rows"};
const struct ds_kernel ds_rmsnorm_tail = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_RMSNORM,
    .name = "tail",
    .claims = DS_CLAIM_ALL,
    .launch = tail_launch,
    .describe = tail_describe,
    .summary = "8 interleaved sums over the whole eights, the last width % 8 squares added one by "
               "one"};
const struct ds_kernel ds_rmsnorm_cast_first = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_RMSNORM,
    .name = "cast-first",
    .claims = DS_CLAIM_ALL,
    .launch = cast_launch,
    .describe = cast_describe,
    .summary = "as rows, but x * inv rounded to the activation type before the weight"};
