/* cpu.h: which code compiled for a wide instruction set this CPU and system can run. The features are those
 * that the Makefile's flags let the compiler use in files named *_avx2.c and *_avx512.c. */
#ifndef DS_CPU_H
#define DS_CPU_H

/* __builtin_cpu_supports also asks whether the system saves the wide registers (XGETBV). */
static inline int ds_cpu_runs_avx2(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return 0;
#endif
}

static inline int ds_cpu_runs_avx512(void)
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

#endif
