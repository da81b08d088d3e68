/* lab_kernels.h: inside cli/ only: which variants a verb of the lab is asked about. */
#ifndef DS_CLI_LAB_KERNELS_H
#define DS_CLI_LAB_KERNELS_H

#include "cli/cli.h"
#include "kernels/registry.h"

/* From the operands: OP (all its variants), OP/VARIANT, or "all"; none = all. Each once, in the order
 * of the registry's ops. malloc'ed; the caller frees *out. Unknown names: -1 with the nearest. */
int ds_lab_kernels(const struct ds_options *o, const struct ds_kernel ***out, size_t *n,
                   struct ds_error *err);

/* Whether the device of --device is there, before its kernels are asked for; the lab launches on that one. */
int ds_lab_choose_device(const struct ds_options *o, struct ds_error *err);
/* --graph of check and order: launches on the device are captured. */
int ds_lab_choose_graphs(const struct ds_options *o, struct ds_error *err);
/* The device of --device (enum ds_device_kind); the CPU where the verb has no such option. */
int ds_lab_device(const struct ds_options *o);

#endif
