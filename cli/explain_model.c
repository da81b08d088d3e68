/* explain_model.c: which of the model's weights and sizes the kernel of a site is given. Knows stages
 * by name; reads no rows. */
#include "cli/explain_case.h"

#include "base/mem.h"
#include "kernels/registry.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int ds_case_same_model(const struct ds_header *h, const struct ds_model *m, struct ds_error *err)
{
    char name[64] = "";
    if (m->digest == h->model_digest)
        return 0;
    for (size_t i = 0; i < h->n_weights && !name[0]; i++) {
        const struct ds_weight *w = NULL;
        for (size_t j = 0; j < m->n_weights && !w; j++)
            if (strcmp(m->weights[j].name, h->weights[i].name) == 0)
                w = &m->weights[j];
        if (!w || w->digest != h->weights[i].digest)
            memcpy(name, h->weights[i].name, sizeof name);
    }
    name[sizeof name - 1] = '\0';
    ds_fail(err, "'%s' is not the record's model: %s%s other weights", m->name,
            name[0] ? name : "it has", name[0] ? " has" : "");
    return ds_hint(err, "the record was made with '%s': give that with -m", h->model_name);
}

struct stage_weights {
    const char *stage;
    size_t weight, bias; /* offsets in struct ds_layer; bias NONE: none */
};
#define NONE     ((size_t)-1)
#define AT(m)    offsetof(struct ds_layer, m)
#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static const struct stage_weights of_layer[] = {
    {"router_logits", AT(router), NONE}, {"attn_norm", AT(attn_norm), NONE},
    {"q_norm", AT(q_norm), NONE},        {"k_norm", AT(k_norm), NONE},
    {"q_proj", AT(q), AT(q_bias)},       {"k_proj", AT(k), AT(k_bias)},
    {"v_proj", AT(v), AT(v_bias)},       {"o_proj", AT(o), AT(o_bias)},
    {"ffn_norm", AT(ffn_norm), NONE},    {"gate", AT(gate), AT(gate_bias)},
    {"up", AT(up), AT(up_bias)},         {"down", AT(down), AT(down_bias)},
};

/* Of stages with experts: the first expert's weight, those of others follow it; the one that every
 * row passes. */
static const struct {
    const char *stage;
    size_t chosen, shared;
} of_experts[] = {
    {"gate", AT(gate_exps), AT(gate_shared)},
    {"up", AT(up_exps), AT(up_shared)},
    {"expert_out", AT(down_exps), AT(down_shared)},
    {"router_logits", NONE, AT(router_shared)},
};

static const struct ds_weight *member(const struct ds_layer *l, size_t offset)
{
    const struct ds_weight *w = NULL;
    if (offset != NONE)
        memcpy(&w, (const char *)l + offset, sizeof w);
    return w;
}

/* The weight of a part that is an expert's; NULL: it has none. */
static const struct ds_weight *weight_of_expert(const struct ds_case *c, const struct ds_site *s)
{
    const struct ds_layer *l = &c->model->layers[s->layer];
    const int shared = strcmp(s->part, "shared") == 0;
    for (size_t i = 0; i < COUNT(of_experts); i++) {
        if (strcmp(of_experts[i].stage, s->stage) != 0)
            continue;
        if (shared)
            return member(l, of_experts[i].shared);
        const struct ds_weight *first = member(l, of_experts[i].chosen);
        return first && c->expert >= 0 && c->expert < c->model->hp.n_experts ? first + c->expert
                                                                             : NULL;
    }
    return NULL;
}

/* The site's weight and bias; NULL where it has none. */
static void weights_of(const struct ds_case *c, const struct ds_site *s,
                       const struct ds_weight **weight, const struct ds_weight **bias)
{
    const struct ds_model *m = c->model;
    *weight = *bias = NULL;
    if (strcmp(s->stage, "final_norm") == 0)
        *weight = m->final_norm;
    if (strcmp(s->stage, "logits") == 0)
        *weight = m->head;
    if (s->layer < 0 || s->layer >= m->hp.n_layers)
        return;
    if (c->choice >= 0 || strcmp(s->part, "shared") == 0) {
        *weight = weight_of_expert(c, s);
        return;
    }
    if (s->part[0] && s->part[0] != 'r' && strcmp(s->part, "unrounded") != 0)
        return;
    for (size_t i = 0; i < COUNT(of_layer); i++)
        if (strcmp(of_layer[i].stage, s->stage) == 0) {
            *weight = member(&m->layers[s->layer], of_layer[i].weight);
            *bias = member(&m->layers[s->layer], of_layer[i].bias);
        }
}

static int no_weight(const struct ds_site *s, struct ds_error *err)
{
    return ds_fail(err, "layer %d %.24s: it is not known which weights its kernel reads", s->layer,
                   s->stage);
}

/* Ranks whose rows both sides show; 0 when they show other numbers of them. */
static int64_t ranks_of(const struct ds_case *c)
{
    int64_t ranks[DS_SIDES] = {0, 0};
    for (int side = 0; side < DS_SIDES; side++)
        for (size_t i = 0; i < c->h->n_edges; i++) {
            const struct ds_trial_data *t = c->side[side].t;
            int shown = 0;
            for (size_t k = 0; c->h->edges[i].to == c->f.site && k < t->n_captures && !shown; k++)
                shown = t->captures[k].site == c->h->edges[i].from;
            ranks[side] += shown;
        }
    return ranks[DS_SIDE_A] == ranks[DS_SIDE_B] ? ranks[DS_SIDE_A] : 0;
}

static int bind_op(struct ds_case *c, const struct ds_site *s, const struct ds_weight *w,
                   const struct ds_weight *bias, struct ds_error *err)
{
    const struct ds_hparams *hp = &c->model->hp;
    union ds_any_args *a = &c->e.shared;
    int q = strcmp(s->stage, "q_rope") == 0;
    switch (c->e.op) {
    case DS_OP_EMBED:
        a->embed = (struct ds_embed_args){
            .table = c->model->embed->data, .vocab = hp->vocab, .width = hp->d_model};
        return 0;
    case DS_OP_RMSNORM:
        if (!w)
            return no_weight(s, err);
        /* Of q_norm and k_norm each head is a row of its own: ds_case_split_heads. */
        a->rmsnorm =
            (struct ds_rmsnorm_args){.width = s->width, .weight = w->data, .eps = hp->rms_eps};
        c->heads = (int32_t)(s->width / w->cols);
        if (s->width % w->cols != 0)
            return ds_fail(err, "layer %d %.24s has %u elements a row, its weight %lld", s->layer,
                           s->stage, s->width, (long long)w->cols);
        return 0;
    case DS_OP_MATMUL:
        if (!w)
            return no_weight(s, err);
        a->matmul = (struct ds_matmul_args){
            .n = w->rows, .k = w->cols, .w = ds_weight_view(w), .bias = bias ? bias->data : NULL};
        return 0;
    case DS_OP_ROPE:
        a->rope = (struct ds_rope_args){.heads = q ? hp->n_heads : hp->n_kv_heads,
                                        .head_dim = hp->head_dim,
                                        .rope_dim = hp->rope_dim,
                                        .neox = hp->rope_neox};
        return 0;
    case DS_OP_CACHE:
        a->cache.width = s->width;
        a->cache.head_dim = hp->head_dim;
        return 0;
    case DS_OP_ATTENTION:
        a->attention =
            (struct ds_attention_args){.heads = hp->n_heads,
                                       .kv_heads = hp->n_kv_heads,
                                       .head_dim = hp->head_dim,
                                       .scale = (float)(1.0 / sqrt((double)hp->head_dim)),
                                       .window = ds_window_of_layer(hp, s->layer),
                                       .soft_cap = hp->soft_cap};
        return 0;
    case DS_OP_SOFTMAX:
        a->softmax.width = s->width;
        return 0;
    case DS_OP_SILU_MUL:
        a->silu_mul.width = s->width;
        return 0;
    case DS_OP_ADD:
        a->add.width = s->width;
        return 0;
    case DS_OP_COMBINE:
        a->combine =
            (struct ds_combine_args){.width = s->width, .top_k = hp->top_k + (hp->d_ff_shared > 0)};
        return 0;
    case DS_OP_TRANSFER:
        a->transfer.width = s->width;
        return 0;
    case DS_OP_PROCESS:
        a->process.vocab = s->width;
        return 0;
    case DS_OP_SAMPLE:
        a->sample.vocab = hp->vocab;
        return 0;
    case DS_OP_ROUTER:
        c->e.weights = strcmp(s->part, "weights") == 0;
        a->router = (struct ds_router_args){
            .experts = hp->n_experts, .top_k = hp->top_k, .normalise = hp->norm_top_k};
        return 0;
    case DS_OP_ALLREDUCE:
        a->allreduce = (struct ds_allreduce_args){.width = s->width, .ranks = ranks_of(c)};
        if (a->allreduce.ranks > 0)
            return 0;
        return ds_fail(err, "layer %d %.24s: both sides add other numbers of ranks", s->layer,
                       s->stage);
    default:
        return ds_fail(err, "layer %d %.24s: a %.16s cannot be replayed from a record", s->layer,
                       s->stage, s->op);
    }
}

/* Of a partial sum: the columns of the weights that its rank has. */
static int cut_weights(struct ds_case *c, const struct ds_site *s, struct ds_error *err)
{
    struct ds_matmul_args *a = &c->e.shared.matmul;
    const long tp[DS_SIDES] = {strtol(ds_case_setting(c, c->f.ref_arm, "tp"), NULL, 10),
                               strtol(ds_case_setting(c, c->f.arm, "tp"), NULL, 10)};
    const long rank = strtol(s->part + 1, NULL, 10), ranks = tp[DS_SIDE_A];
    if (ranks != tp[DS_SIDE_B] || ranks < 2 || rank < 0 || rank >= ranks || a->k % ranks != 0)
        return ds_fail(err, "layer %d %.24s/%.12s: both sides cut the sum into other ranks",
                       s->layer, s->stage, s->part);
    const int64_t k = a->k / ranks;
    float *w = ds_alloc_aligned((size_t)(a->n * k), sizeof *w, "weights of a rank", err);
    if (!w || ds_case_own(c, w, err) != 0)
        return -1;
    for (int64_t j = 0; j < a->n; j++)
        memcpy(w + j * k, a->w.data + j * a->k + rank * k, (size_t)k * sizeof *w);
    a->k = k;
    a->w = (struct ds_weight_view){.data = w, .n = a->n, .k = k};
    a->bias = rank == 0 ? a->bias : NULL;
    c->rank = (int32_t)rank;
    c->ranks = (int32_t)ranks;
    return 0;
}

/* The model's other weights of the same sizes: what a matmul may have been given instead. */
static int list_others(struct ds_case *c, const struct ds_weight *own, struct ds_error *err)
{
    const struct ds_model *m = c->model;
    struct ds_explain_weight *others = ds_calloc(m->n_weights, sizeof *others, "weights", err);
    if (!others || ds_case_own(c, others, err) != 0)
        return -1;
    c->e.others = others;
    for (size_t i = 0; i < m->n_weights; i++) {
        const struct ds_weight *w = &m->weights[i];
        if (w != own && w->data && w->rows == own->rows && w->cols == own->cols)
            others[c->e.n_others++] = (struct ds_explain_weight){w->name, w->data};
    }
    return 0;
}

int ds_case_bind(struct ds_case *c, struct ds_error *err)
{
    const struct ds_site *s = &c->h->sites[c->f.site];
    const struct ds_weight *w, *bias;
    c->heads = 1;
    if (ds_case_choose_expert(c, err) != 0)
        return -1;
    weights_of(c, s, &w, &bias);
    if (bind_op(c, s, w, bias, err) != 0)
        return -1;
    if (c->e.op == DS_OP_MATMUL && s->part[0] == 'r' && cut_weights(c, s, err) != 0)
        return -1;
    if ((c->e.op == DS_OP_MATMUL || c->e.op == DS_OP_RMSNORM) && s->part[0] != 'r' &&
        list_others(c, w, err) != 0)
        return -1;
    const int64_t width = ds_explain_width(c->e.op, &c->e.shared);
    /* Behind a router's weights may stand the one of the expert that every row passes. */
    if (width != s->width && !(c->e.weights && width + 1 == s->width))
        return ds_fail(err, "layer %d %.24s has %u elements a row, the model makes %lld", s->layer,
                       s->stage, s->width, (long long)width);
    return 0;
}
