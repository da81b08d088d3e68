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
    K_INTEGERS,
    K_SEED = K_INTEGERS,
    K_ROPE_BASE,
    K_ROPE_SCALE,
    K_EPS,
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
};

static const char *const key_names[K_COUNT] = {
    "layers",   "hidden", "heads", "kv_heads", "head_dim",  "ffn",        "vocab", "ctx",
    "rope_dim", "tied",   "bias",  "seed",     "rope_base", "rope_scale", "eps"};

struct spec {
    const char *arch; /* in the caller's copy of the text */
    int32_t integer[K_INTEGERS];
    uint64_t seed;
    float rope_base, rope_scale, eps;
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

/* A positive finite f32, read without regard to the user's locale. */
static int parse_positive(const char *text, float *out)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (c == (locale_t)0)
        return -1;
    char *end;
    float v = strtof_l(text, &end, c);
    freelocale(c);
    if (end == text || *end || !(v > 0.0f) || !isfinite(v))
        return -1;
    *out = v;
    return 0;
}

static int set_key(struct spec *s, int key, const char *text, struct ds_error *err)
{
    if (s->given & (1u << key))
        return ds_fail(err, "%s is given twice", key_names[key]);
    s->given |= 1u << key;
    if (key == K_SEED)
        return parse_u64(text, &s->seed)
                   ? bad_value("seed", text, "a whole number below 2^64 is wanted", err)
                   : 0;
    if (key > K_SEED) {
        float *to = key == K_ROPE_BASE    ? &s->rope_base
                    : key == K_ROPE_SCALE ? &s->rope_scale
                                          : &s->eps;
        return parse_positive(text, to)
                   ? bad_value(key_names[key], text, "a positive number is wanted", err)
                   : 0;
    }
    uint64_t v;
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

static int unknown_key(const char *word, struct ds_error *err)
{
    struct ds_buf shown = {0};
    ds_buf_escape(&shown, word, strnlen(word, 64));
    ds_fail(err, "unknown key \"%s\"", shown.data ? shown.data : "");
    ds_buf_free(&shown);
    int near = ds_nearest(word, key_names, K_COUNT);
    if (near >= 0)
        return ds_hint(err, "did you mean \"%s\"?", key_names[near]);
    return ds_hint(err, "keys: layers hidden heads kv_heads head_dim ffn vocab ctx rope_dim "
                        "rope_base rope_scale eps tied "
                        "bias seed");
}

/* Cuts `text` (changed in place) at its commas. */
static int parse_spec(char *text, struct spec *s, struct ds_error *err)
{
    for (int k = 0; k < K_INTEGERS; k++)
        s->integer[k] = integer_keys[k].fallback;
    s->seed = 7;
    s->rope_base = 10000.0f;
    s->rope_scale = 1.0f;
    s->eps = 1e-5f;
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
    hp->rope_base = s->rope_base;
    hp->rope_scale = s->rope_scale;
    hp->rope_neox = arch->rope_neox;
    hp->rms_eps = s->eps;
    return ds_model_check_hparams(hp, "random", err);
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
    int bits;     /* the integer drawn is odd, below 2^bits in size */
    int exponent; /* scaled by 2^exponent */
    float centre; /* then added: 1 for norms, else 0; exact by the choice of bits */
};

struct random_source {
    const struct spec *spec;
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
}

static int random_pick(void *ctx, size_t index, const struct model_slot *slot, struct ds_weight *w,
                       struct ds_error *err)
{
    struct random_source *src = ctx;
    if ((slot->role == ROLE_BIAS && !src->spec->integer[K_BIAS]) ||
        (slot->role == ROLE_HEAD && src->spec->integer[K_TIED]) || slot->role == ROLE_ROPE_FREQS)
        return 0;
    if (ds_grow(&src->recipes, &src->cap, index + 1, sizeof *src->recipes, "random weights", err))
        return -1;
    make_recipe(&src->recipes[index], src, slot, w);
    snprintf(w->file_dtype, sizeof w->file_dtype, "random");
    return 1;
}

static void random_fill(void *ctx, size_t index, int64_t from, int64_t n, float *dst)
{
    const struct recipe *r = &((const struct random_source *)ctx)->recipes[index];
    /* 2^exponent, exactly; exponents lie in -35..-23. */
    uint32_t scale_bits = (uint32_t)(127 + r->exponent) << 23;
    float scale;
    memcpy(&scale, &scale_bits, sizeof scale);
    int shift = 64 - r->bits;
    for (int64_t i = 0; i < n; i++) {
        uint64_t x = mix(r->key + (uint64_t)(from + i + 1) * 0x9e3779b97f4a7c15u);
        /* `bits` random bits as k in [-2^(bits-1), 2^(bits-1)); 2k + 1 is odd and below 2^bits in
         * size. */
        int32_t k = (int32_t)(x >> shift) - (1 << (r->bits - 1));
        dst[i] = r->centre + (float)(2 * k + 1) * scale;
    }
}

/* ---- building -------------------------------------------------------------------------------- */

static int build(struct ds_model *m, const struct spec *s, int threads, struct ds_error *err)
{
    const struct model_arch *arch = ds_model_arch_find(s->arch, err);
    if (!arch || spec_hparams(s, arch, &m->hp, err))
        return -1;
    struct random_source ctx = {.spec = s};
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
