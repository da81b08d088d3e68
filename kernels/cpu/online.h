/* online.h: softmax over a range of KV slots as CPU engines compute it, one key after another or in
 * tiles; shared by the attention variants vendor, split-kv, stock and tile-by-qlen. Private to
 * kernels/cpu.
 *
 * Order. score = ((p0+p4) + (p2+p6)) + ((p1+p5) + (p3+p7)) of 8 interleaved sums p[j] over the
 * whole eights of the channels (products rounded), then the products of the last head_dim % 8 one
 * by one; times scale. Per slot, ascending: a score above the maximum m becomes the maximum and
 * gives f = expf(old m - score), e = 1 (NaN for +infinity, as expf(score - score) is); else f = 1, e
 * = expf(score - m), 0 for a score of -infinity. sum = sum*f + e, v = v*f + e*value, every step
 * rounded. */
#ifndef DS_KERNELS_ONLINE_H
#define DS_KERNELS_ONLINE_H

#include "kernels/cpu/cpu.h"

/* An empty range has the maximum -infinity and the sum 0. */
struct ds_online {
    float max, sum;
};

/* One row and head over slots begin..end-1. acc[0..head_dim-1] is overwritten with the values, not
 * yet divided by the sum. */
typedef struct ds_online (*ds_online_fn)(const struct ds_attention_args *a,
                                         const struct ds_sequence *s, int64_t row, int64_t head,
                                         int64_t begin, int64_t end, float *acc);
struct ds_online ds_online_plain(const struct ds_attention_args *a, const struct ds_sequence *s,
                                 int64_t row, int64_t head, int64_t begin, int64_t end, float *acc);
struct ds_online ds_online_avx2(const struct ds_attention_args *a, const struct ds_sequence *s,
                                int64_t row, int64_t head, int64_t begin, int64_t end, float *acc);
/* The fastest that this CPU runs; all give the same bits. */
ds_online_fn ds_online_code(void);

/* The same over the slots kv_first..end-1 in tiles of `tile` (at most 64) slots, in the order of
 * attention_tile.c; y is divided by the sum already. */
typedef void (*ds_tiles_fn)(const struct ds_attention_args *a, const struct ds_sequence *s,
                            int64_t row, int64_t head, int64_t end, int64_t tile, float *y);
void ds_tiles_plain(const struct ds_attention_args *a, const struct ds_sequence *s, int64_t row,
                    int64_t head, int64_t end, int64_t tile, float *y);
void ds_tiles_avx2(const struct ds_attention_args *a, const struct ds_sequence *s, int64_t row,
                   int64_t head, int64_t end, int64_t tile, float *y);
ds_tiles_fn ds_tiles_code(void);

/* One past the last slot that a query row sees. */
static inline int64_t ds_online_end(const struct ds_sequence *s, int64_t row)
{
    return (int64_t)s->kv_len - s->q_len + (row - s->q_first) + 1;
}

/* y[d] = y[d] / by */
void ds_online_divide(float *y, float by, int64_t n);

/* Heads that share their KV heads evenly, sequences that cover the rows and lie in the cache. */
int ds_online_check(const struct ds_attention_args *a, char *why, size_t why_size);

/* Elementary operations of a call. */
double ds_online_work(const struct ds_attention_args *a);

#endif
