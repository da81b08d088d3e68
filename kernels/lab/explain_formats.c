/* explain_formats.c: factors and partial sums rounded to formats of fewer bits. */
#include "kernels/lab/explain_formula.h"

#include "base/dtype.h"

#include <math.h>

const char *ds_explain_format_name(int format)
{
    static const char *const names[DS_FORMAT_COUNT] = {"TF32",
                                                       "TF32 cut off",
                                                       "bf16",
                                                       "f16",
                                                       "fp8-e4m3",
                                                       "8-bit blocks of 32",
                                                       "bf16 partial sums",
                                                       "f16 partial sums"};
    return format >= 0 && format < DS_FORMAT_COUNT ? names[format] : "";
}

static float to_tf32(float v, int cut)
{
    uint32_t u = ds_f32_bits(v);
    if ((u & 0x7f800000u) == 0x7f800000u)
        return v;
    if (!cut)
        u += 0xfffu + (u >> 13 & 1u);
    return ds_f32_from_bits(u & ~0x1fffu);
}

/* 4 bits of exponent, 3 of mantissa, largest 448. */
static float to_fp8(float v)
{
    int e;
    if (v == 0 || !isfinite(v))
        return v;
    frexpf(v, &e);
    const int last = e - 4 < -9 ? -9 : e - 4;
    const float r = ldexpf(rintf(ldexpf(v, -last)), last);
    return r > 448.0f ? 448.0f : r < -448.0f ? -448.0f : r;
}

static float amax_of(const float *v, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fabsf(v[i]) > most ? fabsf(v[i]) : most;
    return most;
}

/* A row of factors, rounded. fp8 has one scale a row, 8 bits one for each block of 32. */
void ds_format_factors(int format, float *to, const float *from, int64_t n)
{
    const float scale = format == DS_FORMAT_FP8 ? amax_of(from, n) / 448.0f : 1.0f;
    for (int64_t i = 0; i < n; i++) {
        const float v = from[i];
        float d;
        switch (format) {
        case DS_FORMAT_TF32:
        case DS_FORMAT_TF32_CUT:
            to[i] = to_tf32(v, format == DS_FORMAT_TF32_CUT);
            break;
        case DS_FORMAT_BF16:
            to[i] = ds_bf16_value(ds_bf16_round(v));
            break;
        case DS_FORMAT_F16:
            to[i] = ds_f16_value(ds_f16_round(v));
            break;
        case DS_FORMAT_FP8:
            to[i] = scale > 0 ? to_fp8(v / scale) * scale : v;
            break;
        default:
            d = amax_of(from + i / 32 * 32, n - i / 32 * 32 < 32 ? n - i / 32 * 32 : 32) / 127.0f;
            to[i] = d > 0 ? rintf(v / d) * d : v;
        }
    }
}

float ds_format_sum(int format, float v)
{
    return format == DS_FORMAT_BF16_SUMS  ? ds_bf16_value(ds_bf16_round(v))
           : format == DS_FORMAT_F16_SUMS ? ds_f16_value(ds_f16_round(v))
                                          : v;
}
