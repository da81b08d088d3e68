/* scan_base.c: scans for what every CPU of this architecture has (SSE2 on x86-64). Knows no CPU check. */
#define ISA_NAME  "base"
#define ISA_BYTES 16
#include "probes/scan_isa.h"

const struct ds_scan_isa *ds_scan_isa_base(void)
{
    return &isa_table;
}
