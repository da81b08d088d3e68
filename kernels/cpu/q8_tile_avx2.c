/* q8_tile_avx2.c: see q8_tile.h. Four rows share each weight: sixteen 8-bit integers become 16-bit
 * pairs, multiplied and added pairwise, exactly (2 * 128 * 127 * 16 fits 32 bits), into eight columns
 * of 32 bits. Nothing is fused: t = dx * dw, S * t and the sum are rounded one by one. */
#include "kernels/cpu/q8_tile.h"

#include <immintrin.h>
#include <string.h>

enum { ROWS = DS_Q8_MOST_ROWS };

/* `rows` is a constant in every call and its loops are unrolled, so that the sums stay in registers:
 * and that is worth a third. */
static inline __attribute__((always_inline)) void block_sums(const int16_t *const *x, int rows,
                                                             const int8_t *w, __m256i sum[ROWS][2])
{
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
        sum[i][0] = sum[i][1] = _mm256_setzero_si256();
    for (int pair = 0; pair < DS_Q8_BLOCK / 2; pair++, w += 2 * DS_Q8_PANEL) {
        const __m256i low = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)w)),
                      high = _mm256_cvtepi8_epi16(
                          _mm_loadu_si128((const __m128i *)(const void *)(w + DS_Q8_PANEL)));
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
            int32_t two;
            memcpy(&two, x[i] + 2 * pair, sizeof two);
            const __m256i xs = _mm256_set1_epi32(two);
            sum[i][0] = _mm256_add_epi32(sum[i][0], _mm256_madd_epi16(low, xs));
            sum[i][1] = _mm256_add_epi32(sum[i][1], _mm256_madd_epi16(high, xs));
        }
    }
}

static inline __attribute__((always_inline)) void tile_of(const struct ds_q8_rows *x, int rows,
                                                          const int8_t *w, const float *scale,
                                                          int64_t blocks,
                                                          float s[ROWS][DS_Q8_PANEL])
{
    __m256 acc[ROWS][2];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
        acc[i][0] = acc[i][1] = _mm256_setzero_ps();
    for (int64_t b = 0; b < blocks; b++, w += DS_Q8_PANEL * DS_Q8_BLOCK, scale += DS_Q8_PANEL) {
        const int16_t *q[ROWS];
        __m256i sum[ROWS][2];
        const __m256 dw[2] = {_mm256_loadu_ps(scale), _mm256_loadu_ps(scale + 8)};
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++)
            q[i] = x->q[i] + b * DS_Q8_BLOCK;
        block_sums(q, rows, w, sum);
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
            const __m256 dx = _mm256_set1_ps(x->d[i][b]);
#pragma GCC unroll 2
            for (int c = 0; c < 2; c++) {
                const __m256 t = _mm256_mul_ps(dx, dw[c]);
                acc[i][c] =
                    _mm256_add_ps(acc[i][c], _mm256_mul_ps(_mm256_cvtepi32_ps(sum[i][c]), t));
            }
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
        _mm256_storeu_ps(s[i], acc[i][0]);
        _mm256_storeu_ps(s[i] + 8, acc[i][1]);
    }
}

static void tile(const struct ds_q8_rows *x, const int8_t *w, const float *scale, int64_t blocks,
                 float s[ROWS][DS_Q8_PANEL])
{
    switch (x->n) {
    case 4:
        tile_of(x, 4, w, scale, blocks, s);
        return;
    case 3:
        tile_of(x, 3, w, scale, blocks, s);
        return;
    case 2:
        tile_of(x, 2, w, scale, blocks, s);
        return;
    default:
        tile_of(x, 1, w, scale, blocks, s);
    }
}

static float largest(__m256 v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
}

static float quantise(const float *v, int16_t *q)
{
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)),
                 most = _mm256_set1_ps(0x1.fffffep127f), round = _mm256_set1_ps(12582912.0f);
    __m256 x[4], amax = _mm256_setzero_ps(), finite = _mm256_cmp_ps(amax, amax, _CMP_EQ_OQ);
    for (int i = 0; i < 4; i++) {
        x[i] = _mm256_loadu_ps(v + 8 * i);
        const __m256 size = _mm256_and_ps(x[i], magnitude);
        finite = _mm256_and_ps(finite, _mm256_cmp_ps(size, most, _CMP_LE_OQ));
        amax = _mm256_max_ps(amax, size);
    }
    const float d = largest(amax) / 127.0f;
    if (_mm256_movemask_ps(finite) != 0xff || !(d > 0.0f))
        return ds_q8_quantise(v, DS_Q8_BLOCK, q);
    for (int i = 0; i < 4; i++) {
        __m256 t = _mm256_div_ps(x[i], _mm256_set1_ps(d));
        t = _mm256_max_ps(_mm256_min_ps(t, _mm256_set1_ps(127.0f)), _mm256_set1_ps(-127.0f));
        t = _mm256_sub_ps(_mm256_add_ps(t, round), round);
        const __m256i whole = _mm256_cvtps_epi32(t);
        _mm_storeu_si128(
            (__m128i *)(void *)(q + 8 * i),
            _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1)));
    }
    return d;
}

const struct ds_q8_code ds_q8_avx2 = {.tile_rows = ROWS, .tile = tile, .quantise = quantise};
