/* arrays.h: a small HDF5 file of named arrays, for whoever wants to hand numbers over. Not a record. */
#ifndef DS_ARRAYS_H
#define DS_ARRAYS_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

enum ds_array_type { DS_ARRAY_F32 = 0, DS_ARRAY_I32, DS_ARRAY_U8 };

/* A dataset [rows][cols], or [rows] where cols is 0. Borrowed. */
struct ds_named_array {
    const char *name;
    int type; /* enum ds_array_type */
    uint64_t rows, cols;
    const void *data;
};

/* An attribute of the root group: a text, or where it is NULL a number. */
struct ds_named_value {
    const char *name, *text;
    double number;
};

/* Creates `path`, which must not exist. */
int ds_arrays_write(const char *path, const struct ds_named_array *arrays, size_t n_arrays,
                    const struct ds_named_value *values, size_t n_values, struct ds_error *err);

#endif
