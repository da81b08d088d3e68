/* storm_rows.h: inside dumps/ only: rows of a serving run found by request and position, and compared site
 * by site. */
#ifndef DS_STORM_ROWS_H
#define DS_STORM_ROWS_H

#include "dumps/storm.h"

struct ds_storm_rows {
    const struct ds_trial_data *t;
    size_t n_requests, width; /* width: positions */
    uint32_t *first;          /* [n_requests][width] row + 1 that was first there; 0 = none */
    size_t *captures;         /* [n_calls + 1] where each call's begin */
};
/* Checks that rows are of these requests, and captures in order. */
int ds_storm_rows_new(const struct ds_trial_data *t, size_t n_requests, struct ds_storm_rows *out,
                      struct ds_error *err);
void ds_storm_rows_free(struct ds_storm_rows *r);

/* Walks the sites that both rows have. Returns the number of the first capture of `a` whose digests differ,
 * or SIZE_MAX; *compared grows by the digests looked at. to_the_end: goes on and counts them in *differ. */
size_t ds_storm_rows_compare(const struct ds_storm_rows *a, uint32_t row,
                             const struct ds_storm_rows *b, uint32_t other, int to_the_end,
                             uint64_t *compared, uint64_t *differ);

/* Rows that requests had before they computed any: what stood where they began. They come to `first`, too. *kept: rows
 * + 1 of every hit, from (*kept_at)[hit] on; 0 = not known. Both malloc'ed, also after -1. */
int ds_storm_rows_begun(struct ds_storm_rows *r, const struct ds_storm_hit *hits, size_t n_hits,
                        uint32_t **kept, size_t **kept_at, struct ds_error *err);

#endif
