/* oracle_parts.h: the matmul variants that cut K or round their inputs, written down a second time
 * from their head comments, one output at a time, in scalar C. Shares nothing with them. */
#ifndef DS_TEST_KERNELS_ORACLE_PARTS_H
#define DS_TEST_KERNELS_ORACLE_PARTS_H

#include "tests/unit/kernels/oracle.h"

#include <math.h>
#include <string.h>

/* One output: row, column, and the whole call around it. */
struct o_output {
    const float *x, *w; /* the row of x, the row of w */
    const float *bias;  /* of the column, or NULL */
    int64_t row, column, rows, n, k;
    int threads;
};
typedef float (*o_fn)(const struct o_output *o);

/* Terms k0..k1-1. */
static inline float o_part(const struct o_output *o, int64_t k0, int64_t k1)
{
    float total = 0.0f;
    for (int64_t b = k0; b < k1; b += 256) {
        float s = 0.0f;
        for (int64_t i = b; i < k1 && i < b + 256; i++)
            s = fmaf(o->x[i], o->w[i], s);
        total = b == k0 ? s : total + s;
    }
    return total;
}

static inline float o_finish(const struct o_output *o, float total)
{
    return o_store(o->bias ? total + *o->bias : total);
}

static inline int64_t o_split_k_parts(const struct o_output *o)
{
    const int64_t tiles = (o->rows + 3) / 4 * ((o->n + 2047) / 2048);
    for (int64_t p = 8; p > 1; p /= 2)
        if (p * tiles <= 8 * o->threads && o->k / p >= 16)
            return p;
    return 1;
}

static inline float o_split_k_rounded(const struct o_output *o, int bf16)
{
    const int64_t parts = o_split_k_parts(o);
    float total = 0.0f;
    for (int64_t p = 0; p < parts; p++) {
        float s = o_part(o, o->k * p / parts, o->k * (p + 1) / parts);
        if (bf16 && parts > 1)
            s = ds_bf16_value(ds_bf16_round(s));
        total = p == 0 ? s : total + s;
    }
    return o_finish(o, total);
}

static inline float o_split_k(const struct o_output *o)
{
    return o_split_k_rounded(o, 0);
}

static inline float o_bf16_partials(const struct o_output *o)
{
    return o_split_k_rounded(o, 1);
}

/* The share of all iterations in which iteration i lies: the last that begins at or before it. */
static inline int64_t o_share(int64_t i, int64_t all, int64_t shares)
{
    int64_t share = 0;
    while (share + 1 < shares && all * (share + 1) / shares <= i)
        share++;
    return share;
}

static inline float o_stream_k(const struct o_output *o)
{
    const int64_t row_tiles = (o->rows + 7) / 8, tiles = row_tiles * ((o->n + 63) / 64),
                  depth = (o->k + 31) / 32, all = tiles * depth,
                  shares = 5 * o->threads < all ? 5 * o->threads : all,
                  first = (o->column / 64 * row_tiles + o->row / 8) * depth;
    float total = 0.0f;
    for (int64_t i = 0, end; i < depth; i = end) {
        for (end = i + 1;
             end < depth && o_share(first + end, all, shares) == o_share(first + i, all, shares);)
            end++;
        float s = o_part(o, 32 * i, 32 * end < o->k ? 32 * end : o->k);
        total = i == 0 ? s : total + s;
    }
    return o_finish(o, total);
}

/* Parts of atomic and ticket. */
static inline int64_t o_race_parts(int64_t k)
{
    if (k >= 64)
        return 8;
    if (k >= 24)
        return k / 8;
    return k < 1 ? 1 : k < 3 ? k : 3;
}

static inline float o_race_part(const struct o_output *o, int64_t p)
{
    const int64_t parts = o_race_parts(o->k);
    return o_part(o, o->k * p / parts, o->k * (p + 1) / parts);
}

static inline float o_ticket(const struct o_output *o)
{
    const int64_t parts = o_race_parts(o->k);
    float total = 0.0f;
    int first = 1;
    for (int t = 0; t < o->threads; t++) {
        const int64_t begin = parts * t / o->threads, end = parts * (t + 1) / o->threads;
        float mine = 0.0f;
        for (int64_t p = begin; p < end; p++)
            mine = p == begin ? o_race_part(o, p) : mine + o_race_part(o, p);
        if (begin == end)
            continue;
        total = first ? mine : total + mine;
        first = 0;
    }
    return o_finish(o, total);
}

/* Nearest value with 10 bits of mantissa, ties away from zero, through double. */
static inline float o_tf32_value(float x)
{
    int e;
    if (isnan(x))
        return ds_f32_from_bits(0x7fc00000u);
    if (isinf(x) || x == 0.0f)
        return x;
    frexp((double)x, &e);
    if (e < -125)
        e = -125; /* subnormal: the grid of the smallest normal binade */
    const double unit = ldexp(1.0, e - 11);
    return (float)copysign(floor(fabs((double)x) / unit + 0.5) * unit, (double)x);
}

static inline float o_tf32(const struct o_output *o)
{
    float total = 0.0f;
    for (int64_t b = 0; b < o->k; b += 256) {
        float s = 0.0f;
        for (int64_t i = b; i < o->k && i < b + 256; i++)
            s = fmaf(o_tf32_value(o->x[i]), o_tf32_value(o->w[i]), s);
        total = b == 0 ? s : total + s;
    }
    return o_finish(o, total);
}

/* Block of n values: its scale; q[] in double, exactly integers. */
static inline float o_quantise(const float *v, int64_t n, double *q)
{
    float amax = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(v[i])) {
            memset(q, 0, (size_t)n * sizeof *q);
            return ds_f32_from_bits(0x7fc00000u);
        }
        amax = fmaxf(amax, fabsf(v[i]));
    }
    const float d = amax / 127.0f;
    for (int64_t i = 0; i < n; i++) {
        q[i] = d > 0.0f ? nearbyint((double)(v[i] / d)) : 0.0;
        q[i] = fmin(127.0, fmax(-127.0, q[i]));
    }
    return d;
}

static inline float o_q8(const struct o_output *o)
{
    float total = 0.0f;
    for (int64_t b = 0; b < o->k; b += 32) {
        const int64_t n = o->k - b < 32 ? o->k - b : 32;
        double qx[32], qw[32], sum = 0.0;
        const float dx = o_quantise(o->x + b, n, qx), dw = o_quantise(o->w + b, n, qw);
        for (int64_t i = 0; i < n; i++)
            sum += qx[i] * qw[i];
        const float t = dx * dw, v = (float)sum * t;
        total += v;
    }
    return o_finish(o, total);
}

#endif
