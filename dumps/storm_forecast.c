/* storm_forecast.c: how many requests should part from their reference, by the model of flips.h: the choices of each
 * request, beside its reference's, up to and with the one at which it parts. Pure. */
#include "dumps/storm_internal.h"

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
    const size_t n_prompts =
        w->h->n_prompts < w->s->n_requests ? w->h->n_prompts : w->s->n_requests;
    return ds_flips_make(ds_storm_walk, w, n_prompts, NULL, &w->s->forecast, err);
}
