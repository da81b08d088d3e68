/* matmul_split_k.c: y = x * w^T (+ bias) with K cut into parts when the call is small: what serving
 * engines do when a small batch cannot fill the machine.
 *
 * Parts: a machine of 8 slots a thread is to be filled by tiles of 4 rows x 2048 columns; with
 * fewer tiles than slots each tile's K is cut into 2, 4 or 8 contiguous parts (the largest of these
 * that has a slot for each, and 16 terms or more a part). So the number of parts, and with it the
 * bits, follow the number of rows and of threads: on one thread and up to 2048 columns 1-4 rows
 * have 8 parts, 5-8 have 4, 9-16 have 2, more have one. A row's place in the call does not matter.
 *
 * Order: part p is the terms from K*p/parts on; within a part blocks of 256 counted from its first
 * term, one chain s = fmaf(x, w, s) a block in ascending k from +0, block sums added in ascending
 * order; parts added in ascending order, the first assigned; bias added last; NaN as 7fc00000. With
 * one part these are the bits of matmul/pinned.
 *
 * A GPU runs the parts side by side. Here one thread does the parts of its columns one after
 * another: the same bits, and no wait for others. */
#include "kernels/cpu/matmul_parts.h"

#include "base/dtype.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pinned.h"

enum { TILE_ROWS = 4, TILE_COLUMNS = 2048, SLOTS_PER_THREAD = 8, MOST_PARTS = 8, LEAST_TERMS = 16 };

int64_t ds_split_k_parts(const struct ds_matmul_args *a, int threads)
{
    const int64_t row_tiles = (a->rows + TILE_ROWS - 1) / TILE_ROWS,
                  tiles = row_tiles * ((a->n + TILE_COLUMNS - 1) / TILE_COLUMNS);
    int64_t parts = 1;
    while (parts < MOST_PARTS && 2 * parts * tiles <= (int64_t)SLOTS_PER_THREAD * threads &&
           2 * parts * LEAST_TERMS <= a->k)
        parts *= 2;
    return parts;
}

/* A part's sums of one group of columns, for each thread. */
static int64_t part_floats(const struct ds_matmul_args *a)
{
    return a->rows * DS_PARTS_COLUMNS;
}

size_t ds_split_k_scratch(const void *args, int threads)
{
    const struct ds_matmul_args *a = args;
    return ds_split_k_parts(a, threads) > 1 ? ds_cpu_scratch(part_floats(a), threads)
                                            : ds_matmul_pinned.scratch_bytes(a, threads);
}

struct split_k {
    const struct ds_matmul_args *a;
    int64_t parts;
    int bf16;
};

static void round_bf16(float *y, int64_t ldy, int64_t rows, int64_t width)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < width; c++)
            y[r * ldy + c] = ds_bf16_value(ds_bf16_round(y[r * ldy + c]));
}

static void split_k_groups(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                           int64_t end)
{
    const struct split_k *s = args;
    const struct ds_matmul_args *a = s->a;
    float *part = s->parts > 1 ? ds_cpu_scratch_of(exec, part_floats(a), thread) : NULL;
    for (int64_t g = begin; g < end; g++) {
        const int64_t width = ds_parts_width(a, g);
        float *y = a->y + g * DS_PARTS_COLUMNS;
        for (int64_t p = 0; p < s->parts; p++) {
            float *out = p == 0 ? y : part;
            const int64_t ldo = p == 0 ? a->ldy : DS_PARTS_COLUMNS;
            ds_parts_sum(a, 0, a->rows, g, ds_parts_border(a->k, s->parts, p),
                         ds_parts_border(a->k, s->parts, p + 1), out, ldo);
            if (s->bf16)
                round_bf16(out, ldo, a->rows, width);
            if (p > 0)
                ds_parts_add(y, a->ldy, part, ldo, a->rows, width);
        }
        ds_parts_bias(a, 0, a->rows, g);
    }
}

int ds_split_k_launch(const struct ds_matmul_args *a, const struct ds_exec *exec, int bf16,
                      char *why, size_t why_size)
{
    struct split_k s = {a, ds_split_k_parts(a, exec->threads), bf16};
    if (ds_parts_check(a, why, why_size) != 0)
        return -1;
    if (a->rows < 1)
        return 0;
    if (ds_cpu_check_scratch(exec, ds_split_k_scratch(a, exec->threads), why, why_size) != 0)
        return -1;
    if (s.parts == 1)
        return ds_matmul_pinned.launch(a, exec, why, why_size);
    ds_cpu_split(exec, &s, ds_parts_groups(a), 1, ds_parts_work(a), split_k_groups);
    return 0;
}

int ds_split_k_describe(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    const struct ds_matmul_args *a = args;
    *out = (struct ds_launch_info){.tile_rows = TILE_ROWS,
                                   .tile_cols = DS_PARTS_COLUMNS,
                                   .tile_k = DS_PINNED_BLOCK,
                                   .split = (int32_t)ds_split_k_parts(a, exec->threads),
                                   .threads =
                                       ds_cpu_threads(exec, ds_parts_groups(a), ds_parts_work(a))};
    return 0;
}

static int split_k_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    return ds_split_k_launch(args, exec, 0, why, why_size);
}

const struct ds_kernel ds_matmul_split_k = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_MATMUL,
    .name = "split-k",
    .claims = DS_CLAIM_REPEAT | DS_CLAIM_SLOT,
    .features = DS_FEATURE_PACKED,
    .prepare = ds_pinned_prepare,
    .scratch_bytes = ds_split_k_scratch,
    .launch = split_k_launch,
    .describe = ds_split_k_describe,
    .summary = "K in 1, 2, 4 or 8 parts by rows and threads; parts added in ascending order"};
