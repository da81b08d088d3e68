/* site_sums.c: see site_sums.h. */
#include "dumps/site_sums.h"

#include <math.h>

int ds_label_graver(int a, int b)
{
    static const uint8_t gravity[] = {
        [DS_LABEL_ABSENT] = 0, [DS_LABEL_SAME] = 1,      [DS_LABEL_HEALED] = 2,
        [DS_LABEL_WITHIN] = 3, [DS_LABEL_INHERITED] = 4, [DS_LABEL_UNKNOWN] = 5,
        [DS_LABEL_ORIGIN] = 6, [DS_LABEL_UNSTABLE] = 7,
    };
    return gravity[a] >= gravity[b] ? a : b;
}

void ds_site_sum_add(struct ds_site_sum *s, const struct ds_drift *x)
{
    s->diff_sq += x->diff_sq;
    s->ref_sq += x->ref_sq;
    s->sized++;
    s->elements += x->elements;
    s->max_ulp = x->max_ulp != UINT64_MAX && x->max_ulp > s->max_ulp ? x->max_ulp : s->max_ulp;
    s->max_abs = !(x->max_abs <= s->max_abs) ? x->max_abs : s->max_abs;
}

double ds_site_sum_relative(const struct ds_site_sum *s)
{
    if (s->ref_sq > 0)
        return sqrt(s->diff_sq / s->ref_sq);
    return s->diff_sq > 0 ? HUGE_VAL : 0;
}

struct work {
    const struct ds_analysis *a;
    uint32_t arm, ref;
    size_t n_sites, n_rows;
    const uint8_t *labels; /* of the heal trial, with `healed` */
    int healed;
    struct ds_site_sum *sums;
};

/* Entries that are of this comparison: of the digests that are compared, not of some other repeat's. */
static int is_of_pair(const struct work *p, const struct ds_drift *x, size_t row)
{
    const int label = p->labels[x->site * p->n_rows + row];
    uint64_t mine, ref;
    if (p->healed)
        return label == DS_LABEL_ORIGIN;
    int drifts =
        label == DS_LABEL_ORIGIN || label == DS_LABEL_INHERITED || label == DS_LABEL_UNKNOWN;
    if (p->arm == p->ref)
        return drifts || label == DS_LABEL_UNSTABLE;
    return drifts && ds_analysis_digest(p->a, p->arm, x->site, row, &mine) &&
           ds_analysis_digest(p->a, p->ref, x->site, row, &ref) && x->digest == mine &&
           x->ref_digest == ref;
}

/* Adds the entries of one trial at the sites that no earlier trial has any of. */
static void add_trial(const struct work *p, const struct ds_trial_data *t, size_t number)
{
    size_t row = SIZE_MAX;
    for (size_t i = 0; i < t->n_drifts; i++) {
        const struct ds_drift *x = &t->drifts[i];
        if (x->ref_arm != p->ref || x->site >= p->n_sites || x->row >= t->n_rows)
            continue;
        row = ds_analysis_row_of(p->a, &t->rows[x->row], row == SIZE_MAX ? 0 : row + 1);
        if (row == SIZE_MAX || !is_of_pair(p, x, row))
            continue;
        struct ds_site_sum *sum = &p->sums[x->site];
        if (sum->trial && sum->trial != number + 1)
            continue;
        sum->trial = number + 1;
        ds_site_sum_add(sum, x);
    }
}

/* 1: a trial was added; 0: there is none. */
static int add_trials(const struct work *p, const struct ds_source *s, struct ds_error *err)
{
    int some = 0;
    for (size_t i = 0; i < s->n_trials; i++) {
        const struct ds_trial *info = s->info(s->ctx, i);
        if (!info || info->arm != p->arm ||
            (p->healed ? info->pass != DS_PASS_HEAL || info->healed_to != p->ref
                       : info->pass != DS_PASS_NATURAL))
            continue;
        const struct ds_trial_data *t = s->get(s->ctx, i, err);
        if (!t)
            return -1;
        add_trial(p, t, i);
        some = 1;
        if (p->healed)
            break;
    }
    return some;
}

int ds_site_sums(const struct ds_analysis *a, const struct ds_source *s, uint32_t arm, uint32_t ref,
                 const uint8_t *labels, struct ds_site_sum *sums, struct ds_error *err)
{
    const struct work p = {a, arm, ref, s->header->n_sites, ds_analysis_rows(a), labels, 0, sums};
    return add_trials(&p, s, err) < 0 ? -1 : 0;
}

int ds_site_sums_healed(const struct ds_analysis *a, const struct ds_source *s, uint32_t arm,
                        uint32_t ref, const uint8_t *healed, struct ds_site_sum *sums,
                        struct ds_error *err)
{
    const struct work p = {a, arm, ref, s->header->n_sites, ds_analysis_rows(a), healed, 1, sums};
    return healed ? add_trials(&p, s, err) : 0;
}
