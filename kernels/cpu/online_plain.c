/* online_plain.c: ds_online_fn for any CPU; order and rounding in online.h. */
#define ONLINE_NAME ds_online_plain
#define TILES_NAME  ds_tiles_plain
#include "kernels/cpu/online_body.h"
