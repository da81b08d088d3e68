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
/* module.cu: as struct ds_device_library says. */
int ds_cuda_module_load(const void *image, const char *entry, uint32_t shared_bytes, void **out,
                        char *why, size_t why_size);
int ds_cuda_module_launch(void *kernel, const uint32_t *grid, const uint32_t *block,
                          uint32_t shared_bytes, void *stream, void **arguments, char *why,
                          size_t why_size);
/* clocks.cu: of the device with this PCI address, now; 0 = unknown. */
void ds_cuda_clocks(int domain, int bus, int number, int32_t *sm_khz, int32_t *memory_khz);
/* "cublasLt 130100"; "" where it cannot be opened. */
void ds_cublaslt_version(char *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif
