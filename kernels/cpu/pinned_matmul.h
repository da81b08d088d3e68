/* pinned_matmul.h: the pinned matmul for one instruction set. Included by pinned_body.h after the
 * v16 operations.
 *
 * Order (the same for every output whatever the tile): K in blocks of 256; in a block one chain s =
 * fma(x[k], w[k], s) in ascending k from +0; block sums added in ascending order, the first
 * assigned; then + bias; NaN stored as 7fc00000. Tiles only choose how many outputs are computed
 * side by side. */

/* Where a tile's sums go. */
struct tile_out {
    float *y;
    int64_t ldy, cols; /* columns of y from this tile's first on, 1 or more */
    const float *bias; /* of the tile's first column, or NULL */
    int first, last;   /* whether this is the first, the last block of K */
};

typedef void (*tile_fn)(const float *x, int64_t ldx, const float *w, int64_t panel_stride,
                        int64_t kc, const struct tile_out *out);

static void finish_tile(const float *sums, int rows, int panels, const struct tile_out *out)
{
    for (int i = 0; i < rows; i++) {
        for (int p = 0; p < panels; p++) {
            float *y = out->y + i * out->ldy + 16 * p;
            int64_t n = out->cols - 16 * p;
            v16 v = v16_load(sums + (i * panels + p) * 16);
            if (!out->first)
                v = v16_add(v16_load_n(y, n), v);
            if (out->last) {
                if (out->bias)
                    v = v16_add(v, v16_load_n(out->bias + 16 * p, n));
                v = v16_canon(v);
            }
            v16_store_n(y, v, n);
        }
    }
}

/* R rows x P panels: R * P * 16 chains side by side, sums kept in registers over the block. */
#define DEFINE_TILE(R, P)                                                                          \
    static void tile_##R##x##P(const float *x, int64_t ldx, const float *w, int64_t panel_stride,  \
                               int64_t kc, const struct tile_out *out)                             \
    {                                                                                              \
        v16 c[R][P];                                                                               \
        float sums[R * P * 16];                                                                    \
        const float *row[R];                                                                       \
        UNROLL for (int i = 0; i < R; i++)                                                         \
        {                                                                                          \
            row[i] = x + i * ldx;                                                                  \
            UNROLL for (int p = 0; p < P; p++) c[i][p] = v16_set1(0.0f);                           \
        }                                                                                          \
        for (int64_t k = 0; k < kc; k++) {                                                         \
            v16 b[P];                                                                              \
            UNROLL for (int p = 0; p < P; p++) b[p] = v16_load(w + p * panel_stride + 16 * k);     \
            UNROLL for (int i = 0; i < R; i++)                                                     \
            {                                                                                      \
                v16 a = v16_set1(row[i][k]);                                                       \
                UNROLL for (int p = 0; p < P; p++) c[i][p] = v16_fma(a, b[p], c[i][p]);            \
            }                                                                                      \
        }                                                                                          \
        UNROLL for (int i = 0; i < R; i++) UNROLL for (int p = 0; p < P; p++)                      \
            v16_store(sums + (i * P + p) * 16, c[i][p]);                                           \
        finish_tile(sums, R, P, out);                                                              \
    }
#define UNROLL _Pragma("GCC unroll 12")

DEFINE_TILE(1, 1)
DEFINE_TILE(2, 1)
DEFINE_TILE(3, 1)
DEFINE_TILE(4, 1)
#if V16_ROWS >= 6
DEFINE_TILE(5, 1)
DEFINE_TILE(6, 1)
DEFINE_TILE(1, 2)
DEFINE_TILE(1, 4)
DEFINE_TILE(2, 2)
DEFINE_TILE(3, 2)
#endif
#if V16_ROWS >= 12
DEFINE_TILE(1, 8)
DEFINE_TILE(2, 4)
DEFINE_TILE(3, 4)
DEFINE_TILE(4, 2)
DEFINE_TILE(5, 2)
DEFINE_TILE(6, 2)
DEFINE_TILE(7, 1)
DEFINE_TILE(7, 2)
DEFINE_TILE(8, 1)
DEFINE_TILE(8, 2)
DEFINE_TILE(9, 1)
DEFINE_TILE(9, 2)
DEFINE_TILE(10, 1)
DEFINE_TILE(10, 2)
DEFINE_TILE(11, 1)
DEFINE_TILE(11, 2)
DEFINE_TILE(12, 1)
DEFINE_TILE(12, 2)
#endif

/* tiles[rows][panels]; NULL = none of that size. */
static const tile_fn tiles[V16_ROWS + 1][V16_WIDE + 1] = {
#if V16_ROWS == 4
    [1] = {NULL, tile_1x1},
    [2] = {NULL, tile_2x1},
    [3] = {NULL, tile_3x1},
    [4] = {NULL, tile_4x1},
#elif V16_ROWS == 6
    [1] = {NULL, tile_1x1, tile_1x2, NULL, tile_1x4},
    [2] = {NULL, tile_2x1, tile_2x2},
    [3] = {NULL, tile_3x1, tile_3x2},
    [4] = {NULL, tile_4x1},
    [5] = {NULL, tile_5x1},
    [6] = {NULL, tile_6x1},
#else
    [1] = {NULL, tile_1x1, tile_1x2, NULL, tile_1x4, NULL, NULL, NULL, tile_1x8},
    [2] = {NULL, tile_2x1, tile_2x2, NULL, tile_2x4},
    [3] = {NULL, tile_3x1, tile_3x2, NULL, tile_3x4},
    [4] = {NULL, tile_4x1, tile_4x2},
    [5] = {NULL, tile_5x1, tile_5x2},
    [6] = {NULL, tile_6x1, tile_6x2},
    [7] = {NULL, tile_7x1, tile_7x2},
    [8] = {NULL, tile_8x1, tile_8x2},
    [9] = {NULL, tile_9x1, tile_9x2},
    [10] = {NULL, tile_10x1, tile_10x2},
    [11] = {NULL, tile_11x1, tile_11x2},
    [12] = {NULL, tile_12x1, tile_12x2},
#endif
};

/* The block of K from k0 on, for rows row0..row1-1 and panels panel0..panel1-1. */
static void matmul_block(const struct ds_matmul_args *a, int64_t k0, int64_t row0, int64_t row1,
                         int64_t panel0, int64_t panel1)
{
    const int64_t k = a->k, stride = 16 * k,
                  kc = k - k0 < DS_PINNED_BLOCK ? k - k0 : DS_PINNED_BLOCK;
    int64_t take;
    for (int64_t r = row0; r < row1; r += take) {
        int64_t left = row1 - r;
        /* Two middling tiles instead of a large and a tiny one: few chains leave the multipliers
         * idle. */
        take = left >= 2 * V16_ROWS ? V16_ROWS : left > V16_ROWS ? (left + 1) / 2 : left;
        int width;
        for (int64_t p = panel0; p < panel1; p += width) {
            for (width = V16_WIDE; width > panel1 - p || !tiles[take][width];)
                width--;
            struct tile_out out = {a->y + r * a->ldy + 16 * p,        a->ldy,  a->n - 16 * p,
                                   a->bias ? a->bias + 16 * p : NULL, k0 == 0, k0 + kc == k};
            tiles[take][width](a->x + r * a->ldx + k0, a->ldx,
                               (const float *)a->prepared + p * stride + 16 * k0, stride, kc, &out);
        }
    }
}

/* Loop order, chosen for the caches only: with few rows each panel is streamed from memory once,
 * whole; with many, one block of K of all rows stays in L2 while the panels' blocks pass through
 * L1. */
enum { CACHED_ROWS = 240 };

static void pinned_matmul(const struct ds_matmul_args *a, int64_t row0, int64_t row1,
                          int64_t panel0, int64_t panel1)
{
    const int64_t group = row1 - row0 > V16_ROWS ? V16_PANELS : V16_WIDE;
    const int64_t last = a->k > 0 ? a->k : 1; /* k = 0: one empty block */
    if ((row1 - row0) * a->k <= 48 * 1024) {
        for (int64_t p = panel0; p < panel1; p += group)
            for (int64_t k0 = 0; k0 < last; k0 += DS_PINNED_BLOCK)
                matmul_block(a, k0, row0, row1, p, p + group < panel1 ? p + group : panel1);
        return;
    }
    const int64_t chunks = (row1 - row0 + CACHED_ROWS - 1) / CACHED_ROWS;
    const int64_t tall = ((row1 - row0 + chunks - 1) / chunks + V16_ROWS - 1) / V16_ROWS * V16_ROWS;
    for (int64_t r = row0; r < row1; r += tall)
        for (int64_t k0 = 0; k0 < last; k0 += DS_PINNED_BLOCK)
            for (int64_t p = panel0; p < panel1; p += group)
                matmul_block(a, k0, r, r + tall < row1 ? r + tall : row1, p,
                             p + group < panel1 ? p + group : panel1);
}
