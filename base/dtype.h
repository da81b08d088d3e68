/* dtype.h: number formats: sizes, names, rounding to nearest even, and distance in units of the
 * last place. */
#ifndef DS_DTYPE_H
#define DS_DTYPE_H

#include <stddef.h>
#include <stdint.h>

/* Storage formats of activations and captures. Values are stable: they are written nowhere, names
 * are. */
enum ds_dtype { DS_F32 = 0, DS_BF16, DS_F16, DS_I32, DS_DTYPE_COUNT };

/* "f32", "bf16", "f16", "i32"; NULL for an unknown value. */
const char *ds_dtype_name(int dtype);
/* -1 for an unknown name. */
int ds_dtype_parse(const char *name);
/* Bytes per element: 4, 2, 2, 4; 0 for an unknown value. */
size_t ds_dtype_size(int dtype);

static inline uint32_t ds_f32_bits(float x)
{
    uint32_t u;
    __builtin_memcpy(&u, &x, 4);
    return u;
}

static inline float ds_f32_from_bits(uint32_t u)
{
    float x;
    __builtin_memcpy(&x, &u, 4);
    return x;
}

/* bf16: the upper half of an f32, rounded to nearest even; NaN becomes 7fc0. */
static inline uint16_t ds_bf16_round(float x)
{
    uint32_t u = ds_f32_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return 0x7fc0u;
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

static inline float ds_bf16_value(uint16_t h)
{
    return ds_f32_from_bits((uint32_t)h << 16);
}

/* IEEE binary16, round to nearest even, subnormals kept, overflow to infinity (65520 and up); NaN
 * becomes 7e00. */
uint16_t ds_f16_round(float x);
/* Exact. A NaN keeps its payload bits (shifted), as the F16C instruction does except for quieting.
 */
float ds_f16_value(uint16_t h);

/* Writes n f32 values as `dtype` (F32 copies bits, BF16, F16 round). I32 is not a target. */
void ds_round_row(int dtype, void *dst, const float *src, size_t n);
/* Reads n stored values of F32, BF16 or F16 as f32, exactly. */
void ds_widen_row(int dtype, float *dst, const void *src, size_t n);

/* Distance between two values in units of the last place of f32, bf16 or f16, counting
 * representable numbers between them (-0 and +0 are 0 apart). UINT64_MAX if either is NaN. `a`, `b`
 * are raw storage bits. */
uint64_t ds_ulp_distance(int dtype, uint32_t a, uint32_t b);

#endif
