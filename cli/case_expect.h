/* case_expect.h: whether a JSON answer says what a case expects. Pure. */
#ifndef DS_CLI_CASE_EXPECT_H
#define DS_CLI_CASE_EXPECT_H

#include "base/buf.h"
#include "cli/case_file.h"

#include <jansson.h>

/* The value at a path such as first_drift.stage, factors[batch,decode].classes, notes[0],
 * kernels[matmul/pinned].origins: NULL if there is none. A selector in brackets is a number, or
 * words that all stand among an element's texts ("op/variant" counts as one). Borrowed. */
json_t *ds_case_value(json_t *answer, const char *path);

/* 1 it holds; 0 it does not, and `why` says what was found. answer may be NULL (no JSON came). */
int ds_case_holds(const struct ds_expect *e, json_t *answer, int exit_code, struct ds_buf *why);

/* What every healthy answer must be: nothing found, nothing blamed. */
int ds_case_healthy(json_t *answer, int exit_code, struct ds_buf *why);

#endif
