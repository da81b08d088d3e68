/* quant.c: tensor types, a table row each: block layout and, for those this build loads, how a
 * block becomes f32. Knows no file and no model.
 *
 * Every result has the bits that gguf.quants.dequantize gives on x86 (numpy's f32 arithmetic):
 * products with f16 scales are exact, so only q4_1's one addition rounds. NaN and infinite scales
 * are handled apart, since which payload a NaN sum has would depend on the order in which a
 * compiler puts its operands. */
#include "engine/gguf.h"

#include "base/dtype.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK = 32, HALF = BLOCK / 2 };

static uint16_t le16(const unsigned char *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static int is_finite(uint16_t f16)
{
    return (f16 & 0x7c00u) != 0x7c00u;
}

static int is_nan(float x)
{
    return (ds_f32_bits(x) & 0x7fffffffu) > 0x7f800000u;
}

/* x * y and x + y with x86's rules for NaN spelled out: the first NaN operand wins and becomes
 * quiet; an operation without a value gives ffc00000. */
static float settle(float x, float y, float result)
{
    if (is_nan(x))
        return ds_f32_from_bits(ds_f32_bits(x) | 0x00400000u);
    if (is_nan(y))
        return ds_f32_from_bits(ds_f32_bits(y) | 0x00400000u);
    return is_nan(result) ? ds_f32_from_bits(0xffc00000u) : result;
}

static float strict_mul(float x, float y)
{
    return settle(x, y, x * y);
}

static float strict_add(float x, float y)
{
    return settle(x, y, x + y);
}

/* GGUF is little-endian, and so are the machines this is built for. */
static void f32_to_f32(const void *src, float *dst, size_t n)
{
    memcpy(dst, src, n * sizeof *dst);
}

static void f16_to_f32(const void *src, float *dst, size_t n)
{
    const unsigned char *p = src;
    for (size_t i = 0; i < n; i++)
        dst[i] = ds_f16_value(le16(p + 2 * i));
}

static void bf16_to_f32(const void *src, float *dst, size_t n)
{
    const unsigned char *p = src;
    for (size_t i = 0; i < n; i++)
        dst[i] = ds_bf16_value(le16(p + 2 * i));
}

/* d (f16), 32 x i8: value = d * q */
static void q8_0_to_f32(const void *src, float *dst, size_t n)
{
    const unsigned char *p = src;
    for (size_t b = 0; b < n / BLOCK; b++, p += 2 + BLOCK, dst += BLOCK) {
        float d = ds_f16_value(le16(p));
        const signed char *q = (const signed char *)p + 2;
        if (is_finite(le16(p)))
            for (int i = 0; i < BLOCK; i++)
                dst[i] = d * (float)q[i];
        else
            for (int i = 0; i < BLOCK; i++)
                dst[i] = strict_mul(d, (float)q[i]);
    }
}

/* d (f16), 16 bytes: low nibbles are values 0..15, high nibbles 16..31: value = d * (q - 8) */
static void q4_0_to_f32(const void *src, float *dst, size_t n)
{
    const unsigned char *p = src;
    for (size_t b = 0; b < n / BLOCK; b++, p += 2 + HALF, dst += BLOCK) {
        float d = ds_f16_value(le16(p));
        const unsigned char *q = p + 2;
        int finite = is_finite(le16(p));
        for (int i = 0; finite && i < HALF; i++) {
            dst[i] = d * (float)((q[i] & 15) - 8);
            dst[HALF + i] = d * (float)((q[i] >> 4) - 8);
        }
        for (int i = 0; !finite && i < HALF; i++) {
            dst[i] = strict_mul(d, (float)((q[i] & 15) - 8));
            dst[HALF + i] = strict_mul(d, (float)((q[i] >> 4) - 8));
        }
    }
}

/* d (f16), m (f16), 16 bytes as in q4_0: value = d * q + m, rounded once (the product is exact) */
static void q4_1_to_f32(const void *src, float *dst, size_t n)
{
    const unsigned char *p = src;
    for (size_t b = 0; b < n / BLOCK; b++, p += 4 + HALF, dst += BLOCK) {
        float d = ds_f16_value(le16(p)), m = ds_f16_value(le16(p + 2));
        const unsigned char *q = p + 4;
        int finite = is_finite(le16(p)) && is_finite(le16(p + 2));
        for (int i = 0; finite && i < HALF; i++) {
            dst[i] = d * (float)(q[i] & 15) + m;
            dst[HALF + i] = d * (float)(q[i] >> 4) + m;
        }
        for (int i = 0; !finite && i < HALF; i++) {
            dst[i] = strict_add(strict_mul(d, (float)(q[i] & 15)), m);
            dst[HALF + i] = strict_add(strict_mul(d, (float)(q[i] >> 4)), m);
        }
    }
}

/* All type numbers of the ggml project, so that messages can name them and sizes can be checked. */
static const struct ds_quant_type types[] = {
    {0, "f32", 1, 4, f32_to_f32},
    {1, "f16", 1, 2, f16_to_f32},
    {2, "q4_0", BLOCK, 2 + HALF, q4_0_to_f32},
    {3, "q4_1", BLOCK, 4 + HALF, q4_1_to_f32},
    {6, "q5_0", 32, 22, NULL},
    {7, "q5_1", 32, 24, NULL},
    {8, "q8_0", BLOCK, 2 + BLOCK, q8_0_to_f32},
    {9, "q8_1", 32, 40, NULL},
    {10, "q2_k", 256, 84, NULL},
    {11, "q3_k", 256, 110, NULL},
    {12, "q4_k", 256, 144, NULL},
    {13, "q5_k", 256, 176, NULL},
    {14, "q6_k", 256, 210, NULL},
    {15, "q8_k", 256, 292, NULL},
    {16, "iq2_xxs", 256, 66, NULL},
    {17, "iq2_xs", 256, 74, NULL},
    {18, "iq3_xxs", 256, 98, NULL},
    {19, "iq1_s", 256, 50, NULL},
    {20, "iq4_nl", 32, 18, NULL},
    {21, "iq3_s", 256, 110, NULL},
    {22, "iq2_s", 256, 82, NULL},
    {23, "iq4_xs", 256, 136, NULL},
    {24, "i8", 1, 1, NULL},
    {25, "i16", 1, 2, NULL},
    {26, "i32", 1, 4, NULL},
    {27, "i64", 1, 8, NULL},
    {28, "f64", 1, 8, NULL},
    {29, "iq1_m", 256, 56, NULL},
    {30, "bf16", 1, 2, bf16_to_f32},
    {34, "tq1_0", 256, 54, NULL},
    {35, "tq2_0", 256, 66, NULL},
    {39, "mxfp4", 32, 17, NULL},
    {40, "nvfp4", 64, 36, NULL},
    {41, "q1_0", 128, 18, NULL},
};

static const struct ds_quant_type *find(uint32_t ggml)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].ggml == ggml)
            return &types[i];
    return NULL;
}

const struct ds_quant_type *ds_quant_find(uint32_t ggml)
{
    const struct ds_quant_type *t = find(ggml);
    return t && t->to_f32 ? t : NULL;
}

int ds_quant_layout(uint32_t ggml, uint32_t *block, uint32_t *bytes)
{
    const struct ds_quant_type *t = find(ggml);
    if (!t)
        return -1;
    *block = t->block;
    *bytes = t->bytes;
    return 0;
}

const char *ds_quant_name(uint32_t ggml, char *space, size_t size)
{
    const struct ds_quant_type *t = find(ggml);
    if (t)
        return t->name;
    snprintf(space, size, "type %" PRIu32, ggml);
    return space;
}
