/* device.cc: the device sim as a struct ds_device: memory of its own (memory.h), copies and fills by this
 * CPU, rows, formats and digests by the kernels of kernels/cuda/memory.cu and digest.cu. All
 * is done when a function returns; the queue and its events are there in name. */
#include "kernels/cuda/memory.h"
#include "kernels/cuda/probe_kernels.h"
#include "kernels/device_open.h"
#include "kernels/sim/graph.h"
#include "kernels/sim/memory.h"
#include "kernels/sim/mma.h"
#include "kernels/sim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

namespace
{

struct sim {
    struct ds_device d;
    char at[192];
    struct ds_exec exec;
};

__attribute__((format(printf, 2, 3))) int fails(struct ds_device *d, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(d->why, sizeof d->why, fmt, ap);
    va_end(ap);
    return -1;
}

/* A fault of a kernel of this file's: with the site it was for. */
int launched(struct ds_device *d, int rc, const char *why)
{
    const struct sim *s = static_cast<const struct sim *>(d->self);
    return rc == 0 ? 0 : fails(d, "%s%s%s", s->at, *s->at ? ": " : "", why);
}

/* What a device that records cannot do. */
int not_now(struct ds_device *d, const char *what)
{
    const struct sim *s = static_cast<const struct sim *>(d->self);
    if (!ds_sim_recording())
        return 0;
    return fails(d, "%s%s%s in a graph that is being captured", s->at, *s->at ? ": " : "", what);
}

int check(struct ds_device *d, const char *what, const void *p, size_t bytes)
{
    if (bytes == 0 || ds_sim_memory_has(p, bytes))
        return 0;
    return fails(d, "%s: %zu bytes at %p are not the device's memory", what, bytes, p);
}

int sim_alloc(struct ds_device *d, size_t bytes, const char *what, void **out)
{
    *out = ds_sim_memory_new(bytes, what);
    if (*out)
        return 0;
    return fails(d, "out of memory on sim: %s needs %zu bytes, %zu of %zu are free", what, bytes,
                 ds_sim_memory_free(), ds_sim_memory_size());
}

void sim_release(struct ds_device *, void *p)
{
    (void)ds_sim_memory_release(p);
}

int sim_copy_to(struct ds_device *d, void *dst, const void *host, size_t bytes)
{
    if (check(d, "copy to the device", dst, bytes) != 0 ||
        not_now(d, "a copy from the host's memory") != 0)
        return -1;
    ds_sim_memory_open_at(dst);
    memcpy(dst, host, bytes);
    ds_sim_memory_close_at(dst);
    return 0;
}

int sim_copy_from(struct ds_device *d, void *host, const void *src, size_t bytes)
{
    if (check(d, "copy from the device", src, bytes) != 0 ||
        not_now(d, "a copy to the host's memory") != 0)
        return -1;
    ds_sim_memory_open_at(src);
    memcpy(host, src, bytes);
    ds_sim_memory_close_at(src);
    return 0;
}

int sim_copy_within(struct ds_device *d, void *dst, const void *src, size_t bytes)
{
    if (check(d, "copy on the device", dst, bytes) != 0 ||
        check(d, "copy on the device", src, bytes) != 0)
        return -1;
    if (ds_sim_recording()) {
        ds_sim_record_copy(dst, src, bytes);
        return 0;
    }
    ds_sim_memory_open_at(dst);
    ds_sim_memory_open_at(src);
    memcpy(dst, src, bytes);
    ds_sim_memory_close_at(src);
    ds_sim_memory_close_at(dst);
    return 0;
}

int sim_fill(struct ds_device *d, void *dst, uint32_t word, size_t words)
{
    if (check(d, "fill", dst, words * sizeof word) != 0)
        return -1;
    if (ds_sim_recording()) {
        ds_sim_record_fill(dst, word, words);
        return 0;
    }
    ds_sim_memory_open_at(dst);
    for (size_t i = 0; i < words; i++)
        memcpy(static_cast<char *>(dst) + i * sizeof word, &word, sizeof word);
    ds_sim_memory_close_at(dst);
    return 0;
}

int sim_rows(struct ds_device *d, const struct ds_device_rows *r)
{
    char why[512] = "";
    const struct sim *s = static_cast<const struct sim *>(d->self);
    return launched(d, ds_sim_move_rows(r, &s->exec, why, sizeof why), why);
}

int sim_convert(struct ds_device *d, int element, int how, void *half, float *y, int64_t n)
{
    char why[512] = "";
    const struct sim *s = static_cast<const struct sim *>(d->self);
    return launched(d, ds_sim_convert(element, how, half, y, n, &s->exec, why, sizeof why), why);
}

int sim_digest(struct ds_device *d, const struct ds_device_digest *g)
{
    if (g->n < 1)
        return 0;
    const size_t n = (size_t)g->n, span = (n - 1) * (size_t)g->stride + (size_t)g->row_bytes;
    if (check(d, "digest: rows", g->x, span) != 0 ||
        check(d, "digest: digests", g->digests, n * sizeof *g->digests) != 0 ||
        (g->largest && check(d, "digest: magnitudes", g->largest, n * sizeof *g->largest) != 0))
        return -1;
    char why[512] = "";
    const struct sim *s = static_cast<const struct sim *>(d->self);
    return launched(d, ds_sim_digest_rows(g, &s->exec, why, sizeof why), why);
}

int sim_guard(struct ds_device *d, void *p, size_t bytes, int access)
{
    return ds_sim_memory_guard(p, bytes, access) == 0
               ? 0
               : fails(d, "guard: %zu bytes at %p are not whole pages of the device's memory",
                       bytes, p);
}

void sim_at(struct ds_device *d, const char *site)
{
    struct sim *s = static_cast<struct sim *>(d->self);
    snprintf(s->at, sizeof s->at, "%s", site);
}

int sim_failed(struct ds_device *)
{
    return ds_sim_failed();
}

int sim_wait(struct ds_device *d)
{
    return not_now(d, "waiting");
}

double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int sim_event_new(struct ds_device *d, void **event)
{
    *event = calloc(1, sizeof(double));
    return *event ? 0 : fails(d, "out of memory for an event");
}

void sim_event_free(struct ds_device *, void *event)
{
    free(event);
}

int sim_event_put(struct ds_device *d, void *event)
{
    if (not_now(d, "an event") != 0)
        return -1;
    *static_cast<double *>(event) = now();
    return 0;
}

int sim_elapsed(struct ds_device *, void *begin, void *end, double *seconds)
{
    *seconds = *static_cast<double *>(end) - *static_cast<double *>(begin);
    return 0;
}

int sim_graph_begin(struct ds_device *d)
{
    return ds_sim_record_begin() == 0 ? 0 : fails(d, "a graph is being captured already");
}

int sim_graph_end(struct ds_device *d, void **graph)
{
    *graph = ds_sim_record_end();
    return *graph ? 0 : fails(d, "out of memory for a graph");
}

int sim_graph_launch(struct ds_device *d, void *graph)
{
    char why[512] = "";
    if (not_now(d, "another graph") != 0)
        return -1;
    return launched(d, ds_sim_graph_run(static_cast<struct ds_sim_graph *>(graph), why, sizeof why),
                    why);
}

void sim_graph_free(struct ds_device *, void *graph)
{
    ds_sim_graph_free(static_cast<struct ds_sim_graph *>(graph));
}

int sim_info(struct ds_device *, struct ds_device_info *out)
{
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "simulated on the CPU");
    snprintf(out->library, sizeof out->library, "tensor cores as of architecture %d",
             ds_sim_mma_chosen()->architecture);
    out->multiprocessors = DS_SIM_MULTIPROCESSORS;
    out->memory_bytes = ds_sim_memory_size();
    out->free_bytes = ds_sim_memory_free();
    out->l2_bytes = 1 << 18; /* so that what flushes it has something to do */
    return 0;
}

void sim_close(struct ds_device *d)
{
    free(d->self);
}

} /* namespace */

struct ds_device *ds_sim_device_new(int architecture)
{
    struct sim *s = static_cast<struct sim *>(calloc(1, sizeof *s));
    if (!s)
        return nullptr;
    (void)ds_sim_mma_choose(architecture);
    s->d = {.abi = DS_DEVICE_ABI,
            .kind = DS_DEVICE_SIM,
            .number = architecture,
            .memory = DS_MEMORY_DEVICE,
            .name = "sim",
            .stream = ds_sim_stream(),
            .self = s,
            .why = "",
            .alloc = sim_alloc,
            .release = sim_release,
            .copy_to = sim_copy_to,
            .copy_from = sim_copy_from,
            .copy_within = sim_copy_within,
            .fill = sim_fill,
            .rows = sim_rows,
            .convert = sim_convert,
            .digest = sim_digest,
            .guard = sim_guard,
            .at = sim_at,
            .failed = sim_failed,
            .wait = sim_wait,
            .event_new = sim_event_new,
            .event_free = sim_event_free,
            .event_put = sim_event_put,
            .elapsed = sim_elapsed,
            .graph_begin = sim_graph_begin,
            .graph_end = sim_graph_end,
            .graph_launch = sim_graph_launch,
            .graph_free = sim_graph_free,
            .info = sim_info,
            .close = sim_close};
    s->exec.threads = 1;
    s->exec.memory = DS_MEMORY_DEVICE;
    s->exec.stream = ds_sim_stream();
    return &s->d;
}
