/* forward_log.c: rows on a device, shown to the probe. Where the device's memory is the host's the probe reads
 * them where they are. Elsewhere the recorded rows are copied into a log in the device's memory and
 * digested there, with nothing waited for; when the call ends (or the log is full) the digests of all sites are
 * read in one go, and the probe is shown the sites in their order. It asks for the bytes of those rows only
 * that differ from a reference's, or that it keeps. A healing probe must have its say before the next
 * kernel reads: there every site is shown at once, and rows that it wrote go back to where they came from.
 * Owns the log; must not know stages. */
#include "engine/forward_private.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_SIZE = 1 << 20, MOST_SIZE = 256 << 20, MOST_ROWS = 1 << 20, ALIGN = 256 };

/* One site that waits. */
struct ds_logged {
    uint32_t site, n, width;
    size_t at, row_bytes; /* in the log */
    size_t first;         /* of its digests */
    size_t only;          /* of its row numbers, or NO_ONLY */
    struct ds_launch launch;
};
#define NO_ONLY SIZE_MAX

void ds_log_drop(struct ds_forward *f)
{
    struct ds_site_log *l = &f->at.log;
    l->used = l->n = l->n_entries = l->n_only = 0;
}

void ds_log_free(struct ds_site_log *l)
{
    free(l->host_digests);
    free(l->host_largest);
    free(l->entry);
    free(l->only);
}

/* ---- for the probe --------------------------------------------------------------------------------- */

static int read_far(void *arg, const void *at, void *out, size_t bytes, struct ds_error *err)
{
    return ds_desk_from(arg, out, at, bytes, err);
}

static int write_far(void *arg, void *at, const void *bytes, size_t n, struct ds_error *err)
{
    return ds_desk_to(arg, at, bytes, n, err);
}

/* Shows everything; *written: rows that a healing probe changed in the log. */
static int flush(struct ds_pass *p, uint32_t *written)
{
    struct ds_forward *f = p->f;
    struct ds_site_log *l = &f->at.log;
    *written = 0;
    if (l->n_entries == 0)
        return 0;
    if (ds_desk_from(f, l->host_digests, l->digests, l->n * sizeof *l->digests, p->err) != 0 ||
        ds_desk_from(f, l->host_largest, l->largest, l->n * sizeof *l->largest, p->err) != 0)
        return -1;
    int rc = 0;
    for (size_t i = 0; i < l->n_entries && rc == 0; i++) {
        const struct ds_logged *e = &l->entry[i];
        struct ds_probe_far far = {.digests = l->host_digests + e->first,
                                   .largest = l->host_largest + e->first,
                                   .read = read_far,
                                   .write = write_far,
                                   .arg = f};
        rc = ds_probe_site_far(p->probe, e->site, &e->launch, l->rows + e->at, e->row_bytes,
                               e->width, e->only == NO_ONLY ? NULL : l->only + e->only, e->n, &far,
                               p->err);
        *written += far.written;
    }
    ds_log_drop(f);
    return rc;
}

int ds_log_flush(struct ds_pass *p)
{
    uint32_t written;
    return flush(p, &written);
}

/* ---- the log ---------------------------------------------------------------------------------------- */

/* Room for `bytes` more in rows that are not there yet: the log is empty. Twice what was there, as far as that
 * is no waste. */
static int grow_rows(struct ds_forward *f, size_t bytes, struct ds_error *err)
{
    struct ds_site_log *l = &f->at.log;
    size_t size = l->size ? l->size : (size_t)FIRST_SIZE;
    if (l->size && l->size < MOST_SIZE)
        size *= 2;
    size = bytes > size ? bytes : size;
    ds_desk_forget(f, l->rows);
    l->rows = NULL;
    l->size = 0;
    if (ds_desk_new(f, size, 1, "a log of rows shown", &l->rows, err) != 0)
        return -1;
    l->size = size;
    return 0;
}

static int grow_digests(struct ds_forward *f, size_t n, struct ds_error *err)
{
    struct ds_site_log *l = &f->at.log;
    size_t cap = l->cap ? 2 * l->cap : 1024;
    cap = n > cap ? n : cap;
    ds_desk_forget(f, l->digests);
    ds_desk_forget(f, l->largest);
    free(l->host_digests);
    free(l->host_largest);
    l->digests = NULL;
    l->largest = NULL;
    l->host_largest = NULL;
    l->cap = 0;
    if (!(l->host_digests = ds_calloc(cap, sizeof *l->host_digests, "digests", err)) ||
        !(l->host_largest = ds_calloc(cap, sizeof *l->host_largest, "row sizes", err)) ||
        ds_desk_new(f, cap, sizeof *l->digests, "digests", &l->digests, err) != 0 ||
        ds_desk_new(f, cap, sizeof *l->largest, "row sizes", &l->largest, err) != 0)
        return -1;
    l->cap = cap;
    return 0;
}

/* Room for one more site. A full log is shown first, and is larger the next time. */
static int make_room(struct ds_pass *p, size_t bytes, size_t n)
{
    struct ds_site_log *l = &p->f->at.log;
    if (bytes <= l->size - l->used && n <= l->cap - l->n)
        return 0;
    if (p->f->capturing) {
        p->f->lacks.log_bytes = l->used + bytes;
        p->f->lacks.log_rows = l->n + n;
        return ds_fail(p->err, "a graph shows more rows than the log has room for");
    }
    if (ds_log_flush(p) != 0)
        return -1;
    if ((bytes > l->size || l->size < MOST_SIZE) && grow_rows(p->f, bytes, p->err) != 0)
        return -1;
    return (n > l->cap || l->cap < MOST_ROWS) ? grow_digests(p->f, n, p->err) : 0;
}

int ds_log_enlarge(struct ds_forward *f, struct ds_error *err)
{
    struct ds_site_log *l = &f->at.log;
    const size_t bytes = f->lacks.log_bytes, rows = f->lacks.log_rows;
    if (bytes > MOST_SIZE || rows > MOST_ROWS)
        return ds_fail(err,
                       "--graph on: a call shows more than %d MiB of rows, or more than %d rows",
                       (int)MOST_SIZE >> 20, (int)MOST_ROWS);
    while (l->size < bytes)
        if (grow_rows(f, bytes, err) != 0)
            return -1;
    return rows > l->cap ? grow_digests(f, rows, err) : 0;
}

/* ---- kept with a graph --------------------------------------------------------------------------- */

void ds_log_kept_free(struct ds_log_kept *k)
{
    free(k->entry);
    free(k->only);
    memset(k, 0, sizeof *k);
}

int ds_log_keep(const struct ds_forward *f, struct ds_log_kept *k, struct ds_error *err)
{
    const struct ds_site_log *l = &f->at.log;
    *k = (struct ds_log_kept){
        .n_entries = l->n_entries, .used = l->used, .n = l->n, .n_only = l->n_only};
    if (!(k->entry = ds_calloc(l->n_entries, sizeof *k->entry, "sites shown", err)) ||
        !(k->only = ds_calloc(l->n_only, sizeof *k->only, "row numbers", err))) {
        ds_log_kept_free(k);
        return -1;
    }
    if (l->n_entries)
        memcpy(k->entry, l->entry, l->n_entries * sizeof *k->entry);
    if (l->n_only)
        memcpy(k->only, l->only, l->n_only * sizeof *k->only);
    return 0;
}

int ds_log_restore(struct ds_forward *f, const struct ds_log_kept *k, struct ds_error *err)
{
    struct ds_site_log *l = &f->at.log;
    if (ds_grow(&l->entry, &l->cap_entries, k->n_entries, sizeof *l->entry, "sites shown", err) !=
            0 ||
        ds_grow(&l->only, &l->cap_only, k->n_only, sizeof *l->only, "row numbers", err) != 0)
        return -1;
    if (k->n_entries)
        memcpy(l->entry, k->entry, k->n_entries * sizeof *l->entry);
    if (k->n_only)
        memcpy(l->only, k->only, k->n_only * sizeof *l->only);
    l->n_entries = k->n_entries;
    l->used = k->used;
    l->n = k->n;
    l->n_only = k->n_only;
    return 0;
}

/* ---- logging ------------------------------------------------------------------------------------- */

static int element_of(const struct ds_pass *p, int stage, size_t element)
{
    if (ds_stage(stage)->store == DS_STORE_I32)
        return DS_ELEMENT_I32;
    return element == sizeof(float)        ? DS_ELEMENT_F32
           : p->f->config.dtype == DS_BF16 ? DS_ELEMENT_BF16
                                           : DS_ELEMENT_F16;
}

/* The rows and their digests, queued. */
static int copy_rows(struct ds_pass *p, int stage, const struct ds_shown *s, size_t row)
{
    struct ds_desk *at = &p->f->at;
    struct ds_site_log *l = &at->log;
    const struct ds_device_rows r = {.n = s->n,
                                     .row_bytes = (int64_t)row,
                                     .x = s->data,
                                     .x_stride = (int64_t)s->stride,
                                     .x_at = s->index,
                                     .y = l->rows + l->used,
                                     .y_stride = (int64_t)row};
    const struct ds_device_digest g = {.n = s->n,
                                       .row_bytes = (int64_t)row,
                                       .stride = (int64_t)row,
                                       .x = r.y,
                                       .element = element_of(p, stage, s->element),
                                       .digests = l->digests + l->n,
                                       .largest = l->largest + l->n};
    return ds_desk_rows(p->f, &r, p->err) != 0
               ? -1
               : ds_device_check(at->dev, at->dev->digest(at->dev, &g), p->err);
}

static int add_entry(struct ds_pass *p, int stage, uint32_t site, const struct ds_shown *s,
                     size_t row)
{
    struct ds_site_log *l = &p->f->at.log;
    if (ds_grow(&l->entry, &l->cap_entries, l->n_entries + 1, sizeof *l->entry, "sites shown",
                p->err) != 0 ||
        (s->only && ds_grow(&l->only, &l->cap_only, l->n_only + s->n, sizeof *l->only,
                            "row numbers", p->err) != 0))
        return -1;
    if (s->only)
        memcpy(l->only + l->n_only, s->only, s->n * sizeof *s->only);
    l->entry[l->n_entries++] = (struct ds_logged){.site = site,
                                                  .n = s->n,
                                                  .width = s->width,
                                                  .at = l->used,
                                                  .row_bytes = row,
                                                  .first = l->n,
                                                  .only = s->only ? l->n_only : NO_ONLY,
                                                  .launch = p->f->launch[stage]};
    l->n_only += s->only ? s->n : 0;
    l->used += (s->n * row + ALIGN - 1) / ALIGN * ALIGN;
    l->n += s->n;
    return 0;
}

/* What a healing probe wrote goes back to where the rows came from. */
static int show_now(struct ds_pass *p, const struct ds_shown *s, size_t row)
{
    uint32_t written;
    if (flush(p, &written) != 0)
        return -1;
    const struct ds_device_rows back = {.n = s->n,
                                        .row_bytes = (int64_t)row,
                                        .x = p->f->at.log.rows,
                                        .x_stride = (int64_t)row,
                                        .y = s->data,
                                        .y_stride = (int64_t)s->stride,
                                        .y_at = s->index};
    return written ? ds_desk_rows(p->f, &back, p->err) : 0;
}

int ds_log_show(struct ds_pass *p, int stage, uint32_t site, const struct ds_shown *s)
{
    const size_t row = (size_t)s->width * s->element,
                 bytes = (s->n * row + ALIGN - 1) / ALIGN * ALIGN;
    if (!p->probe || !s->n || site == DS_NO_SITE)
        return 0;
    if (ds_forward_host(p->f))
        return ds_probe_site(p->probe, site, &p->f->launch[stage], s->data, s->stride, s->width,
                             s->only, s->n, p->err);
    if (!ds_probe_wants(p->probe, site))
        return 0;
    const int heals = ds_probe_heals(p->probe);
    if ((heals && ds_log_flush(p) != 0) || make_room(p, bytes, s->n) != 0 ||
        copy_rows(p, stage, s, row) != 0 || add_entry(p, stage, site, s, row) != 0)
        return -1;
    return heals ? show_now(p, s, row) : 0;
}
