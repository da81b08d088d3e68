/* sgemm_call.h: what the matmuls by a BLAS library share: what such a call can take, and what has to
 * be done around it. Private to kernels/. */
#ifndef DS_KERNELS_SGEMM_CALL_H
#define DS_KERNELS_SGEMM_CALL_H

#include "kernels/driftscope_kernel.h"

/* Refuses sizes that cblas_sgemm does not take, and weights that are not f32. */
int ds_sgemm_check(const struct ds_matmul_args *a, char *why, size_t why_size);

/* Calls the library's sgemm with the caller's team at rest, holds it to the floating-point control
 * word, and adds the bias, rounded once more. */
int ds_sgemm_run(const struct ds_matmul_args *a, const struct ds_exec *exec,
                 void (*sgemm)(const struct ds_matmul_args *a), char *why, size_t why_size);

#endif
