/* explain_formats.c: factors and partial sums rounded to formats of fewer bits. */
#include "kernels/lab/explain_formula.h"

#include "base/dtype.h"

#include <math.h>

const char *ds_explain_format_name(int format)
{
    static const char *const names[DS_FORMAT_COUNT] = {
        [DS_FORMAT_TF32] = "TF32",
        [DS_FORMAT_TF32_CUT] = "TF32 cut off",
        [DS_FORMAT_BF16] = "bf16",
        [DS_FORMAT_F16] = "f16",
        [DS_FORMAT_FP8] = "fp8-e4m3",
        [DS_FORMAT_FP8_BARE] = "fp8-e4m3 without a scale",
        [DS_FORMAT_FP8_TENSOR] = "fp8-e4m3 with one scale for all weights",
        [DS_FORMAT_Q8] = "8-bit blocks of 32",
        [DS_FORMAT_Q8_ROW] = "8-bit rows",
        [DS_FORMAT_Q8_TENSOR] = "8 bits with one scale for all weights",
        [DS_FORMAT_Q4] = "4-bit blocks of 32",
        [DS_FORMAT_Q4_ROW] = "4-bit rows",
        [DS_FORMAT_Q4_TENSOR] = "4 bits with one scale for all weights",
        [DS_FORMAT_BF16_SUMS] = "bf16 partial sums",
        [DS_FORMAT_F16_SUMS] = "f16 partial sums"};
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

int ds_format_by_tensor(int format)
{
    return format == DS_FORMAT_FP8_TENSOR || format == DS_FORMAT_Q8_TENSOR ||
           format == DS_FORMAT_Q4_TENSOR;
}

static void to_fp8s(float *to, const float *from, int64_t n, float scale)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = scale > 0 ? to_fp8(from[i] / scale) * scale : from[i];
}

/* steps: to the largest value, on either side of 0. largest 0: the block's own. */
static void to_steps(float *to, const float *from, int64_t n, int64_t block, float steps,
                     float largest)
{
    for (int64_t b = 0; b < n; b += block) {
        const int64_t m = n - b < block ? n - b : block;
        const float d = (largest > 0 ? largest : amax_of(from + b, m)) / steps;
        for (int64_t i = b; i < b + m; i++)
            to[i] = d > 0 ? rintf(from[i] / d) * d : from[i];
    }
}

void ds_format_factors(int format, float largest, float *to, const float *from, int64_t n)
{
    const float most = largest > 0 ? largest : amax_of(from, n);
    switch (format) {
    case DS_FORMAT_TF32:
    case DS_FORMAT_TF32_CUT:
        for (int64_t i = 0; i < n; i++)
            to[i] = to_tf32(from[i], format == DS_FORMAT_TF32_CUT);
        break;
    case DS_FORMAT_BF16:
        for (int64_t i = 0; i < n; i++)
            to[i] = ds_bf16_value(ds_bf16_round(from[i]));
        break;
    case DS_FORMAT_F16:
        for (int64_t i = 0; i < n; i++)
            to[i] = ds_f16_value(ds_f16_round(from[i]));
        break;
    case DS_FORMAT_FP8:
    case DS_FORMAT_FP8_TENSOR:
        to_fp8s(to, from, n, most / 448.0f);
        break;
    case DS_FORMAT_FP8_BARE:
        to_fp8s(to, from, n, 1.0f);
        break;
    case DS_FORMAT_Q8:
        to_steps(to, from, n, 32, 127.0f, 0);
        break;
    case DS_FORMAT_Q4:
        to_steps(to, from, n, 32, 7.0f, 0);
        break;
    case DS_FORMAT_Q8_ROW:
    case DS_FORMAT_Q8_TENSOR:
        to_steps(to, from, n, n, 127.0f, most);
        break;
    default:
        to_steps(to, from, n, n, 7.0f, most);
    }
}

float ds_format_sum(int format, float v)
{
    return format == DS_FORMAT_BF16_SUMS  ? ds_bf16_value(ds_bf16_round(v))
           : format == DS_FORMAT_F16_SUMS ? ds_f16_value(ds_f16_round(v))
                                          : v;
}
