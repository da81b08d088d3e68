/* storm.c: see storm.h: completions, references, and where requests first have other bits. Pure. */
#include "dumps/storm_internal.h"

#include "base/hash.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void ds_storm_free(struct ds_storm *s)
{
    free(s->requests);
    free(s->completions);
    memset(s, 0, sizeof *s);
}

static int step_compare(const void *pa, const void *pb)
{
    const struct ds_step *a = *(const struct ds_step *const *)pa,
                         *b = *(const struct ds_step *const *)pb;
    if (a->request != b->request)
        return a->request < b->request ? -1 : 1;
    return a->step < b->step ? -1 : a->step > b->step;
}

int ds_storm_steps(const struct ds_trial_data *t, size_t n_requests, size_t **begin,
                   const struct ds_step ***steps, struct ds_error *err)
{
    *begin = ds_calloc(n_requests + 1, sizeof **begin, "requests", err);
    *steps = *begin ? ds_calloc(t->n_steps, sizeof **steps, "steps", err) : NULL;
    int rc = *begin && *steps ? 0 : -1;
    for (size_t i = 0; rc == 0 && i < t->n_steps; i++) {
        (*steps)[i] = &t->steps[i];
        if (t->steps[i].request < 0 || (size_t)t->steps[i].request >= n_requests)
            rc = ds_fail(err, "step %zu: request %d of %zu", i, t->steps[i].request, n_requests);
        else
            (*begin)[t->steps[i].request + 1]++;
    }
    if (rc == 0 && t->n_steps > 0)
        qsort(*steps, t->n_steps, sizeof **steps, step_compare);
    for (size_t r = 0; rc == 0 && r < n_requests; r++) {
        for (size_t k = 0; k < (*begin)[r + 1] && rc == 0; k++)
            if ((*steps)[(*begin)[r] + k]->step != (int32_t)k)
                rc = ds_fail(err, "request %zu: its steps are not 0, 1, 2, ...", r);
        (*begin)[r + 1] += (*begin)[r];
    }
    if (rc != 0) {
        free(*begin);
        free(*steps);
        *begin = NULL;
        *steps = NULL;
    }
    return rc;
}

/* ---- completions ----------------------------------------------------------------------------- */

/* Step of the first token that differs; -1: none within what both have. */
static int32_t part(const struct storm_work *w, size_t a, size_t b)
{
    const size_t na = w->begin[a + 1] - w->begin[a], nb = w->begin[b + 1] - w->begin[b];
    for (size_t k = 0; k < na && k < nb; k++)
        if (w->steps[w->begin[a] + k]->token != w->steps[w->begin[b] + k]->token)
            return (int32_t)k;
    return -1;
}

static int commoner(const void *pa, const void *pb)
{
    const struct ds_storm_completion *a = pa, *b = pb;
    if (a->prompt != b->prompt)
        return a->prompt < b->prompt ? -1 : 1;
    if (a->size != b->size)
        return a->size > b->size ? -1 : 1;
    return a->request < b->request ? -1 : a->request > b->request;
}

/* Requests of a plan from elsewhere may end at unlike lengths: the shorter one then has the completion of
 * the first that it agrees with. */
static int count_completions(struct storm_work *w, struct ds_error *err)
{
    struct ds_storm *s = w->s;
    size_t cap = 0;
    for (size_t r = 0; r < s->n_requests; r++) {
        size_t c = 0;
        const int32_t prompt = s->requests[r].prompt;
        if (w->begin[r] == w->begin[r + 1])
            continue;
        while (c < s->n_completions && (s->completions[c].prompt != prompt ||
                                        part(w, (size_t)s->completions[c].request, r) >= 0))
            c++;
        if (c == s->n_completions) {
            if (ds_grow(&s->completions, &cap, c + 1, sizeof *s->completions, "completions", err) !=
                0)
                return -1;
            s->completions[s->n_completions++] =
                (struct ds_storm_completion){.prompt = prompt, .request = (int32_t)r};
        }
        s->completions[c].size++;
    }
    if (s->n_completions > 0)
        qsort(s->completions, s->n_completions, sizeof *s->completions, commoner);
    return 0;
}

static void describe_parting(const struct storm_work *w, size_t r)
{
    struct ds_storm_request *q = &w->s->requests[r];
    const size_t k = (size_t)q->parted;
    const struct ds_step *own = w->steps[w->begin[r] + k],
                         *ref = w->steps[w->begin[q->reference] + k];
    q->token = own->token;
    q->other_token = ref->token;
    q->margin = own->margin;
    q->other_margin = ref->margin;
    q->drift = fabs(ds_step_moved(ref, own, ref->token, own->token));
    q->tie = own->ties > 1 || ref->ties > 1;
    w->s->parted++;
    w->s->ties += (size_t)q->tie;
}

static void find_references(const struct storm_work *w)
{
    struct ds_storm *s = w->s;
    for (size_t r = 0; r < s->n_requests; r++) {
        struct ds_storm_request *q = &s->requests[r];
        if (w->begin[r] == w->begin[r + 1])
            continue;
        int found = 0;
        for (size_t c = 0; c < s->n_completions; c++) {
            const struct ds_storm_completion *x = &s->completions[c];
            if (x->prompt != q->prompt)
                continue;
            if (q->reference < 0) { /* the commonest comes first */
                q->reference = x->request;
                q->parted = part(w, r, (size_t)x->request);
            }
            if (!found && part(w, r, (size_t)x->request) < 0) {
                q->completion = (uint32_t)c;
                found = 1;
            }
        }
        if (q->parted >= 0)
            describe_parting(w, r);
    }
    for (size_t c = 0; c < s->n_completions; c++)
        s->n_prompts += c == 0 || s->completions[c].prompt != s->completions[c - 1].prompt;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Holds one row of a request against its reference's; keeps the earliest site of the call. */
static void hold(struct storm_work *w, size_t r, uint32_t row, int32_t from, uint32_t call)
{
    struct ds_storm_request *q = &w->s->requests[r];
    const struct ds_trial_data *t = w->rows.t;
    const struct ds_row *x = &t->rows[row];
    const int32_t prompt = (int32_t)w->h->prompts[q->prompt].n_tokens;
    const uint32_t other =
        w->rows.first[(size_t)q->reference * w->rows.width + (size_t)x->position];
    uint64_t differ = 0;
    if (!other || other - 1 == row || (q->parted >= 0 && x->position >= prompt + q->parted))
        return;
    const size_t k =
        ds_storm_rows_compare(&w->rows, row, &w->rows, other - 1, 0, &w->s->compared, &differ);
    if (k == SIZE_MAX || (q->drifts && t->captures[k].site >= q->place.site))
        return;
    const struct ds_call *own = &t->calls[x->call], *ref = &t->calls[t->rows[other - 1].call];
    q->drifts = 1;
    q->place = (struct ds_storm_place){.site = t->captures[k].site,
                                       .position = x->position,
                                       .occurrence = x->occurrence,
                                       .call = call,
                                       .launch = t->captures[k].launch,
                                       .m = (int32_t)own->m,
                                       .requests = (int32_t)own->sequences,
                                       .other_call = t->rows[other - 1].call,
                                       .other_m = (int32_t)ref->m,
                                       .other_requests = (int32_t)ref->sequences,
                                       .from = from};
}

/* Call by call: what a request began with, then its rows. Once it drifts nothing later is its first. */
static void compare_rows(struct storm_work *w)
{
    const struct ds_trial_data *t = w->rows.t;
    struct ds_storm_request *requests = w->s->requests;
    size_t i = 0;
    for (size_t c = 0, k = 0; c < t->n_calls; c++) {
        for (; k < w->n_hits && w->hits[k].call == c; k++) {
            const size_t r = (size_t)w->hits[k].request;
            for (size_t p = w->kept_at[k]; p < w->kept_at[k + 1] && requests[r].reference >= 0; p++)
                if (w->kept[p] && (!requests[r].drifts || requests[r].place.call == c))
                    hold(w, r, w->kept[p] - 1, w->hits[k].from, (uint32_t)c);
        }
        for (; i < t->n_rows && t->rows[i].call == c; i++) {
            const size_t r = (size_t)t->rows[i].request;
            const struct ds_storm_request *q = &requests[r];
            if (q->reference >= 0 && q->reference != (int32_t)r &&
                (!q->drifts || (q->place.call == c && q->place.from < 0)))
                hold(w, r, (uint32_t)i, -1, (uint32_t)c);
        }
    }
}

static void find_firsts(struct ds_storm *s)
{
    uint32_t earliest = 0;
    s->first_drift = s->first_parting = -1;
    for (size_t r = 0; r < s->n_requests; r++) {
        const struct ds_storm_request *q = &s->requests[r];
        /* The difference is there when both sides are. */
        const uint32_t since =
            q->place.call > q->place.other_call ? q->place.call : q->place.other_call;
        s->drifting += (size_t)q->drifts;
        if (q->drifts && (s->first_drift < 0 || since < earliest)) {
            s->first_drift = (int64_t)r;
            earliest = since;
        }
        if (q->parted >= 0 &&
            (s->first_parting < 0 || q->parted < s->requests[s->first_parting].parted))
            s->first_parting = (int64_t)r;
    }
}

struct same_prompt {
    uint64_t digest;
    int32_t prompt, first; /* first: with the same tokens */
};

static int by_digest(const void *pa, const void *pb)
{
    const struct same_prompt *a = pa, *b = pb;
    if (a->digest != b->digest)
        return a->digest < b->digest ? -1 : 1;
    return a->prompt - b->prompt;
}

int ds_storm_prompts(const struct ds_header *h, int32_t **first, struct ds_error *err)
{
    const size_t n = h->n_prompts;
    struct same_prompt *all = ds_calloc(n, sizeof *all, "prompts", err);
    *first = all ? ds_calloc(n, sizeof **first, "prompts", err) : NULL;
    for (size_t i = 0; *first && i < n; i++) {
        const struct ds_prompt *p = &h->prompts[i];
        all[i] = (struct same_prompt){.digest = ds_hash(p->tokens, p->n_tokens * sizeof *p->tokens),
                                      .prompt = (int32_t)i};
    }
    if (*first && n > 0)
        qsort(all, n, sizeof *all, by_digest);
    for (size_t i = 0; *first && i < n; i++) {
        all[i].first = i && all[i].digest == all[i - 1].digest ? all[i - 1].first : all[i].prompt;
        (*first)[all[i].prompt] = all[i].first;
    }
    free(all);
    return *first ? 0 : -1;
}

static int name_prompts(struct storm_work *w, struct ds_error *err)
{
    const size_t n = w->h->n_prompts;
    int32_t *first;
    if (ds_storm_prompts(w->h, &first, err) != 0)
        return -1;
    for (size_t r = 0; r < w->s->n_requests; r++)
        w->s->requests[r] = (struct ds_storm_request){
            .prompt = first[r % n], .reference = -1, .parted = -1, .next = -1};
    for (size_t i = 0; i < n; i++)
        first[i] = -1; /* from here on: the request of it that was met last, from behind */
    for (size_t r = w->s->n_requests; r-- > 0;) {
        int32_t *x = &first[w->s->requests[r].prompt];
        w->s->requests[r].next = *x;
        *x = (int32_t)r;
    }
    free(first);
    return 0;
}

static int take_tokens(struct storm_work *w, struct ds_error *err)
{
    struct ds_storm *s = w->s;
    if (name_prompts(w, err) != 0)
        return -1;
    if (ds_storm_steps(w->t, s->n_requests, &w->begin, &w->steps, err) != 0 ||
        count_completions(w, err) != 0)
        return -1;
    for (size_t i = 0; i < w->t->n_steps; i++)
        s->blind += isnan(w->t->steps[i].margin) != 0;
    find_references(w);
    return 0;
}

static int make(struct storm_work *w, struct ds_error *err)
{
    struct ds_storm *s = w->s;
    if (ds_storm_rows_new(w->t, s->n_requests, &w->rows, err) != 0 || take_tokens(w, err) != 0)
        return -1;
    if (ds_storm_rows_begun(&w->rows, w->hits, w->n_hits, &w->kept, &w->kept_at, err) != 0)
        return -1;
    compare_rows(w);
    find_firsts(s);
    return ds_storm_forecast(w, err);
}

static int begin(struct storm_work *w, size_t n_requests, struct ds_error *err)
{
    memset(w->s, 0, sizeof *w->s);
    if (w->h->n_prompts == 0 || n_requests == 0)
        return ds_fail(err, "a serving run has prompts and requests");
    w->s->n_requests = n_requests;
    w->s->requests = ds_calloc(n_requests, sizeof *w->s->requests, "requests", err);
    return w->s->requests ? 0 : -1;
}

static int end(struct storm_work *w, int rc)
{
    ds_storm_rows_free(&w->rows);
    free(w->begin);
    free(w->steps);
    free(w->kept);
    free(w->kept_at);
    if (rc != 0)
        ds_storm_free(w->s);
    return rc;
}

int ds_storm_make(const struct ds_header *h, const struct ds_trial_data *t, size_t n_requests,
                  const struct ds_storm_hit *hits, size_t n_hits, struct ds_storm *out,
                  struct ds_error *err)
{
    struct storm_work w = {.h = h, .t = t, .s = out, .hits = hits, .n_hits = n_hits};
    return end(&w, begin(&w, n_requests, err) != 0 ? -1 : make(&w, err));
}

int ds_storm_completions(const struct ds_header *h, const struct ds_trial_data *t,
                         size_t n_requests, ds_flip_take take, void *to, struct ds_storm *out,
                         struct ds_error *err)
{
    struct storm_work w = {.h = h, .t = t, .s = out};
    int rc = begin(&w, n_requests, err) != 0 ? -1 : take_tokens(&w, err);
    if (rc == 0 && take)
        rc = ds_storm_walk(&w, take, to, err);
    return end(&w, rc);
}
