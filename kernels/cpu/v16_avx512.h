/* v16_avx512.h: sixteen f32 lanes as one AVX-512 register; meanings in v16_scalar.h. Included by
 * *_avx512.c only. */
#ifndef DS_V16_H
#define DS_V16_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>

#define V16_NAME    "avx512"
#define V16_ROWS    12
#define V16_PANELS  2
#define V16_WIDE    8
#define V16_STREAMS 4
#define V16_UNASKED 4
#define V16_DENSE   24
#define V16_QUERIES 4
#define V16_KEYS    4

typedef __m512 v16;

static inline __mmask16 v16_mask(int64_t n) /* lanes below n */
{
    return n >= 16 ? (__mmask16)0xffff : n <= 0 ? (__mmask16)0 : (__mmask16)((1u << n) - 1u);
}

static inline v16 v16_set1(float x)
{
    return _mm512_set1_ps(x);
}
static inline v16 v16_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline v16 v16_load_n(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(v16_mask(n), p);
}
static inline v16 v16_add(v16 x, v16 y)
{
    return _mm512_add_ps(x, y);
}
static inline v16 v16_sub(v16 x, v16 y)
{
    return _mm512_sub_ps(x, y);
}
static inline v16 v16_mul(v16 x, v16 y)
{
    return _mm512_mul_ps(x, y);
}
static inline v16 v16_div(v16 x, v16 y)
{
    return _mm512_div_ps(x, y);
}
static inline v16 v16_max(v16 x, v16 y)
{
    return _mm512_max_ps(x, y);
}
static inline v16 v16_min(v16 x, v16 y)
{
    return _mm512_min_ps(x, y);
}
static inline v16 v16_fma(v16 x, v16 y, v16 z)
{
    return _mm512_fmadd_ps(x, y, z);
}
static inline v16 v16_head(v16 x, v16 y, int64_t n)
{
    return _mm512_mask_blend_ps(v16_mask(n), y, x);
}
static inline void v16_store(float *p, v16 x)
{
    _mm512_storeu_ps(p, x);
}
static inline void v16_store_n(float *p, v16 x, int64_t n)
{
    _mm512_mask_storeu_ps(p, v16_mask(n), x);
}

static inline v16 v16_zero_at_ninf(v16 y, v16 x)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(-INFINITY), _CMP_NEQ_UQ), y);
}

static inline v16 v16_canon(v16 x)
{
    __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000));
    return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), nan);
}

static inline v16 v16_scale(v16 p, v16 t)
{
    __m512i n = _mm512_sub_epi32(_mm512_castps_si512(t), _mm512_set1_epi32(0x4b400000));
    __m512i h = _mm512_srai_epi32(n, 1), bias = _mm512_set1_epi32(127);
    __m512 a = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(h, bias), 23));
    __m512 b =
        _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_sub_epi32(n, h), bias), 23));
    return _mm512_mul_ps(_mm512_mul_ps(p, a), b);
}

static inline float v16_tree_sum(v16 x)
{
    __m256 w8 = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 w4 = _mm_add_ps(_mm256_castps256_ps128(w8), _mm256_extractf128_ps(w8, 1));
    __m128 w2 = _mm_add_ps(w4, _mm_movehl_ps(w4, w4));
    return _mm_cvtss_f32(_mm_add_ss(w2, _mm_movehdup_ps(w2)));
}

/* The two halves of a and b: lanes 8 apart are added, a's sums below b's. */
static inline __m512 v16_fold8(const float *a, const float *b)
{
    __m512 x = _mm512_loadu_ps(a), y = _mm512_loadu_ps(b);
    return _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xee));
}

/* Lanes 8, 4, 2, 1 apart as in v16_tree_sum, sixteen trees side by side. */
static inline v16 v16_tree_sums(const float *p)
{
    __m512 r[4], s[2];
    for (int i = 0; i < 4; i++) { /* quarters of r[i]: trees i, i + 4, i + 8, i + 12 */
        __m512 a = v16_fold8(p + 16 * i, p + 16 * (i + 4)),
               b = v16_fold8(p + 16 * (i + 8), p + 16 * (i + 12));
        r[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    }
    for (int i = 0; i < 2; i++)
        s[i] = _mm512_add_ps(_mm512_shuffle_ps(r[2 * i], r[2 * i + 1], 0x44),
                             _mm512_shuffle_ps(r[2 * i], r[2 * i + 1], 0xee));
    return _mm512_add_ps(_mm512_shuffle_ps(s[0], s[1], 0x88), _mm512_shuffle_ps(s[0], s[1], 0xdd));
}

static inline float v16_tree_max(v16 x)
{
    __m256 w8 = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 w4 = _mm_max_ps(_mm256_castps256_ps128(w8), _mm256_extractf128_ps(w8, 1));
    __m128 w2 = _mm_max_ps(w4, _mm_movehl_ps(w4, w4));
    return _mm_cvtss_f32(_mm_max_ss(w2, _mm_movehdup_ps(w2)));
}

static inline v16 v16_rotate(v16 x, v16 cs)
{
    __m512 sin_part = _mm512_mul_ps(_mm512_permute_ps(x, 0xb1), _mm512_movehdup_ps(cs));
    return _mm512_fmaddsub_ps(x, _mm512_moveldup_ps(cs), sin_part);
}

typedef __m512i v16i;

static inline v16i v16i_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
static inline v16i v16i_and(v16i x, uint32_t mask)
{
    return _mm512_and_si512(x, _mm512_set1_epi32((int32_t)mask));
}
static inline v16i v16i_shl(v16i x, int bits)
{
    return _mm512_slli_epi32(x, (unsigned)bits);
}
static inline v16i v16i_shr(v16i x, int bits)
{
    return _mm512_srli_epi32(x, (unsigned)bits);
}
static inline v16 v16_from_int(v16i x)
{
    return _mm512_cvtepi32_ps(x);
}
static inline v16 v16_from_bits(v16i x)
{
    return _mm512_castsi512_ps(x);
}
static inline v16 v16_load_half(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}

#endif
