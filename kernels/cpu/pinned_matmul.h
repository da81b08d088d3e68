/* pinned_matmul.h: the pinned matmul for one instruction set. Included by pinned_body.h after the
 * v16 operations.
 *
 * Order (the same for every output whatever the tile): K in blocks of 256; in a block one chain s =
 * fma(x[k], w[k], s) in ascending k from +0; block sums added in ascending order, the first
 * assigned; then + bias; NaN stored as 7fc00000. Tiles only choose how many outputs are computed
 * side by side. */
#include "kernels/cpu/pinned_tile.h"

/* What a tile reads. */
struct tile_in {
    const float *x;
    int64_t ldx;
    const float *w;
    int64_t panel_stride, kc;
    const float *ahead; /* weights wanted soon, asked into L2 on the way ... */
    int64_t step;       /* ... so many floats of them a k */
};

typedef void (*tile_fn)(const struct tile_in *in, const struct tile_out *out);

/* R rows x P panels: R * P * 16 chains side by side, sums kept in registers over the block. LD, the
 * distance of rows, may be a constant: then all rows need one pointer. y is asked for before its
 * sums are there, since it has often left the caches since the block before. Up to V16_UNASKED rows
 * weights are not asked for ahead: with AVX-512 (measured on Zen 5) such a tile is slower by a
 * quarter with the requests than without. */
#define X_AT(i) x[(i)*ld + k]
#define W_AT(p) v16_load(w + (p)*stride + 16 * k)
#define DEFINE_TILE(NAME, R, P, LD)                                                                \
    static void NAME##_##R##x##P(const struct tile_in *in, const struct tile_out *out)             \
    {                                                                                              \
        const float *x = in->x, *w = in->w, *ahead = in->ahead;                                    \
        const int64_t ld = LD, stride = in->panel_stride, kc = in->kc, step = in->step;            \
        v16 c[R][P];                                                                               \
        TILE_CLEAR(R, P, c)                                                                        \
        UNROLL for (int i = 0; i < R; i++) __builtin_prefetch(out->y + i * out->ldy, 1);           \
        for (int64_t k = 0; k < kc; k++) {                                                         \
            if ((R) > V16_UNASKED)                                                                 \
                UNROLL for (int p = 0; p < P; p++) __builtin_prefetch(ahead + p * stride, 0, 2);   \
            ahead += step;                                                                         \
            TILE_STEP(R, P, c, X_AT, W_AT)                                                         \
        }                                                                                          \
        TILE_STORE(R, P, c, out)                                                                   \
    }

/* The sizes there are: the largest; for fewer rows more panels, so that enough chains run side by
 * side. Of rows that were copied together, remainders are never below half of the largest. */
/* clang-format off */
#if V16_ROWS == 4
#define TILES(T) T(1, 1) T(2, 1) T(3, 1) T(4, 1)
#define DENSE_TILES(T)
#elif V16_ROWS == 6
#define TILES(T) \
    T(1, 1) T(1, 2) T(1, 4) T(2, 1) T(2, 2) T(3, 1) T(3, 2) T(4, 1) T(5, 1) T(6, 1)
#define DENSE_TILES(T) T(3, 1) T(4, 1) T(5, 1) T(6, 1)
#else
#define DENSE_TILES(T) \
    T(6, 1) T(7, 1) T(8, 1) T(9, 1) T(10, 1) T(11, 1) T(12, 1) \
    T(6, 2) T(7, 2) T(8, 2) T(9, 2) T(10, 2) T(11, 2) T(12, 2)
#define TILES(T) \
    T(1, 1) T(1, 2) T(1, 4) T(1, 8) T(2, 1) T(2, 2) T(2, 4) T(3, 1) T(3, 2) T(3, 4) \
    T(4, 1) T(4, 2) T(5, 1) T(5, 2) DENSE_TILES(T)
#endif
/* clang-format on */

enum {
    DENSE_LD = DS_PINNED_BLOCK, /* floats from row to row of the copy */
    CACHED_ROWS = DS_PINNED_ROWS
};

#define DEFINE_STRIDED(R, P) DEFINE_TILE(tile, R, P, in->ldx)
#define DEFINE_DENSE(R, P)   DEFINE_TILE(dense, R, P, DENSE_LD)
#define STRIDED_ENTRY(R, P)  [R][P] = tile_##R##x##P,
#define DENSE_ENTRY(R, P)    [R][P] = dense_##R##x##P,
TILES(DEFINE_STRIDED)
DENSE_TILES(DEFINE_DENSE)

/* [rows][panels]; NULL = none of that size. */
static const tile_fn tiles[V16_ROWS + 1][V16_WIDE + 1] = {TILES(STRIDED_ENTRY)};
static const tile_fn dense_tiles[V16_ROWS + 1][V16_WIDE + 1] = {DENSE_TILES(DENSE_ENTRY)};

/* Rows of the next tile, of `left`. Two middling tiles instead of a large and a tiny one: few
 * chains leave the multipliers idle. */
static int64_t tile_rows(int64_t left)
{
    return left >= 2 * V16_ROWS ? V16_ROWS : left > V16_ROWS ? (left + 1) / 2 : left;
}

/* Panels of the next tile with so many rows, of `left`. */
static int tile_panels(int64_t rows, int64_t left)
{
    int width = V16_WIDE;
    while (width > left || !tiles[rows][width])
        width--;
    return width;
}

/* Rows row0..row1-1 of a call, with the values of x from the current block of K on. */
struct row_block {
    const float *x;
    int64_t ldx, row0, row1;
    const tile_fn (*tiles)[V16_WIDE + 1];
};

/* One block of K from k0 on for one group of panels. The tiles together ask for 16 floats a k from
 * `ahead` on. */
static void matmul_block(const struct ds_matmul_args *a, const struct row_block *rows, int64_t k0,
                         int64_t panel, int panels, const float *ahead)
{
    const int64_t k = a->k, kc = k - k0 < DS_PINNED_BLOCK ? k - k0 : DS_PINNED_BLOCK,
                  count = (rows->row1 - rows->row0 + V16_ROWS - 1) / V16_ROWS;
    struct tile_in in = {.ldx = rows->ldx,
                         .w = (const float *)a->prepared + panel * 16 * k + 16 * k0,
                         .panel_stride = 16 * k,
                         .kc = kc,
                         .ahead = ahead,
                         .step = (15 + count) / count};
    struct tile_out out = {.ldy = a->ldy,
                           .cols = a->n - 16 * panel,
                           .bias = a->bias ? a->bias + 16 * panel : NULL,
                           .first = k0 == 0,
                           .last = k0 + kc == k};
    for (int64_t r = rows->row0, take; r < rows->row1; r += take) {
        take = tile_rows(rows->row1 - r);
        in.x = rows->x + (r - rows->row0) * rows->ldx;
        out.y = a->y + r * a->ldy + 16 * panel;
        rows->tiles[take][panels](&in, &out);
        in.ahead += in.step * kc;
    }
}

/* Few rows: each panel is streamed from memory once, whole, while x stays in L2. What is asked for
 * ahead with one row of tiles lies a little further on in the stream: the measured best is far
 * enough to cross into the next page, where the hardware's own prefetcher stops, and nearer when a
 * few rows make several panels flow side by side. With several rows of tiles there is time for the
 * whole next block. */
static void few_rows(const struct ds_matmul_args *a, int64_t row0, int64_t row1, int64_t panel0,
                     int64_t panel1)
{
    int width;
    for (int64_t p = panel0; p < panel1; p += width) {
        const float *w = (const float *)a->prepared + p * 16 * a->k;
        width = tile_panels(tile_rows(row1 - row0),
                            panel1 - p < V16_STREAMS ? panel1 - p : V16_STREAMS);
        for (int64_t k0 = 0; k0 == 0 || k0 < a->k; k0 += DS_PINNED_BLOCK) {
            const struct row_block rows = {a->x + row0 * a->ldx + k0, a->ldx, row0, row1, tiles};
            int64_t distance = row1 - row0 > V16_ROWS ? 16 * DS_PINNED_BLOCK
                               : row1 - row0 > 3      ? 16 * 24
                                                      : 16 * 8;
            matmul_block(a, &rows, k0, p, width, w + 16 * k0 + distance);
        }
    }
}

/* The block of K from k0 on of some rows, copied together unless copy is NULL. */
static struct row_block block_rows(const struct ds_matmul_args *a, int64_t row0, int64_t row1,
                                   int64_t k0, float *copy)
{
    const float *x = a->x + row0 * a->ldx + k0;
    const int64_t kc = a->k - k0 < DS_PINNED_BLOCK ? a->k - k0 : DS_PINNED_BLOCK;
    if (!copy)
        return (struct row_block){x, a->ldx, row0, row1, tiles};
    for (int64_t r = 0; r < row1 - row0; r++)
        memcpy(copy + r * DENSE_LD, x + r * a->ldx, (size_t)kc * sizeof *copy);
    return (struct row_block){copy, DENSE_LD, row0, row1, dense_tiles};
}

/* Many rows: one block of K of all of them stays in L2 while the panels' blocks pass through L1. Of
 * very many rows that block is copied together: rows a power of two apart would push each other out
 * of L1, and each would lie in a page of its own. */
static void many_rows(const struct ds_matmul_args *a, int64_t row0, int64_t row1, int64_t panel0,
                      int64_t panel1, float *copy)
{
    const float *w = a->prepared;
    int width;
    for (int64_t k0 = 0; k0 == 0 || k0 < a->k; k0 += DS_PINNED_BLOCK) {
        const struct row_block rows = block_rows(a, row0, row1, k0, copy);
        for (int64_t p = panel0; p < panel1; p += width) {
            width = tile_panels(V16_ROWS, panel1 - p);
            matmul_block(a, &rows, k0, p, width,
                         w + (p + width < panel1 ? p + width : panel0) * 16 * a->k + 16 * k0);
        }
    }
}

/* Rows that many_rows() takes at once, of so many: equal shares that stay in L2. */
static int64_t rows_at_once(int64_t rows)
{
    const int64_t chunks = (rows + CACHED_ROWS - 1) / CACHED_ROWS;
    return ((rows + chunks - 1) / chunks + V16_ROWS - 1) / V16_ROWS * V16_ROWS;
}

static void pinned_matmul(const struct ds_matmul_args *a, int64_t row0, int64_t row1,
                          int64_t panel0, int64_t panel1, float *work)
{
    if ((row1 - row0) * a->k <= 48 * 1024) {
        few_rows(a, row0, row1, panel0, panel1);
        return;
    }
    const int64_t tall = rows_at_once(row1 - row0);
    for (int64_t r = row0; r < row1; r += tall)
        many_rows(a, r, r + tall < row1 ? r + tall : row1, panel0, panel1,
                  row1 - r < V16_DENSE || tall < V16_DENSE ? NULL : work);
}
