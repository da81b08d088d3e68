/* model_arch.c: the architectures, a table row each, and the walk that turns a row into a list of
 * weights. Owns names and shapes of weights; knows nothing of where their numbers come from. */
#include "engine/model_priv.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/names.h"

#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])
#define LAYER(m) offsetof(struct ds_layer, m)
#define MODEL(m) offsetof(struct ds_model, m)

static const struct model_slot before_slots[] = {
    {"token_embd.weight", MODEL(embed), DIM_VOCAB, DIM_MODEL, ROLE_EMBED, 1, WHEN_ALWAYS, 0},
};

/* What a layer of the llama family begins with. need_bias: q, k and v have one. */
#define ATTENTION(need_bias)                                                                       \
    {"attn_norm.weight", LAYER(attn_norm), DIM_ONE, DIM_MODEL, ROLE_NORM, 1, WHEN_ALWAYS, 0},      \
        {"attn_q.weight", LAYER(q), DIM_Q, DIM_MODEL, ROLE_MATRIX, 1, WHEN_ALWAYS, 0},             \
        {"attn_q.bias", LAYER(q_bias), DIM_ONE, DIM_Q, ROLE_BIAS, need_bias, WHEN_ALWAYS, 0},      \
        {"attn_k.weight", LAYER(k), DIM_KV, DIM_MODEL, ROLE_MATRIX, 1, WHEN_ALWAYS, 0},            \
        {"attn_k.bias", LAYER(k_bias), DIM_ONE, DIM_KV, ROLE_BIAS, need_bias, WHEN_ALWAYS, 0},     \
        {"attn_v.weight", LAYER(v), DIM_KV, DIM_MODEL, ROLE_MATRIX, 1, WHEN_ALWAYS, 0},            \
        {"attn_v.bias", LAYER(v_bias), DIM_ONE, DIM_KV, ROLE_BIAS, need_bias, WHEN_ALWAYS, 0},     \
        {"attn_output.weight", LAYER(o), DIM_MODEL, DIM_Q, ROLE_MATRIX, 1, WHEN_ALWAYS, 0},        \
    {                                                                                              \
        "attn_output.bias", LAYER(o_bias), DIM_ONE, DIM_MODEL, ROLE_BIAS, 0, WHEN_ALWAYS, 0        \
    }

#define QK_NORM                                                                                    \
    {"attn_q_norm.weight", LAYER(q_norm), DIM_ONE, DIM_HEAD, ROLE_NORM, 1, WHEN_ALWAYS, 0},        \
    {                                                                                              \
        "attn_k_norm.weight", LAYER(k_norm), DIM_ONE, DIM_HEAD, ROLE_NORM, 1, WHEN_ALWAYS, 0       \
    }

#define FFN                                                                                        \
    {"ffn_norm.weight", LAYER(ffn_norm), DIM_ONE, DIM_MODEL, ROLE_NORM, 1, WHEN_ALWAYS, 0},        \
        {"ffn_gate.weight", LAYER(gate), DIM_FF, DIM_MODEL, ROLE_MATRIX, 1, WHEN_DENSE, 0},        \
        {"ffn_gate.bias", LAYER(gate_bias), DIM_ONE, DIM_FF, ROLE_BIAS, 0, WHEN_DENSE, 0},         \
        {"ffn_up.weight", LAYER(up), DIM_FF, DIM_MODEL, ROLE_MATRIX, 1, WHEN_DENSE, 0},            \
        {"ffn_up.bias", LAYER(up_bias), DIM_ONE, DIM_FF, ROLE_BIAS, 0, WHEN_DENSE, 0},             \
        {"ffn_down.weight", LAYER(down), DIM_MODEL, DIM_FF, ROLE_MATRIX, 1, WHEN_DENSE, 0},        \
    {                                                                                              \
        "ffn_down.bias", LAYER(down_bias), DIM_ONE, DIM_MODEL, ROLE_BIAS, 0, WHEN_DENSE, 0         \
    }

#define EXPERT_WEIGHT(file_name, member, rows, cols)                                               \
    {                                                                                              \
        file_name, LAYER(member), rows, cols, ROLE_MATRIX, 1, WHEN_EXPERTS, 1                      \
    }
#define SHARED_WEIGHT(file_name, member, rows, cols)                                               \
    {                                                                                              \
        file_name, LAYER(member), rows, cols, ROLE_MATRIX, 1, WHEN_SHARED, 0                       \
    }

#define EXPERTS                                                                                    \
    {                                                                                              \
        "ffn_gate_inp.weight", LAYER(router),                                                      \
        DIM_EXPERTS,           DIM_MODEL,                                                          \
        ROLE_ROUTER,           1,                                                                  \
        WHEN_EXPERTS,          0},                                                                 \
        EXPERT_WEIGHT("ffn_gate_exps.weight", gate_exps, DIM_FF_EXPERT, DIM_MODEL),                \
        EXPERT_WEIGHT("ffn_up_exps.weight", up_exps, DIM_FF_EXPERT, DIM_MODEL),                    \
        EXPERT_WEIGHT("ffn_down_exps.weight", down_exps, DIM_MODEL, DIM_FF_EXPERT)

#define SHARED                                                                                     \
    {"ffn_gate_inp_shexp.weight",                                                                  \
     LAYER(router_shared),                                                                         \
     DIM_ONE,                                                                                      \
     DIM_MODEL,                                                                                    \
     ROLE_ROUTER,                                                                                  \
     1,                                                                                            \
     WHEN_SHARED,                                                                                  \
     0},                                                                                           \
        SHARED_WEIGHT("ffn_gate_shexp.weight", gate_shared, DIM_FF_SHARED, DIM_MODEL),             \
        SHARED_WEIGHT("ffn_up_shexp.weight", up_shared, DIM_FF_SHARED, DIM_MODEL),                 \
        SHARED_WEIGHT("ffn_down_shexp.weight", down_shared, DIM_MODEL, DIM_FF_SHARED)

static const struct model_slot llama_layer[] = {ATTENTION(0), FFN, EXPERTS};
static const struct model_slot qwen2_layer[] = {ATTENTION(1), FFN};
static const struct model_slot qwen3_layer[] = {ATTENTION(0), QK_NORM, FFN};
static const struct model_slot qwen2moe_layer[] = {ATTENTION(1), FFN, EXPERTS, SHARED};
static const struct model_slot qwen3moe_layer[] = {ATTENTION(0), QK_NORM, FFN, EXPERTS};

static const struct model_slot after_slots[] = {
    {"output_norm.weight", MODEL(final_norm), DIM_ONE, DIM_MODEL, ROLE_NORM, 1, WHEN_ALWAYS, 0},
    {"output.weight", MODEL(head), DIM_VOCAB, DIM_MODEL, ROLE_HEAD, 0, WHEN_ALWAYS, 0},
    {"rope_freqs.weight", MODEL(rope_freqs), DIM_ONE, DIM_ROPE_PAIRS, ROLE_ROPE_FREQS, 0,
     WHEN_ALWAYS, 0},
};

/* Inverse frequencies that early converters stored; every engine computes them itself. */
static const char *const ignorable[] = {"attn_rot_embd.weight"};

#define ARCH(arch, slots, ...)                                                                     \
    {                                                                                              \
        .name = arch, .before = before_slots, .layer = slots, .after = after_slots,                \
        .n_before = COUNT(before_slots), .n_layer = COUNT(slots), .n_after = COUNT(after_slots),   \
        .ignorable = ignorable, .n_ignorable = COUNT(ignorable), __VA_ARGS__                       \
    }

/* llama with experts is what Mixtral files are. */
static const struct model_arch archs[] = {
    ARCH("llama", llama_layer, .has_experts = 1, .norm_top_k = 1),
    ARCH("qwen2", qwen2_layer, .rope_neox = 1),
    ARCH("qwen3", qwen3_layer, .rope_neox = 1, .qk_norm = 1),
    ARCH("qwen2moe", qwen2moe_layer, .rope_neox = 1, .has_experts = 1, .needs_experts = 1,
         .shared_expert = 1),
    ARCH("qwen3moe", qwen3moe_layer, .rope_neox = 1, .has_experts = 1, .needs_experts = 1,
         .qk_norm = 1, .norm_top_k = 1),
};

const struct model_arch *ds_model_arch_find(const char *name, struct ds_error *err)
{
    const char *names[COUNT(archs)];
    char known[256] = "";
    for (size_t i = 0, used = 0; i < COUNT(archs); i++) {
        if (strcmp(name, archs[i].name) == 0)
            return &archs[i];
        names[i] = archs[i].name;
        int n = snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", names[i]);
        used += n > 0 && (size_t)n < sizeof known - used ? (size_t)n : 0;
    }
    struct ds_buf shown = {0};
    ds_buf_escape(&shown, name, strnlen(name, 64));
    ds_fail(err, "unknown architecture \"%s\"", shown.data ? shown.data : "");
    ds_buf_free(&shown);
    int near = ds_nearest(name, names, COUNT(archs));
    if (near >= 0)
        ds_hint(err, "did you mean \"%s\"?", names[near]);
    else
        ds_hint(err, "known architectures: %s", known);
    return NULL;
}

static int applies(enum model_when when, int experts, int shared)
{
    return when == WHEN_ALWAYS || (when == WHEN_DENSE && !experts) ||
           (when == WHEN_EXPERTS && experts) || (when == WHEN_SHARED && experts && shared);
}

static uint64_t required(const struct model_slot *slots, size_t n, int experts)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += slots[i].required && applies(slots[i].when, experts, 0);
    return sum;
}

uint64_t ds_model_arch_min_tensors(const struct model_arch *a, const struct ds_hparams *hp)
{
    const uint64_t all = (uint64_t)hp->n_layers,
                   every = hp->expert_every > 1 ? (uint64_t)hp->expert_every : 1,
                   dense = hp->n_experts > 0
                               ? all - all / every + (uint64_t)hp->dense_layers / every
                               : all;
    uint64_t sum, more;
    if (__builtin_mul_overflow(required(a->layer, a->n_layer, 0), dense, &sum) ||
        __builtin_mul_overflow(required(a->layer, a->n_layer, 1), all - dense, &more) ||
        __builtin_add_overflow(sum, more, &sum) ||
        __builtin_add_overflow(
            sum, required(a->before, a->n_before, 0) + required(a->after, a->n_after, 0), &sum))
        return UINT64_MAX;
    return sum;
}

static int64_t dim_of(const struct ds_hparams *hp, enum model_dim dim)
{
    switch (dim) {
    case DIM_ONE:
        return 1;
    case DIM_MODEL:
        return hp->d_model;
    case DIM_Q:
        return (int64_t)hp->n_heads * hp->head_dim;
    case DIM_KV:
        return (int64_t)hp->n_kv_heads * hp->head_dim;
    case DIM_FF:
        return hp->d_ff;
    case DIM_VOCAB:
        return hp->vocab;
    case DIM_ROPE_PAIRS:
        return hp->rope_dim / 2;
    case DIM_HEAD:
        return hp->head_dim;
    case DIM_EXPERTS:
        return hp->n_experts;
    case DIM_FF_EXPERT:
        return hp->d_ff_expert;
    case DIM_FF_SHARED:
        return hp->d_ff_shared;
    }
    return 0;
}

/* Where a slot's weights are listed and pointed to. */
struct walk {
    struct ds_model *m;
    const struct model_source *src;
    size_t taken;
    uint64_t bytes;
};

static void name_weight(struct ds_weight *w, const struct model_slot *slot, int layer)
{
    int n = layer < 0 ? snprintf(w->name, sizeof w->name, "%s", slot->name)
                      : snprintf(w->name, sizeof w->name, "blk.%d.%s", layer, slot->name);
    if (w->expert >= 0)
        snprintf(w->name + n, sizeof w->name - (size_t)n, "[%d]", (int)w->expert);
}

/* Asks the source for one slot, or for one expert's share of it; when it has it, appends the weight
 * and reserves its place in the arena. The owner points to the first of them. */
static int take_one(struct walk *w, const struct model_slot *slot, int layer, int32_t expert,
                    void *owner, struct ds_error *err)
{
    struct ds_weight *weight = &w->m->weights[w->taken];
    memset(weight, 0, sizeof *weight);
    weight->expert = expert;
    name_weight(weight, slot, layer);
    weight->rows = dim_of(&w->m->hp, slot->rows);
    weight->cols = dim_of(&w->m->hp, slot->cols);
    int has = w->src->pick(w->src->ctx, w->taken, slot, weight, err);
    if (has < 0)
        return -1;
    if (!has && slot->required)
        return ds_fail(err, "tensor %s is missing", weight->name);
    if (!has)
        return 0;
    uint64_t bytes;
    if (__builtin_mul_overflow((uint64_t)weight->rows, (uint64_t)weight->cols, &bytes) ||
        __builtin_mul_overflow(bytes, sizeof(float), &bytes) ||
        __builtin_add_overflow(bytes, 63u, &bytes) ||
        __builtin_add_overflow(w->bytes, weight->file_data ? 0 : bytes & ~(uint64_t)63,
                               &w->bytes) ||
        w->bytes > PTRDIFF_MAX)
        return ds_fail(err, "tensor %s: %lld x %lld values do not fit in memory", weight->name,
                       (long long)weight->rows, (long long)weight->cols);
    /* rope_freqs is a plain pointer to numbers: ds_model_fill sets it once there are numbers. */
    if (slot->role != ROLE_ROPE_FREQS && expert <= 0)
        memcpy((char *)owner + slot->member, &weight, sizeof weight);
    w->taken++;
    return 0;
}

static int take(struct walk *w, const struct model_slot *slot, int layer, void *owner,
                struct ds_error *err)
{
    const struct ds_hparams *hp = &w->m->hp;
    if (!applies(slot->when, ds_layer_has_experts(hp, layer), hp->d_ff_shared > 0))
        return 0;
    if (!slot->per_expert)
        return take_one(w, slot, layer, -1, owner, err);
    for (int32_t e = 0; e < hp->n_experts; e++)
        if (take_one(w, slot, layer, e, owner, err) != 0)
            return -1;
    return 0;
}

/* Weights of a layer at most. */
static size_t most_of_layer(const struct model_arch *a, const struct ds_hparams *hp)
{
    size_t n = a->n_layer;
    for (size_t i = 0; i < a->n_layer; i++)
        n += a->layer[i].per_expert ? (size_t)hp->n_experts : 0;
    return n;
}

int ds_model_layout(struct ds_model *m, const struct model_arch *a, const struct model_source *src,
                    struct ds_error *err)
{
    size_t layers = (size_t)m->hp.n_layers;
    size_t most;
    if (__builtin_mul_overflow(layers, most_of_layer(a, &m->hp), &most))
        return ds_fail(err, "%zu layers are too many", layers);
    most += a->n_before + a->n_after;
    m->weights = ds_calloc(most, sizeof *m->weights, "weight list", err);
    m->layers = m->weights ? ds_calloc(layers, sizeof *m->layers, "layer list", err) : NULL;
    if (!m->layers)
        return -1;
    struct walk w = {.m = m, .src = src};
    for (size_t i = 0; i < a->n_before; i++)
        if (take(&w, &a->before[i], -1, m, err))
            return -1;
    for (size_t l = 0; l < layers; l++)
        for (size_t i = 0; i < a->n_layer; i++)
            if (take(&w, &a->layer[i], (int)l, &m->layers[l], err))
                return -1;
    for (size_t i = 0; i < a->n_after; i++)
        if (take(&w, &a->after[i], -1, m, err))
            return -1;
    m->n_weights = w.taken;
    m->arena_bytes = (size_t)w.bytes;
    m->hp.tied = m->head == NULL;
    if (m->hp.tied)
        m->head = m->embed;
    return 0;
}
