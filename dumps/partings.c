/* partings.c: see partings.h: answers, their means and how far they lie apart. Pure. */
#include "dumps/partings_internal.h"

#include "base/ascending.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void ds_partings_free(struct ds_partings *p)
{
    if (!p)
        return;
    free(p->prompt);
    free(p->choices);
    free(p->first);
    free(p->rivals);
    free(p->off);
    free(p->first_off);
    free(p->sizes);
    free(p);
}

/* ---- answers --------------------------------------------------------------------------------- */

static uint32_t head_site(const struct ds_header *h)
{
    for (size_t i = 0; i < h->n_sites; i++)
        if (strcmp(h->sites[i].stage, "final_norm") == 0 && !h->sites[i].part[0])
            return (uint32_t)i;
    return UINT32_MAX;
}

/* A position that is computed again, after a preemption, makes no choice again: the first row counts. */
static void take_rows(const struct storm_work *w, const struct ds_capture *c, uint8_t *found,
                      uint64_t *bits)
{
    for (uint32_t i = 0; i < c->rows; i++) {
        const struct ds_row *row = &w->t->rows[c->first_row + i];
        if (row->request < 0 || (size_t)row->request >= w->s->n_requests)
            continue;
        const size_t r = (size_t)row->request;
        const int64_t step =
            (int64_t)row->position + 1 - (int64_t)w->h->prompts[r % w->h->n_prompts].n_tokens;
        if (step < 0 || (size_t)step >= w->begin[r + 1] - w->begin[r])
            continue;
        const size_t at = w->begin[r] + (size_t)step;
        if (!found[at])
            bits[at] = w->t->digests[c->first_digest + i];
        found[at] = 1;
    }
}

int partings_bits(const struct storm_work *w, uint64_t **out, struct ds_error *err)
{
    const size_t n = w->begin[w->s->n_requests];
    const uint32_t head = head_site(w->h);
    uint8_t *found = ds_calloc(n, 1, "answers", err);
    *out = found ? ds_calloc(n, sizeof **out, "answers", err) : NULL;
    if (!*out) {
        free(found);
        return -1;
    }
    for (size_t i = 0; i < n; i++)
        (*out)[i] = w->steps[i]->digest;
    for (size_t i = 0; i < w->t->n_captures; i++)
        if (w->t->captures[i].site == head)
            take_rows(w, &w->t->captures[i], found, *out);
    free(found);
    return 0;
}

size_t partings_begin(const struct storm_work *w, size_t prompt)
{
    return prompt < w->s->n_requests && w->s->requests[prompt].prompt == (int32_t)prompt ? prompt
                                                                                         : SIZE_MAX;
}

size_t partings_next(const struct storm_work *w, size_t r)
{
    return w->s->requests[r].next < 0 ? SIZE_MAX : (size_t)w->s->requests[r].next;
}

int partings_prompts(const struct storm_work *w, size_t **list, size_t *n, struct ds_error *err)
{
    const size_t most = w->h->n_prompts < w->s->n_requests ? w->h->n_prompts : w->s->n_requests;
    *n = 0;
    if (!(*list = ds_calloc(most + 1, sizeof **list, "prompts", err)))
        return -1;
    for (size_t i = 0; i < most; i++) {
        size_t r = partings_begin(w, i);
        while (r < w->s->n_requests && w->begin[r] == w->begin[r + 1])
            r = partings_next(w, r);
        if (r < w->s->n_requests)
            (*list)[(*n)++] = i;
    }
    return 0;
}

int partings_open(const struct storm_work *w, size_t r, size_t k)
{
    const struct ds_storm_request *q = &w->s->requests[r];
    return q->reference >= 0 && k < w->begin[r + 1] - w->begin[r] &&
           (q->parted < 0 || k <= (size_t)q->parted);
}

struct answer {
    uint64_t bits;
    const struct ds_step *step;
};

static int by_bits(const void *pa, const void *pb)
{
    const struct answer *a = pa, *b = pb;
    if (a->bits != b->bits)
        return a->bits < b->bits ? -1 : 1;
    return a->step->request < b->step->request ? -1 : a->step->request > b->step->request;
}

/* The answers to the choice of step k, each once. */
static size_t answers_of(const struct storm_work *w, const uint64_t *bits, size_t prompt, size_t k,
                         struct answer *list)
{
    size_t n = 0, kept = 0;
    for (size_t r = partings_begin(w, prompt); r < w->s->n_requests; r = partings_next(w, r))
        if (partings_open(w, r, k)) {
            const size_t at = w->begin[r] + k;
            list[n++] = (struct answer){bits[at], w->steps[at]};
        }
    if (n > 1)
        qsort(list, n, sizeof *list, by_bits);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || list[i].bits != list[i - 1].bits)
            list[kept++] = list[i];
    return kept;
}

/* ---- what is learnt -------------------------------------------------------------------------- */

/* The gap of token `first` to its rival; a token that is not among the best recorded ones has the last one's logit at most. */
static double gap_of(const struct ds_step *s, int32_t first, int32_t *rival)
{
    const int turned = s->ids[0] != first;
    double logit = (double)s->logits[0];
    *rival = turned ? s->ids[0] : s->ids[1];
    for (int k = 0; turned && k < DS_TOP && s->ids[k] >= 0; k++) {
        logit = (double)s->logits[k];
        if (s->ids[k] == first)
            break;
    }
    return *rival >= 0 ? logit - (double)s->logits[turned ? 0 : 1] : (double)NAN;
}

struct learning {
    const struct storm_work *w;
    const uint64_t *bits;
    struct ds_partings *p;
    struct answer *list; /* [requests] */
    size_t n_off, cap_off, n_choices, cap_choices, n_rivals, cap_rivals;
};

/* The mean gap of the answers that have one, and their rivals. */
static int take_answers(struct learning *x, size_t n_answers, int32_t first,
                        struct parting_choice *c, struct ds_error *err)
{
    struct ds_partings *p = x->p;
    double sum = 0;
    if (ds_grow(&p->rivals, &x->cap_rivals, x->n_rivals + n_answers, sizeof *p->rivals, "choices",
                err) != 0)
        return -1;
    c->rivals = x->n_rivals;
    for (size_t i = 0; i < n_answers; i++) {
        int32_t rival;
        const double gap = gap_of(x->list[i].step, first, &rival);
        if (!isfinite(gap))
            continue;
        sum += gap;
        c->answers++;
        p->rivals[x->n_rivals++] = rival;
    }
    c->gap = c->answers ? sum / (double)c->answers : (double)NAN;
    return 0;
}

static int learn_choice(struct learning *x, size_t n_answers, const struct ds_step *ref,
                        struct ds_error *err)
{
    struct ds_partings *p = x->p;
    struct parting_choice c = {.wins = ref->ids[1] >= 0 && ref->ids[1] < ref->ids[0]};
    if (take_answers(x, n_answers, ref->ids[0], &c, err) != 0 ||
        ds_grow(&p->choices, &x->cap_choices, x->n_choices + 1, sizeof c, "choices", err) != 0 ||
        ds_grow(&p->off, &x->cap_off, x->n_off + c.answers, sizeof *p->off, "drifts", err) != 0)
        return -1;
    p->choices[x->n_choices++] = c;
    const double wider = c.answers > 1 ? sqrt((double)c.answers / ((double)c.answers - 1)) : 0;
    for (size_t i = 0; c.answers > 1 && i < n_answers; i++) {
        int32_t rival;
        const double gap = gap_of(x->list[i].step, ref->ids[0], &rival);
        if (isfinite(gap))
            p->off[x->n_off++] = (gap - c.gap) * wider;
    }
    return 0;
}

static int learn_prompt(struct learning *x, size_t i, struct ds_error *err)
{
    const struct storm_work *w = x->w;
    const size_t prompt = x->p->prompt[i];
    size_t r = partings_begin(w, prompt);
    while (r < w->s->n_requests && w->s->requests[r].reference != (int32_t)r)
        r = partings_next(w, r);
    for (size_t k = 0; r < w->s->n_requests && k < w->begin[r + 1] - w->begin[r]; k++)
        if (learn_choice(x, answers_of(w, x->bits, prompt, k, x->list), w->steps[w->begin[r] + k],
                         err) != 0)
            return -1;
    x->p->first[i + 1] = x->n_choices;
    x->p->first_off[i + 1] = x->n_off;
    return 0;
}

static int sort_sizes(struct ds_partings *p, size_t n, struct ds_error *err)
{
    if (!(p->sizes = ds_calloc(n, sizeof *p->sizes, "drifts", err)))
        return -1;
    for (size_t i = 0; i < n; i++)
        p->sizes[i] = fabs(p->off[i]);
    if (n > 0)
        qsort(p->sizes, n, sizeof *p->sizes, ds_ascending);
    p->most = n > 0 ? p->sizes[n - 1] : 0;
    return 0;
}

int partings_learn(const struct storm_work *w, const uint64_t *bits, struct ds_partings **out,
                   struct ds_error *err)
{
    struct ds_partings *p = ds_calloc(1, sizeof *p, "choices", err);
    *out = NULL;
    if (!p)
        return -1;
    if (partings_prompts(w, &p->prompt, &p->n_prompts, err) != 0) {
        ds_partings_free(p);
        return -1;
    }
    p->first = ds_calloc(p->n_prompts + 1, sizeof *p->first, "prompts", err);
    p->first_off = ds_calloc(p->n_prompts + 1, sizeof *p->first_off, "prompts", err);
    struct learning x = {.w = w, .bits = bits, .p = p};
    x.list = ds_calloc(w->s->n_requests, sizeof *x.list, "answers", err);
    int rc = p->first && p->first_off && x.list ? 0 : -1;
    for (size_t i = 0; i < p->n_prompts && rc == 0; i++)
        rc = learn_prompt(&x, i, err);
    free(x.list);
    if (rc == 0)
        rc = sort_sizes(p, x.n_off, err);
    if (rc != 0)
        ds_partings_free(p);
    else
        *out = p;
    return rc;
}

/* ---- one choice ------------------------------------------------------------------------------ */

/* Share of the drifts that are at least m, and not nothing. */
static double share_from(const struct ds_partings *p, double m)
{
    const size_t n = p->first_off[p->n_prompts];
    size_t low = 0, high = n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (p->sizes[middle] >= m && p->sizes[middle] > 0)
            high = middle;
        else
            low = middle + 1;
    }
    return n ? (double)(n - low) / (double)n : 0;
}

double ds_partings_chance(const struct ds_partings *p, int32_t prompt, int32_t step)
{
    size_t at = 0, high = p->n_prompts;
    while (at < high) {
        const size_t middle = at + (high - at) / 2;
        if ((int64_t)p->prompt[middle] < prompt)
            at = middle + 1;
        else
            high = middle;
    }
    if (prompt < 0 || step < 0 || at == p->n_prompts || (int64_t)p->prompt[at] != prompt ||
        (size_t)step >= p->first[at + 1] - p->first[at])
        return 0;
    const struct parting_choice *c = &p->choices[p->first[at] + (size_t)step];
    const double wider = c->answers > 0 ? sqrt(1 + 1 / (double)c->answers) : 1,
                 half = isfinite(c->gap) ? share_from(p, fabs(c->gap) / wider) / 2 : 0;
    return c->gap < 0 ? 1 - half : half;
}

/* ---- trials ---------------------------------------------------------------------------------- */

/* What both need of a trial: ds_storm_completions does the rest. */
static int with_work(const struct ds_header *h, const struct ds_trial_data *t, size_t n_requests,
                     int (*fn)(void *ctx, const struct storm_work *w, const uint64_t *bits,
                               struct ds_error *err),
                     void *ctx, struct ds_error *err)
{
    struct ds_storm s;
    struct storm_work w = {.h = h, .t = t, .s = &s};
    uint64_t *bits = NULL;
    if (ds_storm_completions(h, t, n_requests, NULL, NULL, &s, err) != 0)
        return -1;
    int rc = ds_storm_steps(t, n_requests, &w.begin, &w.steps, err);
    if (rc == 0)
        rc = partings_bits(&w, &bits, err);
    if (rc == 0)
        rc = fn(ctx, &w, bits, err);
    free(bits);
    free(w.begin);
    free(w.steps);
    ds_storm_free(&s);
    return rc;
}

static int learn(void *ctx, const struct storm_work *w, const uint64_t *bits, struct ds_error *err)
{
    return partings_learn(w, bits, ctx, err);
}

int ds_partings_learn(const struct ds_header *h, const struct ds_trial_data *t, size_t n_requests,
                      struct ds_partings **out, struct ds_error *err)
{
    *out = NULL;
    return with_work(h, t, n_requests, learn, out, err);
}

struct foretelling {
    const struct ds_partings *p;
    struct ds_partings_forecast *out;
};

static int foretell(void *ctx, const struct storm_work *w, const uint64_t *bits,
                    struct ds_error *err)
{
    const struct foretelling *f = ctx;
    return partings_play(f->p, w, bits, f->out, err);
}

int ds_partings_foretell(const struct ds_partings *p, const struct ds_header *h,
                         const struct ds_trial_data *t, size_t n_requests,
                         struct ds_partings_forecast *out, struct ds_error *err)
{
    struct foretelling f = {p, out};
    memset(out, 0, sizeof *out);
    return with_work(h, t, n_requests, foretell, &f, err);
}
