/* export_rows.h: dumped rows as files. */
#ifndef DS_CLI_EXPORT_ROWS_H
#define DS_CLI_EXPORT_ROWS_H

#include "base/error.h"
#include "dumps/record.h"

/* Writes the bytes of every dumped row of the record to FOLDER/DIGEST, 16 hex digits; makes the folder where it is not yet. */
int ds_cli_export_rows(struct ds_record *r, const char *folder, struct ds_error *err);

#endif
