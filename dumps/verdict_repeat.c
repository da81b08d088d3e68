/* verdict_repeat.c: the factor "repeat": do an arm's own trials agree? Owns the rate, its interval
 * and the first unstable place. */
#include "dumps/census.h"
#include "dumps/verdict_internal.h"

#include <stdlib.h>
#include <string.h>

/* What the kernel of a cell said of its launch in one trial; NULL: that trial has no such row. */
static const struct ds_launch *launch_in(const struct ds_analysis *a, size_t trial, uint32_t site,
                                         size_t row)
{
    struct ds_error ignored;
    const struct ds_trial_data *d = a->src->get(a->src->ctx, trial, &ignored);
    for (size_t i = 0; d && i < d->n_captures; i++) {
        const struct ds_capture *c = &d->captures[i];
        for (uint32_t j = 0; c->site == site && j < c->rows; j++)
            if (row_of_key(a, &d->rows[c->first_row + j], (uint32_t)row) == row)
                return &d->launches[c->launch];
    }
    return NULL;
}

static void add_first(const struct ds_analysis *a, struct ds_verdict *v, uint32_t arm,
                      const uint8_t *labels)
{
    static const int phases[DS_VERDICT_PHASES] = {-1, DS_PHASE_PREFILL, DS_PHASE_DECODE};
    const struct arm_table *t = &a->arms[arm];
    struct ds_factor_verdict *fv = &v->factors[0];
    for (int p = 0; p < DS_VERDICT_PHASES; p++) {
        struct ds_finding f;
        if (!first_drift(a, arm, arm, labels, phases[p], &f))
            continue;
        size_t row = 0;
        for (size_t i = 0; i < a->n_rows; i++)
            if (a->keys[i].request == f.request && a->keys[i].position == f.position &&
                a->keys[i].occurrence == f.occurrence)
                row = i;
        const struct odd_one *odd = &t->odd[f.site * a->n_rows + row];
        f.trial = t->trials[odd->trial ? odd->trial - 1 : 0];
        f.digest = odd->trial ? odd->digest : f.digest;
        f.launch = launch_in(a, f.trial, f.site, row);
        f.ref_launch = launch_in(a, t->trials[odd->mode_trial], f.site, row);
        uint32_t repeat = a->src->info(a->src->ctx, f.trial)->repeat,
                 base = a->src->info(a->src->ctx, t->trials[odd->mode_trial])->repeat;
        f.factor = fv->name;
        for (uint32_t i = 0; i < fv->n_values; i++) {
            if (strtoul(fv->values[i], NULL, 10) == repeat)
                f.value = fv->values[i];
            if (strtoul(fv->values[i], NULL, 10) == base)
                f.ref_value = fv->values[i];
        }
        if (finding_before(&f, &fv->phase[p].first))
            fv->phase[p].first = f;
    }
}

/* Whether the rate of disagreeing trials is also the rate of this arm: its repeats disagree, or may
 * agree by luck. To count only arms where they do would make a rare fault look frequent. */
static int may_be_unstable(const struct ds_analysis *a, const struct arm_table *t)
{
    for (size_t k = 0; !t->unstable_cells && k < a->n_families; k++)
        if (t->excluded[k] == EXCLUDED_LUCK)
            return 1;
    return t->unstable_cells != 0;
}

static void count_arm(struct ds_analysis *a, struct ds_verdict *v, uint32_t arm,
                      const uint8_t *labels, uint8_t *drifts)
{
    const struct arm_table *t = &a->arms[arm];
    struct ds_factor_verdict *fv = &v->factors[0];
    for (size_t cell = 0; cell < a->cells; cell++) {
        uint8_t label = labels[cell] & LABEL_MASK;
        size_t row = cell % a->n_rows;
        if (label == DS_LABEL_ABSENT)
            continue;
        int p = arm_call(t, row)->phase == DS_PHASE_DECODE ? DS_VERDICT_DECODE : DS_VERDICT_PREFILL;
        fv->phase[p].compared += t->n_trials - 1;
        if (!is_drift(label) && label != DS_LABEL_UNSTABLE)
            continue;
        fv->phase[DS_VERDICT_ALL].drifted++;
        fv->phase[p].drifted++;
        drifts[row] |= (uint8_t)(1u << DS_VERDICT_ALL | 1u << p);
    }
    fv->phase[DS_VERDICT_ALL].compared += t->repeat_compared;
    v->counts.digests_compared += t->repeat_compared;
    fv->arms++;
    if (!may_be_unstable(a, t))
        return;
    v->unstable.of_arms++;
    v->unstable.trials += t->n_trials;
    v->unstable.disagree += t->disagree;
    v->unstable.rows += t->unstable_cells;
    v->unstable.of_rows += t->repeated_cells;
    if (!t->unstable_cells)
        return;
    v->stable = 0;
    v->unstable.arms++;
    add_first(a, v, arm, labels);
}

/* Repeats i and j are in one class when no arm has a digest in which they differ. */
static int class_repeats(struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err)
{
    struct ds_factor_verdict *fv = &v->factors[0];
    uint32_t n = fv->n_values;
    uint8_t *seen = ds_calloc((size_t)n * n * DS_VERDICT_PHASES, 1, "repeat classes", err);
    if (!seen)
        return -1;
    for (uint32_t arm = 0; arm < a->h->n_arms; arm++)
        for (uint32_t x = 0; x < a->arms[arm].n_trials; x++)
            for (uint32_t y = 0; y < x; y++) {
                const struct arm_table *t = &a->arms[arm];
                uint32_t i = t->value_of[x], j = t->value_of[y];
                for (int p = 0; p < DS_VERDICT_PHASES; p++) {
                    uint8_t bit = t->hash[x][p] == t->hash[y][p] ? 1 : 2;
                    seen[((size_t)p * n + i) * n + j] |= bit;
                    seen[((size_t)p * n + j) * n + i] |= bit;
                }
            }
    for (int p = 0; p < DS_VERDICT_PHASES; p++) {
        uint32_t *class_of = fv->phase[p].class_of, classes = 0;
        for (uint32_t i = 0; i < n; i++) {
            class_of[i] = DS_NO_CLASS;
            uint8_t any = 0;
            for (uint32_t j = 0; j < n; j++)
                any |= i == j ? 0 : seen[((size_t)p * n + i) * n + j];
            for (uint32_t j = 0; j < i && class_of[i] == DS_NO_CLASS; j++)
                if (seen[((size_t)p * n + i) * n + j] == 1)
                    class_of[i] = class_of[j];
            if (any && class_of[i] == DS_NO_CLASS)
                class_of[i] = classes++;
        }
        fv->phase[p].n_classes = classes;
    }
    free(seen);
    return 0;
}

int judge_repeats(struct ds_analysis *a, uint8_t *labels, struct ds_verdict *v,
                  struct ds_error *err)
{
    struct ds_factor_verdict *fv = &v->factors[0];
    uint8_t *drifts = ds_calloc(a->n_rows, 1, "rows", err);
    uint8_t *healed = ds_calloc(a->cells, 1, "labels", err);
    if (!drifts || !healed) {
        free(drifts);
        free(healed);
        return -1;
    }
    v->stable = 1;
    for (uint32_t arm = 0; arm < a->h->n_arms; arm++) {
        if (a->arms[arm].n_trials < 2)
            continue;
        label_pair(a, arm, arm, labels);
        count_arm(a, v, arm, labels, drifts);
        const struct ds_finding of = {
            .arm = arm, .ref_arm = arm, .factor = fv->name, .value = fv->values[0]};
        const struct heal_table *h = healed_table(a, arm, arm);
        if (h)
            label_unstable(a, h, healed);
        if (add_origins(a, v, &of, labels, h ? healed : NULL, err) != 0 ||
            compare_repeated_tokens(a, arm, v, err) != 0) {
            free(drifts);
            free(healed);
            return -1;
        }
    }
    for (int p = 0; p < DS_VERDICT_PHASES; p++)
        for (size_t i = 0; i < a->n_rows; i++)
            fv->phase[p].rows += (drifts[i] >> p) & 1u;
    free(drifts);
    free(healed);
    v->unstable.first = fv->phase[DS_VERDICT_ALL].first;
    ds_wilson(v->unstable.disagree, v->unstable.trials, &v->unstable.low, &v->unstable.high);
    for (size_t k = 0; k < a->n_kernels; k++)
        v->kernels[k].condition[0] = a->kernel_unstable[k]  ? DS_COND_UNSTABLE
                                     : a->kernel_repeats[k] ? DS_COND_SAME
                                     : fv->arms             ? DS_COND_UNKNOWN
                                                            : DS_COND_NOT_RUN;
    return class_repeats(a, v, err);
}
