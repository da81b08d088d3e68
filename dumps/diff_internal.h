/* diff_internal.h: what the files diff*.c share. */
#ifndef DS_DIFF_INTERNAL_H
#define DS_DIFF_INTERNAL_H

#include "base/mem.h"
#include "dumps/diff.h"

/* Adds an item, copying the texts. */
int diff_add(struct ds_diff *d, int kind, const char *name, const char *a, const char *b,
             struct ds_error *err);

/* How many bytes are left for tables (0: any); -1: none. */
int diff_room(const struct ds_diff *d, uint64_t *left, struct ds_error *err);

/* diff_setting.c: the records cannot be compared, the first reason for which is kept; 1. */
int diff_refuse(struct ds_diff *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Lists what differs in models, weights, hyperparameters and environment. 1:
 * incomparable, with the reason in d->verdict.reason. */
int diff_settings(struct ds_diff *d, const struct ds_source *a, const struct ds_source *b,
                  struct ds_error *err);
/* diff_weights.c: lists weights that differ. 1: incomparable. */
int diff_weights(struct ds_diff *d, const struct ds_header *a, const struct ds_header *b,
                 struct ds_error *err);
/* diff_models.c: whether they are of one model. 1: of two, which are not compared. */
int diff_models(struct ds_diff *d, const struct ds_header *a, const struct ds_header *b,
                struct ds_error *err);
/* What of its weights and hyperparameters differs for the kernel of a site. ctx: struct ds_diff. */
void diff_data_text(void *ctx, uint32_t site, char *text, size_t size);
/* Fills d->data_differs from the items, once the sites are joined. */
int diff_mark_sites(struct ds_diff *d, struct ds_error *err);

extern const char diff_no_trial[]; /* of an arm: why it has no partner */
/* diff_arms.c: pairs the arms: fills factors and arms of d->header, d->arm_of and d->pairs.
 * joined[side][arm] = number in the joined header or UINT32_MAX; malloc'ed also after a failure, the
 * caller frees. 1: incomparable. */
int diff_pair_arms(struct ds_diff *d, const struct ds_source *s[2], uint32_t *joined[2],
                   struct ds_error *err);

/* diff_history.c: what the process of each trial of a source had done before; malloc'ed. */
int diff_histories(const struct ds_source *s, struct ds_history **out, struct ds_error *err);
/* Lists pairs of arms with unlike histories that their repeats show to be harmless: the others are a
 * finding of the verdict's validity. */
int diff_note_histories(struct ds_diff *d, struct ds_error *err);

/* diff_join.c: joins sites, edges, arms and trials. 1: incomparable. */
int diff_join(struct ds_diff *d, const struct ds_source *a, const struct ds_source *b,
              struct ds_error *err);

/* Adds trial i of a source as one of the joined arm; map: its sites in the joined header. */
int diff_join_trial(struct ds_diff *d, const struct ds_source *s, size_t i, uint32_t arm,
                    const uint32_t *map, struct ds_error *err);

/* diff_heal.c: joins the heal trials that judge what two arms do behind their first difference, and fills
 * d->healed_to. Needs d->verdict; *changed tells that the analysis is to be made again. */
int diff_heal(struct ds_diff *d, const struct ds_source *a, const struct ds_source *b, int *changed,
              struct ds_error *err);

/* verdict_packed.c: lists weights of equal numbers that the same kernel packed into other bytes. */
int diff_packed(struct ds_diff *d, const struct ds_source *a, const struct ds_source *b,
                struct ds_error *err);
/* diff_filter.c: fills d->ignored from the options, once the sites are joined. 1: nothing is left. */
int diff_filter(struct ds_diff *d, struct ds_error *err);

/* diff_tolerance.c: gives every row that differs from A's within the tolerance A's digest, in a copy
 * of its trial's digests. Needs d->analysis; *changed tells that it is to be made again. */
int diff_excuse(struct ds_diff *d, int *changed, struct ds_error *err);
/* As ds_analysis_options.within; ctx: the diff. */
int diff_within(void *ctx, uint64_t ref, uint64_t digest);
/* Notes the first place at which rows differ within the tolerance, once all is judged. */
int diff_note_within(struct ds_diff *d, struct ds_error *err);
/* Lists a dumped row that could not be believed. */
int diff_damage(struct ds_diff *d, uint32_t site, const struct ds_row_key *key, int side,
                const struct ds_error *what, struct ds_error *err);

/* diff_sizes.c: takes sizes of the first drift and of the residual stream from dumped rows, and makes the verdict again
 * with them. */
int diff_sizes(struct ds_diff *d, struct ds_error *err);

/* diff_note.c: what is listed once the verdict is known: rows without a partner, and how the kernels
 * at the first drift were launched. */
int diff_note_rows(struct ds_diff *d, struct ds_error *err);
int diff_note_launch(struct ds_diff *d, struct ds_error *err);

/* diff_missing.c: counts what of one record's work the other lacks. Needs the verdict and d->unpaired. */
int diff_missing(struct ds_diff *d, const struct ds_source *a, const struct ds_source *b,
                 struct ds_error *err);

#endif
