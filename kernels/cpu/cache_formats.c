/* cache_formats.c: caches that hold less than they are given: f16, bf16, fp8 (e4m3) and blocks of 8
 * or 4 bits. A row is stored in the format and read back at once; what the cache holds is the value
 * that the format holds, as f32, so every attention kernel reads it as it is and the digest of
 * kv_write shows it. Where the activations are 16-bit, the value is rounded to them once more, as
 * engines do that dequantise to the activation type.
 *
 * Nothing is added up; each value is rounded once (blocks: the scale once, too), to nearest even
 * unless said otherwise, in the order of the channels. Bits depend on the row alone.
 *
 *   f16, bf16  IEEE binary16 (65520 and up become infinity), upper half of binary32; NaN 7fc00000.
 *   fp8-e4m3   OCP E4M3: no infinity, the largest value is 448, the smallest 2^-9. Saturating:
 *              beyond 448, infinity included, becomes +-448. NaN 7fc00000.
 *   q8         blocks of 32 along a head's channels, as GGUF's Q8_0 (ggml's block_q8_0,
 *              quantize_row_q8_0_ref): d = amax / 127, q = x * (1/d) rounded to the nearest
 *              integer, ties away from zero; held are d as binary16 and q; the value is q * d.
 *   q4         blocks of 32, as GGUF's Q4_0: m = the value of largest size, the first of several;
 *              d = m / -8, q = x * (1/d) + 8.5 (two roundings) cut off, held within 0..15; held are
 *              d as binary16 and q; the value is (q - 8) * d.
 *
 * A block never holds channels of two heads. Where a head is no multiple of 32 its last block is the
 * rest of it, with a scale of its own: heads of 16 are one block of 16, heads of 80 are 32, 32 and
 * 16. That is ours: llama.cpp refuses a cache of Q8_0 or Q4_0 for such heads, so that there is
 * nothing to agree with.
 *
 * A block with a NaN or an infinity is NaN throughout: there is no scale for it. A scale that
 * binary16 cannot hold (65520 and up) is infinity: the values are infinite, or NaN where q is 0. */
#include "base/dtype.h"
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 32 };

/* Writes n values as the format holds them; n: of one head. */
typedef void (*store_fn)(float *y, const float *x, int64_t n);

static void store_f16(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = ds_f16_value(ds_f16_round(x[i]));
}

static void store_bf16(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = ds_bf16_value(ds_bf16_round(x[i]));
}

/* ---- fp8 ------------------------------------------------------------------------------------- */

/* Integers only. Exponent field 127 - 6 = 121 of f32 is the smallest normal one, 2^-6. */
static uint8_t e4m3_round(float x)
{
    const uint32_t u = ds_f32_bits(x), mag = u & 0x7fffffffu, exponent = mag >> 23;
    const uint8_t sign = (uint8_t)(u >> 24 & 0x80u);
    if (mag > 0x7f800000u)
        return sign | 0x7f;
    if (exponent < 117) /* below 2^-10, half the smallest */
        return sign;
    const uint32_t significand = (mag & 0x7fffffu) | 0x800000u;
    const int normal = exponent >= 121;
    const unsigned shift = normal ? 20u : 141u - exponent;
    uint32_t code = significand >> shift;
    const uint32_t rest = significand & ((1u << shift) - 1u), half = 1u << (shift - 1u);
    code += rest > half || (rest == half && (code & 1u));
    if (normal) /* a carry runs into the exponent, which is the right result */
        code += (exponent - 121u) << 3;
    return sign | (uint8_t)(code < 0x7e ? code : 0x7e);
}

static float e4m3_value(uint8_t code)
{
    const uint32_t sign = (uint32_t)(code & 0x80u) << 24, exponent = code >> 3 & 15u,
                   fraction = code & 7u;
    if ((code & 0x7fu) == 0x7fu)
        return ds_f32_from_bits(0x7fc00000u);
    if (exponent)
        return ds_f32_from_bits(sign | (exponent + 120u) << 23 | fraction << 20);
    const float size = (float)fraction * 0x1p-9f;
    return sign ? -size : size;
}

static void store_e4m3(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = e4m3_value(e4m3_round(x[i]));
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* The value of largest size, the first of several; NaN if the block holds a NaN or an infinity. */
static float largest(const float *x, int64_t n)
{
    float most = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i]))
            return ds_f32_from_bits(0x7fc00000u);
        if (fabsf(x[i]) > fabsf(most))
            most = x[i];
    }
    return most;
}

static void spoil(float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = ds_f32_from_bits(0x7fc00000u);
}

/* q within low..high, as an integer has it: no -0. 0 times infinity, of scales too small to invert,
 * counts as 0. */
static float held(float q, float low, float high)
{
    return isnan(q) ? 0.0f : q < low ? low : q > high ? high : q + 0.0f;
}

/* Infinity times 0 is stored as the one NaN. */
static float product(float q, float d)
{
    const float v = q * d;
    return isnan(v) ? ds_f32_from_bits(0x7fc00000u) : v;
}

/* Channels of the block that begins at b. */
static int64_t block_of(int64_t n, int64_t b)
{
    return n - b < BLOCK ? n - b : BLOCK;
}

static void store_q8(float *y, const float *x, int64_t n)
{
    for (int64_t b = 0; b < n; b += BLOCK) {
        const int64_t block = block_of(n, b);
        const float most = fabsf(largest(x + b, block));
        if (isnan(most)) {
            spoil(y + b, block);
            continue;
        }
        const float d = most / 127.0f, inverse = d > 0 ? 1.0f / d : 0.0f,
                    scale = ds_f16_value(ds_f16_round(d));
        for (int64_t i = 0; i < block; i++)
            y[b + i] = product(held(roundf(x[b + i] * inverse), -127.0f, 127.0f), scale);
    }
}

static void store_q4(float *y, const float *x, int64_t n)
{
    for (int64_t b = 0; b < n; b += BLOCK) {
        const int64_t block = block_of(n, b);
        const float most = largest(x + b, block);
        if (isnan(most)) {
            spoil(y + b, block);
            continue;
        }
        const float d = most / -8.0f, inverse = d < 0 || d > 0 ? 1.0f / d : 0.0f,
                    scale = ds_f16_value(ds_f16_round(d));
        for (int64_t i = 0; i < block; i++) {
            const float q = held(x[b + i] * inverse, -8.0f, 8.0f) + 8.5f;
            y[b + i] = product(held(truncf(q), 0.0f, 15.0f) - 8.0f, scale);
        }
    }
}

/* ---- launches -------------------------------------------------------------------------------- */

static int launch(const struct ds_cache_args *a, const struct ds_exec *exec, store_fn store,
                  char *why, size_t why_size)
{
    const int64_t head = a->head_dim ? a->head_dim : a->width;
    const int dtype = exec->dtype == DS_ELEMENT_BF16  ? DS_BF16
                      : exec->dtype == DS_ELEMENT_F16 ? DS_F16
                                                      : DS_F32;
    if (head < 1 || a->width % head)
        return ds_cpu_refuse(why, why_size, "rows of %lld channels are no heads of %lld",
                             (long long)a->width, (long long)head);
    if (ds_cpu_check_sequences(a->sequences, a->n_sequences, a->rows, a->page_size, a->pages, why,
                               why_size) != 0)
        return -1;
    for (int64_t i = 0; i < a->n_sequences; i++) {
        const struct ds_sequence *s = &a->sequences[i];
        for (int64_t j = 0; j < s->q_len; j++) {
            int64_t slot = (int64_t)s->kv_len - s->q_len + j;
            int64_t row = s->pages[slot / a->page_size] * a->page_size + slot % a->page_size;
            float *y = a->cache + row * a->width;
            const float *x = a->x + (s->q_first + j) * a->ldx;
            for (int64_t h = 0; h < a->width; h += head)
                store(y + h, x + h, head);
            if (dtype == DS_BF16)
                store_bf16(y, y, a->width);
            else if (dtype == DS_F16)
                store_f16(y, y, a->width);
        }
    }
    return 0;
}

#define FORMAT(NAME, TEXT, STORE, SUMMARY)                                                         \
    static int NAME##_launch(const void *args, const struct ds_exec *exec, char *why,              \
                             size_t why_size)                                                      \
    {                                                                                              \
        return launch(args, exec, STORE, why, why_size);                                           \
    }                                                                                              \
    const struct ds_kernel ds_cache_##NAME = {.abi = DS_KERNEL_ABI,                                \
                                              .op = DS_OP_CACHE,                                   \
                                              .name = TEXT,                                        \
                                              .claims = DS_CLAIM_ALL,                              \
                                              .launch = NAME##_launch,                             \
                                              .summary = SUMMARY}

FORMAT(f16, "f16", store_f16, "rows as binary16 holds them");
FORMAT(bf16, "bf16", store_bf16, "rows as bfloat16 holds them");
FORMAT(q8, "q8", store_q8, "blocks of 32 as Q8_0 holds them: 8 bits and a binary16 scale");
FORMAT(q4, "q4", store_q4, "blocks of 32 as Q4_0 holds them: 4 bits and a binary16 scale");
FORMAT(fp8_e4m3, "fp8-e4m3", store_e4m3, "rows as OCP E4M3 holds them: 4 + 3 bits, up to +-448");
