/* kept.h: inside cli/ only: trials that no record will hold, in memory. */
#ifndef DS_CLI_KEPT_H
#define DS_CLI_KEPT_H

#include "dumps/verdict.h"

struct ds_kept {
    const struct ds_header *header; /* of their sweep, borrowed */
    struct ds_trial_data *trials;
    size_t n, cap;
};

/* Adds a copy. */
int ds_kept_add(struct ds_kept *k, const struct ds_trial_data *t, struct ds_error *err);
/* They as a source, as long as nothing is added. */
struct ds_source ds_kept_source(struct ds_kept *k);
void ds_kept_free(struct ds_kept *k);

#endif
