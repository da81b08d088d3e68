/* diff_heal.c: kernels of two records judged behind their first difference. Two arms that differ have unlike
 * inputs from there on. But where each was healed to an arm of its own record, and those two arms agree in
 * every row, both heal trials had the same inputs at every depth: what differs between them is an origin.
 * Heal trials are read only then. */
#include "dumps/diff_internal.h"
#include "dumps/verdict_internal.h"

#include <stdlib.h>
#include <string.h>

enum { ARE_EQUAL = 1, DIFFER };

/* Whether the two arms of a pair agree in all that both recorded, in every trial. */
static int compare_pair(const struct ds_analysis *a, uint32_t p)
{
    const struct arm_table *x = &a->arms[2 * p], *y = &a->arms[2 * p + 1];
    size_t common = 0;
    if (!x->n_trials || !y->n_trials || x->unstable_cells || y->unstable_cells)
        return DIFFER;
    for (size_t cell = 0; cell < a->cells; cell++) {
        if (x->state[cell] == CELL_ABSENT || y->state[cell] == CELL_ABSENT)
            continue;
        common++;
        if (x->digest[cell] != y->digest[cell] || is_near(x, y, cell))
            return DIFFER;
    }
    return common ? ARE_EQUAL : DIFFER;
}

static int add_drifts(const struct ds_trial_data *from, uint32_t healed_to, const uint32_t *map,
                      size_t sites, struct ds_trial_data *t, struct ds_error *err)
{
    if (!(t->drifts = ds_calloc(from->n_drifts, sizeof *t->drifts, "healed rows", err)))
        return -1;
    for (size_t i = 0; i < from->n_drifts; i++)
        if (from->drifts[i].site < sites) {
            t->drifts[t->n_drifts] = from->drifts[i];
            t->drifts[t->n_drifts].site = map[from->drifts[i].site];
            t->drifts[t->n_drifts++].ref_arm = healed_to;
        }
    return 0;
}

/* The heal trials of one side of arms that differ, healed to arms whose pair agrees. */
static int join_side(struct ds_diff *d, const struct ds_source *s, int side, const uint8_t *pairs,
                     const uint32_t *joined, int *changed, struct ds_error *err)
{
    for (size_t i = 0; i < s->n_trials; i++) {
        const struct ds_trial *info = s->info(s->ctx, i);
        if (info->pass != DS_PASS_HEAL || info->arm >= s->header->n_arms ||
            info->healed_to >= s->header->n_arms)
            continue;
        const uint32_t arm = joined[info->arm], to = joined[info->healed_to];
        if (arm == NONE || to == NONE || pairs[arm / 2] != DIFFER || pairs[to / 2] != ARE_EQUAL)
            continue;
        const struct ds_trial_data *from = s->get(s->ctx, i, err);
        if (!from || diff_join_trial(d, s, i, arm, d->site_map[side], err) != 0)
            return -1;
        struct ds_trial_data *t = &d->trials[d->n_trials - 1];
        t->info.healed_to = to;
        if (add_drifts(from, to, d->site_map[side], s->header->n_sites, t, err) != 0)
            return -1;
        d->healed_to[arm] = to;
        *changed = 1;
    }
    return 0;
}

/* An arm that equals the one it would be healed to has no heal trial: its natural one is that. */
static void settle(struct ds_diff *d)
{
    for (uint32_t arm = 0; arm < 2 * d->pairs; arm++) {
        const uint32_t other = d->healed_to[arm ^ 1];
        if (d->healed_to[arm] == NONE && other != NONE)
            d->healed_to[arm] = other ^ 1;
    }
}

int diff_heal(struct ds_diff *d, const struct ds_source *a, const struct ds_source *b, int *changed,
              struct ds_error *err)
{
    const struct ds_source *s[2] = {a, b};
    *changed = 0;
    if (d->pairs < 2 || d->verdict.result != DS_RESULT_DRIFT || !d->verdict.stable)
        return 0;
    uint8_t *pairs = ds_calloc(d->pairs, sizeof *pairs, "pairs", err);
    d->healed_to = ds_calloc(2 * d->pairs, sizeof *d->healed_to, "arms", err);
    int rc = pairs && d->healed_to ? 0 : -1;
    for (uint32_t p = 0; rc == 0 && p < d->pairs; p++) {
        pairs[p] = (uint8_t)compare_pair(d->analysis, p);
        d->healed_to[2 * p] = d->healed_to[2 * p + 1] = NONE;
    }
    for (int side = 0; rc == 0 && side < 2; side++) {
        uint32_t *joined = ds_calloc(s[side]->header->n_arms, sizeof *joined, "arms", err);
        rc = joined ? 0 : -1;
        for (size_t i = 0; rc == 0 && i < s[side]->header->n_arms; i++)
            joined[i] = NONE;
        for (uint32_t arm = (uint32_t)side; rc == 0 && arm < 2 * d->pairs; arm += 2)
            joined[d->arm_of[arm]] = arm;
        rc = rc ? rc : join_side(d, s[side], side, pairs, joined, changed, err);
        free(joined);
    }
    if (rc == 0)
        settle(d);
    free(pairs);
    return rc;
}
