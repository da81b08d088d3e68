/* module_kernel.h: a kernel that comes as a cubin or PTX, as a variant of the device cuda: the file is read here,
 * its launches are worked out from its description (module.h), and the device's library loads and launches it.
 * Knows nothing of CUDA. */
#ifndef DS_MODULE_KERNEL_H
#define DS_MODULE_KERNEL_H

#include "base/error.h"
#include "kernels/device.h"

enum { DS_MODULE_MOST = 8 }; /* in a process */

/* The variant of path and the description beside it; *digest: XXH3-64 of the file. *out: a list that ends with
 * NULL and lives as long as the process, and so does what it names. Nothing is loaded before the first launch, which
 * may be in a process that is forked later. -1: no such file, a wrong description, too many. */
int ds_module_kernel_new(const char *path, const struct ds_device_library *library,
                         const struct ds_kernel *const **out, uint64_t *digest,
                         struct ds_error *err);

#endif
