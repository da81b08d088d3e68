/* risk_internal.h: inside dumps/ only: the pairs of a record (risk_pairs.c), for risk.c and its parts. */
#ifndef DS_RISK_INTERNAL_H
#define DS_RISK_INTERNAL_H

#include "dumps/risk.h"

struct risk_pairs {
    struct ds_flip_pair *pair;
    size_t n, cap;
    /* Choices of references that nobody made again. */
    struct ds_flip_pair *alone; /* own is NULL */
    size_t n_alone, cap_alone;
};
void risk_pairs_free(struct risk_pairs *p);

/* Value of an option of the record, or NULL; a whole number, 0 where there is none. */
const char *risk_option(const struct ds_header *h, const char *name);
int64_t risk_number(const struct ds_header *h, const char *name);
/* Whether two arms (of two records) have the same kernels and format. */
int risk_same_set(const struct ds_header *h, uint32_t a, const struct ds_header *g, uint32_t b);
/* The pairs of the group that begins with arm `first`. */
int risk_pairs_of(const struct ds_header *h, const struct ds_trial_data *const *trials,
                  uint32_t first, struct risk_pairs *out, struct ds_error *err);
/* A ds_flip_walk over struct risk_pairs. */
int risk_walk(void *ctx, ds_flip_take take, void *to, struct ds_error *err);
/* The prompts that requests of a record have, equal ones once: of each of the header which of them it is, and how many there are;
 * one where nothing serves requests. malloc'ed. */
int risk_prompts(const struct ds_header *h, int32_t **rank, size_t *n, struct ds_error *err);
/* risk_layers.c: fills g->layers. */
int risk_layers(const struct ds_header *h, const struct ds_trial_data *const *trials,
                struct ds_risk_group *g, struct ds_error *err);

#endif
