/* fp_control.c: the floating-point control word of a thread: reading it, and putting it back. Owns
 * the bits; must not know why anyone would change them (a library built with fast-math does, when
 * it is loaded). */
#include "engine/forward_private.h"

#if defined(__x86_64__)
enum { STATUS = 0x3f, FLUSH = 0x8040, ROUNDING = 0x6000 }; /* MXCSR */
static uint32_t get(void)
{
    return __builtin_ia32_stmxcsr();
}
static void set(uint32_t v)
{
    __builtin_ia32_ldmxcsr(v);
}
#elif defined(__aarch64__)
enum { STATUS = 0, FLUSH = 1 << 24, ROUNDING = 3 << 22 }; /* FPCR */
static uint32_t get(void)
{
    return (uint32_t)__builtin_aarch64_get_fpcr();
}
static void set(uint32_t v)
{
    __builtin_aarch64_set_fpcr(v);
}
#else
#error "the floating-point control word of this machine is not known"
#endif

uint32_t ds_fp_control(void)
{
    return get() & ~(uint32_t)STATUS;
}

int ds_fp_restore(uint32_t want)
{
    uint32_t now = get();
    if ((now & ~(uint32_t)STATUS) == want)
        return 0;
    set(want | (now & (uint32_t)STATUS));
    return 1;
}

int ds_fp_check_entry(struct ds_error *err)
{
    uint32_t now = ds_fp_control();
    if (!(now & (FLUSH | ROUNDING)))
        return 0;
    ds_fail(err, "the calling thread's floating-point control word is %#x: %s", (unsigned)now,
            now & FLUSH ? "subnormals are flushed to zero" : "rounding is not to nearest even");
    return ds_hint(err, "a library built with -ffast-math sets this for the thread that loads it");
}
