/* device_cpu.h: the CPU as a device. Private to kernels/. */
#ifndef DS_DEVICE_CPU_H
#define DS_DEVICE_CPU_H

#include "base/error.h"
#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ds_device *ds_cpu_device_new(struct ds_error *err);
/* The magnitude bits of a row's largest element, as struct ds_device_digest has them. */
uint32_t ds_device_largest(int element, const void *row, int64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
