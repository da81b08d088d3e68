/* metrics.c: see metrics.h. Owns the figures of one group while observations come in; intervals are metrics_bootstrap.c's.
 * What is kept of an example does not grow with the number of its observations, but for one digest for each
 * different completion. */
#include "dumps/metrics_internal.h"

#include "base/hash.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- one observation ------------------------------------------------------------------------- */

double ds_step_probability(const struct ds_step *s, int32_t token)
{
    for (int k = 0; k < DS_TOP && s->ids[k] >= 0; k++)
        if (s->ids[k] == token)
            return exp((double)s->logits[k] - (double)s->logits[0]) / s->exp_sum;
    return NAN;
}

/* What the next step's context holds of this choice. */
static int32_t fed(const struct ds_step *s)
{
    return s->forced >= 0 ? s->forced : s->token;
}

static int completion_of(const struct ds_step *const *steps, size_t n, uint64_t *out,
                         struct ds_error *err)
{
    int32_t *tokens = ds_calloc(n, sizeof *tokens, "tokens", err);
    if (!tokens)
        return -1;
    for (size_t i = 0; i < n; i++)
        tokens[i] = steps[i]->token;
    *out = ds_hash(tokens, n * sizeof *tokens);
    free(tokens);
    return 0;
}

/* ---- examples -------------------------------------------------------------------------------- */

static int charge(struct ds_metrics *m, uint64_t bytes, struct ds_error *err)
{
    m->used += bytes;
    if (m->used <= m->most)
        return 0;
    ds_fail(err, "the prompts and steps of all groups together need more than %llu MiB",
            (unsigned long long)(m->most >> 20));
    return ds_hint(err, "groups that begin with the record are let go of record by record");
}

static struct metrics_group *find_group(struct ds_metrics *m, const char *name,
                                        struct ds_error *err)
{
    for (size_t i = m->n_groups; i-- > m->first_open;) /* the last one is the likeliest */
        if (strcmp(m->groups[i].name, name) == 0)
            return &m->groups[i];
    if (ds_grow(&m->groups, &m->cap_groups, m->n_groups + 1, sizeof *m->groups, "groups", err) != 0)
        return NULL;
    struct metrics_group *g = &m->groups[m->n_groups];
    memset(g, 0, sizeof *g);
    if (!(g->name = strdup(name))) {
        ds_fail(err, "out of memory for a group");
        return NULL;
    }
    m->n_groups++;
    return g;
}

static void begin_position(struct metrics_position *p, const struct ds_step *s)
{
    p->token = s->token;
    p->fed = fed(s);
    for (int k = 0; k < DS_TOP; k++) {
        p->ids[k] = s->ids[k];
        p->p[k] = p->low[k] = p->high[k] = ds_step_probability(s, s->ids[k]);
        p->known[k] = s->ids[k] >= 0 && p->p[k] >= 0;
        p->best[k] = k < METRICS_BEST;
    }
}

static struct metrics_example *find_example(struct ds_metrics *m, struct metrics_group *g,
                                            uint64_t id, const struct ds_step *const *steps,
                                            size_t n, struct ds_error *err)
{
    for (size_t i = 0; i < g->n_examples; i++)
        if (g->examples[i].id == id)
            return &g->examples[i];
    if (charge(m, sizeof *g->examples + n * sizeof(struct metrics_position), err) != 0 ||
        ds_grow(&g->examples, &g->cap_examples, g->n_examples + 1, sizeof *g->examples, "prompts",
                err) != 0)
        return NULL;
    struct metrics_example *e = &g->examples[g->n_examples];
    *e = (struct metrics_example){.id = id, .n = n, .shortest = n, .divides = SIZE_MAX};
    if (!(e->at = ds_calloc(n, sizeof *e->at, "steps", err)))
        return NULL;
    for (size_t i = 0; i < n; i++)
        begin_position(&e->at[i], steps[i]);
    g->n_examples++;
    return e;
}

static int keep_completion(struct ds_metrics *m, struct metrics_example *e, uint64_t completion,
                           struct ds_error *err)
{
    size_t low = 0, high = e->n_unique; /* ascending */
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (e->unique[middle] == completion)
            return 0;
        if (e->unique[middle] < completion)
            low = middle + 1;
        else
            high = middle;
    }
    if (charge(m, sizeof *e->unique, err) != 0 ||
        ds_grow(&e->unique, &e->cap_unique, e->n_unique + 1, sizeof *e->unique, "completions",
                err) != 0)
        return -1;
    memmove(e->unique + low + 1, e->unique + low, (e->n_unique++ - low) * sizeof *e->unique);
    e->unique[low] = completion;
    return 0;
}

/* Takes one step in. Returns the largest difference from the reference's probabilities; NaN: not known. */
static double take_position(struct metrics_position *p, const struct ds_step *s)
{
    const double chosen = ds_step_probability(s, s->token);
    double most = NAN;
    p->n++;
    const double off = chosen - p->mean;
    p->mean += off / (double)p->n;
    p->squares += off * (chosen - p->mean);
    for (int k = 0; k < DS_TOP; k++) {
        const double x = ds_step_probability(s, p->ids[k]);
        for (int i = 0; i < METRICS_BEST; i++)
            p->best[k] |= s->ids[i] == p->ids[k] && p->ids[k] >= 0;
        if (!(p->known[k] &= x >= 0))
            continue;
        p->low[k] = x < p->low[k] ? x : p->low[k];
        p->high[k] = x > p->high[k] ? x : p->high[k];
        if (p->best[k] && !(fabs(x - p->p[k]) <= most))
            most = fabs(x - p->p[k]);
    }
    return most;
}

/* Tokens among the best of either that one of both does not tell the probability of. */
static uint64_t count_left_out(const struct metrics_position *p, const struct ds_step *s)
{
    uint64_t n = 0;
    for (int k = 0; k < METRICS_BEST; k++) {
        int told = 0; /* the observation's k-th, by the reference */
        for (int i = 0; i < DS_TOP; i++)
            told |= p->ids[i] == s->ids[k] && p->p[i] >= 0;
        n += s->ids[k] >= 0 && ds_step_probability(s, s->ids[k]) >= 0 && !told;
        n += p->ids[k] >= 0 && p->p[k] >= 0 && !(ds_step_probability(s, p->ids[k]) >= 0);
    }
    return n;
}

static void take(struct metrics_example *e, const struct ds_step *const *steps, size_t n,
                 struct ds_metrics_row *row)
{
    double sum = 0;
    size_t known = 0;
    row->reference = e->n_observations == 0;
    row->div_index = -1;
    for (size_t i = 0; i < n && i < e->n; i++) {
        struct metrics_position *p = &e->at[i];
        const int other = steps[i]->token != p->token;
        if (row->div_index < 0) {
            const double most = take_position(p, steps[i]);
            const int told = ds_step_probability(steps[i], steps[i]->token) >= 0;
            e->no_probability += !told;
            e->left_out += told ? count_left_out(p, steps[i]) : 0;
            sum += most >= 0 ? most : 0;
            known += most >= 0;
        }
        row->decode_steps++;
        row->flips += (uint64_t)other;
        if (other && row->div_index < 0)
            row->div_index = (int32_t)i;
        if (fed(steps[i]) != p->fed)
            break; /* from here on the contexts are others */
    }
    row->prob_divergence = known ? sum / (double)known : (double)NAN;
    if (row->div_index >= 0 && (size_t)row->div_index < e->divides)
        e->divides = (size_t)row->div_index;
    e->shortest = n < e->shortest ? n : e->shortest;
    if (!row->reference) {
        e->flips += row->flips;
        e->decode_steps += row->decode_steps;
    }
    e->n_observations++;
    e->choices += n;
}

int ds_metrics_add(struct ds_metrics *m, const char *group, uint64_t example,
                   const struct ds_step *const *steps, size_t n, struct ds_metrics_row *row,
                   struct ds_error *err)
{
    struct ds_metrics_row own;
    row = row ? row : &own;
    memset(row, 0, sizeof *row);
    if (n == 0)
        return ds_fail(err, "an observation without a step");
    struct metrics_group *g = find_group(m, group, err);
    struct metrics_example *e = g ? find_example(m, g, example, steps, n, err) : NULL;
    if (!e || completion_of(steps, n, &row->completion, err) != 0 ||
        keep_completion(m, e, row->completion, err) != 0)
        return -1;
    take(e, steps, n, row);
    return 0;
}

/* ---- groups ---------------------------------------------------------------------------------- */

int ds_metrics_new(uint64_t seed, uint64_t most, struct ds_metrics **out, struct ds_error *err)
{
    if (!(*out = ds_calloc(1, sizeof **out, "metrics", err)))
        return -1;
    (*out)->seed = seed;
    (*out)->most = most;
    return 0;
}

static void let_go(struct metrics_group *g)
{
    for (size_t i = 0; i < g->n_examples; i++) {
        free(g->examples[i].at);
        free(g->examples[i].unique);
    }
    free(g->examples);
    g->examples = NULL;
    g->n_examples = g->cap_examples = 0;
}

int ds_metrics_settle(struct ds_metrics *m, struct ds_error *err)
{
    for (size_t i = m->first_open; i < m->n_groups; i++) {
        if (ds_metrics_conclude(&m->groups[i], m->seed, err) != 0)
            return -1;
        let_go(&m->groups[i]);
    }
    m->first_open = m->n_groups;
    m->used = 0;
    return 0;
}

void ds_metrics_free(struct ds_metrics *m)
{
    for (size_t i = 0; m && i < m->n_groups; i++) {
        let_go(&m->groups[i]);
        free(m->groups[i].name);
    }
    if (m)
        free(m->groups);
    free(m);
}

size_t ds_metrics_groups(const struct ds_metrics *m)
{
    return m->n_groups;
}

const char *ds_metrics_group(const struct ds_metrics *m, size_t i)
{
    return m->groups[i].name;
}

const struct ds_metrics_summary *ds_metrics_summary(const struct ds_metrics *m, size_t i)
{
    return &m->groups[i].summary;
}
