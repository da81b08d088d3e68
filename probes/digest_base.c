/* digest_base.c: digest code for what every CPU of this architecture has (SSE2 on x86-64). Knows no
 * CPU check. */
#define ISA_BYTES 16
#ifdef __SSE2__
#define ISA_NAME   "sse2"
#define XXH_VECTOR XXH_SSE2
#else
#define ISA_NAME "generic" /* xxhash.h chooses (NEON, VSX, scalar) */
#endif
#include "probes/digest_isa.h"

const struct ds_digest_isa *ds_digest_isa_base(void)
{
    return &isa_table;
}
