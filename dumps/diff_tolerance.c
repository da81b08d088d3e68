/* diff_tolerance.c: rows that differ within a tolerance are given the reference's digest, so that
 * all that follows (labels, classes, repeats) sees them as equal. Bytes are read only of rows whose
 * digests differ, once per pair of digests; a row whose bytes are not in the records cannot be
 * excused, and is counted. Uses the analysis' tables: it belongs to the verdict as much as to the
 * diff. */
#include "dumps/diff_internal.h"

#include "base/dtype.h"
#include "dumps/record_layout.h"
#include "dumps/verdict_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum answer { EXCEEDS = 0, EXCUSED, NOT_DUMPED };

struct work {
    struct ds_diff *d;
    uint8_t *labels;     /* [cells] of the trial's arm against A's */
    int repeats;         /* more than two trials: pairs of digests come again */
    struct ds_map known; /* (digest, reference, side) -> enum answer */
};

int diff_damage(struct ds_diff *d, uint32_t site, const struct ds_row_key *key, int side,
                const struct ds_error *what, struct ds_error *err)
{
    const struct ds_site *s = &d->header.sites[site];
    char name[128], site_words[DS_SITE_WORDS];
    ds_site_words(s, site_words, sizeof site_words);
    snprintf(name, sizeof name, "%s, request %d, position %d", site_words, key->request,
             key->position);
    for (size_t i = 0; i < d->n_items; i++)
        if (d->items[i].kind == DS_DIFF_DAMAGE && strcmp(d->items[i].name, name) == 0)
            return 0;
    return diff_add(d, DS_DIFF_DAMAGE, name, side == 0 ? what->msg : NULL,
                    side == 1 ? what->msg : NULL, err);
}

static int compare_bytes(const struct ds_tolerance *t, const struct ds_blob *x,
                         const struct ds_blob *y)
{
    int dtype = ds_dtype_parse(x->dtype);
    size_t size = ds_dtype_size(dtype);
    if (strcmp(x->dtype, y->dtype) != 0 || x->elements != y->elements || !size ||
        x->elements > x->bytes / size || x->elements > y->bytes / size)
        return EXCEEDS;
    return ds_tolerance_row(t, dtype, x->data, y->data, x->elements) ? EXCUSED : EXCEEDS;
}

/* Reads both rows; damage is listed, and excuses nothing. */
static int judge(struct work *w, uint32_t site, const struct ds_row_key *key, int side,
                 uint64_t digest, uint64_t ref, enum answer *out, struct ds_error *err)
{
    const struct ds_diff_options *o = &w->d->options;
    const struct ds_map_key at = {digest, ref, (uint64_t)side, 0};
    const uint64_t *known = w->repeats ? ds_map_get(&w->known, &at) : NULL;
    if (known) {
        *out = (enum answer) * known;
        return 0;
    }
    /* Two rows of one record are not there at once, unless copied. */
    const int borrow = o->view && side == 1;
    int (*get)(void *, int, uint64_t, struct ds_blob *, struct ds_error *) =
        borrow ? o->view : o->blob;
    struct ds_blob x = {0}, y = {0};
    struct ds_error what = {{0}, {0}};
    int damaged = side, rc = get ? get(o->ctx, side, digest, &x, &what) : 0;
    if (rc == 1) {
        damaged = 0;
        rc = get(o->ctx, 0, ref, &y, &what);
    }
    *out = rc == 1 ? (enum answer)compare_bytes(&o->tolerance, &x, &y) : NOT_DUMPED;
    if (!borrow) {
        free(x.data);
        free(y.data);
    }
    if (rc < 0 && diff_damage(w->d, site, key, damaged, &what, err) != 0)
        return -1;
    return w->repeats ? ds_map_put(&w->known, &at, *out, err) : 0;
}

static int replace(struct ds_diff *d, size_t trial, size_t at, uint64_t digest,
                   struct ds_error *err)
{
    struct ds_trial_data *t = &d->trials[trial];
    if (!d->own_digests[trial]) {
        uint64_t *own = ds_calloc(t->n_digests, sizeof *own, "digests", err);
        if (!own)
            return -1;
        memcpy(own, t->digests, t->n_digests * sizeof *own);
        d->own_digests[trial] = t->digests = own;
        d->own_bytes += t->n_digests * sizeof *own;
    }
    t->digests[at] = digest;
    return 0;
}

static int excuse_trial(struct work *w, size_t trial, int *changed, struct ds_error *err)
{
    struct ds_diff *d = w->d;
    const struct ds_analysis *a = d->analysis;
    const struct ds_trial_data *t = &d->trials[trial];
    const uint32_t arm = t->info.arm, ref_arm = arm & ~1u;
    const struct arm_table *r = &a->arms[ref_arm];
    label_pair(d->analysis, arm, ref_arm, w->labels); /* what is not compared needs no excuse */
    for (size_t i = 0; i < t->n_captures; i++) {
        const struct ds_capture *c = &t->captures[i];
        uint32_t row = NONE;
        for (uint32_t j = 0; j < c->rows; j++) {
            row = row_of_key(a, &t->rows[c->first_row + j], row == NONE ? 0 : row + 1);
            const size_t cell = c->site * a->n_rows + row, at = (size_t)c->first_digest + j;
            if (row == NONE || w->labels[cell] == DS_LABEL_ABSENT ||
                t->digests[at] == r->digest[cell])
                continue;
            enum answer answer;
            if (judge(w, c->site, &a->keys[row], (int)(arm & 1), t->digests[at], r->digest[cell],
                      &answer, err) != 0)
                return -1;
            d->excused += answer == EXCUSED;
            d->exceeding += answer == EXCEEDS;
            d->not_dumped += answer == NOT_DUMPED;
            if (answer != EXCUSED)
                continue;
            *changed = 1;
            if (replace(d, trial, at, r->digest[cell], err) != 0)
                return -1;
        }
    }
    return 0;
}

int diff_excuse(struct ds_diff *d, int *changed, struct ds_error *err)
{
    struct work w = {.d = d, .repeats = d->n_trials > 2};
    *changed = 0;
    if (!ds_tolerance_given(&d->options.tolerance))
        return 0;
    w.labels = ds_calloc(d->analysis->cells, 1, "labels", err);
    d->own_digests = ds_calloc(d->n_trials, sizeof *d->own_digests, "digests", err);
    int rc = w.labels && d->own_digests ? 0 : -1;
    for (size_t i = 0; rc == 0 && i < d->n_trials; i++)
        rc = excuse_trial(&w, i, changed, err);
    ds_map_free(&w.known);
    free(w.labels);
    return rc;
}
