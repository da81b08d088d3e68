/* shared_object.h: a shared object (.so) of the user's: looked at before anything in it can run, tried
 * in a child process, then loaded. `what` is how messages call it: "plugin", "blas library". Its
 * path comes from the command line, never from a record. */
#ifndef DS_SHARED_OBJECT_H
#define DS_SHARED_OBJECT_H

#include "base/error.h"

#include <stdint.h>

/* An error unless `path` is a file, and one that could be a shared object for this processor; else
 * the XXH3-64 of its bytes. Nothing in it runs. */
int ds_so_read(const char *what, const char *path, uint64_t *digest, struct ds_error *err);

/* dlopen with RTLD_NOW | RTLD_LOCAL of exactly this file, for the rest of the process. NULL on
 * error. */
void *ds_so_open(const char *what, const char *path, struct ds_error *err);

/* Runs fn(arg) in a child process, whose stdout leads nowhere and which may take so many seconds: 0
 * when it came to its end, an error when it crashed, ended the process or did not return. What fn
 * has to say goes through memory that arg points to and that is shared. Not thread-safe. */
int ds_so_try(const char *what, const char *path, int seconds, void (*fn)(void *arg), void *arg,
              struct ds_error *err);

#endif
