/* verdict_source.c: lets the verdict read an open record. The only file of the verdict that knows
 * records on disk. */
#include "dumps/verdict.h"

static const struct ds_trial *record_info(void *ctx, size_t i)
{
    return ds_record_trial(ctx, i);
}

static const struct ds_trial_data *record_get(void *ctx, size_t i, struct ds_error *err)
{
    return ds_record_load(ctx, i, err);
}

void ds_source_record(struct ds_source *s, struct ds_record *r)
{
    *s = (struct ds_source){.header = ds_record_header(r),
                            .n_trials = ds_record_trial_count(r),
                            .info = record_info,
                            .get = record_get,
                            .ctx = r};
}
