/* stats.h: pure functions on rows of values. No I/O, no allocation. */
#ifndef DS_STATS_H
#define DS_STATS_H

#include "dumps/record.h"

/* Compares n elements of storage format dtype (enum ds_dtype, I32 included) bit by bit and fills
 * the statistics of *out (elements .. ref_sq, flags); site, row, ref_arm and the digests are left
 * alone. NaN-safe: a NaN never counts as equal to a value. For I32, max_ulp and max_abs are the
 * integer distance. */
void ds_stats_row(int dtype, const void *a, const void *ref, size_t n, struct ds_drift *out);

/* Counts NaN and Inf in a row; first = index of the first one, UINT32_MAX if none. */
void ds_stats_nonfinite(int dtype, const void *a, size_t n, uint32_t *nan, uint32_t *inf,
                        uint32_t *first);

#endif
