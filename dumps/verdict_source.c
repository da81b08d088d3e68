/* verdict_source.c: lets the verdict read an open record, or dumped rows in memory. The only file
 * of the verdict that knows records on disk. */
#include "base/mem.h"
#include "dumps/verdict.h"

#include <string.h>

int ds_trials_blob(const struct ds_trial_data *trials, size_t n_trials, uint64_t digest,
                   struct ds_blob *out, struct ds_error *err)
{
    for (size_t i = 0; i < n_trials; i++)
        for (size_t k = 0; k < trials[i].n_blobs; k++) {
            const struct ds_blob *b = &trials[i].blobs[k];
            if (b->digest != digest)
                continue;
            *out = *b;
            if (!(out->data = ds_calloc(b->bytes, 1, "dumped row", err)))
                return DS_BLOB_UNREAD;
            memcpy(out->data, b->data, b->bytes);
            return 1;
        }
    return 0;
}

static const struct ds_trial *record_info(void *ctx, size_t i)
{
    return ds_record_trial(ctx, i);
}

static const struct ds_trial_data *record_get(void *ctx, size_t i, struct ds_error *err)
{
    return ds_record_load(ctx, i, err);
}

static int record_blob(void *ctx, uint64_t digest, struct ds_blob *out, struct ds_error *err)
{
    return ds_record_blob(ctx, digest, out, err);
}

void ds_source_record(struct ds_source *s, struct ds_record *r)
{
    *s = (struct ds_source){.header = ds_record_header(r),
                            .n_trials = ds_record_trial_count(r),
                            .info = record_info,
                            .get = record_get,
                            .ctx = r,
                            .blob = record_blob};
}
