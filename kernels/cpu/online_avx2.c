/* online_avx2.c: ds_online_fn for AVX2, without FMA; order and rounding in online.h. */
#define ONLINE_NAME ds_online_avx2
#define TILES_NAME  ds_tiles_avx2
#include "kernels/cpu/online_body.h"
