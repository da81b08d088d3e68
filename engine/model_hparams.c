/* model_hparams.c: hyperparameters: reading them from a GGUF file, the checks that hold for every
 * source, and their text form. Knows metadata keys; knows no tensor but the embedding's shape. */
#include "engine/model_priv.h"

#include "base/buf.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* ---- text ------------------------------------------------------------------------------------ */

enum field_kind { TEXT, WHOLE, REAL };

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
};

int ds_hparam_text(const struct ds_hparams *hp, size_t i, const char **name, char *text,
                   size_t size)
{
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
    case REAL:
        memcpy(&real, at, sizeof real);
        snprintf(text, size, "%.9g", (double)real);
        break;
    }
    return 0;
}

/* ---- checks ---------------------------------------------------------------------------------- */

int ds_model_check_hparams(const struct ds_hparams *hp, const char *what, struct ds_error *err)
{
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

/* Keys that change the computation in a way this build does not do, unless they hold their neutral
 * value. */
static int refuse_others(struct reader *r)
{
    static const struct {
        const char *key;
        double neutral;
        const char *what;
    } refused[] = {
        {"expert_count", 0, "mixtures of experts are"},
        {"expert_used_count", 0, "mixtures of experts are"},
        {"attention.sliding_window", 0, "sliding-window attention is"},
        {"attention.causal", 1, "attention that is not causal is"},
        {"attention.max_alibi_bias", 0, "an attention bias by distance is"},
        {"attention.clamp_kqv", 0, "clamping of q, k and v is"},
        {"attention.scale", 0, "another attention scale than 1/sqrt(head_dim) is"},
        {"attn_logit_softcapping", 0, "soft-capping of attention scores is"},
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
        if (found != 0 && !(v == refused[i].neutral))
            return ds_fail(r->err, "%s: %s: %s not supported", ds_gguf_name(r->g), key,
                           refused[i].what);
    }
    return 0;
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
    if (refuse_others(&r) || need_count(&r, "block_count", &hp->n_layers))
        return -1;
    /* Before anything is allocated per layer: each layer needs tensors, and those are in the file.
     */
    uint64_t least = ds_model_arch_min_tensors(arch, (uint64_t)hp->n_layers);
    if (least > ds_gguf_tensor_count(g))
        return ds_fail(
            err, "%s: %s is %d, which needs at least %" PRIu64 " tensors, but the file has %zu",
            ds_gguf_name(g), r.key, hp->n_layers, least, ds_gguf_tensor_count(g));
    if (need_count(&r, "context_length", &hp->context) ||
        need_count(&r, "embedding_length", &hp->d_model) ||
        need_count(&r, "feed_forward_length", &hp->d_ff) || read_heads(&r, hp) ||
        read_rope(&r, hp) || read_vocab(&r, hp))
        return -1;
    int found = read_real(&r, "attention.layer_norm_rms_epsilon", &hp->rms_eps);
    if (found <= 0)
        return found < 0 ? -1 : ds_fail(err, "%s: %s is missing", ds_gguf_name(g), r.key);
    return ds_model_check_hparams(hp, ds_gguf_name(g), err);
}
