/* model_gguf.c: a model from an open GGUF file: finds each weight's tensor, checks its shape and
 * type, dequantises it. Owns the rule that every tensor of the file is used or known; knows no
 * bytes of the container. */
#include "engine/model_priv.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A weight's place in the file: a whole tensor, or one expert's share of it. */
struct taken {
    const struct ds_gguf_tensor *tensor;
    const struct ds_quant_type *type;
    const unsigned char *data;
    size_t bytes;
    int own; /* an expert's, in a tensor of its own */
};

struct gguf_source {
    const struct ds_gguf *g;
    const struct model_arch *arch;
    const struct ds_hparams *hp;
    int keep;            /* enum ds_weights */
    struct taken *taken; /* of each weight */
    size_t cap;
    unsigned char *used; /* [tensors in the file] */
    uint64_t bytes;      /* of all tensors taken, as they lie in the file */
    uint64_t largest;
};

static void shape_text(const struct ds_gguf_tensor *t, char *text, size_t size)
{
    size_t used = 0;
    for (uint32_t d = 0; d < t->n_dims && used < size; d++) {
        int n = snprintf(text + used, size - used, "%s%" PRIu64, d ? " x " : "", t->dims[d]);
        used += n > 0 ? (size_t)n : 0;
    }
}

/* A vector is stored with one dimension, a matrix with its row length first; trailing ones do not
 * matter. */
static int check_shape(const struct gguf_source *s, const struct ds_gguf_tensor *t,
                       const struct ds_weight *w, int own, struct ds_error *err)
{
    const uint64_t experts = w->expert < 0 || own ? 1 : (uint64_t)s->hp->n_experts;
    if (t->dims[0] == (uint64_t)w->cols && t->dims[1] == (uint64_t)w->rows &&
        t->dims[2] == experts && t->dims[3] == 1)
        return 0;
    char has[96];
    shape_text(t, has, sizeof has);
    if (w->expert >= 0 && !own)
        return ds_fail(err,
                       "%s: tensor %s is %s, but the hyperparameters ask for %" PRId64 " x %" PRId64
                       " x %d",
                       ds_gguf_name(s->g), t->name, has, w->cols, w->rows, (int)s->hp->n_experts);
    if (w->rows == 1)
        return ds_fail(err, "%s: tensor %s is %s, but the hyperparameters ask for %" PRId64,
                       ds_gguf_name(s->g), t->name, has, w->cols);
    return ds_fail(err,
                   "%s: tensor %s is %s, but the hyperparameters ask for %" PRId64 " x %" PRId64,
                   ds_gguf_name(s->g), t->name, has, w->cols, w->rows);
}

static int wrong_quant(const struct gguf_source *s, const struct ds_gguf_tensor *t,
                       struct ds_error *err)
{
    char space[32], known[256] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < 256; i++) {
        const struct ds_quant_type *type = ds_quant_find(i);
        if (type && used + strlen(type->name) + 2 < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? " " : "",
                                     type->name);
    }
    ds_fail(err, "%s: tensor %s has type %s, which is not supported", ds_gguf_name(s->g), t->name,
            ds_quant_name(t->type, space, sizeof space));
    return ds_hint(err, "supported types: %s", known);
}

/* A tensor of its own for every expert, as older files have them: ffn_up_exps.weight[3] is
 * ffn_up.3.weight there. */
static const struct ds_gguf_tensor *find_own(const struct gguf_source *s, const struct ds_weight *w)
{
    char name[sizeof w->name];
    const char *end = strstr(w->name, "_exps.");
    if (!end)
        return NULL;
    snprintf(name, sizeof name, "%.*s.%d.weight", (int)(end - w->name), w->name, (int)w->expert);
    return ds_gguf_tensor_find(s->g, name);
}

/* The tensor that holds a weight; experts follow each other. *own: it holds this expert alone. */
static const struct ds_gguf_tensor *find_tensor(const struct gguf_source *s, size_t index,
                                                const struct ds_weight *w, int *own)
{
    char name[sizeof w->name];
    *own = 0;
    if (w->expert > 0 && !s->taken[index - 1].own)
        return s->taken[index - 1].tensor;
    snprintf(name, sizeof name, "%s", w->name);
    if (w->expert == 0)
        *strrchr(name, '[') = '\0';
    const struct ds_gguf_tensor *t = w->expert > 0 ? NULL : ds_gguf_tensor_find(s->g, name);
    if (t || w->expert < 0)
        return t;
    *own = 1;
    return find_own(s, w);
}

/* Whether a matmul or the embedding reads it. */
static int is_matrix(enum model_role role)
{
    return role == ROLE_EMBED || role == ROLE_HEAD || role == ROLE_MATRIX || role == ROLE_ROUTER;
}

static int gguf_pick(void *ctx, size_t index, const struct model_slot *slot, struct ds_weight *w,
                     struct ds_error *err)
{
    struct gguf_source *s = ctx;
    int own;
    const struct ds_gguf_tensor *t = find_tensor(s, index, w, &own);
    if (!t && slot->required)
        return ds_fail(err, "%s: tensor %s is missing", ds_gguf_name(s->g), w->name);
    if (!t)
        return 0;
    if (check_shape(s, t, w, own, err))
        return -1;
    const struct ds_quant_type *type = ds_quant_find(t->type);
    if (!type)
        return wrong_quant(s, t, err);
    if (ds_grow(&s->taken, &s->cap, index + 1, sizeof *s->taken, "tensor list", err) != 0)
        return -1;
    struct taken *place = &s->taken[index];
    *place =
        (struct taken){.tensor = t, .type = type, .data = t->data, .bytes = t->bytes, .own = own};
    if (w->expert >= 0 && !own) { /* rows are whole blocks, so the shares are equal */
        place->bytes = t->bytes / (size_t)s->hp->n_experts;
        place->data += (size_t)w->expert * place->bytes;
    }
    snprintf(w->file_dtype, sizeof w->file_dtype, "%s", type->name);
    if (s->keep == DS_WEIGHTS_FILE && is_matrix(slot->role)) {
        w->file_data = place->data;
        w->file_type = (int32_t)t->type;
    }
    s->used[t - ds_gguf_tensor_at(s->g, 0)] = 1;
    if (__builtin_add_overflow(s->bytes, (uint64_t)place->bytes, &s->bytes))
        s->bytes = UINT64_MAX;
    s->largest = place->bytes > s->largest ? place->bytes : s->largest;
    return 1;
}

static void gguf_fill(void *ctx, size_t index, int64_t from, int64_t n, float *dst)
{
    const struct taken *t = &((const struct gguf_source *)ctx)->taken[index];
    t->type->to_f32(t->data + (size_t)from / t->type->block * t->type->bytes, dst, (size_t)n);
}

static const void *gguf_bytes(void *ctx, size_t index, int64_t from, int64_t n, size_t *n_bytes)
{
    const struct taken *t = &((const struct gguf_source *)ctx)->taken[index];
    *n_bytes = (size_t)n / t->type->block * t->type->bytes;
    return t->data + (size_t)from / t->type->block * t->type->bytes;
}

/* What was read once need not stay in memory beside what was made of it. */
static void gguf_done(void *ctx, size_t index)
{
    const struct gguf_source *s = ctx;
    ds_gguf_release(s->g, s->taken[index].data, s->taken[index].bytes);
}

/* Whether a tensor that no slot asked for may be left out. */
static int ignorable(const struct model_arch *arch, const char *name)
{
    for (size_t i = 0; i < arch->n_ignorable; i++) {
        size_t n = strlen(name), m = strlen(arch->ignorable[i]);
        if (strncmp(name, "blk.", 4) == 0 && n > m && name[n - m - 1] == '.' &&
            strcmp(name + n - m, arch->ignorable[i]) == 0)
            return 1;
    }
    return 0;
}

/* A weight that is silently left out would make another model of this one. */
static int check_all_used(const struct gguf_source *s, struct ds_error *err)
{
    for (size_t i = 0; i < ds_gguf_tensor_count(s->g); i++) {
        const struct ds_gguf_tensor *t = ds_gguf_tensor_at(s->g, i);
        if (!s->used[i] && !ignorable(s->arch, t->name))
            return ds_fail(err, "%s: tensor %s is not part of a %s model as this build knows it",
                           ds_gguf_name(s->g), t->name, s->arch->name);
    }
    return 0;
}

/* Tensors may share bytes (a head that is the embedding, written twice); many that do would make
 * huge memory of a small file. */
static int check_overlap(const struct gguf_source *s, struct ds_error *err)
{
    uint64_t span = ds_gguf_size(s->g);
    if (s->bytes <= span + s->largest)
        return 0;
    return ds_fail(err,
                   "%s: the tensors overlap: together they claim %" PRIu64
                   " bytes, the file has %" PRIu64,
                   ds_gguf_name(s->g), s->bytes, span);
}

/* Frequencies are divided by these. */
static int check_rope_freqs(const struct ds_model *m, struct ds_error *err)
{
    for (int32_t i = 0; m->rope_freqs && i < m->hp.rope_dim / 2; i++)
        if (!(m->rope_freqs[i] > 0.0f) || !isfinite(m->rope_freqs[i]))
            return ds_fail(
                err,
                "%s: tensor rope_freqs.weight: element %d is %.9g; positive numbers are wanted",
                ds_gguf_name(m->gguf), i, (double)m->rope_freqs[i]);
    return 0;
}

/* The row of general.architecture. */
static const struct model_arch *find_arch(const struct ds_gguf *g, struct ds_error *err)
{
    struct ds_gguf_str text;
    int found = ds_gguf_get_str(g, "general.architecture", &text, err);
    if (found <= 0) {
        if (found == 0)
            ds_fail(err, "%s: general.architecture is missing", ds_gguf_name(g));
        return NULL;
    }
    char name[64];
    size_t n = text.len < sizeof name - 1 ? text.len : sizeof name - 1;
    for (size_t i = 0; i < n; i++)
        name[i] =
            text.data[i] ? text.data[i] : '?'; /* a zero byte must not end the comparison early */
    name[n] = '\0';
    const struct model_arch *arch = ds_model_arch_find(name, err);
    if (!arch)
        ds_prefix(err, "%s: general.architecture", ds_gguf_name(g));
    return arch;
}

/* One of several files that together hold a model. */
static int refuse_split(const struct ds_gguf *g, struct ds_error *err)
{
    uint64_t parts = 1;
    if (ds_gguf_get_u64(g, "split.count", &parts, err) < 0)
        return -1;
    if (parts <= 1)
        return 0;
    ds_fail(err,
            "%s: split.count is %" PRIu64
            ": one part of a model in several files, which is not supported",
            ds_gguf_name(g), parts);
    return ds_hint(err, "merge the parts, for example with llama-gguf-split --merge");
}

static int build(struct ds_model *m, int threads, struct ds_error *err)
{
    const struct ds_gguf *g = m->gguf;
    const struct model_arch *arch = find_arch(g, err);
    if (!arch || refuse_split(g, err))
        return -1;
    if (ds_model_read_hparams(g, arch, &m->hp, err))
        return -1;
    size_t n = ds_gguf_tensor_count(g);
    struct gguf_source s = {.g = g, .arch = arch, .hp = &m->hp, .keep = m->keep};
    struct model_source src = {
        .pick = gguf_pick, .fill = gguf_fill, .bytes = gguf_bytes, .done = gguf_done, .ctx = &s};
    s.used = ds_calloc(n, 1, "tensor list", err);
    int rc = -1;
    if (s.used && ds_model_layout(m, arch, &src, err) == 0 && check_all_used(&s, err) == 0 &&
        check_overlap(&s, err) == 0)
        rc = ds_model_fill(m, &src, threads, err);
    free(s.taken);
    free(s.used);
    return rc ? rc : check_rope_freqs(m, err);
}

int ds_model_from_gguf(struct ds_gguf *g, int keep, int threads, struct ds_model **out,
                       struct ds_error *err)
{
    struct ds_model *m = ds_calloc(1, sizeof *m, "model", err);
    if (!m) {
        ds_gguf_close(g);
        return -1;
    }
    m->gguf = g;
    m->keep = keep;
    snprintf(m->name, sizeof m->name, "%s", ds_gguf_name(g));
    if (build(m, threads, err)) {
        ds_model_close(m);
        return -1;
    }
    *out = m;
    return 0;
}
