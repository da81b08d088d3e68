/* v16_avx2.h: sixteen f32 lanes as two AVX2 registers; meanings in v16_scalar.h. Included by
 * *_avx2.c only. */
#ifndef DS_V16_H
#define DS_V16_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>

#define V16_NAME    "avx2"
#define V16_ROWS    6
#define V16_PANELS  1
#define V16_WIDE    4
#define V16_STREAMS 4
#define V16_UNASKED 0
#define V16_DENSE   96
#define V16_QUERIES 3
#define V16_KEYS    2

typedef struct {
    __m256 a, b; /* lanes 0-7, 8-15 */
} v16;

static inline v16 v16_make(__m256 a, __m256 b)
{
    v16 r = {a, b};
    return r;
}

static inline __m256i v16_mask(int64_t n) /* lanes below n, n may lie outside 0..8 */
{
    int32_t m = n < 0 ? 0 : n > 8 ? 8 : (int32_t)n;
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(m), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

#define V16_EACH(f, x, y) v16_make(f((x).a, (y).a), f((x).b, (y).b))
static inline v16 v16_set1(float x)
{
    return v16_make(_mm256_set1_ps(x), _mm256_set1_ps(x));
}
static inline v16 v16_load(const float *p)
{
    return v16_make(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
}
static inline v16 v16_add(v16 x, v16 y)
{
    return V16_EACH(_mm256_add_ps, x, y);
}
static inline v16 v16_sub(v16 x, v16 y)
{
    return V16_EACH(_mm256_sub_ps, x, y);
}
static inline v16 v16_mul(v16 x, v16 y)
{
    return V16_EACH(_mm256_mul_ps, x, y);
}
static inline v16 v16_div(v16 x, v16 y)
{
    return V16_EACH(_mm256_div_ps, x, y);
}
static inline v16 v16_max(v16 x, v16 y)
{
    return V16_EACH(_mm256_max_ps, x, y);
}
static inline v16 v16_min(v16 x, v16 y)
{
    return V16_EACH(_mm256_min_ps, x, y);
}

static inline v16 v16_fma(v16 x, v16 y, v16 z)
{
    return v16_make(_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b));
}

static inline v16 v16_load_n(const float *p, int64_t n)
{
    if (n >= 16)
        return v16_load(p);
    __m256 a = _mm256_maskload_ps(p, v16_mask(n));
    return v16_make(a, n > 8 ? _mm256_maskload_ps(p + 8, v16_mask(n - 8)) : _mm256_setzero_ps());
}

static inline v16 v16_head(v16 x, v16 y, int64_t n)
{
    return v16_make(_mm256_blendv_ps(y.a, x.a, _mm256_castsi256_ps(v16_mask(n))),
                    _mm256_blendv_ps(y.b, x.b, _mm256_castsi256_ps(v16_mask(n - 8))));
}

static inline v16 v16_zero_at_ninf(v16 y, v16 x)
{
    __m256 inf = _mm256_set1_ps(-INFINITY);
    return v16_make(_mm256_andnot_ps(_mm256_cmp_ps(x.a, inf, _CMP_EQ_OQ), y.a),
                    _mm256_andnot_ps(_mm256_cmp_ps(x.b, inf, _CMP_EQ_OQ), y.b));
}

static inline v16 v16_canon(v16 x)
{
    __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    return v16_make(_mm256_blendv_ps(x.a, nan, _mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q)),
                    _mm256_blendv_ps(x.b, nan, _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q)));
}

static inline void v16_store(float *p, v16 x)
{
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}

static inline void v16_store_n(float *p, v16 x, int64_t n)
{
    if (n >= 16) {
        v16_store(p, x);
        return;
    }
    _mm256_maskstore_ps(p, v16_mask(n), x.a);
    if (n > 8)
        _mm256_maskstore_ps(p + 8, v16_mask(n - 8), x.b);
}

static inline __m256 v16_scale_half(__m256 p, __m256 t)
{
    __m256i n = _mm256_sub_epi32(_mm256_castps_si256(t), _mm256_set1_epi32(0x4b400000));
    __m256i h = _mm256_srai_epi32(n, 1), bias = _mm256_set1_epi32(127);
    __m256 a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(h, bias), 23));
    __m256 b =
        _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(n, h), bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(p, a), b);
}

static inline v16 v16_scale(v16 p, v16 t)
{
    return V16_EACH(v16_scale_half, p, t);
}

static inline float v16_tree_sum(v16 x)
{
    __m256 w8 = _mm256_add_ps(x.a, x.b);
    __m128 w4 = _mm_add_ps(_mm256_castps256_ps128(w8), _mm256_extractf128_ps(w8, 1));
    __m128 w2 = _mm_add_ps(w4, _mm_movehl_ps(w4, w4));
    return _mm_cvtss_f32(_mm_add_ss(w2, _mm_movehdup_ps(w2)));
}

/* Lanes 8, 4, 2, 1 apart as in v16_tree_sum, eight trees side by side. */
static inline __m256 v16_tree_sums_half(const float *p)
{
    __m256 h[8], r[4], s[2];
    for (int i = 0; i < 8; i++)
        h[i] = _mm256_add_ps(_mm256_loadu_ps(p + 16 * i), _mm256_loadu_ps(p + 16 * i + 8));
    for (int i = 0; i < 4; i++)
        r[i] = _mm256_add_ps(_mm256_permute2f128_ps(h[i], h[i + 4], 0x20),
                             _mm256_permute2f128_ps(h[i], h[i + 4], 0x31));
    for (int i = 0; i < 2; i++)
        s[i] = _mm256_add_ps(_mm256_shuffle_ps(r[2 * i], r[2 * i + 1], 0x44),
                             _mm256_shuffle_ps(r[2 * i], r[2 * i + 1], 0xee));
    return _mm256_add_ps(_mm256_shuffle_ps(s[0], s[1], 0x88), _mm256_shuffle_ps(s[0], s[1], 0xdd));
}

static inline v16 v16_tree_sums(const float *p)
{
    return v16_make(v16_tree_sums_half(p), v16_tree_sums_half(p + 128));
}

static inline float v16_tree_max(v16 x)
{
    __m256 w8 = _mm256_max_ps(x.a, x.b);
    __m128 w4 = _mm_max_ps(_mm256_castps256_ps128(w8), _mm256_extractf128_ps(w8, 1));
    __m128 w2 = _mm_max_ps(w4, _mm_movehl_ps(w4, w4));
    return _mm_cvtss_f32(_mm_max_ss(w2, _mm_movehdup_ps(w2)));
}

static inline __m256 v16_rotate_half(__m256 x, __m256 cs)
{
    __m256 sin_part = _mm256_mul_ps(_mm256_permute_ps(x, 0xb1), _mm256_movehdup_ps(cs));
    return _mm256_fmaddsub_ps(x, _mm256_moveldup_ps(cs), sin_part);
}

static inline v16 v16_rotate(v16 x, v16 cs)
{
    return V16_EACH(v16_rotate_half, x, cs);
}

typedef struct {
    __m256i a, b;
} v16i;

#define V16I_EACH(f, x, y) ((v16i){f((x).a, y), f((x).b, y)})
static inline v16i v16i_load(const void *p)
{
    const __m256i *q = p;
    return (v16i){_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
static inline v16i v16i_and(v16i x, uint32_t mask)
{
    return V16I_EACH(_mm256_and_si256, x, _mm256_set1_epi32((int32_t)mask));
}
static inline v16i v16i_shl(v16i x, int bits)
{
    return V16I_EACH(_mm256_slli_epi32, x, bits);
}
static inline v16i v16i_shr(v16i x, int bits)
{
    return V16I_EACH(_mm256_srli_epi32, x, bits);
}
static inline v16 v16_from_int(v16i x)
{
    return v16_make(_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b));
}
static inline v16 v16_from_bits(v16i x)
{
    return v16_make(_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b));
}
static inline v16 v16_load_half(const void *p)
{
    const __m128i *q = p;
    return v16_make(_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1)));
}

#undef V16I_EACH
#undef V16_EACH
#endif
