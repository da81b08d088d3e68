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

#ifdef __cplusplus
}
#endif
#endif
