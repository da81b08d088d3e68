/* stats_avx2.c: the inner loop of the statistics for AVX2. The Makefile gives this file its flags.
 */
#include "dumps/stats_block.h"

#ifdef __AVX2__
#define STATS_ADD static void add
#include "dumps/stats_body.h"

ds_stats_add_fn *ds_stats_add_avx2(void)
{
    return add;
}
#else
ds_stats_add_fn *ds_stats_add_avx2(void)
{
    return NULL;
}
#endif
