/* far_call.c: one call on a device whose arrays the caller has in the host's memory: all that it points at is
 * copied, and what it wrote comes back. The places on the device are kept from call to call, since
 * whoever measures an order launches thousands of them. */
#include "kernels/lab/far.h"

#include "base/fp_control.h"
#include "base/mem.h"
#include "kernels/call.h"
#include "kernels/device_open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One stretch of the host's memory and its place there. */
struct span {
    const void *host;
    size_t bytes;
    int written;
    void *far;
    size_t room;
};

struct ds_far {
    struct ds_device *dev;
    struct span *span; /* the first n are the call's; the others keep their room */
    size_t n, cap;
    void *scratch;
    size_t scratch_bytes;
    struct ds_sequence *sequences; /* as they go there */
    int32_t *pages;
    size_t cap_sequences, cap_pages;
};

void ds_far_free(struct ds_far *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->cap; i++)
        if (f->span[i].far)
            f->dev->release(f->dev, f->span[i].far);
    if (f->scratch)
        f->dev->release(f->dev, f->scratch);
    free(f->span);
    free(f->sequences);
    free(f->pages);
    free(f);
}

/* Room for bytes at *far, more than there was where that is not enough. */
static int make_room(struct ds_far *f, void **far, size_t *room, size_t bytes, struct ds_error *err)
{
    if (*far && *room >= bytes)
        return 0;
    if (*far)
        f->dev->release(f->dev, *far);
    *far = NULL;
    *room = 0;
    if (ds_device_check(f->dev, f->dev->alloc(f->dev, bytes, "an array of a call", far), err) != 0)
        return -1;
    *room = bytes;
    return 0;
}

static int add_span(struct ds_far *f, const void *host, size_t bytes, int written,
                    struct ds_error *err)
{
    if (!host)
        return 0;
    for (size_t i = 0; i < f->n; i++) /* two members may name one array */
        if (f->span[i].host == host) {
            f->span[i].written |= written;
            f->span[i].bytes = bytes > f->span[i].bytes ? bytes : f->span[i].bytes;
            return make_room(f, &f->span[i].far, &f->span[i].room, f->span[i].bytes, err);
        }
    if (ds_grow(&f->span, &f->cap, f->n + 1, sizeof *f->span, "arrays of a call", err) != 0)
        return -1;
    struct span *s = &f->span[f->n++];
    s->host = host;
    s->bytes = bytes;
    s->written = written;
    return make_room(f, &s->far, &s->room, bytes, err);
}

static int add_arrays(struct ds_far *f, int op, const void *args, size_t prepared_bytes,
                      struct ds_error *err)
{
    struct ds_far_field field[DS_FAR_FIELDS];
    const int n = ds_far_fields(op, args, field);
    f->n = 0;
    for (int i = 0; i < n; i++) {
        const void *host;
        memcpy(&host, (const char *)args + field[i].at, sizeof host);
        if (add_span(f, host, field[i].bytes == SIZE_MAX ? prepared_bytes : field[i].bytes,
                     field[i].written, err) != 0)
            return -1;
    }
    const struct ds_allreduce_args *r = op == DS_OP_ALLREDUCE ? args : NULL;
    for (int64_t i = 0; r && i < r->ranks; i++)
        if (add_span(f, r->x[i],
                     (size_t)(r->rows > 0 ? (r->rows - 1) * r->ldx + r->width : 0) *
                         (r->stored == DS_ELEMENT_F32 ? 4 : 2),
                     0, err) != 0)
            return -1;
    return 0;
}

static int64_t pages_of(const struct ds_sequence *s, int64_t page_size)
{
    return page_size > 0 ? (s->kv_len + page_size - 1) / page_size : 0;
}

/* The sequences and one list of all their pages, as spans of their own: host copies whose page lists lie
 * where the device has them. */
static int add_sequences(struct ds_far *f, int op, const void *args, const struct ds_sequence **key,
                         struct ds_error *err)
{
    int64_t n, page_size, pages = 0;
    const struct ds_sequence *from = ds_far_sequences(op, args, &n, &page_size);
    *key = from;
    for (int64_t i = 0; from && i < n; i++)
        pages += pages_of(&from[i], page_size);
    if (!from)
        return 0;
    if (ds_grow(&f->sequences, &f->cap_sequences, (size_t)n + 1, sizeof *f->sequences, "sequences",
                err) != 0 ||
        ds_grow(&f->pages, &f->cap_pages, (size_t)pages + 1, sizeof *f->pages, "pages", err) != 0 ||
        add_span(f, f->pages, (size_t)pages * sizeof *f->pages, 0, err) != 0)
        return -1;
    const int32_t *there = f->span[f->n - 1].far;
    for (int64_t i = 0, at = 0; i < n; i++) {
        const int64_t own = pages_of(&from[i], page_size);
        f->sequences[i] = from[i];
        f->sequences[i].pages = there + at;
        if (own > 0)
            memcpy(f->pages + at, from[i].pages, (size_t)own * sizeof *f->pages);
        at += own;
    }
    return add_span(f, f->sequences, (size_t)n * sizeof *f->sequences, 0, err);
}

struct place {
    const struct ds_far *f;
    const struct ds_sequence *key; /* the caller's sequences: those of f stand for them */
};

static void *where(void *arg, const void *host)
{
    const struct place *p = arg;
    const void *key = host == (const void *)p->key ? (const void *)p->f->sequences : host;
    for (size_t i = 0; i < p->f->n; i++)
        if (p->f->span[i].host == key)
            return p->f->span[i].far;
    return NULL;
}

static int send(struct ds_far *f, struct ds_error *err)
{
    for (size_t i = 0; i < f->n; i++)
        if (ds_device_check(
                f->dev, f->dev->copy_to(f->dev, f->span[i].far, f->span[i].host, f->span[i].bytes),
                err) != 0)
            return -1;
    return 0;
}

static int fetch(struct ds_far *f, struct ds_error *err)
{
    if (ds_device_check(f->dev, f->dev->wait(f->dev), err) != 0)
        return -1;
    for (size_t i = 0; i < f->n; i++)
        if (f->span[i].written &&
            ds_device_check(f->dev,
                            f->dev->copy_from(f->dev, (void *)(uintptr_t)f->span[i].host,
                                              f->span[i].far, f->span[i].bytes),
                            err) != 0)
            return -1;
    return 0;
}

/* Places, arguments and scratch of a call, copied. */
static int set_up(struct ds_far *f, const struct ds_kernel *k, const void *args,
                  size_t prepared_bytes, struct ds_exec *exec, union ds_any_args *there,
                  const float ***ranks, struct ds_error *err)
{
    struct place p = {.f = f};
    if (add_arrays(f, k->op, args, prepared_bytes, err) != 0 ||
        add_sequences(f, k->op, args, &p.key, err) != 0 ||
        ds_far_args(k->op, args, there, ranks, where, &p, err) != 0)
        return -1;
    ds_lab_device_exec(f->dev, exec);
    exec->scratch = NULL;
    exec->scratch_bytes = ds_call_scratch(k, there, exec->threads);
    if (exec->scratch_bytes &&
        make_room(f, &f->scratch, &f->scratch_bytes, exec->scratch_bytes, err) != 0)
        return -1;
    if (exec->scratch_bytes)
        exec->scratch = f->scratch;
    return send(f, err);
}

/* As ds_call_launch. */
static int launch(struct ds_device *dev, const struct ds_kernel *k, const void *args,
                  const struct ds_exec *exec, char *why, size_t why_size)
{
    const uint32_t fp = ds_fp_control();
    const int rc = ds_lab_launch(dev, k, args, exec, why, why_size);
    if (!ds_fp_restore(fp))
        return rc;
    snprintf(why, why_size, "the launch changed the floating-point control word");
    return -1;
}

int ds_far_launch(struct ds_far **far, const struct ds_kernel *k, const void *args,
                  size_t prepared_bytes, const struct ds_exec *given, char *why, size_t why_size)
{
    struct ds_exec exec = *given;
    struct ds_error err = {{0}, {0}};
    union ds_any_args there;
    const float **ranks = NULL;
    struct ds_device *dev;
    int rc = ds_lab_device_of(k->device, &dev, &err);
    if (rc == 0 && !*far && (*far = ds_calloc(1, sizeof **far, "a call", &err)))
        (*far)->dev = dev;
    rc = rc == 0 && *far ? set_up(*far, k, args, prepared_bytes, &exec, &there, &ranks, &err) : -1;
    if (rc == 0 && launch(dev, k, &there, &exec, why, why_size) != 0) {
        free(ranks);
        return -1;
    }
    if (rc == 0)
        rc = fetch(*far, &err);
    free(ranks);
    if (rc != 0)
        snprintf(why, why_size, "%.*s", (int)why_size - 1, err.msg);
    return rc;
}
