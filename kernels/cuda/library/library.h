/* library.h: the parts of libdriftscope_cuda.so. Private to kernels/cuda/library. */
#ifndef DS_CUDA_LIBRARY_H
#define DS_CUDA_LIBRARY_H

#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Architectures that there is code for, as text; the Makefile says which. */
#ifndef DS_CUDA_ARCHITECTURES
#define DS_CUDA_ARCHITECTURES "unknown architectures"
#endif

struct ds_device *ds_cuda_open(int number, char *why, size_t why_size);

/* XXH3-64 of a row and the magnitude bits of its largest element: struct ds_device_digest, on the host. */
void ds_cuda_host_digest(int element, const void *row, int64_t bytes, uint64_t *digest,
                         uint32_t *largest);

#ifdef __cplusplus
}
#endif
#endif
