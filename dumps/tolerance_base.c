/* tolerance_base.c: the inner loop of the tolerance for every CPU, and the choice of its code. */
#define TOLERANCE_PASSES int ds_tolerance_passes_base
#include "dumps/tolerance_body.h"

#include "base/cpu.h"

ds_tolerance_passes_fn *ds_tolerance_passes(void)
{
    return ds_tolerance_passes_avx2() && ds_cpu_runs_avx2() ? ds_tolerance_passes_avx2()
                                                            : ds_tolerance_passes_base;
}
