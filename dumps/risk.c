/* risk.c: see risk.h: groups of arms, their choices, and what margins and drift make of them. Pure. */
#include "dumps/risk_internal.h"

#include "base/mem.h"
#include "dumps/storm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void ds_risk_free(struct ds_risk *r)
{
    for (size_t i = 0; i < r->n_groups; i++) {
        free(r->groups[i].choices);
        free(r->groups[i].layers);
        ds_partings_free(r->groups[i].partings);
    }
    free(r->groups);
    memset(r, 0, sizeof *r);
}

/* ---- choices --------------------------------------------------------------------------------- */

static int by_reference(const void *pa, const void *pb)
{
    const struct ds_flip_pair *a = pa, *b = pb;
    return a->ref < b->ref ? -1 : a->ref > b->ref;
}

/* Likeliest to turn over first; of equal ones the smaller margin; those without one, whose logits are NaN, behind all. */
static int by_risk(const void *pa, const void *pb)
{
    const struct ds_risk_choice *a = pa, *b = pb;
    const int blind_a = isnan(a->ref->margin) || isnan(a->chance),
              blind_b = isnan(b->ref->margin) || isnan(b->chance);
    if (blind_a != blind_b)
        return blind_a - blind_b;
    if (!blind_a && a->chance != b->chance)
        return a->chance > b->chance ? -1 : 1;
    if (!blind_a && a->ref->margin != b->ref->margin)
        return a->ref->margin < b->ref->margin ? -1 : 1;
    return a->ref < b->ref ? -1 : a->ref > b->ref;
}

/* Without a single number a row has no best token, though all of it may be equal. */
static int is_blind(const struct ds_step *s)
{
    return !isfinite(s->logits[0]) || isnan(s->margin);
}

/* Where tokens are drawn a row's numbers are scores, which have no sum: of these it is not known. */
static int holds_nan(const struct ds_step *s, int drawn)
{
    return is_blind(s) || (!drawn && isnan(s->exp_sum));
}

static void add_pair(struct ds_risk_choice *c, const struct ds_flip_pair *p,
                     const struct ds_flip_sizes *sizes, int drawn)
{
    const double d = ds_flip_drift(p);
    c->nan |= holds_nan(p->ref, drawn) || holds_nan(p->own, drawn);
    c->chance += ds_flip_probability(sizes, p->ref, d);
    c->seen += p->own->token != p->ref->token;
    c->drift = c->pairs == 0 || d > c->drift ? d : c->drift;
    c->pairs++;
}

static int list_choices(struct risk_pairs *p, const struct ds_flip_sizes *sizes, int drawn,
                        struct ds_risk_group *g, struct ds_error *err)
{
    if (!(g->choices = ds_calloc(p->n + p->n_alone, sizeof *g->choices, "choices", err)))
        return -1;
    if (p->n > 0)
        qsort(p->pair, p->n, sizeof *p->pair, by_reference);
    for (size_t i = 0; i < p->n; i++) {
        if (i == 0 || p->pair[i].ref != p->pair[i - 1].ref)
            g->choices[g->n_choices++] =
                (struct ds_risk_choice){.ref = p->pair[i].ref, .prompt = p->pair[i].prompt};
        add_pair(&g->choices[g->n_choices - 1], &p->pair[i], sizes, drawn);
    }
    /* pairs are sorted by reference: who is among them is no choice alone */
    const size_t paired = g->n_choices;
    for (size_t i = 0; i < p->n_alone; i++)
        if (!p->n || !bsearch(&p->alone[i], p->pair, p->n, sizeof *p->pair, by_reference))
            g->choices[g->n_choices++] = (struct ds_risk_choice){
                .ref = p->alone[i].ref,
                .prompt = p->alone[i].prompt,
                .drift = (double)NAN,
                .nan = holds_nan(p->alone[i].ref, drawn),
                .chance = ds_flip_probability(sizes, p->alone[i].ref, (double)NAN)};
    for (size_t i = 0; i < paired; i++)
        g->choices[i].chance /= g->choices[i].pairs;
    if (g->n_choices > 0)
        qsort(g->choices, g->n_choices, sizeof *g->choices, by_risk);
    return 0;
}

static int ascending(const void *pa, const void *pb)
{
    const float a = *(const float *)pa, b = *(const float *)pb;
    return (a > b) - (a < b);
}

static int describe_margins(const struct ds_flip_sizes *sizes, struct ds_risk_group *g,
                            struct ds_error *err)
{
    static const double at[] = {0, 0.01, 0.1, 0.5, 1}, of[] = {0.5, 0.99, 1};
    float *margin = ds_calloc(g->n_choices, sizeof *margin, "margins", err);
    size_t n = 0;
    if (!margin)
        return -1;
    for (size_t i = 0; i < g->n_choices; i++) {
        const struct ds_step *s = g->choices[i].ref;
        if (is_blind(s))
            continue;
        g->ties += s->ties > 1;
        g->nan += (uint64_t)g->choices[i].nan;
        margin[n++] = s->margin;
    }
    g->blind = g->n_choices - n;
    if (n > 0)
        qsort(margin, n, sizeof *margin, ascending);
    for (int i = 0; i < 5 && n > 0; i++) {
        const size_t k = (size_t)(at[i] * (double)n);
        g->margin[i] = (double)margin[k < n ? k : n - 1];
    }
    for (int i = 0; i < 3; i++) {
        const double size = ds_flip_size_at(sizes, of[i]);
        size_t in = 0;
        while (in < n && size > 0 && (double)margin[in] <= size)
            in++;
        g->within[i] = n ? (double)in / (double)n : 0;
    }
    free(margin);
    return 0;
}

/* ---- prompts --------------------------------------------------------------------------------- */

int risk_prompts(const struct ds_header *h, int32_t **rank, size_t *n, struct ds_error *err)
{
    const int64_t requests = risk_number(h, "serve_requests");
    *n = 1;
    if (!risk_option(h, "serve_requests"))
        return (*rank = ds_calloc(h->n_prompts, sizeof **rank, "prompts", err)) ? 0 : -1;
    if (ds_storm_prompts(h, rank, err) != 0)
        return -1;
    *n = 0;
    for (size_t i = 0; i < h->n_prompts;
         i++) /* the first one comes before those that are it again */
        if ((size_t)(*rank)[i] != i)
            (*rank)[i] = (*rank)[(*rank)[i]];
        else
            (*rank)[i] = (int64_t)i < requests ? (int32_t)(*n)++ : (int32_t)*n;
    return 0;
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* Of requests each choice's chance is that of one more. */
static int foretell_partings(const struct ds_header *h, const struct ds_trial_data *t,
                             struct ds_risk_group *g, struct ds_error *err)
{
    const size_t requests = (size_t)risk_number(h, "serve_requests");
    struct ds_partings_forecast f;
    if (ds_partings_learn(h, t, requests, &g->partings, err) != 0 ||
        ds_partings_foretell(g->partings, h, t, requests, &f, err) != 0)
        return -1;
    g->flips.expected = f.expected;
    g->flips.bounded = f.bounded;
    g->flips.low = f.low;
    g->flips.high = f.high;
    for (size_t i = 0; i < g->n_choices; i++)
        g->choices[i].chance =
            ds_partings_chance(g->partings, g->choices[i].prompt, g->choices[i].ref->step);
    if (g->n_choices > 0)
        qsort(g->choices, g->n_choices, sizeof *g->choices, by_risk);
    return 0;
}

static int make_group(const struct ds_header *h, const struct ds_trial_data *const *trials,
                      uint32_t first, struct ds_risk_group *g, struct ds_error *err)
{
    struct risk_pairs pairs;
    struct ds_flip_sizes sizes = {0};
    const char *temperature = risk_option(h, "temperature");
    const int drawn = temperature && strtod(temperature, NULL) > 0;
    g->arm = first;
    if (risk_pairs_of(h, trials, first, &pairs, err) != 0)
        return -1;
    int rc = ds_flip_measure(risk_walk, &pairs, &sizes, err);
    if (rc == 0)
        rc = ds_flips_make(risk_walk, &pairs, h->n_prompts, &g->flips, err);
    if (rc == 0)
        rc = list_choices(&pairs, &sizes, drawn, g, err);
    if (rc == 0 && risk_option(h, "serve_requests") && !risk_number(h, "serve_scored"))
        rc = foretell_partings(h, trials[first], g, err);
    if (rc == 0)
        rc = describe_margins(&sizes, g, err);
    if (rc == 0 && g->flips.choices > 0) {
        const double scale = 1000 / (double)g->flips.choices;
        g->per_1000 = scale * g->flips.expected;
        g->low = scale * g->flips.low;
        g->high = scale * g->flips.high;
        g->seen_per_1000 = scale * (double)g->flips.seen;
        g->drift_99 = ds_flip_size_at(&sizes, 0.99);
    }
    ds_flip_sizes_free(&sizes);
    risk_pairs_free(&pairs);
    return rc == 0 ? risk_layers(h, trials, g, err) : -1;
}

int ds_risk_make(const struct ds_header *h, const struct ds_trial_data *const *trials,
                 struct ds_risk *out, struct ds_error *err)
{
    int32_t *rank;
    memset(out, 0, sizeof *out);
    if (h->n_prompts == 0)
        return ds_fail(err, "the record has no prompts");
    if (risk_prompts(h, &rank, &out->n_prompts, err) != 0)
        return -1;
    free(rank);
    out->groups = ds_calloc(h->n_arms, sizeof *out->groups, "groups", err);
    int rc = out->groups ? 0 : -1;
    for (uint32_t a = 0; a < h->n_arms && rc == 0; a++) {
        int known = !trials[a];
        for (size_t g = 0; g < out->n_groups; g++)
            known |= risk_same_set(h, out->groups[g].arm, h, a);
        if (!known)
            rc = make_group(h, trials, a, &out->groups[out->n_groups++], err);
    }
    if (rc != 0)
        ds_risk_free(out);
    return rc;
}

/* ---- what one record foretells of another ---------------------------------------------------- */

/* Whether both have the same ones in the same order, however often each was given; *n: how many. -1: no memory. */
static int same_prompts(const struct ds_header *h, const struct ds_header *g, size_t *n,
                        struct ds_error *err)
{
    const struct ds_header *side[] = {h, g};
    const struct ds_prompt **list[2] = {NULL, NULL};
    size_t count[2] = {0, 0};
    int rc = 0, same;
    for (int i = 0; i < 2 && rc == 0; i++) {
        int32_t *rank;
        if ((rc = risk_prompts(side[i], &rank, &count[i], err)) != 0)
            break;
        rc = (list[i] = ds_calloc(count[i], sizeof **list, "prompts", err)) ? 0 : -1;
        for (size_t k = side[i]->n_prompts; rc == 0 && k-- > 0;)
            if ((size_t)rank[k] < count[i])
                list[i][rank[k]] = &side[i]->prompts[k];
        free(rank);
    }
    *n = count[0];
    same = count[0] == count[1];
    for (size_t k = 0; rc == 0 && same && k < count[0]; k++)
        same = list[0][k]->n_tokens == list[1][k]->n_tokens &&
               memcmp(list[0][k]->tokens, list[1][k]->tokens,
                      list[0][k]->n_tokens * sizeof *list[0][k]->tokens) == 0;
    free(list[0]);
    free(list[1]);
    return rc == 0 ? same : -1;
}

int ds_risk_foretell(const struct ds_header *h, const struct ds_risk *r,
                     const struct ds_header *other, const struct ds_trial_data *t, uint32_t arm,
                     struct ds_risk_test *out, struct ds_error *err)
{
    const int64_t requests = risk_number(other, "serve_requests");
    size_t n;
    struct ds_storm s;
    memset(out, 0, sizeof *out);
    while (out->group < r->n_groups && !risk_same_set(h, r->groups[out->group].arm, other, arm))
        out->group++;
    if (out->group == r->n_groups)
        return 0;
    if (!risk_option(h, "serve_requests") || requests < 1 || requests > INT32_MAX / 2 ||
        risk_number(h, "serve_scored") || risk_number(other, "serve_scored"))
        return ds_fail(err, "only a serving run (storm) foretells another one");
    const int same = same_prompts(h, other, &n, err);
    if (same < 0)
        return -1;
    if (!same || n < 2)
        return ds_fail(err, "a serving run foretells one of the same prompts, of which there are "
                            "two at least");
    struct ds_partings_forecast f;
    if (ds_partings_foretell(r->groups[out->group].partings, other, t, (size_t)requests, &f, err) !=
            0 ||
        ds_storm_completions(other, t, (size_t)requests, NULL, NULL, &s, err) != 0)
        return -1;
    out->requests = f.requests;
    out->known = f.known;
    out->expected = f.expected;
    out->low = f.low;
    out->high = f.high;
    out->seen = s.parted;
    ds_storm_free(&s);
    return 1;
}
