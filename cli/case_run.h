/* case_run.h: runs the commands of a case as processes of this same program, in a folder of their
 * own, and holds the answers against the case. */
#ifndef DS_CLI_CASE_RUN_H
#define DS_CLI_CASE_RUN_H

#include "cli/case_file.h"

#include <jansson.h>

struct ds_case_setting {
    const char *plugin; /* the specimens */
    int explain;        /* what is found is explained, too: one kind of both, or why not */
    int healthy;        /* every {sick|healthy} takes the second side */
    int timeout;        /* seconds a command may take */
};

struct ds_case_outcome {
    int right;
    char *why;      /* malloc'ed; what is wrong, a line for each; "" when right */
    json_t *answer; /* of the last command; NULL if it gave none */
    double seconds;
};
void ds_case_outcome_free(struct ds_case_outcome *x);

/* -1 only when the machine fails (no folder, no process); a case that goes wrong is an outcome. */
int ds_case_run(const struct ds_case *c, const struct ds_case_setting *s,
                struct ds_case_outcome *out, struct ds_error *err);

#endif
