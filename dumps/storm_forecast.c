/* storm_forecast.c: how many requests should part from their reference, given the margins of its choices and
 * how far its logits moved in each request. Pure.
 *
 * A choice with margin m turns over where the drift is at least m against it. How large the drift was is
 * measured for each request and choice; its direction is taken to be as likely either way, so that a choice
 * which was moved by m or more turns over with probability one half; the same for the third best token, and
 * so on. Where the size is not known, it is one of those that are. Expected partings are the sum over all open
 * choices. The interval: prompts are drawn anew with replacement, and around each sum a Poisson number, since
 * a few rare events scatter even when their probabilities are known. */
#include "dumps/storm_internal.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

enum { SAMPLES = 2000 };

struct forecast {
    struct storm_work *w;
    double *sizes; /* |drift| of open choices, ascending */
    size_t n, cap;
    double *by_prompt; /* expected partings */
};

static int ascending(const void *pa, const void *pb)
{
    const double a = *(const double *)pa, b = *(const double *)pb;
    return a < b ? -1 : a > b;
}

/* Open choices of a request: up to and with the one at which it parts. */
static size_t open_choices(const struct storm_work *w, size_t r)
{
    const struct ds_storm_request *q = &w->s->requests[r];
    if (q->reference < 0 || q->reference == (int32_t)r)
        return 0;
    const size_t own = w->begin[r + 1] - w->begin[r],
                 ref = w->begin[q->reference + 1] - w->begin[q->reference],
                 both = own < ref ? own : ref;
    return q->parted >= 0 ? (size_t)q->parted + 1 : both;
}

static const struct ds_step *reference_step(const struct storm_work *w, size_t r, size_t k)
{
    return w->steps[w->begin[w->s->requests[r].reference] + k];
}

/* |drift| of the reference's two best logits; NaN: not known. */
static double moved(const struct storm_work *w, size_t r, size_t k)
{
    const struct ds_step *ref = reference_step(w, r, k), *own = w->steps[w->begin[r] + k];
    return own->digest == ref->digest ? 0.0
                                      : fabs(ds_storm_moved(ref, own, ref->ids[0], ref->ids[1]));
}

static int measure(struct forecast *f, struct ds_error *err)
{
    const struct storm_work *w = f->w;
    for (size_t r = 0; r < w->s->n_requests; r++)
        for (size_t k = 0; k < open_choices(w, r); k++) {
            const double d = moved(w, r, k);
            w->s->forecast.choices++;
            if (!(d >= 0))
                continue;
            if (ds_grow(&f->sizes, &f->cap, f->n + 1, sizeof *f->sizes, "drifts", err) != 0)
                return -1;
            f->sizes[f->n++] = d;
        }
    if (f->n > 0)
        qsort(f->sizes, f->n, sizeof *f->sizes, ascending);
    return 0;
}

/* Share of measured sizes that are at least m, and not nothing. */
static double share_from(const struct forecast *f, double m)
{
    size_t low = 0, high = f->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (f->sizes[middle] >= m && f->sizes[middle] > 0)
            high = middle;
        else
            low = middle + 1;
    }
    return f->n ? (double)(f->n - low) / (double)f->n : 0;
}

/* That a choice turns over to any of the tokens that were recorded beside the best one. */
static double turns_over(const struct forecast *f, const struct ds_step *ref, double d)
{
    double stays = 1;
    for (int k = 1; k < DS_TOP && ref->ids[k] >= 0; k++) {
        const double gap = (double)ref->logits[0] - (double)ref->logits[k];
        stays *= 1 - 0.5 * (d >= 0 ? (d > 0 && d >= gap) : share_from(f, gap));
    }
    return 1 - stays;
}

static void expect(struct forecast *f)
{
    const struct storm_work *w = f->w;
    for (size_t r = 0; r < w->s->n_requests; r++)
        for (size_t k = 0; k < open_choices(w, r); k++) {
            const double p = turns_over(f, reference_step(w, r, k), moved(w, r, k));
            f->by_prompt[w->s->requests[r].prompt] += p;
            w->s->forecast.expected += p;
        }
}

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double poisson(double mean, uint64_t *state)
{
    double n = 0;
    for (; mean > 0; mean -= 16) { /* sums of Poisson numbers are such; exp(-16) is a number yet */
        const double limit = exp(-(mean < 16 ? mean : 16));
        double product = 1;
        for (n--; product >= limit; n++)
            product *= (double)(next_random(state) >> 11) * 0x1p-53;
    }
    return n;
}

static int bootstrap(struct forecast *f, struct ds_error *err)
{
    const size_t n_prompts =
        f->w->h->n_prompts < f->w->s->n_requests ? f->w->h->n_prompts : f->w->s->n_requests;
    struct ds_storm_forecast *out = &f->w->s->forecast;
    uint64_t state = 1;
    if (f->w->s->n_prompts < 2)
        return 0;
    double *sums = ds_calloc(SAMPLES, sizeof *sums, "samples", err);
    if (!sums)
        return -1;
    for (size_t i = 0; i < SAMPLES; i++) {
        double mean = 0;
        for (size_t p = 0; p < n_prompts; p++)
            mean += f->by_prompt[next_random(&state) % n_prompts];
        sums[i] = poisson(mean, &state);
    }
    qsort(sums, SAMPLES, sizeof *sums, ascending);
    out->low = sums[SAMPLES / 40];
    out->high = sums[SAMPLES - 1 - SAMPLES / 40];
    out->bounded = 1;
    free(sums);
    return 0;
}

int ds_storm_forecast(struct storm_work *w, struct ds_error *err)
{
    struct forecast f = {.w = w};
    f.by_prompt = ds_calloc(w->h->n_prompts, sizeof *f.by_prompt, "prompts", err);
    int rc = f.by_prompt ? measure(&f, err) : -1;
    if (rc == 0) {
        expect(&f);
        w->s->forecast.drift_median = f.n ? f.sizes[f.n / 2] : 0;
        w->s->forecast.drift_most = f.n ? f.sizes[f.n - 1] : 0;
        rc = bootstrap(&f, err);
    }
    free(f.sizes);
    free(f.by_prompt);
    return rc;
}
