/* hash.c: see hash.h. Owns the choice of code. */
#include "base/hash.h"

#include "base/cpu.h"

#include <stdatomic.h>

ds_hash_fn *ds_hash_at(size_t i, const char **name)
{
    const struct {
        ds_hash_fn *fn;
        const char *name;
    } list[] = {{ds_hash_base(), "base"},
                {ds_cpu_runs_avx2() ? ds_hash_avx2() : NULL, "avx2"},
                {ds_cpu_runs_avx512() ? ds_hash_avx512() : NULL, "avx512"}};
    for (size_t k = 0, n = 0; k < sizeof list / sizeof *list; k++) {
        if (!list[k].fn || n++ != i)
            continue;
        if (name)
            *name = list[k].name;
        return list[k].fn;
    }
    return NULL;
}

ds_hash_fn *ds_hash_best(void)
{
    static _Atomic(ds_hash_fn *) chosen; /* two threads may choose at once, both the same */
    ds_hash_fn *fn = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (fn)
        return fn;
    for (size_t i = 0; ds_hash_at(i, NULL); i++)
        fn = ds_hash_at(i, NULL);
    atomic_store_explicit(&chosen, fn, memory_order_relaxed);
    return fn;
}

uint64_t ds_hash(const void *bytes, size_t n)
{
    return ds_hash_best()(bytes, n);
}
