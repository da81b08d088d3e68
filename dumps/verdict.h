/* verdict.h: from a record's digests to the answer. Pure functions: no I/O, no printing; CLI, TUI and tests share them. */
#ifndef DS_VERDICT_H
#define DS_VERDICT_H

#include "dumps/record.h"

/* Where the trials come from: a record, or memory (tests). get returns trial i, valid as long as the source; NULL with err. */
struct ds_source {
    const struct ds_header *header;
    size_t n_trials;
    const struct ds_trial *(*info)(void *ctx, size_t i);
    const struct ds_trial_data *(*get)(void *ctx, size_t i, struct ds_error *err);
    void *ctx;
};
/* A source that reads from an open record. */
void ds_source_record(struct ds_source *s, struct ds_record *r);

/* The arm that equals `arm` in every factor but `factor`, where it has the base arm's value; -1 if the sweep has none or if
 * `arm` has the base value itself. */
int64_t ds_arm_reference(const struct ds_header *h, uint32_t arm, uint32_t factor);

#endif
