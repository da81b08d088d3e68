/* lazy.h: large float arrays of which a run may use a small part. */
#ifndef DS_LAZY_H
#define DS_LAZY_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* Bytes behind the floats that are there, too: what a kernel writes past its end is looked for in them. */
enum { DS_LAZY_BEHIND = 64 };

/* Zeroed memory for rows * width floats, aligned to 64 bytes, whose pages the system backs when
 * they are first touched. *memory is what free() takes. NULL, with *memory NULL, on overflow or
 * exhaustion. */
float *ds_lazy_floats(size_t rows, int64_t width, void **memory, const char *what,
                      struct ds_error *err);

#endif
