/* record_blobs.c: dumped rows of an open record, found by digest: their table, its index, reading ahead.
 * Whatever does not have its digest is noted (record_damage.c). */
#include "dumps/record_read.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "dumps/parts.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* An entry of the list, which is asked for so often that it is not unpacked field by field. */
static struct ds_tensor_row tensor_row(const struct ds_record *r, size_t i)
{
    struct ds_tensor_row row;
    static_assert(sizeof row == 40, "a struct is the packed row, byte for byte");
    memcpy(&row, r->tensors + i * sizeof row, sizeof row);
    row.dtype[sizeof row.dtype - 1] = '\0';
    return row;
}

static uint64_t tensor_digest(const struct ds_record *r, size_t i)
{
    return r->tensor_digests[i];
}

/* Where a record lies in memory is mixed in: no file can be made to collide. */
static uint64_t tensor_hash(const struct ds_record *r, uint64_t digest)
{
    return (digest ^ (uintptr_t)r) * UINT64_C(0x9e3779b97f4a7c15);
}

/* The slot of a digest: the low half of its hash above 1 + its row, or the free one where it belongs. The table is
 * looked at only where that half agrees: it is too large for a cache. */
static uint64_t *tensor_slot(const struct ds_record *r, uint64_t digest)
{
    const uint64_t hash = tensor_hash(r, digest);
    uint64_t at = (hash >> 20) & r->tensor_mask, x;
    while ((x = r->tensor_at[at]) != 0 &&
           (x >> 32 != (hash & UINT32_MAX) || tensor_digest(r, (uint32_t)x - 1) != digest))
        at = (at + 1) & r->tensor_mask;
    return &r->tensor_at[at];
}

static int has_its_check(const struct ds_record *r, size_t i)
{
    const char *packed = r->tensors + i * sizeof(struct ds_tensor_row);
    const size_t before = offsetof(struct ds_tensor_row, check);
    uint64_t check;
    memcpy(&check, packed + before, sizeof check);
    return check == ds_checksum_bytes(packed, before);
}

/* Of those that complete trials rely on it is known. */
static int is_sound(const struct ds_record *r, size_t i)
{
    return (i < r->tensors_needed && !r->tensors_damaged) || has_its_check(r, i);
}

void ds_record_forget_held(struct ds_record *r)
{
    ds_parts_release(r->held, r->held_cap);
    r->held = NULL;
}

/* Reads /tensors. A row that does not have its own checksum is passed over; if a complete trial may rely
 * on it, the table counts as damaged, and a digest that is not found may have been there. */
static int read_tensors(struct ds_record *r, int *damage, struct ds_error *err)
{
    const size_t n = (size_t)r->length[DS_TABLE_TENSORS];
    if (n >= UINT32_MAX / 4)
        return ds_fail(err, "%s: /tensors: %zu rows are too many", r->path, n);
    if (!(r->held = ds_parts_memory(n)))
        return ds_fail(err, "out of memory: %zu bytes for dumped rows", n);
    r->held_cap = n;
    if (!(r->tensor_digests = ds_calloc(n, sizeof *r->tensor_digests, "dumped rows", err)) ||
        !(r->tensors = ds_record_rows(r, DS_TABLE_TENSORS, 0, n, damage, err))) {
        free(r->tensor_digests);
        r->tensor_digests = NULL;
        ds_record_forget_held(r);
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        memcpy(&r->tensor_digests[i], r->tensors + i * sizeof(struct ds_tensor_row),
               sizeof *r->tensor_digests);
        if (i < r->tensors_needed && !r->tensors_damaged)
            r->tensors_damaged = !has_its_check(r, i);
    }
    return 0;
}

/* Finds each digest's row; once rows are asked for in another order than the table's. */
static int index_tensors(struct ds_record *r, struct ds_error *err)
{
    const size_t n = (size_t)r->length[DS_TABLE_TENSORS];
    uint64_t slots = 16;
    while (slots < 2 * (uint64_t)n)
        slots *= 2;
    if (!(r->tensor_at = ds_calloc((size_t)slots, sizeof *r->tensor_at, "dumped rows", err)))
        return -1;
    ds_memory_touched_whole(r->tensor_at, (size_t)slots * sizeof *r->tensor_at);
    r->tensor_mask = slots - 1;
    for (size_t i = 0; i < n; i++) {
        enum { AHEAD = 16 }; /* slots lie anywhere: they are on their way while others are filled */
        if (i + AHEAD < n)
            __builtin_prefetch(
                &r->tensor_at[(tensor_hash(r, tensor_digest(r, i + AHEAD)) >> 20) & r->tensor_mask],
                1);
        const uint64_t digest = tensor_digest(r, i);
        uint64_t *slot = tensor_slot(r, digest);
        if (!*slot && is_sound(r, i))
            *slot = tensor_hash(r, digest) << 32 | (uint64_t)(i + 1);
    }
    return 0;
}

/* The row of a digest from `from` on to `end`, or `end`. */
static size_t scan(const struct ds_record *r, uint64_t digest, size_t from, size_t end)
{
    while (from < end && (tensor_digest(r, from) != digest || !is_sound(r, from)))
        from++;
    return from;
}

/* 1 + the row of a digest, 0: there is none, -1. The rows of a trial lie in the order in which they are asked for, as a
 * rule: those after the last are looked at first. Who jumps now and then is served by looking through the list; an index
 * takes as long as a hundred times that. */
static int64_t find_tensor(struct ds_record *r, uint64_t digest, struct ds_error *err)
{
    enum { NEAR = 1024, MOST_JUMPS = 100 };
    const size_t next = (size_t)r->tensor_next, n = (size_t)r->length[DS_TABLE_TENSORS],
                 near = r->tensor_at      ? next + (next < n)
                        : n - next < NEAR ? n
                                          : next + NEAR;
    size_t at = scan(r, digest, next, near);
    if (at == near) {
        if (!r->tensor_at && r->tensor_jumps < MOST_JUMPS) {
            r->tensor_jumps++;
            at = scan(r, digest, 0, n);
        } else {
            if (!r->tensor_at && index_tensors(r, err) != 0)
                return -1;
            const uint32_t found = (uint32_t)*tensor_slot(r, digest);
            at = found ? found - 1 : n;
        }
    }
    if (at == n)
        return 0;
    r->tensor_next = at + 1;
    return (int64_t)at + 1;
}

/* More than this does not stay in a cache until it is looked at. */
enum { MOST_AHEAD = 1 << 19 };

uint64_t ds_record_hold(struct ds_record *r, uint64_t bytes)
{
    return r->ahead.most = bytes == 0 ? 1 : bytes > MOST_AHEAD ? MOST_AHEAD : bytes;
}

static uint64_t most_ahead(const struct ds_record *r)
{
    return r->ahead.most ? r->ahead.most : MOST_AHEAD;
}

/* Reads from `first` on. Where rows follow each other in the file, twice as much each time; where they
 * lie apart, no more than is asked for. */
static int read_ahead(struct ds_record *r, uint64_t first, uint64_t n, int *damage,
                      struct ds_error *err)
{
    uint64_t length = r->length[DS_TABLE_TENSOR_BYTES], most = most_ahead(r),
             end = r->ahead.first + r->ahead.n, want = n;
    if (r->ahead.n && first >= r->ahead.first && first <= end + n)
        want = 2 * r->ahead.n > most ? most : 2 * r->ahead.n;
    want = want < n ? n : want;
    if (n <= length && first <= length - n && want > length - first)
        want = length - first;
    r->ahead.n = 0;
    if (ds_h5_enter(err) != 0)
        return -1;
    if (want > r->ahead.cap) { /* kept from one stretch to the next: its pages are there */
        free(r->ahead.bytes);
        r->ahead.bytes = ds_alloc((size_t)want, "dumped rows", err);
        r->ahead.cap = r->ahead.bytes ? want : 0;
    }
    if (!r->ahead.bytes || ds_record_rows_into(r, DS_TABLE_TENSOR_BYTES, first, want,
                                               r->ahead.bytes, damage, err) != 0)
        return -1;
    r->ahead.first = first;
    r->ahead.n = want;
    return 0;
}

/* n bytes of /tensor_bytes, until the next are asked for. */
static void *tensor_bytes(struct ds_record *r, uint64_t first, uint64_t n, int *damage,
                          struct ds_error *err)
{
    *damage = 0;
    int held =
        r->ahead.n >= n && first >= r->ahead.first && first - r->ahead.first <= r->ahead.n - n;
    if (!held && read_ahead(r, first, n, damage, err) != 0)
        return NULL;
    return (char *)r->ahead.bytes + (first - r->ahead.first);
}

/* A byte each, so that several processes may write them at once. */
static void mark_held(struct ds_record *r, size_t i)
{
    if (i < r->tensors_needed)
        r->held[i] = 1;
}

/* Reads the row that entry i of /tensors tells of. 1; -1: *damage tells a damaged file, which is noted, from
 * want of memory. */
static int read_row(struct ds_record *r, size_t i, struct ds_blob *out, int *damage,
                    struct ds_error *err)
{
    const struct ds_tensor_row tensor = tensor_row(r, i), *row = &tensor;
    const uint64_t digest = tensor.digest;
    size_t size = ds_dtype_size(ds_dtype_parse(row->dtype));
    *damage = 1;
    if (size == 0 || (uint64_t)row->elements * size != row->bytes) {
        ds_record_note_row(r, digest, 0, "its type does not fit its length");
        return ds_fail(err, "%s: /tensors: %016llx: %u elements in %u bytes of an unfitting type",
                       r->path, (unsigned long long)digest, row->elements, row->bytes);
    }
    void *bytes = tensor_bytes(r, row->first, row->bytes, damage, err);
    if (!bytes) {
        if (*damage)
            ds_record_note_row(r, digest, 0, "its bytes cannot be read");
        return -1;
    }
    *damage = 1;
    const uint64_t found = ds_checksum_bytes(bytes, row->bytes);
    if (found != digest) {
        ds_record_note_row(r, digest, found, "its bytes have another digest");
        return ds_fail(
            err,
            "%s: /tensor_bytes: the bytes of %016llx do not have that digest: the file is damaged",
            r->path, (unsigned long long)digest);
    }
    mark_held(r, i);
    out->digest = digest;
    memcpy(out->dtype, row->dtype, sizeof out->dtype);
    out->elements = row->elements;
    out->bytes = row->bytes;
    out->data = bytes;
    return 1;
}

/* As ds_record_view, which also tells a damaged file from want of memory. */
static int view_blob(struct ds_record *r, uint64_t digest, struct ds_blob *out, int *damage,
                     struct ds_error *err)
{
    *damage = 0;
    if (!r->tensors && (ds_h5_enter(err) != 0 || read_tensors(r, damage, err) != 0))
        return -1;
    const int64_t at = find_tensor(r, digest, err);
    if (at < 0)
        return -1;
    *damage = 1;
    if (!at && r->tensors_damaged)
        return ds_fail(err, "%s: /tensors: damaged; %016llx may have been in it", r->path,
                       (unsigned long long)digest);
    return at ? read_row(r, (size_t)(at - 1), out, damage, err) : 0;
}

/* ---- in bulk --------------------------------------------------------------------------------- */

static void raw_row(const struct ds_record *r, size_t i, struct ds_raw_row *out)
{
    const struct ds_tensor_row row = tensor_row(r, i);
    const size_t size = ds_dtype_size(ds_dtype_parse(row.dtype));
    *out = (struct ds_raw_row){
        .row = {.digest = row.digest, .elements = row.elements, .bytes = row.bytes},
        .first = row.first,
        .entry = i,
        .alone = !size || (uint64_t)row.elements * size != row.bytes};
    memcpy(out->row.dtype, row.dtype, sizeof out->row.dtype);
}

void ds_record_locate(struct ds_record *r, uint64_t digest, struct ds_raw_row *out)
{
    struct ds_error ignored;
    int damage;
    int64_t at = 0;
    if (r->tensors || (ds_h5_enter(&ignored) == 0 && read_tensors(r, &damage, &ignored) == 0))
        at = find_tensor(r, digest, &ignored);
    if (at > 0)
        raw_row(r, (size_t)(at - 1), out);
    else
        *out = (struct ds_raw_row){.row.digest = digest, .alone = 1};
}

void ds_record_fetch(struct ds_record *r, struct ds_raw_row *rows, size_t n, void *room)
{
    struct ds_error ignored;
    int damage, failed = ds_h5_enter(&ignored) != 0;
    char *to = room;
    for (size_t i = 0, k; i < n && !failed; i = k) {
        uint64_t bytes = 0;
        for (k = i; k < n && !rows[k].alone && rows[k].first == rows[i].first + bytes; k++) {
            rows[k].row.data =
                to + bytes; /* rows that follow each other in the file are one read */
            bytes += rows[k].row.bytes;
        }
        failed = k > i && ds_record_rows_into(r, DS_TABLE_TENSOR_BYTES, rows[i].first, bytes, to,
                                              &damage, &ignored) != 0;
        k += k == i;
        to += bytes;
    }
    for (size_t i = 0; failed && i < n; i++)
        rows[i].row.data = NULL;
}

int ds_raw_row_sound(const struct ds_raw_row *x)
{
    return x->row.data && ds_checksum_bytes(x->row.data, x->row.bytes) == x->row.digest;
}

void ds_record_believe(struct ds_record *r, const struct ds_raw_row *row)
{
    mark_held(r, row->entry);
}

/* ---- all of them ----------------------------------------------------------------------------- */

void ds_record_unread(const struct ds_record *r, uint64_t *rows, uint64_t *bytes)
{
    const uint64_t all = r->length[DS_TABLE_TENSOR_BYTES];
    uint64_t held = 0, held_bytes = 0;
    for (size_t i = 0; r->held && i < r->tensors_needed; i++) {
        held += r->held[i];
        held_bytes += r->held[i] ? tensor_row(r, i).bytes : 0;
    }
    *rows = r->tensors_needed - held;
    *bytes = *rows && all > held_bytes ? all - held_bytes : 0;
}

enum { STRETCH_ROWS = 512 };

/* Rows that are read at once, and room for their bytes. */
struct stretch {
    struct ds_raw_row rows[STRETCH_ROWS];
    size_t n;
    uint64_t bytes;
    void *room;
};

/* The entries from *next on that are not held yet, as many as there is room for. What would not fit alone, or is not
 * sound itself, is left out. */
static void next_stretch(struct ds_record *r, size_t *next, size_t end, struct stretch *s)
{
    uint64_t left = s->bytes;
    for (s->n = 0; *next < end && s->n < STRETCH_ROWS; ++*next) {
        struct ds_raw_row *row = &s->rows[s->n];
        if (r->held[*next]) /* it was, when somebody asked for it */
            continue;
        raw_row(r, *next, row);
        if (row->alone || row->row.bytes > s->bytes || !is_sound(r, *next))
            continue;
        if (row->row.bytes > left)
            return;
        left -= row->row.bytes;
        s->n++;
    }
}

/* Marks those rows, from entry *next to `end`, that have their digest; ends behind about so many bytes. */
static void hold_range(struct ds_record *r, size_t *next, size_t end, uint64_t most)
{
    struct ds_error ignored;
    struct stretch *s = ds_alloc(sizeof *s, "dumped rows", &ignored);
    uint64_t bytes = 0;
    if (s && (s->room = ds_alloc((size_t)most_ahead(r), "dumped rows", &ignored))) {
        s->bytes = most_ahead(r);
        while (*next < end && bytes < most) {
            next_stretch(r, next, end, s);
            ds_record_fetch(r, s->rows, s->n, s->room);
            for (size_t i = 0; i < s->n; i++) {
                bytes += s->rows[i].row.bytes;
                if (ds_raw_row_sound(&s->rows[i]))
                    mark_held(r, s->rows[i].entry);
            }
        }
        free(s->room);
    } else {
        *next = end;
    }
    free(s);
}

static void hold_part(void *record, int part, int parts)
{
    struct ds_record *r = record;
    const size_t n = (size_t)r->tensors_needed, end = n * (size_t)(part + 1) / (size_t)parts;
    size_t next = n * (size_t)part / (size_t)parts;
    hold_range(r, &next, end, UINT64_MAX);
}

/* What was not held is read row by row, which finds out why. */
static int find_out_why(struct ds_record *r, size_t from, size_t end, struct ds_error *err)
{
    for (size_t i = from; i < end; i++) {
        struct ds_blob row;
        int damage = 1;
        if (r->held[i])
            continue;
        if (!is_sound(r, i))
            ds_record_note_row(r, tensor_digest(r, i), 0, "its entry in /tensors is damaged");
        else if (read_row(r, i, &row, &damage, err) < 0 && !damage)
            return -1;
    }
    return 0;
}

/* The list of dumped rows is there: 0; 1: it cannot be read; -1. */
static int have_tensors(struct ds_record *r, struct ds_error *err)
{
    int damage = 0;
    if (ds_h5_enter(err) != 0 || (!r->tensors && read_tensors(r, &damage, err) != 0))
        return damage ? 1 : -1;
    return 0;
}

/* In the order of the file, so that it is read in few large pieces. */
int ds_record_hold_rows(struct ds_record *r, struct ds_error *err)
{
    uint64_t rows, bytes;
    const int rc = have_tensors(r, err);
    if (rc != 0)
        return rc;
    ds_record_unread(r, &rows, &bytes);
    if (rows)
        ds_parts_run(hold_part, r, ds_parts_worth((size_t)bytes));
    return find_out_why(r, 0, (size_t)r->tensors_needed, err);
}

int ds_record_verify_piece(struct ds_record *r, size_t *next, uint64_t bytes, struct ds_error *err)
{
    const size_t from = *next, end = (size_t)r->tensors_needed;
    const int rc = have_tensors(r, err);
    if (rc != 0)
        return rc > 0 ? ds_record_verify(r, err) : -1; /* trials know what they dumped */
    hold_range(r, next, end, bytes);
    return find_out_why(r, from < *next ? from : *next, *next, err) != 0 ? -1 : *next < end;
}

int ds_record_find_blob(struct ds_record *r, uint64_t digest, struct ds_blob *out, int *damage,
                        struct ds_error *err)
{
    struct ds_blob view;
    int rc = view_blob(r, digest, &view, damage, err);
    if (rc != 1)
        return rc;
    void *copy = ds_alloc(view.bytes, "dumped row", err);
    if (!copy) {
        *damage = 0;
        return -1;
    }
    memcpy(copy, view.data, view.bytes);
    *out = view;
    out->data = copy;
    return 1;
}

int ds_record_view(struct ds_record *r, uint64_t digest, struct ds_blob *out, struct ds_error *err)
{
    int damage;
    return view_blob(r, digest, out, &damage, err);
}

int ds_record_blob(struct ds_record *r, uint64_t digest, struct ds_blob *out, struct ds_error *err)
{
    int damage = 0, rc = ds_record_find_blob(r, digest, out, &damage, err);
    return rc < 0 && !damage ? DS_BLOB_UNREAD : rc;
}

int ds_record_dumped(struct ds_record *r, uint64_t digest, struct ds_error *err)
{
    int damage;
    if (ds_h5_enter(err) != 0 || (!r->tensors && read_tensors(r, &damage, err) != 0))
        return -1;
    const int64_t at = find_tensor(r, digest, err);
    if (at != 0)
        return at < 0 ? -1 : 1;
    return r->tensors_damaged ? ds_fail(err, "%s: /tensors: damaged", r->path) : 0;
}
