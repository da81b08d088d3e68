/* record_blobs.c: dumped rows of an open record, found by digest: their table, its index, reading ahead.
 * Whatever does not have its digest is noted (record_damage.c). */
#include "dumps/record_read.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* A tensor's digest is the first field of its packed row. */
static uint64_t tensor_digest(const struct ds_record *r, size_t i)
{
    uint64_t digest;
    memcpy(&digest, r->tensors + i * ds_table_bytes(DS_TABLE_TENSORS), sizeof digest);
    return digest;
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

static int is_sound(const struct ds_record *r, size_t i)
{
    const size_t bytes = ds_table_bytes(DS_TABLE_TENSORS);
    const char *packed = r->tensors + i * bytes;
    uint64_t check;
    memcpy(&check, packed + bytes - sizeof check, sizeof check);
    return check == ds_checksum_bytes(packed, bytes - sizeof check);
}

/* Reads /tensors. A row that does not have its own checksum is passed over; if a complete trial may rely
 * on it, the table counts as damaged, and a digest that is not found may have been there. */
static int read_tensors(struct ds_record *r, int *damage, struct ds_error *err)
{
    const size_t n = (size_t)r->length[DS_TABLE_TENSORS];
    if (n >= UINT32_MAX / 4)
        return ds_fail(err, "%s: /tensors: %zu rows are too many", r->path, n);
    r->held = ds_calloc(n / 8 + 1, 1, "dumped rows", err);
    if (!r->held || !(r->tensors = ds_record_rows(r, DS_TABLE_TENSORS, 0, n, damage, err))) {
        free(r->held);
        r->held = NULL;
        return -1;
    }
    for (size_t i = 0; i < n && i < r->tensors_needed && !r->tensors_damaged; i++)
        r->tensors_damaged = !is_sound(r, i);
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
    r->tensor_mask = slots - 1;
    for (size_t i = 0; i < n; i++) {
        enum { AHEAD = 16 }; /* slots lie anywhere: they are on their way while others are filled */
        if (i + AHEAD < n)
            __builtin_prefetch(
                &r->tensor_at[(tensor_hash(r, tensor_digest(r, i + AHEAD)) >> 20) & r->tensor_mask],
                1);
        const uint64_t digest = tensor_digest(r, i);
        uint64_t *slot = tensor_slot(r, digest);
        const int known = i < r->tensors_needed && !r->tensors_damaged;
        if (!*slot && (known || is_sound(r, i)))
            *slot = tensor_hash(r, digest) << 32 | (uint64_t)(i + 1);
    }
    return 0;
}

/* 1 + the row of a digest, 0: there is none, -1. The rows of a trial lie in the order in which they are
 * asked for, as a rule: the one after the last is looked at first. */
static int64_t find_tensor(struct ds_record *r, uint64_t digest, struct ds_error *err)
{
    const uint64_t next = r->tensor_next;
    if (next < r->length[DS_TABLE_TENSORS] && tensor_digest(r, (size_t)next) == digest &&
        is_sound(r, (size_t)next)) {
        r->tensor_next = next + 1;
        return (int64_t)next + 1;
    }
    if (!r->tensor_at && index_tensors(r, err) != 0)
        return -1;
    const uint32_t at = (uint32_t)*tensor_slot(r, digest);
    r->tensor_next = at ? at : r->tensor_next;
    return at;
}

/* More than this does not stay in a cache until it is looked at. */
enum { MOST_AHEAD = 1 << 19 };

void ds_record_hold(struct ds_record *r, uint64_t bytes)
{
    r->ahead.most = bytes == 0 ? 1 : bytes > MOST_AHEAD ? MOST_AHEAD : bytes;
}

/* Reads from `first` on. Where rows follow each other in the file, twice as much each time; where they
 * lie apart, no more than is asked for. */
static int read_ahead(struct ds_record *r, uint64_t first, uint64_t n, int *damage,
                      struct ds_error *err)
{
    uint64_t length = r->length[DS_TABLE_TENSOR_BYTES],
             most = r->ahead.most ? r->ahead.most : MOST_AHEAD, end = r->ahead.first + r->ahead.n,
             want = n;
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

/* Reads the row that entry i of /tensors tells of. 1; -1: *damage tells a damaged file, which is noted, from
 * want of memory. */
static int read_row(struct ds_record *r, size_t i, struct ds_blob *out, int *damage,
                    struct ds_error *err)
{
    struct ds_tensor_row tensor, *row = &tensor;
    const uint64_t digest = tensor_digest(r, i);
    ds_table_unpack(DS_TABLE_TENSORS, row, r->tensors + i * ds_table_bytes(DS_TABLE_TENSORS), 1);
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
    if (i < r->tensors_needed && !(r->held[i / 8] >> i % 8 & 1u)) {
        r->held[i / 8] |= (uint8_t)(1u << i % 8);
        r->held_rows++;
        r->held_bytes += row->bytes;
    }
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

/* In the order of the file, so that it is read in few large pieces. */
int ds_record_hold_rows(struct ds_record *r, struct ds_error *err)
{
    int damage = 0;
    if (ds_h5_enter(err) != 0 || (!r->tensors && read_tensors(r, &damage, err) != 0))
        return damage ? 1 : -1;
    for (size_t i = 0; i < r->tensors_needed; i++) {
        struct ds_blob row;
        damage = 1;
        if (r->held[i / 8] >> i % 8 & 1u) /* it was, when somebody asked for it */
            continue;
        if (!is_sound(r, i))
            ds_record_note_row(r, tensor_digest(r, i), 0, "its entry in /tensors is damaged");
        else if (read_row(r, i, &row, &damage, err) < 0 && !damage)
            return -1;
    }
    return 0;
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
