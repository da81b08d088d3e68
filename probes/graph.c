/* graph.c: which sites a site reads. Owns the walk through sites that are not looked at: with only
 * resid_ffn digested, the input of a layer's resid_ffn is the resid_ffn before it. Knows no rows
 * and no bytes. */
#include "probes/probe_internal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Edges sorted by the site they lead to. */
struct edge_table {
    uint32_t *first; /* [sites + 1] */
    struct probe_input *in;
};

struct walk {
    uint8_t *widest; /* [sites] 0, or 1 + the widest kind by which the site is reached */
    uint32_t *open;  /* sites still to be looked through */
    size_t n_open, open_cap;
    struct probe_input *found;
    size_t n_found, found_cap;
};

static int sort_edges(const struct ds_probe_config *c, struct edge_table *e, struct ds_error *err)
{
    e->first = ds_calloc((size_t)c->n_sites + 2, sizeof *e->first, "edges", err);
    e->in = e->first ? ds_calloc(c->n_edges, sizeof *e->in, "edges", err) : NULL;
    if (!e->in)
        return -1;
    for (uint32_t i = 0; i < c->n_edges; i++) {
        const struct ds_edge *edge = &c->edges[i];
        if (edge->from >= c->n_sites || edge->to >= c->n_sites || edge->kind > DS_EDGE_ALL)
            return ds_fail(err, "probe: edge %u (%u to %u, kind %u) is not between the %u sites", i,
                           edge->from, edge->to, edge->kind, c->n_sites);
        e->first[edge->to + 2]++;
    }
    for (uint32_t s = 0; s < c->n_sites; s++)
        e->first[s + 2] += e->first[s + 1];
    for (uint32_t i = 0; i < c->n_edges; i++) {
        struct probe_input *in = &e->in[e->first[c->edges[i].to + 1]++];
        in->from = c->edges[i].from;
        in->kind = c->edges[i].kind;
    }
    return 0;
}

/* Marks everything `site` reads, itself reached by `kind`. Kinds are ordered: row, causal, all; a
 * path has the widest. */
static int step_back(const struct ds_probe *p, const struct edge_table *e, struct walk *w,
                     uint32_t site, uint32_t kind, struct ds_error *err)
{
    for (uint32_t k = e->first[site]; k < e->first[site + 1]; k++) {
        uint32_t from = e->in[k].from, wide = e->in[k].kind > kind ? e->in[k].kind : kind;
        if (w->widest[from] > wide)
            continue;
        w->widest[from] = (uint8_t)(wide + 1);
        if (p->site[from].on)
            continue;
        if (ds_grow(&w->open, &w->open_cap, w->n_open + 1, sizeof *w->open, "graph walk", err))
            return -1;
        w->open[w->n_open++] = from;
    }
    return 0;
}

/* Width of the widest input; behind a sum of ranks that of what the ranks read. */
static uint32_t widest_input(const struct ds_probe *p, const struct edge_table *e, uint32_t site)
{
    uint32_t widest = 0;
    for (uint32_t k = e->first[site]; k < e->first[site + 1]; k++) {
        uint32_t from = e->in[k].from, width = p->c.sites[from].width;
        if (strcmp(p->c.sites[from].op, "allreduce") == 0 && from < site &&
            e->first[from] < e->first[from + 1] && e->in[e->first[from]].from < from)
            width = widest_input(p, e, e->in[e->first[from]].from);
        widest = width > widest ? width : widest;
    }
    return widest;
}

/* Attention: a score adds the products of one head, which is not wider than what is cached. */
static uint32_t narrowest_input(const struct ds_probe *p, const struct edge_table *e, uint32_t site)
{
    uint32_t narrowest = 0;
    for (uint32_t k = e->first[site]; k < e->first[site + 1]; k++) {
        const struct ds_site *from = &p->c.sites[e->in[k].from];
        if (strcmp(from->dtype, "i32") != 0 && from->width &&
            (!narrowest || from->width < narrowest))
            narrowest = from->width;
    }
    return narrowest;
}

static uint32_t count_terms(const struct ds_probe *p, const struct edge_table *e, uint32_t site)
{
    const char *op = p->c.sites[site].op;
    if (strcmp(op, "allreduce") == 0)
        return e->first[site + 1] - e->first[site];
    if (strcmp(op, "matmul") == 0 || strcmp(op, "rmsnorm") == 0 || strcmp(op, "router") == 0)
        return widest_input(p, e, site);
    return strcmp(op, "attention") == 0 ? narrowest_input(p, e, site) : 0;
}

/* The site whose rows this one copies. Only a direct input: what stands before a site that is not looked
 * at is another thing. */
static uint32_t copied_site(const struct ds_probe *p, const struct edge_table *e, uint32_t site)
{
    for (uint32_t k = e->first[site]; k < e->first[site + 1]; k++) {
        uint32_t from = e->in[k].from;
        if (from < site && p->site[from].held &&
            ds_site_copies(&p->c.sites[from], &p->c.sites[site], e->in[k].kind))
            return from;
    }
    return NO_SITE;
}

static int collect(struct ds_probe *p, const struct edge_table *e, struct walk *w, uint32_t site,
                   struct ds_error *err)
{
    memset(w->widest, 0, p->c.n_sites);
    if (step_back(p, e, w, site, DS_EDGE_ROW, err))
        return -1;
    while (w->n_open) {
        uint32_t next = w->open[--w->n_open];
        if (step_back(p, e, w, next, w->widest[next] - 1u, err))
            return -1;
    }
    struct probe_links *s = &p->links[site];
    s->first_input = (uint32_t)w->n_found;
    s->copies = copied_site(p, e, site);
    s->terms = count_terms(p, e, site);
    for (uint32_t from = 0; from < p->c.n_sites; from++) {
        if (!w->widest[from] || !p->site[from].on || from == site)
            continue;
        if (ds_grow(&w->found, &w->found_cap, w->n_found + 1, sizeof *w->found, "inputs of sites",
                    err))
            return -1;
        w->found[w->n_found++] = (struct probe_input){from, w->widest[from] - 1u};
        struct probe_site *source = &p->site[from];
        source->has_readers = 1;
        source->causal_source |= w->widest[from] - 1u == DS_EDGE_CAUSAL;
        if (site > p->links[from].last_reader)
            p->links[from].last_reader = site;
    }
    s->n_inputs = (uint32_t)w->n_found - s->first_input;
    return 0;
}

int probe_graph(struct ds_probe *p, struct ds_error *err)
{
    struct edge_table e = {NULL, NULL};
    struct walk w = {0};
    int rc = sort_edges(&p->c, &e, err);
    if (!rc && !(w.widest = ds_calloc(p->c.n_sites, 1, "graph walk", err)))
        rc = -1;
    for (uint32_t s = 0; s < p->c.n_sites && !rc; s++)
        if (p->site[s].on)
            rc = collect(p, &e, &w, s, err);
    free(e.first);
    free(e.in);
    free(w.widest);
    free(w.open);
    p->inputs = w.found; /* freed with the probe, also after a failure */
    return rc;
}
