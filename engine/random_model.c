/* random_model.c: seeded models, "random:ARCH,key=value,...". Owns the spec's keys and how values
 * are made; knows no file.
 *
 * Every value comes from integer arithmetic and one exact scaling by a power of two, so that a spec
 * means the same bits on every machine: value i of a tensor is an odd integer below 2^24 in size
 * taken from splitmix64's output function at (key of the tensor) + (i + 1) * golden ratio, where
 * the key mixes the seed and the tensor's name. Values are uniform in
 * (-s, s) with s a power of two; no row, head or channel repeats. A layer's weights do not depend
 * on the number of layers. */
#include "engine/model_priv.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/names.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static const uint64_t max_bytes = (uint64_t)64 << 30;

enum {
    K_LAYERS,
    K_HIDDEN,
    K_HEADS,
    K_KV_HEADS,
    K_HEAD_DIM,
    K_FFN,
    K_VOCAB,
    K_CTX,
    K_ROPE_DIM,
    K_TIED,
    K_BIAS,
    K_EXPERTS,
    K_TOP_K,
    K_EXPERT_FFN,
    K_SHARED_FFN,
    K_NORM_TOP_K,
    K_WINDOW,
    K_HEADS_ALIKE,
    K_INTEGERS,
    K_SEED = K_INTEGERS,
    K_ROPE_BASE,
    K_ROPE_SCALE,
    K_EPS,
    K_SOFTCAP,
    K_EMBED_SCALE,
    K_ROUTER_SCALE,
    K_LOUD,
    K_LAST_REAL = K_LOUD,
    K_K_BIAS,
    K_COUNT
};

/* Integer keys: range. -1 as default: derived from the others. */
static const struct {
    const char *name;
    int32_t least, most, fallback;
} integer_keys[K_INTEGERS] = {
    {"layers", 1, 10000, 4},
    {"hidden", 1, 1 << 20, 64},
    {"heads", 1, 1 << 16, 4},
    {"kv_heads", 1, 1 << 16, -1},
    {"head_dim", 2, 1 << 16, -1},
    {"ffn", 1, 1 << 22, -1},
    {"vocab", 1, 1 << 24, 512},
    {"ctx", 1, 1 << 30, 2048},
    {"rope_dim", 2, 1 << 16, -1},
    {"tied", 0, 1, 0},
    {"bias", 0, 1, 0},
    {"experts", 0, MODEL_MOST_EXPERTS, -1},
    {"top_k", 1, MODEL_MOST_EXPERTS, -1},
    {"expert_ffn", 1, 1 << 22, -1},
    {"shared_ffn", 1, 1 << 22, -1},
    {"norm_top_k", 0, 1, -1},
    {"window", 0, 1 << 30, 0},
    {"heads_alike", 0, 1, 0},
};

static const char *const key_names[K_COUNT] = {
    "layers",       "hidden",     "heads",      "kv_heads",   "head_dim", "ffn",
    "vocab",        "ctx",        "rope_dim",   "tied",       "bias",     "experts",
    "top_k",        "expert_ffn", "shared_ffn", "norm_top_k", "window",   "heads_alike",
    "seed",         "rope_base",  "rope_scale", "eps",        "softcap",  "embed_scale",
    "router_scale", "loud",       "k_bias"};

enum { MOST_CHANNELS = 16 };
struct channel_bias {
    int32_t channel;
    float value;
};

struct spec {
    const char *arch; /* in the caller's copy of the text */
    int32_t integer[K_INTEGERS];
    uint64_t seed;
    float real[K_LAST_REAL - K_ROPE_BASE + 1];
    float loud; /* factor of gate, up and down in layer loud_layer */
    int32_t loud_layer;
    struct channel_bias k_bias[MOST_CHANNELS];
    int32_t n_k_bias;
    unsigned given; /* bit per key, to refuse one given twice */
};

/* ---- reading the spec ------------------------------------------------------------------------ */

static int bad_value(const char *key, const char *text, const char *want, struct ds_error *err)
{
    struct ds_buf shown = {0};
    ds_buf_escape(&shown, text, strnlen(text, 64));
    ds_fail(err, "%s=%s: %s", key, shown.data ? shown.data : "", want);
    ds_buf_free(&shown);
    return -1;
}

static int bad_word(const char *word, struct ds_error *err)
{
    struct ds_buf shown = {0};
    ds_buf_escape(&shown, word, strnlen(word, 64));
    ds_fail(err, "\"%s\" is not of the form key=value", shown.data ? shown.data : "");
    ds_buf_free(&shown);
    return -1;
}

/* A whole number in decimal, digits only. */
static int parse_u64(const char *text, uint64_t *out)
{
    uint64_t v = 0;
    if (!*text)
        return -1;
    for (; *text; text++)
        if (*text < '0' || *text > '9' || __builtin_mul_overflow(v, (uint64_t)10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(*text - '0'), &v))
            return -1;
    *out = v;
    return 0;
}

/* A finite f32, read without regard to the user's locale; **end is what stands behind it. */
static int parse_real(const char *text, const char **end, float *out)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (c == (locale_t)0)
        return -1;
    char *stop;
    *out = strtof_l(text, &stop, c);
    freelocale(c);
    *end = stop;
    return stop == text || !isfinite(*out) ? -1 : 0;
}

static int parse_positive(const char *text, float *out)
{
    const char *end;
    return parse_real(text, &end, out) != 0 || *end || !(*out > 0.0f) ? -1 : 0;
}

/* "FACTOR@LAYER" */
static int parse_loud(const char *text, struct spec *s)
{
    const char *end;
    uint64_t layer;
    if (parse_real(text, &end, &s->loud) != 0 || !(s->loud > 0.0f) || *end != '@' ||
        parse_u64(end + 1, &layer) != 0 || layer > INT32_MAX)
        return -1;
    s->loud_layer = (int32_t)layer;
    return 0;
}

/* "VALUE@CHANNEL;CHANNEL...": channels of the whole k row. */
static int parse_k_bias(const char *text, struct spec *s)
{
    float value;
    if (parse_real(text, &text, &value) != 0 || *text != '@')
        return -1;
    while (*text) {
        uint64_t channel = 0;
        const char *from = ++text;
        for (; *text >= '0' && *text <= '9' && channel < 1u << 30; text++)
            channel = channel * 10 + (uint64_t)(*text - '0');
        if (text == from || (*text && *text != ';') || s->n_k_bias == MOST_CHANNELS)
            return -1;
        s->k_bias[s->n_k_bias++] = (struct channel_bias){(int32_t)channel, value};
    }
    return 0;
}

static int set_integer(struct spec *s, int key, const char *text, struct ds_error *err)
{
    uint64_t v;
    /* Where -1 stands for "not given", 0 may be a value. */
    if (parse_u64(text, &v) || v < (uint64_t)integer_keys[key].least ||
        v > (uint64_t)integer_keys[key].most) {
        char want[64];
        snprintf(want, sizeof want, "a whole number from %d to %d is wanted",
                 integer_keys[key].least, integer_keys[key].most);
        return bad_value(key_names[key], text, want, err);
    }
    s->integer[key] = (int32_t)v;
    return 0;
}

static int set_key(struct spec *s, int key, const char *text, struct ds_error *err)
{
    if (s->given & (1u << key))
        return ds_fail(err, "%s is given twice", key_names[key]);
    s->given |= 1u << key;
    if (key < K_INTEGERS)
        return set_integer(s, key, text, err);
    int rc = -1;
    const char *want = "a positive number is wanted";
    switch (key) {
    case K_SEED:
        rc = parse_u64(text, &s->seed);
        want = "a whole number below 2^64 is wanted";
        break;
    case K_LOUD:
        rc = parse_loud(text, s);
        want = "FACTOR@LAYER is wanted, such as 1000@2";
        break;
    case K_K_BIAS:
        rc = parse_k_bias(text, s);
        want = "VALUE@CHANNEL;CHANNEL;... is wanted, at most 16 channels";
        break;
    default:
        rc = parse_positive(text, &s->real[key - K_ROPE_BASE]);
        break;
    }
    return rc ? bad_value(key_names[key], text, want, err) : 0;
}

static int unknown_key(const char *word, struct ds_error *err)
{
    struct ds_buf shown = {0};
    ds_buf_escape(&shown, word, strnlen(word, 64));
    ds_fail(err, "unknown key \"%s\"", shown.data ? shown.data : "");
    ds_buf_free(&shown);
    int near = ds_nearest(word, key_names, K_COUNT);
    if (near >= 0)
        return ds_hint(err, "did you mean \"%s\"?", key_names[near]);
    char all[320] = "";
    for (int k = 0; k < K_COUNT; k++)
        snprintf(all + strlen(all), sizeof all - strlen(all), " %s", key_names[k]);
    return ds_hint(err, "keys:%s", all);
}

/* Cuts `text` (changed in place) at its commas. */
static int parse_spec(char *text, struct spec *s, struct ds_error *err)
{
    for (int k = 0; k < K_INTEGERS; k++)
        s->integer[k] = integer_keys[k].fallback;
    static const float reals[] = {
        [K_ROPE_BASE - K_ROPE_BASE] = 10000.0f, [K_ROPE_SCALE - K_ROPE_BASE] = 1.0f,
        [K_EPS - K_ROPE_BASE] = 1e-5f,          [K_SOFTCAP - K_ROPE_BASE] = 0.0f,
        [K_EMBED_SCALE - K_ROPE_BASE] = 1.0f,   [K_ROUTER_SCALE - K_ROPE_BASE] = 1.0f};
    memcpy(s->real, reals, sizeof reals);
    s->seed = 7;
    s->loud = 1.0f;
    s->loud_layer = -1;
    s->arch = strsep(&text, ",");
    for (char *word; (word = strsep(&text, ",")) != NULL;) {
        char *value = strchr(word, '=');
        if (!value)
            return bad_word(word, err);
        *value++ = '\0';
        int key = 0;
        while (key < K_COUNT && strcmp(word, key_names[key]) != 0)
            key++;
        if (key == K_COUNT)
            return unknown_key(word, err);
        if (set_key(s, key, value, err))
            return -1;
    }
    return 0;
}

static int spec_experts(const struct spec *s, const struct model_arch *arch, struct ds_hparams *hp,
                        struct ds_error *err)
{
    const int32_t *v = s->integer;
    const int32_t dense = v[K_EXPERTS] == 0 || (v[K_EXPERTS] < 0 && !arch->needs_experts);
    if (dense && arch->needs_experts)
        return ds_fail(err, "a %s model has experts", arch->name);
    for (int k = K_TOP_K; k <= K_NORM_TOP_K && dense; k++)
        if (v[k] >= 0)
            return ds_fail(err, "%s is given, but no experts", key_names[k]);
    if (dense)
        return 0;
    if (!arch->has_experts)
        return ds_fail(err, "a %s model has no experts", arch->name);
    hp->n_experts = v[K_EXPERTS] > 0 ? v[K_EXPERTS] : 8;
    hp->top_k = v[K_TOP_K] > 0 ? v[K_TOP_K] : hp->n_experts < 2 ? 1 : 2;
    hp->d_ff_expert = v[K_EXPERT_FFN] > 0 ? v[K_EXPERT_FFN] : hp->d_ff;
    hp->norm_top_k = v[K_NORM_TOP_K] >= 0 ? v[K_NORM_TOP_K] : arch->norm_top_k;
    if (arch->shared_expert)
        hp->d_ff_shared = v[K_SHARED_FFN] > 0 ? v[K_SHARED_FFN] : hp->d_ff;
    else if (v[K_SHARED_FFN] > 0)
        return ds_fail(err, "a %s model has no expert that all rows pass", arch->name);
    if ((int64_t)hp->n_experts * hp->n_layers > 1 << 20)
        return ds_fail(err, "%d experts in %d layers are too many", hp->n_experts, hp->n_layers);
    return 0;
}

static int spec_knobs(const struct spec *s, const struct ds_hparams *hp, struct ds_error *err)
{
    int64_t width = (int64_t)hp->n_kv_heads * hp->head_dim;
    for (int32_t i = 0; i < s->n_k_bias; i++)
        if (s->k_bias[i].channel >= width)
            return ds_fail(err, "k_bias: channel %d of %lld", s->k_bias[i].channel,
                           (long long)width);
    if (s->loud_layer >= hp->n_layers)
        return ds_fail(err, "loud: layer %d of %d", s->loud_layer, hp->n_layers);
    return 0;
}

static int spec_hparams(const struct spec *s, const struct model_arch *arch, struct ds_hparams *hp,
                        struct ds_error *err)
{
    const int32_t *v = s->integer;
    snprintf(hp->arch, sizeof hp->arch, "%s", arch->name);
    hp->n_layers = v[K_LAYERS];
    hp->d_model = v[K_HIDDEN];
    hp->n_heads = v[K_HEADS];
    hp->n_kv_heads = v[K_KV_HEADS] > 0 ? v[K_KV_HEADS]
                     : hp->n_heads % 2 ? hp->n_heads
                                       : hp->n_heads / 2;
    if (v[K_HEAD_DIM] < 0 && hp->d_model % hp->n_heads)
        return ds_fail(err, "hidden=%d is not a multiple of heads=%d; give head_dim", hp->d_model,
                       hp->n_heads);
    hp->head_dim = v[K_HEAD_DIM] > 0 ? v[K_HEAD_DIM] : hp->d_model / hp->n_heads;
    hp->d_ff = v[K_FFN] > 0 ? v[K_FFN] : 2 * hp->d_model;
    hp->vocab = v[K_VOCAB];
    hp->context = v[K_CTX];
    hp->rope_dim = v[K_ROPE_DIM] > 0 ? v[K_ROPE_DIM] : hp->head_dim;
    hp->rope_base = s->real[K_ROPE_BASE - K_ROPE_BASE];
    hp->rope_scale = s->real[K_ROPE_SCALE - K_ROPE_BASE];
    hp->rope_neox = arch->rope_neox;
    hp->rms_eps = s->real[K_EPS - K_ROPE_BASE];
    hp->qk_norm = arch->qk_norm;
    hp->window = v[K_WINDOW];
    hp->soft_cap = s->real[K_SOFTCAP - K_ROPE_BASE];
    return spec_experts(s, arch, hp, err) != 0 || spec_knobs(s, hp, err) != 0
               ? -1
               : ds_model_check_hparams(hp, "random", err);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The output function of splitmix64 (Steele, Lea, Flood 2014; public domain constants). */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t tensor_key(uint64_t seed, const char *name)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return mix(seed + 0x9e3779b97f4a7c15u) ^ mix(h);
}

/* What ds_model_fill needs to know of one weight. */
struct recipe {
    uint64_t key;
    int bits;                  /* the integer drawn is odd, below 2^bits in size */
    int exponent;              /* scaled by 2^exponent */
    float centre;              /* then added: 1 for norms, else 0; exact by the choice of bits */
    float factor;              /* of the whole, from the spec; 1: exact, as without it */
    int64_t period;            /* values repeat after so many: heads that are alike; 0 = never */
    int64_t common;            /* length of a row of values that is added to every row; 0 = none */
    const struct spec *k_bias; /* its channel values are added, or NULL */
};

struct random_source {
    const struct spec *spec;
    int64_t head_dim;
    struct recipe *recipes; /* one per weight taken */
    size_t cap;
};

/* The smallest e with 3 * 4^e >= fan_in: a sum of fan_in products with unit inputs then has a
 * variance in (1/4, 1]. */
static int fan_exponent(int64_t fan_in)
{
    int e = 0;
    while (((uint64_t)3 << (2 * e)) < (uint64_t)fan_in)
        e++;
    return e;
}

static int is_member(const struct model_slot *slot, size_t a, size_t b, size_t c)
{
    return slot->member == a || slot->member == b || slot->member == c;
}

#define AT(m) offsetof(struct ds_layer, m)

/* What the spec asks for beyond seeded values. */
static void make_knobs(struct recipe *r, const struct random_source *src,
                       const struct model_slot *slot, const struct ds_weight *w)
{
    const struct spec *s = src->spec;
    int layer = -1;
    r->factor = slot->role == ROLE_EMBED    ? s->real[K_EMBED_SCALE - K_ROPE_BASE]
                : slot->role == ROLE_ROUTER ? s->real[K_ROUTER_SCALE - K_ROPE_BASE]
                                            : 1.0f;
    r->period = 0;
    /* Experts that are nearly alike: what they share, and a little of their own. */
    r->common = slot->role == ROLE_ROUTER && r->factor != 1.0f ? w->cols : 0;
    r->k_bias = NULL;
    if (sscanf(w->name, "blk.%d.", &layer) != 1)
        return;
    if (layer == s->loud_layer && (is_member(slot, AT(gate), AT(gate_exps), AT(gate_shared)) ||
                                   is_member(slot, AT(up), AT(up_exps), AT(up_shared)) ||
                                   is_member(slot, AT(down), AT(down_exps), AT(down_shared))))
        r->factor = s->loud;
    int matrix = is_member(slot, AT(q), AT(k), AT(v)),
        bias = is_member(slot, AT(q_bias), AT(k_bias), AT(v_bias));
    if (s->integer[K_HEADS_ALIKE] && (matrix || bias))
        r->period = src->head_dim * (matrix ? w->cols : 1);
    if (slot->member == AT(k_bias) && s->n_k_bias)
        r->k_bias = s;
}

static void make_recipe(struct recipe *r, const struct random_source *src,
                        const struct model_slot *slot, const struct ds_weight *w)
{
    int fan = fan_exponent(w->cols), scale = 0;
    r->centre = 0.0f;
    r->bits = 24;
    if (slot->role == ROLE_NORM) {
        /* 1 + k * 2^-23 with |k| < 2^20: exact, in (7/8, 9/8). */
        r->centre = 1.0f;
        r->bits = 20;
        scale = 3;
    } else if (slot->role == ROLE_BIAS) {
        scale = 3;
    } else if (slot->role == ROLE_EMBED) {
        /* A table that is the head too must not make logits grow with the width. */
        scale = src->spec->integer[K_TIED] ? fan / 2 : 0;
    } else {
        scale = fan;
    }
    r->key = tensor_key(src->spec->seed, w->name);
    r->exponent = -r->bits - scale;
    make_knobs(r, src, slot, w);
}

static int random_pick(void *ctx, size_t index, const struct model_slot *slot, struct ds_weight *w,
                       struct ds_error *err)
{
    struct random_source *src = ctx;
    int asked = src->spec->integer[K_BIAS] || slot->required ||
                (slot->member == AT(k_bias) && src->spec->n_k_bias);
    if ((slot->role == ROLE_BIAS && !asked) ||
        (slot->role == ROLE_HEAD && src->spec->integer[K_TIED]) || slot->role == ROLE_ROPE_FREQS)
        return 0;
    if (ds_grow(&src->recipes, &src->cap, index + 1, sizeof *src->recipes, "random weights", err))
        return -1;
    make_recipe(&src->recipes[index], src, slot, w);
    snprintf(w->file_dtype, sizeof w->file_dtype, "random");
    return 1;
}

/* Value number `at` under a key: `bits` random bits as k in [-2^(bits-1), 2^(bits-1)); 2k + 1 is odd
 * and below 2^bits in size. */
static float drawn(const struct recipe *r, uint64_t key, int64_t at)
{
    uint64_t x = mix(key + (uint64_t)(at + 1) * 0x9e3779b97f4a7c15u);
    int32_t k = (int32_t)(x >> (64 - r->bits)) - (1 << (r->bits - 1));
    return (float)(2 * k + 1);
}

static void random_fill(void *ctx, size_t index, int64_t from, int64_t n, float *dst)
{
    const struct recipe *r = &((const struct random_source *)ctx)->recipes[index];
    /* 2^exponent, exactly; exponents lie in -35..-23. */
    uint32_t scale_bits = (uint32_t)(127 + r->exponent) << 23;
    float scale;
    memcpy(&scale, &scale_bits, sizeof scale);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = from + i;
        dst[i] =
            (r->centre + drawn(r, r->key, r->period ? at % r->period : at) * scale) * r->factor;
        if (r->common)
            dst[i] += drawn(r, ~r->key, at % r->common) * scale;
    }
    for (int32_t c = 0; r->k_bias && c < r->k_bias->n_k_bias; c++) {
        int64_t at = r->k_bias->k_bias[c].channel - from;
        if (at >= 0 && at < n)
            dst[at] += r->k_bias->k_bias[c].value;
    }
}

/* ---- building -------------------------------------------------------------------------------- */

static int build(struct ds_model *m, const struct spec *s, int threads, struct ds_error *err)
{
    const struct model_arch *arch = ds_model_arch_find(s->arch, err);
    if (!arch || spec_hparams(s, arch, &m->hp, err))
        return -1;
    struct random_source ctx = {.spec = s, .head_dim = m->hp.head_dim};
    struct model_source src = {.pick = random_pick, .fill = random_fill, .ctx = &ctx};
    int rc = ds_model_layout(m, arch, &src, err);
    if (rc == 0 && m->arena_bytes > max_bytes)
        rc = ds_fail(err, "the weights would need %.1f GiB; at most %.0f GiB are allowed",
                     (double)m->arena_bytes / 1073741824.0, (double)max_bytes / 1073741824.0);
    if (rc == 0)
        rc = ds_model_fill(m, &src, threads, err);
    free(ctx.recipes);
    return rc;
}

int ds_model_from_random(const char *spec, int threads, struct ds_model **out, struct ds_error *err)
{
    size_t length = strlen(spec);
    char *text = ds_calloc(length + 1, 1, "model spec", err);
    struct ds_model *m = text ? ds_calloc(1, sizeof *m, "model", err) : NULL;
    if (!m) {
        free(text);
        return -1;
    }
    memcpy(text, spec, length);
    snprintf(m->name, sizeof m->name, "%s", spec);
    struct spec s = {0};
    int rc = parse_spec(text + strlen("random:"), &s, err);
    if (rc == 0)
        rc = build(m, &s, threads, err);
    free(text);
    if (rc) {
        ds_model_close(m);
        return ds_prefix(err, "%.200s", spec);
    }
    *out = m;
    return 0;
}
