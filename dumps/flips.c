/* flips.c: see flips.h. Pure. */
#include "dumps/flips.h"

#include "base/ascending.h"
#include "base/mem.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 2000 };

double ds_step_moved(const struct ds_step *a, const struct ds_step *b, int32_t first,
                     int32_t second)
{
    const struct ds_step *sides[] = {a, b};
    double gap[2];
    for (int i = 0; i < 2; i++) {
        double x = (double)NAN, y = (double)NAN;
        for (int k = 0; k < DS_TOP; k++) {
            x = sides[i]->ids[k] == first ? (double)sides[i]->logits[k] : x;
            y = sides[i]->ids[k] == second ? (double)sides[i]->logits[k] : y;
        }
        gap[i] = x - y;
    }
    return gap[1] - gap[0];
}

double ds_flip_drift(const struct ds_flip_pair *p)
{
    return p->own->digest == p->ref->digest
               ? 0.0
               : fabs(ds_step_moved(p->ref, p->own, p->ref->ids[0], p->ref->ids[1]));
}

/* ---- sizes ----------------------------------------------------------------------------------- */

void ds_flip_sizes_free(struct ds_flip_sizes *s)
{
    free(s->size);
    memset(s, 0, sizeof *s);
}

static int take_size(void *to, const struct ds_flip_pair *p, struct ds_error *err)
{
    struct ds_flip_sizes *s = to;
    const double d = ds_flip_drift(p);
    if (!(d >= 0))
        return 0;
    if (ds_grow(&s->size, &s->cap, s->n + 1, sizeof *s->size, "drifts", err) != 0)
        return -1;
    s->size[s->n++] = d;
    return 0;
}

int ds_flip_measure(ds_flip_walk walk, void *ctx, struct ds_flip_sizes *out, struct ds_error *err)
{
    memset(out, 0, sizeof *out);
    if (walk(ctx, take_size, out, err) != 0) {
        ds_flip_sizes_free(out);
        return -1;
    }
    if (out->n > 0)
        qsort(out->size, out->n, sizeof *out->size, ds_ascending);
    return 0;
}

double ds_flip_size_at(const struct ds_flip_sizes *s, double q)
{
    if (s->n == 0)
        return 0;
    const size_t at = (size_t)(q * (double)s->n);
    return s->size[at < s->n ? at : s->n - 1];
}

/* Share of measured sizes that are at least m, and not nothing. */
static double share_from(const struct ds_flip_sizes *s, double m)
{
    size_t low = 0, high = s->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (s->size[middle] >= m && s->size[middle] > 0)
            high = middle;
        else
            low = middle + 1;
    }
    return s->n ? (double)(s->n - low) / (double)s->n : 0;
}

double ds_flip_probability(const struct ds_flip_sizes *s, const struct ds_step *ref, double drift)
{
    double stays = 1;
    for (int k = 1; k < DS_TOP && ref->ids[k] >= 0; k++) {
        const double gap = (double)ref->logits[0] - (double)ref->logits[k];
        stays *= 1 - 0.5 * (drift >= 0 ? (drift > 0 && drift >= gap) : share_from(s, gap));
    }
    return 1 - stays;
}

/* ---- what was seen --------------------------------------------------------------------------- */

static int take_seen(void *to, const struct ds_flip_pair *p, struct ds_error *err)
{
    struct ds_flips *out = to;
    (void)err;
    out->choices++;
    out->seen += p->own->token != p->ref->token;
    return 0;
}

static int count_pairs(ds_flip_walk walk, void *ctx, const struct ds_flip_sizes *sizes,
                       struct ds_flips *out, struct ds_error *err)
{
    memset(out, 0, sizeof *out);
    out->drift_median = ds_flip_size_at(sizes, 0.5);
    out->drift_most = ds_flip_size_at(sizes, 1);
    return walk(ctx, take_seen, out, err);
}

int ds_flips_count(ds_flip_walk walk, void *ctx, struct ds_flips *out, struct ds_error *err)
{
    struct ds_flip_sizes sizes;
    if (ds_flip_measure(walk, ctx, &sizes, err) != 0)
        return -1;
    const int rc = count_pairs(walk, ctx, &sizes, out, err);
    ds_flip_sizes_free(&sizes);
    return rc;
}

/* ---- the sum --------------------------------------------------------------------------------- */

struct sum {
    const struct ds_flip_sizes *sizes;
    double *by_prompt;
    uint8_t *used; /* prompts that have a pair */
    struct ds_flips *out;
};

static int take_pair(void *to, const struct ds_flip_pair *p, struct ds_error *err)
{
    struct sum *s = to;
    const double chance = ds_flip_probability(s->sizes, p->ref, ds_flip_drift(p));
    (void)err;
    s->out->expected += chance;
    s->by_prompt[p->prompt] += chance;
    s->used[p->prompt] = 1;
    return 0;
}

static double poisson(double mean, uint64_t *state)
{
    double n = 0;
    for (; mean > 0; mean -= 16) { /* sums of Poisson numbers are such; exp(-16) is a number yet */
        const double limit = exp(-(mean < 16 ? mean : 16));
        double product = 1;
        for (n--; product >= limit; n++)
            product *= (double)(ds_random_next(state) >> 11) * 0x1p-53;
    }
    return n;
}

/* 95 % of bootstrap samples: of the means of n prompts, drawn with replacement, the sum, and a Poisson number around it. */
static int interval(const double *means, size_t n, double *low, double *high, struct ds_error *err)
{
    uint64_t state = 1;
    double *sums = ds_calloc(SAMPLES, sizeof *sums, "samples", err);
    if (!sums)
        return -1;
    for (size_t i = 0; i < SAMPLES; i++) {
        double mean = 0;
        for (size_t p = 0; p < n; p++)
            mean += means[ds_random_next(&state) % n];
        sums[i] = poisson(mean, &state);
    }
    qsort(sums, SAMPLES, sizeof *sums, ds_ascending);
    *low = sums[SAMPLES / 40];
    *high = sums[SAMPLES - 1 - SAMPLES / 40];
    free(sums);
    return 0;
}

int ds_flips_make(ds_flip_walk walk, void *ctx, size_t n_prompts, struct ds_flips *out,
                  struct ds_error *err)
{
    struct ds_flip_sizes sizes = {0};
    struct sum s = {&sizes, ds_calloc(n_prompts, sizeof *s.by_prompt, "prompts", err),
                    ds_calloc(n_prompts, 1, "prompts", err), out};
    size_t n_used = 0;
    int rc = s.by_prompt && s.used ? ds_flip_measure(walk, ctx, &sizes, err) : -1;
    if (rc == 0)
        rc = count_pairs(walk, ctx, &sizes, out, err);
    if (rc == 0)
        rc = walk(ctx, take_pair, &s, err);
    for (size_t p = 0; rc == 0 && p < n_prompts; p++) /* the others are no prompts to draw */
        if (s.used[p])
            s.by_prompt[n_used++] = s.by_prompt[p];
    if (rc == 0 && n_used > 1) {
        out->bounded = 1;
        rc = interval(s.by_prompt, n_used, &out->low, &out->high, err);
    }
    ds_flip_sizes_free(&sizes);
    free(s.by_prompt);
    free(s.used);
    return rc;
}
