/* bench_digest.c: see bench_digest.h. */
#include "kernels/lab/bench_digest.h"

#include "kernels/device_open.h"
#include "kernels/lab/stopwatch.h"

#include <string.h>

struct rows {
    struct ds_device *dev;
    struct ds_stopwatch *watch;
    void *from, *to;
    struct ds_device_digest digest;
    size_t half;
    int flushed;
};

static int copy(void *arg, struct ds_error *err)
{
    const struct rows *r = arg;
    return ds_device_check(r->dev, r->dev->copy_within(r->dev, r->to, r->from, r->half), err);
}

static int digest(void *arg, struct ds_error *err)
{
    const struct rows *r = arg;
    return ds_device_check(r->dev, r->dev->digest(r->dev, &r->digest), err);
}

static int time_copy(void *arg, long calls, double *seconds, struct ds_error *err)
{
    const struct rows *r = arg;
    return ds_stopwatch_time(r->watch, calls, r->flushed, copy, arg, seconds, err);
}

static int time_digest(void *arg, long calls, double *seconds, struct ds_error *err)
{
    const struct rows *r = arg;
    return ds_stopwatch_time(r->watch, calls, r->flushed, digest, arg, seconds, err);
}

static int set_up(struct rows *r, size_t bytes, int64_t n, struct ds_error *err)
{
    struct ds_device *d = r->dev;
    void *digests = NULL, *largest = NULL;
    if (ds_device_check(d, d->alloc(d, bytes, "rows to be digested", &r->from), err) != 0 ||
        ds_device_check(d, d->alloc(d, bytes, "rows to be copied to", &r->to), err) != 0 ||
        ds_device_check(d, d->alloc(d, (size_t)n * 8, "digests", &digests), err) != 0)
        return -1;
    r->digest.digests = digests;
    if (ds_device_check(d, d->alloc(d, (size_t)n * 4, "row sizes", &largest), err) != 0)
        return -1;
    r->digest.largest = largest;
    return ds_device_check(d, d->fill(d, r->from, 0x3f99999a, bytes / 4), err) != 0
               ? -1
               : ds_stopwatch_new(d, &r->watch, err);
}

int ds_lab_bench_digest(struct ds_device *dev, int64_t n, int64_t row_bytes, int flushed,
                        double seconds, struct ds_timing time[2], double *noise,
                        struct ds_error *err)
{
    const struct ds_timing_plan plan = {.clock = CLOCK_MONOTONIC,
                                        .seconds = seconds,
                                        .min_rounds = 5,
                                        .sample = 2e-4,
                                        .longest_call = 1.0};
    const size_t bytes = (size_t)(n * row_bytes);
    struct rows r = {.dev = dev, .half = bytes / 2, .flushed = flushed};
    int rc = set_up(&r, bytes, n, err);
    r.digest.n = n;
    r.digest.row_bytes = r.digest.stride = row_bytes;
    r.digest.x = r.from;
    r.digest.element = DS_ELEMENT_F32;
    const struct ds_contender both[2] = {{.arg = &r, .timed = time_copy},
                                         {.arg = &r, .timed = time_digest}};
    if (rc == 0)
        rc = ds_time_side_by_side(both, 2, &plan, time, noise, NULL, err);
    void *owned[] = {r.from, r.to, r.digest.digests, r.digest.largest};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        if (owned[i])
            dev->release(dev, owned[i]);
    ds_stopwatch_free(r.watch);
    return rc;
}
