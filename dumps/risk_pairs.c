/* risk_pairs.c: which choices of a record were made twice: see risk.h. Pure. */
#include "dumps/risk_internal.h"

#include "base/mem.h"
#include "dumps/storm.h"

#include <stdlib.h>
#include <string.h>

void risk_pairs_free(struct risk_pairs *p)
{
    free(p->pair);
    free(p->alone);
    memset(p, 0, sizeof *p);
}

int risk_walk(void *ctx, ds_flip_take take, void *to, struct ds_error *err)
{
    const struct risk_pairs *p = ctx;
    for (size_t i = 0; i < p->n; i++)
        if (take(to, &p->pair[i], err) != 0)
            return -1;
    return 0;
}

const char *risk_option(const struct ds_header *h, const char *name)
{
    for (size_t i = 0; i < h->n_options; i++)
        if (strcmp(h->options[i].name, name) == 0)
            return h->options[i].value;
    return NULL;
}

int64_t risk_number(const struct ds_header *h, const char *name)
{
    const char *text = risk_option(h, name);
    return text ? strtoll(text, NULL, 10) : 0;
}

static const char *factor(const struct ds_header *h, uint32_t arm, const char *name)
{
    for (size_t i = 0; i < h->n_factors; i++)
        if (strcmp(h->factors[i], name) == 0)
            return h->arms[arm].values[i];
    return "";
}

int risk_same_set(const struct ds_header *h, uint32_t a, const struct ds_header *g, uint32_t b)
{
    return strcmp(factor(h, a, "kernels"), factor(g, b, "kernels")) == 0 &&
           strcmp(factor(h, a, "dtype"), factor(g, b, "dtype")) == 0 &&
           strcmp(factor(h, a, "device"), factor(g, b, "device")) == 0;
}

static int add(struct risk_pairs *p, const struct ds_step *ref, const struct ds_step *own,
               int32_t prompt, struct ds_error *err)
{
    struct ds_flip_pair **list = own ? &p->pair : &p->alone;
    size_t *n = own ? &p->n : &p->n_alone, *cap = own ? &p->cap : &p->cap_alone;
    if (ds_grow(list, cap, *n + 1, sizeof **list, "choices", err) != 0)
        return -1;
    (*list)[(*n)++] = (struct ds_flip_pair){ref, own, prompt};
    return 0;
}

static int take(void *to, const struct ds_flip_pair *p, struct ds_error *err)
{
    return add(to, p->ref, p->own, p->prompt, err);
}

/* ---- kinds of records ------------------------------------------------------------------------ */

/* A sweep: the subject's choices, as long as both were fed the same. */
static int pair_sweep(const struct ds_trial_data *ref, const struct ds_trial_data *own,
                      struct risk_pairs *out, struct ds_error *err)
{
    int alike = 1;
    for (size_t i = 0; i < ref->n_steps && alike; i++) {
        const struct ds_step *a = &ref->steps[i],
                             *b = own && i < own->n_steps ? &own->steps[i] : NULL;
        if (!own) {
            if (add(out, a, NULL, 0, err) != 0)
                return -1;
            continue;
        }
        if (!b || a->request != b->request || a->step != b->step)
            return 0;
        if (add(out, a, b, 0, err) != 0)
            return -1;
        alike = a->forced == b->forced;
    }
    return 0;
}

/* What was generated beside how it was scored: the same tokens were fed throughout. */
static int pair_scored(const struct ds_header *h, const struct ds_trial_data *ref,
                       const struct ds_trial_data *own, size_t n_requests, struct risk_pairs *out,
                       struct ds_error *err)
{
    size_t *begin[2] = {NULL, NULL};
    const struct ds_step **steps[2] = {NULL, NULL};
    int32_t *prompts;
    if (ds_storm_prompts(h, &prompts, err) != 0)
        return -1;
    int rc = ds_storm_steps(ref, n_requests, &begin[0], &steps[0], err);
    if (rc == 0)
        rc = ds_storm_steps(own, n_requests, &begin[1], &steps[1], err);
    for (size_t r = 0; rc == 0 && r < n_requests; r++) {
        const size_t a = begin[0][r + 1] - begin[0][r], b = begin[1][r + 1] - begin[1][r];
        for (size_t k = 0; k < a && k < b && rc == 0; k++)
            rc = add(out, steps[0][begin[0][r] + k], steps[1][begin[1][r] + k],
                     prompts[r % h->n_prompts], err);
    }
    for (int i = 0; i < 2; i++) {
        free(begin[i]);
        free(steps[i]);
    }
    free(prompts);
    return rc;
}

static int pair_storm(const struct ds_header *h, const struct ds_trial_data *t, size_t n_requests,
                      struct risk_pairs *out, struct ds_error *err)
{
    struct ds_storm s;
    size_t *begin;
    const struct ds_step **steps;
    if (ds_storm_completions(h, t, n_requests, take, out, &s, err) != 0)
        return -1;
    int rc = ds_storm_steps(t, n_requests, &begin, &steps, err);
    for (size_t r = 0; rc == 0 && r < n_requests; r++)
        if (s.requests[r].reference == (int32_t)r)
            for (size_t k = begin[r]; k < begin[r + 1] && rc == 0; k++)
                rc = add(out, steps[k], NULL, s.requests[r].prompt, err);
    if (begin) {
        free(begin);
        free(steps);
    }
    ds_storm_free(&s);
    return rc;
}

int risk_pairs_of(const struct ds_header *h, const struct ds_trial_data *const *trials,
                  uint32_t first, struct risk_pairs *out, struct ds_error *err)
{
    const int64_t requests = risk_number(h, "serve_requests");
    const int scored = risk_number(h, "serve_scored") != 0;
    int others = 0, rc = 0;
    memset(out, 0, sizeof *out);
    if (risk_option(h, "serve_requests") && (requests < 1 || requests > INT32_MAX / 2))
        return ds_fail(err, "the record has %lld requests", (long long)requests);
    if (requests > 0 && !scored)
        rc = pair_storm(h, trials[first], (size_t)requests, out, err);
    for (uint32_t a = first + 1; (requests == 0 || scored) && a < h->n_arms && rc == 0; a++) {
        if (!trials[a] || !risk_same_set(h, first, h, a))
            continue;
        others++;
        rc = scored ? pair_scored(h, trials[first], trials[a], (size_t)requests, out, err)
                    : pair_sweep(trials[first], trials[a], out, err);
    }
    if (rc == 0 && requests == 0 && !others)
        rc = pair_sweep(trials[first], NULL, out, err);
    if (rc != 0)
        risk_pairs_free(out);
    return rc;
}
