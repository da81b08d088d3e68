/* record_h5.h: the few HDF5 calls that writer and reader share. Knows tables (record_layout.h);
 * knows no trial and no header. */
#ifndef DS_RECORD_H5_H
#define DS_RECORD_H5_H

#include "dumps/record_layout.h"

#include <hdf5.h>

/* To be called first by every public function: the library must not close files at exit, print
 * errors (a setting of the calling thread) or load plugins. -1 when a write failed earlier in this
 * process: then no HDF5 call may follow. */
int ds_h5_enter(struct ds_error *err);
/* From now on ds_h5_enter fails. */
void ds_h5_poison(void);

/* Writes "MESSAGE: what HDF5 says was the first cause" and returns -1. */
int ds_h5_fail(struct ds_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The type of one row, packed, little-endian; of one field. To be closed by the caller; negative on
 * failure. */
hid_t ds_h5_type(int table);
hid_t ds_h5_field_type(const struct ds_field *f);

/* File access: latest format, no file locks (a record has one writer by its name, and a lock would
 * keep readers away), closing takes everything along. Negative on failure. */
hid_t ds_h5_access(void);

/* Reads or writes rows first .. first + n - 1 of a one-dimensional dataset, packed. -1 without a
 * message. */
int ds_h5_rows(int write, hid_t dataset, hid_t type, uint64_t first, uint64_t n, void *packed);

#endif
