/* hold.h: what the probe does with a hold beyond the public ds_hold_* functions. Inside probes/
 * only. */
#ifndef DS_HOLD_H
#define DS_HOLD_H

#include "probes/driftscope_probe.h"

/* One held row: key, digest, and its rank table (see hold.c). */
struct ds_hold_row {
    int32_t request, position, occurrence;
    uint32_t ranked; /* entry number of the row that is at this place in ascending key order */
    uint64_t digest;
};

/* The slot of an arm, or -1 if the arm is not to be held. */
long ds_hold_slot(const struct ds_hold *h, uint32_t arm);
int ds_hold_complete(const struct ds_hold *h, long slot);
/* Whether bytes of this site are held (its rows have one width). */
int ds_hold_keeps(const struct ds_hold *h, uint32_t site);

/* Claims an incomplete slot for filling, from nothing. 1: it is ours until commit or abandon, which
 * the same thread must call. 0: it is complete, or another process is filling it. */
int ds_hold_begin(struct ds_hold *h, long slot);
/* Adds a row. -1 if the site has no room for another. */
int ds_hold_store(struct ds_hold *h, long slot, uint32_t site, const struct ds_row *key,
                  uint64_t digest, const void *bytes, struct ds_error *err);
/* Makes the slot visible to all processes, or (-1) gives it up. */
int ds_hold_commit(struct ds_hold *h, long slot, struct ds_error *err);
void ds_hold_abandon(struct ds_hold *h, long slot);

/* Entries of a site in the order they were stored, and the bytes of entry i. Complete slots only.
 */
const struct ds_hold_row *ds_hold_rows(const struct ds_hold *h, long slot, uint32_t site,
                                       uint32_t *n);
const void *ds_hold_bytes(const struct ds_hold *h, long slot, uint32_t site, uint32_t i);
/* Asks the caches for the entry that is expected next at a site. */
void ds_hold_prefetch(const struct ds_hold *h, long slot, uint32_t site, const uint32_t *guess);
/* The entry with this key, or -1. `guess` is tried first (arms mostly meet rows in the same order).
 */
long ds_hold_find(const struct ds_hold *h, long slot, uint32_t site, const struct ds_row *key,
                  uint32_t guess);

#endif
