/* pinned_avx2.c: the pinned kernels with AVX2 and FMA. Reached only after a CPU check (isa.c). */
#include "kernels/cpu/v16_avx2.h"

#include "kernels/cpu/pinned_body.h"

const struct ds_pinned_code ds_pinned_avx2 = DS_PINNED_TABLE;
