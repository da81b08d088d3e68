/* stall.h: whether a worker has been at one place for so long that the user should hear of it: a kernel that hangs would
 * else look like a long run. A pure function of what it is shown; the caller resets it (all zero) for each trial. */
#ifndef DS_STALL_H
#define DS_STALL_H

#include "engine/forward.h"

enum { DS_STALL_SECONDS = 30 };

struct ds_stall {
    struct ds_place at;
    double since; /* seconds, on the caller's clock */
    int seen, told;
};

/* 1 once, when a kernel has been prepared or launched and the place has not changed for DS_STALL_SECONDS. */
int ds_stalled(struct ds_stall *s, const struct ds_place *place, double now);

#endif
