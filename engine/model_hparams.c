/* model_hparams.c: hyperparameters: reading them from a GGUF file, the checks that hold for every
 * source, and their text form. Knows metadata keys; knows no tensor but the embedding's shape. */
#include "engine/model_priv.h"

#include "base/buf.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* ---- text ------------------------------------------------------------------------------------ */

enum field_kind { TEXT, WHOLE, REAL, LAYERS };

static const struct {
    const char *name;
    enum field_kind kind;
    size_t at;
} fields[] = {
    {"arch", TEXT, offsetof(struct ds_hparams, arch)},
    {"n_layers", WHOLE, offsetof(struct ds_hparams, n_layers)},
    {"d_model", WHOLE, offsetof(struct ds_hparams, d_model)},
    {"n_heads", WHOLE, offsetof(struct ds_hparams, n_heads)},
    {"n_kv_heads", WHOLE, offsetof(struct ds_hparams, n_kv_heads)},
    {"head_dim", WHOLE, offsetof(struct ds_hparams, head_dim)},
    {"d_ff", WHOLE, offsetof(struct ds_hparams, d_ff)},
    {"vocab", WHOLE, offsetof(struct ds_hparams, vocab)},
    {"context", WHOLE, offsetof(struct ds_hparams, context)},
    {"rope_dim", WHOLE, offsetof(struct ds_hparams, rope_dim)},
    {"rope_base", REAL, offsetof(struct ds_hparams, rope_base)},
    {"rope_scale", REAL, offsetof(struct ds_hparams, rope_scale)},
    {"rope_neox", WHOLE, offsetof(struct ds_hparams, rope_neox)},
    {"rms_eps", REAL, offsetof(struct ds_hparams, rms_eps)},
    {"tied", WHOLE, offsetof(struct ds_hparams, tied)},
    /* From here on: what most models have not; listed unless 0. */
    {"n_experts", WHOLE, offsetof(struct ds_hparams, n_experts)},
    {"dense_layers", WHOLE, offsetof(struct ds_hparams, dense_layers)},
    {"top_k", WHOLE, offsetof(struct ds_hparams, top_k)},
    {"d_ff_expert", WHOLE, offsetof(struct ds_hparams, d_ff_expert)},
    {"d_ff_shared", WHOLE, offsetof(struct ds_hparams, d_ff_shared)},
    {"norm_top_k", WHOLE, offsetof(struct ds_hparams, norm_top_k)},
    {"qk_norm", WHOLE, offsetof(struct ds_hparams, qk_norm)},
    {"window", WHOLE, offsetof(struct ds_hparams, window)},
    {"window_every", WHOLE, offsetof(struct ds_hparams, window_every)},
    {"window_layers", LAYERS, offsetof(struct ds_hparams, window_listed)},
    {"expert_every", WHOLE, offsetof(struct ds_hparams, expert_every)},
    {"soft_cap", REAL, offsetof(struct ds_hparams, soft_cap)},
};
enum { FIRST_OPTIONAL = 15 };

/* Field number i of those that are listed, COUNT(fields) past the end. */
static size_t field_at(const struct ds_hparams *hp, size_t i)
{
    static const unsigned char zero[4];
    size_t k = 0;
    for (; k < COUNT(fields); k++) {
        int listed =
            k < FIRST_OPTIONAL || memcmp((const char *)hp + fields[k].at, zero, sizeof zero) != 0;
        if (listed && i-- == 0)
            break;
    }
    return k;
}

static int has_window(const struct ds_hparams *hp, int32_t layer)
{
    return layer < DS_LISTED_LAYERS && (hp->window_map[layer / 64] >> (layer % 64) & 1);
}

/* "0-4;6-10"; where that is too long the map itself, which is short enough. */
static void layers_text(const struct ds_hparams *hp, char *text, size_t size)
{
    char all[1 + 3 * DS_LISTED_LAYERS * 4];
    size_t n = 0;
    all[0] = '\0';
    for (int32_t from = 0; from < hp->n_layers; from++) {
        int32_t to = from;
        if (!has_window(hp, from))
            continue;
        while (has_window(hp, to + 1))
            to++;
        n += (size_t)snprintf(all + n, sizeof all - n, to > from ? "%s%d-%d" : "%s%d", n ? ";" : "",
                              (int)from, (int)to);
        from = to;
    }
    if (n < size) {
        memcpy(text, all, n + 1);
        return;
    }
    n = 0;
    for (int32_t w = (hp->n_layers + 63) / 64 - 1; w >= 0 && n < size; w--)
        n += (size_t)snprintf(text + n, size - n, "%016" PRIx64, hp->window_map[w]);
}

int ds_hparam_text(const struct ds_hparams *hp, size_t i, const char **name, char *text,
                   size_t size)
{
    i = field_at(hp, i);
    if (i >= COUNT(fields))
        return -1;
    const char *at = (const char *)hp + fields[i].at;
    *name = fields[i].name;
    int32_t whole;
    float real;
    switch (fields[i].kind) {
    case TEXT:
        snprintf(text, size, "%s", at);
        break;
    case WHOLE:
        memcpy(&whole, at, sizeof whole);
        snprintf(text, size, "%" PRId32, whole);
        break;
    case LAYERS:
        layers_text(hp, text, size);
        break;
    case REAL:
        memcpy(&real, at, sizeof real);
        snprintf(text, size, "%.9g", (double)real);
        break;
    }
    return 0;
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* Whether a rule of window_every tells it all. */
static int is_rule(const struct ds_hparams *hp, const int64_t *layers, int32_t every)
{
    for (int32_t i = 0; i < hp->n_layers; i++)
        if ((layers[i] != 0) == (every > 0 && i % every == every - 1))
            return 0;
    return 1;
}

int ds_hparams_list_windows(struct ds_hparams *hp, const int64_t *layers, const char *what,
                            struct ds_error *err)
{
    for (int32_t every = 0; every <= hp->n_layers; every++)
        if (is_rule(hp, layers, every)) {
            hp->window_every = every;
            return 0;
        }
    if (hp->n_layers > DS_LISTED_LAYERS)
        return ds_fail(err, "%s: a list of the layers that have a window is possible for %d layers",
                       what, DS_LISTED_LAYERS);
    hp->window_listed = 1;
    for (int32_t i = 0; i < hp->n_layers; i++)
        hp->window_map[i / 64] |= (uint64_t)(layers[i] != 0) << (i % 64);
    return 0;
}

int ds_model_check_hparams(const struct ds_hparams *hp, const char *what, struct ds_error *err)
{
    const int32_t every = hp->expert_every > 1 ? hp->expert_every : 1;
    if (hp->n_experts > 0 && hp->n_layers / every <= hp->dense_layers / every)
        return ds_fail(err,
                       "%s: experts in one layer of %d, and not in the first %d: none of %d layers "
                       "has any",
                       what, every, hp->dense_layers, hp->n_layers);
    if (hp->n_heads % hp->n_kv_heads)
        return ds_fail(err, "%s: %d heads cannot be shared evenly by %d kv heads", what,
                       hp->n_heads, hp->n_kv_heads);
    if ((int64_t)hp->n_heads * hp->head_dim > INT32_MAX)
        return ds_fail(err, "%s: %d heads of %d channels are more than %d channels", what,
                       hp->n_heads, hp->head_dim, INT32_MAX);
    if (hp->rope_dim < 2 || hp->rope_dim % 2 || hp->rope_dim > hp->head_dim)
        return ds_fail(err,
                       "%s: rope turns pairs of channels: its dimension count must be even, from 2 "
                       "to the head's %d "
                       "channels, not %d",
                       what, hp->head_dim, hp->rope_dim);
    if (!(hp->rope_base > 0.0f) || !isfinite(hp->rope_base))
        return ds_fail(err, "%s: the rope base must be a positive number, not %.9g", what,
                       (double)hp->rope_base);
    if (!(hp->rope_scale > 0.0f) || !isfinite(hp->rope_scale))
        return ds_fail(err, "%s: the rope scaling factor must be a positive number, not %.9g", what,
                       (double)hp->rope_scale);
    if (hp->n_experts && (hp->top_k < 1 || hp->top_k > hp->n_experts))
        return ds_fail(err, "%s: %d of %d experts cannot be chosen for a row", what, hp->top_k,
                       hp->n_experts);
    if (!(hp->soft_cap >= 0.0f) || !isfinite(hp->soft_cap))
        return ds_fail(err, "%s: the soft cap must be a positive number or 0, not %.9g", what,
                       (double)hp->soft_cap);
    if (!(hp->rms_eps >= 0.0f) || !isfinite(hp->rms_eps))
        return ds_fail(err,
                       "%s: the rms epsilon must not be negative, infinite or nan, but it is %.9g",
                       what, (double)hp->rms_eps);
    return 0;
}

/* ---- reading GGUF metadata ------------------------------------------------------------------- */

struct reader {
    const struct ds_gguf *g;
    const char *arch;
    char key[128]; /* the key last asked for */
    struct ds_error *err;
};

static const char *full_key(struct reader *r, const char *key)
{
    snprintf(r->key, sizeof r->key, "%s.%s", r->arch, key);
    return r->key;
}

/* A whole number 1..INT32_MAX: 1 found, 0 absent, -1 error. */
static int read_count(struct reader *r, const char *key, int32_t *out)
{
    uint64_t v;
    int found = ds_gguf_get_u64(r->g, full_key(r, key), &v, r->err);
    if (found != 1)
        return found;
    if (v < 1 || v > INT32_MAX)
        return ds_fail(r->err, "%s: %s is %" PRIu64 "; 1 to %d is possible", ds_gguf_name(r->g),
                       r->key, v, INT32_MAX);
    *out = (int32_t)v;
    return 1;
}

static int need_count(struct reader *r, const char *key, int32_t *out)
{
    int found = read_count(r, key, out);
    return found == 0  ? ds_fail(r->err, "%s: %s is missing", ds_gguf_name(r->g), r->key)
           : found < 0 ? -1
                       : 0;
}

/* As read_count; `fallback` when absent: 0 or -1. */
static int count_or(struct reader *r, const char *key, int32_t fallback, int32_t *out)
{
    *out = fallback;
    return read_count(r, key, out) < 0 ? -1 : 0;
}

static int read_real(struct reader *r, const char *key, float *out)
{
    double v;
    int found = ds_gguf_get_f64(r->g, full_key(r, key), &v, r->err);
    if (found == 1)
        *out = (float)v;
    return found;
}

/* A key whose neutral value is written as 0 by some converters. */
static int is_neutral(const char *key, double v, double neutral)
{
    return v == neutral || (v == 0 && strncmp(key, "expert_", 7) == 0);
}

/* Keys that change the computation in a way this build does not do, unless they hold their neutral
 * value. */
static int refuse_others(struct reader *r)
{
    static const struct {
        const char *key;
        double neutral;
        const char *what;
    } refused[] = {
        {"expert_shared_count", 0, "a number of shared experts is"},
        {"expert_group_count", 0, "groups of experts are"},
        {"expert_group_used_count", 0, "groups of experts are"},
        {"expert_weights_scale", 1, "scaling of the experts' weights is"},
        {"expert_gating_func", 1, "another choice of experts than by softmax is"},
        {"moe_every_n_layers", 0, "experts in layers 1, n + 1, 2n + 1, ... are"},
        {"attention.causal", 1, "attention that is not causal is"},
        {"attention.max_alibi_bias", 0, "an attention bias by distance is"},
        {"attention.clamp_kqv", 0, "clamping of q, k and v is"},
        {"attention.scale", 0, "another attention scale than 1/sqrt(head_dim) is"},
        {"final_logit_softcapping", 0, "soft-capping of logits is"},
        {"logit_scale", 1, "scaling of logits is"},
        {"embedding_scale", 1, "scaling of embeddings is"},
        {"residual_scale", 1, "scaling of residuals is"},
        {"use_parallel_residual", 0, "a parallel residual is"},
        {"rope.scaling.attn_factor", 1, "scaling of attention by the rope factor is"},
    };
    for (size_t i = 0; i < COUNT(refused); i++) {
        double v;
        uint64_t whole;
        const char *key = full_key(r, refused[i].key);
        int found = ds_gguf_get_f64(r->g, key, &v, NULL);
        if (found < 0) { /* not a real number: perhaps a truth value */
            found = ds_gguf_get_u64(r->g, key, &whole, NULL);
            v = found == 1 ? (double)whole : (double)NAN;
        }
        if (found != 0 && !is_neutral(refused[i].key, v, refused[i].neutral))
            return ds_fail(r->err, "%s: %s: %s not supported", ds_gguf_name(r->g), key,
                           refused[i].what);
    }
    return 0;
}

/* Experts: how many, how many of them a row passes, and their widths. Their number is checked
 * against the file before anything is allocated for each of them: every layer has three matrices
 * for each expert, and each of those lies in the file. */
static int read_experts(struct reader *r, const struct model_arch *arch, struct ds_hparams *hp)
{
    uint64_t count = 0, used = 0, norm;
    if (ds_gguf_get_u64(r->g, full_key(r, "expert_count"), &count, r->err) < 0)
        return -1;
    if (count == 0 && arch->needs_experts)
        return ds_fail(r->err, "%s: %s is missing", ds_gguf_name(r->g), r->key);
    if (count > MODEL_MOST_EXPERTS)
        return ds_fail(r->err, "%s: %s is %" PRIu64 "; at most %d are possible", ds_gguf_name(r->g),
                       r->key, count, MODEL_MOST_EXPERTS);
    if (count && count * 3 > ds_gguf_size(r->g) / (uint64_t)hp->n_layers)
        return ds_fail(r->err, "%s: %s is %" PRIu64 ", in %d layers: more than the file can hold",
                       ds_gguf_name(r->g), r->key, count, hp->n_layers);
    if (ds_gguf_get_u64(r->g, full_key(r, "expert_used_count"), &used, r->err) < 0)
        return -1;
    if (count && !arch->has_experts)
        return ds_fail(r->err, "%s: %s.expert_count is %" PRIu64 ", but a %s model has none",
                       ds_gguf_name(r->g), r->arch, count, arch->name);
    if (count == 0)
        return used ? ds_fail(r->err, "%s: %s is %" PRIu64 " without %s.expert_count",
                              ds_gguf_name(r->g), r->key, used, r->arch)
                    : 0;
    if (used < 1 || used > count)
        return ds_fail(r->err, "%s: %s is %" PRIu64 " of %" PRIu64 " experts", ds_gguf_name(r->g),
                       r->key, used, count);
    hp->n_experts = (int32_t)count;
    hp->top_k = (int32_t)used;
    hp->norm_top_k = arch->norm_top_k;
    uint64_t dense = 0;
    if (ds_gguf_get_u64(r->g, full_key(r, "leading_dense_block_count"), &dense, r->err) < 0)
        return -1;
    if (dense >= (uint64_t)hp->n_layers)
        return ds_fail(r->err, "%s: %s is %" PRIu64 " of %d layers: none is left with experts",
                       ds_gguf_name(r->g), r->key, dense, hp->n_layers);
    hp->dense_layers = (int32_t)dense;
    uint64_t every = 0;
    if (ds_gguf_get_u64(r->g, full_key(r, "interleave_moe_layer_step"), &every, r->err) < 0)
        return -1;
    if (every > INT32_MAX)
        return ds_fail(r->err, "%s: %s is %" PRIu64 "; at most %d is possible", ds_gguf_name(r->g),
                       r->key, every, INT32_MAX);
    hp->expert_every = every > 1 ? (int32_t)every : 0;
    int found = ds_gguf_get_u64(r->g, full_key(r, "expert_weights_norm"), &norm, r->err);
    if (found == 1)
        hp->norm_top_k = norm != 0;
    return found < 0 ? -1 : 0;
}

/* The widths, once feed_forward_length is known. Files without the keys mean what engines take for
 * it. */
static int read_expert_widths(struct reader *r, const struct model_arch *arch,
                              struct ds_hparams *hp)
{
    if (hp->n_experts == 0)
        return 0;
    int32_t plain = arch->needs_experts ? hp->d_ff / hp->top_k : hp->d_ff;
    if (count_or(r, "expert_feed_forward_length", plain, &hp->d_ff_expert) ||
        (arch->shared_expert &&
         count_or(r, "expert_shared_feed_forward_length", hp->d_ff, &hp->d_ff_shared)))
        return -1;
    return hp->d_ff_expert < 1 ? ds_fail(r->err, "%s: %s.expert_feed_forward_length is missing",
                                         ds_gguf_name(r->g), r->arch)
                               : 0;
}

/* One number for each layer: not 0 where it has the window. */
static int read_window_list(struct reader *r, struct ds_hparams *hp)
{
    int64_t *layers;
    size_t n;
    if (ds_gguf_array_i64(r->g, r->key, &layers, &n, r->err) < 0)
        return -1;
    if (n != (size_t)hp->n_layers)
        ds_fail(r->err, "%s: %s tells of %zu layers, and there are %d", ds_gguf_name(r->g), r->key,
                n, hp->n_layers);
    const int rc = n != (size_t)hp->n_layers
                       ? -1
                       : ds_hparams_list_windows(hp, layers, ds_gguf_name(r->g), r->err);
    free(layers);
    return rc;
}

/* Which layers have the window: all but one in so many, or as listed. */
static int read_pattern(struct reader *r, struct ds_hparams *hp)
{
    uint64_t every = 0;
    int type;
    size_t n;
    const char *key = full_key(r, "attention.sliding_window_pattern");
    if (ds_gguf_get_array(r->g, key, &type, &n, NULL) == 1)
        return read_window_list(r, hp);
    if (ds_gguf_get_u64(r->g, key, &every, r->err) < 0)
        return -1;
    if (every > INT32_MAX)
        return ds_fail(r->err, "%s: %s is %" PRIu64 "; at most %d is possible", ds_gguf_name(r->g),
                       r->key, every, INT32_MAX);
    hp->window_every = (int32_t)every;
    return 0;
}

/* A query sees so many slots, in all layers or but for one in so many; scores are capped. */
static int read_attention_form(struct reader *r, struct ds_hparams *hp)
{
    uint64_t window = 0;
    if (ds_gguf_get_u64(r->g, full_key(r, "attention.sliding_window"), &window, r->err) < 0)
        return -1;
    if (window > INT32_MAX)
        return ds_fail(r->err, "%s: %s is %" PRIu64 "; at most %d is possible", ds_gguf_name(r->g),
                       r->key, window, INT32_MAX);
    hp->window = (int32_t)window;
    return read_pattern(r, hp) != 0                                    ? -1
           : read_real(r, "attn_logit_softcapping", &hp->soft_cap) < 0 ? -1
                                                                       : 0;
}

static int read_heads(struct reader *r, struct ds_hparams *hp)
{
    int32_t key_length, value_length;
    if (need_count(r, "attention.head_count", &hp->n_heads) ||
        count_or(r, "attention.head_count_kv", hp->n_heads, &hp->n_kv_heads) ||
        count_or(r, "attention.key_length", 0, &key_length) ||
        count_or(r, "attention.value_length", key_length, &value_length))
        return -1;
    if (key_length == 0)
        key_length = value_length;
    if (key_length != value_length)
        return ds_fail(r->err,
                       "%s: %s.attention.key_length is %d and value_length is %d; only equal ones "
                       "are supported",
                       ds_gguf_name(r->g), r->arch, key_length, value_length);
    if (key_length == 0 && hp->d_model % hp->n_heads)
        return ds_fail(r->err,
                       "%s: %s.embedding_length %d is not a multiple of attention.head_count %d, "
                       "and there is no "
                       "attention.key_length",
                       ds_gguf_name(r->g), r->arch, hp->d_model, hp->n_heads);
    hp->head_dim = key_length ? key_length : hp->d_model / hp->n_heads;
    return 0;
}

static int read_rope(struct reader *r, struct ds_hparams *hp)
{
    hp->rope_base = 10000.0f;
    hp->rope_scale = 1.0f;
    if (count_or(r, "rope.dimension_count", hp->head_dim, &hp->rope_dim) ||
        read_real(r, "rope.freq_base", &hp->rope_base) < 0)
        return -1;
    struct ds_gguf_str type;
    int found = ds_gguf_get_str(r->g, full_key(r, "rope.scaling.type"), &type, r->err);
    if (found < 0)
        return -1;
    if (found && type.len == 4 && memcmp(type.data, "none", 4) == 0)
        return 0;
    if (found && !(type.len == 6 && memcmp(type.data, "linear", 6) == 0)) {
        struct ds_buf shown = {0};
        ds_buf_escape(&shown, type.data, type.len < 64 ? type.len : 64);
        ds_fail(r->err, "%s: %s is \"%s\", which is not supported", ds_gguf_name(r->g), r->key,
                shown.data ? shown.data : "");
        ds_buf_free(&shown);
        return ds_hint(r->err, "\"none\" and \"linear\" are");
    }
    /* Without a type a factor means linear scaling, and so does the older key; 0 means none, as
     * engines read it. */
    int factor = read_real(r, "rope.scaling.factor", &hp->rope_scale);
    if (factor == 0)
        factor = read_real(r, "rope.scale_linear", &hp->rope_scale);
    if (factor == 1 && hp->rope_scale == 0.0f)
        hp->rope_scale = 1.0f;
    return factor < 0 ? -1 : 0;
}

/* The vocabulary's size is the number of rows of the embedding table unless a key says it. */
static int read_vocab(struct reader *r, struct ds_hparams *hp)
{
    int found = read_count(r, "vocab_size", &hp->vocab);
    if (found)
        return found < 0 ? -1 : 0;
    const struct ds_gguf_tensor *t = ds_gguf_tensor_find(r->g, "token_embd.weight");
    if (!t)
        return ds_fail(r->err, "%s: tensor token_embd.weight is missing", ds_gguf_name(r->g));
    if (t->dims[1] > INT32_MAX)
        return ds_fail(r->err,
                       "%s: tensor token_embd.weight has %" PRIu64 " rows; at most %d are possible",
                       ds_gguf_name(r->g), t->dims[1], INT32_MAX);
    hp->vocab = (int32_t)t->dims[1];
    return 0;
}

int ds_model_read_hparams(const struct ds_gguf *g, const struct model_arch *arch,
                          struct ds_hparams *hp, struct ds_error *err)
{
    struct reader r = {.g = g, .arch = arch->name, .err = err};
    memset(hp, 0, sizeof *hp);
    snprintf(hp->arch, sizeof hp->arch, "%s", arch->name);
    hp->rope_neox = arch->rope_neox;
    hp->qk_norm = arch->qk_norm;
    if (refuse_others(&r) || need_count(&r, "block_count", &hp->n_layers) ||
        read_experts(&r, arch, hp))
        return -1;
    full_key(&r, "block_count");
    /* Before anything is allocated per layer: each layer needs tensors, and those are in the file.
     */
    uint64_t least = ds_model_arch_min_tensors(arch, hp);
    if (least > ds_gguf_tensor_count(g))
        return ds_fail(
            err, "%s: %s is %d, which needs at least %" PRIu64 " tensors, but the file has %zu",
            ds_gguf_name(g), r.key, hp->n_layers, least, ds_gguf_tensor_count(g));
    if (need_count(&r, "context_length", &hp->context) ||
        need_count(&r, "embedding_length", &hp->d_model) ||
        need_count(&r, "feed_forward_length", &hp->d_ff) || read_expert_widths(&r, arch, hp) ||
        read_heads(&r, hp) || read_attention_form(&r, hp) || read_rope(&r, hp) ||
        read_vocab(&r, hp))
        return -1;
    int found = read_real(&r, "attention.layer_norm_rms_epsilon", &hp->rms_eps);
    if (found <= 0)
        return found < 0 ? -1 : ds_fail(err, "%s: %s is missing", ds_gguf_name(g), r.key);
    return ds_model_check_hparams(hp, ds_gguf_name(g), err);
}
