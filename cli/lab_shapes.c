/* lab_shapes.c: from a model's hyperparameters, or from --shape, to the shapes of one op. Owns which
 * stage has which sizes; runs nothing. */
#include "cli/lab_shapes.h"

#include "base/mem.h"
#include "cli/lab_kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Enough for the five matmul shapes of a layer and the head. */
enum { MOST_SHAPES = 12 };

struct list {
    struct ds_shape *shape;
    size_t n;
};

/* One stage with its sizes: a shape already there gets the stage's name too. */
static void put(struct list *l, const char *stage, struct ds_shape s)
{
    for (size_t i = 0; i < l->n; i++) {
        struct ds_shape *have = &l->shape[i];
        struct ds_shape other = *have;
        memcpy(other.name, s.name, sizeof other.name);
        if (memcmp(&other, &s, sizeof s) != 0)
            continue;
        size_t len = strlen(have->name);
        snprintf(have->name + len, sizeof have->name - len, " %s", stage);
        return;
    }
    if (l->n == MOST_SHAPES)
        return;
    snprintf(s.name, sizeof s.name, "%s", stage);
    l->shape[l->n++] = s;
}

static void put_matmul(struct list *l, const char *stage, int64_t n, int64_t k)
{
    put(l, stage, (struct ds_shape){.op = DS_OP_MATMUL, .n = n, .k = k});
}

static void put_width(struct list *l, int op, const char *stage, int64_t width)
{
    put(l, stage, (struct ds_shape){.op = op, .width = width});
}

static void put_rope(struct list *l, const char *stage, const struct ds_hparams *hp, int64_t heads)
{
    put(l, stage,
        (struct ds_shape){.op = DS_OP_ROPE,
                          .heads = heads,
                          .head_dim = hp->head_dim,
                          .rope_dim = hp->rope_dim,
                          .neox = hp->rope_neox});
}

static int put_op(struct list *l, const struct ds_hparams *hp, int op, struct ds_error *err)
{
    const int64_t d = hp->d_model, q = (int64_t)hp->n_heads * hp->head_dim,
                  kv = (int64_t)hp->n_kv_heads * hp->head_dim,
                  ffn = hp->n_experts ? hp->d_ff_expert : hp->d_ff;
    switch (op) {
    case DS_OP_MATMUL:
        put_matmul(l, "q_proj", q, d);
        put_matmul(l, "k_proj", kv, d);
        put_matmul(l, "v_proj", kv, d);
        put_matmul(l, "o_proj", d, q);
        if (hp->n_experts)
            put_matmul(l, "router_logits", hp->n_experts, d);
        put_matmul(l, "gate", ffn, d);
        put_matmul(l, "up", ffn, d);
        put_matmul(l, hp->n_experts ? "expert_out" : "down", d, ffn);
        if (hp->n_experts && !ds_layer_has_experts(hp, 0)) {
            put_matmul(l, "gate", hp->d_ff, d);
            put_matmul(l, "down", d, hp->d_ff);
        }
        put_matmul(l, "logits", hp->vocab, d);
        return 0;
    case DS_OP_RMSNORM:
        put_width(l, op, "norms", d);
        if (hp->qk_norm)
            put_width(l, op, "q_norm", hp->head_dim);
        return 0;
    case DS_OP_TRANSFER:
        put_width(l, op, "transfer", d);
        return 0;
    case DS_OP_ADD:
        put_width(l, op, "residuals", d);
        return 0;
    case DS_OP_SILU_MUL:
        put_width(l, op, "act", ffn);
        return 0;
    case DS_OP_CACHE:
        put_width(l, op, "kv_write", kv);
        return 0;
    case DS_OP_ROPE:
        put_rope(l, "q_rope", hp, hp->n_heads);
        put_rope(l, "k_rope", hp, hp->n_kv_heads);
        return 0;
    case DS_OP_ATTENTION:
        put(l, "attn_out",
            (struct ds_shape){.op = op,
                              .heads = hp->n_heads,
                              .kv_heads = hp->n_kv_heads,
                              .head_dim = hp->head_dim});
        return 0;
    case DS_OP_EMBED:
        put(l, "embed", (struct ds_shape){.op = op, .vocab = hp->vocab, .width = d});
        return 0;
    case DS_OP_PROCESS:
        put(l, "logits_processed", (struct ds_shape){.op = op, .vocab = hp->vocab});
        return 0;
    case DS_OP_SAMPLE:
        put(l, "token", (struct ds_shape){.op = op, .vocab = hp->vocab});
        return 0;
    default: /* no stage of a dense model */
        l->n = 1;
        return ds_shape_parse(op, "", &l->shape[0], err);
    }
}

/* Shapes of op in the model, each once, named by the stages that have it; an op that the model
 * does not use gets its default shape. malloc'ed; the caller frees *out. */
static int model_shapes(const struct ds_hparams *hp, int op, struct ds_shape **out, size_t *n,
                        struct ds_error *err)
{
    struct list l = {.shape = ds_calloc(MOST_SHAPES, sizeof *l.shape, "shapes", err)};
    *out = NULL;
    *n = 0;
    if (!l.shape)
        return -1;
    if (put_op(&l, hp, op, err) != 0) {
        free(l.shape);
        return -1;
    }
    *out = l.shape;
    *n = l.n;
    return 0;
}

/* SmolLM2-135M, from its GGUF file: what is judged where no model was fetched. */
static const struct ds_hparams smollm2 = {.n_heads = 9,
                                          .n_kv_heads = 3,
                                          .head_dim = 64,
                                          .d_model = 576,
                                          .d_ff = 1536,
                                          .vocab = 49152,
                                          .rope_dim = 64};

/* The hyperparameters of -m, or those above when the default model was never fetched. */
static int model_hparams(const struct ds_options *o, struct ds_hparams *hp, char *name, size_t size,
                         struct ds_error *err)
{
    char path[4096];
    const char *spec = ds_opt_text(o, "model");
    struct ds_model *m;
    if (!ds_opt_given(o, "model") && ds_model_cache_path(spec, path, sizeof path) == 1) {
        ds_cli_note(o, "%s is not in the cache; its shapes are known and used", spec);
        *hp = smollm2;
        snprintf(name, size, "%s", spec);
        return 0;
    }
    if (ds_model_open(spec, 1, &m, err) != 0)
        return -1;
    *hp = m->hp;
    snprintf(name, size, "%s", m->name);
    ds_model_close(m);
    return 0;
}

/* A matrix as large as that of the logits takes longer than all others together where a CPU plays a GPU. */
enum { MOST_COLUMNS_ON_SIM = 16384 };

static void without_the_largest(const struct ds_options *o, struct ds_shape *shape, size_t *n)
{
    size_t kept = 0;
    for (size_t i = 0; i < *n; i++)
        if (shape[i].op == DS_OP_MATMUL && shape[i].n > MOST_COLUMNS_ON_SIM)
            ds_cli_note(o,
                        "matmul without the logits' n=%lld,k=%lld, which take most of the time on "
                        "sim: --shape or -m brings them",
                        (long long)shape[i].n, (long long)shape[i].k);
        else
            shape[kept++] = shape[i];
    *n = kept;
}

int ds_lab_shapes(const struct ds_options *o, int op, struct ds_shape **out, size_t *n, char *model,
                  size_t model_size, struct ds_error *err)
{
    struct ds_hparams hp;
    *out = NULL;
    *n = 0;
    model[0] = '\0';
    if (!ds_opt_given(o, "shape")) {
        if (model_hparams(o, &hp, model, model_size, err) != 0 ||
            model_shapes(&hp, op, out, n, err) != 0)
            return -1;
        if (ds_lab_device(o) == DS_DEVICE_SIM && !ds_opt_given(o, "model") && *n > 1)
            without_the_largest(o, *out, n);
        return 0;
    }
    size_t given = ds_opt_count(o, "shape");
    struct ds_shape *s = ds_calloc(given, sizeof *s, "shapes", err);
    if (!s)
        return -1;
    for (size_t i = 0; i < given; i++)
        if (ds_shape_parse(op, ds_opt_at(o, "shape", i), &s[i], err) != 0) {
            free(s);
            return -1;
        }
    *out = s;
    *n = given;
    return 0;
}
