/* scan_avx512.c: scans for AVX-512. The Makefile gives this file its flags; scan.c checks
 * the CPU and the system before it calls anything in the table. */
#include "probes/scan.h"

#ifdef __AVX512F__
#define ISA_NAME  "avx512"
#define ISA_BYTES 64
#include "probes/scan_isa.h"

const struct ds_scan_isa *ds_scan_isa_avx512(void)
{
    return &isa_table;
}
#else
const struct ds_scan_isa *ds_scan_isa_avx512(void)
{
    return NULL; /* another architecture */
}
#endif
