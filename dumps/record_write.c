/* record_write.c: creates a record and appends trials. Owns the order in which things reach the
 * file; one thread makes all calls.
 *
 * A trial is written payload first, H5Fflush, then its row with the checksums, H5Fflush: a reader
 * that sees the row can read what it refers to, and a killed writer leaves every earlier trial
 * whole. What is equal to something already stored (the same calls, rows, digests ... of another
 * trial, a launch, a dumped row) is not stored again: the trial's row points to it.
 *
 * After a failed HDF5 call no other one is made, in this process, ever: the library's caches then
 * hold what the file does not, and any further flush or close could destroy what is readable. */
#include "dumps/record_h5.h"
#include "dumps/record_place.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Blocks of metadata never cross a boundary of so many bytes. The kernel copies a write page by
 * page and SIGKILL can stop it between two: a block across them would be half old and half new,
 * with a wrong checksum, and the record lost (seen: 1 kill in 600). */
enum { PAGE = 4096 };

struct ds_writer {
    struct ds_place place;
    hid_t file, dataset[DS_GROWING], type[DS_GROWING];
    uint64_t length[DS_GROWING]; /* rows in each growing table */
    struct ds_map stored;
    struct ds_header limits; /* only the counts that ds_trial_data_check asks for */
    int failed;              /* nothing more is accepted */
    int hdf5_failed;         /* ... and no HDF5 call is made */
};

static int hdf5_failed(struct ds_writer *w, const char *what, struct ds_error *err)
{
    w->failed = w->hdf5_failed = 1;
    ds_h5_fail(err, "%s: cannot write %s", w->place.target, what);
    ds_h5_poison();
    return -1;
}

/* ---- creation -------------------------------------------------------------------------------- */

/* A dataset of `rows` rows (fixed, contiguous), or a growing one in chunks when the table grows. */
static hid_t create_table(hid_t file, int id, hid_t type, hsize_t rows)
{
    hsize_t unlimited = H5S_UNLIMITED, chunk = ds_table(id)->chunk_rows;
    int grows = id < DS_GROWING;
    hid_t space = H5Screate_simple(1, &rows, grows ? &unlimited : NULL),
          plist = H5Pcreate(H5P_DATASET_CREATE);
    if (space < 0 || plist < 0 || H5Pset_obj_track_times(plist, 0) < 0 ||
        (grows && H5Pset_chunk(plist, 1, &chunk) < 0))
        return -1;
    hid_t dataset =
        H5Dcreate2(file, ds_table(id)->name, type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    if (dataset < 0 || H5Sclose(space) < 0 || H5Pclose(plist) < 0)
        return -1;
    return dataset;
}

static int write_attributes(hid_t file, const struct ds_identity *identity)
{
    const struct ds_table *t = ds_table(DS_TABLE_IDENTITY);
    char packed[1024], *from = packed;
    ds_table_pack(DS_TABLE_IDENTITY, packed, identity, 1);
    hid_t scalar = H5Screate(H5S_SCALAR);
    for (size_t i = 0; i < t->n_fields; i++) {
        hid_t type = ds_h5_field_type(&t->fields[i]);
        hid_t attribute =
            type < 0 ? -1
                     : H5Acreate2(file, t->fields[i].name, type, scalar, H5P_DEFAULT, H5P_DEFAULT);
        if (attribute < 0 || H5Awrite(attribute, type, from) < 0 || H5Aclose(attribute) < 0 ||
            H5Tclose(type) < 0)
            return -1;
        from += t->fields[i].bytes;
    }
    return H5Sclose(scalar) < 0 ? -1 : 0;
}

/* Creates all objects; SWMR allows none later. */
static int write_objects(struct ds_writer *w, const struct ds_header_image *image)
{
    if (write_attributes(w->file, &image->identity) != 0)
        return -1;
    for (int id = 0; id < DS_STORED; id++) {
        size_t rows = id < DS_GROWING ? 0 : image->table[id].rows;
        hid_t type = ds_h5_type(id),
              dataset = type < 0 ? -1 : create_table(w->file, id, type, rows);
        if (dataset < 0 || ds_h5_rows(1, dataset, type, 0, rows, image->table[id].bytes) != 0 ||
            H5Dclose(dataset) < 0)
            return -1;
        if (id < DS_GROWING)
            w->type[id] = type;
        else if (H5Tclose(type) < 0)
            return -1;
    }
    return 0;
}

static int create_file(struct ds_writer *w, const struct ds_header_image *image)
{
    hid_t access = ds_h5_access(), create = H5Pcreate(H5P_FILE_CREATE);
    /* The few links and attributes of the root group stay in its header: one block, one checksum.
     */
    if (access < 0 || create < 0 ||
        H5Pset_file_space_strategy(create, H5F_FSPACE_STRATEGY_PAGE, 0, 1) < 0 ||
        H5Pset_file_space_page_size(create, PAGE) < 0 ||
        H5Pset_link_phase_change(create, 64, 32) < 0 ||
        H5Pset_attr_phase_change(create, 64, 32) < 0)
        return -1;
    w->file = H5Fcreate(w->place.file, H5F_ACC_TRUNC, create, access);
    if (w->file < 0 || H5Pclose(access) < 0 || H5Pclose(create) < 0 ||
        write_objects(w, image) != 0 || H5Fstart_swmr_write(w->file) < 0)
        return -1;
    for (int id = 0; id < DS_GROWING; id++)
        if ((w->dataset[id] = H5Dopen2(w->file, ds_table(id)->name, H5P_DEFAULT)) < 0)
            return -1;
    void *fd;
    if (H5Fget_vfd_handle(w->file, H5P_DEFAULT, &fd) < 0)
        return -1;
    ds_place_mark(*(int *)fd);
    return H5Fflush(w->file, H5F_SCOPE_GLOBAL) < 0 ? -1 : 0;
}

static void free_writer(struct ds_writer *w)
{
    ds_place_free(&w->place);
    ds_map_free(&w->stored);
    free(w);
}

/* Closing the file closes its datasets (H5F_CLOSE_STRONG); types live apart. */
static int close_file(struct ds_writer *w)
{
    for (int id = 0; id < DS_GROWING; id++)
        if (H5Tclose(w->type[id]) < 0)
            return -1;
    return H5Fclose(w->file) < 0 ? -1 : 0;
}

int ds_writer_create(const char *path, int force, const struct ds_header *h, struct ds_writer **out,
                     int *local, struct ds_error *err)
{
    struct ds_header_image image;
    *out = NULL;
    if (ds_h5_enter(err) != 0 || ds_header_pack(h, &image, err) != 0)
        return ds_prefix(err, "%s", path);
    struct ds_writer *w = ds_calloc(1, sizeof *w, "record writer", err);
    if (!w || ds_place_open(path, force, &w->place, err) != 0) {
        ds_header_image_free(&image);
        free(w);
        return -1;
    }
    w->limits.n_arms = h->n_arms;
    w->limits.n_sites = h->n_sites;
    w->limits.n_weights = h->n_weights;
    int failed = create_file(w, &image) != 0 ? hdf5_failed(w, "the header", err) : 0;
    ds_header_image_free(&image);
    if (!failed && ds_place_born(&w->place, err) != 0) {
        failed = 1;
        if (close_file(w) != 0)
            ds_h5_poison();
    }
    if (failed) {
        free_writer(w);
        return -1;
    }
    if (local)
        *local = w->place.local;
    *out = w;
    return 0;
}

const char *ds_writer_path(const struct ds_writer *w)
{
    return w->place.file;
}

/* ---- one trial ------------------------------------------------------------------------------- */

/* Appends packed rows to a growing table; *first says where they lie. */
static int append(struct ds_writer *w, int id, const void *packed, uint64_t n, uint64_t *first,
                  struct ds_error *err)
{
    *first = w->length[id];
    if (n == 0)
        return 0;
    hsize_t length = w->length[id] + n;
    /* HDF5 takes a non-const buffer for reading and writing alike; a write leaves it alone. */
    void *bytes;
    memcpy(&bytes, &packed, sizeof bytes);
    if (H5Dset_extent(w->dataset[id], &length) < 0 ||
        ds_h5_rows(1, w->dataset[id], w->type[id], w->length[id], n, bytes) != 0)
        return hdf5_failed(w, ds_table(id)->name, err);
    w->length[id] = length;
    return 0;
}

/* Places n packed rows: where equal ones lie already, or at the end of the table. */
static int place(struct ds_writer *w, int id, const void *packed, uint64_t n, uint64_t *first,
                 struct ds_error *err)
{
    *first = 0;
    if (n == 0)
        return 0;
    struct ds_map_key key = ds_map_content(id, packed, n * ds_table_bytes(id), n);
    const uint64_t *known = ds_map_get(&w->stored, &key);
    if (known) {
        *first = *known;
        return 0;
    }
    return append(w, id, packed, n, first, err) != 0 ||
                   ds_map_put(&w->stored, &key, *first, err) != 0
               ? -1
               : 0;
}

static int finish_part(struct ds_writer *w, struct ds_trial_row *row, int id, const void *packed,
                       uint64_t n, struct ds_part *part, struct ds_error *err)
{
    row->count[id] = part->count = n;
    part->hash = ds_checksum_bytes(packed, n * ds_table_bytes(id));
    return place(w, id, packed, n, &row->first[id], err);
}

static int add_table(struct ds_writer *w, struct ds_trial_row *row, int id, const void *structs,
                     uint64_t n, struct ds_part *part, struct ds_error *err)
{
    void *packed = ds_calloc(n, ds_table_bytes(id), ds_table(id)->name, err);
    if (!packed)
        return -1;
    ds_table_pack(id, packed, structs, n);
    int rc = finish_part(w, row, id, packed, n, part, err);
    free(packed);
    return rc;
}

/* Launches are stored once each; the trial has a list of their numbers. The checksum is over the
 * launches themselves. */
static int add_launches(struct ds_writer *w, struct ds_trial_row *row,
                        const struct ds_trial_data *t, struct ds_part *part, struct ds_error *err)
{
    size_t bytes = ds_table_bytes(DS_TABLE_LAUNCHES), n = t->n_launches;
    char *packed = ds_calloc(n, bytes, "launches", err);
    uint32_t *refs = packed ? ds_calloc(n, sizeof *refs, "launches", err) : NULL;
    int failed = refs == NULL;
    if (packed)
        ds_table_pack(DS_TABLE_LAUNCHES, packed, t->launches, n);
    for (size_t i = 0; !failed && i < n; i++) {
        uint64_t first;
        failed = place(w, DS_TABLE_LAUNCHES, packed + i * bytes, 1, &first, err) != 0;
        if (!failed && first > UINT32_MAX)
            failed = ds_fail(err, "launches: more than a record can hold");
        if (!failed)
            refs[i] = (uint32_t)first;
    }
    if (!failed)
        failed = finish_part(w, row, DS_TABLE_LAUNCH_REFS, refs, n, part, err) != 0;
    if (!failed)
        part->hash = ds_checksum_bytes(packed, n * bytes);
    free(refs);
    free(packed);
    return failed ? -1 : 0;
}

/* What one trial brings of dumped rows that the file does not have yet. */
struct fresh {
    char *bytes;
    size_t n_bytes, bytes_cap;
    struct ds_tensor_row *rows;
    size_t n_rows, rows_cap;
};

static int collect_blob(struct ds_writer *w, const struct ds_blob *b, struct fresh *f,
                        struct ds_error *err)
{
    struct ds_map_key key = {b->digest, 0, 0, DS_TABLE_TENSORS};
    const uint64_t *known = ds_map_get(&w->stored, &key);
    if (known)
        return *known == b->bytes
                   ? 0
                   : ds_fail(err,
                             "dumped rows: two rows of %llu and %u bytes have the digest %016llx",
                             (unsigned long long)*known, b->bytes, (unsigned long long)b->digest);
    if (ds_grow(&f->bytes, &f->bytes_cap, f->n_bytes + b->bytes, 1, "dumped rows", err) != 0 ||
        ds_grow(&f->rows, &f->rows_cap, f->n_rows + 1, sizeof *f->rows, "dumped rows", err) != 0 ||
        ds_map_put(&w->stored, &key, b->bytes, err) != 0)
        return -1;
    struct ds_tensor_row *row = &f->rows[f->n_rows++];
    row->digest = b->digest;
    memcpy(row->dtype, b->dtype, sizeof row->dtype);
    row->elements = b->elements;
    row->bytes = b->bytes;
    row->first = w->length[DS_TABLE_TENSOR_BYTES] + f->n_bytes;
    if (b->bytes)
        memcpy(f->bytes + f->n_bytes, b->data, b->bytes);
    f->n_bytes += b->bytes;
    return 0;
}

static int append_fresh(struct ds_writer *w, struct fresh *f, struct ds_error *err)
{
    size_t bytes = ds_table_bytes(DS_TABLE_TENSORS);
    char *packed = ds_calloc(f->n_rows, bytes, "dumped rows", err);
    if (!packed)
        return -1;
    for (size_t i = 0; i < f->n_rows; i++) {
        ds_table_pack(DS_TABLE_TENSORS, packed + i * bytes, &f->rows[i], 1);
        f->rows[i].check = ds_checksum_bytes(packed + i * bytes, bytes - sizeof(uint64_t));
        ds_table_pack(DS_TABLE_TENSORS, packed + i * bytes, &f->rows[i], 1);
    }
    uint64_t first;
    int failed = append(w, DS_TABLE_TENSOR_BYTES, f->bytes, f->n_bytes, &first, err) != 0 ||
                 append(w, DS_TABLE_TENSORS, packed, f->n_rows, &first, err) != 0;
    free(packed);
    return failed ? -1 : 0;
}

static int add_blobs(struct ds_writer *w, struct ds_trial_row *row, const struct ds_trial_data *t,
                     struct ds_part *part, struct ds_error *err)
{
    struct fresh f = {0};
    uint64_t *digests = ds_calloc(t->n_blobs, sizeof *digests, "dumped rows", err);
    int failed = digests == NULL;
    for (size_t i = 0; !failed && i < t->n_blobs; i++) {
        digests[i] = t->blobs[i].digest;
        failed = collect_blob(w, &t->blobs[i], &f, err) != 0;
    }
    if (!failed)
        failed = append_fresh(w, &f, err) != 0;
    if (!failed)
        failed = finish_part(w, row, DS_TABLE_BLOBS, digests, t->n_blobs, part, err) != 0;
    row->tensors = w->length[DS_TABLE_TENSORS];
    free(f.bytes);
    free(f.rows);
    free(digests);
    return failed ? -1 : 0;
}

static int add_payload(struct ds_writer *w, struct ds_trial_row *row, const struct ds_trial_data *t,
                       struct ds_error *err)
{
    struct ds_part part[DS_RANGES];
    if (add_table(w, row, DS_TABLE_CALLS, t->calls, t->n_calls, &part[DS_TABLE_CALLS], err) != 0 ||
        add_table(w, row, DS_TABLE_ROWS, t->rows, t->n_rows, &part[DS_TABLE_ROWS], err) != 0 ||
        add_launches(w, row, t, &part[DS_TABLE_LAUNCH_REFS], err) != 0 ||
        add_table(w, row, DS_TABLE_CAPTURES, t->captures, t->n_captures, &part[DS_TABLE_CAPTURES],
                  err) != 0 ||
        finish_part(w, row, DS_TABLE_DIGESTS, t->digests, t->n_digests, &part[DS_TABLE_DIGESTS],
                    err) != 0 ||
        add_table(w, row, DS_TABLE_DRIFT, t->drifts, t->n_drifts, &part[DS_TABLE_DRIFT], err) !=
            0 ||
        add_table(w, row, DS_TABLE_NONFINITE, t->nonfinites, t->n_nonfinites,
                  &part[DS_TABLE_NONFINITE], err) != 0 ||
        add_table(w, row, DS_TABLE_STEPS, t->steps, t->n_steps, &part[DS_TABLE_STEPS], err) != 0 ||
        add_table(w, row, DS_TABLE_PACKED, t->packed, t->n_packed, &part[DS_TABLE_PACKED], err) !=
            0 ||
        add_blobs(w, row, t, &part[DS_TABLE_BLOBS], err) != 0 ||
        add_table(w, row, DS_TABLE_FAILURES, t->failures, t->n_failures, &part[DS_TABLE_FAILURES],
                  err) != 0 ||
        add_table(w, row, DS_TABLE_RANGES, t->ranges, t->n_ranges, &part[DS_TABLE_RANGES], err) !=
            0 ||
        add_table(w, row, DS_TABLE_MASKS, t->masks, t->n_masks, &part[DS_TABLE_MASKS], err) != 0 ||
        finish_part(w, row, DS_TABLE_MASK_WORDS, t->mask_words, t->n_mask_words,
                    &part[DS_TABLE_MASK_WORDS], err) != 0)
        return -1;
    row->checksum = ds_checksum_parts(part, DS_RANGES);
    return 0;
}

static int append_row(struct ds_writer *w, struct ds_trial_row *row, struct ds_error *err)
{
    char packed[1024];
    size_t bytes = ds_table_bytes(DS_TABLE_TRIALS);
    ds_table_pack(DS_TABLE_TRIALS, packed, row, 1);
    row->row_checksum = ds_checksum_bytes(packed, bytes - sizeof(uint64_t));
    ds_table_pack(DS_TABLE_TRIALS, packed, row, 1);
    uint64_t first;
    return append(w, DS_TABLE_TRIALS, packed, 1, &first, err);
}

static int check_trial(const struct ds_writer *w, const struct ds_trial_data *t,
                       struct ds_error *err)
{
    if (ds_trial_data_check(&w->limits, t, err) != 0)
        return ds_prefix(err, "%s: the trial is not written", w->place.target);
    for (size_t i = 0; i < t->n_blobs; i++)
        if (ds_checksum_bytes(t->blobs[i].data, t->blobs[i].bytes) != t->blobs[i].digest)
            return ds_fail(err,
                           "%s: the trial is not written: dumped row %zu does not have its digest",
                           w->place.target, i);
    return 0;
}

int ds_writer_add(struct ds_writer *w, const struct ds_trial_data *t, struct ds_error *err)
{
    if (w->failed)
        return ds_fail(err, "%s: an earlier write failed; nothing more is written",
                       w->place.target);
    if (ds_h5_enter(err) != 0 || check_trial(w, t, err) != 0)
        return -1;
    struct ds_trial_row row;
    memset(&row, 0, sizeof row);
    row.info = t->info;
    int failed = add_payload(w, &row, t, err) != 0;
    if (!failed && H5Fflush(w->file, H5F_SCOPE_GLOBAL) < 0)
        failed = hdf5_failed(w, "the trial", err);
    if (!failed)
        failed = append_row(w, &row, err) != 0;
    if (!failed && H5Fflush(w->file, H5F_SCOPE_GLOBAL) < 0)
        failed = hdf5_failed(w, "the trial's row", err);
    if (failed)
        w->failed = 1;
    return failed ? -1 : 0;
}

int ds_writer_close(struct ds_writer *w, struct ds_error *err)
{
    if (!w)
        return 0;
    int rc = 0;
    if (!w->hdf5_failed) {
        rc = ds_h5_enter(err);
        if (rc == 0 && close_file(w) != 0)
            rc = hdf5_failed(w, "the end of the file", err);
        if (rc == 0)
            rc = ds_place_close(&w->place, err);
    }
    free_writer(w);
    return rc;
}
