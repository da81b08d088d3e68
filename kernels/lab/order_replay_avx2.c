/* order_replay_avx2.c: the replay for CPUs with FMA. */
#define REPLAY_NAME ds_replay_lanes_avx2
#include "kernels/lab/order_replay_body.h"
