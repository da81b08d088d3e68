/* pinned_avx512.c: the pinned kernels with AVX-512 F, VL, BW, DQ. Reached only after a CPU check
 * (isa.c). */
#include "kernels/cpu/v16_avx512.h"

#include "kernels/cpu/pinned_body.h"

const struct ds_pinned_code ds_pinned_avx512 = DS_PINNED_TABLE;
