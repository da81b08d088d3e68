/* child.h: waiting for child processes. What a child ran may have left processes of its own behind,
 * which hold its descriptors: that it has ended is asked of the system, never told by a pipe alone. */
#ifndef DS_CHILD_H
#define DS_CHILD_H

#include <sys/types.h>

/* 1 when it has ended; it still is to be waited for. */
int ds_child_ended(pid_t pid);

/* The same, waiting for it so long. */
int ds_child_ends_within(pid_t pid, double seconds);

/* Waits for its end, whatever signals come. 0, or -1 when there is no such child. */
int ds_child_wait(pid_t pid, int *status);

#endif
