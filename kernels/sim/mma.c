/* mma.c: see mma.h. */
#include "kernels/sim/mma.h"

#include "base/dtype.h"
#include "kernels/driftscope_kernel.h"

#include <stddef.h>

static const struct ds_sim_mma_model models[] = {
    {90, 16, 2}, {80, 8, 1}, {89, 8, 1}, {100, 16, 2}, {120, 16, 2}};
static const struct ds_sim_mma_model *chosen = &models[0];

const struct ds_sim_mma_model *ds_sim_mma_of(int architecture)
{
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (models[i].architecture == architecture)
            return &models[i];
    return NULL;
}

int ds_sim_mma_choose(int architecture)
{
    const struct ds_sim_mma_model *m = architecture ? ds_sim_mma_of(architecture) : &models[0];
    if (!m)
        return -1;
    chosen = m;
    return 0;
}

const struct ds_sim_mma_model *ds_sim_mma_chosen(void)
{
    return chosen;
}

/* A finite number: (-1)^negative * significand * 2^(exponent - bits), or what is none. */
enum kind { FINITE, INFINITE, NOT_A_NUMBER };
struct number {
    enum kind kind;
    int negative, exponent, bits;
    uint64_t significand;
};

static struct number split(uint32_t u, int exponent_bits, int bits)
{
    const int all = (1 << exponent_bits) - 1, e = (int)(u >> bits) & all, bias = all >> 1;
    const uint32_t m = u & ((1u << bits) - 1);
    struct number x = {.kind = FINITE, .negative = (int)(u >> (bits + exponent_bits)) & 1};
    if (e == all)
        x.kind = m ? NOT_A_NUMBER : INFINITE;
    x.exponent = (e ? e : 1) - bias;
    x.bits = bits;
    x.significand = e ? m | 1u << bits : m;
    return x;
}

static struct number product(int element, uint16_t a, uint16_t b)
{
    const int f16 = element == DS_ELEMENT_F16;
    const struct number x = split(a, f16 ? 5 : 8, f16 ? 10 : 7),
                        y = split(b, f16 ? 5 : 8, f16 ? 10 : 7);
    struct number p = {.kind = FINITE,
                       .negative = x.negative ^ y.negative,
                       .exponent = x.exponent + y.exponent,
                       .bits = x.bits + y.bits,
                       .significand = x.significand * y.significand};
    if (x.kind == NOT_A_NUMBER || y.kind == NOT_A_NUMBER ||
        (x.kind == INFINITE && y.kind == FINITE && !y.significand) ||
        (y.kind == INFINITE && x.kind == FINITE && !x.significand))
        p.kind = NOT_A_NUMBER;
    else if (x.kind == INFINITE || y.kind == INFINITE)
        p.kind = INFINITE;
    return p;
}

/* magnitude * 2^unit, cut off to f32. */
static float cut(int negative, uint64_t magnitude, int unit)
{
    const uint32_t sign = (uint32_t)negative << 31;
    if (!magnitude)
        return 0.0f;
    int top = 63 - __builtin_clzll(magnitude) + unit; /* exponent of the first bit */
    if (top > 127)
        return ds_f32_from_bits(sign | 0x7f800000u);
    const int last = top < -126 ? -149 : top - 23; /* exponent of the last bit that stays */
    const int shift = last - unit;
    const uint64_t m = shift > 63 ? 0 : shift > 0 ? magnitude >> shift : magnitude << -shift;
    if (top < -126)
        return ds_f32_from_bits(sign | (uint32_t)m);
    return ds_f32_from_bits(sign | (uint32_t)(top + 127) << 23 | ((uint32_t)m & 0x7fffffu));
}

/* 0, or 1 and what the sum is if not all terms are finite. */
static int not_finite(const struct number *x, int n, float *out)
{
    int up = 0, down = 0, nan = 0;
    for (int i = 0; i < n; i++) {
        nan |= x[i].kind == NOT_A_NUMBER;
        up |= x[i].kind == INFINITE && !x[i].negative;
        down |= x[i].kind == INFINITE && x[i].negative;
    }
    if (!up && !down && !nan)
        return 0;
    *out = ds_f32_from_bits(nan || (up && down) ? 0x7fffffffu : up ? 0x7f800000u : 0xff800000u);
    return 1;
}

enum { MOST_BLOCK = 16, LEAST_EXPONENT = -10000 };

static float add_block(const struct number *x, int n, int extra)
{
    int largest = LEAST_EXPONENT;
    int64_t sum = 0;
    float out;
    if (not_finite(x, n, &out))
        return out;
    for (int i = 0; i < n; i++)
        if (x[i].significand && x[i].exponent > largest)
            largest = x[i].exponent;
    const int unit = largest - 23 - extra;
    for (int i = 0; i < n && largest > LEAST_EXPONENT; i++) {
        const int shift = unit - (x[i].exponent - x[i].bits);
        const uint64_t v = !x[i].significand || shift > 63 ? 0
                           : shift > 0                     ? x[i].significand >> shift
                                                           : x[i].significand << -shift;
        sum += x[i].negative ? -(int64_t)v : (int64_t)v;
    }
    return cut(sum < 0, (uint64_t)(sum < 0 ? -sum : sum), unit);
}

/* Rows of zeros fill up a tile: nothing is added. */
static int adds_nothing(int element, const uint16_t *a, const uint16_t *b, int n, float c)
{
    const uint16_t all = element == DS_ELEMENT_F16 ? 0x7c00 : 0x7f80;
    int any = 0;
    for (int i = 0; i < n; i++)
        any |= (a[i] & 0x7fff) != 0 || (b[i] & all) == all;
    return !any && (ds_f32_bits(c) & 0x7f800000u) != 0x7f800000u;
}

/* A block as any_block() adds it, where it can be told in a few operations that all is finite: 1 and the sum in *c, else 0. A significand is
 * first shifted left by as much as the term with the largest exponent is, then right by what its own exponent is less: that
 * cuts off the same bits, and nothing is wider than 27 bits before and after. */
static int finite_block(const struct ds_sim_mma_model *m, int element, const uint16_t *a,
                        const uint16_t *b, int n, float *c)
{
    const int f16 = element == DS_ELEMENT_F16, bits = f16 ? 10 : 7, all = f16 ? 31 : 255,
              left = 23 + m->extra - 2 * bits, of_c = (int)(ds_f32_bits(*c) >> 23 & 255);
    uint32_t significand[MOST_BLOCK];
    int exponent[MOST_BLOCK], special = of_c == 255;
    int largest = LEAST_EXPONENT;
    for (int i = 0; i < n; i++) {
        const int ea = a[i] >> bits & all, eb = b[i] >> bits & all;
        const uint32_t one = 1u << bits, sa = (a[i] & (one - 1)) | (ea ? one : 0),
                       sb = (b[i] & (one - 1)) | (eb ? one : 0);
        special |= ea == all || eb == all;
        significand[i] = sa * sb;
        exponent[i] = sa && sb ? (ea ? ea : 1) + (eb ? eb : 1) - (all - 1) : (int)LEAST_EXPONENT;
        largest = exponent[i] > largest ? exponent[i] : largest;
    }
    const uint32_t sc = (ds_f32_bits(*c) & 0x7fffffu) | (of_c ? 0x800000u : 0);
    const int ec = sc ? (of_c ? of_c : 1) - 127 : (int)LEAST_EXPONENT;
    largest = ec > largest ? ec : largest;
    if (special)
        return 0;
    int64_t sum = 0;
    for (int i = 0; i < n; i++) {
        const int right = largest - exponent[i];
        const int64_t v = right > 31 ? 0 : significand[i] << left >> right;
        sum += (a[i] ^ b[i]) & 0x8000 ? -v : v;
    }
    const int64_t v = largest - ec > 31 ? 0 : sc << m->extra >> (largest - ec);
    sum += ds_f32_bits(*c) >> 31 ? -v : v;
    *c = cut(sum < 0, (uint64_t)(sum < 0 ? -sum : sum), largest - 23 - m->extra);
    return 1;
}

static float any_block(const struct ds_sim_mma_model *m, int element, const uint16_t *a,
                       const uint16_t *b, int n, float c)
{
    struct number x[MOST_BLOCK + 1];
    x[0] = split(ds_f32_bits(c), 8, 23);
    for (int i = 0; i < n; i++)
        x[i + 1] = product(element, a[i], b[i]);
    return add_block(x, n + 1, m->extra);
}

float ds_sim_mma_sum(const struct ds_sim_mma_model *m, int element, const uint16_t *a,
                     const uint16_t *b, int n, float c)
{
    if (adds_nothing(element, a, b, n, c))
        return c == 0.0f ? 0.0f : c;
    for (int at = 0; at < n; at += m->block) {
        const int have = n - at < m->block ? n - at : m->block;
        if (!finite_block(m, element, a + at, b + at, have, &c))
            c = any_block(m, element, a + at, b + at, have, c);
    }
    return c;
}
