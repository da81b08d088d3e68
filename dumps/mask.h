/* mask.h: which elements of drifting rows differ, over any number of rows: two bit sets of a site
 * (struct ds_mask). Pure. */
#ifndef DS_MASK_H
#define DS_MASK_H

#include "dumps/record.h"
#include "dumps/structure.h"

/* Adds one row. d: its sizes (ds_stats_row). differ, beyond: ds_mask_words(s->width) words each; whole
 * numbers are never beyond rounding. Of s: op, dtype, width, order. */
void ds_mask_row(const struct ds_structure_site *s, const void *mine, const void *ref,
                 const struct ds_drift *d, uint64_t *differ, uint64_t *beyond);

#endif
