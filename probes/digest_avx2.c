/* digest_avx2.c: digest code for AVX2. The Makefile gives this file its flags; digest.c checks the
 * CPU and the system before it calls anything in the table. */
#include "probes/digest.h"

#ifdef __AVX2__
#define ISA_NAME   "avx2"
#define ISA_BYTES  32
#define XXH_VECTOR XXH_AVX2
#include "probes/digest_isa.h"

const struct ds_digest_isa *ds_digest_isa_avx2(void)
{
    return &isa_table;
}
#else
const struct ds_digest_isa *ds_digest_isa_avx2(void)
{
    return NULL; /* another architecture */
}
#endif
