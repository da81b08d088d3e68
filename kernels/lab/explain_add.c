/* explain_add.c: the rows' own inputs added in measured orders, with scalar arithmetic. Owns how an
 * op's output follows from its sum: + bias; the scaling of rmsnorm; nothing. Knows no kernel. */
#include "kernels/lab/explain.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "kernels/lab/order_replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = DS_REPLAY_LANES };

static float rounded(int dtype, float v)
{
    return dtype == DS_BF16  ? ds_bf16_value(ds_bf16_round(v))
           : dtype == DS_F16 ? ds_f16_value(ds_f16_round(v))
                             : v;
}

float ds_norm_finish(int form, int dtype, float sum, int64_t width, float eps, float x,
                     float weight)
{
    const int way = form % DS_NORM_FORMS, cast = form >= DS_NORM_FORMS ? dtype : DS_F32;
    const float n = (float)width, mean = way >= DS_NORM_FORMS / 2 ? sum * (1.0f / n) : sum / n,
                root = sqrtf(mean + eps), inv = 1.0f / root;
    switch (way % (DS_NORM_FORMS / 2)) {
    case 0:
        return rounded(cast, x * inv) * weight;
    case 1:
        return x * rounded(cast, inv * weight);
    default:
        return rounded(cast, x / root) * weight;
    }
}

const char *ds_norm_form_text(int form)
{
    static const char *const text[DS_NORM_CAST_FORMS] = {
        "x * (1 / sqrt(s / n + eps)) * w",
        "x * (1 / sqrt(s / n + eps) * w)",
        "x / sqrt(s / n + eps) * w",
        "x * (1 / sqrt(s * (1 / n) + eps)) * w",
        "x * (1 / sqrt(s * (1 / n) + eps) * w)",
        "x / sqrt(s * (1 / n) + eps) * w",
        "round(x * (1 / sqrt(s / n + eps))) * w",
        "x * round(1 / sqrt(s / n + eps) * w)",
        "round(x / sqrt(s / n + eps)) * w",
        "round(x * (1 / sqrt(s * (1 / n) + eps))) * w",
        "x * round(1 / sqrt(s * (1 / n) + eps) * w)",
        "round(x / sqrt(s * (1 / n) + eps)) * w"};
    return form >= 0 && form < DS_NORM_CAST_FORMS ? text[form] : "";
}

struct adder {
    const struct ds_explain *e;
    int side;
    struct ds_explain_order *o;
    struct ds_replay *replay; /* [n_trees] */
    float *room, *w, *ones;   /* w: [terms][LANES] */
    int64_t width, terms;
};

/* The factor of term k that is the row's, and the one that column c has. */
static const float *row_factor(const struct adder *a, const struct ds_explain_input *in)
{
    return a->e->op == DS_OP_COMBINE     ? in->in[1]
           : a->e->op == DS_OP_ALLREDUCE ? a->ones
                                         : in->in[0];
}

static float column_factor(const struct adder *a, const struct ds_explain_input *in, int64_t k,
                           int64_t c)
{
    return a->e->op == DS_OP_MATMUL ? a->e->shared.matmul.w.data[c * a->terms + k]
                                    : in->in[0][k * a->width + c];
}

static void transpose(const struct adder *a, const struct ds_explain_input *in, int64_t column,
                      int64_t n)
{
    for (int64_t k = 0; k < a->terms; k++)
        for (int64_t i = 0; i < LANES; i++)
            a->w[k * LANES + i] = column_factor(a, in, k, column + (i < n ? i : 0));
}

static void store(int dtype, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = rounded(dtype, y[i]);
}

/* Up to 16 columns of one row; every tree among them once. */
static void add_block(const struct adder *a, size_t row, int64_t column, int64_t n)
{
    const float *x = row_factor(a, &a->e->rows[row].input[a->side]);
    const int32_t *tree = a->o->tree_of + (int64_t)row * a->width + column;
    float *y = a->o->y + (int64_t)row * a->width + column, got[LANES];
    for (int64_t i = 0; i < n; i++) {
        int done = tree[i] < 0;
        for (int64_t j = 0; j < i; j++)
            done |= tree[j] == tree[i];
        if (done)
            continue;
        ds_replay_block(&a->replay[tree[i]], x, a->w, a->room, got);
        for (int64_t j = i; j < n; j++)
            if (tree[j] == tree[i])
                y[j] = got[j];
    }
    const float *bias = a->e->op == DS_OP_MATMUL ? a->e->shared.matmul.bias : NULL;
    for (int64_t i = 0; i < n; i++)
        y[i] = tree[i] < 0 ? NAN : bias ? y[i] + bias[column + i] : y[i];
    store(a->e->side[a->side].dtype, y, n);
}

static void add_columns(const struct adder *a)
{
    for (int64_t c = 0; c < a->width; c += LANES) {
        const int64_t n = a->width - c < LANES ? a->width - c : LANES;
        for (size_t r = 0; r < a->e->n_rows; r++) {
            if (r == 0 || a->e->op != DS_OP_MATMUL)
                transpose(a, &a->e->rows[r].input[a->side], c, n);
            add_block(a, r, c, n);
        }
    }
}

/* ---- rmsnorm --------------------------------------------------------------------------------- */

static void norm_row(const struct adder *a, size_t row, int form, float *y)
{
    const struct ds_rmsnorm_args *s = &a->e->shared.rmsnorm;
    const float *x = a->e->rows[row].input[a->side].in[0];
    const int32_t tree = a->o->tree_of[(int64_t)row * a->width];
    const float sum = tree < 0 ? NAN : ds_replay_one(&a->replay[tree], x, x, a->room);
    for (int64_t i = 0; i < a->width; i++)
        y[i] = ds_norm_finish(form, a->e->side[a->side].dtype, sum, a->width, s->eps, x[i],
                              s->weight[i]);
    store(a->e->side[a->side].dtype, y, a->width);
}

/* The form that gives most of the side's bits. */
static void add_norms(const struct adder *a)
{
    const int forms = a->e->side[a->side].dtype == DS_F32 ? DS_NORM_FORMS : DS_NORM_CAST_FORMS;
    uint64_t best = 0;
    struct ds_explain_match m;
    for (int form = forms; form >= 0; form--) {
        const int use = form == 0 ? a->o->form : form - 1; /* the last turn: the best again */
        for (size_t r = 0; r < a->e->n_rows; r++)
            norm_row(a, r, use, a->o->y + (int64_t)r * a->width);
        ds_explain_match(a->e, a->o->y, &m);
        if (form > 0 && m.same[a->side] >= best) {
            best = m.same[a->side];
            a->o->form = use;
        }
    }
}

/* ---- all ------------------------------------------------------------------------------------- */

static int setup(struct adder *a, struct ds_error *err)
{
    size_t room = 1;
    a->replay = ds_calloc(a->o->n_trees, sizeof *a->replay, "the replay", err);
    for (size_t i = 0; i < a->o->n_trees && a->replay; i++) {
        const struct ds_tree *t = &a->o->trees[i].tree;
        if (ds_replay_compile(t, t->root, &a->replay[i], err) != 0)
            return -1;
        a->terms = t->terms;
        size_t need = ds_replay_room(&a->replay[i]);
        room = need > room ? need : room;
    }
    a->room = ds_alloc_aligned(room, sizeof *a->room, "the replay", err);
    a->w = ds_alloc_aligned((size_t)a->terms * LANES, sizeof *a->w, "the replay", err);
    a->ones = ds_alloc_aligned((size_t)a->terms, sizeof *a->ones, "the replay", err);
    a->o->y = ds_alloc_aligned(a->e->n_rows * (size_t)a->width, sizeof *a->o->y, "the replay", err);
    for (int64_t k = 0; k < a->terms && a->ones; k++)
        a->ones[k] = 1.0f;
    return a->replay && a->room && a->w && a->ones && a->o->y ? 0 : -1;
}

int ds_explain_add(const struct ds_explain *e, int side, struct ds_explain_order *o,
                   struct ds_error *err)
{
    struct adder a = {.e = e, .side = side, .o = o, .width = ds_explain_width(e->op, &e->shared)};
    int rc = o->n_trees ? setup(&a, err) : 0;
    if (rc == 0 && o->n_trees) {
        if (e->op == DS_OP_RMSNORM)
            add_norms(&a);
        else
            add_columns(&a);
        ds_explain_match(e, o->y, &o->match);
        o->replayed = 1;
    }
    for (size_t i = 0; i < o->n_trees && a.replay; i++)
        ds_replay_free(&a.replay[i]);
    free(a.replay);
    free(a.room);
    free(a.w);
    free(a.ones);
    return rc;
}
