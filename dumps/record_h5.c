/* record_h5.c: see record_h5.h. */
#include "dumps/record_h5.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int poisoned;

int ds_h5_enter(struct ds_error *err)
{
    static int begun;
    if (poisoned) {
        ds_fail(err, "hdf5 cannot be used any more: an earlier write failed in this process");
        return ds_hint(err, "the record is readable from a new process");
    }
    if (!begun) {
        H5dont_atexit();
        if (H5open() < 0 || H5PLset_loading_state(0) < 0)
            return ds_fail(err, "hdf5 does not start");
        begun = 1;
    }
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    H5Eclear2(H5E_DEFAULT);
    return 0;
}

void ds_record_library(char *text, size_t size)
{
    unsigned major, minor, release;
    if (ds_h5_enter(NULL) == 0 && H5get_libversion(&major, &minor, &release) >= 0)
        snprintf(text, size, "%u.%u.%u", major, minor, release);
    else
        snprintf(text, size, "unknown");
}

void ds_h5_poison(void)
{
    poisoned = 1;
}

/* Keeps the first entry: the function that found the fault. */
static herr_t first_cause(unsigned n, const H5E_error2_t *e, void *arg)
{
    char *text = arg;
    if (n == 0 && e->desc)
        snprintf(text, 400, "%s", e->desc);
    return 0;
}

/* "file write failed: time = .., filename = .., errno = 28, error message = 'No space left on
 * device', .." is brought down to what matters: "no space left on device". */
static void shorten(char *text)
{
    static const char mark[] = "error message = '";
    char *from = strstr(text, mark);
    if (from) {
        from += strlen(mark);
        from[strcspn(from, "'")] = '\0';
        memmove(text, from, strlen(from) + 1);
    }
    if (isupper((unsigned char)text[0]) && !isupper((unsigned char)text[1]))
        text[0] = (char)tolower((unsigned char)text[0]);
}

int ds_h5_fail(struct ds_error *err, const char *fmt, ...)
{
    char what[512], cause[400] = "";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, first_cause, cause);
    shorten(cause);
    ds_fail(err, "%s%s%s", what, cause[0] ? ": " : "", cause);
    if (strstr(cause, "unable to lock file"))
        return ds_hint(err, "another program holds a lock on it, or its file system has none: "
                            "set HDF5_USE_FILE_LOCKING=FALSE");
    return -1;
}

hid_t ds_h5_field_type(const struct ds_field *f)
{
    static const size_t item_bytes[] = {1, 4, 4, 4, 8, 8};
    hid_t base = -1, type;
    switch (f->kind) {
    case DS_FIELD_U8:
        base = H5T_STD_U8LE;
        break;
    case DS_FIELD_U32:
        base = H5T_STD_U32LE;
        break;
    case DS_FIELD_I32:
        base = H5T_STD_I32LE;
        break;
    case DS_FIELD_F32:
        base = H5T_IEEE_F32LE;
        break;
    case DS_FIELD_U64:
        base = H5T_STD_U64LE;
        break;
    case DS_FIELD_F64:
        base = H5T_IEEE_F64LE;
        break;
    default:
        break;
    }
    if (f->kind == DS_FIELD_TEXT) {
        type = H5Tcopy(H5T_C_S1);
        if (type < 0 || H5Tset_size(type, f->bytes) < 0 ||
            H5Tset_strpad(type, H5T_STR_NULLPAD) < 0 || H5Tset_cset(type, H5T_CSET_UTF8) < 0)
            return -1;
        return type;
    }
    if (f->bytes != item_bytes[f->kind] * f->items)
        return -1;
    hsize_t items = f->items;
    return f->items > 1 ? H5Tarray_create2(base, 1, &items) : H5Tcopy(base);
}

hid_t ds_h5_type(int table)
{
    const struct ds_table *t = ds_table(table);
    if (t->n_fields == 1 && t->fields[0].name[0] == '\0')
        return ds_h5_field_type(&t->fields[0]);
    hid_t type = H5Tcreate(H5T_COMPOUND, ds_table_bytes(table));
    size_t at = 0;
    for (size_t i = 0; type >= 0 && i < t->n_fields; i++) {
        hid_t field = ds_h5_field_type(&t->fields[i]);
        if (field < 0 || H5Tinsert(type, t->fields[i].name, at, field) < 0)
            return -1;
        H5Tclose(field);
        at += t->fields[i].bytes;
    }
    return type;
}

hid_t ds_h5_access(void)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    if (access < 0 || H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST) < 0 ||
        H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) < 0 || H5Pset_file_locking(access, 0, 1) < 0)
        return -1;
    return access;
}

int ds_h5_rows(int write, hid_t dataset, hid_t type, uint64_t first, uint64_t n, void *packed)
{
    if (n == 0)
        return 0;
    hsize_t start = first, count = n;
    hid_t file = H5Dget_space(dataset), memory = H5Screate_simple(1, &count, NULL);
    int failed = file < 0 || memory < 0 ||
                 H5Sselect_hyperslab(file, H5S_SELECT_SET, &start, NULL, &count, NULL) < 0;
    if (!failed)
        failed = (write ? H5Dwrite(dataset, type, memory, file, H5P_DEFAULT, packed)
                        : H5Dread(dataset, type, memory, file, H5P_DEFAULT, packed)) < 0;
    /* After a failed write not even these: they may flush. */
    if (failed && write)
        return -1;
    if (file >= 0)
        H5Sclose(file);
    if (memory >= 0)
        H5Sclose(memory);
    return failed ? -1 : 0;
}
