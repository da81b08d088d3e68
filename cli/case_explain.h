/* case_explain.h: asks `explain` about what a command of a case has found: whether both say one kind of
 * the same place, or why not. */
#ifndef DS_CLI_CASE_EXPLAIN_H
#define DS_CLI_CASE_EXPLAIN_H

#include "base/buf.h"
#include "cli/case_file.h"

#include <jansson.h>

/* The words of `explain` for what step `n` of the case found: *out is malloc'ed, with malloc'ed words,
 * NULL-terminated; NULL: nothing was found, or the command is no `run` or `diff`. */
int ds_case_explain_words(const struct ds_case *c, size_t n, json_t *answer, char ***out,
                          struct ds_error *err);
void ds_case_words_free(char **words);

/* Adds to `why` if the explanation claims another kind than the verdict and does not say why. said: the
 * first line of what it said instead of an answer. */
void ds_case_explain_holds(json_t *verdict, json_t *explanation, const char *said,
                           struct ds_buf *why);

#endif
