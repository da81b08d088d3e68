/* device_cpu.c: the CPU as a struct ds_device: its memory is the host's, and what is asked for is done when
 * the function returns. */
#define _GNU_SOURCE
#include "kernels/device_cpu.h"

#include "base/dtype.h"
#include "base/error.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

static int fails(struct ds_device *d, const struct ds_error *err)
{
    snprintf(d->why, sizeof d->why, "%.500s", err->msg);
    return -1;
}

static int cpu_alloc(struct ds_device *d, size_t bytes, const char *what, void **out)
{
    struct ds_error err;
    *out = ds_alloc_aligned(bytes, 1, what, &err);
    return *out ? 0 : fails(d, &err);
}

static void cpu_release(struct ds_device *d, void *p)
{
    (void)d;
    free(p);
}

/* A copy of memory to itself is none: what is the host's need not be copied to be the device's. */
static int cpu_copy_to(struct ds_device *d, void *dst, const void *host, size_t bytes)
{
    (void)d;
    if (dst != host && bytes)
        memcpy(dst, host, bytes);
    return 0;
}

static int cpu_fill(struct ds_device *d, void *dst, uint32_t word, size_t words)
{
    (void)d;
    for (size_t i = 0; i < words; i++)
        memcpy((char *)dst + i * sizeof word, &word, sizeof word);
    return 0;
}

static int cpu_rows(struct ds_device *d, const struct ds_device_rows *r)
{
    (void)d;
    for (int64_t i = 0; i < r->n; i++) {
        const int64_t from = r->x_at ? r->x_at[i] : i, to = r->y_at ? r->y_at[i] : i;
        memcpy((char *)r->y + to * r->y_stride, (const char *)r->x + from * r->x_stride,
               (size_t)r->row_bytes);
    }
    return 0;
}

static int dtype_of(int element)
{
    return element == DS_ELEMENT_BF16 ? DS_BF16 : element == DS_ELEMENT_F16 ? DS_F16 : -1;
}

static int cpu_convert(struct ds_device *d, int element, int how, void *half, float *y, int64_t n)
{
    const int dtype = dtype_of(element);
    uint16_t *h = half;
    if (dtype < 0) {
        snprintf(d->why, sizeof d->why, "element type %d is not one of 16 bits", element);
        return -1;
    }
    if (how == DS_CONVERT_ROUND)
        ds_round_row(dtype, h, y, (size_t)n);
    else if (how == DS_CONVERT_WIDEN)
        ds_widen_row(dtype, y, h, (size_t)n);
    for (int64_t i = 0; how == DS_CONVERT_FOLLOW && i < n; i++) {
        uint16_t would;
        ds_round_row(dtype, &would, &y[i], 1);
        if (would != h[i])
            ds_widen_row(dtype, &y[i], &h[i], 1);
    }
    return 0;
}

uint32_t ds_device_largest(int element, const void *row, int64_t bytes)
{
    const char *p = row;
    uint32_t most = 0;
    for (int64_t i = 0; element == DS_ELEMENT_F32 && i + 4 <= bytes; i += 4) {
        uint32_t v;
        memcpy(&v, p + i, sizeof v);
        v &= 0x7fffffffu;
        most = v > most ? v : most;
    }
    for (int64_t i = 0; dtype_of(element) >= 0 && i + 2 <= bytes; i += 2) {
        uint16_t v;
        memcpy(&v, p + i, sizeof v);
        v &= 0x7fff;
        most = v > most ? v : most;
    }
    return most;
}

static int cpu_digest(struct ds_device *d, const struct ds_device_digest *g)
{
    (void)d;
    for (int64_t i = 0; i < g->n; i++) {
        const char *row = (const char *)g->x + i * g->stride;
        g->digests[i] = XXH3_64bits(row, (size_t)g->row_bytes);
        if (g->largest)
            g->largest[i] = ds_device_largest(g->element, row, g->row_bytes);
    }
    return 0;
}

static void cpu_at(struct ds_device *d, const char *site)
{
    (void)d, (void)site;
}

static int cpu_wait(struct ds_device *d)
{
    (void)d;
    return 0;
}

static int cpu_event_new(struct ds_device *d, void **event)
{
    struct ds_error err;
    *event = ds_calloc(1, sizeof(double), "an event", &err);
    return *event ? 0 : fails(d, &err);
}

static void cpu_event_free(struct ds_device *d, void *event)
{
    (void)d;
    free(event);
}

static int cpu_event_put(struct ds_device *d, void *event)
{
    struct timespec t;
    (void)d;
    clock_gettime(CLOCK_MONOTONIC, &t);
    *(double *)event = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    return 0;
}

static int cpu_elapsed(struct ds_device *d, void *begin, void *end, double *seconds)
{
    (void)d;
    *seconds = *(double *)end - *(double *)begin;
    return 0;
}

static int cpu_info(struct ds_device *d, struct ds_device_info *out)
{
    (void)d;
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "this machine");
    out->free_bytes = ds_memory_available();
    return 0;
}

static void cpu_close(struct ds_device *d)
{
    free(d);
}

struct ds_device *ds_cpu_device_new(struct ds_error *err)
{
    struct ds_device *d = ds_calloc(1, sizeof *d, "a device", err);
    if (d)
        *d = (struct ds_device){.abi = DS_DEVICE_ABI,
                                .kind = DS_DEVICE_CPU,
                                .memory = DS_MEMORY_HOST,
                                .name = "cpu",
                                .alloc = cpu_alloc,
                                .release = cpu_release,
                                .copy_to = cpu_copy_to,
                                .copy_from = cpu_copy_to,
                                .copy_within = cpu_copy_to,
                                .fill = cpu_fill,
                                .rows = cpu_rows,
                                .convert = cpu_convert,
                                .digest = cpu_digest,
                                .guard = NULL,
                                .at = cpu_at,
                                .wait = cpu_wait,
                                .event_new = cpu_event_new,
                                .event_free = cpu_event_free,
                                .event_put = cpu_event_put,
                                .elapsed = cpu_elapsed,
                                .graph_begin = NULL,
                                .graph_end = NULL,
                                .graph_launch = NULL,
                                .graph_free = NULL,
                                .info = cpu_info,
                                .close = cpu_close};
    return d;
}
