/* verdict_union.c: arms that do not have the same sites. Which sites an arm has, the shares of ranks,
 * and what stands for a copy that an arm does not make. Must not know what a comparison is. */
#include "dumps/verdict_internal.h"

#include <string.h>
#include <xxhash.h>

static int is_rank(const struct ds_site *s)
{
    return s->part[0] == 'r' && s->part[1] >= '0' && s->part[1] <= '9';
}

/* Counts the ranks among neighbours of one stage and layer: a share of two is another thing than a
 * share of four, whatever its name, and so is what adds them. */
void count_shares(const struct ds_analysis *a, struct arm_table *t)
{
    for (size_t i = 0, j; i < a->n_sites; i = j) {
        const struct ds_site *x = &a->h->sites[i];
        uint16_t n = 0;
        for (j = i; j == i || (is_rank(x) && j < a->n_sites && is_rank(&a->h->sites[j]) &&
                               a->h->sites[j].layer == x->layer &&
                               strcmp(a->h->sites[j].stage, x->stage) == 0);
             j++)
            n = (uint16_t)(n + (t->has[j] != HAS_NOT));
        for (size_t k = i; k < j && is_rank(x); k++)
            t->shares[k] = n;
    }
    for (size_t e = 0; e < a->h->n_edges; e++) {
        const struct ds_edge *x = &a->h->edges[e];
        if (x->from < x->to && x->to < a->n_sites && is_rank(&a->h->sites[x->from]) &&
            !is_rank(&a->h->sites[x->to]))
            t->shares[x->to] = t->shares[x->from];
    }
}

/* The site whose rows a copy copies, NONE if it has no such input. */
static uint32_t copied_site(const struct ds_analysis *a, size_t site)
{
    for (uint32_t e = a->in_start[site]; e < a->in_start[site + 1]; e++)
        if (ds_site_copies(&a->h->sites[a->in_from[e]], &a->h->sites[site], a->in_kind[e]))
            return a->in_from[e];
    return NONE;
}

static int stand_in(struct ds_analysis *a, struct arm_table *t, size_t site, size_t from,
                    struct ds_error *err)
{
    static const struct ds_launch none = {.op = "transfer", .variant = "none"};
    const size_t to = site * a->n_rows, n = a->n_rows;
    uint16_t kernel;
    from *= n;
    if (kernel_index(a, &none, &kernel, err) != 0)
        return -1;
    memcpy(t->digest + to, t->digest + from, n * sizeof *t->digest);
    memcpy(t->capture + to, t->capture + from, n * sizeof *t->capture);
    memcpy(t->state + to, t->state + from, n);
    if (t->near)
        memcpy(t->near + to, t->near + from, n);
    if (t->odd)
        memcpy(t->odd + to, t->odd + from, n * sizeof *t->odd);
    for (size_t i = 0; i < n; i++)
        t->kernel[to + i] = kernel;
    t->has[site] = HAS_STAND_IN;
    return 0;
}

/* ---- what nobody looked for ------------------------------------------------------------------- */

static const char kept[] = "-kept";
enum {
    MOST_APART = 64
}; /* sites between a write and the count of what it spoilt: they are neighbours */

/* The site of the write whose harm this one counts; NONE if it is not such a count. */
static uint32_t counted_write(const struct ds_analysis *a, size_t site)
{
    const struct ds_site *s = &a->h->sites[site];
    size_t n = strlen(s->part), tail = sizeof kept - 1;
    if (strcmp(s->dtype, "i32") != 0 || n <= tail || strcmp(s->part + n - tail, kept) != 0)
        return NONE;
    const size_t near = site < MOST_APART ? 0 : site - MOST_APART;
    for (size_t i = site; i-- > near && a->h->sites[i].layer == s->layer;)
        if (strcmp(a->h->sites[i].stage, s->stage) == 0 &&
            strlen(a->h->sites[i].part) == n - tail &&
            strncmp(a->h->sites[i].part, s->part, n - tail) == 0)
            return (uint32_t)i;
    return NONE;
}

/* Rows that a write spoilt besides its own are counted only where its kernel is a stranger. Where they
 * are not, there were none. */
static void stand_for_none(struct ds_analysis *a, struct arm_table *t, size_t site, size_t write)
{
    const int32_t none = 0;
    const uint64_t digest = XXH3_64bits(&none, sizeof none);
    const size_t n = a->n_rows;
    for (size_t i = 0; i < n; i++) {
        if (t->state[write * n + i] == CELL_ABSENT)
            continue;
        t->digest[site * n + i] = digest;
        t->capture[site * n + i] = t->capture[write * n + i];
        t->kernel[site * n + i] = t->kernel[write * n + i];
        t->state[site * n + i] = CELL_STABLE;
        t->has[site] = HAS_STAND_IN;
    }
}

int fill_copies(struct ds_analysis *a, struct ds_error *err)
{
    if (!(a->shown = ds_calloc(a->n_sites, 1, "sites", err)))
        return -1;
    for (size_t i = 0; i < a->h->n_arms; i++)
        for (size_t s = 0; a->arms[i].n_trials && s < a->n_sites; s++)
            a->shown[s] |= a->arms[i].has[s];
    for (size_t i = 0; i < a->h->n_arms; i++)
        for (size_t s = 0; a->arms[i].n_trials && s < a->n_sites; s++) {
            struct arm_table *t = &a->arms[i];
            const uint32_t from = !a->shown[s] || t->has[s] ? NONE : copied_site(a, s);
            const uint32_t write = !a->shown[s] || t->has[s] ? NONE : counted_write(a, s);
            if (write != NONE && t->has[write])
                stand_for_none(a, t, s, write);
            if (from != NONE && t->has[from] && stand_in(a, t, s, from, err) != 0)
                return -1;
        }
    return 0;
}

uint32_t ranks_of(const struct ds_analysis *a, const struct ds_finding *f)
{
    const struct arm_table *t = &a->arms[f->arm], *r = &a->arms[f->ref_arm];
    uint32_t n = 0;
    for (uint32_t e = a->in_start[f->site]; e < a->in_start[f->site + 1]; e++) {
        const size_t from = a->in_from[e];
        if (t->shares[from] == r->shares[from] && !is_rank(&a->h->sites[from]))
            continue;
        n = t->shares[from] > n ? t->shares[from] : n;
        n = r->shares[from] > n ? r->shares[from] : n;
    }
    return n;
}
