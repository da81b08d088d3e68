/* export_rows.c: the dumped rows of a record as files named by their digests, so that another program can be asked for these:
 * `xxhsum -H3 FOLDER/NAME` says NAME. Owns the files; what rows are is the record's. */
#include "cli/export_rows.h"

#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int by_number(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? -1 : x > y;
}

/* Every digest of the record once, in ascending order. */
static int all_digests(struct ds_record *r, uint64_t **out, size_t *n, struct ds_error *err)
{
    size_t cap = 0;
    *out = NULL;
    *n = 0;
    for (size_t i = 0; i < ds_record_trial_count(r); i++) {
        const struct ds_trial_data *t = ds_record_load(r, i, err);
        if (!t || ds_grow(out, &cap, *n + t->n_digests, sizeof **out, "digests", err) != 0)
            return -1;
        if (t->n_digests)
            memcpy(*out + *n, t->digests, t->n_digests * sizeof **out);
        *n += t->n_digests;
    }
    if (*n)
        qsort(*out, *n, sizeof **out, by_number);
    size_t kept = 0;
    for (size_t i = 0; i < *n; i++)
        if (i == 0 || (*out)[i] != (*out)[i - 1])
            (*out)[kept++] = (*out)[i];
    *n = kept;
    return 0;
}

static int write_row(const char *folder, uint64_t digest, const struct ds_blob *b,
                     struct ds_error *err)
{
    char path[4200];
    snprintf(path, sizeof path, "%.4096s/%016" PRIx64, folder, digest);
    FILE *f = fopen(path, "wb");
    if (!f)
        return ds_fail(err, "%s: %s", path, strerror(errno));
    const int wrote = fwrite(b->data, 1, b->bytes, f) == b->bytes;
    if (fclose(f) == 0 && wrote)
        return 0;
    ds_fail(err, "%s: %s", path, strerror(errno));
    (void)remove(path);
    return -1;
}

int ds_cli_export_rows(struct ds_record *r, const char *folder, struct ds_error *err)
{
    uint64_t *digest;
    size_t n;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return ds_fail(err, "%s: %s", folder, strerror(errno));
    int rc = all_digests(r, &digest, &n, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct ds_blob b = {0};
        const int there = ds_record_dumped(r, digest[i], err);
        rc = there > 0 && ds_record_blob(r, digest[i], &b, err) == 1
                 ? write_row(folder, digest[i], &b, err)
             : there == 0 ? 0
                          : -1;
        free(b.data);
    }
    free(digest);
    return rc;
}
