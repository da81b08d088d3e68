/* risk_layers.c: per layer, how far its output would have to drift for a choice to turn over: its measured relative
 * drift, times how many times as far the two best logits would have to move. That takes growth to be in proportion.
 * From a sweep, whose probes size what drifts; other records hold no sizes. Pure. */
#include "dumps/risk_internal.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct layers {
    const struct ds_header *h;
    const struct ds_trial_data *ref;
    double **rms; /* [n_layers + 1] of the rows that count */
    size_t *n, *cap;
    struct ds_risk_layer *layer; /* [n_layers + 1] */
};

/* The layer whose output a site is; n_layers: what the logits are made of; -1: none. */
static int32_t layer_of(const struct ds_header *h, const struct ds_site *s)
{
    if (s->part[0])
        return -1;
    if (strcmp(s->stage, "final_norm") == 0)
        return h->n_layers;
    return strcmp(s->stage, "resid_ffn") == 0 && s->layer >= 0 && s->layer < h->n_layers ? s->layer
                                                                                         : -1;
}

static const struct ds_step *step_of(const struct ds_trial_data *t, int32_t request, int32_t step)
{
    for (size_t i = 0; i < t->n_steps; i++)
        if (t->steps[i].request == request && t->steps[i].step == step)
            return &t->steps[i];
    return NULL;
}

/* Whether a token is chosen from what became of the row: of the prompt, only from the last one. */
static int chooses(const struct ds_trial_data *t, const struct ds_row *row)
{
    for (size_t i = 0; row->step == 0 && i < t->n_rows; i++)
        if (t->rows[i].request == row->request && t->rows[i].step == 0 &&
            t->rows[i].kind != DS_ROW_PAD && t->rows[i].position > row->position)
            return 0;
    return row->kind != DS_ROW_PAD;
}

static int take_drift(struct layers *w, const struct ds_trial_data *own, const struct ds_drift *d,
                      struct ds_error *err)
{
    const int32_t at = layer_of(w->h, &w->h->sites[d->site]);
    const struct ds_row *row = &own->rows[d->row];
    if (at < 0 || !(d->ref_sq > 0) || !chooses(own, row))
        return 0;
    const struct ds_step *a = step_of(w->ref, row->request, row->step),
                         *b = step_of(own, row->request, row->step);
    if (!a || !b)
        return 0;
    const struct ds_flip_pair pair = {a, b, 0};
    const double rms = sqrt(d->diff_sq / d->ref_sq), moved = ds_flip_drift(&pair);
    struct ds_risk_layer *l = &w->layer[at];
    if (ds_grow(&w->rms[at], &w->cap[at], w->n[at] + 1, sizeof **w->rms, "rows", err) != 0)
        return -1;
    w->rms[at][w->n[at]++] = rms;
    const double needed = rms * (double)a->margin / moved;
    if (moved > 0 && (l->rows == 0 || needed < l->needed)) {
        l->needed = needed;
        l->request = a->request;
        l->step = a->step;
    }
    l->rows += moved > 0;
    return 0;
}

static int ascending(const void *pa, const void *pb)
{
    const double a = *(const double *)pa, b = *(const double *)pb;
    return (a > b) - (a < b);
}

static void keep(struct layers *w, struct ds_risk_group *g)
{
    for (int32_t i = 0; i <= w->h->n_layers; i++) {
        if (w->layer[i].rows == 0)
            continue;
        qsort(w->rms[i], w->n[i], sizeof **w->rms, ascending);
        w->layer[i].layer = i;
        w->layer[i].median = w->rms[i][w->n[i] / 2];
        g->layers[g->n_layers++] = w->layer[i];
    }
}

int risk_layers(const struct ds_header *h, const struct ds_trial_data *const *trials,
                struct ds_risk_group *g, struct ds_error *err)
{
    const size_t n = (size_t)h->n_layers + 1;
    if (risk_option(h, "serve_requests"))
        return 0;
    struct layers w = {.h = h,
                       .ref = trials[g->arm],
                       .rms = ds_calloc(n, sizeof *w.rms, "layers", err),
                       .n = ds_calloc(n, sizeof *w.n, "layers", err),
                       .cap = ds_calloc(n, sizeof *w.cap, "layers", err),
                       .layer = ds_calloc(n, sizeof *w.layer, "layers", err)};
    g->layers = ds_calloc(n, sizeof *g->layers, "layers", err);
    int rc = w.rms && w.n && w.cap && w.layer && g->layers ? 0 : -1;
    for (uint32_t a = g->arm + 1; a < h->n_arms && rc == 0; a++)
        for (size_t i = 0;
             trials[a] && risk_same_set(h, g->arm, h, a) && rc == 0 && i < trials[a]->n_drifts; i++)
            if (trials[a]->drifts[i].ref_arm == g->arm)
                rc = take_drift(&w, trials[a], &trials[a]->drifts[i], err);
    if (rc == 0)
        keep(&w, g);
    for (size_t i = 0; w.rms && i < n; i++)
        free(w.rms[i]);
    free(w.rms);
    free(w.n);
    free(w.cap);
    free(w.layer);
    return rc;
}
