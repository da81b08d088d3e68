/* logprob_cause_internal.h: what the files of causes share. For logprob_cause.c and logprob_tokens.c. */
#ifndef DS_LOGPROB_CAUSE_INTERNAL_H
#define DS_LOGPROB_CAUSE_INTERNAL_H

#include "dumps/logprob_cause.h"

/* No probability is that small where the other side has one. */
#define DS_LP_MASKED (-1000.0)

/* Both sides give it a probability. */
int ds_lp_usable(const struct ds_lp_alternative *x);
void ds_lp_add(struct ds_lp_cause *out, size_t *n, struct ds_lp_cause c);
/* The usable alternative that A finds best; NULL: none. unseen: among tokens that did not come before. */
const struct ds_lp_alternative *ds_lp_best(const struct ds_lp_pairs *p,
                                           const struct ds_lp_position *q, int unseen);

/* slope: B's differences are A's times it; penalty: tokens that came before are moved by something else. */
void ds_lp_find_coarse_head(const struct ds_lp_pairs *p, double slope, int penalty,
                            struct ds_lp_cause *out, size_t *n);
int ds_lp_find_weights(const struct ds_lp_pairs *p, const unsigned char *padding, int penalty,
                       struct ds_lp_cause *out, size_t *n, struct ds_error *err);

#endif
