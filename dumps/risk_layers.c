/* risk_layers.c: per layer, how far its output would have to drift for a choice to turn over: its measured relative
 * drift, times how many times as far the two best logits would have to move. That takes growth to be in proportion.
 * From a sweep, whose probes size what drifts against the base arm; from a serving run, whose probes size, of each choice,
 * the first row that differs from the first request's that made it. Pure. */
#include "dumps/risk_internal.h"

#include "base/ascending.h"
#include "base/mem.h"
#include "dumps/storm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct layers {
    const struct ds_header *h;
    const struct ds_trial_data *ref;
    int32_t *prompts; /* [n_prompts] the first one with the same tokens */
    double **rms;     /* [n_layers + 1] of the rows that count */
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

static int take_pair(struct layers *w, int32_t at, const struct ds_drift *d,
                     const struct ds_step *a, const struct ds_step *b, struct ds_error *err)
{
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
        l->prompt = w->prompts[(size_t)a->request % w->h->n_prompts];
        l->step = a->step;
    }
    l->rows += moved > 0;
    return 0;
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
    return a && b ? take_pair(w, at, d, a, b, err) : 0;
}

/* ---- a serving run --------------------------------------------------------------------------- */

struct seen {
    uint32_t site, row;
    uint64_t digest;
};

struct serving_rows {
    struct seen *list; /* rows that choose, at the ends of layers, by site and digest */
    size_t n, cap;
    size_t *begin; /* of each request's steps */
    const struct ds_step **steps;
    size_t requests;
};

static int by_digest(const void *pa, const void *pb)
{
    const struct seen *a = pa, *b = pb;
    if (a->site != b->site)
        return a->site < b->site ? -1 : 1;
    if (a->digest != b->digest)
        return a->digest < b->digest ? -1 : 1;
    return a->row < b->row ? -1 : a->row > b->row;
}

static int steps_new(struct serving_rows *x, const struct ds_header *h,
                     const struct ds_trial_data *t, struct ds_error *err)
{
    *x = (struct serving_rows){.requests = (size_t)risk_number(h, "serve_requests")};
    return ds_storm_steps(t, x->requests, &x->begin, &x->steps, err);
}

static void rows_free(struct serving_rows *x)
{
    free(x->list);
    free(x->begin);
    free(x->steps);
}

/* The choice that was made from a row; NULL: none. */
static const struct ds_step *choice_of(const struct layers *w, const struct serving_rows *x,
                                       const struct ds_row *row)
{
    if (row->request < 0 || (size_t)row->request >= x->requests || row->occurrence != 0)
        return NULL;
    const size_t r = (size_t)row->request;
    const int64_t k =
        (int64_t)row->position + 1 - (int64_t)w->h->prompts[r % w->h->n_prompts].n_tokens;
    return k >= 0 && (size_t)k < x->begin[r + 1] - x->begin[r] ? x->steps[x->begin[r] + (size_t)k]
                                                               : NULL;
}

static int list_rows(struct layers *w, struct serving_rows *x, struct ds_error *err)
{
    const struct ds_trial_data *t = w->ref;
    for (size_t i = 0; i < t->n_captures; i++) {
        const struct ds_capture *c = &t->captures[i];
        if (layer_of(w->h, &w->h->sites[c->site]) < 0)
            continue;
        for (uint32_t k = 0; k < c->rows; k++) {
            if (!choice_of(w, x, &t->rows[c->first_row + k]))
                continue;
            if (ds_grow(&x->list, &x->cap, x->n + 1, sizeof *x->list, "rows", err) != 0)
                return -1;
            x->list[x->n++] =
                (struct seen){c->site, c->first_row + k, t->digests[c->first_digest + k]};
        }
    }
    if (x->n > 0)
        qsort(x->list, x->n, sizeof *x->list, by_digest);
    return 0;
}

static int32_t prompt_of(const struct layers *w, const struct ds_row *row)
{
    return w->prompts[(size_t)row->request % w->h->n_prompts];
}

/* The first row that a drift was held against: of the same prompt, at the same position. */
static const struct ds_row *partner_of(const struct layers *w, const struct serving_rows *x,
                                       const struct ds_drift *d)
{
    const struct seen key = {d->site, 0, d->ref_digest};
    const struct ds_row *own = &w->ref->rows[d->row];
    size_t low = 0, high = x->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (by_digest(&x->list[middle], &key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < x->n && x->list[low].site == d->site && x->list[low].digest == d->ref_digest;
         low++) {
        const struct ds_row *row = &w->ref->rows[x->list[low].row];
        if (row->position == own->position && row->request != own->request &&
            prompt_of(w, row) == prompt_of(w, own))
            return row;
    }
    return NULL;
}

static int take_serving(struct layers *w, uint32_t arm, struct ds_error *err)
{
    struct serving_rows x;
    int rc = steps_new(&x, w->h, w->ref, err);
    if (rc == 0 && w->ref->n_drifts > 0)
        rc = list_rows(w, &x, err);
    for (size_t i = 0; i < w->ref->n_drifts && rc == 0; i++) {
        const struct ds_drift *d = &w->ref->drifts[i];
        const int32_t at = layer_of(w->h, &w->h->sites[d->site]);
        const struct ds_step *b = choice_of(w, &x, &w->ref->rows[d->row]);
        const struct ds_row *row =
            d->ref_arm == arm && at >= 0 && b && d->ref_sq > 0 ? partner_of(w, &x, d) : NULL;
        const struct ds_step *a = row ? choice_of(w, &x, row) : NULL;
        if (a)
            rc = take_pair(w, at, d, a, b, err);
    }
    rows_free(&x);
    return rc;
}

/* A text that was scored, beside how it was generated: of every choice there are the rows of both. */
static int take_scored(struct layers *w, const struct ds_trial_data *own, uint32_t arm,
                       struct ds_error *err)
{
    struct serving_rows x = {0}, y = {0};
    int rc = steps_new(&x, w->h, w->ref, err);
    if (rc == 0)
        rc = steps_new(&y, w->h, own, err);
    for (size_t i = 0; i < own->n_drifts && rc == 0; i++) {
        const struct ds_drift *d = &own->drifts[i];
        const int32_t at = layer_of(w->h, &w->h->sites[d->site]);
        if (d->ref_arm != arm || at < 0 || !(d->ref_sq > 0))
            continue;
        const struct ds_row *row = &own->rows[d->row];
        const struct ds_step *a = choice_of(w, &x, row), *b = choice_of(w, &y, row);
        if (a && b)
            rc = take_pair(w, at, d, a, b, err);
    }
    rows_free(&x);
    rows_free(&y);
    return rc;
}

/* ---- all ------------------------------------------------------------------------------------- */

static void keep(struct layers *w, struct ds_risk_group *g)
{
    for (int32_t i = 0; i <= w->h->n_layers; i++) {
        if (w->layer[i].rows == 0)
            continue;
        qsort(w->rms[i], w->n[i], sizeof **w->rms, ds_ascending);
        w->layer[i].layer = i;
        w->layer[i].median = w->rms[i][w->n[i] / 2];
        g->layers[g->n_layers++] = w->layer[i];
    }
}

int risk_layers(const struct ds_header *h, const struct ds_trial_data *const *trials,
                struct ds_risk_group *g, struct ds_error *err)
{
    const size_t n = (size_t)h->n_layers + 1;
    const int scored = risk_number(h, "serve_scored") != 0,
              serving = risk_option(h, "serve_requests") != NULL && !scored;
    struct layers w = {.h = h,
                       .ref = trials[g->arm],
                       .rms = ds_calloc(n, sizeof *w.rms, "layers", err),
                       .n = ds_calloc(n, sizeof *w.n, "layers", err),
                       .cap = ds_calloc(n, sizeof *w.cap, "layers", err),
                       .layer = ds_calloc(n, sizeof *w.layer, "layers", err)};
    g->layers = ds_calloc(n, sizeof *g->layers, "layers", err);
    int rc = w.rms && w.n && w.cap && w.layer && g->layers ? 0 : -1;
    if (rc == 0)
        rc = ds_storm_prompts(h, &w.prompts, err);
    if (rc == 0 && serving)
        rc = take_serving(&w, g->arm, err);
    for (uint32_t a = g->arm + 1; !serving && a < h->n_arms && rc == 0; a++) {
        if (!trials[a] || !risk_same_set(h, g->arm, h, a))
            continue;
        if (scored)
            rc = take_scored(&w, trials[a], g->arm, err);
        for (size_t i = 0; !scored && rc == 0 && i < trials[a]->n_drifts; i++)
            if (trials[a]->drifts[i].ref_arm == g->arm)
                rc = take_drift(&w, trials[a], &trials[a]->drifts[i], err);
    }
    if (rc == 0)
        keep(&w, g);
    for (size_t i = 0; w.rms && i < n; i++)
        free(w.rms[i]);
    free(w.rms);
    free(w.n);
    free(w.cap);
    free(w.layer);
    free(w.prompts);
    return rc;
}
