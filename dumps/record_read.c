/* record_read.c: opens a record (finished, killed or still growing) as hostile input: the
 * superblock before the library sees it, then the objects, then the header with its checksum, then
 * the trials' rows with theirs. Reads no payload: see record_load.c.
 *
 * What a file can make this program do is bounded by the file's size: a table is believed to have
 * at most as many rows as would fit in the file, texts and tokens are used once each, and the
 * blocks that trials point to are the same or apart. */
#include "dumps/record_read.h"

#include "base/buf.h"
#include "base/mem.h"
#include "dumps/record_place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    READ_ATTEMPTS =
        20, /* of a block whose checksum is wrong; HDF5 waits twice as long each time, from a nanosecond on: this
                           is 1 ms. Its default can take years */
    /* The same in a file that a process is writing, which may have been sent to sleep in the middle of that block: 1 s. */
    WRITER_ATTEMPTS = 30,
    OPEN_ATTEMPTS = 20, /* of a file that grows at each look */
    SUPERBLOCK_BYTES = 48
};

/* ---- before the library ---------------------------------------------------------------------- */

/* What was meant, by the first bytes of a file that is no record. */
static void hint_by_head(const char *path, const unsigned char *head, ssize_t n,
                         struct ds_error *err)
{
    if (n >= 4 && memcmp(head, "GGUF", 4) == 0)
        ds_hint(err, "it is a model: driftscope run -m %.300s makes a record of it", path);
    else if (n >= 15 && memcmp(head, "driftscope.lock", 15) == 0)
        ds_hint(err, "it is a lock: driftscope verify %.300s", path);
    else if (n >= 1 && head[0] == '{')
        ds_hint(err, "responses of an engine are read by driftscope fingerprint");
    else
        ds_hint(err, "a record is what run, storm and onpolicy write (-o FILE.h5)");
}

/* Does not wait for a pipe's other end (O_NONBLOCK) and reads only a regular file. */
static int check_file(const char *path, struct ds_error *err)
{
    static const unsigned char signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    unsigned char head[SUPERBLOCK_BYTES] = {0};
    struct stat st;
    ssize_t n = 0;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return ds_fail(err, "%s: %s", path, strerror(errno));
    int rc = 0;
    if (fstat(fd, &st) != 0)
        rc = ds_fail(err, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode)) {
        rc = ds_fail(err, "%s: is %s, not a record", path,
                     S_ISDIR(st.st_mode) ? "a directory" : "not a regular file");
        ds_hint(err, "a record is one file, which run, storm and onpolicy write (-o FILE.h5)");
    } else if (st.st_size == 0)
        rc = ds_fail(err, "%s: is empty, not a record", path);
    else if ((n = pread(fd, head, sizeof head, 0)) != (ssize_t)sizeof head ||
             memcmp(head, signature, sizeof signature) != 0) {
        rc = ds_fail(err, "%s: is not a record (no HDF5 signature at its start)", path);
        hint_by_head(path, head, n, err);
    } else if (head[8] != 3 || head[9] != 8 || head[10] != 8)
        rc = ds_fail(err,
                     "%s: is HDF5 but not a record (superblock %u with offsets of %u bytes; a "
                     "record has 3 and 8)",
                     path, head[8], head[9]);
    close(fd);
    return rc;
}

/* HDF5 asks for the file's length, then reads the superblock, which tells it again. A writer that grows the file for the last
 * time and closes it between the two makes them differ, and the record looks cut short: a second look is right. Whether the
 * file was in a writer's hands is seen from its length. */
static int grew_meanwhile(const struct ds_record *r, uint64_t before, const struct ds_error *why)
{
    return strstr(why->msg, "truncated file") && ds_record_file_size(r->path) != before;
}

static int open_file(struct ds_record *r, struct ds_error *err)
{
    struct ds_error why = {"", ""};
    struct stat st;
    const unsigned attempts =
        ds_place_unmarked(r->path, NULL) != 0 ? WRITER_ATTEMPTS : READ_ATTEMPTS;
    hid_t access = ds_h5_access();
    if (access < 0 || H5Pset_metadata_read_attempts(access, attempts) < 0)
        return ds_h5_fail(err, "%s: hdf5 has no file access", r->path);
    for (int looks = 0; r->file < 0 && looks < OPEN_ATTEMPTS; looks++) {
        const uint64_t before = ds_record_file_size(r->path);
        if (stat(r->path, &st) == 0) {
            r->device = (uint64_t)st.st_dev;
            r->inode = (uint64_t)st.st_ino;
        }
        r->file = H5Fopen(r->path, H5F_ACC_RDONLY | H5F_ACC_SWMR_READ, access);
        if (r->file >= 0)
            break;
        ds_h5_fail(&why, "%s: cannot be opened as HDF5", r->path);
        if (!grew_meanwhile(r, before, &why))
            break;
    }
    H5Pclose(access);
    if (r->file >= 0)
        return 0;
    ds_fail(err, "%s", why.msg);
    if (strstr(why.msg, "truncated file"))
        ds_hint(err, "the record was closed and later cut short: was it copied completely?");
    else if (why.hint[0])
        ds_hint(err, "%s", why.hint);
    return -1;
}

/* ---- header ---------------------------------------------------------------------------------- */

static int read_attribute(const struct ds_record *r, const struct ds_field *f, void *out,
                          struct ds_error *err)
{
    htri_t exists = H5Aexists(r->file, f->name);
    if (exists < 0)
        return ds_h5_fail(err, "%s: attribute %s: cannot be looked for", r->path, f->name);
    if (!exists)
        return ds_fail(err, "%s: is HDF5 but not a record (no attribute %s)", r->path, f->name);
    hid_t attribute = H5Aopen(r->file, f->name, H5P_DEFAULT);
    if (attribute < 0)
        return ds_h5_fail(err, "%s: attribute %s", r->path, f->name);
    hid_t want = ds_h5_field_type(f), type = H5Aget_type(attribute),
          space = H5Aget_space(attribute);
    int rc = 0;
    if (want < 0 || type < 0 || space < 0 || H5Tequal(type, want) <= 0 ||
        H5Sget_simple_extent_type(space) != H5S_SCALAR)
        rc = ds_fail(err, "%s: attribute %s: has another type than version %d gives it", r->path,
                     f->name, DS_RECORD_VERSION);
    else if (H5Aread(attribute, want, out) < 0)
        rc = ds_h5_fail(err, "%s: attribute %s: cannot be read", r->path, f->name);
    H5Sclose(space);
    H5Tclose(type);
    H5Tclose(want);
    H5Aclose(attribute);
    return rc;
}

/* Of a record of another version only who wrote it is told: what its tables mean is not known, and half a verdict would be
 * a wrong one. Attributes that are there and have the type that this version gives them; quietly, else. */
static int refuse_version(const struct ds_record *r, struct ds_identity *id, struct ds_error *err)
{
    static const char *const told[] = {"tool_version", "build", "start", "model_name"};
    const struct ds_table *t = ds_table(DS_TABLE_IDENTITY);
    const uint32_t version = id->version;
    char packed[1024] = {0}, *to = packed;
    struct ds_error ignored;
    for (size_t i = 0; i < t->n_fields; to += t->fields[i++].bytes)
        for (size_t k = 0; k < sizeof told / sizeof *told; k++)
            if (strcmp(t->fields[i].name, told[k]) == 0 &&
                read_attribute(r, &t->fields[i], to, &ignored) != 0)
                memset(to, 0, t->fields[i].bytes);
    ds_table_unpack(DS_TABLE_IDENTITY, id, packed, 1);
    struct ds_buf who = {0};
    if (id->tool_version[0]) {
        ds_buf_puts(&who, ", written by driftscope ");
        ds_buf_escape(&who, id->tool_version, strnlen(id->tool_version, 24));
        ds_buf_puts(&who, " (");
        ds_buf_escape(&who, id->build, strnlen(id->build, 24));
        ds_buf_puts(&who, ") at ");
        ds_buf_escape(&who, id->start, strnlen(id->start, 24));
        ds_buf_puts(&who, " on ");
        ds_buf_escape(&who, id->model_name, strnlen(id->model_name, 48));
    }
    ds_fail(err, "%s: is a record of version %u%s; this program reads version %d", r->path, version,
            who.data && !who.failed ? who.data : "", DS_RECORD_VERSION);
    ds_buf_free(&who);
    return ds_hint(err, "read it with the version of driftscope that wrote it");
}

static int read_identity(const struct ds_record *r, struct ds_identity *identity,
                         struct ds_error *err)
{
    const struct ds_table *t = ds_table(DS_TABLE_IDENTITY);
    char packed[1024] = {0}, *to = packed;
    for (size_t i = 0; i < t->n_fields; i++) {
        if (read_attribute(r, &t->fields[i], to, err) != 0)
            return -1;
        to += t->fields[i].bytes;
        if (i > 1)
            continue;
        /* The first two, format and version, decide whether the others can be expected at all. */
        ds_table_unpack(DS_TABLE_IDENTITY, identity, packed, 1);
        if (strcmp(identity->format, DS_RECORD_FORMAT) != 0)
            return ds_fail(err, "%s: attribute format: is not \"%s\"", r->path, DS_RECORD_FORMAT);
        if (i == 1 && identity->version != DS_RECORD_VERSION)
            return refuse_version(r, identity, err);
    }
    ds_table_unpack(DS_TABLE_IDENTITY, identity, packed, 1);
    return 0;
}

static int read_header(struct ds_record *r, struct ds_error *err)
{
    struct ds_header_image image;
    memset(&image, 0, sizeof image);
    int failed = read_identity(r, &image.identity, err) != 0, damage;
    for (int id = DS_GROWING; !failed && id < DS_STORED; id++) {
        if (ds_record_open_table(r, id, err) != 0 ||
            !(image.table[id].bytes = ds_record_rows(r, id, 0, r->length[id], &damage, err)))
            failed = 1;
        else
            image.table[id].rows = (size_t)r->length[id];
    }
    if (!failed && ds_header_unpack(&image, &r->header, err) != 0)
        failed = ds_prefix(err, "%s", r->path);
    r->header_checksum = image.identity.header_checksum;
    ds_header_image_free(&image);
    return failed ? -1 : 0;
}

/* ---- the trials' rows ------------------------------------------------------------------------ */

enum row_state { ROW_GOOD, ROW_INCOMPLETE, ROW_DAMAGED };

/* What the scan over the rows remembers: how far each table is used, and which blocks exist. */
struct scan {
    uint64_t used[DS_RANGES];
    struct ds_map blocks;
};

/* All zero: the row's place exists but its bytes never reached the file. */
static int all_zero(const char *packed, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (packed[i])
            return 0;
    return 1;
}

/* A writer appends, or points to an earlier block: any other overlap is a fabrication, by which a
 * small file could stand for any amount of data. */
static int check_blocks(const struct ds_trial_row *row, struct scan *scan, enum row_state *state,
                        struct ds_error *err)
{
    for (int id = 0; id < DS_RANGES; id++) {
        struct ds_map_key key = {row->first[id], 0, row->count[id], (uint32_t)id};
        if (row->count[id] == 0 || ds_map_get(&scan->blocks, &key))
            continue;
        if (row->first[id] < scan->used[id]) {
            *state = ROW_DAMAGED;
            return 0;
        }
        scan->used[id] = row->first[id] + row->count[id];
        if (ds_map_put(&scan->blocks, &key, 0, err) != 0)
            return -1;
    }
    return 0;
}

static int judge_row(const struct ds_record *r, const char *packed, struct ds_trial_row *row,
                     struct scan *scan, enum row_state *state, struct ds_error *err)
{
    size_t bytes = ds_table_bytes(DS_TABLE_TRIALS);
    *state = ROW_INCOMPLETE;
    if (all_zero(packed, bytes))
        return 0;
    ds_table_unpack(DS_TABLE_TRIALS, row, packed, 1);
    *state = ROW_DAMAGED;
    if (row->row_checksum != ds_checksum_bytes(packed, bytes - sizeof(uint64_t)) ||
        row->info.arm >= r->header.n_arms || row->info.pass > DS_PASS_FAILED ||
        row->info.healed_to >= r->header.n_arms ||
        (row->info.healed_to && row->info.pass != DS_PASS_HEAL))
        return 0;
    *state = ROW_INCOMPLETE;
    for (int id = 0; id < DS_RANGES; id++)
        if (row->count[id] > r->length[id] || row->first[id] > r->length[id] - row->count[id])
            return 0;
    if (row->tensors > r->length[DS_TABLE_TENSORS])
        return 0;
    *state = ROW_GOOD;
    return check_blocks(row, scan, state, err);
}

/* Rows that no trial refers to, when all trials are sound: the writer was at work on one more. */
static int has_begun_trial(const struct ds_record *r, const struct scan *scan)
{
    for (int id = 0; id < DS_RANGES; id++)
        if (r->length[id] > scan->used[id])
            return 1;
    return r->length[DS_TABLE_TENSORS] > r->tensors_needed;
}

static int index_trials(struct ds_record *r, const char *packed, struct ds_error *err)
{
    size_t bytes = ds_table_bytes(DS_TABLE_TRIALS), n = (size_t)r->length[DS_TABLE_TRIALS];
    struct scan scan;
    memset(&scan, 0, sizeof scan);
    r->trials = ds_calloc(n, sizeof *r->trials, "trials", err);
    int failed = r->trials == NULL;
    for (size_t i = 0; !failed && i < n; i++) {
        enum row_state state;
        struct ds_trial_row *row = &r->trials[r->n_trials].row;
        failed = judge_row(r, packed + i * bytes, row, &scan, &state, err) != 0;
        r->n_trials += state == ROW_GOOD;
        r->incomplete += state == ROW_INCOMPLETE;
        r->damaged += state == ROW_DAMAGED;
        if (state == ROW_GOOD && row->tensors > r->tensors_needed)
            r->tensors_needed = row->tensors;
    }
    if (!failed && r->incomplete + r->damaged == 0)
        r->incomplete = (size_t)has_begun_trial(r, &scan);
    ds_map_free(&scan.blocks);
    return failed ? -1 : 0;
}

/* In a growing file the order matters: first the rows, then the extents of what they refer to,
 * which were there earlier. */
static int read_trials(struct ds_record *r, struct ds_error *err)
{
    int damage;
    if (ds_record_open_table(r, DS_TABLE_TRIALS, err) != 0)
        return -1;
    char *packed = ds_record_rows(r, DS_TABLE_TRIALS, 0, r->length[DS_TABLE_TRIALS], &damage, err);
    int failed = packed == NULL;
    for (int id = 0; !failed && id < DS_TABLE_TRIALS; id++)
        failed = ds_record_open_table(r, id, err) != 0;
    if (!failed)
        failed = index_trials(r, packed, err) != 0;
    free(packed);
    return failed ? -1 : 0;
}

/* ---- public ---------------------------------------------------------------------------------- */

int ds_record_open(const char *path, struct ds_record **out, struct ds_error *err)
{
    *out = NULL;
    if (ds_h5_enter(err) != 0 || check_file(path, err) != 0)
        return -1;
    struct ds_record *r = ds_calloc(1, sizeof *r, "record", err);
    if (!r)
        return -1;
    r->file = r->claim = -1;
    for (int id = 0; id < DS_STORED; id++)
        r->dataset[id] = r->type[id] = -1;
    r->path = ds_calloc(strlen(path) + 1, 1, "record", err);
    if (r->path)
        memcpy(r->path, path, strlen(path));
    if (!r->path || open_file(r, err) != 0 || read_header(r, err) != 0 ||
        read_trials(r, err) != 0) {
        ds_record_close(r);
        return -1;
    }
    *out = r;
    return 0;
}

int ds_record_claim(struct ds_record *r, struct ds_error *err)
{
    if (r->claim < 0)
        r->claim = ds_place_claim(r->path, err);
    return r->claim < 0 ? -1 : 0;
}

static void close_file(struct ds_record *r)
{
    struct ds_error ignored;
    /* After a failed write of this process the library is not called again: the file closes with
     * the process. */
    if (ds_h5_enter(&ignored) == 0) {
        for (int id = 0; id < DS_STORED; id++)
            if (r->type[id] >= 0)
                H5Tclose(r->type[id]);
        if (r->file >= 0)
            H5Fclose(r->file);
    }
    r->file = -1;
    for (int id = 0; id < DS_STORED; id++)
        r->dataset[id] = r->type[id] = -1;
}

void ds_record_close(struct ds_record *r)
{
    if (!r)
        return;
    close_file(r);
    if (r->claim >= 0)
        close(r->claim);
    for (size_t i = 0; i < r->n_trials; i++)
        free(r->trials[i].data);
    for (size_t i = 0; i < r->n_blocks; i++)
        free(r->blocks[i].structs);
    free(r->trials);
    free(r->blocks);
    free(r->launches);
    free(r->launches_packed);
    free(r->tensors);
    free(r->tensor_digests);
    free(r->ahead.bytes);
    ds_map_free(&r->block_at);
    free(r->tensor_at);
    ds_record_forget_held(r);
    free(r->bad);
    ds_map_free(&r->bad_at);
    ds_header_free(&r->header);
    free(r->path);
    free(r);
}

/* ---- a file that another process is still writing -------------------------------------------- */

/* Whether `now` is the record that `r` is, with all of its trials. */
static int continues(const struct ds_record *r, const struct ds_record *now)
{
    if (now->header_checksum != r->header_checksum || now->n_trials < r->n_trials)
        return 0;
    for (size_t i = 0; i < r->n_trials; i++)
        if (now->trials[i].row.row_checksum != r->trials[i].row.row_checksum)
            return 0;
    return 1;
}

/* r gets the file of `now` and the trials that it has not; what it has loaded stays. `now` is left with
 * r's file. */
static int take_over(struct ds_record *r, struct ds_record *now, struct ds_error *err)
{
    struct ds_trial_slot *trials = ds_calloc(now->n_trials, sizeof *trials, "trials", err);
    if (!trials)
        return -1;
    size_t damaged = 0;
    for (size_t i = 0; i < now->n_trials; i++) {
        trials[i] = i < r->n_trials ? r->trials[i] : now->trials[i];
        damaged += trials[i].damaged != 0;
    }
    free(r->trials);
    r->trials = trials;
    r->n_trials = now->n_trials;
    r->incomplete = now->incomplete;
    r->damaged = now->damaged + damaged;
    r->tensors_needed = now->tensors_needed;
    r->device = now->device;
    r->inode = now->inode;
    memcpy(r->length, now->length, sizeof r->length);
    const struct ds_record before = *r;
    r->file = now->file;
    memcpy(r->dataset, now->dataset, sizeof r->dataset);
    memcpy(r->type, now->type, sizeof r->type);
    now->file = before.file;
    memcpy(now->dataset, before.dataset, sizeof r->dataset);
    memcpy(now->type, before.type, sizeof r->type);
    /* These are read whole, and have grown. */
    free(r->launches);
    free(r->launches_packed);
    free(r->tensors);
    free(r->tensor_digests);
    r->tensor_digests = NULL;
    free(r->tensor_at);
    ds_record_forget_held(r);
    r->launches = NULL;
    r->launches_packed = r->tensors = NULL;
    r->tensor_at = NULL;
    r->tensor_next = 0;
    r->tensor_jumps = 0;
    r->tensors_damaged = 0;
    r->ahead.n = 0;
    return 0;
}

int ds_record_renew_at(struct ds_record *r, const char *path, struct ds_record **other,
                       struct ds_error *err)
{
    struct ds_record *now;
    struct stat st;
    *other = NULL;
    /* HDF5 gives a file that is open already as it was when it was opened. */
    if (stat(path, &st) == 0 && (uint64_t)st.st_dev == r->device && (uint64_t)st.st_ino == r->inode)
        close_file(r);
    if (ds_record_open(path, &now, err) != 0)
        return -1;
    if (!continues(r, now)) {
        *other = now;
        return 0;
    }
    int rc = take_over(r, now, err);
    if (rc == 0) {
        char *before = r->path;
        r->path = now->path;
        now->path = before;
    }
    ds_record_close(now);
    return rc == 0 ? 1 : -1;
}

int ds_record_renew(struct ds_record *r, struct ds_record **other, struct ds_error *err)
{
    return ds_record_renew_at(r, r->path, other, err);
}

int ds_record_written(const char *path)
{
    return ds_place_unmarked(path, NULL) != 0;
}

const struct ds_header *ds_record_header(const struct ds_record *r)
{
    return &r->header;
}

size_t ds_record_trial_count(const struct ds_record *r)
{
    return r->n_trials;
}

const struct ds_trial *ds_record_trial(const struct ds_record *r, size_t i)
{
    return i < r->n_trials ? &r->trials[i].row.info : NULL;
}

size_t ds_record_incomplete(const struct ds_record *r)
{
    return r->incomplete;
}

size_t ds_record_damaged(const struct ds_record *r)
{
    return r->damaged;
}
