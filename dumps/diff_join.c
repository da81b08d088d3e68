/* diff_join.c: makes one source of two: sites by name, edges of both, and the trials of the arms that
 * diff_arms.c paired. Nothing that only one side has is dropped silently: it becomes an item. */
#include "dumps/diff_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int refuse(struct ds_diff *d, const char *what, const char *name, const char *a,
                  const char *b)
{
    snprintf(d->verdict.reason, sizeof d->verdict.reason, "%s %s: %s in A, %s in B", name, what, a,
             b);
    return 1;
}

/* ---- sites ----------------------------------------------------------------------------------- */

/* What follows the layers is the same place whatever their number. */
static void place_after(struct ds_site *s, int32_t n_layers, int32_t most)
{
    if (s->layer == n_layers)
        s->layer = most;
}

static int site_cmp(const struct ds_site *a, const struct ds_site *b)
{
    if (a->layer != b->layer)
        return a->layer < b->layer ? -1 : 1;
    int c = strcmp(a->stage, b->stage);
    return c ? c : strcmp(a->part, b->part);
}

struct site_ref {
    struct ds_site site;
    uint32_t index;
};

static int ref_cmp(const void *pa, const void *pb)
{
    const struct site_ref *a = pa, *b = pb;
    return site_cmp(&a->site, &b->site);
}

static void site_name(const struct ds_site *s, char *text, size_t size)
{
    ds_site_words(s, text, size);
}

/* Sites whose rows may have other widths and leave everything else comparable: what is recomputed beside a
 * kernel is as wide as its sweep has keys; the experts chosen for a row are as many as the model asks for.
 * Their rows are not compared, which is listed. */
static int may_be_wider(const struct ds_site *s)
{
    return ds_site_recomputed(s) || strcmp(s->stage, "router_ids") == 0;
}

static int check_common(struct ds_diff *d, const struct ds_site *a, const struct ds_site *b,
                        struct ds_error *err)
{
    char name[80], x[32], y[32];
    if (a->width == b->width || !a->width || !b->width)
        return 0;
    site_name(a, name, sizeof name);
    const int listed = may_be_wider(a);
    snprintf(x, sizeof x, "%s%u", listed ? "rows of " : "", a->width);
    snprintf(y, sizeof y, "%s%u", listed ? "rows of " : "", b->width);
    return listed ? diff_add(d, DS_DIFF_SITE, name, x, y, err)
                  : refuse(d, "has rows of other widths", name, x, y);
}

static int add_site(struct ds_diff *d, const struct ds_site *s, int32_t n_layers, int only,
                    struct ds_error *err)
{
    char name[80];
    struct ds_site *own = &d->header.sites[d->header.n_sites++];
    *own = *s;
    place_after(own, n_layers, d->header.n_layers);
    if (only < 0)
        return 0;
    d->site_only[d->header.n_sites - 1] = (uint8_t)(only + 1);
    site_name(own, name, sizeof name);
    return diff_add(d, DS_DIFF_SITE, name, only == 0 ? "recorded" : NULL,
                    only == 1 ? "recorded" : NULL, err);
}

/* Joins the site lists in execution order: A's order, with B's own sites put before the next common
 * one. map[side][index] = joined index. */
static int join_sites(struct ds_diff *d, const struct ds_header *a, const struct ds_header *b,
                      uint32_t *map[2], struct ds_error *err)
{
    struct site_ref *in_a = ds_calloc(a->n_sites, sizeof *in_a, "sites", err);
    uint32_t *partner = ds_calloc(b->n_sites, sizeof *partner, "sites", err); /* 1 + index in A */
    uint8_t *shared = ds_calloc(a->n_sites, 1, "sites", err);
    d->header.sites = ds_calloc(a->n_sites + b->n_sites, sizeof *d->header.sites, "sites", err);
    d->site_only = ds_calloc(a->n_sites + b->n_sites, 1, "sites", err);
    int rc = in_a && partner && shared && d->header.sites && d->site_only ? 0 : -1;
    size_t common = 0;
    for (size_t i = 0; rc == 0 && i < a->n_sites; i++) {
        in_a[i] = (struct site_ref){a->sites[i], (uint32_t)i};
        place_after(&in_a[i].site, a->n_layers, d->header.n_layers);
    }
    if (rc == 0 && a->n_sites)
        qsort(in_a, a->n_sites, sizeof *in_a, ref_cmp);
    for (size_t j = 0; rc == 0 && j < b->n_sites; j++) {
        struct site_ref want = {b->sites[j], 0};
        place_after(&want.site, b->n_layers, d->header.n_layers);
        struct site_ref *hit =
            a->n_sites ? bsearch(&want, in_a, a->n_sites, sizeof want, ref_cmp) : NULL;
        if (!hit || shared[hit->index])
            continue;
        shared[hit->index] = 1;
        partner[j] = hit->index + 1;
        common++;
        rc = check_common(d, &hit->site, &b->sites[j], err);
    }
    for (size_t i = 0, j = 0; rc == 0 && (i < a->n_sites || j < b->n_sites);) {
        if (j < b->n_sites && !partner[j]) {
            map[1][j] = (uint32_t)d->header.n_sites;
            rc = add_site(d, &b->sites[j++], b->n_layers, 1, err);
        } else if (i < a->n_sites) {
            map[0][i] = (uint32_t)d->header.n_sites;
            rc = add_site(d, &a->sites[i], a->n_layers, shared[i] ? -1 : 0, err);
            i++;
            if (j < b->n_sites && partner[j] == i)
                j++;
        } else {
            j++; /* a common site in another order: placed by A */
        }
    }
    for (size_t j = 0; rc == 0 && j < b->n_sites; j++)
        if (partner[j])
            map[1][j] = map[0][partner[j] - 1];
    if (rc == 0 && common == 0) {
        snprintf(d->verdict.reason, sizeof d->verdict.reason, "the records share no site");
        rc = 1;
    }
    free(in_a);
    free(partner);
    free(shared);
    return rc;
}

static int edge_cmp(const void *pa, const void *pb)
{
    const struct ds_edge *a = pa, *b = pb;
    if (a->to != b->to)
        return a->to < b->to ? -1 : 1;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    return (a->kind > b->kind) - (a->kind < b->kind);
}

static int join_edges(struct ds_diff *d, const struct ds_header *a, const struct ds_header *b,
                      uint32_t *map[2], struct ds_error *err)
{
    struct ds_edge *e = ds_calloc(a->n_edges + b->n_edges, sizeof *e, "edges", err);
    size_t n = 0, unique = 0;
    if (!e)
        return -1;
    for (int side = 0; side < 2; side++) {
        const struct ds_header *h = side ? b : a;
        for (size_t i = 0; i < h->n_edges; i++)
            if (h->edges[i].from < h->n_sites && h->edges[i].to < h->n_sites)
                e[n++] = (struct ds_edge){map[side][h->edges[i].from], map[side][h->edges[i].to],
                                          h->edges[i].kind};
    }
    if (n)
        qsort(e, n, sizeof *e, edge_cmp);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || edge_cmp(&e[i], &e[unique - 1]) != 0)
            e[unique++] = e[i];
    d->header.edges = e;
    d->header.n_edges = unique;
    return 0;
}

/* ---- trials ---------------------------------------------------------------------------------- */

/* Borrows everything but captures and non-finite rows, whose sites are renumbered. Sizes compare
 * arms of one record: left out. */
int diff_join_trial(struct ds_diff *d, const struct ds_source *s, size_t i, uint32_t arm,
                    const uint32_t *map, struct ds_error *err)
{
    uint64_t left;
    const struct ds_trial_data *from = s->get(s->ctx, i, err);
    if (!from)
        return -1;
    d->own_bytes +=
        from->n_captures * sizeof *from->captures + from->n_nonfinites * sizeof *from->nonfinites;
    if (diff_room(d, &left, err) != 0)
        return -1;
    struct ds_trial_data *t = &d->trials[d->n_trials];
    struct ds_capture *captures = ds_calloc(from->n_captures, sizeof *captures, "captures", err);
    struct ds_nonfinite *nonfinites =
        ds_calloc(from->n_nonfinites, sizeof *nonfinites, "non-finite rows", err);
    if (!captures || !nonfinites) {
        free(captures);
        free(nonfinites);
        return -1;
    }
    *t = *from;
    d->n_trials++;
    t->info.arm = arm;
    t->captures = captures;
    t->nonfinites = nonfinites;
    t->drifts = NULL;
    t->n_drifts = 0;
    t->packed = NULL; /* numbers of weights are each record's own: see diff_packed */
    t->n_packed = 0;
    t->blobs = NULL;
    t->n_blobs = 0;
    t->ranges = NULL; /* their sites have other numbers */
    t->n_ranges = 0;
    t->masks = NULL; /* as with sizes */
    t->n_masks = 0;
    t->mask_words = NULL;
    t->n_mask_words = 0;
    size_t sites = s->header->n_sites;
    for (size_t k = 0; k < from->n_captures; k++) {
        captures[k] = from->captures[k];
        if (captures[k].site >= sites)
            return ds_fail(err, "trial %zu: capture %zu names site %u of %zu", i, k,
                           captures[k].site, sites);
        captures[k].site = map[captures[k].site];
    }
    t->n_nonfinites = 0;
    for (size_t k = 0; k < from->n_nonfinites; k++)
        if (from->nonfinites[k].site < sites) {
            nonfinites[t->n_nonfinites] = from->nonfinites[k];
            nonfinites[t->n_nonfinites++].site = map[from->nonfinites[k].site];
        }
    return 0;
}

static int join_trials(struct ds_diff *d, const struct ds_source *s[2], uint32_t *joined[2],
                       uint32_t *map[2], struct ds_error *err)
{
    const size_t most = d->cap_trials = s[0]->n_trials + s[1]->n_trials;
    if (!(d->trials = ds_calloc(most, sizeof *d->trials, "trials", err)) ||
        !(d->histories = ds_calloc(most, sizeof *d->histories, "trials", err)))
        return -1;
    int rc = 0;
    for (int side = 0; rc == 0 && side < 2; side++) {
        struct ds_history *before;
        rc = diff_histories(s[side], &before, err);
        for (size_t i = 0; rc == 0 && i < s[side]->n_trials; i++) {
            const struct ds_trial *info = s[side]->info(s[side]->ctx, i);
            if (info->pass != DS_PASS_NATURAL || joined[side][info->arm] == UINT32_MAX)
                continue;
            d->histories[d->n_trials] = before[i];
            rc = diff_join_trial(d, s[side], i, joined[side][info->arm], map[side], err);
        }
        free(before);
    }
    return rc;
}

/* The formats in which the paired arms store the rows of a common site. Arms are paired by the factor
 * dtype, so the first pair speaks for all; what a site says of itself is the base arm's format. 1:
 * incomparable. */
static int check_formats(struct ds_diff *d, const struct ds_source *s[2], uint32_t *map[2],
                         struct ds_error *err)
{
    uint32_t *in_b = ds_calloc(d->header.n_sites, sizeof *in_b, "sites", err); /* 1 + own number */
    int rc = in_b ? 0 : -1;
    for (size_t j = 0; rc == 0 && j < s[1]->header->n_sites; j++)
        in_b[map[1][j]] = (uint32_t)j + 1;
    for (size_t i = 0; rc == 0 && i < s[0]->header->n_sites; i++) {
        const uint32_t j = in_b[map[0][i]];
        if (!j)
            continue;
        char name[80];
        const char *x = ds_site_dtype(s[0]->header, (uint32_t)i, d->arm_of[0]),
                   *y = ds_site_dtype(s[1]->header, j - 1, d->arm_of[1]);
        site_name(&d->header.sites[map[0][i]], name, sizeof name);
        if (strcmp(x, y) != 0)
            rc = refuse(d, "is stored in other formats", name, x, y);
    }
    free(in_b);
    return rc;
}

int diff_join(struct ds_diff *d, const struct ds_source *a, const struct ds_source *b,
              struct ds_error *err)
{
    const struct ds_source *s[2] = {a, b};
    uint32_t *map[2] = {ds_calloc(a->header->n_sites, sizeof(uint32_t), "sites", err),
                        ds_calloc(b->header->n_sites, sizeof(uint32_t), "sites", err)};
    if (strcmp(a->header->build, b->header->build) == 0)
        memcpy(d->header.build, a->header->build, sizeof d->header.build);
    d->header.n_layers =
        a->header->n_layers > b->header->n_layers ? a->header->n_layers : b->header->n_layers;
    int rc = map[0] && map[1] ? join_sites(d, a->header, b->header, map, err) : -1;
    rc = rc ? rc : join_edges(d, a->header, b->header, map, err);
    uint32_t *joined[2] = {NULL, NULL};
    rc = rc ? rc : diff_pair_arms(d, s, joined, err);
    rc = rc ? rc : check_formats(d, s, map, err);
    rc = rc ? rc : join_trials(d, s, joined, map, err);
    for (int side = 0; side < 2; side++) {
        d->site_map[side] = map[side];
        free(joined[side]);
    }
    d->header.n_heads = a->header->n_heads;
    d->header.n_kv_heads = a->header->n_kv_heads;
    d->header.head_dim = a->header->head_dim;
    /* A is the reference: what explains B (another base, another epsilon) is told against A's. */
    d->header.hparams = a->header->hparams;
    d->header.n_hparams = a->header->n_hparams;
    return rc;
}
