/* pinned_scalar.c: the pinned kernels in plain C with libm's fmaf, for any CPU; the definition the
 * others must equal. */
#include "kernels/cpu/v16_scalar.h"

#include "kernels/cpu/pinned_body.h"

const struct ds_pinned_code ds_pinned_scalar = DS_PINNED_TABLE;
