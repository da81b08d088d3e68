/* storm_internal.h: inside dumps/ only: a storm while it is looked at. */
#ifndef DS_STORM_INTERNAL_H
#define DS_STORM_INTERNAL_H

#include "dumps/storm_rows.h"

struct storm_work {
    const struct ds_header *h;
    const struct ds_trial_data *t;
    struct ds_storm *s;
    const struct ds_storm_hit *hits;
    size_t n_hits;
    struct ds_storm_rows rows; /* first: also rows that a request began with */
    size_t *begin;             /* [n_requests + 1] */
    const struct ds_step **steps;
    uint32_t *kept; /* rows + 1 of every hit, from kept_at[hit] on; 0 = not known */
    size_t *kept_at;
};

/* storm_forecast.c: the open choices; ctx is a struct storm_work. */
int ds_storm_walk(void *ctx, ds_flip_take take, void *to, struct ds_error *err);
/* storm_forecast.c: fills s->forecast. */
int ds_storm_forecast(struct storm_work *w, struct ds_error *err);

#endif
