/* scan.c: the choice of the code that looks through rows. */
#include "probes/scan.h"

#include "base/cpu.h"

#include <stdatomic.h>

const struct ds_scan_isa *ds_scan_isa_at(size_t i)
{
    const struct ds_scan_isa *list[3];
    size_t n = 0;
    list[n++] = ds_scan_isa_base();
    if (ds_scan_isa_avx2() && ds_cpu_runs_avx2())
        list[n++] = ds_scan_isa_avx2();
    if (ds_scan_isa_avx512() && ds_cpu_runs_avx512())
        list[n++] = ds_scan_isa_avx512();
    return i < n ? list[i] : NULL;
}

const struct ds_scan_isa *ds_scan_isa(void)
{
    static _Atomic(const struct ds_scan_isa *)
        chosen; /* two threads may choose at once, both the same */
    const struct ds_scan_isa *isa = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (isa)
        return isa;
    for (size_t i = 0; ds_scan_isa_at(i); i++)
        isa = ds_scan_isa_at(i);
    atomic_store_explicit(&chosen, isa, memory_order_relaxed);
    return isa;
}
