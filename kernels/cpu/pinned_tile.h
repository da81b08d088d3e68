/* pinned_tile.h: the register tile of the pinned matmuls: R rows times P panels of sixteen columns,
 * each output one chain. Included after the v16 operations; knows neither where weights lie nor how
 * they are stored: the caller says how to get sixteen of them.
 *
 * Order: s = fma(x[k], w[k], s) in ascending k from what the sums hold. The tile's size changes no
 * bit.
 *
 * Why these sizes. A tile does R * P * lanes multiplications for P loads of weights and R
 * broadcasts. AVX2 has 16 registers: 6 x 1 (two registers a panel) keeps 12 sums, 2 weights, 1
 * broadcast, and loads 8 times for 12 FMAs, where the hardware does two of each in a cycle. AVX-512
 * has 32: 12 x 2 keeps 24 sums, 2 weights, 1 broadcast, and loads 14 times for 24 FMAs. Both have
 * at least the 8 to 10 independent sums that two FMA units of latency 4 to 5 need to stay busy. */
#ifndef DS_PINNED_TILE_H
#define DS_PINNED_TILE_H

/* Not with sanitizers: every check in every copy would take minutes to compile. */
#ifdef __SANITIZE_ADDRESS__
#define UNROLL
#else
#define UNROLL _Pragma("GCC unroll 12")
#endif

/* c[i][p] = 0 */
#define TILE_CLEAR(R, P, c)                                                                        \
    UNROLL for (int i_ = 0; i_ < (R); i_++) UNROLL for (int p_ = 0; p_ < (P); p_++)(c)[i_][p_] =   \
        v16_set1(0.0f);

/* One k: c[i][p] = fma(X(i), W(p), c[i][p]); X gives a float of row i, W sixteen weights of panel
 * p. Both are macros or inline functions, evaluated once each. */
#define TILE_STEP(R, P, c, X, W)                                                                   \
    {                                                                                              \
        v16 w_[P];                                                                                 \
        UNROLL for (int p_ = 0; p_ < (P); p_++) w_[p_] = W(p_);                                    \
        UNROLL for (int i_ = 0; i_ < (R); i_++)                                                    \
        {                                                                                          \
            const v16 x_ = v16_set1(X(i_));                                                        \
            UNROLL for (int p_ = 0; p_ < (P); p_++)(c)[i_][p_] = v16_fma(x_, w_[p_], (c)[i_][p_]); \
        }                                                                                          \
    }

/* Where a tile's sums go. */
struct tile_out {
    float *y;
    int64_t ldy, cols; /* columns of y from this tile's first on, 1 or more */
    const float *bias; /* of the tile's first column, or NULL */
    int first, last;   /* whether this is the first, the last block of K */
};

/* Sixteen sums of one row: added to those of the blocks before; with the last block the bias comes
 * on top, and NaN becomes 7fc00000. */
static inline v16 tile_sum(v16 v, const float *y, const float *bias, int64_t n,
                           const struct tile_out *out)
{
    if (!out->first)
        v = v16_add(v16_load_n(y, n), v);
    if (out->last && bias)
        v = v16_add(v, v16_load_n(bias, n));
    return out->last ? v16_canon(v) : v;
}

/* A tile whose last panel is not whole; out of line, since it is the matrix's edge only. */
static __attribute__((noinline)) void tile_store_edge(const float *sums, int rows, int panels,
                                                      const struct tile_out *out)
{
    for (int i = 0; i < rows; i++)
        for (int p = 0; p < panels; p++) {
            float *y = out->y + i * out->ldy + 16 * p;
            int64_t n = out->cols - 16 * p;
            v16_store_n(y,
                        tile_sum(v16_load(sums + (i * panels + p) * 16), y,
                                 out->bias ? out->bias + 16 * p : NULL, n, out),
                        n);
        }
}

/* The sums of a block go to y, straight from registers where all columns exist. */
#define TILE_STORE(R, P, c, out)                                                                   \
    if ((out)->cols >= 16 * (P)) {                                                                 \
        UNROLL for (int i_ = 0; i_ < (R); i_++) UNROLL for (int p_ = 0; p_ < (P); p_++)            \
        {                                                                                          \
            float *y_ = (out)->y + i_ * (out)->ldy + 16 * p_;                                      \
            v16_store(y_, tile_sum((c)[i_][p_], y_, (out)->bias ? (out)->bias + 16 * p_ : NULL,    \
                                   16, (out)));                                                    \
        }                                                                                          \
    } else {                                                                                       \
        float sums_[(R) * (P)*16];                                                                 \
        UNROLL for (int i_ = 0; i_ < (R); i_++) UNROLL for (int p_ = 0; p_ < (P); p_++)            \
            v16_store(sums_ + (i_ * (P) + p_) * 16, (c)[i_][p_]);                                  \
        tile_store_edge(sums_, R, P, out);                                                         \
    }

#endif
