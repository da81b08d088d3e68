/* steps.h: the tokens that an arm chose beside those of another: how far the logits drift that they were chosen
 * from, and how near each choice is to another one. Pure: asks an analysis. */
#ifndef DS_STEPS_H
#define DS_STEPS_H

#include "dumps/verdict.h"

enum {
    DS_STEP_FIRST = 1, /* the first step of its request with another token */
    DS_STEP_AFTER = 2  /* other tokens were fed before it: choices that nobody can compare */
};
/* One step; request DS_UNKNOWN where a side has none. */
struct ds_step_pair {
    struct ds_step mine, ref;
    int label; /* of the logits row: enum ds_label */
    int sized; /* the record holds how far that row drifts: */
    double max_abs;
    uint32_t is; /* DS_STEP_FIRST .. */
};

/* The choices of an arm's first trial beside those of ref's, by request and step: *out is malloc'ed, also with n 0. */
int ds_steps_make(struct ds_analysis *a, const struct ds_header *h, uint32_t arm, uint32_t ref,
                  struct ds_step_pair **out, size_t *n, struct ds_error *err);

int ds_step_both(const struct ds_step_pair *s);
/* The side that a step is told from: the reference, or this one where it has none. */
const struct ds_step *ds_step_side(const struct ds_step_pair *s);
int ds_step_other_token(const struct ds_step_pair *s);
/* How many times as large the drift must be before the token can change: margin / (2 max abs),
 * since both logits move at most so far; 0: it did change; infinite: nothing drifts; NaN: not
 * known, or not to be compared. */
double ds_step_room(const struct ds_step_pair *s);
/* The site of the logits; UINT32_MAX: none. */
uint32_t ds_step_site(const struct ds_header *h);

#endif
