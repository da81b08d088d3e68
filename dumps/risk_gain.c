/* risk_gain.c: what it is worth to exchange something in a kernel set: its flips beside those of the set as it was, prompt by
 * prompt. See risk.h. Pure. */
#include "dumps/risk_internal.h"

#include "base/ascending.h"
#include "base/mem.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 2000 };

/* Of one prompt: [0] the set as it was, [1] with the exchange. */
struct counts {
    double flips[2], choices[2];
};

static const char *kernels_of(const struct ds_header *h, uint32_t arm)
{
    for (size_t f = 0; f < h->n_factors; f++)
        if (strcmp(h->factors[f], "kernels") == 0)
            return h->arms[arm].values[f];
    return "";
}

/* What the last word of a kernel set, such as matmul=pinned, exchanges in another one, which says the same of all other ops; NULL:
 * they are no such two. */
static const char *exchange_of(const char *base, const char *own)
{
    const char *last = strrchr(own, '+');
    const size_t op = last ? strcspn(++last, "=") + 1 : 0; /* with its = */
    if (!last || last[op - 1] != '=')
        return NULL;
    for (size_t n; *base; base += n + (base[n] == '+')) {
        n = strcspn(base, "+");
        if (strncmp(base, last, op) == 0)
            continue;
        if (own == last || strncmp(own, base, n) != 0 || own[n] != '+')
            return NULL;
        own += n + 1;
    }
    return own == last ? last : NULL;
}

static double fewer(const struct counts *c)
{
    double per[2];
    for (int i = 0; i < 2; i++)
        per[i] = c->choices[i] > 0 ? 1000 * c->flips[i] / c->choices[i] : 0;
    return per[0] - per[1];
}

static void add(struct counts *to, const struct counts *c)
{
    for (int i = 0; i < 2; i++) {
        to->flips[i] += c->flips[i];
        to->choices[i] += c->choices[i];
    }
}

/* 95 % of samples of the prompts, drawn with replacement, both sets on the same ones. */
static int interval(const struct counts *by_prompt, size_t n, struct ds_risk_gain *out,
                    struct ds_error *err)
{
    uint64_t state = 1;
    double *sample = ds_calloc(SAMPLES, sizeof *sample, "samples", err);
    if (!sample)
        return -1;
    for (size_t i = 0; i < SAMPLES; i++) {
        struct counts all = {{0}, {0}};
        for (size_t p = 0; p < n; p++)
            add(&all, &by_prompt[ds_random_next(&state) % n]);
        sample[i] = fewer(&all);
    }
    qsort(sample, SAMPLES, sizeof *sample, ds_ascending);
    out->low = sample[SAMPLES / 40];
    out->high = sample[SAMPLES - 1 - SAMPLES / 40];
    free(sample);
    return 0;
}

/* How far an interval of few flips reaches is not known of one side either; that no choice is moved any more is. */
static int judge(const struct ds_risk_group *base, const struct ds_risk_group *g,
                 const struct ds_risk_gain *x)
{
    if (base->flips.drift_most > 0 && g->flips.drift_most <= 0 && g->flips.seen == 0)
        return DS_GAIN_ALL;
    return x->bounded && x->low > 0    ? DS_GAIN_SOME
           : x->bounded && x->high < 0 ? DS_GAIN_LOSS
                                       : DS_GAIN_NONE;
}

/* Adds up a side's choices, by prompt: of two records the same one may stand elsewhere. */
static int count_side(const struct ds_header *h, const struct ds_risk_group *g, int side,
                      size_t n_prompts, struct counts *by_prompt, struct ds_error *err)
{
    int32_t *rank;
    size_t n;
    if (risk_prompts(h, &rank, &n, err) != 0)
        return -1;
    for (size_t k = 0; k < g->n_choices; k++) {
        const struct ds_risk_choice *c = &g->choices[k];
        if ((size_t)c->prompt >= h->n_prompts || (size_t)rank[c->prompt] >= n_prompts)
            continue;
        by_prompt[rank[c->prompt]].flips[side] += c->seen;
        by_prompt[rank[c->prompt]].choices[side] += c->pairs;
    }
    free(rank);
    return 0;
}

static int weigh(const struct ds_header *h, const struct ds_risk_group *base,
                 const struct ds_header *other, const struct ds_risk_group *g, size_t n_prompts,
                 struct ds_risk_gain *out, struct ds_error *err)
{
    struct counts all = {{0}, {0}},
                  *by_prompt = ds_calloc(n_prompts, sizeof *by_prompt, "prompts", err);
    size_t used = 0;
    if (!by_prompt || count_side(h, base, 0, n_prompts, by_prompt, err) != 0 ||
        count_side(other, g, 1, n_prompts, by_prompt, err) != 0) {
        free(by_prompt);
        return -1;
    }
    /* Prompts without a choice that was made twice say nothing. */
    for (size_t p = 0; p < n_prompts; p++) {
        if (by_prompt[p].choices[0] + by_prompt[p].choices[1] <= 0)
            continue;
        add(&all, &by_prompt[p]);
        by_prompt[used++] = by_prompt[p];
    }
    out->expected[0] = base->per_1000;
    out->expected[1] = g->per_1000;
    out->seen[0] = base->seen_per_1000;
    out->seen[1] = g->seen_per_1000;
    out->fewer = fewer(&all);
    out->bounded = used > 1;
    const int rc = out->bounded ? interval(by_prompt, used, out, err) : 0;
    free(by_prompt);
    out->verdict = judge(base, g, out);
    return rc;
}

static int by_rest(const void *pa, const void *pb)
{
    const struct ds_risk_gain *a = pa, *b = pb;
    const int ra = a->verdict < DS_GAIN_SOME ? a->verdict : DS_GAIN_SOME,
              rb = b->verdict < DS_GAIN_SOME ? b->verdict : DS_GAIN_SOME;
    if (ra != rb)
        return rb - ra;
    if (a->expected[1] != b->expected[1])
        return a->expected[1] < b->expected[1] ? -1 : 1;
    return a->group < b->group ? -1 : a->group > b->group;
}

int ds_risk_gains(const struct ds_header *h, const struct ds_risk *r, struct ds_risk_gain **out,
                  size_t *n, struct ds_error *err)
{
    *n = 0;
    if (!(*out = ds_calloc(r->n_groups, sizeof **out, "groups", err)))
        return -1;
    const char *base = r->n_groups ? kernels_of(h, r->groups[0].arm) : "";
    for (size_t i = 1; i < r->n_groups; i++) {
        const char *exchanged = exchange_of(base, kernels_of(h, r->groups[i].arm));
        if (!exchanged || r->groups[i].flips.choices == 0)
            continue;
        struct ds_risk_gain *x = &(*out)[(*n)++];
        *x = (struct ds_risk_gain){.group = i, .exchanged = exchanged};
        if (weigh(h, &r->groups[0], h, &r->groups[i], r->n_prompts, x, err) != 0) {
            free(*out);
            *out = NULL;
            *n = 0;
            return -1;
        }
    }
    if (*n > 0)
        qsort(*out, *n, sizeof **out, by_rest);
    return 0;
}

int ds_risk_precision(const struct ds_header *h, const struct ds_risk *r,
                      const struct ds_header *other, const struct ds_risk *theirs, size_t group,
                      struct ds_risk_gain *out, struct ds_error *err)
{
    const char *before = risk_option(h, "dtype_at"), *now = risk_option(other, "dtype_at");
    const struct ds_risk_group *g = &theirs->groups[group];
    size_t base = 0;
    while (base < r->n_groups && !risk_same_set(h, r->groups[base].arm, other, g->arm))
        base++;
    if (strcmp(before ? before : "", now ? now : "") == 0 || base == r->n_groups ||
        g->flips.choices == 0 || r->groups[base].flips.choices == 0)
        return 0;
    *out = (struct ds_risk_gain){.group = base, .exchanged = now && now[0] ? now : "none in f32"};
    return weigh(h, &r->groups[base], other, g, r->n_prompts, out, err) == 0 ? 1 : -1;
}
