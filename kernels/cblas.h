/* cblas.h: any library with a cblas_sgemm, from a file that the user names, beside OpenBLAS: what
 * matmul/cblas runs. One for the process. */
#ifndef DS_CBLAS_H
#define DS_CBLAS_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* Chooses the library. It is loaded in a child process first, which may take so many seconds and
 * multiplies two small matrices: a crash, a hang, a missing or a wrong cblas_sgemm is an error here.
 * In this process nothing is loaded yet, so that workers may be forked. `path` is borrowed. Not
 * thread-safe. */
int ds_cblas_choose(const char *path, int seconds, struct ds_error *err);

/* Loads the chosen library, once: dlopen with RTLD_NOW | RTLD_LOCAL. Its cblas_sgemm calls nothing of
 * another BLAS in this process. */
int ds_cblas_open(struct ds_error *err);

/* Of the chosen library; "" and 0 without one. */
const char *ds_cblas_path(void);   /* as given */
const char *ds_cblas_file(void);   /* its last part */
uint64_t ds_cblas_digest(void);    /* XXH3-64 of the file's bytes */
const char *ds_cblas_config(void); /* "BLIS 0.9.0 zen3", "MKL 2026.2-Product Build 20260915";
                                      "unknown" for a library that does not say */
/* The floating-point control word that loading left in its thread, where it changed it; 0 = it did
 * not. It is put back. */
uint32_t ds_cblas_fp_changed(void);

/* Sets the threads of its next call. 0; 1 when the library has no known function for that, and
 * takes as many as it likes; -1 when it refuses. Needs an open library. */
int ds_cblas_set_threads(int threads);
/* Row-major: y[m][n] = x[m][k] * w[n][k]^T. Needs an open library. */
int ds_cblas_sgemm_nt(int64_t m, int64_t n, int64_t k, const float *x, int64_t ldx, const float *w,
                      int64_t ldw, float *y, int64_t ldy);

/* Whether the library packs weights ahead and multiplies by them as MKL does: cblas_sgemm_pack_get_size,
 * cblas_sgemm_pack, cblas_sgemm_compute. 1; 0 when one of them is missing; -1 when the product of two
 * small matrices is wrong. */
int ds_cblas_packs(void);
/* Packed weights may be copied to any other address that is a multiple of this; MKL's layout follows
 * the address within a page. */
enum { DS_CBLAS_PACKED_ALIGN = 4096 };
/* Bytes for w[n][k], a multiple of DS_CBLAS_PACKED_ALIGN; 0 when it cannot. Needs an open library. */
size_t ds_cblas_packed_bytes(int64_t n, int64_t k);
void ds_cblas_pack(int64_t n, int64_t k, const float *w, int64_t ldw, float *packed);
/* As ds_cblas_sgemm_nt, by packed weights. */
void ds_cblas_sgemm_packed(int64_t m, int64_t n, int64_t k, const float *x, int64_t ldx,
                           const float *packed, float *y, int64_t ldy);

#endif
