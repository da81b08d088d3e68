/* verdict_index.c: numbers for what a record names: inputs of a site, places, stages, values of factors. Built
 * once, before any trial is looked at. */
#include "dumps/verdict_internal.h"

#include <stdlib.h>
#include <string.h>

/* Edges by target; an edge that does not lead forward says nothing about one pass and is left out.
 */
int index_edges(struct ds_analysis *a, struct ds_error *err)
{
    const struct ds_header *h = a->h;
    if (!(a->in_start = ds_calloc(a->n_sites + 1, sizeof *a->in_start, "edge index", err)) ||
        !(a->in_from = ds_calloc(h->n_edges, sizeof *a->in_from, "edge index", err)) ||
        !(a->in_kind = ds_calloc(h->n_edges, 1, "edge index", err)) ||
        !(a->feeds_causal = ds_calloc(a->n_sites, 1, "edge index", err)) ||
        !(a->feeds_all = ds_calloc(a->n_sites, 1, "edge index", err)))
        return -1;
    for (size_t i = 0; i < h->n_edges; i++)
        if (h->edges[i].from < h->edges[i].to && h->edges[i].to < a->n_sites)
            a->in_start[h->edges[i].to + 1]++;
    for (size_t s = 0; s < a->n_sites; s++)
        a->in_start[s + 1] += a->in_start[s];
    uint32_t *next = ds_calloc(a->n_sites, sizeof *next, "edge index", err);
    if (!next)
        return -1;
    for (size_t i = 0; i < h->n_edges; i++) {
        const struct ds_edge *e = &h->edges[i];
        if (e->from >= e->to || e->to >= a->n_sites)
            continue;
        uint32_t at = a->in_start[e->to] + next[e->to]++;
        a->in_from[at] = e->from;
        a->in_kind[at] = (uint8_t)e->kind;
        if (e->kind == DS_EDGE_CAUSAL)
            a->feeds_causal[e->from] = 1;
        else if (e->kind != DS_EDGE_ROW)
            a->feeds_all[e->from] = 1;
    }
    free(next);
    return 0;
}

static int place_cmp(const void *pa, const void *pb)
{
    const struct ds_site *const *a = pa, *const *b = pb;
    return (*a)->layer != (*b)->layer ? ((*a)->layer > (*b)->layer) - ((*a)->layer < (*b)->layer)
                                      : strcmp((*a)->stage, (*b)->stage);
}

/* Numbers the places: layer and stage, whatever the part. */
int index_places(struct ds_analysis *a, struct ds_error *err)
{
    const struct ds_site **sorted = ds_calloc(a->n_sites, sizeof *sorted, "places", err);
    uint32_t place = 0;
    if (!sorted || !(a->place_of = ds_calloc(a->n_sites, sizeof *a->place_of, "places", err))) {
        free(sorted);
        return -1;
    }
    for (size_t s = 0; s < a->n_sites; s++)
        sorted[s] = &a->h->sites[s];
    if (a->n_sites)
        qsort(sorted, a->n_sites, sizeof *sorted, place_cmp);
    for (size_t i = 0; i < a->n_sites; i++) {
        place += i && place_cmp(&sorted[i - 1], &sorted[i]) != 0;
        a->place_of[sorted[i] - a->h->sites] = place;
    }
    free(sorted);
    return 0;
}

/* Numbers the stages (with part). */
int index_stages(struct ds_analysis *a, struct ds_error *err)
{
    uint32_t *first = NULL; /* a site of each stage */
    size_t cap = 0;
    if (!(a->stage_of = ds_calloc(a->n_sites, sizeof *a->stage_of, "stages", err)))
        return -1;
    for (size_t s = 0; s < a->n_sites; s++) {
        const struct ds_site *x = &a->h->sites[s];
        size_t k = 0;
        while (k < a->n_stages && (strcmp(a->h->sites[first[k]].stage, x->stage) != 0 ||
                                   strcmp(a->h->sites[first[k]].part, x->part) != 0))
            k++;
        if (k == a->n_stages) {
            if (k >= 4096 || ds_grow(&first, &cap, k + 1, sizeof *first, "stages", err) != 0) {
                free(first);
                return k >= 4096 ? ds_fail(err, "record: more than 4096 stages") : -1;
            }
            first[a->n_stages++] = (uint32_t)s;
        }
        a->stage_of[s] = (uint32_t)k;
    }
    free(first);
    return 0;
}

/* Numbers the values of every factor in order of first appearance. */
int index_values(struct ds_analysis *a, struct ds_error *err)
{
    const struct ds_header *h = a->h;
    size_t pairs;
    if (__builtin_mul_overflow(h->n_arms, h->n_factors, &pairs))
        return ds_fail(err, "record: %zu arms times %zu factors do not fit in memory", h->n_arms,
                       h->n_factors);
    if (!(a->value = ds_calloc(pairs, sizeof *a->value, "factor values", err)) ||
        !(a->values = ds_calloc(h->n_factors, sizeof *a->values, "factor values", err)) ||
        !(a->n_values = ds_calloc(h->n_factors, sizeof *a->n_values, "factor values", err)))
        return -1;
    for (size_t f = 0; f < h->n_factors; f++) {
        size_t cap = 0;
        for (size_t i = 0; i < h->n_arms; i++) {
            const char *text = h->arms[i].values[f];
            uint32_t k = 0;
            while (k < a->n_values[f] && strcmp(a->values[f][k], text) != 0)
                k++;
            if (k == a->n_values[f]) {
                if (ds_grow(&a->values[f], &cap, k + 1, sizeof **a->values, "factor values", err) !=
                    0)
                    return -1;
                a->values[f][a->n_values[f]++] = text;
            }
            a->value[i * h->n_factors + f] = k;
        }
    }
    return 0;
}
