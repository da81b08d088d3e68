/* digest.c: ds_digest and the choice of its code. Owns the CPU check; knows no sites and no trials.
 */
#include "probes/digest.h"

#include "probes/driftscope_probe.h"

#include <stdatomic.h>

/* __builtin_cpu_supports also asks whether the system saves the wide registers (XGETBV). The
 * features are those that the Makefile's flags let the compiler use in the file. */
static int have_avx2(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return 0;
#endif
}

static int have_avx512(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("fma");
#else
    return 0;
#endif
}

const struct ds_digest_isa *ds_digest_isa_at(size_t i)
{
    const struct ds_digest_isa *list[3];
    size_t n = 0;
    list[n++] = ds_digest_isa_base();
    if (ds_digest_isa_avx2() && have_avx2())
        list[n++] = ds_digest_isa_avx2();
    if (ds_digest_isa_avx512() && have_avx512())
        list[n++] = ds_digest_isa_avx512();
    return i < n ? list[i] : NULL;
}

const struct ds_digest_isa *ds_digest_isa(void)
{
    static _Atomic(const struct ds_digest_isa *)
        chosen; /* two threads may choose at once, both the same */
    const struct ds_digest_isa *isa = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (isa)
        return isa;
    for (size_t i = 0; ds_digest_isa_at(i); i++)
        isa = ds_digest_isa_at(i);
    atomic_store_explicit(&chosen, isa, memory_order_relaxed);
    return isa;
}

uint64_t ds_digest(const void *bytes, size_t n)
{
    return ds_digest_isa()->hash(bytes, n);
}

uint64_t ds_digest_of(const uint64_t *digests, size_t n)
{
    return ds_digest_isa()->hash(digests,
                                 n * sizeof *digests); /* little-endian: asserted in digest_isa.h */
}
