/* digest_avx512.c: digest code for AVX-512. The Makefile gives this file its flags; digest.c checks
 * the CPU and the system before it calls anything in the table. */
#include "probes/digest.h"

#ifdef __AVX512F__
#define ISA_NAME   "avx512"
#define ISA_BYTES  64
#define XXH_VECTOR XXH_AVX512
#include "probes/digest_isa.h"

const struct ds_digest_isa *ds_digest_isa_avx512(void)
{
    return &isa_table;
}
#else
const struct ds_digest_isa *ds_digest_isa_avx512(void)
{
    return NULL; /* another architecture */
}
#endif
