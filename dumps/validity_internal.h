/* validity_internal.h: what the files validity*.c share. */
#ifndef DS_VALIDITY_INTERNAL_H
#define DS_VALIDITY_INTERNAL_H

#include "dumps/validity.h"
#include "dumps/verdict_internal.h"

struct row_patterns {
    uint32_t width;
    uint64_t zero[2], poison; /* rows of 4 and of 2 bytes an element; f32 */
};

/* Everything that one look at a verdict's captures needs. */
struct validity_work {
    struct ds_analysis *a;
    struct ds_validity *v;
    struct row_patterns *patterns;
    size_t n_patterns, cap_patterns;
    uint64_t *nan; /* digests of rows that are NaN throughout, ascending */
    size_t n_nan, cap_nan, cap_items;
    uint8_t *copied; /* [n_sites] */
};

/* validity.c: adds a finding that is about no site; NULL without memory. */
struct ds_validity_item *validity_add(struct validity_work *w, int kind, struct ds_error *err,
                                      const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Adds a finding about a site, or one more layer to that of its stage. */
int validity_add_site(struct validity_work *w, int kind, uint32_t arm, size_t site,
                      int proves_nothing, struct ds_error *err);
int validity_whole_number(const struct ds_analysis *a, size_t site);

/* validity_site.c: needs the digests of rows that are NaN throughout. */
int validity_collect_nan(struct validity_work *w, struct ds_error *err);
int validity_is_nan(const struct validity_work *w, uint64_t digest);
/* Weights that a softmax gives may rightly be alike in all rows, and in all layers: all of it to the
 * first key, or to the only expert of a row. */
int validity_may_repeat(const struct ds_analysis *a, const struct arm_table *t, size_t site);
/* Whether two rows of the site differ. */
int validity_varies(const struct ds_analysis *a, const struct arm_table *t, size_t site);
/* Rows of x and y that both sites have; *equal of them are equal. */
size_t validity_common_rows(const struct ds_analysis *a, const struct arm_table *t, size_t x,
                            size_t y, size_t *equal);
/* An input that the site equals in two rows or more, and in all: its number + 1, else 0. A sum of
 * ranks is no such input: it is what the stage gives. */
uint32_t validity_equal_input(const struct ds_analysis *a, const struct arm_table *t, size_t site);
int validity_judge_site(struct validity_work *w, size_t site, struct ds_error *err);

/* validity_layers.c */
int validity_judge_layers(struct validity_work *w, struct ds_error *err);

/* validity_trials.c: probes, warm-up, histories, fixtures. */
int validity_judge_trials(struct validity_work *w, const struct ds_verdict *v,
                          struct ds_error *err);

#endif
