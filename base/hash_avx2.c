/* hash_avx2.c: the hash for AVX2. The Makefile gives this file its flags; hash.c checks the CPU and the
 * system before it calls it. */
#include "base/hash.h"

#ifdef __AVX2__
#define XXH_VECTOR XXH_AVX2
#include "base/hash_isa.h"

ds_hash_fn *ds_hash_avx2(void)
{
    return hash;
}
#else
ds_hash_fn *ds_hash_avx2(void)
{
    return NULL; /* another architecture */
}
#endif
