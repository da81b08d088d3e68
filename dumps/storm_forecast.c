/* storm_forecast.c: the choices of each request beside its reference's, up to and with the one at which it parts; and how
 * many should part, in a storm like this one, by the model of partings.h. Pure. */
#include "dumps/partings_internal.h"

#include <stdlib.h>

/* Open choices of a request. */
static size_t open_choices(const struct storm_work *w, size_t r)
{
    const struct ds_storm_request *q = &w->s->requests[r];
    if (q->reference < 0 || q->reference == (int32_t)r)
        return 0;
    const size_t own = w->begin[r + 1] - w->begin[r],
                 ref = w->begin[q->reference + 1] - w->begin[q->reference],
                 both = own < ref ? own : ref;
    return q->parted >= 0 ? (size_t)q->parted + 1 : both;
}

int ds_storm_walk(void *ctx, ds_flip_take take, void *to, struct ds_error *err)
{
    const struct storm_work *w = ctx;
    for (size_t r = 0; r < w->s->n_requests; r++) {
        const struct ds_storm_request *q = &w->s->requests[r];
        for (size_t k = 0; k < open_choices(w, r); k++) {
            const struct ds_flip_pair pair = {w->steps[w->begin[q->reference] + k],
                                              w->steps[w->begin[r] + k], q->prompt};
            if (take(to, &pair, err) != 0)
                return -1;
        }
    }
    return 0;
}

int ds_storm_forecast(struct storm_work *w, struct ds_error *err)
{
    struct ds_flips *f = &w->s->forecast;
    struct ds_partings *p = NULL;
    struct ds_partings_forecast x;
    uint64_t *bits = NULL;
    int rc = ds_flips_count(ds_storm_walk, w, f, err);
    if (rc == 0)
        rc = partings_bits(w, &bits, err);
    if (rc == 0)
        rc = partings_learn(w, bits, &p, err);
    if (rc == 0)
        rc = partings_play(p, w, bits, &x, err);
    if (rc == 0) {
        f->expected = x.expected;
        f->bounded = x.bounded;
        f->low = x.low;
        f->high = x.high;
    }
    free(bits);
    ds_partings_free(p);
    return rc;
}
