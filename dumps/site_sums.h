/* site_sums.h: how much every site of one arm against another differs, from the probes' entries. Pure: asks an
 * analysis and its source. */
#ifndef DS_SITE_SUMS_H
#define DS_SITE_SUMS_H

#include "dumps/verdict.h"

struct ds_site_sum {
    uint32_t sized; /* drifting rows with sizes; of them: */
    uint64_t elements, max_ulp;
    double max_abs, diff_sq, ref_sq;
    size_t trial; /* 1 + the number of the trial whose entries these are */
};
void ds_site_sum_add(struct ds_site_sum *s, const struct ds_drift *x);
/* 0 nothing differs; infinite where all of the reference is 0. */
double ds_site_sum_relative(const struct ds_site_sum *s);

/* sums: [n_sites], zeroed. Entries of the digests that are compared: at each site of the first natural trial that has
 * any. labels: as from ds_analysis_labels. */
int ds_site_sums(const struct ds_analysis *a, const struct ds_source *s, uint32_t arm, uint32_t ref,
                 const uint8_t *labels, struct ds_site_sum *sums, struct ds_error *err);
/* What each site adds on equal inputs: entries of the heal trial at rows that are origins there. healed: as from
 * ds_analysis_healed, or NULL. 1; 0: there is no such trial, nothing is added. */
int ds_site_sums_healed(const struct ds_analysis *a, const struct ds_source *s, uint32_t arm,
                        uint32_t ref, const uint8_t *healed, struct ds_site_sum *sums,
                        struct ds_error *err);

/* The graver of two labels: what a site is by its rows. */
int ds_label_graver(int a, int b);

#endif
