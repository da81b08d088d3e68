/* q8_tile_plain.c: see q8_tile.h. For every x86-64: SSE2, two rows at a time. */
#include "kernels/cpu/q8_tile.h"

#include "base/dtype.h"

#include <emmintrin.h>
#include <math.h>
#include <string.h>

enum { BLOCK = DS_Q8_BLOCK, PANEL = DS_Q8_PANEL, TILE_ROWS = 2 };

float ds_q8_quantise(const float *v, int64_t n, int16_t *q)
{
    float amax = 0.0f;
    int finite = 1;
    memset(q, 0, BLOCK * sizeof *q);
    for (int64_t i = 0; i < n; i++) {
        const float size = fabsf(v[i]);
        finite &= size <= 0x1.fffffep127f;
        amax = size > amax ? size : amax;
    }
    if (!finite)
        return ds_f32_from_bits(0x7fc00000u);
    const float d = amax / 127.0f;
    for (int64_t i = 0; d > 0.0f && i < n; i++) {
        float t = v[i] / d;
        t = t > 127.0f ? 127.0f : t < -127.0f ? -127.0f : t; /* d of a few subnormal units */
        q[i] = (int16_t)((t + 12582912.0f) - 12582912.0f);   /* 1.5 * 2^23: ties to even */
    }
    return d;
}

/* Two rows share each weight: 8 integers become 16-bit pairs, multiplied and added pairwise,
 * exactly, into four columns of 32 bits. sum[i][c]: row i, columns 4c..4c+3. */
static void block_sums(const int16_t *const *x, int rows, const int8_t *w, __m128i sum[][4])
{
    for (int i = 0; i < TILE_ROWS; i++)
        for (int c = 0; c < 4; c++)
            sum[i][c] = _mm_setzero_si128();
    for (int pair = 0; pair < BLOCK / 2; pair++, w += 2 * PANEL) {
        const __m128i low = _mm_loadu_si128((const __m128i *)(const void *)w),
                      high = _mm_loadu_si128((const __m128i *)(const void *)(w + PANEL));
        const __m128i v[4] = {_mm_srai_epi16(_mm_unpacklo_epi8(low, low), 8),
                              _mm_srai_epi16(_mm_unpackhi_epi8(low, low), 8),
                              _mm_srai_epi16(_mm_unpacklo_epi8(high, high), 8),
                              _mm_srai_epi16(_mm_unpackhi_epi8(high, high), 8)};
        for (int i = 0; i < rows; i++) {
            int32_t two;
            memcpy(&two, x[i] + 2 * pair, sizeof two);
            const __m128i xs = _mm_set1_epi32(two);
            for (int c = 0; c < 4; c++)
                sum[i][c] = _mm_add_epi32(sum[i][c], _mm_madd_epi16(v[c], xs));
        }
    }
}

static void tile(const struct ds_q8_rows *x, const int8_t *w, const float *scale, int64_t blocks,
                 float s[DS_Q8_MOST_ROWS][PANEL])
{
    const int rows = x->n < TILE_ROWS ? x->n : TILE_ROWS;
    __m128 acc[TILE_ROWS][4];
    for (int i = 0; i < TILE_ROWS; i++)
        for (int c = 0; c < 4; c++)
            acc[i][c] = _mm_setzero_ps();
    for (int64_t b = 0; b < blocks; b++) {
        const int16_t *q[TILE_ROWS];
        __m128i sum[TILE_ROWS][4];
        for (int i = 0; i < rows; i++)
            q[i] = x->q[i] + b * BLOCK;
        block_sums(q, rows, w + b * PANEL * BLOCK, sum);
        for (int i = 0; i < rows; i++) {
            const __m128 dx = _mm_set1_ps(x->d[i][b]);
            for (int c = 0; c < 4; c++) {
                const __m128 t = _mm_mul_ps(dx, _mm_loadu_ps(scale + b * PANEL + 4 * c));
                acc[i][c] = _mm_add_ps(acc[i][c], _mm_mul_ps(_mm_cvtepi32_ps(sum[i][c]), t));
            }
        }
    }
    for (int i = 0; i < rows; i++)
        for (int c = 0; c < 4; c++)
            _mm_storeu_ps(s[i] + 4 * c, acc[i][c]);
}

static float quantise(const float *v, int16_t *q)
{
    return ds_q8_quantise(v, BLOCK, q);
}

const struct ds_q8_code ds_q8_plain = {.tile_rows = TILE_ROWS, .tile = tile, .quantise = quantise};
