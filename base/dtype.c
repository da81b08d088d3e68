/* dtype.c: see dtype.h. Only integer arithmetic: the result never depends on rounding mode or
 * flush-to-zero. */
#include "base/dtype.h"

#include <string.h>

static const struct {
    const char *name;
    size_t size;
} dtypes[DS_DTYPE_COUNT] = {{"f32", 4}, {"bf16", 2}, {"f16", 2}, {"i32", 4}};

const char *ds_dtype_name(int dtype)
{
    return dtype >= 0 && dtype < DS_DTYPE_COUNT ? dtypes[dtype].name : NULL;
}

int ds_dtype_parse(const char *name)
{
    /* Asked of every dumped row: most names are told apart by their first letter, without a call. */
    for (int i = 0; i < DS_DTYPE_COUNT; i++)
        if (name[0] == dtypes[i].name[0] && strcmp(name, dtypes[i].name) == 0)
            return i;
    return -1;
}

size_t ds_dtype_size(int dtype)
{
    return dtype >= 0 && dtype < DS_DTYPE_COUNT ? dtypes[dtype].size : 0;
}

uint16_t ds_f16_round(float x)
{
    uint32_t u = ds_f32_bits(x);
    uint16_t sign = (uint16_t)((u >> 16) & 0x8000u);
    uint32_t mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u)
        return 0x7e00u;
    if (mag >= 0x47800000u) /* 65536 and up, infinity included */
        return (uint16_t)(sign | 0x7c00u);
    uint32_t exponent = mag >> 23;
    if (exponent < 102) /* below 2^-25: rounds to zero */
        return sign;
    /* Shift the 24-bit significand so that its last kept bit is the last place of f16 (2^-24 for
     * subnormals). */
    int normal = exponent >= 113;
    uint32_t significand = (mag & 0x7fffffu) | 0x800000u;
    unsigned shift = normal ? 13u : 126u - exponent;
    uint32_t kept = significand >> shift;
    uint32_t rest = significand & ((1u << shift) - 1u), half = 1u << (shift - 1u);
    kept += rest > half || (rest == half && (kept & 1u));
    /* A carry out of the significand runs into the exponent, which is the right result (up to
     * infinity). */
    return (uint16_t)(sign | (normal ? ((exponent - 113u) << 10) + kept : kept));
}

float ds_f16_value(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u,
             fraction = h & 0x3ffu;
    if (exponent == 31)
        return ds_f32_from_bits(sign | 0x7f800000u | (fraction << 13));
    if (exponent)
        return ds_f32_from_bits(sign | ((exponent + 112u) << 23) | (fraction << 13));
    if (!fraction)
        return ds_f32_from_bits(sign);
    unsigned up = (unsigned)__builtin_clz(fraction) - 21u;
    return ds_f32_from_bits(sign | ((113u - up) << 23) | (((fraction << up) & 0x3ffu) << 13));
}

void ds_round_row(int dtype, void *dst, const float *src, size_t n)
{
    uint16_t *half = dst;
    if (dtype == DS_F32)
        memcpy(dst, src, n * 4);
    else if (dtype == DS_BF16)
        for (size_t i = 0; i < n; i++)
            half[i] = ds_bf16_round(src[i]);
    else if (dtype == DS_F16)
        for (size_t i = 0; i < n; i++)
            half[i] = ds_f16_round(src[i]);
}

void ds_widen_row(int dtype, float *dst, const void *src, size_t n)
{
    const uint16_t *half = src;
    if (dtype == DS_F32)
        memcpy(dst, src, n * 4);
    else if (dtype == DS_BF16)
        for (size_t i = 0; i < n; i++)
            dst[i] = ds_bf16_value(half[i]);
    else if (dtype == DS_F16)
        for (size_t i = 0; i < n; i++)
            dst[i] = ds_f16_value(half[i]);
}

uint64_t ds_ulp_distance(int dtype, uint32_t a, uint32_t b)
{
    uint32_t sign = dtype == DS_F32 ? 0x80000000u : 0x8000u;
    uint32_t infinity = dtype == DS_F32 ? 0x7f800000u : dtype == DS_BF16 ? 0x7f80u : 0x7c00u;
    if ((a & ~sign) > infinity || (b & ~sign) > infinity)
        return UINT64_MAX;
    int64_t x = (int64_t)(a & ~sign), y = (int64_t)(b & ~sign);
    x = a & sign ? -x : x;
    y = b & sign ? -y : y;
    return (uint64_t)(x > y ? x - y : y - x);
}
