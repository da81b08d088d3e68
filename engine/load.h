/* load.h: busy neighbours: processes that use processors and caches while trials run, so that a race
 * between a kernel's threads comes out more ways. They compute nothing that anyone reads. */
#ifndef DS_LOAD_H
#define DS_LOAD_H

#include "base/error.h"

#include <sys/types.h>

enum { DS_MOST_LOAD = 1024 };

struct ds_load {
    pid_t *pid;
    int n;
};

/* Forks n processes that are busy until ds_load_stop. They also end when the caller does, however it
 * ends. The caller must have no other thread. On failure none is left. */
int ds_load_start(struct ds_load *l, int n, struct ds_error *err);
/* Ends them and waits for them. May be called for one that was never started (all zero). */
void ds_load_stop(struct ds_load *l);

#endif
