/* tolerance_block.h: the inner loop of ds_tolerance_row, compiled once per instruction set. Inside
 * dumps/ only. */
#ifndef DS_TOLERANCE_BLOCK_H
#define DS_TOLERANCE_BLOCK_H

#include <stddef.h>
#include <stdint.h>

enum { DS_TOLERANCE_LANES = 8 };

/* Zero, or not a number: not given. */
struct ds_tolerance_limits {
    uint32_t ulp;
    double atol, rtol;
};

/* 1 if all of n f32 of both sides, n a multiple of 8, not necessarily aligned, are within. */
typedef int ds_tolerance_passes_fn(const struct ds_tolerance_limits *t, const void *a,
                                   const void *ref, size_t n);
ds_tolerance_passes_fn ds_tolerance_passes_base;
/* NULL where the compiler has no such instructions; call it only if the CPU has them. */
ds_tolerance_passes_fn *ds_tolerance_passes_avx2(void);
/* The one for this CPU. */
ds_tolerance_passes_fn *ds_tolerance_passes(void);

#endif
