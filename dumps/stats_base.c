/* stats_base.c: the inner loop of the statistics for every CPU, and the choice of its code. */
#define STATS_ADD void ds_stats_add_base
#include "dumps/stats_body.h"

#include "base/cpu.h"

ds_stats_add_fn *ds_stats_add(void)
{
    return ds_stats_add_avx2() && ds_cpu_runs_avx2() ? ds_stats_add_avx2() : ds_stats_add_base;
}
