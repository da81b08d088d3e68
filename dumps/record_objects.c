/* record_objects.c: the tables of an open record as objects of a hostile file: what each is made of and how long
 * it may claim to be, then rows of them. */
#include "dumps/record_read.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    MAX_CHUNK = 16 << 20, /* bytes of one chunk: a chunk is read whole */
    MAX_RATIO = 64        /* what a deflated table may unfold to, in sizes of the file */
};

uint64_t ds_record_file_size(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && st.st_size > 0 ? (uint64_t)st.st_size : 0;
}

/* Only deflate may stand between the file and the bytes; nothing may lie outside the file. */
static int check_storage(const struct ds_record *r, int id, hid_t plist, struct ds_error *err)
{
    const char *name = ds_table(id)->name;
    H5D_layout_t layout = H5Pget_layout(plist);
    int filters = H5Pget_nfilters(plist);
    if (H5Pget_external_count(plist) != 0)
        return ds_fail(err, "%s: /%s: its storage is external", r->path, name);
    if (layout != H5D_CONTIGUOUS && layout != H5D_CHUNKED && layout != H5D_COMPACT)
        return ds_fail(err, "%s: /%s: a virtual or unknown layout", r->path, name);
    for (int i = 0; i < filters; i++) {
        unsigned flags, config;
        size_t none = 0;
        if (H5Pget_filter2(plist, (unsigned)i, &flags, &none, NULL, 0, NULL, &config) !=
            H5Z_FILTER_DEFLATE)
            return ds_fail(err, "%s: /%s: a filter that is not deflate", r->path, name);
    }
    if (filters < 0)
        return ds_h5_fail(err, "%s: /%s: filters", r->path, name);
    hsize_t chunk = 1;
    if (layout == H5D_CHUNKED && (H5Pget_chunk(plist, 1, &chunk) != 1 || chunk == 0 ||
                                  chunk > MAX_CHUNK / ds_table_bytes(id)))
        return ds_fail(err, "%s: /%s: chunks of %llu rows", r->path, name,
                       (unsigned long long)chunk);
    return 0;
}

/* Rank, and how many rows the file's size can back (the tail of a table may not have reached the
 * file). */
static int check_extent(struct ds_record *r, int id, hid_t space, int deflated, uint64_t size,
                        struct ds_error *err)
{
    hsize_t rows = 0;
    if (space < 0 || H5Sget_simple_extent_type(space) != H5S_SIMPLE ||
        H5Sget_simple_extent_ndims(space) != 1 ||
        H5Sget_simple_extent_dims(space, &rows, NULL) != 1)
        return ds_fail(err, "%s: /%s: is not a one-dimensional table", r->path, ds_table(id)->name);
    uint64_t bytes = ds_table_bytes(id), backed = (deflated ? size * MAX_RATIO : size) / bytes;
    if (id >= DS_GROWING && rows > backed)
        return ds_fail(err, "%s: /%s: claims %llu rows, more than the file's %llu bytes can hold",
                       r->path, ds_table(id)->name, (unsigned long long)rows,
                       (unsigned long long)size);
    r->length[id] = rows < backed ? rows : backed;
    return 0;
}

/* Dumped rows are read here and there: with a cache of chunks each of them would cost a whole chunk. Stretches of
 * other tables are read once: a cache would only be memory, and one copy more. */
static hid_t open_dataset(const struct ds_record *r, int id)
{
    hid_t access = H5Pcreate(H5P_DATASET_ACCESS), dataset = -1;
    if (access >= 0 && H5Pset_chunk_cache(access, 0, 0, H5D_CHUNK_CACHE_W0_DEFAULT) >= 0)
        dataset = H5Dopen2(r->file, ds_table(id)->name, access);
    H5Pclose(access);
    return dataset;
}

int ds_record_open_table(struct ds_record *r, int id, struct ds_error *err)
{
    const char *name = ds_table(id)->name;
    H5L_info_t link;
    if (H5Lexists(r->file, name, H5P_DEFAULT) <= 0 ||
        H5Lget_info(r->file, name, &link, H5P_DEFAULT) < 0)
        return ds_h5_fail(err, "%s: /%s: is missing", r->path, name);
    if (link.type != H5L_TYPE_HARD)
        return ds_fail(err, "%s: /%s: is a link to elsewhere", r->path, name);
    if ((r->dataset[id] = open_dataset(r, id)) < 0)
        return ds_h5_fail(err, "%s: /%s: is not a table", r->path, name);
    r->type[id] = ds_h5_type(id);
    hid_t type = H5Dget_type(r->dataset[id]), plist = H5Dget_create_plist(r->dataset[id]);
    hid_t space = H5Dget_space(r->dataset[id]);
    int rc = 0;
    if (r->type[id] < 0 || type < 0 || plist < 0)
        rc = ds_h5_fail(err, "%s: /%s", r->path, name);
    else if (H5Tequal(type, r->type[id]) <= 0)
        rc = ds_fail(err, "%s: /%s: its fields are not those of version %d", r->path, name,
                     DS_RECORD_VERSION);
    else
        rc = check_storage(r, id, plist, err);
    if (rc == 0)
        rc = check_extent(r, id, space, H5Pget_nfilters(plist) > 0, ds_record_file_size(r->path),
                          err);
    H5Tclose(type);
    H5Pclose(plist);
    H5Sclose(space);
    return rc;
}

static int check_range(const struct ds_record *r, int id, uint64_t first, uint64_t n,
                       struct ds_error *err)
{
    if (n <= r->length[id] && first <= r->length[id] - n)
        return 0;
    return ds_fail(err, "%s: /%s: rows %llu + %llu of %llu", r->path, ds_table(id)->name,
                   (unsigned long long)first, (unsigned long long)n,
                   (unsigned long long)r->length[id]);
}

int ds_record_rows_into(struct ds_record *r, int id, uint64_t first, uint64_t n, void *packed,
                        int *damage, struct ds_error *err)
{
    *damage = 0;
    if (r->file < 0)
        return ds_fail(err, "%s: is not open any more", r->path);
    *damage = 1;
    if (check_range(r, id, first, n, err) != 0)
        return -1;
    if (ds_h5_rows(0, r->dataset[id], r->type[id], first, n, packed) != 0)
        return ds_h5_fail(err, "%s: /%s: cannot be read", r->path, ds_table(id)->name);
    *damage = 0;
    return 0;
}

void *ds_record_rows(struct ds_record *r, int id, uint64_t first, uint64_t n, int *damage,
                     struct ds_error *err)
{
    *damage = 1;
    if (check_range(r, id, first, n, err) != 0)
        return NULL;
    *damage = 0;
    void *packed = ds_calloc((size_t)n, ds_table_bytes(id), ds_table(id)->name, err);
    ds_memory_touched_whole(packed, (size_t)n * ds_table_bytes(id));
    if (packed && ds_record_rows_into(r, id, first, n, packed, damage, err) != 0) {
        free(packed);
        return NULL;
    }
    return packed;
}
