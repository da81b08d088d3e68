/* tolerance_base.c: the inner loop of the tolerance for every CPU, and the choice of its code. */
#define TOLERANCE_PASSES int ds_tolerance_passes_base
#include "dumps/tolerance_body.h"

ds_tolerance_passes_fn *ds_tolerance_passes(void)
{
#if defined(__x86_64__) || defined(__i386__)
    /* also asks whether the system saves the wide registers; the features are those of the
     * Makefile's flags for the file */
    __builtin_cpu_init();
    if (ds_tolerance_passes_avx2() && __builtin_cpu_supports("avx2") &&
        __builtin_cpu_supports("fma"))
        return ds_tolerance_passes_avx2();
#endif
    return ds_tolerance_passes_base;
}
