/* tolerance_avx2.c: the inner loop of the tolerance for AVX2. The Makefile gives this file its flags.
 */
#include "dumps/tolerance_block.h"

#ifdef __AVX2__
#define TOLERANCE_PASSES static int passes
#include "dumps/tolerance_body.h"

ds_tolerance_passes_fn *ds_tolerance_passes_avx2(void)
{
    return passes;
}
#else
ds_tolerance_passes_fn *ds_tolerance_passes_avx2(void)
{
    return NULL;
}
#endif
