/* verdict_factor.c: compares every arm with its reference and with the representatives of the
 * classes found so far: classes, first drifts, counts per kernel. Values of a factor are judged
 * over all settings of the others (contexts); two values are in one class only if no context shows
 * a difference. */
#include "dumps/verdict_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEEN_SAME = 1, SEEN_DIFF = 2 };
enum { OUT_WITHIN = 1, OUT_BEYOND = 2 }; /* of a tolerance */

struct member { /* an arm in its context */
    uint64_t context;
    uint32_t value, arm;
};

struct tally { /* one factor at work */
    struct ds_error *err;
    int failed; /* out of memory */
    struct ds_analysis *a;
    struct ds_verdict *v;
    struct ds_factor_verdict *fv;
    size_t factor;                    /* index in the header */
    uint8_t *labels, *healed, *other; /* [cells] natural; on equal inputs; scratch */
    uint8_t *seen; /* [DS_VERDICT_PHASES + n_kernels][n_values][n_values] SEEN_* */
    uint8_t *kernel_run, *kernel_unstable; /* [n_kernels] */
    uint8_t *
        kernel_within; /* [n_kernels] OUT_*, of the rows that were not judged on equal inputs too */
    /* [n_kernels] the first place is not of a comparison with the first value. */
    uint8_t *first_other;
    uint8_t *row_drifts;    /* [n_rows] bit per phase */
    uint8_t *origin_at;     /* [n_kernels][n_sites] other bits on equal inputs */
    uint8_t *phase_of_row;  /* [n_rows] of the pair at work */
    struct member *members; /* by context, then value */
    size_t n_members;
    struct band_work *bands;
};

int finding_before(const struct ds_finding *x, const struct ds_finding *y)
{
    if (!x->found || !y->found)
        return x->found && !y->found;
    if (x->site != y->site)
        return x->site < y->site;
    if (x->step != y->step)
        return x->step < y->step;
    return x->position != y->position ? x->position < y->position : 0;
}

static void count_site_rows(const struct ds_analysis *a, uint32_t ref, const uint8_t *labels,
                            int phase, struct ds_finding *f)
{
    const uint8_t *at = labels + (size_t)f->site * a->n_rows;
    int32_t last = -1;
    for (size_t i = 0; i < a->n_rows; i++) {
        if (!is_drift(at[i]) || (phase >= 0 && (int)arm_call(&a->arms[ref], i)->phase != phase))
            continue;
        f->positions += f->rows == 0 || a->keys[i].position != last;
        f->rows++;
        last = a->keys[i].position;
    }
}

void describe_cell(const struct ds_analysis *a, uint32_t arm, uint32_t ref, const uint8_t *labels,
                   size_t cell, int phase, struct ds_finding *out)
{
    const struct arm_table *t = &a->arms[arm], *r = &a->arms[ref];
    size_t site = cell / a->n_rows, i = cell % a->n_rows;
    const struct ds_site *s = &a->h->sites[site];
    const struct ds_row *row = arm_row(t, i);
    const struct ds_capture *mine = &t->rep->captures[t->capture[cell]],
                            *theirs = &r->rep->captures[r->capture[cell]];
    *out = (struct ds_finding){.found = 1,
                               .site = (uint32_t)site,
                               .layer = s->layer,
                               .stage = s->stage,
                               .part = s->part,
                               .op = a->kernels[t->kernel[cell]].op,
                               .variant = a->kernels[t->kernel[cell]].variant,
                               .ref_variant = a->kernels[r->kernel[cell]].variant,
                               .arm = arm,
                               .ref_arm = ref,
                               .trial = t->trials[0],
                               .label = labels[cell] & LABEL_MASK,
                               .inputs_within = (labels[cell] & LABEL_NEAR) != 0,
                               .phase = arm_call(t, i)->phase,
                               .rows_in_call = capture_m(t, i, t->capture[cell]),
                               .ref_rows_in_call = capture_m(r, i, r->capture[cell]),
                               .request = row->request,
                               .position = row->position,
                               .occurrence = row->occurrence,
                               .step = row->step,
                               .row_kind = row->kind,
                               .launch = &t->rep->launches[mine->launch],
                               .ref_launch = &r->rep->launches[theirs->launch],
                               .blas_core = t->rep->info.blas_core,
                               .ref_blas_core = r->rep->info.blas_core,
                               .info = &t->rep->info,
                               .ref_info = &r->rep->info,
                               .digest = t->digest[cell],
                               .ref_digest = r->digest[cell]};
    if (labels[cell] & LABEL_BRIDGED)
        out->between = sites_between(a, out->site, &out->between_first);
    count_site_rows(a, ref, labels, phase, out);
}

int first_drift(const struct ds_analysis *a, uint32_t arm, uint32_t ref, const uint8_t *labels,
                int phase, struct ds_finding *out)
{
    const struct arm_table *t = &a->arms[arm], *r = &a->arms[ref];
    size_t best = SIZE_MAX;
    memset(out, 0, sizeof *out);
    for (size_t site = 0; best == SIZE_MAX && site < a->n_sites; site++)
        for (size_t i = 0; i < a->n_rows; i++) {
            if (!is_drift(labels[site * a->n_rows + i]) ||
                (phase >= 0 && (int)arm_call(r, i)->phase != phase))
                continue;
            size_t b = best - site * a->n_rows;
            if (best == SIZE_MAX || arm_row(t, i)->step < arm_row(t, b)->step ||
                (arm_row(t, i)->step == arm_row(t, b)->step &&
                 a->keys[i].position < a->keys[b].position))
                best = site * a->n_rows + i;
        }
    if (best == SIZE_MAX)
        return 0;
    describe_cell(a, arm, ref, labels, best, phase, out);
    return 1;
}

/* ---- one pair -------------------------------------------------------------------------------- */

static uint8_t *seen_at(const struct tally *w, size_t what, uint32_t value, uint32_t rep)
{
    return &w->seen[(what * w->fv->n_values + value) * w->fv->n_values + rep];
}

/* Keeps the first place of a kernel along this factor: drift before instability, a comparison with the first
 * value before others, then in execution order, then by arm. */
static void keep_first(struct tally *w, size_t k, const struct ds_kernel_first *now, int other)
{
    struct ds_kernel_first *f = &w->v->kernels[k].first[w->factor + 1];
    int rank = now->unstable << 1 | other, held = f->unstable << 1 | w->first_other[k];
    int later = held != rank                   ? held < rank
                : f->site != now->site         ? f->site < now->site
                : f->step != now->step         ? f->step < now->step
                : f->position != now->position ? f->position < now->position
                                               : f->arm <= now->arm;
    if (f->found && later)
        return;
    *f = *now;
    w->first_other[k] = (uint8_t)other;
}

/* What a kernel did there on equal inputs: as its heal trial shows it, else as the natural one does if
 * its inputs happened to be equal. Counts a comparison, which `natural` is the label of. */
static void count_kernel(struct tally *w, size_t site, size_t row, uint32_t arm, uint32_t ref,
                         uint32_t value, uint32_t rep)
{
    size_t cell = site * w->a->n_rows + row;
    const struct arm_table *t = &w->a->arms[arm], *r = &w->a->arms[ref];
    uint8_t natural = w->labels[cell] & LABEL_MASK,
            flagged = w->healed[cell] & LABEL_JUDGED ? w->healed[cell] : w->labels[cell],
            label = flagged & LABEL_MASK;
    size_t k = t->kernel[cell];
    struct ds_kernel_verdict *kv = &w->v->kernels[k];
    struct ds_kernel_first at = {.found = 1,
                                 .site = (uint32_t)site,
                                 .arm = arm,
                                 .ref_arm = ref,
                                 .step = arm_row(t, row)->step,
                                 .request = w->a->keys[row].request,
                                 .position = w->a->keys[row].position};
    w->kernel_run[k] = 1;
    w->kernel_within[k] |= label == DS_LABEL_WITHIN ? OUT_WITHIN : is_drift(label) ? OUT_BEYOND : 0;
    if (label == DS_LABEL_UNSTABLE) {
        kv->unstable += rep == 0;
        int mine = t->excluded[family(w->a, t, site, cell)],
            theirs = r->excluded[family(w->a, r, site, cell)];
        if (flagged & LABEL_JUDGED || mine || theirs) {
            w->kernel_unstable[k] = 1;
            at.unstable = 1;
            at.arm = mine || !theirs ? arm : ref;
            at.ref_arm = mine ? arm : ref;
            keep_first(w, k, &at, rep != 0);
        }
        return;
    }
    if (flagged & LABEL_JUDGED)
        *seen_at(w, DS_VERDICT_PHASES + k, value, rep) |= is_drift(label) ? SEEN_DIFF : SEEN_SAME;
    if (flagged & LABEL_JUDGED && is_drift(label)) {
        keep_first(w, k, &at, rep != 0);
        w->origin_at[k * w->a->n_sites + site] = 1;
    }
    if (rep != 0)
        return;
    kv->compared++;
    kv->judged += (flagged & LABEL_JUDGED) != 0;
    kv->origins += label == DS_LABEL_ORIGIN && !(flagged & LABEL_BRIDGED);
    kv->inherited += natural == DS_LABEL_INHERITED;
    kv->healed += natural == DS_LABEL_HEALED;
    kv->within += label == DS_LABEL_WITHIN;
    kv->unknown +=
        label == DS_LABEL_UNKNOWN || (label == DS_LABEL_ORIGIN && flagged & LABEL_BRIDGED);
}

static void count_cell(struct tally *w, size_t site, size_t row, uint32_t arm, uint32_t ref,
                       uint32_t value, uint32_t rep)
{
    size_t cell = site * w->a->n_rows + row;
    uint8_t label = w->labels[cell] & LABEL_MASK;
    int phase = w->phase_of_row[row], against_base = rep == 0, drift = is_drift(label);
    struct ds_factor_phase *all = &w->fv->phase[DS_VERDICT_ALL], *one = &w->fv->phase[phase];
    count_kernel(w, site, row, arm, ref, value, rep);
    if (label == DS_LABEL_UNSTABLE) {
        all->unstable += against_base;
        one->unstable += against_base;
        return;
    }
    *seen_at(w, DS_VERDICT_ALL, value, rep) |= drift ? SEEN_DIFF : SEEN_SAME;
    *seen_at(w, (size_t)phase, value, rep) |= drift ? SEEN_DIFF : SEEN_SAME;
    if (!against_base)
        return;
    all->compared++;
    one->compared++;
    if (drift) {
        all->drifted++;
        one->drifted++;
        w->row_drifts[row] |= (uint8_t)(1u << DS_VERDICT_ALL | 1u << phase);
    }
}

/* base: the arm with the factor's first value in this context, or NONE. */
static void compare_arms(struct tally *w, uint32_t arm, uint32_t ref, uint32_t base, uint32_t value,
                         uint32_t rep)
{
    struct ds_analysis *a = w->a;
    if (is_stopped(a))
        return;
    if (base == NONE || !judge_healed_pair(a, arm, ref, base, w->healed, w->other))
        memset(w->healed, 0, a->cells);
    label_pair(a, arm, ref, w->labels);
    for (size_t i = 0; i < a->n_rows; i++)
        w->phase_of_row[i] =
            a->arms[ref].row[i] != NONE && arm_call(&a->arms[ref], i)->phase == DS_PHASE_DECODE
                ? DS_VERDICT_DECODE
                : DS_VERDICT_PREFILL;
    for (size_t site = 0; site < a->n_sites; site++)
        for (size_t i = 0; i < a->n_rows; i++)
            if (w->labels[site * a->n_rows + i] != DS_LABEL_ABSENT)
                count_cell(w, site, i, arm, ref, value, rep);
    if (rep != 0)
        return;
    w->fv->arms++;
    const struct ds_finding of = {
        .arm = arm, .ref_arm = ref, .factor = w->fv->name, .value = w->fv->values[value]};
    w->failed |= add_origins(a, w->v, &of, w->labels, w->healed, w->err) != 0 ||
                 count_bands(a, &w->bands, arm, w->fv->name, w->labels, w->healed, w->err) != 0;
    compare_tokens(a, arm, ref, w->fv->name, w->fv->values[value], w->v);
    compare_experts(a, arm, ref, w->labels, w->fv->name, w->fv->values[value], w->v);
    static const int phases[DS_VERDICT_PHASES] = {-1, DS_PHASE_PREFILL, DS_PHASE_DECODE};
    for (int p = 0; p < DS_VERDICT_PHASES; p++) {
        struct ds_finding f;
        if (w->fv->phase[p].drifted == 0 || !first_drift(a, arm, ref, w->labels, phases[p], &f))
            continue;
        f.factor = w->fv->name;
        f.value = w->fv->values[value];
        f.ref_value = w->fv->values[0];
        /* Contexts come in no order of use: of equals, the arm nearest to the base is told. */
        struct ds_finding *first = &w->fv->phase[p].first;
        if (finding_before(&f, first) || (!finding_before(first, &f) && f.arm < first->arm))
            *first = f;
    }
}

/* ---- values of one factor -------------------------------------------------------------------- */

static int member_cmp(const void *pa, const void *pb)
{
    const struct member *a = pa, *b = pb;
    if (a->context != b->context)
        return a->context < b->context ? -1 : 1;
    if (a->value != b->value)
        return a->value < b->value ? -1 : 1;
    return (a->arm > b->arm) - (a->arm < b->arm);
}

static int list_members(struct tally *w, struct ds_error *err)
{
    const struct ds_analysis *a = w->a;
    size_t nf = a->h->n_factors;
    /* Rows stored in unlike formats have no bits to compare: see ds_arm_reference. */
    if (strcmp(a->h->factors[w->factor], "dtype") == 0)
        return 0;
    if (!(w->members = ds_calloc(a->h->n_arms, sizeof *w->members, "contexts", err)))
        return -1;
    for (uint32_t i = 0; i < a->h->n_arms; i++) {
        uint64_t hash = UINT64_C(0x9e3779b97f4a7c15);
        for (size_t f = 0; f < nf; f++) {
            uint64_t x = f == w->factor ? UINT64_MAX : a->value[i * nf + f];
            hash = (hash ^ (x + UINT64_C(0x9e3779b97f4a7c15))) * UINT64_C(0xff51afd7ed558ccd);
            hash ^= hash >> 32;
        }
        w->members[i] = (struct member){hash, a->value[i * nf + w->factor], i};
    }
    qsort(w->members, a->h->n_arms, sizeof *w->members, member_cmp);
    w->n_members = a->h->n_arms;
    return 0;
}

/* Compares value with rep in every context that has both. */
static void compare_values(struct tally *w, uint32_t value, uint32_t rep)
{
    for (size_t i = 0, j; i < w->n_members; i = j) {
        uint32_t arm = NONE, ref = NONE, base = NONE;
        for (j = i; j < w->n_members && w->members[j].context == w->members[i].context; j++) {
            if (w->members[j].value == value && arm == NONE)
                arm = w->members[j].arm;
            if (w->members[j].value == rep && ref == NONE)
                ref = w->members[j].arm;
            if (w->members[j].value == 0 && base == NONE && w->a->arms[w->members[j].arm].n_trials)
                base = w->members[j].arm;
        }
        if (arm == NONE || ref == NONE)
            continue;
        if (w->a->arms[arm].n_trials && w->a->arms[ref].n_trials)
            compare_arms(w, arm, ref, base, value, rep);
        else if (rep == 0)
            w->fv->arms_alone++;
    }
}

/* Puts each value into the class of the first representative that it never differed from. */
static void group_values(const struct tally *w, size_t what, uint32_t *class_of,
                         uint32_t *n_classes)
{
    uint32_t n = 0, nv = w->fv->n_values;
    for (uint32_t v = 0; v < nv; v++)
        class_of[v] = DS_NO_CLASS;
    for (uint32_t v = 1; v < nv; v++) {
        uint32_t found = DS_NO_CLASS, evidence = 0;
        for (uint32_t r = 0; r < v && found == DS_NO_CLASS; r++) {
            uint8_t seen = *seen_at(w, what, v, r);
            evidence |= seen;
            if (seen && class_of[r] == DS_NO_CLASS)
                class_of[r] = n++;
            if (seen == SEEN_SAME)
                found = class_of[r];
        }
        if (evidence)
            class_of[v] = found != DS_NO_CLASS ? found : n++;
    }
    *n_classes = n;
}

static void walk_values(struct tally *w, uint32_t *reps)
{
    uint32_t n_reps = 1;
    reps[0] = 0;
    for (uint32_t v = 1; v < w->fv->n_values; v++) {
        int differs = 0, same = 0;
        for (uint32_t r = 0; r < n_reps && !same; r++) {
            compare_values(w, v, reps[r]);
            uint8_t seen = *seen_at(w, DS_VERDICT_ALL, v, reps[r]);
            differs |= (seen & SEEN_DIFF) != 0;
            same = seen == SEEN_SAME;
        }
        if (!same && differs)
            reps[n_reps++] = v;
    }
}

static int condition_of(const struct tally *w, size_t k)
{
    uint8_t seen = 0;
    for (uint32_t v = 1; v < w->fv->n_values; v++)
        for (uint32_t r = 0; r < v; r++)
            seen |= *seen_at(w, DS_VERDICT_PHASES + k, v, r);
    if (seen & SEEN_DIFF)
        return DS_COND_DRIFT;
    if (w->kernel_unstable[k])
        return DS_COND_UNSTABLE;
    if (w->kernel_within[k] & OUT_WITHIN && (seen || !(w->kernel_within[k] & OUT_BEYOND)))
        return DS_COND_WITHIN;
    return seen ? DS_COND_SAME : w->kernel_run[k] ? DS_COND_UNKNOWN : DS_COND_NOT_RUN;
}

/* Sites stand in execution order, so those of a layer stand together. */
static struct ds_kernel_count count_origins(const struct tally *w, size_t k)
{
    struct ds_kernel_count n = {0};
    int32_t last = INT32_MIN;
    for (size_t s = 0; s < w->a->n_sites; s++) {
        const int32_t layer = w->a->h->sites[s].layer;
        if (!w->origin_at[k * w->a->n_sites + s])
            continue;
        n.sites++;
        n.layers += layer != last && layer >= 0 && (uint32_t)layer < (uint32_t)w->a->h->n_layers;
        last = layer;
    }
    return n;
}

static int judge_factor(struct tally *w, struct ds_error *err)
{
    struct ds_analysis *a = w->a;
    uint32_t nv = w->fv->n_values;
    size_t bytes;
    if (__builtin_mul_overflow((size_t)nv * nv, DS_VERDICT_PHASES + a->n_kernels, &bytes))
        return ds_fail(err, "factor %s: too many values", w->fv->name);
    uint32_t *reps = ds_calloc((size_t)nv + 1, sizeof *reps, "classes", err);
    int rc = reps && (w->seen = ds_calloc(bytes, 1, "classes", err)) ? 0 : -1;
    if (rc == 0 && (rc = list_members(w, err)) == 0 && nv > 1 &&
        (!a->options.only_factor || strcmp(a->options.only_factor, w->fv->name) == 0))
        walk_values(w, reps);
    rc = w->failed ? -1 : rc;
    if (rc == 0)
        rc = tell_bands(a, w->bands, w->fv->name, w->v, err);
    else
        free_bands(w->bands);
    w->bands = NULL;
    for (int p = 0; rc == 0 && p < DS_VERDICT_PHASES; p++) {
        group_values(w, (size_t)p, w->fv->phase[p].class_of, &w->fv->phase[p].n_classes);
        for (size_t i = 0; i < a->n_rows; i++)
            w->fv->phase[p].rows += (w->row_drifts[i] >> p) & 1u;
    }
    for (size_t k = 0; rc == 0 && k < a->n_kernels; k++) {
        uint32_t n;
        w->v->kernels[k].condition[w->factor + 1] = (uint8_t)condition_of(w, k);
        w->v->kernels[k].count[w->factor + 1] = count_origins(w, k);
        group_values(w, DS_VERDICT_PHASES + k, w->v->kernels[k].class_of[w->factor + 1], &n);
    }
    free(reps);
    free(w->seen);
    free(w->members);
    return rc;
}

int judge_factors(struct ds_analysis *a, uint8_t *labels, struct ds_verdict *v,
                  struct ds_error *err)
{
    int rc = 0;
    struct tally w = {.a = a, .v = v, .labels = labels, .err = err};
    if (!(w.healed = ds_calloc(a->cells, 1, "labels", err)) ||
        !(w.other = ds_calloc(a->cells, 1, "labels", err)) ||
        !(w.kernel_run = ds_calloc(a->n_kernels, 1, "kernels", err)) ||
        !(w.first_other = ds_calloc(a->n_kernels, 1, "kernels", err)) ||
        !(w.kernel_unstable = ds_calloc(a->n_kernels, 1, "kernels", err)) ||
        !(w.kernel_within = ds_calloc(a->n_kernels, 1, "kernels", err)) ||
        !(w.origin_at = ds_calloc(a->n_kernels, a->n_sites, "kernels", err)) ||
        !(w.row_drifts = ds_calloc(a->n_rows, 1, "rows", err)) ||
        !(w.phase_of_row = ds_calloc(a->n_rows, 1, "rows", err)))
        rc = -1;
    for (size_t f = 0; rc == 0 && f < a->h->n_factors; f++) {
        w.factor = f;
        w.fv = &v->factors[f + 1];
        w.seen = NULL;
        w.members = NULL;
        w.n_members = 0;
        memset(w.kernel_run, 0, a->n_kernels);
        memset(w.kernel_unstable, 0, a->n_kernels);
        memset(w.kernel_within, 0, a->n_kernels);
        memset(w.first_other, 0, a->n_kernels);
        memset(w.row_drifts, 0, a->n_rows);
        memset(w.origin_at, 0, a->n_kernels * a->n_sites);
        rc = judge_factor(&w, err);
        v->counts.digests_compared += w.fv->phase[DS_VERDICT_ALL].compared;
    }
    free(w.healed);
    free(w.other);
    free(w.kernel_run);
    free(w.kernel_unstable);
    free(w.kernel_within);
    free(w.first_other);
    free(w.row_drifts);
    free(w.origin_at);
    free(w.phase_of_row);
    return rc;
}
