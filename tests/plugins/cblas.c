/* cblas.c: a library with a cblas_sgemm for the tests of --blas. It adds in descending k, so that its
 * bits are nobody else's, from an array of its own name that other libraries have, too. With a -D
 * it has one fault: NO_SGEMM, WRONG, CRASH, ENDS, HANGS, CRASHES_IN_CALL, FLUSHES (as a library
 * linked with fast-math), LEAVES_FLUSH (each call changes MXCSR). PACKS: it packs weights ahead as
 * MKL does, PACKS_WRONG: with a wrong result. */
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include <xmmintrin.h>

static __attribute__((constructor)) void loaded(void)
{
#ifdef CRASH
    abort();
#endif
#ifdef ENDS
    _exit(3);
#endif
#ifdef HANGS
    for (;;)
        pause();
#endif
#ifdef FLUSHES
    _mm_setcsr(_mm_getcsr() | 0x8000u);
#endif
}

#ifndef NO_SGEMM
/* OpenBLAS has a function of this name and calls it: with a namespace shared by both, one of the two
 * libraries would run the other's. */
void sgemm_(const float *x, const float *w, int k, float *y)
{
    float s = 0.0f;
    for (int i = k - 1; i >= 0; i--)
        s += x[i] * w[i];
    *y = s;
}

void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                 const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc)
{
    (void)order, (void)trans_a, (void)trans_b, (void)alpha, (void)beta;
#ifdef CRASHES_IN_CALL
    abort();
#endif
#ifdef LEAVES_FLUSH
    _mm_setcsr(_mm_getcsr() | 0x8000u);
#endif
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            sgemm_(a + (long)i * lda, b + (long)j * ldb, k, &c[(long)i * ldc + j]);
#ifdef WRONG
            c[(long)i * ldc + j] += 1.0f;
#endif
        }
}
#endif

#if defined PACKS || defined PACKS_WRONG
/* Packed: the terms of each column from the last to the first, at an offset that follows the address
 * within a page, so that a copy elsewhere in a page cannot be read. */
static long offset(const float *packed)
{
    return (long)((4096 - (uintptr_t)packed % 4096) / sizeof(float));
}

size_t cblas_sgemm_pack_get_size(int identifier, int m, int n, int k)
{
    (void)m;
    return identifier == 162 ? ((size_t)n * (size_t)k + 1024) * sizeof(float) : 0;
}

void cblas_sgemm_pack(int order, int identifier, int trans, int m, int n, int k, float alpha,
                      const float *src, int ld, float *packed)
{
    (void)order, (void)identifier, (void)trans, (void)m;
    float *to = packed + offset(packed);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < k; i++)
            to[(long)j * k + i] = alpha * src[(long)j * ld + k - 1 - i];
}

void cblas_sgemm_compute(int order, int trans_a, int trans_b, int m, int n, int k, const float *a,
                         int lda, const float *b, int ldb, float beta, float *c, int ldc)
{
    const float *w = b + offset(b);
    (void)order, (void)trans_a, (void)trans_b, (void)ldb, (void)beta;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float s = 0.0f;
            for (int t = 0; t < k; t++)
                s += a[(long)i * lda + k - 1 - t] * w[(long)j * k + t];
#ifdef PACKS_WRONG
            s += 1.0f;
#endif
            c[(long)i * ldc + j] = s;
        }
}
#endif
