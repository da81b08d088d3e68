/* hash_avx512.c: the hash for AVX-512. The Makefile gives this file its flags; hash.c checks the CPU and the
 * system before it calls it. */
#include "base/hash.h"

#ifdef __AVX512F__
#define XXH_VECTOR XXH_AVX512
#include "base/hash_isa.h"

ds_hash_fn *ds_hash_avx512(void)
{
    return hash;
}
#else
ds_hash_fn *ds_hash_avx512(void)
{
    return NULL; /* another architecture */
}
#endif
