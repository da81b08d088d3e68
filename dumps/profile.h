/* profile.h: where two results differ, told in few words: which heads, channels, positions. Pure
 * functions on counts and states. */
#ifndef DS_PROFILE_H
#define DS_PROFILE_H

#include "dumps/record.h"

#include <stddef.h>
#include <stdint.h>

/* Heads in a row of a site, 0 for none; their width is the header's head_dim. */
uint32_t ds_site_heads(const struct ds_header *h, uint32_t site);

enum { DS_PROFILE_TEXT = 64 };
/* Of one member of a set: not compared, equal, or differing. */
enum ds_member { DS_MEMBER_UNKNOWN = 0, DS_MEMBER_SAME, DS_MEMBER_DIFFERS };

/* The differing members of a set as ranges: "all", "none", "3", "1-3", "9-15, 25-31", "4-" (with
 * `open`: from 4 to the last one), "every 2nd from 1", or where that would be long "17 of 40, 2 to
 * 39". Member i is called names[i], or i with names NULL. Unknown members break no range. */
void ds_profile_set(const uint8_t *state, const int32_t *names, size_t n, int open,
                    char text[DS_PROFILE_TEXT]);

/* counts[i]: how many rows differ in element i. head_dim 0: the row has no heads, and `heads` is
 * "". channels: of any head, counted within the head. */
void ds_profile_elements(const uint32_t *counts, uint32_t width, uint32_t head_dim,
                         char heads[DS_PROFILE_TEXT], char channels[DS_PROFILE_TEXT]);

/* The value that p of n values (ascending) do not exceed, by the nearest rank; 0 for none. */
uint64_t ds_profile_percentile(const uint64_t *sorted, size_t n, double p);

#endif
