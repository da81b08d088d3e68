/* scan_avx2.c: scans for AVX2. The Makefile gives this file its flags; scan.c checks the
 * CPU and the system before it calls anything in the table. */
#include "probes/scan.h"

#ifdef __AVX2__
#define ISA_NAME  "avx2"
#define ISA_BYTES 32
#include "probes/scan_isa.h"

const struct ds_scan_isa *ds_scan_isa_avx2(void)
{
    return &isa_table;
}
#else
const struct ds_scan_isa *ds_scan_isa_avx2(void)
{
    return NULL; /* another architecture */
}
#endif
