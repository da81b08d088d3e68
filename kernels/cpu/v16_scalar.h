/* v16_scalar.h: sixteen f32 lanes in plain C; the meaning of each operation for v16_avx2.h and
 * v16_avx512.h. */
#ifndef DS_V16_H
#define DS_V16_H

#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define V16_NAME    "scalar"
#define V16_ROWS    4       /* rows of the largest matmul tile */
#define V16_PANELS  1       /* panels of the largest matmul tile */
#define V16_WIDE    1       /* panels at once for a single row */
#define V16_STREAMS 1       /* panels that flow from memory side by side */
#define V16_UNASKED 0       /* rows up to which weights are not asked for ahead */
#define V16_DENSE   INT_MAX /* rows from which a copy of x pays */
#define V16_QUERIES 1       /* query vectors and ... */
#define V16_KEYS    1       /* ... keys of the largest tile of scores */

typedef struct {
    float f[16];
} v16;

#define V16_EACH(expr)                                                                             \
    v16 r;                                                                                         \
    for (int i = 0; i < 16; i++)                                                                   \
        r.f[i] = (expr);                                                                           \
    return r

static inline v16 v16_set1(float x)
{
    V16_EACH(x);
}
static inline v16 v16_load(const float *p)
{
    V16_EACH(p[i]);
}
/* Lanes n.. are +0 and not read. */
static inline v16 v16_load_n(const float *p, int64_t n)
{
    V16_EACH(i < n ? p[i] : 0.0f);
}
static inline v16 v16_add(v16 a, v16 b)
{
    V16_EACH(a.f[i] + b.f[i]);
}
static inline v16 v16_sub(v16 a, v16 b)
{
    V16_EACH(a.f[i] - b.f[i]);
}
static inline v16 v16_mul(v16 a, v16 b)
{
    V16_EACH(a.f[i] * b.f[i]);
}
static inline v16 v16_div(v16 a, v16 b)
{
    V16_EACH(a.f[i] / b.f[i]);
}
/* a * b + c, rounded once. */
static inline v16 v16_fma(v16 a, v16 b, v16 c)
{
    V16_EACH(fmaf(a.f[i], b.f[i], c.f[i]));
}
/* Exactly these comparisons: the second operand wins a tie and a NaN. */
static inline v16 v16_max(v16 a, v16 b)
{
    V16_EACH(a.f[i] > b.f[i] ? a.f[i] : b.f[i]);
}
static inline v16 v16_min(v16 a, v16 b)
{
    V16_EACH(a.f[i] < b.f[i] ? a.f[i] : b.f[i]);
}
/* Lanes below n of a, the others of b. */
static inline v16 v16_head(v16 a, v16 b, int64_t n)
{
    V16_EACH(i < n ? a.f[i] : b.f[i]);
}
/* +0 in the lanes where x is -infinity, y elsewhere. */
static inline v16 v16_zero_at_ninf(v16 y, v16 x)
{
    V16_EACH(x.f[i] == -INFINITY ? 0.0f : y.f[i]);
}
/* Every NaN as 7fc00000. */
static inline v16 v16_canon(v16 x)
{
    V16_EACH(x.f[i] != x.f[i] ? (float)NAN : x.f[i]);
}

static inline void v16_store(float *p, v16 x)
{
    memcpy(p, x.f, sizeof x.f);
}

static inline void v16_store_n(float *p, v16 x, int64_t n)
{
    for (int i = 0; i < 16 && i < n; i++)
        p[i] = x.f[i];
}

/* p * 2^n for t = 12582912 + n, as (p * 2^(n>>1)) * 2^(n - (n>>1)). */
static inline v16 v16_scale(v16 p, v16 t)
{
    v16 r;
    for (int i = 0; i < 16; i++) {
        int32_t n, half;
        uint32_t a, b;
        float fa, fb;
        memcpy(&n, &t.f[i], 4);
        n = (int32_t)((uint32_t)n - 0x4b400000u);
        half = n >> 1;
        a = ((uint32_t)half + 127u) << 23;
        b = ((uint32_t)n - (uint32_t)half + 127u) << 23;
        memcpy(&fa, &a, 4);
        memcpy(&fb, &b, 4);
        r.f[i] = (p.f[i] * fa) * fb;
    }
    return r;
}

/* The fixed tree: lanes 8 apart, 4 apart, 2 apart, then the last two. */
static inline float v16_tree_sum(v16 x)
{
    for (int w = 8; w >= 1; w /= 2)
        for (int i = 0; i < w; i++)
            x.f[i] = x.f[i] + x.f[i + w];
    return x.f[0];
}

/* Lane i = the tree of p[16 * i] .. p[16 * i + 15]. */
static inline v16 v16_tree_sums(const float *p)
{
    V16_EACH(v16_tree_sum(v16_load(p + 16 * i)));
}

static inline float v16_tree_max(v16 x)
{
    for (int w = 8; w >= 1; w /= 2)
        for (int i = 0; i < w; i++)
            x.f[i] = x.f[i] > x.f[i + w] ? x.f[i] : x.f[i + w];
    return x.f[0];
}

/* [x0*c0 - x1*s0, x1*c0 + x0*s0, ...] for pairs of x and cs = [c0, s0, ...]: the sine product is
 * rounded first. */
static inline v16 v16_rotate(v16 x, v16 cs)
{
    v16 r;
    for (int i = 0; i < 16; i += 2) {
        r.f[i] = fmaf(x.f[i], cs.f[i], -(x.f[i + 1] * cs.f[i + 1]));
        r.f[i + 1] = fmaf(x.f[i + 1], cs.f[i], x.f[i] * cs.f[i + 1]);
    }
    return r;
}

/* Sixteen 32-bit words, as packed weights of a file hold them (file_weights.h). */
typedef struct {
    uint32_t u[16];
} v16i;

#define V16I_EACH(expr)                                                                            \
    v16i r;                                                                                        \
    for (int i = 0; i < 16; i++)                                                                   \
        r.u[i] = (expr);                                                                           \
    return r

static inline v16i v16i_load(const void *p)
{
    v16i r;
    memcpy(&r, p, sizeof r);
    return r;
}
static inline v16i v16i_and(v16i a, uint32_t mask)
{
    V16I_EACH(a.u[i] & mask);
}
static inline v16i v16i_shl(v16i a, int bits)
{
    V16I_EACH(a.u[i] << bits);
}
static inline v16i v16i_shr(v16i a, int bits)
{
    V16I_EACH(a.u[i] >> bits);
}
/* The word as a signed integer, which must have at most 24 significant bits: exact. */
static inline v16 v16_from_int(v16i a)
{
    V16_EACH((float)(int32_t)a.u[i]);
}
/* The word's bits as an f32. */
static inline v16 v16_from_bits(v16i a)
{
    v16 r;
    memcpy(&r, &a, sizeof r);
    return r;
}

static inline float v16_half_value(uint32_t h)
{
    uint32_t magnitude = h & 0x7fffu, bits;
    float f;
    if (magnitude < 0x0400u) { /* zero, subnormal: exact */
        f = (float)magnitude * 0x1p-24f;
        memcpy(&bits, &f, 4);
    } else {
        bits = (magnitude << 13) + (magnitude < 0x7c00u ? 112u << 23 : 224u << 23);
    }
    bits |= (h & 0x8000u) << 16;
    memcpy(&f, &bits, 4);
    return f;
}
/* Sixteen f16 as f32: exact. */
static inline v16 v16_load_half(const void *p)
{
    uint16_t h[16];
    memcpy(h, p, sizeof h);
    V16_EACH(v16_half_value(h[i]));
}

#endif
