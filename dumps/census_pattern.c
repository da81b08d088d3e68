/* census_pattern.c: repeats that disagree by a rule and not by chance: two results in turns; a difference from the first
 * trial that grows with every trial, as of something that is never reset. */
#include "dumps/census.h"

#include "dumps/verdict_internal.h"

#include <math.h>

enum { LEAST_TURNS = 8, LEAST_GROWING = 6 };

/* Two results that follow each other strictly. Behind the first trial a pass without probes may have run. */
static int takes_turns(const struct arm_table *t)
{
    const uint64_t one = t->n_trials > 1 ? t->hash[1][DS_VERDICT_ALL] : 0,
                   other = t->n_trials > 2 ? t->hash[2][DS_VERDICT_ALL] : 0;
    if (t->n_trials < LEAST_TURNS || one == other ||
        (t->hash[0][DS_VERDICT_ALL] != one && t->hash[0][DS_VERDICT_ALL] != other))
        return 0;
    for (uint32_t k = 1; k < t->n_trials; k++)
        if (t->hash[k][DS_VERDICT_ALL] != (k % 2 ? one : other))
            return 0;
    return 1;
}

/* Relative rms of a trial's rows at a site off the first trial's; 0: it has no sizes of them. */
static double distance(const struct ds_analysis *a, const struct arm_table *t, uint32_t arm,
                       uint32_t k, uint32_t site)
{
    const struct ds_trial_data *d = a->src->get(a->src->ctx, t->trials[k], NULL);
    double off = 0, of = 0;
    for (size_t i = 0; d && i < d->n_drifts; i++)
        if (d->drifts[i].site == site && d->drifts[i].ref_arm == arm) {
            off += d->drifts[i].diff_sq;
            of += d->drifts[i].ref_sq;
        }
    return of > 0 ? sqrt(off / of) : 0;
}

void census_pattern(const struct ds_analysis *a, const struct arm_table *t, uint32_t arm,
                    struct ds_census_arm *c)
{
    if (takes_turns(t)) {
        c->pattern = DS_CENSUS_IN_TURNS;
        return;
    }
    if (!c->first.found || c->distinct != t->n_trials || t->n_trials < LEAST_GROWING)
        return;
    double last = 0;
    for (uint32_t k = 1; k < t->n_trials; k++) {
        const double now = distance(a, t, arm, k, c->first.site);
        if (!(now > last))
            return;
        c->grows[0] = k == 1 ? now : c->grows[0];
        last = now;
    }
    if (last < 2 * c->grows[0])
        return;
    c->grows[1] = last;
    c->pattern = DS_CENSUS_GROWING;
}

const char *ds_census_pattern_name(int pattern)
{
    static const char *const names[] = {"none", "in-turns", "growing"};
    return pattern >= 0 && pattern <= DS_CENSUS_GROWING ? names[pattern] : "none";
}
