/* matmul_stream_k.c: y = x * w^T (+ bias) with the work cut into equal shares, wherever the cuts
 * fall (stream-k).
 *
 * Tiles of 8 rows x 64 columns, rows fastest, each of ceil(K / 32) iterations of 32 terms. The
 * iterations of all tiles in a row are cut into 5 shares a thread, equal but for one iteration. A
 * tile that lies in several shares is summed share by share: within a share's terms blocks of 256
 * counted from its first term, one chain s = fmaf(x, w, s) a block in ascending k from +0, block
 * sums added in ascending order; then the shares' sums added in ascending k, the first assigned;
 * bias last; NaN as 7fc00000.
 *
 * Where a tile is cut depends on its place among the tiles: so a row's bits change with its place
 * in the call, with the number of rows and with the number of threads. Only the repeat of the same
 * call is promised. A GPU's shares run side by side and the last one adds; here the thread that has
 * a tile does all its shares: the same bits. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul_parts.h"

enum { TILE_ROWS = 8, ITERATION = 32, SHARES_PER_THREAD = 5 };

struct stream_k {
    const struct ds_matmul_args *a;
    int64_t row_tiles, tiles;
    int64_t depth; /* iterations of a tile */
    int64_t shares;
};

static void cut(const struct ds_matmul_args *a, int threads, struct stream_k *s)
{
    s->a = a;
    s->row_tiles = (a->rows + TILE_ROWS - 1) / TILE_ROWS;
    s->tiles = s->row_tiles * ds_parts_groups(a);
    s->depth = a->k > 0 ? (a->k + ITERATION - 1) / ITERATION : 1;
    s->shares = (int64_t)SHARES_PER_THREAD * threads;
    if (s->shares > s->tiles * s->depth)
        s->shares = s->tiles * s->depth;
}

/* The first cut after iteration i of the row of all iterations, or its end. */
static int64_t next_cut(const struct stream_k *s, int64_t i)
{
    const int64_t all = s->tiles * s->depth;
    int64_t share = i / (all / s->shares + 1);
    while (ds_parts_border(all, s->shares, share) <= i)
        share++;
    return ds_parts_border(all, s->shares, share);
}

static void stream_k_tile(const struct stream_k *s, int64_t tile, float *part)
{
    const struct ds_matmul_args *a = s->a;
    const int64_t g = tile / s->row_tiles, row0 = tile % s->row_tiles * TILE_ROWS,
                  row1 = row0 + TILE_ROWS < a->rows ? row0 + TILE_ROWS : a->rows,
                  first = tile * s->depth;
    float *y = a->y + row0 * a->ldy + g * DS_PARTS_COLUMNS;
    for (int64_t i = 0, end; i < s->depth; i = end) {
        end = next_cut(s, first + i) - first;
        const int64_t k0 = i * ITERATION, k1 = end < s->depth ? end * ITERATION : a->k;
        if (end > s->depth)
            end = s->depth;
        ds_parts_sum(a, row0, row1, g, k0, k1, i == 0 ? y : part, i == 0 ? a->ldy : 64);
        if (i > 0)
            ds_parts_add(y, a->ldy, part, 64, row1 - row0, ds_parts_width(a, g));
    }
    ds_parts_bias(a, row0, row1, g);
}

static void stream_k_tiles(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                           int64_t end)
{
    float *part = ds_cpu_scratch_of(exec, TILE_ROWS * DS_PARTS_COLUMNS, thread);
    for (int64_t t = begin; t < end; t++)
        stream_k_tile(args, t, part);
}

static size_t stream_k_scratch(const void *args, int threads)
{
    (void)args;
    return ds_cpu_scratch(TILE_ROWS * DS_PARTS_COLUMNS, threads);
}

static int stream_k_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_matmul_args *a = args;
    struct stream_k s;
    if (ds_parts_check(a, why, why_size) != 0 ||
        ds_cpu_check_scratch(exec, stream_k_scratch(a, exec->threads), why, why_size) != 0)
        return -1;
    if (a->rows < 1 || a->n < 1)
        return 0;
    cut(a, exec->threads, &s);
    ds_cpu_split(exec, &s, s.tiles, 1, ds_parts_work(a), stream_k_tiles);
    return 0;
}

static int stream_k_describe(const void *args, const struct ds_exec *exec,
                             struct ds_launch_info *out)
{
    const struct ds_matmul_args *a = args;
    struct stream_k s;
    cut(a, exec->threads, &s);
    *out = (struct ds_launch_info){.tile_rows = TILE_ROWS,
                                   .tile_cols = DS_PARTS_COLUMNS,
                                   .tile_k = ITERATION,
                                   .split = (int32_t)s.shares,
                                   .threads = ds_cpu_threads(exec, s.tiles, ds_parts_work(a))};
    return 0;
}

const struct ds_kernel ds_matmul_stream_k = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_MATMUL,
    .name = "stream-k",
    .claims = DS_CLAIM_REPEAT,
    .features = DS_FEATURE_PACKED,
    .prepare = ds_pinned_prepare,
    .scratch_bytes = stream_k_scratch,
    .launch = stream_k_launch,
    .describe = stream_k_describe,
    .summary = "equal shares of all tiles' K, cut wherever they end; parts added in ascending k"};
