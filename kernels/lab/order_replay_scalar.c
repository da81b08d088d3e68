/* order_replay_scalar.c: the replay for any CPU. */
#define REPLAY_NAME ds_replay_lanes_scalar
#include "kernels/lab/order_replay_body.h"
