/* verdict_site.c: one site in detail: its finding, and the size of the difference per head, channel
 * and position. */
#include "dumps/evidence.h"
#include "dumps/stats.h"

#include "base/dtype.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CHANNELS = 65536 };

/* Sums of one part while rows are added. */
struct part_sums {
    double diff_sq, ref_sq;
    uint64_t of;
    size_t last_row; /* 1 + the last row that differs here */
};

static void finish_part(struct ds_profile_part *p, const struct part_sums *s)
{
    p->rms = s->of ? sqrt(s->diff_sq / (double)s->of) : 0;
    p->relative_rms = size_ratio(s->diff_sq, s->ref_sq);
}

/* The k-th group of elements of row r, [from, from + n). */
static void add_elements(const struct evidence *e, size_t r, uint32_t from, uint32_t n,
                         struct ds_profile_part *p, struct part_sums *s)
{
    const size_t size = ds_dtype_size(e->dtype);
    struct ds_drift x = {0};
    ds_stats_row(e->dtype, (const char *)e->rows[r].mine.bytes + from * size,
                 (const char *)e->rows[r].ref.bytes + from * size, n, &x);
    s->diff_sq += x.diff_sq;
    s->ref_sq += x.ref_sq;
    s->of += n;
    if (x.elements == 0)
        return;
    p->elements += x.elements;
    p->max_ulp = x.max_ulp != UINT64_MAX && x.max_ulp > p->max_ulp ? x.max_ulp : p->max_ulp;
    p->max_abs = !(x.max_abs <= p->max_abs) ? x.max_abs : p->max_abs;
    p->rows += s->last_row != r + 1;
    s->last_row = r + 1;
}

/* Groups of `unit` neighbouring elements are heads; without heads, or with by_channel, equal places
 * in every head are a channel. */
static int profile_groups(const struct evidence *e, int by_channel, struct ds_profile_part **out,
                          size_t *n_out, struct ds_error *err)
{
    uint32_t unit = e->head_dim ? e->head_dim : e->width;
    size_t n = by_channel ? unit : e->width / unit;
    struct part_sums *sums = ds_calloc(n, sizeof *sums, "profile", err);
    if (!sums || !(*out = ds_calloc(n, sizeof **out, "profile", err))) {
        free(sums);
        return -1;
    }
    for (size_t r = 0; r < e->n_rows; r++)
        for (uint32_t i = 0; i < e->width; i += by_channel ? 1 : unit) {
            size_t k = by_channel ? i % unit : i / unit;
            add_elements(e, r, i, by_channel ? 1 : unit, &(*out)[k], &sums[k]);
        }
    for (size_t k = 0; k < n; k++) {
        (*out)[k].index = (int32_t)k;
        finish_part(&(*out)[k], &sums[k]);
    }
    *n_out = n;
    free(sums);
    return 0;
}

/* Positions from the drift entries of one trial. */
static void add_trial(const struct ds_analysis *a, const struct ds_finding *f,
                      const struct ds_trial_data *d, const struct chosen *c,
                      struct ds_profile_part *positions)
{
    uint32_t width = a->h->sites[f->site].width;
    for (size_t i = 0; i < d->n_drifts; i++) {
        const struct ds_drift *x = &d->drifts[i];
        uint32_t row = chosen_row(a, d, x, f->arm, f->ref_arm, f->site, c);
        if (row == NONE || positions[row].rows)
            continue;
        positions[row] =
            (struct ds_profile_part){.index = a->keys[row].position,
                                     .rows = 1,
                                     .elements = x->elements,
                                     .max_ulp = x->max_ulp != UINT64_MAX ? x->max_ulp : 0,
                                     .max_abs = x->max_abs,
                                     .rms = width ? sqrt(x->diff_sq / width) : 0,
                                     .relative_rms = size_ratio(x->diff_sq, x->ref_sq)};
    }
}

/* All drifting rows that have sizes, in the finding's trial or else in another one of the arm. */
static int profile_rows(const struct ds_analysis *a, const struct ds_finding *f,
                        const struct chosen *c, struct ds_site_profile *out, struct ds_error *err)
{
    const struct arm_table *t = &a->arms[f->arm];
    if (!(out->positions = ds_calloc(a->n_rows, sizeof *out->positions, "profile", err)))
        return -1;
    for (uint32_t k = 0; k < t->n_trials && out->n_positions == 0; k++) {
        const struct ds_trial_data *d = a->src->get(a->src->ctx, t->trials[k], NULL);
        if (d)
            add_trial(a, f, d, c, out->positions);
        for (size_t i = 0; i < a->n_rows; i++)
            if (out->positions[i].rows)
                out->positions[out->n_positions++] = out->positions[i];
    }
    return 0;
}

static int profile_site(const struct ds_analysis *a, const uint8_t *labels,
                        struct ds_site_profile *out, struct ds_error *err)
{
    struct evidence e;
    const struct chosen alike = {.labels = labels, .phase = -1, .label = out->at.label};
    if (profile_rows(a, &out->at, &alike, out, err) != 0 ||
        evidence_open(a, &out->at, &alike, terms_added(a, &out->at), &e, err) != 0)
        return -1;
    int rc = 0;
    if (e.n_rows && e.head_dim)
        rc = profile_groups(&e, 0, &out->heads, &out->n_heads, err);
    if (rc == 0 && e.n_rows && (e.head_dim || e.width <= MOST_CHANNELS))
        rc = profile_groups(&e, 1, &out->channels, &out->n_channels, err);
    evidence_close(&e);
    return rc;
}

const uint8_t *last_labels(struct ds_analysis *a, uint32_t arm, uint32_t ref, struct ds_error *err)
{
    if (!a->last.labels && !(a->last.labels = ds_calloc(a->cells, 1, "labels", err)))
        return NULL;
    if (a->last.known && a->last.arm == arm && a->last.ref == ref)
        return a->last.labels;
    label_pair(a, arm, ref, a->last.labels);
    a->last.arm = arm;
    a->last.ref = ref;
    a->last.known = !is_stopped(a);
    return a->last.labels;
}

int ds_analysis_site(struct ds_analysis *a, uint32_t arm, uint32_t ref, uint32_t site,
                     struct ds_site_profile *out, struct ds_error *err)
{
    memset(out, 0, sizeof *out);
    if (arm >= a->h->n_arms || ref >= a->h->n_arms || site >= a->n_sites ||
        !a->arms[arm].n_trials || !a->arms[ref].n_trials)
        return 0;
    const uint8_t *labels = last_labels(a, arm, ref, err);
    if (!labels)
        return -1;
    size_t first = SIZE_MAX;
    for (size_t cell = site * a->n_rows; cell < (site + (size_t)1) * a->n_rows; cell++) {
        int drifts = is_drift(labels[cell]) ||
                     (arm == ref && (labels[cell] & LABEL_MASK) == DS_LABEL_UNSTABLE);
        if (drifts && (first == SIZE_MAX || (labels[cell] & LABEL_MASK) == DS_LABEL_ORIGIN)) {
            first = cell;
            if ((labels[cell] & LABEL_MASK) == DS_LABEL_ORIGIN)
                break;
        }
    }
    int rc = 0;
    if (first != SIZE_MAX) {
        describe_cell(a, arm, ref, labels, first, -1, &out->at);
        rc = size_labelled(a, labels, -1, &out->at, err);
        rc = rc ? rc : profile_site(a, labels, out, err);
    }
    if (rc == 0 && is_stopped(a))
        rc = ds_fail(err, "given up");
    if (rc != 0)
        ds_site_profile_free(out);
    return rc;
}

void ds_site_profile_free(struct ds_site_profile *p)
{
    free(p->heads);
    free(p->channels);
    free(p->positions);
    memset(p, 0, sizeof *p);
}
