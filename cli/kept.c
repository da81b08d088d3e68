/* kept.c: see kept.h. */
#include "cli/kept.h"

#include "base/buf.h"
#include "base/mem.h"
#include "engine/worker.h"

#include <stdlib.h>
#include <string.h>

int ds_kept_add(struct ds_kept *k, const struct ds_trial_data *t, struct ds_error *err)
{
    if (ds_grow(&k->trials, &k->cap, k->n + 1, sizeof *k->trials, "trials", err) != 0)
        return -1;
    struct ds_buf copy = {0};
    ds_trial_pack(t, &copy);
    int rc = copy.failed ? ds_fail(err, "out of memory for a trial")
                         : ds_trial_unpack(copy.data, copy.len, &k->trials[k->n], err);
    ds_buf_free(&copy);
    k->n += rc == 0;
    return rc;
}

static const struct ds_trial *info(void *ctx, size_t i)
{
    return &((struct ds_kept *)ctx)->trials[i].info;
}

static const struct ds_trial_data *get(void *ctx, size_t i, struct ds_error *err)
{
    (void)err;
    return &((struct ds_kept *)ctx)->trials[i];
}

static int blob(void *ctx, uint64_t digest, struct ds_blob *out, struct ds_error *err)
{
    const struct ds_kept *k = ctx;
    return ds_trials_blob(k->trials, k->n, digest, out, err);
}

struct ds_source ds_kept_source(struct ds_kept *k)
{
    return (struct ds_source){
        .header = k->header, .n_trials = k->n, .info = info, .get = get, .ctx = k, .blob = blob};
}

void ds_kept_free(struct ds_kept *k)
{
    for (size_t i = 0; i < k->n; i++)
        ds_trial_data_free(&k->trials[i]);
    free(k->trials);
    memset(k, 0, sizeof *k);
}
