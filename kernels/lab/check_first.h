/* check_first.h: inside the lab's check: the first calls of a process, done again when everything else
 * was done, and in a process that began with other calls: what a kernel that tunes itself, counts
 * its calls or keeps what it met first makes of them. */
#ifndef DS_LAB_CHECK_FIRST_H
#define DS_LAB_CHECK_FIRST_H

#include "kernels/lab/check_plan.h"

/* The first rows of the first calls; lies in memory that processes share. */
enum { DS_FIRST_CALLS = 2, DS_FIRST_WORDS = 1 << 16 };
struct ds_first {
    int kept[DS_FIRST_CALLS];
    uint32_t bits[DS_FIRST_CALLS][DS_FIRST_WORDS];
};

/* Launches the calls and keeps what they give: before anything else was launched. */
int ds_first_keep(struct ds_check *c, struct ds_first *f);
/* Launches them again and holds them against what was kept; `when` ends the sentence about the row. */
int ds_first_hold(struct ds_check *c, const struct ds_first *f, const char *when);
/* The same many times over, up to the first difference: what a kernel does once in some hundred calls shows
 * elsewhere, where it would be taken for something that depends on what was changed. */
int ds_first_insist(struct ds_check *c, const struct ds_first *f);
/* Many rows on all threads, unlike the first calls in everything. */
int ds_first_others(struct ds_check *c);

#endif
