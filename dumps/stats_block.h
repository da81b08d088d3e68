/* stats_block.h: the inner loop of ds_stats_row, compiled once per instruction set. Inside dumps/
 * only. */
#ifndef DS_STATS_BLOCK_H
#define DS_STATS_BLOCK_H

#include <stddef.h>
#include <stdint.h>

enum { DS_STATS_LANES = 8 };

/* Lane j holds what came from elements i with i % 8 == j. */
struct ds_stats_sums {
    double diff_sq[DS_STATS_LANES], ref_sq[DS_STATS_LANES], max_abs[DS_STATS_LANES];
    uint32_t max_ulp[DS_STATS_LANES], elements[DS_STATS_LANES], equal_values[DS_STATS_LANES];
    uint32_t nan_pairs[DS_STATS_LANES], nonfinite[DS_STATS_LANES], ref_nonfinite[DS_STATS_LANES];
};

/* Adds n values of both sides, n a multiple of 8, the first one an element whose number is one too.
 * a, ref: f32, not necessarily aligned. key, ref_key: their places on the line of representable
 * numbers of the storage format, or NULL: that of f32. Zeros on both sides add nothing. */
typedef void ds_stats_add_fn(struct ds_stats_sums *s, const void *a, const void *ref,
                             const int32_t *key, const int32_t *ref_key, size_t n);
ds_stats_add_fn ds_stats_add_base;
/* NULL where the compiler has no such instructions; call it only if the CPU has them. */
ds_stats_add_fn *ds_stats_add_avx2(void);
/* The one for this CPU. */
ds_stats_add_fn *ds_stats_add(void);

#endif
