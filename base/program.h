/* program.h: the program that runs: its file, and what lies beside it. */
#ifndef DS_PROGRAM_H
#define DS_PROGRAM_H

#include "base/error.h"

#include <stddef.h>

/* The absolute path of the running program's file: from the system, or, where /proc is not mounted, from how it was
 * started. 0, or -1 with err. */
int ds_program_file(char *out, size_t size, struct ds_error *err);

/* The file or folder `relative` to the folder of the program's file: 0 if it is there, else -1 with err; `out` has the path
 * in both cases unless the program's file is not known. */
int ds_program_beside(const char *relative, char *out, size_t size, struct ds_error *err);

#endif
