/* verdict_size.c: how large a drift is, and how it grows with depth. Uses only
 * the sizes that the probes stored (ds_drift); what kind it is says verdict_kind.c. */
#include "dumps/evidence.h"
#include "dumps/stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double size_ratio(double diff_sq, double ref_sq)
{
    if (ref_sq > 0)
        return sqrt(diff_sq / ref_sq);
    return diff_sq > 0 ? HUGE_VAL : 0;
}

/* Rows by the size of their difference: powers of two, from 2^-63 on. */
static size_t size_class(double relative)
{
    int e = relative > 0 ? isfinite(relative) ? ilogb(relative) : 0 : -63;
    return (size_t)(e > 0 ? 63 : e < -63 ? 0 : 63 + e);
}

static void add_drift(const struct ds_drift *x, uint32_t row, uint32_t width, struct size *z)
{
    double relative = size_ratio(x->diff_sq, x->ref_sq);
    z->flags = z->rows ? z->flags & x->flags : x->flags;
    if (z->rows == 0 || !(relative <= z->worst_row)) {
        z->worst_row = relative;
        z->worst = row;
    }
    z->of_size[size_class(relative)]++;
    z->least_row = z->rows && z->least_row < relative ? z->least_row : relative;
    z->rows++;
    z->elements += x->elements;
    z->width_sum += width;
    z->nonfinite += x->nonfinite;
    z->ref_nonfinite += x->ref_nonfinite;
    z->one_sided += (x->nonfinite != 0) != (x->ref_nonfinite != 0);
    z->max_ulp = x->max_ulp != UINT64_MAX && x->max_ulp > z->max_ulp ? x->max_ulp : z->max_ulp;
    z->max_abs = !(x->max_abs <= z->max_abs) ? x->max_abs : z->max_abs;
    z->diff_sq += x->diff_sq;
    z->ref_sq += x->ref_sq;
}

static uint32_t row_width(const struct arm_table *t, size_t cell)
{
    return t->rep->captures[t->capture[cell]].width;
}

/* Sizes of the drifting rows at a site: entries of one trial of the arm against `ref`. */
static void sum_site(const struct ds_analysis *a, const struct ds_trial_data *d, uint32_t arm,
                     uint32_t ref, uint32_t site, const struct chosen *c, struct size *z)
{
    memset(z, 0, sizeof *z);
    for (size_t i = 0; i < d->n_drifts; i++) {
        uint32_t row = chosen_row(a, d, &d->drifts[i], arm, ref, site, c);
        if (row != NONE)
            add_drift(&d->drifts[i], row,
                      row_width(chosen_table(a, arm, c), site * a->n_rows + row), z);
    }
}

static void sum_arm(const struct ds_analysis *a, uint32_t arm, uint32_t ref, uint32_t site,
                    size_t trial, const struct chosen *c, struct size *z)
{
    const struct ds_trial_data *d = a->src->get(a->src->ctx, trial, NULL);
    memset(z, 0, sizeof *z);
    if (d)
        sum_site(a, d, arm, ref, site, c, z);
    const struct arm_table *t = chosen_table(a, arm, c);
    for (uint32_t k = 0; z->rows == 0 && k < t->n_trials; k++) {
        d = a->src->get(a->src->ctx, t->trials[k], NULL);
        if (d)
            sum_site(a, d, arm, ref, site, c, z);
    }
}

/* ---- one finding ----------------------------------------------------------------------------- */

/* Sizes of the rows whose values are at hand. */
static void sum_evidence(const struct evidence *e, struct size *z)
{
    memset(z, 0, sizeof *z);
    for (size_t i = 0; i < e->n_rows; i++) {
        struct ds_drift x = {0};
        ds_stats_row(e->dtype, e->rows[i].mine.bytes, e->rows[i].ref.bytes, e->width, &x);
        add_drift(&x, e->rows[i].row, e->width, z);
    }
}

/* Rows that could have drifted as the finding's first one does: what agrees is evidence, too. */
static uint64_t rows_compared(const struct ds_analysis *a, const struct ds_finding *f,
                              const struct chosen *c)
{
    const struct arm_table *r = &a->arms[f->ref_arm];
    uint64_t n = 0;
    for (uint32_t i = 0; i < a->n_rows; i++) {
        uint8_t label = c->labels[(size_t)f->site * a->n_rows + i];
        n += (label & LABEL_JUDGED) && (c->phase < 0 || (int)arm_call(r, i)->phase == c->phase);
    }
    return n;
}

/* labels: of f->arm against f->ref_arm. The size is that of all drifting rows of the phase; the
 * kind is judged by the rows that drift as the first one does: one that inherited its difference
 * shows what came before, not what this kernel does. */
static int size_chosen(const struct ds_analysis *a, const struct chosen *of, struct ds_finding *f,
                       struct ds_error *err)
{
    struct size z, own;
    struct ds_structure structure;
    struct evidence e;
    struct chosen all = *of, alike = *of;
    all.label = -1;
    alike.label = f->label;
    sum_arm(a, f->arm, f->ref_arm, f->site, f->trial, &all, &z);
    sum_arm(a, f->arm, f->ref_arm, f->site, f->trial, &alike, &own);
    if (evidence_open(a, f, &alike, terms_added(a, f), &e, err) != 0)
        return -1;
    if (z.rows == 0 && e.n_rows) {
        sum_evidence(&e, &z);
        own = z;
    }
    own.compared = rows_compared(a, f, &alike);
    int chosen = judge_choice(a, &alike, f, err);
    if (chosen < 0) {
        evidence_close(&e);
        return -1;
    }
    if (!chosen && z.rows == 0)
        snprintf(f->why, sizeof f->why, "the record holds no sizes for these rows");
    if (!chosen && z.rows == 0 && a->options.data_differs && a->options.data_differs[f->site]) {
        data_text(a, f->site, f->why, sizeof f->why);
        f->kind = DS_KIND_WRONG_DATA;
        f->basis = DS_KIND_BY_FACT;
    }
    int rc = profile_finding(&e, &all, f, err);
    if (rc == 0)
        rc = structure_finding(&e, &alike, f, &structure, err);
    evidence_close(&e);
    if (rc == 0 && z.rows == 0 && !chosen && f->label == DS_LABEL_ORIGIN && structure.found) {
        f->kind = DS_KIND_WRONG_DATA; /* digests alone show where the rows belong */
        f->basis = DS_KIND_BY_VALUES;
        snprintf(f->why, sizeof f->why, "%s", structure.text);
    }
    if (rc != 0 || z.rows == 0)
        return rc;
    f->sized = 1;
    f->sized_rows = z.rows;
    f->elements = z.elements;
    f->max_ulp = z.max_ulp;
    f->max_abs = z.max_abs;
    f->nonfinite = z.nonfinite;
    f->ref_nonfinite = z.ref_nonfinite;
    f->flags = z.flags;
    f->rms = z.width_sum ? sqrt(z.diff_sq / (double)z.width_sum) : 0;
    f->relative_rms = size_ratio(z.diff_sq, z.ref_sq);
    if (!chosen && own.rows)
        judge_kind(a, f, &own, &structure);
    else if (!chosen)
        snprintf(f->why, sizeof f->why, "the record holds no sizes of the rows that start here");
    return 0;
}

static int size_rows(const struct ds_analysis *a, const struct heal_table *healed,
                     const uint8_t *labels, int phase, struct ds_finding *f, struct ds_error *err)
{
    const struct chosen of = {.labels = labels, .phase = phase, .healed = healed};
    return size_chosen(a, &of, f, err);
}

int size_finding(struct ds_analysis *a, uint8_t *labels, int phase, struct ds_finding *f,
                 struct ds_error *err)
{
    if (!f->found)
        return 0;
    uint64_t shapes = a->shape_mismatch, tokens = a->tokens_cut;
    label_pair(a, f->arm, f->ref_arm, labels);
    a->shape_mismatch = shapes; /* counted when the pair was compared */
    a->tokens_cut = tokens;
    return size_rows(a, NULL, labels, phase, f, err);
}

int size_labelled(struct ds_analysis *a, const uint8_t *labels, int phase, struct ds_finding *f,
                  struct ds_error *err)
{
    return f->found ? size_rows(a, NULL, labels, phase, f, err) : 0;
}

/* ---- independent origins --------------------------------------------------------------------- */

/* The first row at the origin's site that its kernel is to blame for. */
static size_t origin_cell(const struct ds_analysis *a, const struct ds_origin *o,
                          const uint8_t *labels)
{
    const struct arm_table *t = &a->arms[o->arm], *r = &a->arms[o->ref_arm];
    for (size_t i = 0; i < a->n_rows; i++) {
        size_t cell = o->site * a->n_rows + i;
        if ((labels[cell] & LABEL_MASK) == DS_LABEL_ORIGIN && t->state[cell] != CELL_ABSENT &&
            r->state[cell] != CELL_ABSENT &&
            strcmp(a->kernels[t->kernel[cell]].variant, o->variant) == 0)
            return cell;
    }
    return SIZE_MAX;
}

/* Labels of the pair on equal inputs where a heal trial has them, else the natural ones. */
static const struct heal_table *label_origins(struct ds_analysis *a, uint32_t arm, uint32_t ref,
                                              uint8_t *labels)
{
    const struct heal_table *h = healed_table(a, arm, ref);
    uint64_t shapes = a->shape_mismatch, tokens = a->tokens_cut;
    if (!h)
        label_pair(a, arm, ref, labels);
    else if (arm == ref)
        label_unstable(a, h, labels);
    else
        label_healed(a, h, labels);
    a->shape_mismatch = shapes; /* counted when the pair was compared */
    a->tokens_cut = tokens;
    return h;
}

/* What an arm gave when every row had the inputs of `base`: in its heal trial, or, where it never differed
 * from it, in its natural one. */
static const struct arm_table *healed_view(const struct ds_analysis *a, uint32_t arm, uint32_t base)
{
    const struct heal_table *h = healed_table(a, arm, base);
    return h ? &h->t : &a->arms[arm];
}

/* Two records: the labels of both sides' heal trials held against each other. *of says whose rows they are.
 * 1, or 0: there are none. */
static int label_both(struct ds_analysis *a, const struct ds_origin *o, uint8_t *labels,
                      struct chosen *of, struct ds_error *err)
{
    const uint32_t *to = a->options.healed_to;
    if (!to || o->arm == o->ref_arm)
        return 0;
    uint8_t *other = ds_calloc(a->cells, 1, "labels", err);
    int rc = other ? judge_healed_pair(a, o->arm, o->ref_arm, to[o->ref_arm], labels, other) : -1;
    free(other);
    if (rc == 1)
        *of = (struct chosen){.labels = labels,
                              .phase = -1,
                              .mine = healed_view(a, o->arm, to[o->arm]),
                              .ref = healed_view(a, o->ref_arm, to[o->ref_arm]),
                              .given = to[o->ref_arm]};
    return rc;
}

/* In heal trials if it is there, else in natural ones. *of: whose labels they are, of the last origin's pair
 * where `again`. */
static int size_origin(struct ds_analysis *a, struct ds_origin *o, uint8_t *labels, int again,
                       struct chosen *of, struct ds_error *err)
{
    size_t cell = again ? origin_cell(a, o, labels) : SIZE_MAX;
    int both = cell == SIZE_MAX ? label_both(a, o, labels, of, err) : 0;
    if (both < 0)
        return -1;
    cell = both ? origin_cell(a, o, labels) : cell;
    if (cell == SIZE_MAX) {
        *of = (struct chosen){.labels = labels, .phase = -1};
        of->healed = label_origins(a, o->arm, o->ref_arm, labels);
        cell = origin_cell(a, o, labels);
    }
    if (cell == SIZE_MAX)
        return 0;
    describe_cell(a, o->arm, o->ref_arm, labels, cell, -1, &o->at);
    o->at.factor = o->factor;
    o->at.value = o->value;
    o->healed = of->healed || of->mine;
    if (o->healed) {
        const struct arm_table *t = chosen_table(a, o->arm, of);
        o->at.trial = t->trials[0];
        o->at.digest = t->digest[cell];
        o->at.ref_digest = chosen_ref(a, o->ref_arm, of)->digest[cell];
    }
    return size_chosen(a, of, &o->at, err);
}

int size_origins(struct ds_analysis *a, struct ds_verdict *v, uint8_t *labels, struct ds_error *err)
{
    const struct ds_origin *last = NULL;
    struct chosen of = {.phase = -1};
    for (size_t i = 0; i < v->n_origins; i++) {
        struct ds_origin *o = &v->origins[i];
        const int again = last && last->arm == o->arm && last->ref_arm == o->ref_arm;
        if (v->first.found && o->site == v->first.site && o->arm == v->first.arm &&
            o->ref_arm == v->first.ref_arm && strcmp(o->variant, v->first.variant) == 0 &&
            v->first.kind != DS_KIND_UNKNOWN) {
            o->at = v->first; /* one answer, not two */
            continue;
        }
        last = o;
        if (size_origin(a, o, labels, again, &of, err) != 0)
            return -1;
    }
    return 0;
}

/* ---- any site -------------------------------------------------------------------------------- */

static int is_cause(const struct ds_analysis *a, uint32_t arm, uint32_t ref, const uint8_t *labels,
                    size_t cell)
{
    const uint8_t label = labels[cell] & LABEL_MASK;
    return a->arms[arm].state[cell] != CELL_ABSENT && a->arms[ref].state[cell] != CELL_ABSENT &&
           (is_drift(label) || (arm == ref && label == DS_LABEL_UNSTABLE));
}

int ds_analysis_judged(struct ds_analysis *a, uint32_t arm, uint32_t ref, uint32_t site, int healed,
                       struct ds_finding *out, struct ds_error *err)
{
    memset(out, 0, sizeof *out);
    if (arm >= a->h->n_arms || ref >= a->h->n_arms || site >= a->n_sites ||
        !a->arms[arm].n_trials || !a->arms[ref].n_trials)
        return 0;
    const struct heal_table *h = NULL;
    uint8_t *own = healed ? ds_calloc(a->cells, 1, "labels", err) : NULL;
    const uint8_t *labels = healed ? own : last_labels(a, arm, ref, err);
    if (!labels)
        return -1;
    if (healed) {
        h = label_origins(a, arm, ref, own);
        a->last.known = 0; /* what stands beside labels is that of the last ones */
    }
    size_t first = SIZE_MAX;
    for (size_t cell = site * a->n_rows; cell < (site + (size_t)1) * a->n_rows; cell++) {
        const int origin = (labels[cell] & LABEL_MASK) == DS_LABEL_ORIGIN;
        if (is_cause(a, arm, ref, labels, cell) && (first == SIZE_MAX || origin))
            first = cell;
        if (first == cell && origin)
            break;
    }
    int rc = 0;
    if (first != SIZE_MAX && (h || !healed)) {
        describe_cell(a, arm, ref, labels, first, -1, out);
        if (h)
            out->trial = h->t.trials[0];
        rc = size_rows(a, h, labels, -1, out, err);
    }
    free(own);
    return rc;
}

/* ---- growth ---------------------------------------------------------------------------------- */

int find_growth(const struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err)
{
    const struct chosen all = {.phase = -1, .label = -1};
    if (!v->first.found || a->h->n_layers <= 0)
        return 0;
    /* A record may claim any number of layers; each that counts has a site. */
    if (!(v->growth = ds_calloc(a->n_sites, sizeof *v->growth, "growth", err)))
        return -1;
    for (size_t s = 0; s < a->n_sites; s++) {
        const struct ds_site *site = &a->h->sites[s];
        if (strcmp(site->stage, "resid_ffn") != 0 || site->part[0] ||
            v->n_growth == (size_t)a->h->n_layers)
            continue;
        struct size z;
        sum_arm(a, v->first.arm, v->first.ref_arm, (uint32_t)s, v->first.trial, &all, &z);
        if (z.rows == 0)
            continue;
        v->growth[v->n_growth++] =
            (struct ds_growth){.layer = site->layer,
                               .max_ulp = z.max_ulp,
                               .rows = (uint32_t)z.rows,
                               .relative_rms = size_ratio(z.diff_sq, z.ref_sq)};
    }
    return 0;
}
