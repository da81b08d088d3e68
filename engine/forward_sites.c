/* forward_sites.c: the sites of a model and the edges between them, unrolled from the table of
 * stages. Owns nothing else; must not know buffers, kernels' code or calls.
 *
 * A stage whose rows are also shown before rounding has two sites: one of part "unrounded", always
 * f32, which has the stage's inputs, and its own, which has that one as its only input: rounding
 * adds no difference. Who reads the stage may have read either, so both are its inputs. */
#include "engine/forward.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "engine/stages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char unrounded_part[] = "unrounded";

/* What is unrolled. */
struct unroll {
    const struct ds_hparams *hp;
    int dtype;
    uint32_t unrounded; /* stages with two sites */
    struct ds_site *sites;
    struct ds_edge *edges; /* NULL while they are counted */
    uint32_t n_edges;
};

static int is_unrounded(const struct unroll *u, int stage)
{
    return u->unrounded >> stage & 1;
}

static uint32_t site_number(const struct unroll *u, int stage, int32_t layer)
{
    return ds_stage_site(stage, layer, u->hp->n_layers, u->unrounded);
}

static void fill_site(struct ds_site *site, int stage, int32_t layer, const struct ds_hparams *hp,
                      int dtype)
{
    const struct ds_stage_info *s = ds_stage(stage);
    int stored = s->store == DS_STORE_I32 ? DS_I32 : s->store == DS_STORE_F32 ? DS_F32 : dtype;
    site->layer = layer;
    snprintf(site->stage, sizeof site->stage, "%s", s->name);
    snprintf(site->part, sizeof site->part, "%s", s->part);
    snprintf(site->op, sizeof site->op, "%s", ds_stage_op_name(stage));
    snprintf(site->dtype, sizeof site->dtype, "%s", ds_dtype_name(stored));
    site->width = (uint32_t)ds_stage_width_of(stage, hp);
}

static void add_edge(struct unroll *u, uint32_t from, uint32_t to, uint8_t kind)
{
    if (u->edges)
        u->edges[u->n_edges] = (struct ds_edge){.from = from, .to = to, .kind = kind};
    u->n_edges++;
}

/* Edges from both sites of an input. For stages after the layers `layer` is n_layers, whose incoming
 * residual is the last layer's output. */
static void add_input(struct unroll *u, int stage, int32_t layer, uint32_t to, uint8_t kind)
{
    if (stage == DS_ST_RESID_IN) {
        stage = layer == 0 ? DS_ST_EMBED : DS_ST_RESID_FFN;
        layer--;
    }
    uint32_t from = site_number(u, stage, layer);
    if (is_unrounded(u, stage))
        add_edge(u, from - 1, to, kind);
    add_edge(u, from, to, kind);
}

/* Adds stages begin..end-1 of one layer. */
static void add_stages(struct unroll *u, int begin, int end, int32_t layer)
{
    for (int s = begin; s < end; s++) {
        const struct ds_stage_info *info = ds_stage(s);
        uint32_t own = site_number(u, s, layer), made = own;
        if (u->sites)
            fill_site(&u->sites[own], s, layer, u->hp, u->dtype);
        if (is_unrounded(u, s)) {
            made = own - 1;
            add_edge(u, made, own, DS_EDGE_ROW);
            if (u->sites) {
                fill_site(&u->sites[made], s, layer, u->hp, DS_F32);
                snprintf(u->sites[made].part, sizeof u->sites[made].part, "%s", unrounded_part);
            }
        }
        for (int i = 0; i < info->n_inputs; i++)
            add_input(u, info->inputs[i].stage, layer, made, info->inputs[i].kind);
    }
}

static void add_all(struct unroll *u)
{
    add_stages(u, 0, DS_ST_FIRST_OF_LAYER, -1);
    for (int32_t l = 0; l < u->hp->n_layers; l++)
        add_stages(u, DS_ST_FIRST_OF_LAYER, DS_ST_FIRST_AFTER, l);
    add_stages(u, DS_ST_FIRST_AFTER, DS_ST_COUNT, u->hp->n_layers);
}

uint32_t ds_forward_unrounded(const struct ds_kernel_set *kernels)
{
    uint32_t ops = 0;
    for (int op = 0; op < DS_OP_COUNT; op++)
        if (kernels->op[op] && kernels->op[op]->features & DS_FEATURE_UNROUNDED)
            ops |= 1u << op;
    return ds_stages_read_by(ops);
}

uint32_t ds_forward_unrounded_of(const struct ds_site *sites, size_t n)
{
    uint32_t stages = 0;
    for (size_t i = 0; i < n; i++)
        for (int s = 0; s < DS_ST_COUNT && strcmp(sites[i].part, unrounded_part) == 0; s++)
            if (strcmp(sites[i].stage, ds_stage(s)->name) == 0)
                stages |= 1u << s;
    return stages;
}

int ds_forward_sites_with(const struct ds_model *m, int dtype, uint32_t unrounded,
                          struct ds_site **sites, uint32_t *n_sites, struct ds_edge **edges,
                          uint32_t *n_edges, struct ds_error *err)
{
    const struct ds_hparams *hp = &m->hp;
    if (dtype != DS_F32 && dtype != DS_BF16 && dtype != DS_F16)
        return ds_fail(err, "activation dtype %d is not one of f32, bf16, f16", dtype);
    if (hp->n_layers < 1 || hp->n_layers > 1 << 20)
        return ds_fail(err, "%s: %d layers", m->name, (int)hp->n_layers);
    struct unroll u = {.hp = hp, .dtype = dtype, .unrounded = unrounded};
    uint32_t count = site_number(&u, DS_ST_COUNT - 1, hp->n_layers) + 1;
    add_all(&u);
    u.sites = ds_calloc(count, sizeof *u.sites, "sites", err);
    u.edges = u.sites ? ds_calloc(u.n_edges, sizeof *u.edges, "edges", err) : NULL;
    if (!u.edges) {
        free(u.sites);
        return -1;
    }
    u.n_edges = 0;
    add_all(&u);
    *sites = u.sites;
    *n_sites = count;
    *edges = u.edges;
    *n_edges = u.n_edges;
    return 0;
}

int ds_forward_sites(const struct ds_model *m, int dtype, struct ds_site **sites, uint32_t *n_sites,
                     struct ds_edge **edges, uint32_t *n_edges, struct ds_error *err)
{
    return ds_forward_sites_with(m, dtype, 0, sites, n_sites, edges, n_edges, err);
}
