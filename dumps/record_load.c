/* record_load.c: the payload of an open record: trials, and copying complete trials to a new file. Nothing is believed before its checksum was found right. Blocks that several trials
 * share are read and held once. */
#include "dumps/record_read.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- blocks ---------------------------------------------------------------------------------- */

/* All of /launches, packed and as structs. */
static int load_launches(struct ds_record *r, int *damage, struct ds_error *err)
{
    if (r->launches)
        return 0;
    uint64_t n = r->length[DS_TABLE_LAUNCHES];
    char *packed = ds_record_rows(r, DS_TABLE_LAUNCHES, 0, n, damage, err);
    struct ds_launch *launches =
        packed ? ds_calloc((size_t)n, sizeof *launches, "launches", err) : NULL;
    if (!launches) {
        free(packed);
        return -1;
    }
    ds_table_unpack(DS_TABLE_LAUNCHES, launches, packed, (size_t)n);
    r->launches = launches;
    r->launches_packed = packed;
    return 0;
}

/* Turns a trial's list of launch numbers into the launches, and hashes those. */
static int resolve_launches(struct ds_record *r, const uint32_t *refs, uint64_t n,
                            struct ds_block *block, int *damage, struct ds_error *err)
{
    size_t bytes = ds_table_bytes(DS_TABLE_LAUNCHES);
    if (load_launches(r, damage, err) != 0)
        return -1;
    struct ds_launch *launches = ds_calloc((size_t)n, sizeof *launches, "launches", err);
    char *packed = launches ? ds_calloc((size_t)n, bytes, "launches", err) : NULL;
    int failed = packed == NULL;
    for (uint64_t i = 0; !failed && i < n; i++) {
        if (refs[i] >= r->length[DS_TABLE_LAUNCHES]) {
            *damage = failed = 1;
            ds_fail(err, "%s: /launch_refs: launch %u of %llu", r->path, refs[i],
                    (unsigned long long)r->length[DS_TABLE_LAUNCHES]);
            continue;
        }
        launches[i] = r->launches[refs[i]];
        memcpy(packed + i * bytes, r->launches_packed + refs[i] * bytes, bytes);
    }
    if (!failed)
        block->hash = ds_checksum_bytes(packed, (size_t)n * bytes);
    free(packed);
    if (failed) {
        free(launches);
        return -1;
    }
    block->structs = launches;
    return 0;
}

static int read_block(struct ds_record *r, int id, uint64_t first, uint64_t n,
                      struct ds_block *block, int *damage, struct ds_error *err)
{
    void *packed = ds_record_rows(r, id, first, n, damage, err);
    void *structs =
        packed ? ds_calloc((size_t)n, ds_table(id)->struct_bytes, ds_table(id)->name, err) : NULL;
    if (!structs) {
        free(packed);
        return -1;
    }
    block->hash = ds_checksum_bytes(packed, (size_t)n * ds_table_bytes(id));
    block->structs = structs;
    block->bytes = n * ds_table(id)->struct_bytes;
    ds_table_unpack(id, structs, packed, (size_t)n);
    free(packed);
    if (id != DS_TABLE_LAUNCH_REFS)
        return 0;
    block->bytes = n * sizeof(struct ds_launch);
    int rc = resolve_launches(r, structs, n, block, damage, err);
    free(structs);
    return rc;
}

/* A block that was let go of: it must be what it was, since nobody asks for its trial's checksum again. */
static int read_once_more(struct ds_record *r, int id, uint64_t first, uint64_t n,
                          struct ds_block *block, int *damage, struct ds_error *err)
{
    struct ds_block now = {.structs = NULL};
    if (read_block(r, id, first, n, &now, damage, err) != 0)
        return -1;
    if (now.hash != block->hash) {
        free(now.structs);
        *damage = 1;
        return ds_fail(err, "%s: /%s: rows %llu + %llu are not what they were", r->path,
                       ds_table(id)->name, (unsigned long long)first, (unsigned long long)n);
    }
    block->structs = now.structs;
    r->loaded += block->bytes;
    return 0;
}

/* The block's index in r->blocks, read at first use; -1. Sound or not: that is seen from a trial's
 * checksum. */
static int64_t get_block(struct ds_record *r, int id, uint64_t first, uint64_t n, int *damage,
                         struct ds_error *err)
{
    struct ds_map_key key = {n ? first : 0, 0, n, (uint32_t)id};
    const uint64_t *known = ds_map_get(&r->block_at, &key);
    *damage = 0;
    if (known)
        return r->blocks[*known].structs ||
                       read_once_more(r, id, n ? first : 0, n, &r->blocks[*known], damage, err) == 0
                   ? (int64_t)*known
                   : -1;
    struct ds_block block = {.structs = NULL};
    if (ds_grow(&r->blocks, &r->blocks_cap, r->n_blocks + 1, sizeof *r->blocks, "blocks", err) !=
            0 ||
        read_block(r, id, n ? first : 0, n, &block, damage, err) != 0)
        return -1;
    if (ds_map_put(&r->block_at, &key, r->n_blocks, err) != 0) {
        free(block.structs);
        return -1;
    }
    r->blocks[r->n_blocks] = block;
    r->loaded += block.bytes;
    return (int64_t)r->n_blocks++;
}

static struct ds_block *block_of(struct ds_record *r, const struct ds_trial_row *row, int id)
{
    const uint64_t n = row->count[id];
    const struct ds_map_key key = {n ? row->first[id] : 0, 0, n, (uint32_t)id};
    return &r->blocks[*ds_map_get(&r->block_at, &key)];
}

/* ---- trials ---------------------------------------------------------------------------------- */

static void fill_arrays(struct ds_trial_data *t, const struct ds_trial_row *row,
                        void *const *arrays)
{
    t->info = row->info;
    t->calls = arrays[DS_TABLE_CALLS];
    t->n_calls = (size_t)row->count[DS_TABLE_CALLS];
    t->rows = arrays[DS_TABLE_ROWS];
    t->n_rows = (size_t)row->count[DS_TABLE_ROWS];
    t->launches = arrays[DS_TABLE_LAUNCH_REFS];
    t->n_launches = (size_t)row->count[DS_TABLE_LAUNCH_REFS];
    t->captures = arrays[DS_TABLE_CAPTURES];
    t->n_captures = (size_t)row->count[DS_TABLE_CAPTURES];
    t->digests = arrays[DS_TABLE_DIGESTS];
    t->n_digests = (size_t)row->count[DS_TABLE_DIGESTS];
    t->drifts = arrays[DS_TABLE_DRIFT];
    t->n_drifts = (size_t)row->count[DS_TABLE_DRIFT];
    t->nonfinites = arrays[DS_TABLE_NONFINITE];
    t->n_nonfinites = (size_t)row->count[DS_TABLE_NONFINITE];
    t->steps = arrays[DS_TABLE_STEPS];
    t->n_steps = (size_t)row->count[DS_TABLE_STEPS];
    t->packed = arrays[DS_TABLE_PACKED];
    t->n_packed = (size_t)row->count[DS_TABLE_PACKED];
    t->n_dumped = (size_t)row->count[DS_TABLE_BLOBS];
    t->failures = arrays[DS_TABLE_FAILURES];
    t->n_failures = (size_t)row->count[DS_TABLE_FAILURES];
    t->ranges = arrays[DS_TABLE_RANGES];
    t->n_ranges = (size_t)row->count[DS_TABLE_RANGES];
    t->masks = arrays[DS_TABLE_MASKS];
    t->n_masks = (size_t)row->count[DS_TABLE_MASKS];
    t->mask_words = arrays[DS_TABLE_MASK_WORDS];
    t->n_mask_words = (size_t)row->count[DS_TABLE_MASK_WORDS];
}

static int load_trial(struct ds_record *r, size_t i, struct ds_trial_data *t,
                      const uint64_t **blobs, int *damage, struct ds_error *err)
{
    const struct ds_trial_row *row = &r->trials[i].row;
    struct ds_part part[DS_RANGES];
    void *arrays[DS_RANGES];
    for (int id = 0; id < DS_RANGES; id++) {
        int64_t at = get_block(r, id, row->first[id], row->count[id], damage, err);
        if (at < 0)
            return -1;
        part[id].count = row->count[id];
        part[id].hash = r->blocks[at].hash;
        arrays[id] = r->blocks[at].structs;
    }
    *damage = 1;
    if (ds_checksum_parts(part, DS_RANGES) != row->checksum) {
        ds_fail(err, "%s: trial %zu does not have its checksum: the file is damaged or cut short",
                r->path, i);
        return ds_hint(err, "driftscope run --resume does the damaged trials again");
    }
    fill_arrays(t, row, arrays);
    *blobs = arrays[DS_TABLE_BLOBS];
    if (ds_trial_data_check(&r->header, t, err) != 0)
        return ds_prefix(err, "%s: trial %zu", r->path, i);
    for (int id = 0; id < DS_RANGES; id++)
        block_of(r, row, id)->users++;
    return 0;
}

static void let_go(struct ds_record *r, struct ds_block *block)
{
    if (block->users == 0 || --block->users > 0)
        return;
    free(block->structs);
    block->structs = NULL;
    r->loaded -= block->bytes;
}

void ds_record_forget(struct ds_record *r, size_t i, int what)
{
    struct ds_trial_slot *slot = i < r->n_trials ? &r->trials[i] : NULL;
    if (!slot || !slot->data)
        return;
    for (int id = 0; id < DS_RANGES; id++)
        if (id == DS_TABLE_DIGESTS ? slot->data->digests != NULL : what == DS_FORGET_ALL)
            let_go(r, block_of(r, &slot->row, id));
    slot->data->digests = NULL;
    if (what != DS_FORGET_ALL)
        return;
    free(slot->data);
    slot->data = NULL;
    slot->blobs = NULL;
}

uint64_t ds_record_trial_bytes(const struct ds_record *r, size_t i)
{
    uint64_t bytes = 0;
    for (int id = 0; i < r->n_trials && id < DS_RANGES; id++)
        bytes +=
            r->trials[i].row.count[id] *
            (id == DS_TABLE_LAUNCH_REFS ? sizeof(struct ds_launch) : ds_table(id)->struct_bytes);
    return bytes;
}

uint64_t ds_record_loaded(const struct ds_record *r)
{
    return r->loaded;
}

uint64_t ds_record_indexed(const struct ds_record *r)
{
    return (r->launches ? r->length[DS_TABLE_LAUNCHES] *
                              (sizeof *r->launches + ds_table_bytes(DS_TABLE_LAUNCHES))
                        : 0) +
           (r->tensors ? r->length[DS_TABLE_TENSORS] *
                             (ds_table_bytes(DS_TABLE_TENSORS) + sizeof *r->tensor_digests)
                       : 0) +
           (r->tensor_at ? (r->tensor_mask + 1) * sizeof *r->tensor_at : 0);
}

/* Digests that were let go of. */
static int load_digests(struct ds_record *r, struct ds_trial_slot *slot, struct ds_error *err)
{
    const struct ds_trial_row *row = &slot->row;
    int damage;
    int64_t at = get_block(r, DS_TABLE_DIGESTS, row->first[DS_TABLE_DIGESTS],
                           row->count[DS_TABLE_DIGESTS], &damage, err);
    if (at < 0)
        return -1;
    r->blocks[at].users++;
    slot->data->digests = r->blocks[at].structs;
    return 0;
}

const struct ds_trial_data *ds_record_load(struct ds_record *r, size_t i, struct ds_error *err)
{
    if (i >= r->n_trials) {
        ds_fail(err, "%s: trial %zu of %zu", r->path, i, r->n_trials);
        return NULL;
    }
    struct ds_trial_slot *slot = &r->trials[i];
    if (slot->data && slot->data->digests)
        return slot->data;
    if (ds_h5_enter(err) != 0)
        return NULL;
    if (slot->data)
        return load_digests(r, slot, err) == 0 ? slot->data : NULL;
    struct ds_trial_data *t = ds_calloc(1, sizeof *t, "trial", err);
    int damage = 0;
    if (t && load_trial(r, i, t, &slot->blobs, &damage, err) == 0) {
        slot->data = t;
        return t;
    }
    free(t);
    r->damaged += damage && !slot->damaged;
    slot->damaged |= damage;
    return NULL;
}

/* ---- copying --------------------------------------------------------------------------------- */

static void free_blobs(struct ds_blob *blobs, size_t n)
{
    for (size_t i = 0; blobs && i < n; i++)
        free(blobs[i].data);
    free(blobs);
}

/* All rows that a loaded trial dumped. NULL: *damage tells whether the file is to blame. */
static struct ds_blob *load_blobs(struct ds_record *r, size_t i, int *damage, struct ds_error *err)
{
    size_t n = (size_t)r->trials[i].row.count[DS_TABLE_BLOBS];
    *damage = 0;
    struct ds_blob *blobs = ds_calloc(n, sizeof *blobs, "dumped rows", err);
    for (size_t k = 0; blobs && k < n; k++) {
        int found = ds_record_find_blob(r, r->trials[i].blobs[k], &blobs[k], damage, err);
        if (found == 1)
            continue;
        if (found == 0)
            ds_fail(err, "%s: trial %zu: the dumped row %016llx is missing", r->path, i,
                    (unsigned long long)r->trials[i].blobs[k]);
        free_blobs(blobs, n);
        return NULL;
    }
    return blobs;
}

/* Trial i with its dumped rows (the caller frees those). 1; 0 when it is damaged, which is counted;
 * -1. */
static int load_whole(struct ds_record *r, size_t i, struct ds_trial_data *whole,
                      struct ds_error *err)
{
    const struct ds_trial_data *t = ds_record_load(r, i, err);
    int damage = r->trials[i].damaged;
    struct ds_blob *blobs = t && !damage ? load_blobs(r, i, &damage, err) : NULL;
    if (!blobs) {
        r->trials[i].rows_damaged |= damage;
        return damage ? 0 : -1;
    }
    *whole = *t;
    whole->blobs = blobs;
    whole->n_blobs = (size_t)r->trials[i].row.count[DS_TABLE_BLOBS];
    return 1;
}

/* 0 also when the trial is damaged and left out. */
static int copy_trial(struct ds_record *r, size_t i, struct ds_writer *w, struct ds_error *err)
{
    struct ds_trial_data whole;
    int rc = load_whole(r, i, &whole, err);
    if (rc <= 0)
        return rc;
    rc = ds_writer_add(w, &whole, err);
    free_blobs(whole.blobs, whole.n_blobs);
    return rc;
}

int ds_record_copy(struct ds_record *r, const char *path, struct ds_writer **out,
                   struct ds_error *err)
{
    struct ds_writer *w;
    *out = NULL;
    if (ds_writer_create(path, 0, &r->header, &w, NULL, err) != 0)
        return -1;
    for (size_t i = 0; i < r->n_trials; i++)
        if (copy_trial(r, i, w, err) != 0) {
            /* A part of a copy is of no use to anyone; the name was free before. */
            unlink(ds_writer_path(w));
            ds_writer_close(w, NULL);
            return -1;
        }
    *out = w;
    return 0;
}
