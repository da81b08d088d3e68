/* isa.c: which code of the pinned kernels this CPU runs: AVX-512, AVX2 or plain C. Chosen once by
 * CPUID (which also asks the operating system for the register state); equal bits in all, so only
 * speed depends on it. */
#include "base/names.h"
#include "kernels/cpu/pinned.h"
#include "kernels/registry.h"

#include <stdatomic.h>
#include <string.h>

static int runs_scalar(void)
{
    return 1;
}

static int runs_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
}

static int runs_avx512(void)
{
    return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
}

/* Best first. */
static const struct {
    const struct ds_pinned_code *code;
    int (*runs)(void);
} levels[] = {
    {&ds_pinned_avx512, runs_avx512},
    {&ds_pinned_avx2, runs_avx2},
    {&ds_pinned_scalar, runs_scalar},
};
enum { N_LEVELS = sizeof levels / sizeof levels[0] };

static _Atomic(const struct ds_pinned_code *) current;

static const struct ds_pinned_code *best(void)
{
    int i = 0;
    __builtin_cpu_init();
    while (!levels[i].runs())
        i++;
    return levels[i].code;
}

const struct ds_pinned_code *ds_pinned_code(void)
{
    const struct ds_pinned_code *code = atomic_load_explicit(&current, memory_order_acquire);
    if (!code) {
        code = best();
        atomic_store_explicit(&current, code, memory_order_release);
    }
    return code;
}

const char *ds_isa_name(void)
{
    return ds_pinned_code()->name;
}

int ds_isa_force(const char *name, struct ds_error *err)
{
    const char *names[N_LEVELS + 1];
    if (strcmp(name, "auto") == 0) {
        atomic_store(&current, best());
        return 0;
    }
    __builtin_cpu_init();
    for (int i = 0; i < N_LEVELS; i++) {
        names[i] = levels[i].code->name;
        if (strcmp(name, names[i]) != 0)
            continue;
        if (!levels[i].runs())
            return ds_fail(err, "instruction set %s: this CPU does not have it", name);
        atomic_store(&current, levels[i].code);
        return 0;
    }
    names[N_LEVELS] = "auto";
    ds_fail(err, "unknown instruction set '%.40s'", name);
    int near = ds_nearest(name, names, N_LEVELS + 1);
    return near >= 0 ? ds_hint(err, "did you mean %s?", names[near])
                     : ds_hint(err, "known: avx512 avx2 scalar auto");
}
