/* forward_ranks.c: tensor parallelism in one process. Heads and FFN columns are dealt to the ranks
 * in equal, contiguous shares. Whatever has whole sums (q_proj, k_proj, v_proj, attention, gate, up,
 * act) is computed as one launch: cutting it by columns cuts no sum, and a library that chooses its
 * code by the number of columns would show its choice and not the ranks. o_proj and down cut their
 * sums: each rank multiplies its share of K with its columns of the weights, the bias is added by
 * rank 0, the partial sums are rounded to the activation type, as they are when they travel, and the
 * allreduce kernel adds them.
 *
 * Experts are dealt to the ranks whole, in equal, contiguous shares (forward_moe.c): each rank adds up
 * those of a row's experts that live on it, the expert that every row passes on rank 0, and the allreduce
 * kernel adds these sums.
 *
 * Owns the ranks' columns of the weights and the partial sums; must not know what is between them. */
#include "engine/forward_private.h"

#include "base/mem.h"
#include "engine/gguf.h"
#include "kernels/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OF_O_PROJ, OF_DOWN, SPLIT_WEIGHTS };

struct ds_rank_weight {         /* a rank's columns of one weight */
    struct ds_weight_view view; /* the host's */
    float *there;               /* on a device of its own memory: the same */
    void *memory, *prepared;
    size_t prepared_bytes;
    uint32_t weight; /* in the model's list */
};

static int divides(const struct ds_hparams *hp, int32_t ranks)
{
    const int columns = ds_layer_has_experts(hp, 0) || hp->d_ff % ranks == 0;
    return hp->n_heads % ranks == 0 && columns && hp->n_experts % ranks == 0 &&
           (hp->n_kv_heads % ranks == 0 || ranks % hp->n_kv_heads == 0);
}

int ds_ranks_check(const struct ds_hparams *hp, int32_t ranks, struct ds_error *err)
{
    if (ranks <= 1)
        return 0;
    if (divides(hp, ranks))
        return 0;
    ds_fail(err, "--tp %d: does not divide %d heads, %d key-value heads and %d %s", (int)ranks,
            (int)hp->n_heads, (int)hp->n_kv_heads,
            (int)(hp->n_experts > 0 ? hp->n_experts : hp->d_ff),
            hp->n_experts > 0 ? "experts" : "FFN columns");
    char fits[64] = "1";
    for (int32_t n = 2; n <= DS_MOST_RANKS; n++)
        if (divides(hp, n))
            snprintf(fits + strlen(fits), sizeof fits - strlen(fits), ", %d", (int)n);
    return ds_hint(err, "this model can have %s ranks", fits);
}

/* Copies columns from..from+k-1 of w, as f32 or as whole blocks of the file. */
static int cut(const struct ds_weight *w, int64_t from, int64_t k, struct ds_rank_weight *out,
               struct ds_error *err)
{
    size_t row = (size_t)w->cols * sizeof(float), begin = (size_t)from * sizeof(float),
           bytes = (size_t)k * sizeof(float);
    const char *data = (const char *)w->data;
    if (!data) {
        const struct ds_quant_type *t = ds_quant_find((uint32_t)w->file_type);
        if (!t || from % (int64_t)t->block || k % (int64_t)t->block)
            return ds_fail(err, "--tp: a rank's %lld columns of %s are not whole blocks of %s",
                           (long long)k, w->name, w->file_dtype);
        row = (size_t)w->cols / t->block * t->bytes;
        begin = (size_t)from / t->block * t->bytes;
        bytes = (size_t)k / t->block * t->bytes;
        data = w->file_data;
    }
    char *copy = ds_alloc_aligned((size_t)w->rows, bytes, "a rank's weights", err);
    if (!copy)
        return -1;
    for (int64_t i = 0; i < w->rows; i++)
        memcpy(copy + (size_t)i * bytes, data + (size_t)i * row + begin, bytes);
    *out = (struct ds_rank_weight){.view = {.n = w->rows, .k = k}, .memory = copy};
    if (w->data)
        out->view.data = (const float *)(const void *)copy;
    else
        out->view.file_data = copy, out->view.file_type = w->file_type;
    return 0;
}

static int prepare(const struct ds_forward *f, int32_t layer, const char *name,
                   struct ds_rank_weight *r, struct ds_error *err)
{
    const struct ds_kernel *k = ds_kernel_set_in(&f->config.kernels, DS_OP_MATMUL, layer);
    char why[128] = "";
    if (ds_call_prepare(k, &r->view, &r->prepared, &r->prepared_bytes, why, sizeof why) == 0)
        return 0;
    return ds_fail(err, "matmul/%s cannot prepare a rank's part of %s: %s", k->name, name,
                   *why ? why : "no reason given");
}

static int send(struct ds_forward *f, struct ds_rank_weight *r, struct ds_error *err)
{
    if (ds_forward_host(f))
        return 0;
    return ds_desk_copy_of(f, r->view.data, (size_t)(r->view.n * r->view.k) * sizeof *r->view.data,
                           "a rank's weights", &r->there, err);
}

int ds_forward_ranks_rows(struct ds_forward *f, struct ds_error *err)
{
    for (int32_t r = 0; f->config.ranks > 1 && r < f->config.ranks; r++)
        if (ds_desk_new(f, (size_t)f->config.max_rows, (size_t)f->d * ds_forward_element(f),
                        "partial sums", &f->at.partial[r], err) != 0)
            return -1;
    return 0;
}

static size_t rank_weights(const struct ds_forward *f)
{
    return (size_t)f->m->hp.n_layers * SPLIT_WEIGHTS * (size_t)f->config.ranks;
}

static struct ds_rank_weight *weight_of(const struct ds_forward *f, int32_t layer, int which,
                                        int32_t rank)
{
    return &f->rank_weights[((int64_t)layer * SPLIT_WEIGHTS + which) * f->config.ranks + rank];
}

int ds_forward_ranks_new(struct ds_forward *f, struct ds_error *err)
{
    const struct ds_forward_config *c = &f->config;
    const int32_t ranks = c->ranks;
    if (ds_ranks_check(&f->m->hp, ranks, err) != 0)
        return -1;
    if (ranks <= 1)
        return 0;
    const size_t n = rank_weights(f);
    f->rank_weights = ds_calloc(n, sizeof *f->rank_weights, "ranks' weights", err);
    if (!f->rank_weights)
        return -1;
    for (int32_t l = 0; l < f->m->hp.n_layers; l++) {
        const struct ds_weight *w[SPLIT_WEIGHTS] = {f->m->layers[l].o, f->m->layers[l].down};
        for (int which = 0; which < SPLIT_WEIGHTS; which++)
            for (int32_t r = 0; r < ranks && w[which]; r++) { /* experts are not cut */
                struct ds_rank_weight *part = weight_of(f, l, which, r);
                const int64_t k = w[which]->cols / ranks;
                ds_forward_to_device(f, ds_placement_device(&c->placement, l));
                if (cut(w[which], r * k, k, part, err) != 0 || send(f, part, err) != 0 ||
                    prepare(f, l, w[which]->name, part, err) != 0)
                    return -1;
                part->weight = (uint32_t)(w[which] - f->m->weights);
            }
    }
    return 0;
}

void ds_forward_ranks_free(struct ds_forward *f)
{
    const size_t n = rank_weights(f);
    for (size_t i = 0; f->rank_weights && i < n; i++) {
        free(f->rank_weights[i].memory);
        free(f->rank_weights[i].prepared);
    }
    free(f->rank_weights);
}

/* ---- what kernels packed --------------------------------------------------------------------- */

static void put_packed(struct ds_packed *out, const struct ds_kernel *k, uint32_t weight,
                       int32_t rank, const void *data, size_t bytes)
{
    memset(out, 0, sizeof *out);
    snprintf(out->variant, sizeof out->variant, "%s", k->name);
    out->weight = weight;
    out->rank = rank;
    out->bytes = bytes;
    out->digest = ds_digest(data, bytes);
}

int ds_forward_packed(const struct ds_forward *f, struct ds_packed **out, size_t *n,
                      struct ds_error *err)
{
    const struct ds_kernel *k = f->config.kernels.op[DS_OP_MATMUL];
    const struct ds_model *m = f->m;
    const size_t shares = f->rank_weights ? rank_weights(f) : 0;
    *n = 0;
    *out = ds_calloc(m->n_weights + shares, sizeof **out, "digests of packed weights", err);
    if (!*out)
        return -1;
    for (size_t i = 0; i < m->n_weights; i++)
        if (ds_model_prepared(m, k, &m->weights[i]))
            put_packed(&(*out)[(*n)++], k, (uint32_t)i, -1, m->prepared[i], m->prepared_bytes[i]);
    for (size_t i = 0; i < shares; i++) {
        const struct ds_rank_weight *r = &f->rank_weights[i];
        if (r->prepared)
            put_packed(&(*out)[(*n)++], k, r->weight, (int32_t)(i % (size_t)f->config.ranks),
                       r->prepared, r->prepared_bytes);
    }
    return 0;
}

/* ---- the pass -------------------------------------------------------------------------------- */

/* What the launches say of the cut sum: as many parts as ranks. */
static void say_split(struct ds_forward *f, int stage, int from)
{
    if (f->launch_known[stage] || !f->launch_known[from])
        return;
    f->launch[stage] = f->launch[from];
    f->launch[stage].split = f->config.ranks;
    f->launch_known[stage] = 1;
}

int ds_pass_allreduce(struct ds_pass *p, int stage, int partial, int sum, float *y)
{
    struct ds_forward *f = p->f;
    const float *parts[DS_MOST_RANKS];
    for (int32_t r = 0; r < f->config.ranks; r++)
        parts[r] = f->at.partial[r];
    struct ds_allreduce_args a = {.rows = f->rows,
                                  .width = f->d,
                                  .ranks = f->config.ranks,
                                  .x = parts,
                                  .ldx = f->d,
                                  .y = y,
                                  .ldy = f->d,
                                  .stored = f->at.stored};
    if (ds_pass_launch(p, sum, &a, y, (size_t)(f->rows * f->d)) != 0)
        return -1;
    say_split(f, stage, partial);
    /* Rounded and shown as the sum, then shown again as what the stage gives: rounding once more
     * changes nothing. */
    return ds_pass_emit(p, sum, 0, y) != 0 ? -1 : ds_pass_emit(p, stage, 0, y);
}

int ds_pass_ranks(struct ds_pass *p, int stage, const float *x, const struct ds_weight *w,
                  const struct ds_weight *bias, float *y)
{
    struct ds_forward *f = p->f;
    const int which = stage == DS_ST_DOWN ? OF_DOWN : OF_O_PROJ,
              partial = which == OF_DOWN ? DS_ST_DOWN_PARTIAL : DS_ST_O_PARTIAL,
              sum = which == OF_DOWN ? DS_ST_DOWN_ALLREDUCE : DS_ST_O_ALLREDUCE;
    const float *in = ds_forward_input(f, stage, x);
    const size_t n = (size_t)(f->rows * w->rows);
    for (int32_t r = 0; r < f->config.ranks; r++) {
        const struct ds_rank_weight *part = weight_of(f, p->layer, which, r);
        struct ds_weight_view view = part->view;
        if (part->there)
            view.data = part->there;
        struct ds_matmul_args a = {.rows = f->rows,
                                   .n = w->rows,
                                   .k = part->view.k,
                                   .x = ds_forward_behind(f, in, r * part->view.k),
                                   .ldx = w->cols,
                                   .w = view,
                                   .prepared = part->prepared,
                                   .bias = r == 0 ? ds_desk_weight(f, bias) : NULL,
                                   .y = f->at.partial[r],
                                   .ldy = w->rows,
                                   .stored = f->at.stored,
                                   .y_stored = f->at.stored};
        if (ds_pass_launch(p, partial, &a, a.y, n) != 0 ||
            ds_pass_emit(p, partial, (uint32_t)r, a.y) != 0)
            return -1;
    }
    return ds_pass_allreduce(p, stage, partial, sum, y);
}
