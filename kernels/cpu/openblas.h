/* openblas.h: what matmul_openblas.c needs of kernels/blas.c beside kernels/registry.h. Private to
 * kernels/. */
#ifndef DS_KERNELS_OPENBLAS_H
#define DS_KERNELS_OPENBLAS_H

#include "base/error.h"

/* Whether OpenBLAS can be opened, without choosing a core: when none is open yet, the library is
 * loaded and unloaded again. */
int ds_blas_probe(struct ds_error *err);

#endif
