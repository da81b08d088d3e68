/* data_pair.c: every site of one arm against another: labels from the analysis, sizes from the probes' entries.
 * Runs in the worker's thread. */
#include "tui/data_internal.h"

#include "base/dtype.h"
#include "dumps/site_sums.h"
#include "dumps/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double JUMP = 8; /* times the relative rms of the layer before */

/* ---- sizes ----------------------------------------------------------------------------------- */

struct pair_work {
    struct judged *j;
    const struct want *w;
    size_t n_sites, n_rows;
    const uint8_t *labels;
    struct tui_site_sum *sites;
    struct ds_site_sum *sums;
};

static int is_drift(int label)
{
    return label == DS_LABEL_ORIGIN || label == DS_LABEL_INHERITED || label == DS_LABEL_UNKNOWN;
}

static void take_sum(const struct pair_work *p, size_t site)
{
    const struct ds_site_sum *z = &p->sums[site];
    struct tui_site_sum *s = &p->sites[site];
    s->sized = z->sized;
    s->elements = z->elements;
    s->max_ulp = z->max_ulp;
    s->max_abs = z->max_abs;
    s->relative_rms = ds_site_sum_relative(z);
}

static int add_sizes(const struct pair_work *p, struct ds_error *err)
{
    if (ds_site_sums(p->j->analysis, &p->j->source, p->w->arm, p->w->ref, p->labels, p->sums,
                     err) != 0)
        return -1;
    for (size_t k = 0; k < p->n_sites; k++)
        take_sum(p, k);
    return 0;
}

/* Bytes of both sides of a row: 1 and its sizes, or 0. */
int size_from_dumps(const struct book *b, const struct want *w, uint64_t mine, uint64_t ref,
                    struct ds_drift *out)
{
    struct ds_blob x = {0}, y = {0};
    struct ds_error ignored; /* a damaged dump has no size */
    int rc = is_dumped(b, mine) && is_dumped(b, ref) ? blob_of(b, w->arm, mine, &x, &ignored) : 0;
    rc = rc == 1 ? blob_of(b, w->ref, ref, &y, &ignored) : rc;
    const int dtype = rc == 1 ? ds_dtype_parse(x.dtype) : -1;
    const size_t size = dtype >= 0 ? ds_dtype_size(dtype) : 0;
    rc = size && strcmp(x.dtype, y.dtype) == 0 && x.elements == y.elements &&
         x.elements <= x.bytes / size && y.elements <= y.bytes / size;
    if (rc)
        ds_stats_row(dtype, x.data, y.data, x.elements, out);
    free(x.data);
    free(y.data);
    return rc;
}

/* Drifting rows of a site whose bytes are there on both sides; with `finish` their sizes are added. */
static size_t dumped_rows(const struct pair_work *p, uint32_t site, int finish)
{
    const struct ds_analysis *a = p->j->analysis;
    const struct book *b = p->j->book;
    size_t n = 0;
    for (size_t i = 0; i < p->n_rows; i++) {
        uint64_t mine, ref;
        if (!is_drift(p->labels[site * p->n_rows + i]) ||
            !ds_analysis_digest(a, p->w->arm, site, i, &mine) ||
            !ds_analysis_digest(a, p->w->ref, site, i, &ref))
            continue;
        struct ds_drift x = {.site = site};
        if (!finish && is_dumped(b, mine) && is_dumped(b, ref))
            return 1;
        if (!finish || !size_from_dumps(b, p->w, mine, ref, &x))
            continue;
        ds_site_sum_add(&p->sums[site], &x);
        n++;
    }
    return n;
}

/* Sites without any size. 1: some of them could have. */
static int add_from_dumps(const struct pair_work *p, int finish, struct ds_error *err)
{
    for (uint32_t s = 0; s < p->n_sites; s++) {
        const uint32_t *drift = p->sites[s].drift;
        if (p->sites[s].sized || p->w->arm == p->w->ref ||
            !(drift[DS_LABEL_ORIGIN] + drift[DS_LABEL_INHERITED] + drift[DS_LABEL_UNKNOWN]))
            continue;
        if (data_stopped(p->j->book->side[0].data))
            return ds_fail(err, "given up");
        if (dumped_rows(p, s, finish) && !finish)
            return 1;
        take_sum(p, s);
    }
    return 0;
}

static int add_healed(const struct pair_work *p, const uint8_t *healed, struct ds_error *err)
{
    memset(p->sums, 0, p->n_sites * sizeof *p->sums);
    int some = ds_site_sums_healed(p->j->analysis, &p->j->source, p->w->arm, p->w->ref, healed,
                                   p->sums, err);
    for (size_t k = 0; k < p->n_sites && some >= 0; k++) {
        p->sites[k].added_relative_rms = some ? ds_site_sum_relative(&p->sums[k]) : (double)NAN;
        p->sites[k].added_max_ulp = p->sums[k].max_ulp;
    }
    return some < 0 ? -1 : 0;
}

/* ---- counts ---------------------------------------------------------------------------------- */

static void count_labels(const struct pair_work *p, const uint8_t *healed)
{
    for (size_t site = 0; site < p->n_sites; site++) {
        struct tui_site_sum *s = &p->sites[site];
        for (size_t i = 0; i < p->n_rows; i++) {
            const int label = p->labels[site * p->n_rows + i];
            s->drift[label]++;
            s->compared += label != DS_LABEL_ABSENT;
            s->label = ds_label_graver(s->label, label);
            if (healed)
                s->healed_label = ds_label_graver(s->healed_label, healed[site * p->n_rows + i]);
        }
    }
}

enum { BAD = 1, REF_BAD = 2 };

/* Rows with NaN or Inf of one arm's first trial, as its probes saw them. */
static void mark_watched(const struct pair_work *p, uint32_t arm, uint8_t flag, uint8_t *bad)
{
    const struct ds_trial_data *t = ds_analysis_trial(p->j->analysis, arm);
    for (size_t i = 0; t && i < t->n_nonfinites; i++) {
        const struct ds_nonfinite *x = &t->nonfinites[i];
        if (x->site >= p->n_sites || x->row >= t->n_rows)
            continue;
        size_t row = ds_analysis_row_of(p->j->analysis, &t->rows[x->row], 0);
        if (row != SIZE_MAX)
            bad[x->site * p->n_rows + row] |= flag;
    }
}

static void mark_sized(const struct pair_work *p, uint8_t *bad)
{
    const struct ds_trial_data *t = ds_analysis_trial(p->j->analysis, p->w->arm);
    size_t row = SIZE_MAX;
    for (size_t i = 0; t && i < t->n_drifts; i++) {
        const struct ds_drift *x = &t->drifts[i];
        if (x->site >= p->n_sites || x->row >= t->n_rows || x->ref_arm != p->w->ref ||
            !(x->nonfinite || x->ref_nonfinite))
            continue;
        row = ds_analysis_row_of(p->j->analysis, &t->rows[x->row], row == SIZE_MAX ? 0 : row + 1);
        if (row == SIZE_MAX)
            continue;
        bad[x->site * p->n_rows + row] |=
            (uint8_t)((x->nonfinite ? BAD : 0) | (x->ref_nonfinite ? REF_BAD : 0));
    }
}

/* The probes watch rows that nothing equals: what equals a row with NaN has one, too. */
static void count_nonfinite(const struct pair_work *p, uint8_t *bad)
{
    mark_watched(p, p->w->arm, BAD, bad);
    mark_watched(p, p->w->ref, REF_BAD, bad);
    mark_sized(p, bad);
    for (size_t cell = 0; cell < p->n_sites * p->n_rows; cell++) {
        if (!bad[cell])
            continue;
        const int label = p->labels[cell];
        if (label == DS_LABEL_SAME || label == DS_LABEL_HEALED)
            bad[cell] = BAD | REF_BAD;
        p->sites[cell / p->n_rows].nonfinite += bad[cell] & BAD;
        p->sites[cell / p->n_rows].ref_nonfinite += (bad[cell] & REF_BAD) != 0;
    }
}

/* ---- jumps ----------------------------------------------------------------------------------- */

/* A site is held against the one of the same stage and part in the layer before. Sites are in execution
 * order, so that one is the last seen of its name. */
static int find_jumps(const struct pair_work *p, struct ds_error *err)
{
    const struct ds_header *h = p->j->source.header;
    size_t *first = ds_calloc(p->n_sites, sizeof *first, "stages", err), stages = 0;
    size_t *last = first ? ds_calloc(p->n_sites, sizeof *last, "stages", err) : NULL;
    for (size_t s = 0; last && s < p->n_sites; s++) {
        const struct ds_site *x = &h->sites[s];
        size_t k = 0;
        while (k < stages && (strcmp(h->sites[first[k]].stage, x->stage) != 0 ||
                              strcmp(h->sites[first[k]].part, x->part) != 0))
            k++;
        if (k == stages) {
            first[stages++] = s;
        } else {
            const struct tui_site_sum *was = &p->sites[last[k]];
            p->sites[s].jump = h->sites[last[k]].layer + 1 == x->layer && was->sized &&
                               p->sites[s].sized && was->relative_rms > 0 &&
                               p->sites[s].relative_rms >= JUMP * was->relative_rms;
        }
        last[k] = s;
    }
    free(first);
    free(last);
    return last ? 0 : -1;
}

/* ---- the pair -------------------------------------------------------------------------------- */

static int copy_keys(const struct ds_analysis *a, const struct ds_row_key **out,
                     struct ds_error *err)
{
    size_t n = ds_analysis_rows(a);
    struct ds_row_key *keys = ds_calloc(n, sizeof *keys, "rows", err);
    for (size_t i = 0; keys && i < n; i++)
        keys[i] = *ds_analysis_row(a, i);
    *out = keys;
    return keys ? 0 : -1;
}

int make_pair(struct judged *j, const struct want *w, int finish, struct result *out,
              struct ds_error *err)
{
    struct tui_pair *pair = &out->u.pair;
    struct pair_work p = {.j = j,
                          .w = w,
                          .n_sites = j->source.header->n_sites,
                          .n_rows = ds_analysis_rows(j->analysis)};
    uint8_t *labels = NULL, *healed = NULL, *bad = NULL;
    *pair =
        (struct tui_pair){.arm = w->arm, .ref = w->ref, .n_sites = p.n_sites, .n_rows = p.n_rows};
    int rc = ds_analysis_labels(j->analysis, w->arm, w->ref, &labels, err);
    pair->labels = p.labels = labels;
    if (rc == 0 && data_stopped(j->book->side[0].data))
        rc = ds_fail(err, "given up");
    rc = rc == 0 && ds_analysis_healed(j->analysis, w->arm, w->ref, &healed, err) < 0 ? -1 : rc;
    pair->healed = healed;
    if (rc != 0 || copy_keys(j->analysis, &pair->keys, err) != 0 ||
        !(p.sites = ds_calloc(p.n_sites, sizeof *p.sites, "sites", err)))
        return -1;
    pair->sites = p.sites;
    p.sums = ds_calloc(p.n_sites, sizeof *p.sums, "sites", err);
    bad = p.sums ? ds_calloc(p.n_sites * p.n_rows, 1, "rows", err) : NULL;
    rc = bad ? 0 : -1;
    if (rc == 0) {
        count_labels(&p, healed);
        count_nonfinite(&p, bad);
        rc = add_sizes(&p, err);
    }
    rc = rc == 0 ? add_from_dumps(&p, finish, err) : rc;
    out->unfinished = rc == 1;
    rc = rc == 1 ? 0 : rc;
    rc = rc == 0 ? add_healed(&p, healed, err) : rc;
    rc = rc == 0 ? find_jumps(&p, err) : rc;
    free(p.sums);
    free(bad);
    out->bytes =
        p.n_sites * (p.n_rows * (healed ? 2 : 1) + sizeof *p.sites) + p.n_rows * sizeof *pair->keys;
    return rc;
}
