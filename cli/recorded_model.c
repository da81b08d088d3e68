/* recorded_model.c: the model of verbs that are given a record or a lock. A model with seeded weights is its name, so that
 * the file needs no -m; a name that is a file's is never opened. See recorded_model.h. */
#include "cli/recorded_model.h"

#include "engine/model.h"

#include <stdint.h>
#include <string.h>

/* What a name in a file from outside may ask for: about 500 million numbers, and of a lock, which lists no weights,
 * so many of them. */
static const uint64_t most_bytes = (uint64_t)2 << 30;
enum { MOST_WEIGHTS = 1 << 16 };

struct ds_recorded_model ds_recorded_model_of(const struct ds_header *h)
{
    return (struct ds_recorded_model){
        .what = "record", .name = h->model_name, .weights = h->weights, .n_weights = h->n_weights};
}

static int listed(void *ctx, uint64_t index, const char *name, int64_t rows, int64_t cols,
                  struct ds_error *err)
{
    const struct ds_recorded_model *r = ctx;
    const struct ds_record_weight *w = &r->weights[index];
    if (strcmp(w->name, name) == 0 && w->rows == rows && w->cols == cols)
        return 0;
    return ds_fail(err,
                   "weight %llu is %s of %lld x %lld by the name, %.60s of %lld x %lld in the %s",
                   (unsigned long long)index, name, (long long)rows, (long long)cols, w->name,
                   (long long)w->rows, (long long)w->cols, r->what);
}

static int check(const struct ds_recorded_model *r, struct ds_error *err)
{
    const struct ds_random_bounds bounds = {.most_bytes = most_bytes,
                                            .n_weights = r->weights ? r->n_weights : 0,
                                            .most_weights = r->weights ? 0 : MOST_WEIGHTS,
                                            .listed = r->weights ? listed : NULL,
                                            .ctx = (void *)(uintptr_t)r};
    /* A header has room for so many characters: a longer name was cut. */
    if (strlen(r->name) + 1 >= sizeof((struct ds_header *)0)->model_name)
        ds_fail(err, "the name is too long to be whole");
    else if (ds_model_random_fits(r->name, &bounds, err) == 0)
        return 0;
    ds_prefix(err, "the %s's model, %.200s, is not built from its name alone", r->what, r->name);
    return ds_hint(err, "if you trust the %s, name its model: -m", r->what);
}

int ds_cli_model(const struct ds_options *o, const struct ds_recorded_model *recorded,
                 const char **name, struct ds_error *err)
{
    *name = ds_opt_text(o, "model");
    if (ds_opt_given(o, "model") || !recorded || !recorded->name ||
        strncmp(recorded->name, "random:", strlen("random:")) != 0)
        return 0;
    if (check(recorded, err) != 0)
        return -1;
    *name = recorded->name;
    ds_cli_note(o, "model %s, as in the %s; -m names another", *name, recorded->what);
    return 0;
}
