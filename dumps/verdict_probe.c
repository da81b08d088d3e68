/* verdict_probe.c: what the probes do to the run: whether the answer is the same without them, what of them
 * changes it, and what they cost. */
#include "dumps/verdict_internal.h"

#include <stdlib.h>
#include <string.h>

/* A bare pass (no probes) against a trial of its arm, by the digests of whole logits rows: 1 they differ,
 * 0 they agree, -1 they have no step in common. */
static int bare_differs(const struct ds_trial_data *bare, const struct ds_trial_data *t)
{
    int differs = -1;
    for (size_t k = 0; k < bare->n_steps && k < t->n_steps; k++) {
        const struct ds_step *x = &bare->steps[k], *y = &t->steps[k];
        if (x->request == y->request && x->step == y->step)
            differs = x->digest != y->digest || x->token != y->token || differs == 1;
    }
    return differs;
}

/* Where an arm does not even agree with itself: whether the bare pass is like one of its trials. Like
 * none: nothing is known, for the next trial would not be either. */
static int check_unstable(const struct ds_analysis *a, const struct arm_table *t,
                          const struct ds_trial_data *bare)
{
    for (uint32_t k = 0; k < t->n_trials; k++) {
        const struct ds_trial_data *one = a->src->get(a->src->ctx, t->trials[k], NULL);
        if (one && bare_differs(bare, one) == 0)
            return DS_CHECK_AGREES_WITH_ONE;
    }
    return DS_CHECK_UNSTABLE;
}

/* Whether two passes without probes disagree with each other: that is no probe's doing. */
static int bares_part(const struct ds_analysis *a, uint32_t arm, const struct ds_trial_data *bare)
{
    for (size_t i = 0; bare && i < a->src->n_trials; i++) {
        const struct ds_trial *info = a->src->info(a->src->ctx, i);
        if (info->pass != DS_PASS_BARE || info->arm != arm)
            continue;
        const struct ds_trial_data *other = a->src->get(a->src->ctx, i, NULL);
        if (other && bare_differs(bare, other) == 1)
            return 1;
    }
    return 0;
}

/* Whether drifting rows were dumped in the trial, not only a sample: `dump` of the options is 3 for all. */
static int dumps_drifts(const struct ds_analysis *a, const struct ds_trial_data *t)
{
    int all = 0;
    for (size_t i = 0; i < a->h->n_options; i++)
        all |=
            strcmp(a->h->options[i].name, "dump") == 0 && strcmp(a->h->options[i].value, "3") == 0;
    return (t->n_blobs || t->n_dumped) && (t->n_drifts || all);
}

/* The self-check: 1 probes change the answer, 0 they do not, -1 not known. *disturber: the least that
 * probes did in a trial that differs. */
int probes_disturb(const struct ds_analysis *a, int *disturber, int *check)
{
    int seen[DS_CHECK_PARTED + 1] = {0}, with_digest = -1, with_dump = -1;
    for (size_t i = 0; i < a->src->n_trials; i++) {
        const struct ds_trial *info = a->src->info(a->src->ctx, i);
        const struct arm_table *t = info->arm < a->h->n_arms ? &a->arms[info->arm] : NULL;
        if (info->pass != DS_PASS_BARE || !t || !t->n_trials)
            continue;
        const struct ds_trial_data *bare = a->src->get(a->src->ctx, i, NULL);
        if (bare && t->unstable_cells) {
            seen[check_unstable(a, t, bare)] = 1;
            continue;
        }
        if (bares_part(a, info->arm, bare)) {
            seen[DS_CHECK_PARTED] = 1;
            continue;
        }
        int *kind = dumps_drifts(a, t->rep) ? &with_dump : &with_digest,
            differs = bare ? bare_differs(bare, t->rep) : -1;
        if (differs < 0)
            continue;
        seen[differs ? DS_CHECK_DIFFERS : DS_CHECK_AGREES] = 1;
        *kind = *kind > differs ? *kind : differs;
    }
    static const int order[] = {DS_CHECK_DIFFERS, DS_CHECK_PARTED, DS_CHECK_AGREES,
                                DS_CHECK_AGREES_WITH_ONE, DS_CHECK_UNSTABLE};
    *check = DS_CHECK_NOT_RUN;
    for (size_t k = sizeof order / sizeof *order; k-- > 0;)
        *check = seen[order[k]] ? order[k] : *check;
    *disturber = *check != DS_CHECK_DIFFERS ? DS_DISTURBS_NOTHING
                 : with_digest == 1         ? DS_DISTURBS_DIGEST
                 : with_digest == 0         ? DS_DISTURBS_DUMP
                                            : DS_DISTURBS_EITHER;
    return *check == DS_CHECK_DIFFERS                                        ? 1
           : *check == DS_CHECK_AGREES || *check == DS_CHECK_AGREES_WITH_ONE ? 0
                                                                             : -1;
}

static int by_share(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Shares of one phase over natural trials: the median of those without drift (of all, if every one
 * drifts) and the total. */
int probe_share(const struct ds_analysis *a, int phase, double *median, double *total,
                struct ds_error *err)
{
    double *share = ds_calloc(a->src->n_trials, sizeof *share, "probe shares", err), probes = 0,
           passes = 0;
    if (!share)
        return -1;
    size_t n = 0;
    for (int drifting = 0; drifting < 2 && n == 0; drifting++) {
        probes = passes = 0;
        for (size_t i = 0; i < a->src->n_trials; i++) {
            const struct ds_trial *t = a->src->info(a->src->ctx, i);
            double pass = phase == DS_PHASE_PREFILL ? t->prefill_cpu_s : t->decode_cpu_s;
            double probe =
                phase == DS_PHASE_PREFILL ? t->probe_prefill_cpu_s : t->probe_decode_cpu_s;
            if (t->pass != DS_PASS_NATURAL || !(pass > 0))
                continue;
            probes += probe;
            passes += pass;
            const struct ds_trial_data *d = drifting ? NULL : a->src->get(a->src->ctx, i, NULL);
            if (drifting || (d && d->n_drifts == 0))
                share[n++] = probe / pass;
        }
    }
    qsort(share, n, sizeof *share, by_share);
    *median = n ? share[n / 2] : -1;
    *total = passes > 0 ? probes / passes : -1;
    free(share);
    return 0;
}
