/* random_spec.c: the keys of "random:ARCH,key=value,...": names, ranges, defaults, and the
 * hyperparameters that they make. Owns the text; knows no weights. */
#include "engine/random_spec.h"

#include "base/buf.h"
#include "base/names.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    {"window_every", 0, 1 << 30, 0},
    {"dense_layers", 0, 10000, 0},
    {"expert_every", 1, 10000, 1},
    {"heads_alike", 0, 1, 0},
    {"head_seed", 0, 1 << 30, 0},
};

static const char *const key_names[K_COUNT] = {
    "layers",       "hidden",       "heads",       "kv_heads",    "head_dim",     "ffn",
    "vocab",        "ctx",          "rope_dim",    "tied",        "bias",         "experts",
    "top_k",        "expert_ffn",   "shared_ffn",  "norm_top_k",  "window",       "window_every",
    "dense_layers", "expert_every", "heads_alike", "head_seed",   "seed",         "rope_base",
    "rope_scale",   "eps",          "softcap",     "embed_scale", "router_scale", "loud",
    "k_bias",       "window_layers"};

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

/* "LAYER;LAYER...": those that have the window. */
static int parse_window_layers(const char *text, struct spec *s)
{
    for (const char *from = text; text == from || text[-1] == ';';) {
        uint64_t layer = 0;
        for (from = text; *text >= '0' && *text <= '9' && layer < 1u << 30; text++)
            layer = layer * 10 + (uint64_t)(*text - '0');
        if (text == from || (*text && *text != ';') || layer >= DS_LISTED_LAYERS)
            return -1;
        s->window_map[layer / 64] |= (uint64_t)1 << (layer % 64);
        if (*text == '\0')
            return 0;
        text++;
    }
    return -1;
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
    case K_WINDOW_LAYERS:
        rc = parse_window_layers(text, s);
        want = "LAYER;LAYER;... is wanted, each below 512";
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
    char all[400] = "";
    for (int k = 0; k < K_COUNT; k++)
        snprintf(all + strlen(all), sizeof all - strlen(all), " %s", key_names[k]);
    return ds_hint(err, "keys:%s", all);
}

/* Cuts `text` (changed in place) at its commas. */
int ds_random_spec_parse(char *text, struct spec *s, struct ds_error *err)
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
        return v[K_DENSE_LAYERS]       ? ds_fail(err, "dense_layers is given, but no experts")
               : v[K_EXPERT_EVERY] > 1 ? ds_fail(err, "expert_every is given, but no experts")
                                       : 0;
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
    hp->dense_layers = v[K_DENSE_LAYERS];
    if (hp->dense_layers >= hp->n_layers)
        return ds_fail(err, "dense_layers=%d of %d layers: none is left with experts",
                       hp->dense_layers, hp->n_layers);
    hp->expert_every = v[K_EXPERT_EVERY] > 1 ? v[K_EXPERT_EVERY] : 0;
    if ((int64_t)hp->n_experts * hp->n_layers > 1 << 20)
        return ds_fail(err, "%d experts in %d layers are too many", hp->n_experts, hp->n_layers);
    return 0;
}

/* Which layers have the window: the list, or all but one in so many. */
static int spec_windows(const struct spec *s, struct ds_hparams *hp, struct ds_error *err)
{
    int64_t layers[DS_LISTED_LAYERS];
    hp->window = s->integer[K_WINDOW];
    hp->window_every = s->integer[K_WINDOW_EVERY];
    if (!(s->given & (1u << K_WINDOW_LAYERS)))
        return 0;
    if (s->given & (1u << K_WINDOW_EVERY))
        return ds_fail(err, "window_every and window_layers both say which layers have a window");
    if (!hp->window)
        return ds_fail(err, "window_layers is given, but no window");
    for (int32_t i = 0; i < DS_LISTED_LAYERS; i++) {
        layers[i] = (int64_t)(s->window_map[i / 64] >> (i % 64) & 1);
        if (layers[i] && i >= hp->n_layers)
            return ds_fail(err, "window_layers: layer %d of %d", i, hp->n_layers);
    }
    if (hp->n_layers > DS_LISTED_LAYERS)
        return ds_fail(err, "window_layers is possible for %d layers", DS_LISTED_LAYERS);
    return ds_hparams_list_windows(hp, layers, "random", err);
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

int ds_random_spec_hparams(const struct spec *s, const struct model_arch *arch,
                           struct ds_hparams *hp, struct ds_error *err)
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
    hp->soft_cap = s->real[K_SOFTCAP - K_ROPE_BASE];
    return spec_experts(s, arch, hp, err) != 0 || spec_windows(s, hp, err) != 0 ||
                   spec_knobs(s, hp, err) != 0
               ? -1
               : ds_model_check_hparams(hp, "random", err);
}
