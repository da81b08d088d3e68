/* partings_internal.h: inside dumps/ only: what partings are foretold from (partings.c), for the plays
 * (partings_play.c) and for a storm that is at hand already. */
#ifndef DS_PARTINGS_INTERNAL_H
#define DS_PARTINGS_INTERNAL_H

#include "dumps/partings.h"
#include "dumps/storm_internal.h"

struct parting_choice {
    double gap;     /* NaN: none of its answers has one */
    size_t answers; /* K, of those that have */
    size_t rivals;  /* where they begin in ds_partings.rivals */
    int wins;       /* of equal logits the rival is chosen */
};

struct ds_partings {
    size_t n_prompts; /* of those that some request chose tokens for, equal ones once */
    size_t *prompt;   /* [n_prompts] which they are in their record, ascending */
    struct parting_choice *choices;
    size_t *first; /* [n_prompts + 1] */
    int32_t *rivals;
    double *off; /* drifts, with their signs, by prompt */
    size_t *first_off;
    double *sizes; /* their sizes, ascending */
    double most;   /* the largest one */
};

/* Which rows had the same bits: a number for each step, in the order of w->steps. malloc'ed. */
int partings_bits(const struct storm_work *w, uint64_t **out, struct ds_error *err);
/* The first request of a prompt, and the one after r; SIZE_MAX: there is none, as of one that is another's again. */
size_t partings_begin(const struct storm_work *w, size_t prompt);
size_t partings_next(const struct storm_work *w, size_t r);
/* The prompts that some request chose tokens for, ascending, each once. malloc'ed. */
int partings_prompts(const struct storm_work *w, size_t **list, size_t *n, struct ds_error *err);
/* Whether request r made the choice of step k after the reference's tokens. */
int partings_open(const struct storm_work *w, size_t r, size_t k);

int partings_learn(const struct storm_work *w, const uint64_t *bits, struct ds_partings **out,
                   struct ds_error *err);
/* partings_play.c */
int partings_play(const struct ds_partings *p, const struct storm_work *w, const uint64_t *bits,
                  struct ds_partings_forecast *out, struct ds_error *err);

#endif
