/* scan.h: looking through rows for NaN and Inf, large values, large logits: one table per instruction set.
 * Inside probes/ only. */
#ifndef DS_SCAN_H
#define DS_SCAN_H

#include <stddef.h>
#include <stdint.h>

struct ds_scan_isa {
    const char *name; /* "base", "avx2", "avx512" */
    /* 1 if a row of f32, bf16 or f16 (enum ds_dtype) holds a NaN or an Inf; always 0 for whole
     * numbers. */
    int (*nonfinite)(int dtype, const void *bytes, size_t n_bytes);
    /* The bits of the largest magnitude in a row of f32, bf16 or f16: the sign bit is dropped, so
     * that bits compare like sizes; a NaN or an Inf is above every number. 0 for whole numbers. */
    uint32_t (*largest)(int dtype, const void *bytes, size_t n_bytes);
    /* The first index >= begin with x[index] > limit, or n. NaN is never above. */
    size_t (*next_above)(const float *x, size_t begin, size_t n, float limit);
    /* How many of x[0..n-1] compare equal to value. */
    size_t (*count_equal)(const float *x, size_t n, float value);
    /* The sum of exp(x[i] - max), for max the largest of them: the same bits from every table. NaN if one of them is
     * NaN, or max is no finite number. */
    double (*exp_sum)(const float *x, size_t n, float max);
};

/* The i-th table that this build has and this CPU and system can run, narrowest first; NULL past
 * the end. */
const struct ds_scan_isa *ds_scan_isa_at(size_t i);
/* The widest of them. */
const struct ds_scan_isa *ds_scan_isa(void);

/* The tables as compiled; NULL where the compiler had no such instructions. Run no code of one the
 * CPU lacks. */
const struct ds_scan_isa *ds_scan_isa_base(void);
const struct ds_scan_isa *ds_scan_isa_avx2(void);
const struct ds_scan_isa *ds_scan_isa_avx512(void);

#endif
