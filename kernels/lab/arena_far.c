/* arena_far.c: the arrays of an arena on a device with memory of its own: each has a twin there, as far from a
 * page's end as the array is, with the same fill around it, and with guarded pages before and behind it, and
 * inputs are guarded against writes. A device that cannot guard has numbers there that are looked at
 * afterwards, NaN to who reads them, and inputs are compared. */
#include "kernels/lab/arena.h"

#include "base/mem.h"
#include "kernels/device_open.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, FENCE = 16 * PAGE };
/* Of a fence that is not guarded, next to the pages. */
enum { WATCHED = 1024, WORDS = WATCHED / 4 };
static const uint32_t FENCE_BITS = 0x7fc0fe4cu;

/* Bytes of the host's mapping that a twin has: the array with its surroundings. */
static size_t extent(const struct ds_array *x, const unsigned char **begin)
{
    int64_t before, behind;
    ds_arena_around(x, &before, &behind);
    *begin = (const unsigned char *)x->data - before;
    return (size_t)(before + ds_arena_span(x) * x->element + behind);
}

static size_t to_page(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static int allocate(struct ds_device *d, struct ds_twin_array *t, size_t need, const char *name,
                    struct ds_error *err)
{
    void *p;
    if (t->base && t->room >= need)
        return 0;
    if (t->base)
        d->release(d, t->base);
    memset(t, 0, sizeof *t);
    if (ds_device_check(d, d->alloc(d, need + PAGE, name, &p), err) != 0)
        return -1;
    t->base = p;
    t->room = need;
    return 0;
}

static int guard(struct ds_device *d, void *p, size_t bytes, int access, struct ds_error *err)
{
    return d->guard ? ds_device_check(d, d->guard(d, p, bytes, access), err) : 0;
}

/* Fence, pages with the array, fence. */
static int place(struct ds_device *d, struct ds_array *x, struct ds_error *err)
{
    const unsigned char *begin;
    const size_t bytes = extent(x, &begin), skew = (size_t)((uintptr_t)begin % PAGE),
                 pages = to_page(skew + bytes) ? to_page(skew + bytes) : PAGE;
    struct ds_twin_array *t = &x->twin;
    if (allocate(d, t, pages + 2 * FENCE, x->name, err) != 0)
        return -1;
    unsigned char *first = (unsigned char *)to_page((uintptr_t)t->base);
    t->pages = first + FENCE;
    t->bytes = pages;
    t->from = begin - skew;
    return guard(d, first, t->room / PAGE * PAGE, DS_ACCESS_ALL, err) != 0 ||
                   guard(d, first, FENCE, DS_ACCESS_NONE, err) != 0 ||
                   guard(d, t->pages + pages, FENCE, DS_ACCESS_NONE, err) != 0 ||
                   (x->role == DS_ARRAY_IN && guard(d, t->pages, pages, DS_ACCESS_READ, err) != 0)
               ? -1
               : 0;
}

static int is_held(const struct ds_arena *a, int i)
{
    return i < a->held;
}

int ds_arena_place_far(struct ds_arena *a, struct ds_error *err)
{
    for (int i = a->far_held; i < a->n; i++) {
        if (place(a->device, &a->array[i], err) != 0)
            return -1;
        if (is_held(a, i)) { /* for all calls */
            if (ds_arena_send_one(a, i, err) != 0)
                return -1;
            a->far_held = i + 1;
        }
    }
    return 0;
}

void *ds_arena_far(const struct ds_arena *a, const void *host)
{
    const unsigned char *p = host;
    for (int i = 0; i < a->n; i++) {
        const struct ds_array *x = &a->array[i];
        const unsigned char *data = x->data;
        const size_t bytes = (size_t)(ds_arena_span(x) * x->element);
        if (p == data || (p > data && p < data + bytes))
            return x->twin.pages + (p - x->twin.from);
    }
    return NULL;
}

/* What surrounds it, and the fill that it would have had. */
static int send_bulk(struct ds_arena *a, const struct ds_array *x, const unsigned char *begin,
                     size_t bytes, struct ds_error *err)
{
    struct ds_device *d = a->device;
    const unsigned char *data = x->data;
    const size_t before = (size_t)(data - begin), all = (size_t)(ds_arena_span(x) * x->element);
    unsigned char *there = x->twin.pages + (data - x->twin.from);
    return ds_device_check(d, d->copy_to(d, there - before, begin, before), err) != 0 ||
                   ds_device_check(d, d->fill(d, there, ds_poison_gap(a->poison), all / 4), err) !=
                       0 ||
                   ds_device_check(d, d->copy_to(d, there + all, data + all, bytes - before - all),
                                   err) != 0
               ? -1
               : 0;
}

static int fetch_bulk(struct ds_device *d, const struct ds_array *x, const unsigned char *begin,
                      size_t bytes, struct ds_error *err)
{
    unsigned char *data = x->data;
    const size_t before = (size_t)(data - begin), all = (size_t)(ds_arena_span(x) * x->element);
    const unsigned char *there = x->twin.pages + (data - x->twin.from);
    return ds_device_check(d, d->copy_from(d, data - before, there - before, before), err) != 0 ||
                   ds_device_check(
                       d, d->copy_from(d, data + all, there + all, bytes - before - all), err) != 0
               ? -1
               : 0;
}

int ds_arena_send_one(struct ds_arena *a, int i, struct ds_error *err)
{
    struct ds_device *d = a->device;
    const struct ds_array *x = &a->array[i];
    const unsigned char *begin;
    const size_t bytes = extent(x, &begin);
    if (!d->guard &&
        (ds_device_check(d, d->fill(d, x->twin.pages - WATCHED, FENCE_BITS, WORDS), err) != 0 ||
         ds_device_check(d, d->fill(d, x->twin.pages + x->twin.bytes, FENCE_BITS, WORDS), err) !=
             0))
        return -1;
    if (ds_arena_is_bulk(a, x))
        return send_bulk(a, x, begin, bytes, err);
    return ds_device_check(
        a->device,
        a->device->copy_to(a->device, x->twin.pages + (begin - x->twin.from), begin, bytes), err);
}

int ds_arena_send(struct ds_arena *a, struct ds_error *err)
{
    for (int i = a->held; i < a->n; i++)
        if (ds_arena_send_one(a, i, err) != 0)
            return -1;
    return 0;
}

/* An input without a guard: as it was sent? */
static int compare(struct ds_device *d, const struct ds_array *x, struct ds_fault *f,
                   struct ds_error *err)
{
    const size_t bytes = (size_t)(ds_arena_span(x) * x->element);
    const unsigned char *data = x->data;
    unsigned char *now = ds_alloc(bytes ? bytes : 1, "an input as the launch left it", err);
    if (!now)
        return -1;
    int rc =
        ds_device_check(d, d->copy_from(d, now, x->twin.pages + (data - x->twin.from), bytes), err);
    for (size_t at = 0; rc == 0 && at < bytes && f->kind == DS_FAULT_NONE; at++)
        if (now[at] != data[at])
            ds_arena_blame(x, DS_FAULT_WROTE_INPUT, (int64_t)at / x->element, f);
    free(now);
    return rc;
}

/* The fence at `at`, as it was? The word nearest to the array is told. */
static int compare_fence(struct ds_device *d, const struct ds_array *x, unsigned char *at,
                         struct ds_fault *f, struct ds_error *err)
{
    uint32_t now[WORDS];
    const int before = at < x->twin.pages;
    if (ds_device_check(d, d->copy_from(d, now, at, sizeof now), err) != 0)
        return -1;
    for (int k = 0; k < WORDS && f->kind == DS_FAULT_NONE; k++) {
        const int w = before ? WORDS - 1 - k : k;
        const int64_t bytes =
            at + 4 * w - x->twin.pages + (x->twin.from - (const unsigned char *)x->data);
        if (now[w] == FENCE_BITS)
            continue;
        ds_arena_blame(x, DS_FAULT_OUT_OF_BOUNDS,
                       bytes < 0 ? -((-bytes + x->element - 1) / x->element) : bytes / x->element,
                       f);
        f->write = 1;
    }
    return 0;
}

static int look(struct ds_device *d, const struct ds_array *x, struct ds_fault *f,
                struct ds_error *err)
{
    return (x->role == DS_ARRAY_IN && compare(d, x, f, err) != 0) ||
                   compare_fence(d, x, x->twin.pages - WATCHED, f, err) != 0 ||
                   compare_fence(d, x, x->twin.pages + x->twin.bytes, f, err) != 0
               ? -1
               : 0;
}

int ds_arena_fetch(struct ds_arena *a, struct ds_fault *f, struct ds_error *err)
{
    struct ds_device *d = a->device;
    for (int i = 0; i < a->n; i++) {
        struct ds_array *x = &a->array[i];
        const unsigned char *begin;
        const size_t bytes = extent(x, &begin);
        if (ds_arena_is_bulk(a, x)) {
            if (fetch_bulk(d, x, begin, bytes, err) != 0)
                return -1;
        } else if (x->role != DS_ARRAY_IN &&
                   ds_device_check(d,
                                   d->copy_from(d, (void *)(uintptr_t)begin,
                                                x->twin.pages + (begin - x->twin.from), bytes),
                                   err) != 0)
            return -1;
        if (!d->guard && look(d, x, f, err) != 0)
            return -1;
    }
    return 0;
}

int ds_arena_locate_far(const struct ds_arena *a, const void *address, int write,
                        struct ds_fault *f)
{
    const unsigned char *p = address;
    for (int i = 0; i < a->n && a->device; i++) {
        const struct ds_array *x = &a->array[i];
        const struct ds_twin_array *t = &x->twin;
        if (!t->base || p < t->pages - FENCE || p >= t->pages + t->bytes + FENCE)
            continue;
        const int64_t at = p - t->pages + (t->from - (const unsigned char *)x->data);
        if (p >= t->pages && p < t->pages + t->bytes)
            ds_arena_blame(
                x, write && x->role == DS_ARRAY_IN ? DS_FAULT_WROTE_INPUT : DS_FAULT_FROM_HOST,
                at / x->element, f);
        else
            ds_arena_blame(x, DS_FAULT_OUT_OF_BOUNDS,
                           at < 0 ? -((-at + x->element - 1) / x->element) : at / x->element, f);
        f->write = write;
        return 1;
    }
    return 0;
}

void ds_arena_free_far(struct ds_arena *a)
{
    for (int i = 0; i < DS_ARENA_MOST && a->device; i++)
        if (a->array[i].twin.base)
            a->device->release(a->device, a->array[i].twin.base);
}
