/* structure_rope.h: what structure_rope.c and structure_frequencies.c share. */
#ifndef DS_STRUCTURE_ROPE_H
#define DS_STRUCTURE_ROPE_H

#include "dumps/structure_internal.h"

enum { MOST_PAIRS = 1024 };
enum pairing { BY_HALVES, BY_NEIGHBOURS, PAIRINGS };

struct turn { /* of one row */
    double cosine[MOST_PAIRS], sine[MOST_PAIRS];
};

/* Channels of a head that are rotated. */
uint32_t structure_rotated(const struct ds_structure_site *s);
/* The rotation that turns x into y, each pair's over all heads: the best in the sense of least
 * squares. */
void structure_read_turn(const struct ds_structure_site *s, int pairing, const float *x,
                         const float *y, struct turn *out);
/* x rotated. */
void structure_turn_row(const struct ds_structure_site *s, int pairing, const float *x,
                        const struct turn *turn, float *y);

/* structure_frequencies.c: the angles are those of other frequencies: another base, another order, fewer channels. */
void try_frequencies(struct task *t, int pairing);

#endif
