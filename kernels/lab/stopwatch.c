/* stopwatch.c: see stopwatch.h. */
#include "kernels/lab/stopwatch.h"

#include "base/mem.h"
#include "kernels/device_open.h"

#include <stdlib.h>

enum { LEAST_FLUSH = 1 << 20 };

struct ds_stopwatch {
    struct ds_device *dev;
    void *begin, *end;
    void *flush; /* NULL until it is needed */
    size_t flush_words;
};

int ds_stopwatch_new(struct ds_device *dev, struct ds_stopwatch **out, struct ds_error *err)
{
    struct ds_stopwatch *w = *out = ds_calloc(1, sizeof *w, "a stopwatch", err);
    if (!w)
        return -1;
    w->dev = dev;
    if (ds_device_check(dev, dev->event_new(dev, &w->begin), err) == 0 &&
        ds_device_check(dev, dev->event_new(dev, &w->end), err) == 0)
        return 0;
    ds_stopwatch_free(w);
    *out = NULL;
    return -1;
}

void ds_stopwatch_free(struct ds_stopwatch *w)
{
    if (!w)
        return;
    if (w->begin)
        w->dev->event_free(w->dev, w->begin);
    if (w->end)
        w->dev->event_free(w->dev, w->end);
    if (w->flush)
        w->dev->release(w->dev, w->flush);
    free(w);
}

static int flush(struct ds_stopwatch *w, struct ds_error *err)
{
    struct ds_device_info info;
    if (!w->flush) {
        if (ds_device_check(w->dev, w->dev->info(w->dev, &info), err) != 0)
            return -1;
        size_t bytes = 2 * (size_t)info.l2_bytes;
        bytes = bytes > LEAST_FLUSH ? bytes : (size_t)LEAST_FLUSH;
        if (ds_device_check(w->dev,
                            w->dev->alloc(w->dev, bytes, "what flushes the L2 cache", &w->flush),
                            err) != 0)
            return -1;
        w->flush_words = bytes / 4;
    }
    return ds_device_check(w->dev, w->dev->fill(w->dev, w->flush, 0, w->flush_words), err);
}

/* From the one event to the other. */
static int stretch(struct ds_stopwatch *w, long calls, int (*put)(void *arg, struct ds_error *err),
                   void *arg, double *seconds, struct ds_error *err)
{
    double took = 0;
    if (ds_device_check(w->dev, w->dev->event_put(w->dev, w->begin), err) != 0)
        return -1;
    for (long i = 0; i < calls; i++)
        if (put(arg, err) != 0)
            return -1;
    if (ds_device_check(w->dev, w->dev->event_put(w->dev, w->end), err) != 0 ||
        ds_device_check(w->dev, w->dev->elapsed(w->dev, w->begin, w->end, &took), err) != 0)
        return -1;
    *seconds += took;
    return 0;
}

int ds_stopwatch_time(struct ds_stopwatch *w, long calls, int flushed,
                      int (*put)(void *arg, struct ds_error *err), void *arg, double *seconds,
                      struct ds_error *err)
{
    *seconds = 0;
    if (!flushed)
        return stretch(w, calls, put, arg, seconds, err);
    for (long i = 0; i < calls; i++)
        if (flush(w, err) != 0 || stretch(w, 1, put, arg, seconds, err) != 0)
            return -1;
    return 0;
}
