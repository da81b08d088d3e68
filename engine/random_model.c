/* random_model.c: seeded models, "random:ARCH,key=value,...". Owns how values are
 * made; knows no file and no text of a spec (random_spec.c).
 *
 * Every value comes from integer arithmetic and one exact scaling by a power of two, so that a spec
 * means the same bits on every machine: value i of a tensor is an odd integer below 2^24 in size
 * taken from splitmix64's output function at (key of the tensor) + (i + 1) * golden ratio, where
 * the key mixes the seed and the tensor's name. Values are uniform in
 * (-s, s) with s a power of two; no row, head or channel repeats. A layer's weights do not depend
 * on the number of layers. */
#include "engine/random_spec.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t max_bytes = (uint64_t)64 << 30;

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
    /* another head beside the same layers */
    const uint64_t own =
        slot->role == ROLE_HEAD ? (uint64_t)src->spec->integer[K_HEAD_SEED] << 32 : 0;
    r->key = tensor_key(src->spec->seed + own, w->name);
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

/* Value number `at` under a key: `bits` random bits as k in [-2^(bits-1), 2^(bits-1)); 2k + 1 is
 * odd and below 2^bits in size. */
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
    if (!arch || ds_random_spec_hparams(s, arch, &m->hp, err))
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

/* A model with nothing in it but its name, and what the name asks for. *text is to be freed: s->arch lies in it. */
static int begin(const char *name, struct ds_model **m, struct spec *s, char **text,
                 struct ds_error *err)
{
    const size_t length = strlen(name);
    *m = NULL;
    if (!(*text = ds_calloc(length + 1, 1, "model spec", err)) ||
        !(*m = ds_calloc(1, sizeof **m, "model", err)))
        return -1;
    memcpy(*text, name, length);
    snprintf((*m)->name, sizeof(*m)->name, "%s", name);
    return ds_random_spec_parse(*text + strlen("random:"), s, err);
}

int ds_model_from_random(const char *spec, int threads, struct ds_model **out, struct ds_error *err)
{
    struct spec s = {0};
    char *text;
    int rc = begin(spec, out, &s, &text, err);
    if (rc == 0)
        rc = build(*out, &s, threads, err);
    free(text);
    if (rc) {
        ds_model_close(*out);
        *out = NULL;
        return ds_prefix(err, "%.200s", spec);
    }
    return 0;
}

/* ---- names of others ------------------------------------------------------------------------- */

struct bounded {
    struct random_source source; /* first: random_pick is given its address */
    const struct ds_random_bounds *bounds;
    uint64_t bytes;
};

/* The weight, if the name may have it: as random_pick takes it, and nothing is filled. */
static int bounded_pick(void *ctx, size_t index, const struct model_slot *slot, struct ds_weight *w,
                        struct ds_error *err)
{
    struct bounded *x = ctx;
    const struct ds_random_bounds *b = x->bounds;
    const int has = random_pick(&x->source, index, slot, w, err);
    uint64_t bytes;
    if (has <= 0)
        return has;
    if (index >= (b->n_weights ? b->n_weights : b->most_weights))
        return ds_fail(err, "it has more than %llu weights",
                       (unsigned long long)(b->n_weights ? b->n_weights : b->most_weights));
    if (__builtin_mul_overflow((uint64_t)w->rows, (uint64_t)w->cols, &bytes) ||
        __builtin_mul_overflow(bytes, sizeof(float), &bytes) ||
        __builtin_add_overflow(bytes, x->bytes, &x->bytes) || x->bytes > b->most_bytes)
        return ds_fail(err, "its weights are more than %.1f GiB",
                       (double)b->most_bytes / 1073741824.0);
    return b->listed && b->listed(b->ctx, index, w->name, w->rows, w->cols, err) != 0 ? -1 : 1;
}

/* Layers and experts before there is a list as long as they say. */
static int check_counts(const struct model_arch *arch, const struct ds_hparams *hp,
                        const struct ds_random_bounds *b, struct ds_error *err)
{
    const uint64_t most = b->n_weights ? b->n_weights : b->most_weights;
    return ds_model_arch_min_tensors(arch, hp) > most || (uint64_t)hp->n_experts > most
               ? ds_fail(err, "it has more than %llu weights", (unsigned long long)most)
               : 0;
}

int ds_model_random_fits(const char *name, const struct ds_random_bounds *bounds,
                         struct ds_error *err)
{
    struct spec s = {0};
    struct ds_model *m;
    char *text;
    const struct model_arch *arch = NULL;
    struct bounded x = {.source = {.spec = &s}, .bounds = bounds};
    const struct model_source src = {.pick = bounded_pick, .ctx = &x};
    int rc = begin(name, &m, &s, &text, err);
    if (rc == 0)
        rc = (arch = ds_model_arch_find(s.arch, err)) ? 0 : -1;
    if (rc == 0)
        rc = ds_random_spec_hparams(&s, arch, &m->hp, err);
    if (rc == 0)
        rc = check_counts(arch, &m->hp, bounds, err);
    if (rc == 0)
        rc = ds_model_layout(m, arch, &src, err);
    if (rc == 0 && bounds->n_weights && m->n_weights != bounds->n_weights)
        rc = ds_fail(err, "it has %zu weights, not %llu", m->n_weights,
                     (unsigned long long)bounds->n_weights);
    free(x.source.recipes);
    free(text);
    ds_model_close(m);
    return rc;
}
