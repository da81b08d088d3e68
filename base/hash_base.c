/* hash_base.c: the hash for what every CPU of this architecture has (SSE2 on x86-64). Knows no CPU check. */
#ifdef __SSE2__
#define XXH_VECTOR XXH_SSE2
#endif
#include "base/hash_isa.h"

ds_hash_fn *ds_hash_base(void)
{
    return hash;
}
