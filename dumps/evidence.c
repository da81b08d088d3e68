/* evidence.c: see evidence.h. Reads dumped rows by digest; judges nothing. */
#include "dumps/evidence.h"

#include "base/dtype.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

uint32_t chosen_row(const struct ds_analysis *a, const struct ds_trial_data *d,
                    const struct ds_drift *x, uint32_t arm, uint32_t ref, uint32_t site,
                    const struct chosen *c)
{
    if (x->site != site || x->ref_arm != ref || x->row >= d->n_rows)
        return NONE;
    const struct arm_table *t = chosen_table(a, arm, c), *r = chosen_ref(a, ref, c);
    uint32_t row = row_of_key(a, &d->rows[x->row], 0);
    size_t cell = site * a->n_rows + row;
    if (row == NONE || t->state[cell] == CELL_ABSENT || r->state[cell] == CELL_ABSENT)
        return NONE;
    /* Digests that are not the modal ones of a comparison between two arms are some other
     * repeat's. */
    if (arm != ref && (x->digest != t->digest[cell] || x->ref_digest != r->digest[cell]))
        return NONE;
    if (!c->labels)
        return row;
    uint8_t label = c->labels[cell] & LABEL_MASK;
    int wanted = (c->label < 0 ? is_drift(label) : label == c->label) &&
                 (c->phase < 0 || (int)arm_call(r, row)->phase == c->phase);
    return wanted ? row : NONE;
}

/* ---- values ---------------------------------------------------------------------------------- */

void values_free(struct row_values *v)
{
    free(v->value);
    free(v->bytes);
    memset(v, 0, sizeof *v);
}

int values_of(const struct ds_analysis *a, uint64_t digest, struct row_values *out,
              struct ds_error *err)
{
    struct ds_blob b = {0};
    struct ds_error what = {{0}, {0}};
    memset(out, 0, sizeof *out);
    int rc = a->src->blob ? a->src->blob(a->src->ctx, digest, &b, &what) : 0;
    if (rc == DS_BLOB_UNREAD) /* fewer values would be another answer */
        return ds_fail(err, "%s", what.msg);
    if (rc != 1)
        return 0;
    int dtype = ds_dtype_parse(b.dtype);
    size_t size = dtype >= 0 && dtype != DS_I32 ? ds_dtype_size(dtype) : 0;
    if (size == 0 || b.elements == 0 || b.elements > b.bytes / size) {
        free(b.data);
        return 0;
    }
    *out = (struct row_values){.dtype = dtype, .n = b.elements, .bytes = b.data};
    if (!(out->value = ds_calloc(b.elements, sizeof *out->value, "dumped values", err))) {
        values_free(out);
        return -1;
    }
    ds_widen_row(dtype, out->value, b.data, b.elements);
    return 1;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static int add_row(struct evidence *e, uint32_t row, const struct ds_drift *x, struct ds_error *err)
{
    struct evidence_row *r = &e->rows[e->n_rows];
    *r = (struct evidence_row){.row = row, .digest = x->digest, .ref_digest = x->ref_digest};
    int rc = values_of(e->a, x->digest, &r->mine, err);
    if (rc == 1)
        rc = values_of(e->a, x->ref_digest, &r->ref, err);
    if (rc == 1 && r->mine.dtype == r->ref.dtype && r->mine.n == r->ref.n &&
        (e->n_rows == 0 || r->mine.n == e->width)) {
        e->width = r->mine.n;
        e->dtype = r->mine.dtype;
        e->n_rows++;
        return 0;
    }
    values_free(&r->mine);
    values_free(&r->ref);
    return rc < 0 ? -1 : 0;
}

static int add_trial(struct evidence *e, const struct ds_trial_data *d, const struct chosen *c,
                     struct ds_error *err)
{
    e->drifting = e->nonfinite = 0;
    for (size_t i = 0; i < d->n_drifts; i++) {
        uint32_t row = chosen_row(e->a, d, &d->drifts[i], e->f->arm, e->f->ref_arm, e->f->site, c);
        if (row == NONE)
            continue;
        e->drifting++;
        e->nonfinite += d->drifts[i].nonfinite + d->drifts[i].ref_nonfinite;
        if (e->n_rows < EVIDENCE_ROWS && add_row(e, row, &d->drifts[i], err) != 0)
            return -1;
    }
    return 0;
}

/* Rows that no trial held the other side of, so that it has no sizes of them: both sides may be
 * dumped all the same, each against some other arm. */
static int add_pairs(struct evidence *e, const struct chosen *c, struct ds_error *err)
{
    const struct arm_table *t = chosen_table(e->a, e->f->arm, c),
                           *r = chosen_ref(e->a, e->f->ref_arm, c);
    int repeats = e->f->arm == e->f->ref_arm;
    for (uint32_t i = 0; i < e->a->n_rows && e->n_rows < EVIDENCE_ROWS; i++) {
        size_t cell = (size_t)e->f->site * e->a->n_rows + i;
        int label = c->labels[cell] & LABEL_MASK;
        if (repeats ? t->state[cell] != CELL_UNSTABLE || !t->odd || !t->odd[cell].trial
                    : !is_drift((uint8_t)label) || label != e->f->label)
            continue;
        struct ds_drift x = {.digest = repeats ? t->odd[cell].digest : t->digest[cell],
                             .ref_digest = r->digest[cell]};
        if (add_row(e, i, &x, err) != 0)
            return -1;
    }
    return 0;
}

int evidence_open(const struct ds_analysis *a, const struct ds_finding *f, const struct chosen *c,
                  double terms, struct evidence *e, struct ds_error *err)
{
    *e = (struct evidence){.a = a, .f = f, .given = c->mine ? c->given : f->ref_arm};
    if (!(e->rows = ds_calloc(EVIDENCE_ROWS, sizeof *e->rows, "evidence", err)))
        return -1;
    const struct arm_table *t = chosen_table(a, f->arm, c);
    int rc = 0;
    for (uint32_t k = 0; k <= t->n_trials && e->n_rows == 0 && rc == 0; k++) {
        const struct ds_trial_data *d =
            a->src->get(a->src->ctx, k == 0 ? f->trial : t->trials[k - 1], NULL);
        rc = d ? add_trial(e, d, c, err) : 0;
    }
    if (rc == 0 && e->n_rows == 0)
        rc = add_pairs(e, c, err);
    if (rc != 0) {
        evidence_close(e);
        return -1;
    }
    e->heads = ds_site_heads(a->h, f->site);
    if (e->n_rows && e->width != a->h->sites[f->site].width)
        e->heads = 0;
    e->head_dim = e->heads ? (uint32_t)a->h->head_dim : 0;
    e->site = structure_site(e, terms);
    return 0;
}

void evidence_close(struct evidence *e)
{
    for (size_t i = 0; i < e->n_rows; i++) {
        values_free(&e->rows[i].mine);
        values_free(&e->rows[i].ref);
    }
    free(e->rows);
    memset(e, 0, sizeof *e);
}

/* ---- profiles -------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint32_t bits_at(const struct row_values *v, size_t i)
{
    uint32_t u = 0;
    size_t size = ds_dtype_size(v->dtype);
    memcpy(&u, (const char *)v->bytes + i * size, size);
    return u;
}

/* One row's elements: how often each differs, and how often by more than rounding. */
static void count_row(const struct evidence *e, const struct evidence_row *r, uint32_t *differ,
                      uint32_t *off, uint64_t *steps, size_t *n_steps)
{
    double sum = 0;
    for (uint32_t k = 0; k < e->width; k++)
        sum += isfinite(r->ref.value[k]) ? (double)r->ref.value[k] * (double)r->ref.value[k] : 0;
    double rms = sqrt(sum / e->width);
    for (uint32_t k = 0; k < e->width; k++) {
        uint32_t x = bits_at(&r->ref, k), y = bits_at(&r->mine, k);
        float a = r->ref.value[k], b = r->mine.value[k];
        if (x == y)
            continue;
        differ[k]++;
        off[k] += !(isnan(a) && isnan(b)) && a != b &&
                  !(fabs((double)b - (double)a) <= ds_structure_slack(&e->site, a, b, rms));
        uint64_t step = ds_ulp_distance(e->dtype, x, y);
        if (step != UINT64_MAX)
            steps[(*n_steps)++] = step;
    }
}

struct part_of_error { /* of one element, over the rows */
    double squares;
    uint32_t element;
};

static int by_squares(const void *a, const void *b)
{
    const struct part_of_error *x = a, *y = b;
    if (x->squares > y->squares || x->squares < y->squares)
        return x->squares > y->squares ? -1 : 1;
    return (x->element > y->element) - (x->element < y->element);
}

/* Whether few elements of the row, each far above the middle one, hold nearly all of the squared error. */
static int find_concentrated(const struct evidence *e, struct ds_finding *f, struct ds_error *err)
{
    enum { LEAST_WIDTH = 16, ONE_IN = 4, FAR_ABOVE = 10 };
    static const double nearly = 0.9;
    double all = 0, sum = 0;
    uint32_t n = 0;
    if (e->width < LEAST_WIDTH)
        return 0;
    struct part_of_error *x = ds_calloc(e->width, sizeof *x, "profile", err);
    uint8_t *state = ds_calloc(e->width, 1, "profile", err);
    int rc = x && state ? 0 : -1;
    for (uint32_t k = 0; rc == 0 && k < e->width; k++) {
        x[k].element = k;
        for (size_t i = 0; i < e->n_rows; i++) {
            double d = (double)e->rows[i].mine.value[k] - (double)e->rows[i].ref.value[k];
            x[k].squares += isfinite(d) ? d * d : 0;
        }
        all += x[k].squares;
    }
    if (rc == 0 && all > 0 && isfinite(all)) {
        qsort(x, e->width, sizeof *x, by_squares);
        const double middle = x[e->width / 2].squares;
        memset(state, DS_MEMBER_SAME, e->width);
        for (; n < e->width && x[n].squares > FAR_ABOVE * middle; n++) {
            sum += x[n].squares;
            state[x[n].element] = DS_MEMBER_DIFFERS;
        }
        /* where no other element differs, heads and channels tell it */
        if (n * ONE_IN <= e->width && sum >= nearly * all && n < e->width && x[n].squares > 0) {
            f->concentrated_in = n;
            f->concentrated_of = e->width;
            f->concentrated_share = sum / all;
            ds_profile_set(state, NULL, e->width, 0, f->concentrated);
        }
    }
    free(x);
    free(state);
    return rc;
}

void profile_ends(const uint32_t *counts, uint32_t width, struct ds_finding *f)
{
    uint32_t first = 0, last = width;
    while (first < width && !counts[first])
        first++;
    while (last > first && !counts[last - 1])
        last--;
    f->element_ends = first < last;
    f->first_element = first < last ? first : 0;
    f->last_element = first < last ? last - 1 : 0;
}

/* Heads and channels: those beyond rounding if any are, for rounding is everywhere. */
static int profile_values(const struct evidence *e, struct ds_finding *f, struct ds_error *err)
{
    size_t n = 0;
    uint32_t *counts = ds_calloc(2 * (size_t)e->width, sizeof *counts, "profile", err);
    uint64_t *steps = ds_calloc(e->n_rows * e->width, sizeof *steps, "profile", err);
    if (!counts || !steps) {
        free(counts);
        free(steps);
        return -1;
    }
    uint32_t *off = counts + e->width, any = 0;
    for (size_t i = 0; i < e->n_rows; i++)
        count_row(e, &e->rows[i], counts, off, steps, &n);
    for (uint32_t k = 0; k < e->width; k++)
        any |= off[k];
    qsort(steps, n, sizeof *steps, by_size);
    f->p99_ulp = ds_profile_percentile(steps, n, 0.99);
    f->value_rows = (uint32_t)e->n_rows;
    f->beyond_rounding = any != 0;
    profile_ends(counts, e->width, f);
    ds_profile_elements(any ? off : counts, e->width, e->head_dim, f->heads, f->channels);
    free(counts);
    free(steps);
    return 0;
}

enum { SIZE_UNKNOWN = 0, SIZE_QUIET, SIZE_LOUD };

/* Which rows differ by more than rounding, as far as their sizes tell: the largest difference
 * against what one step of the largest element may be. */
static void mark_loud(const struct evidence *e, const struct chosen *c, uint8_t *loud)
{
    const struct ds_finding *f = e->f;
    const struct ds_trial_data *d = e->a->src->get(e->a->src->ctx, f->trial, NULL);
    uint32_t width = e->a->h->sites[f->site].width;
    for (size_t i = 0; d && width && i < d->n_drifts; i++) {
        const struct ds_drift *x = &d->drifts[i];
        uint32_t row = chosen_row(e->a, d, x, f->arm, f->ref_arm, f->site, c);
        double rms = sqrt(x->ref_sq / width), top = rms * sqrt(width);
        if (row != NONE)
            loud[row] =
                x->nonfinite == x->ref_nonfinite &&
                        x->max_abs <= ds_structure_slack(&e->site, (float)top, (float)top, rms)
                    ? SIZE_QUIET
                    : SIZE_LOUD;
    }
}

/* Which positions drift, among those that were compared; with differences beyond rounding, where
 * those are. */
static int profile_positions(const struct evidence *e, const struct chosen *c, struct ds_finding *f,
                             struct ds_error *err)
{
    const struct ds_analysis *a = e->a;
    uint8_t *state = ds_calloc(2 * a->n_rows, 1, "profile", err);
    int32_t *names = ds_calloc(a->n_rows, sizeof *names, "profile", err);
    size_t n = 0;
    if (!state || !names) {
        free(state);
        free(names);
        return -1;
    }
    uint8_t *loud = state + a->n_rows;
    if (f->beyond_rounding)
        mark_loud(e, c, loud);
    int some = a->n_rows && memchr(loud, SIZE_LOUD, a->n_rows) != NULL;
    for (size_t i = 0; i < a->n_rows; i++) {
        uint8_t label = c->labels[f->site * a->n_rows + i] & LABEL_MASK;
        if (label == DS_LABEL_ABSENT || (c->phase >= 0 && a->arms[f->ref_arm].row[i] != NONE &&
                                         (int)arm_call(&a->arms[f->ref_arm], i)->phase != c->phase))
            continue;
        int differs = is_drift(label) || (f->arm == f->ref_arm && label == DS_LABEL_UNSTABLE);
        if (differs) {
            f->first_row = f->ends ? f->first_row : a->keys[i];
            f->last_row = a->keys[i];
            f->ends = 1;
        }
        if (some) /* a row without a size counts as it is */
            differs = loud[i] == SIZE_LOUD || (loud[i] == SIZE_UNKNOWN && differs);
        if (n == 0 || names[n - 1] != a->keys[i].position)
            names[n++] = a->keys[i].position;
        if (state[n - 1] != DS_MEMBER_DIFFERS)
            state[n - 1] = differs ? DS_MEMBER_DIFFERS : DS_MEMBER_SAME;
    }
    ds_profile_set(state, names, n, 1, f->at_positions);
    free(state);
    free(names);
    return 0;
}

int profile_finding(const struct evidence *e, const struct chosen *c, struct ds_finding *f,
                    struct ds_error *err)
{
    struct chosen alike = *c;
    alike.label = f->label;
    if (e->n_rows && (profile_values(e, f, err) != 0 || find_concentrated(e, f, err) != 0))
        return -1;
    if (profile_masks(e, e->a->src->get(e->a->src->ctx, f->trial, NULL), &alike, f, err) != 0)
        return -1;
    return profile_positions(e, c, f, err);
}
