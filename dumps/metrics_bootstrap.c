/* metrics_bootstrap.c: a group's figures and their intervals, from its examples. Every figure is a sum over prompts over another sum
 * over prompts; a bootstrap sample draws as many prompts as there are, with replacement, and takes both sums anew. See
 * metrics.h. */
#include "dumps/metrics_internal.h"

#include "base/ascending.h"
#include "base/mem.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>

struct share { /* of one prompt */
    double over, under;
};

static int estimate(const struct share *s, size_t n, uint64_t seed, struct ds_metric *out,
                    struct ds_error *err)
{
    struct share all = {0};
    size_t some = 0, have = 0;
    *out = (struct ds_metric){0};
    for (size_t i = 0; i < n; i++) {
        all.over += s[i].over;
        all.under += s[i].under;
        some += s[i].under > 0;
    }
    if (!(all.under > 0))
        return 0;
    out->known = 1;
    out->value = all.over / all.under;
    if (some < 2)
        return 0;
    double *samples = ds_calloc(DS_METRICS_SAMPLES, sizeof *samples, "samples", err);
    if (!samples)
        return -1;
    for (size_t k = 0; k < DS_METRICS_SAMPLES; k++) {
        struct share drawn = {0};
        for (size_t i = 0; i < n; i++) {
            const struct share *x = &s[ds_random_next(&seed) % n];
            drawn.over += x->over;
            drawn.under += x->under;
        }
        if (drawn.under > 0) /* none of the prompts that have the figure was drawn: no sample */
            samples[have++] = drawn.over / drawn.under;
    }
    qsort(samples, have, sizeof *samples, ds_ascending);
    out->bounded = have > 0;
    out->low = have ? samples[have / 40] : 0;
    out->high = have ? samples[have - 1 - have / 40] : 0;
    free(samples);
    return 0;
}

/* ---- what each prompt gives ------------------------------------------------------------------ */

static struct share unique(const struct metrics_example *e)
{
    return (struct share){(double)e->n_unique, 1};
}

static struct share diverging(const struct metrics_example *e)
{
    return (struct share){e->divides != SIZE_MAX, 1};
}

static struct share div_index(const struct metrics_example *e)
{
    return e->divides == SIZE_MAX ? (struct share){0, 0} : (struct share){(double)e->divides, 1};
}

static struct share std_top1(const struct metrics_example *e)
{
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < e->n && i < e->shortest && i < e->divides; i++) {
        const struct metrics_position *p = &e->at[i];
        if (p->n < 2 || !(p->squares >= 0))
            continue;
        sum += sqrt(p->squares / (double)(p->n - 1));
        n++;
    }
    return n ? (struct share){sum / (double)n, 1} : (struct share){0, 0};
}

static struct share flips(const struct metrics_example *e)
{
    return (struct share){(double)e->flips, (double)e->decode_steps};
}

static struct share prob_divergence(const struct metrics_example *e)
{
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < e->n && i < e->shortest && (i <= e->divides); i++) {
        const struct metrics_position *p = &e->at[i];
        double most = -1;
        for (int k = 0; k < DS_TOP; k++)
            if (p->known[k] && p->best[k] && p->high[k] - p->low[k] > most)
                most = p->high[k] - p->low[k];
        if (p->n < 2 || !(most >= 0))
            continue;
        sum += most;
        n++;
    }
    return n ? (struct share){sum / (double)n, 1} : (struct share){0, 0};
}

int ds_metrics_conclude(struct metrics_group *g, uint64_t seed, struct ds_error *err)
{
    struct ds_metrics_summary *s = &g->summary;
    const struct {
        struct share (*of)(const struct metrics_example *);
        struct ds_metric *to;
    } figures[] = {{unique, &s->unique_completions},   {diverging, &s->diverging_share},
                   {div_index, &s->div_index},         {std_top1, &s->avg_std_top1_prob},
                   {flips, &s->flips_per_decode_step}, {prob_divergence, &s->max_prob_divergence}};
    struct share *shares = ds_calloc(g->n_examples, sizeof *shares, "prompts", err);
    int rc = shares ? 0 : -1;
    for (size_t i = 0; i < g->n_examples; i++) {
        const struct metrics_example *e = &g->examples[i];
        s->prompts++;
        s->observations += e->n_observations;
        s->choices += e->choices;
        s->no_probability += e->no_probability;
        s->left_out += e->left_out;
        s->unique += e->n_unique;
        s->diverging += e->divides != SIZE_MAX;
        s->flips += e->flips;
        s->decode_steps += e->decode_steps;
    }
    for (size_t f = 0; rc == 0 && f < sizeof figures / sizeof *figures; f++) {
        for (size_t i = 0; i < g->n_examples; i++)
            shares[i] = figures[f].of(&g->examples[i]);
        rc = estimate(shares, g->n_examples, seed, figures[f].to, err);
    }
    free(shares);
    return rc;
}
