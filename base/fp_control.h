/* fp_control.h: the floating-point control word of a thread (MXCSR): reading it, naming what it
 * does, putting it back. */
#ifndef DS_FP_CONTROL_H
#define DS_FP_CONTROL_H

#include "base/error.h"

#include <stdint.h>

/* The control bits (rounding, flush to zero, exception masks) of this thread's floating-point unit,
 * without the sticky exception flags. */
uint32_t ds_fp_control(void);

/* Sets this thread's control bits to `want`; 1 if they were others. */
int ds_fp_restore(uint32_t want);

/* What a control word does to arithmetic, "" if nothing: "subnormals are flushed to zero". */
const char *ds_fp_effect(uint32_t control);

/* An error unless rounding is to nearest even and subnormals are kept. */
int ds_fp_check_entry(struct ds_error *err);

#endif
