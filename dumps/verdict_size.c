/* verdict_size.c: how large a drift is, what kind it is, how it grows with depth, and the first NaN
 * or Inf. Uses only the sizes that the probes stored (ds_drift); names a kind only with evidence.
 *
 * The size of reordering. Adding K products in f32 in two orders: every partial sum is rounded with
 * a relative error of at most u = 2^-24, random in sign, so the two results differ by c * u *
 * sqrt(K), relative to the rms of the result. Measured on normal numbers, K = 64..16384, chain
 * against blocks, lanes and reversed order: c = 0.3..0.45 for every K. Sums that cancel, as those
 * of real activations do, have more: the bound takes c = 3. For storage with spacing s (2^-8 bf16,
 * 2^-11 f16, relative) a difference d flips the last place of about d / s of the elements by s: rms
 * sqrt(d * s) on top. TF32 (10 bits: 3e-4) and bf16 inputs (3e-3) are far outside for every K up to
 * 65536, and no row alone may exceed four times the bound, so that one wrong row cannot hide among
 * many good ones. */
#include "dumps/evidence.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define UNIT_F32     0x1p-24
#define ORDER_FACTOR 3.0

struct size {
    uint64_t rows, elements, max_ulp, nonfinite, ref_nonfinite,
        one_sided; /* rows non-finite on one side only */
    uint32_t flags;
    double max_abs, diff_sq, ref_sq, worst_row, least_row; /* relative rms of single rows */
    uint64_t width_sum;
};

/* rms of a difference relative to the reference's; infinite against zero. */
static double ratio(double diff_sq, double ref_sq)
{
    if (ref_sq > 0)
        return sqrt(diff_sq / ref_sq);
    return diff_sq > 0 ? HUGE_VAL : 0;
}

static void add_drift(const struct ds_drift *x, uint32_t width, struct size *z)
{
    double relative = ratio(x->diff_sq, x->ref_sq);
    z->flags = z->rows ? z->flags & x->flags : x->flags;
    z->worst_row = z->rows && z->worst_row > relative ? z->worst_row : relative;
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
            add_drift(&d->drifts[i], row_width(&a->arms[arm], site * a->n_rows + row), z);
    }
}

static void sum_arm(const struct ds_analysis *a, uint32_t arm, uint32_t ref, uint32_t site,
                    size_t trial, const struct chosen *c, struct size *z)
{
    const struct ds_trial_data *d = a->src->get(a->src->ctx, trial, NULL);
    memset(z, 0, sizeof *z);
    if (d)
        sum_site(a, d, arm, ref, site, c, z);
    for (uint32_t k = 0; z->rows == 0 && k < a->arms[arm].n_trials; k++) {
        d = a->src->get(a->src->ctx, a->arms[arm].trials[k], NULL);
        if (d)
            sum_site(a, d, arm, ref, site, c, z);
    }
}

/* ---- kinds ----------------------------------------------------------------------------------- */

/* How many terms the kernel adds for one element; 0 = it does not add, or not known. */
static double terms_added(const struct ds_analysis *a, const struct ds_finding *f)
{
    const struct ds_site *s = &a->h->sites[f->site];
    uint32_t widest = 0;
    for (uint32_t e = a->in_start[f->site]; e < a->in_start[f->site + 1]; e++)
        if (a->h->sites[a->in_from[e]].width > widest)
            widest = a->h->sites[a->in_from[e]].width;
    if (strcmp(s->op, "matmul") == 0 || strcmp(s->op, "rmsnorm") == 0 ||
        strcmp(s->op, "router") == 0)
        return (double)widest;
    if (strcmp(s->op, "attention") ==
        0) /* a score of head_dim products, then a sum over the visible keys */
        return (double)f->position + 1 + (a->h->head_dim > 0 ? a->h->head_dim : 0);
    if (strcmp(s->op, "softmax") == 0)
        return (double)f->position + 1;
    return 0;
}

static double storage_spacing(const char *dtype)
{
    return strcmp(dtype, "bf16") == 0 ? 0x1p-8 : strcmp(dtype, "f16") == 0 ? 0x1p-11 : 0.0;
}

static double reorder_bound(double terms, const char *dtype)
{
    double d = ORDER_FACTOR * UNIT_F32 * sqrt(terms);
    return d + sqrt(d * storage_spacing(dtype));
}

/* Inputs rounded to few mantissa bits leave nearly every element of every row changed, by about the
 * same relative amount. */
static const char *precision_of(const struct size *z, double relative)
{
    if (z->rows == 0 || (double)z->elements < 0.9 * (double)z->width_sum ||
        z->worst_row > 4 * z->least_row)
        return NULL;
    if (relative >= 1.5e-4 && relative <= 6e-4)
        return "a 10-bit mantissa (TF32 or f16 inputs)";
    if (relative >= 1.2e-3 && relative <= 5e-3)
        return "a 7-bit mantissa (bf16 inputs)";
    return NULL;
}

static void say(struct ds_finding *f, int kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void say(struct ds_finding *f, int kind, const char *fmt, ...)
{
    va_list ap;
    f->kind = kind;
    va_start(ap, fmt);
    vsnprintf(f->why, sizeof f->why, fmt, ap);
    va_end(ap);
}

static void judge_kind(const struct ds_analysis *a, struct ds_finding *f, const struct size *z)
{
    const struct ds_site *s = &a->h->sites[f->site];
    const char *dtype = ds_site_dtype(a->h, f->site, f->arm);
    double relative = ratio(z->diff_sq, z->ref_sq), terms = terms_added(a, f),
           bound = terms > 0 ? reorder_bound(terms, dtype) : 0;
    int f32 = strcmp(dtype, "f32") == 0, other = strcmp(f->variant, f->ref_variant) != 0;
    if (z->one_sided)
        say(f, DS_KIND_NON_FINITE, "%.0f rows are non-finite on one side only",
            (double)z->one_sided);
    else if (z->flags & DS_DRIFT_VALUES_EQUAL)
        say(f, DS_KIND_UNKNOWN, "bits differ, values equal (-0 and +0)");
    else if (z->flags & DS_DRIFT_NAN_BITS)
        say(f, DS_KIND_UNKNOWN, "only the bits of NaNs differ");
    else if (z->nonfinite || z->ref_nonfinite)
        say(f, DS_KIND_UNKNOWN, "both sides hold non-finite values");
    else if (!isfinite(relative))
        say(f, DS_KIND_UNKNOWN, "the reference rows are zero");
    else if (f->label == DS_LABEL_INHERITED)
        say(f, DS_KIND_UNKNOWN, "an input differs already; relative rms %.3g", relative);
    else if (a->options.data_differs && a->options.data_differs[f->site])
        say(f, DS_KIND_WRONG_DATA, "its weights or hyperparameters differ; relative rms %.3g",
            relative);
    else if (relative >= 0.3)
        say(f, DS_KIND_WRONG_DATA, "relative rms %.3g: no precision explains that", relative);
    else if (bound > 0 && relative <= bound && z->worst_row <= 4 * bound)
        say(f, DS_KIND_ROUNDING_ORDER, "relative rms %.3g, reordering gives up to %.3g", relative,
            bound);
    else if (f32 && strcmp(s->op, "matmul") == 0 && precision_of(z, relative))
        say(f, DS_KIND_LOWER_PRECISION, "relative rms %.3g in all elements: %s", relative,
            precision_of(z, relative));
    else if (other && relative <= 64 * (bound > 0 ? bound : reorder_bound(1, dtype)))
        say(f, DS_KIND_DIFFERENT_ALGORITHM,
            "another variant; relative rms %.3g, above the size of reordering", relative);
    else if (bound > 0)
        say(f, DS_KIND_UNKNOWN, "relative rms %.3g, more than the %.3g of reordering", relative,
            bound);
    else
        say(f, DS_KIND_UNKNOWN, "relative rms %.3g in a kernel that adds no long sums", relative);
}

/* labels: of f->arm against f->ref_arm. The size is that of all drifting rows of the phase; the
 * kind is judged by the rows that drift as the first one does: one that inherited its difference
 * shows what came before, not what this kernel does. */
static int size_rows(const struct ds_analysis *a, const uint8_t *labels, int phase,
                     struct ds_finding *f, struct ds_error *err)
{
    struct size z, own;
    const struct chosen all = {labels, phase, -1}, alike = {labels, phase, f->label};
    sum_arm(a, f->arm, f->ref_arm, f->site, f->trial, &all, &z);
    sum_arm(a, f->arm, f->ref_arm, f->site, f->trial, &alike, &own);
    if (strcmp(a->h->sites[f->site].op, "sample") == 0) {
        f->kind = f->label == DS_LABEL_ORIGIN ? DS_KIND_SELECTION_ONLY : DS_KIND_UNKNOWN;
        snprintf(f->why, sizeof f->why, "%s",
                 f->label == DS_LABEL_ORIGIN ? "other choices from equal logits" : "");
    } else if (z.rows == 0 && a->options.data_differs && a->options.data_differs[f->site]) {
        say(f, DS_KIND_WRONG_DATA, "its weights or hyperparameters differ");
    } else if (z.rows == 0) {
        snprintf(f->why, sizeof f->why, "the record holds no sizes for these rows");
    }
    struct evidence e;
    if (evidence_open(a, f, &alike, &e, err) != 0)
        return -1;
    int rc = profile_finding(&e, &all, f, err);
    evidence_close(&e);
    if (rc != 0 || z.rows == 0)
        return rc;
    f->sized = 1;
    f->elements = z.elements;
    f->max_ulp = z.max_ulp;
    f->max_abs = z.max_abs;
    f->nonfinite = z.nonfinite;
    f->ref_nonfinite = z.ref_nonfinite;
    f->flags = z.flags;
    f->rms = z.width_sum ? sqrt(z.diff_sq / (double)z.width_sum) : 0;
    f->relative_rms = ratio(z.diff_sq, z.ref_sq);
    if (f->kind != DS_KIND_SELECTION_ONLY && own.rows)
        judge_kind(a, f, &own);
    else if (f->kind != DS_KIND_SELECTION_ONLY)
        snprintf(f->why, sizeof f->why, "the record holds no sizes of the rows that start here");
    return 0;
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
    return size_rows(a, labels, phase, f, err);
}

/* ---- growth ---------------------------------------------------------------------------------- */

int find_growth(const struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err)
{
    const struct chosen all = {NULL, -1, -1};
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
        v->growth[v->n_growth++] = (struct ds_growth){.layer = site->layer,
                                                      .max_ulp = z.max_ulp,
                                                      .rows = (uint32_t)z.rows,
                                                      .relative_rms = ratio(z.diff_sq, z.ref_sq)};
    }
    return 0;
}

/* ---- non-finite values ----------------------------------------------------------------------- */

static int row_nonfinite(const struct ds_trial_data *d, uint32_t site, uint32_t row)
{
    for (size_t i = 0; i < d->n_nonfinites; i++)
        if (d->nonfinites[i].site == site && d->nonfinites[i].row == row)
            return 1;
    return 0;
}

static int inputs_finite(const struct ds_analysis *a, const struct ds_trial_data *d, uint32_t site,
                         uint32_t row)
{
    for (uint32_t e = a->in_start[site]; e < a->in_start[site + 1]; e++) {
        if (row_nonfinite(d, a->in_from[e], row))
            return 0;
        for (uint32_t r = 0; a->in_kind[e] != DS_EDGE_ROW && r < d->n_rows; r++)
            if (d->rows[r].request == d->rows[row].request &&
                d->rows[r].position <= d->rows[row].position && row_nonfinite(d, a->in_from[e], r))
                return 0;
    }
    return 1;
}

void find_nonfinite(const struct ds_analysis *a, struct ds_verdict *v)
{
    struct ds_nonfinite_finding *out = &v->nonfinite;
    const struct ds_trial_data *best = NULL;
    uint32_t best_row = 0;
    for (size_t i = 0; i < a->src->n_trials; i++) {
        const struct ds_trial_data *d = a->src->info(a->src->ctx, i)->pass == DS_PASS_NATURAL
                                            ? a->src->get(a->src->ctx, i, NULL)
                                            : NULL;
        for (size_t k = 0; d && k < d->n_nonfinites; k++) {
            const struct ds_nonfinite *x = &d->nonfinites[k];
            if (x->site >= a->n_sites || x->row >= d->n_rows)
                continue;
            const struct ds_row *r = &d->rows[x->row];
            struct ds_finding f = {
                .found = 1, .site = x->site, .step = r->step, .position = r->position};
            if (!finding_before(&f, &out->at))
                continue;
            const struct ds_site *s = &a->h->sites[x->site];
            f.layer = s->layer;
            f.stage = s->stage;
            f.part = s->part;
            f.op = s->op;
            f.variant = "";
            f.arm = f.ref_arm = d->info.arm;
            f.trial = i;
            f.request = r->request;
            f.occurrence = r->occurrence;
            f.row_kind = r->kind;
            f.phase = d->calls[r->call].phase;
            f.rows_in_call = d->calls[r->call].m;
            f.kind = DS_KIND_NON_FINITE;
            uint32_t row = row_of_key(a, r, 0);
            size_t cell = x->site * a->n_rows + (row == NONE ? 0 : row);
            if (row != NONE && a->arms[f.arm].state[cell] != CELL_ABSENT)
                f.variant = a->kernels[a->arms[f.arm].kernel[cell]].variant;
            *out = (struct ds_nonfinite_finding){.at = f, .nan = x->nan, .inf = x->inf};
            best = d;
            best_row = x->row;
        }
    }
    if (!best)
        return;
    out->inputs = inputs_finite(a, best, out->at.site, best_row);
    for (size_t k = 0; k < best->n_nonfinites; k++)
        if (best->nonfinites[k].site == out->at.site && best->nonfinites[k].row < best->n_rows)
            out->at.rows++;
}
