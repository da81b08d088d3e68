/* fp_control.c: see fp_control.h. Owns the bits; must not know why anyone would change them (a
 * library built with fast-math does, when it is loaded). The one place that names them: a port to
 * another processor begins here. */
#include "base/fp_control.h"

#if !defined(__x86_64__)
#error "the floating-point control word of this machine is not known"
#endif
#include <xmmintrin.h>

enum { STATUS = 0x3f, ZERO_INPUTS = 0x0040, ZERO_RESULTS = 0x8000, ROUNDING = 0x6000 };

uint32_t ds_fp_control(void)
{
    return _mm_getcsr() & ~(uint32_t)STATUS;
}

int ds_fp_restore(uint32_t want)
{
    uint32_t now = _mm_getcsr();
    if ((now & ~(uint32_t)STATUS) == want)
        return 0;
    _mm_setcsr(want | (now & (uint32_t)STATUS));
    return 1;
}

const char *ds_fp_effect(uint32_t control)
{
    if (control & (ZERO_INPUTS | ZERO_RESULTS))
        return "subnormals are flushed to zero";
    return control & ROUNDING ? "rounding is not to nearest even" : "";
}

int ds_fp_check_entry(struct ds_error *err)
{
    uint32_t now = ds_fp_control();
    if (!*ds_fp_effect(now))
        return 0;
    ds_fail(err, "the calling thread's floating-point control word is %#x: %s", (unsigned)now,
            ds_fp_effect(now));
    return ds_hint(err, "a library built with -ffast-math sets this for the thread that loads it");
}
