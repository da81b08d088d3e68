/* error.h: how a library function says what went wrong. Owns the error value; never prints, never
 * exits. */
#ifndef DS_ERROR_H
#define DS_ERROR_H

#include <stdarg.h>

/* Filled by every function that returns -1. `msg` is lower case and names the file, tensor or
 * field; `hint`, if not empty, says what to do. No ownership: plain arrays, safe to copy. */
struct ds_error {
    char msg[1024];
    char hint[512];
};

/* Writes the message (clearing any hint) and returns -1, so callers can `return ds_fail(err, ...)`.
 * err may be NULL. */
int ds_fail(struct ds_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Adds a hint to an error already set; returns -1 likewise. */
int ds_hint(struct ds_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Puts "prefix: " before the message already set (the file a deeper layer could not know). */
int ds_prefix(struct ds_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
