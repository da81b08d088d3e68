/* sweep_header.c: the model's part of a record's header: weights, hyperparameters, and the sites that
 * all arms together have. Knows no trial. */
#include "engine/sweep.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "engine/forward.h"
#include "engine/site_map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int describe_weights(const struct ds_model *m, struct ds_header *h, struct ds_error *err)
{
    h->weights = ds_calloc(m->n_weights, sizeof *h->weights, "weights", err);
    if (!h->weights)
        return -1;
    h->n_weights = m->n_weights;
    for (size_t i = 0; i < m->n_weights; i++) {
        const struct ds_weight *w = &m->weights[i];
        struct ds_record_weight *r = &h->weights[i];
        memcpy(r->name, w->name, sizeof r->name);
        memcpy(r->dtype, w->file_dtype, sizeof r->dtype);
        r->rows = w->rows;
        r->cols = w->cols;
        r->digest = w->digest;
        r->loaded = w->loaded;
    }
    return 0;
}

/* What the rope kernels read, as one more hyperparameter: the table is computed with the host's
 * libm. */
static int describe_rope(struct ds_model *m, struct ds_header *h, struct ds_error *err)
{
    enum { MOST = 8192 };
    int64_t positions = m->hp.context < MOST ? m->hp.context : MOST;
    if (ds_model_rope_table(m, positions, err) != 0)
        return -1;
    struct ds_text *t = &h->hparams[h->n_hparams];
    uint64_t digest =
        ds_digest(m->rope_table, (size_t)positions * (size_t)m->hp.rope_dim * sizeof(float));
    t->name = strdup("rope_table_digest");
    if (asprintf(&t->value, "%016llx over %lld positions", (unsigned long long)digest,
                 (long long)positions) < 0)
        t->value = NULL;
    h->n_hparams++;
    return t->name && t->value ? 0 : ds_fail(err, "out of memory");
}

static int describe_hparams(const struct ds_model *m, struct ds_header *h, struct ds_error *err)
{
    const char *name;
    char text[128];
    size_t n = 0;
    while (ds_hparam_text(&m->hp, n, &name, text, sizeof text) == 0)
        n++;
    h->hparams = ds_calloc(n + 1, sizeof *h->hparams, "hyperparameters", err);
    if (!h->hparams)
        return -1;
    for (h->n_hparams = 0; h->n_hparams < n; h->n_hparams++) {
        struct ds_text *t = &h->hparams[h->n_hparams];
        if (ds_hparam_text(&m->hp, h->n_hparams, &name, text, sizeof text) != 0)
            break;
        t->name = strdup(name);
        t->value = strdup(text);
        if (!t->name || !t->value) {
            h->n_hparams++;
            return ds_fail(err, "out of memory");
        }
    }
    return 0;
}

/* What all arms together want to see: stages that some arm with a 16-bit format reads before
 * rounding, partial sums, borders between devices. All arms show them, so that they can be compared. */
static int gather_wants(const struct ds_model *m, const struct ds_header *h, uint8_t *boundary,
                        struct ds_site_wants *wants, struct ds_error *err)
{
    struct ds_setting s;
    for (size_t a = 0; a < h->n_arms; a++) {
        if (ds_setting_parse(h->arms[a].values, &s, err) != 0)
            return ds_prefix(err, "arm %zu", a);
        if (s.dtype != DS_F32)
            wants->unrounded |= ds_forward_unrounded(m, &s.kernels);
        wants->watched |= ds_kernel_set_added(&s.kernels, DS_OP_CACHE);
        wants->slots |= ds_kernel_set_changes(&s.kernels, DS_OP_SCHEDULE);
        if (ds_placement_check(&s.place, m->hp.n_layers, err) != 0 ||
            ds_ranks_check(&m->hp, s.ranks, err) != 0)
            return -1;
        const struct ds_forward_config pass = {
            .kernels = s.kernels, .placement = s.place, .graph = s.graph};
        if (ds_graph_check(&m->hp, &pass, err) != 0)
            return -1;
        wants->ranks = s.ranks > wants->ranks ? s.ranks : wants->ranks;
        for (int32_t l = 0; l < m->hp.n_layers; l++)
            boundary[l] |= ds_placement_boundary(&s.place, l);
    }
    wants->boundary = boundary;
    return 0;
}

int ds_sweep_describe_model(struct ds_model *m, int dtype, int32_t score_keys, struct ds_header *h,
                            struct ds_error *err)
{
    struct ds_site_wants wants = {.score_keys = score_keys};
    uint32_t n_sites, n_edges;
    snprintf(h->model_name, sizeof h->model_name, "%s", m->name);
    snprintf(h->model_arch, sizeof h->model_arch, "%s", m->hp.arch);
    h->model_digest = m->digest;
    h->n_layers = m->hp.n_layers;
    h->n_heads = m->hp.n_heads;
    h->n_kv_heads = m->hp.n_kv_heads;
    h->head_dim = m->hp.head_dim;
    uint8_t *boundary = ds_calloc((size_t)m->hp.n_layers, 1, "borders", err);
    int rc = boundary ? gather_wants(m, h, boundary, &wants, err) : -1;
    if (rc == 0)
        rc = ds_site_list(&m->hp, dtype, &wants, &h->sites, &n_sites, &h->edges, &n_edges, err);
    free(boundary);
    if (rc != 0)
        return -1;
    h->n_sites = n_sites;
    h->n_edges = n_edges;
    if (describe_weights(m, h, err) != 0)
        return -1;
    return describe_hparams(m, h, err) != 0 ? -1 : describe_rope(m, h, err);
}
