/* forward_sites.c: the sites of a model and the edges between them, unrolled from the table of
 * stages. Owns nothing else; must not know buffers, kernels' code or calls. */
#include "engine/forward.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "engine/stages.h"

#include <stdio.h>
#include <stdlib.h>

/* The site an input of a stage in `layer` stands for. For stages after the layers `layer` is
 * n_layers, whose incoming residual is the last layer's output. */
static uint32_t input_site(int stage, int32_t layer, int32_t n_layers)
{
    if (stage != DS_ST_RESID_IN)
        return ds_stage_site(stage, layer, n_layers);
    if (layer == 0)
        return ds_stage_site(DS_ST_EMBED, 0, n_layers);
    return ds_stage_site(DS_ST_RESID_FFN, layer - 1, n_layers);
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

static uint32_t edges_of_stages(int begin, int end)
{
    uint32_t n = 0;
    for (int s = begin; s < end; s++)
        n += ds_stage(s)->n_inputs;
    return n;
}

/* Adds stages begin..end-1 of one layer. */
static void add_stages(int begin, int end, int32_t layer, const struct ds_hparams *hp, int dtype,
                       struct ds_site *sites, struct ds_edge *edges, uint32_t *n_edges)
{
    for (int s = begin; s < end; s++) {
        const struct ds_stage_info *info = ds_stage(s);
        uint32_t to = ds_stage_site(s, layer, hp->n_layers);
        fill_site(&sites[to], s, layer, hp, dtype);
        for (int i = 0; i < info->n_inputs; i++)
            edges[(*n_edges)++] =
                (struct ds_edge){.from = input_site(info->inputs[i].stage, layer, hp->n_layers),
                                 .to = to,
                                 .kind = info->inputs[i].kind};
    }
}

int ds_forward_sites(const struct ds_model *m, int dtype, struct ds_site **sites, uint32_t *n_sites,
                     struct ds_edge **edges, uint32_t *n_edges, struct ds_error *err)
{
    const struct ds_hparams *hp = &m->hp;
    if (dtype != DS_F32 && dtype != DS_BF16 && dtype != DS_F16)
        return ds_fail(err, "activation dtype %d is not one of f32, bf16, f16", dtype);
    if (hp->n_layers < 1 || hp->n_layers > 1 << 20)
        return ds_fail(err, "%s: %d layers", m->name, (int)hp->n_layers);
    uint32_t layers = (uint32_t)hp->n_layers;
    uint32_t site_count =
        DS_ST_FIRST_OF_LAYER + layers * DS_STAGES_PER_LAYER + (DS_ST_COUNT - DS_ST_FIRST_AFTER);
    uint32_t edge_count = layers * edges_of_stages(DS_ST_FIRST_OF_LAYER, DS_ST_FIRST_AFTER) +
                          edges_of_stages(0, DS_ST_FIRST_OF_LAYER) +
                          edges_of_stages(DS_ST_FIRST_AFTER, DS_ST_COUNT);
    struct ds_site *site = ds_calloc(site_count, sizeof *site, "sites", err);
    struct ds_edge *edge = site ? ds_calloc(edge_count, sizeof *edge, "edges", err) : NULL;
    if (!edge) {
        free(site);
        return -1;
    }
    uint32_t n = 0;
    add_stages(0, DS_ST_FIRST_OF_LAYER, -1, hp, dtype, site, edge, &n);
    for (int32_t l = 0; l < hp->n_layers; l++)
        add_stages(DS_ST_FIRST_OF_LAYER, DS_ST_FIRST_AFTER, l, hp, dtype, site, edge, &n);
    add_stages(DS_ST_FIRST_AFTER, DS_ST_COUNT, hp->n_layers, hp, dtype, site, edge, &n);
    *sites = site;
    *n_sites = site_count;
    *edges = edge;
    *n_edges = n;
    return 0;
}
