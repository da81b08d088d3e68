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

static const struct model_slot llama_before[] = {
    {"token_embd.weight", MODEL(embed), DIM_VOCAB, DIM_MODEL, ROLE_EMBED, 1},
};

static const struct model_slot llama_layer[] = {
    {"attn_norm.weight", LAYER(attn_norm), DIM_ONE, DIM_MODEL, ROLE_NORM, 1},
    {"attn_q.weight", LAYER(q), DIM_Q, DIM_MODEL, ROLE_MATRIX, 1},
    {"attn_q.bias", LAYER(q_bias), DIM_ONE, DIM_Q, ROLE_BIAS, 0},
    {"attn_k.weight", LAYER(k), DIM_KV, DIM_MODEL, ROLE_MATRIX, 1},
    {"attn_k.bias", LAYER(k_bias), DIM_ONE, DIM_KV, ROLE_BIAS, 0},
    {"attn_v.weight", LAYER(v), DIM_KV, DIM_MODEL, ROLE_MATRIX, 1},
    {"attn_v.bias", LAYER(v_bias), DIM_ONE, DIM_KV, ROLE_BIAS, 0},
    {"attn_output.weight", LAYER(o), DIM_MODEL, DIM_Q, ROLE_MATRIX, 1},
    {"attn_output.bias", LAYER(o_bias), DIM_ONE, DIM_MODEL, ROLE_BIAS, 0},
    {"ffn_norm.weight", LAYER(ffn_norm), DIM_ONE, DIM_MODEL, ROLE_NORM, 1},
    {"ffn_gate.weight", LAYER(gate), DIM_FF, DIM_MODEL, ROLE_MATRIX, 1},
    {"ffn_gate.bias", LAYER(gate_bias), DIM_ONE, DIM_FF, ROLE_BIAS, 0},
    {"ffn_up.weight", LAYER(up), DIM_FF, DIM_MODEL, ROLE_MATRIX, 1},
    {"ffn_up.bias", LAYER(up_bias), DIM_ONE, DIM_FF, ROLE_BIAS, 0},
    {"ffn_down.weight", LAYER(down), DIM_MODEL, DIM_FF, ROLE_MATRIX, 1},
    {"ffn_down.bias", LAYER(down_bias), DIM_ONE, DIM_MODEL, ROLE_BIAS, 0},
};

static const struct model_slot llama_after[] = {
    {"output_norm.weight", MODEL(final_norm), DIM_ONE, DIM_MODEL, ROLE_NORM, 1},
    {"output.weight", MODEL(head), DIM_VOCAB, DIM_MODEL, ROLE_HEAD, 0},
    {"rope_freqs.weight", MODEL(rope_freqs), DIM_ONE, DIM_ROPE_PAIRS, ROLE_ROPE_FREQS, 0},
};

/* Inverse frequencies that early converters stored; every engine computes them itself. */
static const char *const llama_ignorable[] = {"attn_rot_embd.weight"};

static const struct model_arch archs[] = {
    {"llama", 0, llama_before, llama_layer, llama_after, COUNT(llama_before), COUNT(llama_layer),
     COUNT(llama_after), llama_ignorable, COUNT(llama_ignorable)},
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

static uint64_t required(const struct model_slot *slots, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += slots[i].required != 0;
    return sum;
}

uint64_t ds_model_arch_min_tensors(const struct model_arch *a, uint64_t layers)
{
    uint64_t per_layer = required(a->layer, a->n_layer), sum;
    if (__builtin_mul_overflow(per_layer, layers, &sum) ||
        __builtin_add_overflow(
            sum, required(a->before, a->n_before) + required(a->after, a->n_after), &sum))
        return UINT64_MAX;
    return sum;
}

int64_t ds_model_dim(const struct ds_hparams *hp, enum model_dim dim)
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

/* Asks the source for one slot; when it has it, appends the weight and reserves its place in the
 * arena. */
static int take(struct walk *w, const struct model_slot *slot, int layer, void *owner,
                struct ds_error *err)
{
    struct ds_weight *weight = &w->m->weights[w->taken];
    memset(weight, 0, sizeof *weight);
    if (layer < 0)
        snprintf(weight->name, sizeof weight->name, "%s", slot->name);
    else
        snprintf(weight->name, sizeof weight->name, "blk.%d.%s", layer, slot->name);
    weight->rows = ds_model_dim(&w->m->hp, slot->rows);
    weight->cols = ds_model_dim(&w->m->hp, slot->cols);
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
    if (slot->role != ROLE_ROPE_FREQS)
        memcpy((char *)owner + slot->member, &weight, sizeof weight);
    w->taken++;
    return 0;
}

int ds_model_layout(struct ds_model *m, const struct model_arch *a, const struct model_source *src,
                    struct ds_error *err)
{
    size_t layers = (size_t)m->hp.n_layers;
    size_t most = a->n_before + a->n_after + layers * a->n_layer;
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
