/* memory.h: what kernels/cuda/memory.cu has for the devices sim and cuda beside variants: rows from place
 * to place and between formats, for struct ds_device. Private to kernels/. */
#ifndef DS_CUDA_MEMORY_H
#define DS_CUDA_MEMORY_H

#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DS_MEMORY_KERNELS(DEVICE)                                                                  \
    int ds_##DEVICE##_move_rows(const struct ds_device_rows *r, const struct ds_exec *exec,        \
                                char *why, size_t why_size);                                       \
    int ds_##DEVICE##_convert(int element, int how, void *half, float *y, int64_t n,               \
                              const struct ds_exec *exec, char *why, size_t why_size)

DS_MEMORY_KERNELS(sim);
DS_MEMORY_KERNELS(cuda);

#ifdef __cplusplus
}
#endif
#endif
