/* verdict.c: the verdict as a whole (verdict.h): puts the answers of verdict_*.c together and says
 * whether there is anything to compare. Pure; knows no file. */
#include "dumps/census.h"
#include "dumps/validity.h"
#include "dumps/verdict_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ds_analysis_new(const struct ds_source *s, const struct ds_analysis_options *options,
                    struct ds_analysis **out, struct ds_error *err)
{
    struct ds_analysis *a = ds_calloc(1, sizeof *a, "analysis", err);
    if (!a)
        return -1;
    a->src = s;
    a->h = s->header;
    if (options)
        a->options = *options;
    a->n_sites = a->h->n_sites;
    if (analysis_build(a, err) == 0) {
        uint8_t *labels = ds_calloc(a->cells, 1, "labels", err);
        int rc = labels ? find_unstable_kernels(a, labels, err) : -1;
        if (rc == 0 && is_stopped(a))
            rc = ds_fail(err, "given up");
        free(labels);
        if (rc == 0) {
            *out = a;
            return 0;
        }
    }
    ds_analysis_free(a);
    return -1;
}

static void free_table(struct arm_table *t)
{
    free(t->trials);
    free(t->value_of);
    free(t->hash);
    free(t->digest);
    free(t->capture);
    free(t->kernel);
    free(t->state);
    free(t->near);
    free(t->has);
    free(t->shares);
    free(t->row);
    free(t->requests);
    free(t->excluded);
    free(t->odd);
}

void ds_analysis_free(struct ds_analysis *a)
{
    if (!a)
        return;
    for (size_t i = 0; a->arms && i < a->h->n_arms; i++)
        free_table(&a->arms[i]);
    for (size_t i = 0; i < a->n_healed; i++) {
        free_table(&a->healed[i].t);
        free(a->healed[i].drift);
    }
    free(a->healed);
    free(a->origin_seen);
    for (size_t f = 0; a->values && f < a->h->n_factors; f++)
        free(a->values[f]);
    free(a->arms);
    free(a->keys);
    free(a->value);
    free(a->values);
    free(a->n_values);
    free(a->in_start);
    free(a->in_from);
    free(a->in_kind);
    free(a->feeds_causal);
    free(a->feeds_all);
    free(a->shown);
    free(a->kernels);
    free(a->stage_of);
    free(a->repeats);
    free(a->kernel_unstable);
    free(a->kernel_repeats);
    free(a->status);
    free(a->prefix);
    free(a->skip);
    free(a->call_status);
    free(a->inputs);
    free(a->gap);
    free(a->open);
    free(a->marks);
    free(a->place_of);
    free(a->beside);
    free(a->last.labels);
    free(a);
}

/* ---- room for the answer --------------------------------------------------------------------- */

static int set_up_factor(const struct ds_analysis *a, struct ds_verdict *v, size_t f,
                         struct ds_error *err)
{
    struct ds_factor_verdict *fv = &v->factors[f];
    fv->name = f == 0 ? "repeat" : a->h->factors[f - 1];
    fv->n_values = f == 0 ? (uint32_t)a->n_repeats : a->n_values[f - 1];
    if (!(fv->values = ds_calloc(fv->n_values, sizeof *fv->values, "factor values", err)))
        return -1;
    for (uint32_t i = 0; i < fv->n_values; i++) {
        char text[16];
        snprintf(text, sizeof text, "%u", f == 0 ? a->repeats[i] : 0);
        fv->values[i] = f == 0 ? verdict_own(v, text, err) : a->values[f - 1][i];
        if (!fv->values[i])
            return -1;
    }
    for (int p = 0; p < DS_VERDICT_PHASES; p++)
        if (!(fv->phase[p].class_of =
                  ds_calloc(fv->n_values, sizeof *fv->phase[p].class_of, "classes", err)))
            return -1;
    return 0;
}

static int set_up(const struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err)
{
    memset(v, 0, sizeof *v);
    v->n_factors = a->h->n_factors + 1;
    if (!(v->factors = ds_calloc(v->n_factors, sizeof *v->factors, "factors", err)) ||
        !(v->kernels = ds_calloc(a->n_kernels, sizeof *v->kernels, "kernels", err)))
        return -1;
    v->n_kernels = a->n_kernels;
    for (size_t f = 0; f < v->n_factors; f++)
        if (set_up_factor(a, v, f, err) != 0)
            return -1;
    for (size_t k = 0; k < a->n_kernels; k++) {
        struct ds_kernel_verdict *kv = &v->kernels[k];
        kv->op = a->kernels[k].op;
        kv->variant = a->kernels[k].variant;
        if (!(kv->condition = ds_calloc(v->n_factors, 1, "conditions", err)) ||
            !(kv->count = ds_calloc(v->n_factors, sizeof *kv->count, "conditions", err)) ||
            !(kv->first = ds_calloc(v->n_factors, sizeof *kv->first, "conditions", err)) ||
            !(kv->class_of = ds_calloc(v->n_factors, sizeof *kv->class_of, "classes", err)))
            return -1;
        for (size_t f = 0; f < v->n_factors; f++) {
            if (!(kv->class_of[f] =
                      ds_calloc(v->factors[f].n_values, sizeof **kv->class_of, "classes", err)))
                return -1;
            for (uint32_t i = 0; i < v->factors[f].n_values; i++)
                kv->class_of[f][i] = DS_NO_CLASS;
        }
    }
    return 0;
}

/* ---- the record itself ----------------------------------------------------------------------- */

/* One kernel, one setting of everything a kernel sees, two processes: what a process chose for
 * itself (by timing, by what else it had loaded) may be behind a difference, and the sweep cannot
 * tell. */
static int note_processes(const struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err)
{
    const struct ds_finding *f = &v->first;
    if (!f->found || !v->stable || a->options.only_factor || f->arm == f->ref_arm ||
        strcmp(f->variant, f->ref_variant) != 0 || strcmp(f->factor, "process") == 0 ||
        strcmp(f->factor, "blas-core") == 0)
        return 0;
    int32_t mine = a->arms[f->arm].rep->info.worker, theirs = a->arms[f->ref_arm].rep->info.worker;
    if (mine == theirs)
        return 0;
    return verdict_note(v, err,
                        "%s %s ran in another process than its reference (worker %d against %d): "
                        "--process 1,3 tells whether processes agree",
                        f->factor, f->value, mine, theirs);
}

static int count_record(const struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err)
{
    v->counts.trials = a->n_natural;
    for (size_t i = 0; i < a->n_healed; i++)
        v->counts.heal_trials += a->healed[i].t.n_trials;
    v->counts.arms_planned = a->h->n_arms;
    v->counts.rows = a->n_rows;
    for (size_t i = a->h->n_arms; i-- > 0;)
        if (a->arms[i].n_trials) {
            v->counts.arms++;
            v->ref_arm = (uint32_t)i;
            v->ref_trial = a->arms[i].trials[0];
        }
    for (size_t s = 0; a->n_natural && s < a->n_sites; s++) {
        const uint8_t *state = a->arms[v->ref_arm].state + s * a->n_rows;
        v->counts.sites += a->n_rows && memchr(state, CELL_STABLE, a->n_rows) != NULL;
        v->counts.sites += a->n_rows && !memchr(state, CELL_STABLE, a->n_rows) &&
                           memchr(state, CELL_UNSTABLE, a->n_rows);
    }
    v->disturbs = probes_disturb(a, &v->disturber, &v->check);
    if (probe_share(a, DS_PHASE_PREFILL, &v->overhead_prefill, &v->total_prefill, err) != 0)
        return -1;
    return probe_share(a, DS_PHASE_DECODE, &v->overhead_decode, &v->total_decode, err);
}

/* Repeats that agree, where two passes without probes do not: something is unstable, and no repeat has shown where. */
static void refuse_parted(struct ds_verdict *v)
{
    if (v->check != DS_CHECK_PARTED || v->result == DS_RESULT_DRIFT)
        return;
    v->result = DS_RESULT_INCOMPARABLE;
    snprintf(v->reason, sizeof v->reason,
             "passes without probes do not give the same answer twice, though the trials agree: a "
             "kernel is unstable, and more repeats would show which (--repeat)");
}

/* A fixture that cannot show a fault is no evidence that there is none. */
static void refuse_inert(struct ds_verdict *v)
{
    const struct ds_validity_item *first = NULL;
    size_t n = 0;
    for (size_t i = v->validity ? v->validity->n_items : 0; i-- > 0;)
        if (v->validity->items[i].kind == DS_VALIDITY_INERT) {
            first = &v->validity->items[i];
            n++;
        }
    if (!first)
        return;
    v->result = DS_RESULT_INCOMPARABLE;
    snprintf(v->reason, sizeof v->reason, "%s", first->text);
    if (n > 1)
        snprintf(v->reason, sizeof v->reason, "%.220s and %zu more", first->text, n - 1);
}

static void settle_result(const struct ds_analysis *a, struct ds_verdict *v)
{
    uint64_t drifted = 0, compared = v->counts.digests_compared;
    for (size_t f = 0; f < v->n_factors; f++)
        drifted += v->factors[f].phase[DS_VERDICT_ALL].drifted;
    if (a->options.only_factor) /* repeats alone do not answer the question */
        for (size_t f = 0; f < v->n_factors; f++)
            if (strcmp(v->factors[f].name, a->options.only_factor) == 0)
                compared = v->factors[f].phase[DS_VERDICT_ALL].compared;
    const struct ds_validity_item *objection = validity_objection(a, v->validity);
    if (a->n_natural == 0) {
        v->result = DS_RESULT_INCOMPARABLE;
        snprintf(v->reason, sizeof v->reason, "the record holds no complete trial");
    } else if (drifted) {
        v->result = DS_RESULT_DRIFT;
    } else if (a->shape_mismatch && compared == 0) {
        v->result = DS_RESULT_INCOMPARABLE;
        snprintf(v->reason, sizeof v->reason,
                 "rows of the same site have different widths in different arms");
    } else if (a->n_natural == 1 && !objection) {
        v->result = DS_RESULT_RECORDED;
        refuse_inert(v);
        refuse_parted(v);
    } else if (compared == 0 && a->n_natural > 1) {
        v->result = DS_RESULT_INCOMPARABLE;
        snprintf(v->reason, sizeof v->reason, "%s",
                 a->tokens_cut ? "no two arms have a digest of the same row and site before other "
                                 "tokens were fed"
                               : "no two arms have a digest of the same row and site, or no arm "
                                 "has a reference arm");
    } else if (objection) {
        v->result = DS_RESULT_INCOMPARABLE;
        snprintf(v->reason, sizeof v->reason, "the captures prove nothing: %s", objection->text);
    } else {
        v->result = DS_RESULT_SAME;
        refuse_inert(v);
        refuse_parted(v);
    }
}

/* Earliest over all factors; what is unstable comes first, since nothing else is sure before that
 * is cured. */
static void find_first(struct ds_verdict *v)
{
    v->first = v->factors[0].phase[DS_VERDICT_ALL].first;
    for (size_t f = 1; f < v->n_factors && v->stable; f++)
        if (finding_before(&v->factors[f].phase[DS_VERDICT_ALL].first, &v->first))
            v->first = v->factors[f].phase[DS_VERDICT_ALL].first;
    v->sites_before = v->first.found ? v->first.site : 0;
}

static int size_findings(struct ds_analysis *a, uint8_t *labels, struct ds_verdict *v,
                         struct ds_error *err)
{
    static const int phases[DS_VERDICT_PHASES] = {-1, DS_PHASE_PREFILL, DS_PHASE_DECODE};
    for (size_t f = 0; f < v->n_factors; f++)
        for (int p = 0; p < DS_VERDICT_PHASES; p++)
            if (size_finding(a, labels, phases[p], &v->factors[f].phase[p].first, err) != 0 ||
                borrow_sizes(a, phases[p], labels, &v->factors[f].phase[p].first, err) != 0)
                return -1;
    v->unstable.first = v->factors[0].phase[DS_VERDICT_ALL].first;
    return 0;
}

/* "transfer/none" is no kernel: it is told only where it was held against one. */
static void drop_stand_ins(struct ds_verdict *v)
{
    for (size_t k = v->n_kernels; k-- > 0;)
        if (v->kernels[k].compared == 0 && strcmp(v->kernels[k].op, "transfer") == 0 &&
            strcmp(v->kernels[k].variant, "none") == 0)
            verdict_drop_kernel(v, k);
}

int ds_analysis_verdict(struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err)
{
    if (set_up(a, v, err) != 0) {
        ds_verdict_free(v);
        return -1;
    }
    a->shape_mismatch = a->tokens_cut = 0;
    memset(a->origin_seen, 0, a->n_sites * sizeof *a->origin_seen);
    uint8_t *labels = ds_calloc(a->cells, 1, "labels", err);
    int rc = labels ? count_record(a, v, err) : -1;
    if (rc == 0 && a->n_natural)
        rc = judge_repeats(a, labels, v, err) != 0 || take_census(a, labels, v, err) != 0 ||
                     judge_factors(a, labels, v, err) != 0 || find_discrete(a, v, err) != 0 ||
                     find_switches(a, v, err) != 0
                 ? -1
                 : 0;
    if (rc == 0 && a->n_natural)
        rc = size_findings(a, labels, v, err);
    if (rc == 0)
        find_apart(a, v);
    if (rc == 0)
        rc = find_failed(a, v, err);
    if (rc == 0 && a->n_natural) {
        count_ties(a, v);
        find_first(v);
        sort_origins(v);
        rc = find_nonfinite(a, v, err) != 0 || size_origins(a, v, labels, err) != 0 ||
                     find_growth(a, v, err) != 0 || find_added(a, v, labels, err) != 0 ||
                     find_ranges(a, v, err) != 0 || judge_validity(a, v, err) != 0 ||
                     note_processes(a, v, err) != 0 || note_packed(a, v, err) != 0 ||
                     note_findings(a, v, err) != 0 || find_precisions(a, v, err) != 0
                 ? -1
                 : 0;
        if (rc == 0 && a->shape_mismatch)
            rc = verdict_note(v, err,
                              "%llu digests were not compared: their rows have different widths",
                              (unsigned long long)a->shape_mismatch);
        if (rc == 0 && a->tokens_cut)
            rc = verdict_note(v, err,
                              "rows after a step at which other tokens were fed are not compared");
    }
    free(labels);
    if (rc == 0 && is_stopped(a))
        rc = ds_fail(err, "given up");
    if (rc != 0) {
        ds_verdict_free(v);
        return -1;
    }
    if (!a->n_natural)
        v->stable = 1;
    settle_result(a, v);
    drop_stand_ins(v);
    return 0;
}

int ds_verdict_make(const struct ds_source *s, struct ds_verdict *v, struct ds_error *err)
{
    struct ds_analysis *a;
    if (ds_analysis_new(s, NULL, &a, err) != 0)
        return -1;
    int rc = ds_analysis_verdict(a, v, err);
    ds_analysis_free(a);
    return rc;
}

/* ---- single rows ----------------------------------------------------------------------------- */

uint64_t ds_analysis_bytes(const struct ds_analysis *a)
{
    return a->bytes;
}

size_t ds_analysis_rows(const struct ds_analysis *a)
{
    return a->n_rows;
}

const struct ds_row_key *ds_analysis_row(const struct ds_analysis *a, size_t i)
{
    return i < a->n_rows ? &a->keys[i] : NULL;
}

int ds_analysis_digest(const struct ds_analysis *a, uint32_t arm, uint32_t site, size_t row,
                       uint64_t *digest)
{
    if (arm >= a->h->n_arms || site >= a->n_sites || row >= a->n_rows || !a->arms[arm].n_trials)
        return 0;
    size_t cell = site * a->n_rows + row;
    const struct arm_table *t = &a->arms[arm];
    if (t->state[cell] != CELL_STABLE || !t->near || !t->near[cell] ||
        !recorded_digest(a, t, cell, digest))
        *digest = t->digest[cell];
    return t->state[cell] != CELL_ABSENT;
}

int ds_analysis_has_row(const struct ds_analysis *a, uint32_t arm, size_t row)
{
    return arm < a->h->n_arms && row < a->n_rows && a->arms[arm].n_trials &&
           a->arms[arm].row[row] != NONE;
}

int ds_analysis_find_row(const struct ds_analysis *a, uint32_t arm, size_t row, uint32_t *at)
{
    if (!ds_analysis_has_row(a, arm, row))
        return 0;
    *at = a->arms[arm].row[row];
    return 1;
}

int ds_analysis_has_site(const struct ds_analysis *a, uint32_t arm, uint32_t site)
{
    return arm < a->h->n_arms && site < a->n_sites && a->arms[arm].n_trials &&
           a->arms[arm].has[site] == HAS_CAPTURES;
}

void ds_analysis_unpaired(const struct ds_analysis *a, uint32_t x, uint32_t y, uint64_t n[2])
{
    if (x >= a->h->n_arms || y >= a->h->n_arms || !a->arms[x].n_trials || !a->arms[y].n_trials)
        return;
    const uint8_t *sx = a->arms[x].state, *sy = a->arms[y].state;
    for (size_t i = 0; i < a->cells; i++) {
        n[0] += sx[i] != CELL_ABSENT && sy[i] == CELL_ABSENT;
        n[1] += sx[i] == CELL_ABSENT && sy[i] != CELL_ABSENT;
    }
}

uint32_t ds_analysis_trials(const struct ds_analysis *a, uint32_t arm)
{
    return arm < a->h->n_arms ? a->arms[arm].n_trials : 0;
}

const struct ds_trial_data *ds_analysis_trial(const struct ds_analysis *a, uint32_t arm)
{
    return arm < a->h->n_arms ? a->arms[arm].rep : NULL;
}

int ds_analysis_pair(const struct ds_analysis *a, uint32_t arm, uint32_t *ref, const char **factor,
                     const char **value)
{
    if (arm >= a->h->n_arms || !a->arms[arm].n_trials)
        return 0;
    for (uint32_t f = 0; f < a->h->n_factors; f++) {
        int64_t r = ds_arm_reference(a->h, arm, f);
        if (r < 0 || !a->arms[r].n_trials)
            continue;
        *ref = (uint32_t)r;
        *factor = a->h->factors[f];
        *value = a->h->arms[arm].values[f];
        return 1;
    }
    return 0;
}
