/* diff_internal.h: what diff.c, diff_setting.c and diff_join.c share. */
#ifndef DS_DIFF_INTERNAL_H
#define DS_DIFF_INTERNAL_H

#include "base/mem.h"
#include "dumps/diff.h"

/* Adds an item, copying the texts. */
int diff_add(struct ds_diff *d, int kind, const char *name, const char *a, const char *b,
             struct ds_error *err);

/* diff_setting.c: lists what differs in models, weights, hyperparameters and environment. 1:
 * incomparable, with the reason in d->verdict.reason. */
int diff_settings(struct ds_diff *d, const struct ds_source *a, const struct ds_source *b,
                  struct ds_error *err);
/* Fills d->data_differs from the items, once the sites are joined. */
int diff_mark_sites(struct ds_diff *d, struct ds_error *err);

/* diff_join.c: joins sites, edges, arms and trials. 1: incomparable. */
int diff_join(struct ds_diff *d, const struct ds_source *a, const struct ds_source *b,
              struct ds_error *err);

/* verdict_packed.c: lists weights of equal numbers that the same kernel packed into other bytes. */
int diff_packed(struct ds_diff *d, const struct ds_source *a, const struct ds_source *b,
                struct ds_error *err);

#endif
