/* stopwatch.h: how long a device takes for what is put in its queue, by the device's own events. Must not know
 * what that is. */
#ifndef DS_LAB_STOPWATCH_H
#define DS_LAB_STOPWATCH_H

#include "base/error.h"
#include "kernels/device.h"

struct ds_stopwatch;
int ds_stopwatch_new(struct ds_device *dev, struct ds_stopwatch **out, struct ds_error *err);
void ds_stopwatch_free(struct ds_stopwatch *w);

/* Seconds of `calls` calls of put(arg), which queues and waits for nothing. flushed: before each of them memory
 * is written over that is twice as large as the device's L2 cache, and that is not counted; else they follow one
 * another, with what the last one left in the cache. */
int ds_stopwatch_time(struct ds_stopwatch *w, long calls, int flushed,
                      int (*put)(void *arg, struct ds_error *err), void *arg, double *seconds,
                      struct ds_error *err);

#endif
