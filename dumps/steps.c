/* steps.c: see steps.h. */
#include "dumps/steps.h"

#include "dumps/verdict_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- one step -------------------------------------------------------------------------------- */

int ds_step_both(const struct ds_step_pair *s)
{
    return s->mine.request != DS_UNKNOWN && s->ref.request != DS_UNKNOWN;
}

const struct ds_step *ds_step_side(const struct ds_step_pair *s)
{
    return s->ref.request != DS_UNKNOWN ? &s->ref : &s->mine;
}

int ds_step_other_token(const struct ds_step_pair *s)
{
    return ds_step_both(s) && s->mine.token != s->ref.token;
}

double ds_step_room(const struct ds_step_pair *s)
{
    if (!ds_step_both(s) || (s->is & DS_STEP_AFTER))
        return (double)NAN;
    if (ds_step_other_token(s))
        return 0;
    if (s->label == DS_LABEL_SAME || s->label == DS_LABEL_HEALED)
        return (double)INFINITY;
    if (!s->sized || isnan(s->max_abs))
        return (double)NAN;
    return (double)s->ref.margin / (2 * s->max_abs);
}

uint32_t ds_step_site(const struct ds_header *h)
{
    for (size_t i = 0; i < h->n_sites; i++)
        if (strcmp(h->sites[i].stage, "logits") == 0 && !h->sites[i].part[0])
            return (uint32_t)i;
    return UINT32_MAX;
}

/* ---- the logits row of a step ---------------------------------------------------------------- */

struct work {
    const struct ds_analysis *a;
    uint32_t arm, ref, site;
    const uint8_t *labels;
};

/* The row whose logits a step was chosen from: the one with its digest, else the last of the step. */
static uint32_t row_of_step(const struct work *k, const struct ds_step *s)
{
    const struct ds_trial_data *t = ds_analysis_trial(k->a, k->arm);
    uint32_t best = NONE;
    for (size_t i = 0; i < t->n_rows; i++) {
        if (t->rows[i].request != s->request || t->rows[i].step != s->step ||
            t->rows[i].kind == DS_ROW_PAD)
            continue;
        uint64_t digest;
        uint32_t row = row_of_key(k->a, &t->rows[i], (uint32_t)i);
        if (row == NONE || !ds_analysis_digest(k->a, k->arm, k->site, row, &digest))
            continue;
        best = row;
        if (digest == s->digest)
            break;
    }
    return best;
}

static void size_step(const struct work *k, uint32_t row, struct ds_step_pair *s)
{
    const struct ds_trial_data *t = ds_analysis_trial(k->a, k->arm);
    for (size_t i = 0; i < t->n_drifts; i++) {
        const struct ds_drift *x = &t->drifts[i];
        if (x->site != k->site || x->ref_arm != k->ref || x->row >= t->n_rows ||
            row_of_key(k->a, &t->rows[x->row], row) != row)
            continue;
        s->sized = 1;
        s->max_abs = x->max_abs;
        return;
    }
}

static void judge(const struct work *k, struct ds_step_pair *s)
{
    if (k->site == UINT32_MAX || !ds_step_both(s))
        return;
    uint32_t row = row_of_step(k, &s->mine);
    if (row == NONE)
        return;
    s->label = k->labels[k->site * ds_analysis_rows(k->a) + row];
    size_step(k, row, s);
}

/* ---- both sides ------------------------------------------------------------------------------ */

static int step_cmp(const void *pa, const void *pb)
{
    const struct ds_step *a = pa, *b = pb;
    if (a->request != b->request)
        return a->request < b->request ? -1 : 1;
    return (a->step > b->step) - (a->step < b->step);
}

static struct ds_step *sorted(const struct ds_trial_data *t, struct ds_error *err)
{
    struct ds_step *s = ds_calloc(t->n_steps, sizeof *s, "steps", err);
    if (s && t->n_steps) {
        memcpy(s, t->steps, t->n_steps * sizeof *s);
        qsort(s, t->n_steps, sizeof *s, step_cmp);
    }
    return s;
}

/* Both lists are in order: entries of equal request and step stand side by side. */
static size_t join(const struct ds_step *a, size_t n, const struct ds_step *b, size_t m,
                   struct ds_step_pair *out)
{
    size_t i = 0, j = 0, k = 0;
    while (i < n || j < m) {
        const int c = i == n ? 1 : j == m ? -1 : step_cmp(&a[i], &b[j]);
        struct ds_step_pair *s = &out[k++];
        *s = (struct ds_step_pair){.label = DS_LABEL_ABSENT};
        s->mine.request = s->ref.request = DS_UNKNOWN;
        if (c <= 0)
            s->mine = a[i++];
        if (c >= 0)
            s->ref = b[j++];
    }
    return k;
}

static void mark(struct ds_step_pair *steps, size_t n)
{
    int parted = 0, fed = 0; /* whether the request at hand had another token, and was fed one */
    for (size_t i = 0; i < n; i++) {
        struct ds_step_pair *s = &steps[i];
        int next = i == 0 || ds_step_side(s)->request != ds_step_side(s - 1)->request;
        parted = next ? 0 : parted;
        fed = next ? 0 : fed;
        int other = ds_step_other_token(s);
        s->is = (uint32_t)((other && !parted ? DS_STEP_FIRST : 0) | (fed ? DS_STEP_AFTER : 0));
        parted |= other;
        fed |= ds_step_both(s) && s->mine.forced != s->ref.forced;
    }
}

int ds_steps_make(struct ds_analysis *a, const struct ds_header *h, uint32_t arm, uint32_t ref,
                  struct ds_step_pair **out, size_t *n, struct ds_error *err)
{
    const struct ds_trial_data *mine = ds_analysis_trial(a, arm),
                               *theirs = ds_analysis_trial(a, ref);
    *out = NULL;
    *n = 0;
    if (!mine || !theirs)
        return ds_fail(err, "arm %u has no complete trial", mine ? ref : arm);
    struct work k = {.a = a, .arm = arm, .ref = ref, .site = ds_step_site(h)};
    uint8_t *labels = NULL;
    struct ds_step *x = sorted(mine, err), *y = x ? sorted(theirs, err) : NULL;
    struct ds_step_pair *steps =
        y ? ds_calloc(mine->n_steps + theirs->n_steps, sizeof *steps, "steps", err) : NULL;
    int rc = steps ? ds_analysis_labels(a, arm, ref, &labels, err) : -1;
    if (rc == 0) {
        k.labels = labels;
        *out = steps;
        *n = join(x, mine->n_steps, y, theirs->n_steps, steps);
        for (size_t i = 0; i < *n; i++)
            judge(&k, &steps[i]);
        mark(steps, *n);
    } else {
        free(steps);
    }
    free(labels);
    free(x);
    free(y);
    return rc;
}
