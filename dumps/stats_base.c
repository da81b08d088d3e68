/* stats_base.c: the inner loop of the statistics for every CPU, and the choice of its code. */
#define STATS_ADD void ds_stats_add_base
#include "dumps/stats_body.h"

ds_stats_add_fn *ds_stats_add(void)
{
#if defined(__x86_64__) || defined(__i386__)
    /* also asks whether the system saves the wide registers; the features are those of the
     * Makefile's flags for the file */
    __builtin_cpu_init();
    if (ds_stats_add_avx2() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return ds_stats_add_avx2();
#endif
    return ds_stats_add_base;
}
