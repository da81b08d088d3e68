/* round.c: see round.h. Owns the fast forms; base/dtype.c is the definition, used where the CPU
 * lacks the instructions, and the unit test holds one against the other. bf16 is integer arithmetic
 * on eight lanes; f16 uses the F16C instructions: they round to nearest even by their own operand,
 * whatever the control word says, and keep subnormal results. Must not know stages. */
#include "engine/round.h"

#include "base/dtype.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define WIDE __attribute__((target("avx2,f16c")))

static int has_wide(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
}

WIDE static __m128i bf16_of(__m256i u)
{
    __m256i nan = _mm256_cmpgt_epi32(_mm256_and_si256(u, _mm256_set1_epi32(0x7fffffff)),
                                     _mm256_set1_epi32(0x7f800000));
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    __m256i r = _mm256_blendv_epi8(_mm256_srli_epi32(up, 16), _mm256_set1_epi32(0x7fc0), nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
}

/* A NaN keeps payload and sign in the conversion; the definition stores 7e00. */
WIDE static __m128i f16_of(__m256 x)
{
    __m128i h = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m128i nan = _mm_cmpgt_epi16(_mm_and_si128(h, _mm_set1_epi16(0x7fff)), _mm_set1_epi16(0x7c00));
    return _mm_blendv_epi8(h, _mm_set1_epi16(0x7e00), nan);
}

/* Both return how many elements they did: a multiple of eight. */
WIDE static size_t round_wide(int dtype, uint16_t *dst, const float *src, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256i u = _mm256_loadu_si256((const __m256i *)(const void *)(src + i));
        __m128i h = dtype == DS_BF16 ? bf16_of(u) : f16_of(_mm256_castsi256_ps(u));
        _mm_storeu_si128((__m128i *)(void *)(dst + i), h);
    }
    return i;
}

WIDE static size_t widen_wide(int dtype, float *dst, const uint16_t *src, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m128i h = _mm_loadu_si128((const __m128i *)(const void *)(src + i));
        __m256i u = dtype == DS_BF16 ? _mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16)
                                     : _mm256_castps_si256(_mm256_cvtph_ps(h));
        _mm256_storeu_si256((__m256i *)(void *)(dst + i), u);
    }
    return i;
}
#else
static int has_wide(void)
{
    return 0;
}
static size_t round_wide(int dtype, uint16_t *dst, const float *src, size_t n)
{
    (void)dtype, (void)dst, (void)src, (void)n;
    return 0;
}
static size_t widen_wide(int dtype, float *dst, const uint16_t *src, size_t n)
{
    (void)dtype, (void)dst, (void)src, (void)n;
    return 0;
}
#endif

void ds_round_many(int dtype, uint16_t *dst, const float *src, size_t n)
{
    size_t done = has_wide() ? round_wide(dtype, dst, src, n) : 0;
    ds_round_row(dtype, dst + done, src + done, n - done);
}

void ds_widen_many(int dtype, float *dst, const uint16_t *src, size_t n)
{
    size_t done = has_wide() ? widen_wide(dtype, dst, src, n) : 0;
    ds_widen_row(dtype, dst + done, src + done, n - done);
}
