/* export_rows.h: dumped rows as files. */
#ifndef DS_CLI_EXPORT_ROWS_H
#define DS_CLI_EXPORT_ROWS_H

#include "base/error.h"
#include "dumps/record.h"

#include <stddef.h>

/* Writes the bytes of every dumped row of the record to FOLDER/DIGEST, 16 hex digits; makes the folder where it is not yet.
 * *rows: how many. */
int ds_cli_export_rows(struct ds_record *r, const char *folder, size_t *rows, struct ds_error *err);

#endif
