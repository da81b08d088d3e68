/* plugin.c: all specimens as one plugin. */
#include "specimen.h"

enum { MOST = 512 };
const struct ds_kernel *const *ds_plugin_kernels(uint32_t abi);

const struct ds_kernel *const *ds_plugin_kernels(uint32_t abi)
{
    static const struct ds_kernel *const lists[] = {
        specimen_matmul,        specimen_norm,     specimen_rope,
        specimen_attention,     specimen_serving,  specimen_other,
        specimen_more,          specimen_extra,    specimen_inner,
        specimen_later,         specimen_moved,    specimen_battery,
        specimen_battery_other, specimen_planted,  specimen_planted_attention,
        specimen_planted_other, specimen_evidence, specimen_parted};
    static const struct ds_kernel *all[MOST + 1];
    size_t n = 0;
    if (abi != DS_KERNEL_ABI)
        return NULL;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        for (const struct ds_kernel *k = lists[i]; k->name && n < MOST; k++)
            all[n++] = k;
    all[n] = NULL;
    return all;
}
