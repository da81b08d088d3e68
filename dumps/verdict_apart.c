/* verdict_apart.c: an arm whose trials disagree may also be wrong in all of them. What they differ by among each
 * other says nothing of that; what each is off the arm's reference on equal inputs (heal trials) does. */
#include "dumps/evidence.h"

#include <math.h>

/* What one heal trial is off its reference at the site, relative; 0: nothing is recorded, or no number. */
static double off_reference(const struct ds_analysis *a, const struct heal_table *h, size_t trial,
                            uint32_t site)
{
    const struct ds_trial_data *d = a->src->get(a->src->ctx, trial, NULL);
    double diff = 0, ref = 0;
    for (size_t i = 0; d && i < d->n_drifts; i++)
        if (d->drifts[i].site == site && d->drifts[i].ref_arm == h->ref) {
            diff += d->drifts[i].diff_sq;
            ref += d->drifts[i].ref_sq;
        }
    const double relative = size_ratio(diff, ref);
    return isfinite(relative) ? relative : 0;
}

/* Whether every row of the site that the reference has agrees among its repeats. */
static int reference_is_stable(const struct ds_analysis *a, uint32_t arm, uint32_t site)
{
    const uint8_t *state = a->arms[arm].state + (size_t)site * a->n_rows;
    for (size_t i = 0; i < a->n_rows; i++)
        if (state[i] == CELL_UNSTABLE)
            return 0;
    return a->arms[arm].n_trials > 0;
}

void find_apart(const struct ds_analysis *a, struct ds_verdict *v)
{
    struct ds_unstable *u = &v->unstable;
    const struct ds_finding *f = &u->first;
    if (!f->found || !f->sized || f->arm != f->ref_arm)
        return;
    for (size_t k = 0; k < a->n_healed; k++) {
        const struct heal_table *h = &a->healed[k];
        if (h->arm != f->arm || h->ref == h->arm || h->mixed || h->t.n_trials < 2 ||
            !reference_is_stable(a, h->ref, f->site))
            continue;
        double least = INFINITY;
        for (uint32_t i = 0; i < h->t.n_trials; i++)
            least = fmin(least, off_reference(a, h, h->t.trials[i], f->site));
        if (!(least > DS_APART_TIMES * f->relative_rms) || !(least > u->apart_rms))
            continue;
        u->apart_trials = h->t.n_trials;
        u->apart_ref = h->ref;
        u->apart_rms = least;
    }
}
