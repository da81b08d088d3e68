/* failure.h: a lost trial as something to record: which kernel was at work, where, on how many rows.
 * Inside engine/. */
#ifndef DS_FAILURE_H
#define DS_FAILURE_H

#include "engine/forward.h"

/* Makes *out (whose info is filled but for the pass) the record of a trial that ended with `message`;
 * how: DS_FAILED_*. place: what the pass was doing. */
int ds_failure_trial(const struct ds_header *h, const struct ds_kernel_set *kernels,
                     const struct ds_place *place, int how, const char *message,
                     struct ds_trial_data *out, struct ds_error *err);

#endif
