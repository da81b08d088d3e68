/* kernels.c: see kernels.h. The Makefile compiles every .cu file twice. */
#include "kernels/sim/kernels.h"

#include "kernels/registry.h"

#include <string.h>

#define DECLARE(NAME) extern const struct ds_kernel ds_sim_##NAME, ds_sim_fma_##NAME;
DS_SIM_KERNELS(DECLARE)

#define PLAIN(NAME) &ds_sim_##NAME,
#define FUSED(NAME) &ds_sim_fma_##NAME,
static const struct ds_kernel *const plain[] = {DS_SIM_KERNELS(PLAIN)};
static const struct ds_kernel *const fused[] = {DS_SIM_KERNELS(FUSED)};

const struct ds_kernel *const *ds_sim_kernels(void)
{
    return strcmp(ds_isa_name(), "scalar") == 0 ? plain : fused;
}
