/* verdict_failed.c: arms that were lost: at which kernel, on how many rows, and in what they differ
 * from the arm that they would have been compared with. A lost trial has no digests: it says nothing
 * about bits. */
#include "dumps/verdict_internal.h"

#include <string.h>

static int has_trial(const struct ds_analysis *a, uint32_t arm, uint32_t repeat)
{
    const struct arm_table *t = &a->arms[arm];
    for (uint32_t i = 0; i < t->n_trials; i++)
        if (a->src->info(a->src->ctx, t->trials[i])->repeat == repeat)
            return 1;
    return 0;
}

/* The factor by which a lost arm leaves an arm that has trials. */
static void name_factor(const struct ds_analysis *a, struct ds_failed_arm *f)
{
    for (uint32_t k = 0; k < a->h->n_factors; k++) {
        int64_t ref = ds_arm_reference(a->h, f->arm, k);
        if (ref < 0)
            continue;
        f->factor = a->h->factors[k];
        f->value = a->h->arms[f->arm].values[k];
        f->ref_value = a->h->arms[ref].values[k];
        f->ref_arm = (uint32_t)ref;
        return;
    }
}

int find_failed(const struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err)
{
    size_t cap = 0;
    for (size_t i = 0; i < a->src->n_trials; i++) {
        const struct ds_trial *info = a->src->info(a->src->ctx, i);
        if (info->pass != DS_PASS_FAILED || has_trial(a, info->arm, info->repeat))
            continue;
        size_t k = 0;
        while (k < v->n_failed && v->failed[k].arm != info->arm)
            k++;
        if (k < v->n_failed)
            continue;
        const struct ds_trial_data *d = a->src->get(a->src->ctx, i, err);
        if (!d)
            return -1;
        if (d->n_failures == 0)
            continue;
        if (ds_grow(&v->failed, &cap, k + 1, sizeof *v->failed, "lost arms", err) != 0)
            return -1;
        struct ds_failed_arm *f = &v->failed[v->n_failed++];
        *f =
            (struct ds_failed_arm){.at = &d->failures[0], .arm = info->arm, .repeat = info->repeat};
        if (f->at->site < a->n_sites)
            f->site = &a->h->sites[f->at->site];
        name_factor(a, f);
    }
    return 0;
}
