/* data_steps.c: the tokens that an arm chose beside those of another, with the drift of the logits that they
 * were chosen from. Runs in the worker's thread. */
#include "tui/data_internal.h"

#include <stdlib.h>
#include <string.h>

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

static size_t logits_site(const struct ds_header *h)
{
    for (size_t i = 0; i < h->n_sites; i++)
        if (strcmp(h->sites[i].stage, "logits") == 0 && !h->sites[i].part[0])
            return i;
    return SIZE_MAX;
}

/* The row whose logits a step was chosen from: the one with its digest, else the last of the step. */
static size_t row_of_step(const struct judged *j, uint32_t arm, size_t site,
                          const struct ds_step *s)
{
    const struct ds_trial_data *t = ds_analysis_trial(j->analysis, arm);
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < t->n_rows; i++) {
        if (t->rows[i].request != s->request || t->rows[i].step != s->step ||
            t->rows[i].kind == DS_ROW_PAD)
            continue;
        uint64_t digest;
        size_t row = find_row(j->analysis, &t->rows[i], i);
        if (row == SIZE_MAX || !ds_analysis_digest(j->analysis, arm, (uint32_t)site, row, &digest))
            continue;
        best = row;
        if (digest == s->digest)
            break;
    }
    return best;
}

struct steps_work {
    struct judged *j;
    const struct want *w;
    size_t site, n_rows;
    const uint8_t *labels;
};

static void size_step(const struct steps_work *k, size_t row, struct tui_step *s)
{
    const struct ds_trial_data *t = ds_analysis_trial(k->j->analysis, k->w->arm);
    for (size_t i = 0; i < t->n_drifts; i++) {
        const struct ds_drift *x = &t->drifts[i];
        if (x->site != k->site || x->ref_arm != k->w->ref || x->row >= t->n_rows ||
            find_row(k->j->analysis, &t->rows[x->row], row) != row)
            continue;
        s->sized = 1;
        s->max_abs = x->max_abs;
        return;
    }
}

static void judge_step(const struct steps_work *k, struct tui_step *s)
{
    if (k->site == SIZE_MAX || s->mine.request == DS_UNKNOWN || s->ref.request == DS_UNKNOWN)
        return;
    size_t row = row_of_step(k->j, k->w->arm, k->site, &s->mine);
    if (row == SIZE_MAX)
        return;
    s->label = k->labels[k->site * k->n_rows + row];
    size_step(k, row, s);
}

/* Both lists are in order: entries of equal request and step stand side by side. */
static size_t join(const struct ds_step *a, size_t n, const struct ds_step *b, size_t m,
                   struct tui_step *out)
{
    size_t i = 0, j = 0, k = 0;
    while (i < n || j < m) {
        const int c = i == n ? 1 : j == m ? -1 : step_cmp(&a[i], &b[j]);
        struct tui_step *s = &out[k++];
        *s = (struct tui_step){.label = DS_LABEL_ABSENT};
        s->mine.request = s->ref.request = DS_UNKNOWN;
        if (c <= 0)
            s->mine = a[i++];
        if (c >= 0)
            s->ref = b[j++];
    }
    return k;
}

int make_steps(struct judged *j, const struct want *w, struct result *out, struct ds_error *err)
{
    const struct ds_trial_data *mine = ds_analysis_trial(j->analysis, w->arm),
                               *ref = ds_analysis_trial(j->analysis, w->ref);
    struct steps_work k = {.j = j,
                           .w = w,
                           .site = logits_site(j->source.header),
                           .n_rows = ds_analysis_rows(j->analysis)};
    uint8_t *labels = NULL;
    struct ds_step *a = sorted(mine, err), *b = a ? sorted(ref, err) : NULL;
    struct tui_step *steps =
        b ? ds_calloc(mine->n_steps + ref->n_steps, sizeof *steps, "steps", err) : NULL;
    int rc = steps ? ds_analysis_labels(j->analysis, w->arm, w->ref, &labels, err) : -1;
    out->u.steps.steps = steps;
    if (rc == 0) {
        k.labels = labels;
        out->u.steps.n = join(a, mine->n_steps, b, ref->n_steps, steps);
        for (size_t i = 0; i < out->u.steps.n; i++)
            judge_step(&k, &steps[i]);
        out->bytes = out->u.steps.n * sizeof *steps;
    }
    free(labels);
    free(a);
    free(b);
    return rc;
}
