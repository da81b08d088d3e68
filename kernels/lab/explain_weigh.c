/* explain_weigh.c: softmax and attention again along measured trees, with scalar arithmetic: scores by
 * the tree of q.k, their exp, the denominator and the values by theirs. The trees do not say whose exp it
 * is, which maximum is taken off, how parts are merged and how the division is made: every known way is
 * tried on the first row, and one counts only if it gives every bit of every row. Knows no kernel.
 *
 * Ways. exp: libm's, or the one of kernels/PINNED.md. Maximum: one; or that of the slots so far, block by
 * block (the blocks that the denominator's tree adds up one after another), what was summed before being
 * scaled. Parts: the last sums that the values' tree puts together, each with a maximum and a denominator
 * of its own, merged by their log-sum-exp, or by exp(their maximum - the largest). Sink: merged behind all
 * parts, or in the maximum from the start and in the sum at the end. Of a window: the trees have all slots,
 * and those before it are +0, which no order can tell from none; or (o->clipped) the window's alone. A soft
 * cap has the tanh that belongs to the exp. */
#include "kernels/lab/explain_weigh.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FINISHES = 2, JOINS = 2, SINKS = 2 };
enum { PLAIN_FORMS = DS_EXPS * FINISHES * JOINS * DS_MAXIMA * DS_MERGES };

struct ds_weigh_form ds_weigh_form_of(int form)
{
    struct ds_weigh_form f = {.exp = form % DS_EXPS};
    f.reciprocal = (form /= DS_EXPS) % FINISHES;
    f.fma = (form /= FINISHES) % JOINS;
    f.running = (form /= JOINS) % DS_MAXIMA;
    f.merge = (form /= DS_MAXIMA) % DS_MERGES;
    f.sink_last = form / DS_MERGES;
    return f;
}

void ds_weigh_form_text(int form, char *text, size_t size)
{
    static const char *const merge[DS_MERGES] = {
        "", ", parts merged by their log-sum-exp", ", parts merged by their maxima",
        ", parts merged by their maxima one after another, FMA"};
    const struct ds_weigh_form f = ds_weigh_form_of(form);
    snprintf(text, size, "%s, values %s, %s%s, %s the sum",
             f.exp == DS_EXP_LIBM ? "exp of libm" : "the pinned exp", f.fma ? "FMA" : "mul+add",
             f.running == DS_MAX_BY_SLOT    ? "the maximum so far"
             : f.running == DS_MAX_BY_BLOCK ? "the maximum so far, by blocks"
                                            : "one maximum",
             merge[f.merge], f.reciprocal ? "times 1 over" : "divided by");
}

int ds_explain_weighs(int op)
{
    return op == DS_OP_ATTENTION || op == DS_OP_SOFTMAX;
}
static void store(int dtype, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = dtype == DS_BF16  ? ds_bf16_value(ds_bf16_round(y[i]))
               : dtype == DS_F16 ? ds_f16_value(ds_f16_round(y[i]))
                                 : y[i];
}

static float score(const struct ds_weigher *w, const struct ds_weigh_form *f,
                   const struct ds_replay *order, const float *q, const float *k)
{
    const struct ds_attention_args *a = &w->e->shared.attention;
    const float s = ds_replay_one(order, q, k, w->room) * a->scale;
    return a->soft_cap > 0 ? a->soft_cap * ds_weigh_tanh(f->exp, s / a->soft_cap) : s;
}

static int same_bits(const float *a, const float *b, int64_t n)
{
    int64_t i = 0;
    while (i < n && ds_f32_bits(a[i]) == ds_f32_bits(b[i]))
        i++;
    return i == n;
}

/* 0: the trees are not of that form, or the row does not come out. */
static int attention_row(struct ds_weigher *w, const struct ds_weigh_form *f, size_t row, float *y)
{
    const struct ds_attention_args *a = &w->e->shared.attention;
    const struct ds_explain_input *in = &w->e->rows[row].input[w->side];
    const struct ds_replay *scores = &w->replay[w->o->scores_of[row]];
    const int64_t all = in->slot + 1 - in->kv_first,
                  seen = a->window > 0 && all > a->window ? a->window : all;
    w->slots = w->o->clipped ? seen : all;
    w->before = all - w->slots;
    w->from = w->slots - seen;
    w->den = w->o->den_of[row];
    for (int64_t h = 0; h < a->heads; h++) {
        const int64_t kv = h / (a->heads / a->kv_heads) * a->head_dim;
        w->values = w->o->tree_of[((int64_t)row * a->heads + h) * a->head_dim];
        for (int64_t j = 0; j < w->slots; j++)
            w->score[j] = score(w, f, scores, in->in[0] + h * a->head_dim,
                                in->k + (w->before + j) * a->kv_heads * a->head_dim + kv);
        if (!ds_weigh_head(w, f, in, (int64_t)row, h, y + h * a->head_dim))
            return 0;
        store(w->e->side[w->side].dtype, y + h * a->head_dim, a->head_dim);
        /* Most ways are wrong in the first head. */
        if (!same_bits(y + h * a->head_dim, w->e->rows[row].y[w->side] + h * a->head_dim,
                       a->head_dim))
            return 0;
    }
    return 1;
}

static int softmax_row(struct ds_weigher *w, const struct ds_weigh_form *f, size_t row, float *y)
{
    const float *x = w->e->rows[row].input[w->side].in[0];
    struct ds_weigh_part all = {0, w->e->shared.softmax.width, 0, 0};
    if (f->running || f->merge)
        return 0;
    w->slots = all.end;
    w->den = w->o->den_of[row];
    memcpy(w->score, x, (size_t)w->slots * sizeof *x);
    ds_weigh_whole(w, f, NULL, (int64_t)row, 0, &all, NULL);
    for (int64_t i = 0; i < w->slots; i++)
        y[i] = f->reciprocal ? w->p[i] * (1.0f / all.sum) : w->p[i] / all.sum;
    store(w->e->side[w->side].dtype, y, w->slots);
    return 1;
}

/* How many elements of a row come out. */
static int64_t row_matches(const struct ds_weigher *w, size_t row, const float *y)
{
    const int64_t width = ds_explain_width(w->e->op, &w->e->shared);
    int64_t n = 0;
    for (int64_t i = 0; i < width; i++)
        n += ds_f32_bits(y[i]) == ds_f32_bits(w->e->rows[row].y[w->side][i]);
    return n;
}

/* Whether a row comes out, in whichever way its tree can be cut into parts. */
static int row_comes_out(struct ds_weigher *w, int form, size_t row, float *y)
{
    const int64_t width = ds_explain_width(w->e->op, &w->e->shared);
    struct ds_weigh_form f = ds_weigh_form_of(form);
    for (f.cut = 0; f.cut < (f.merge ? DS_WEIGH_CUTS : 1); f.cut++)
        if ((w->e->op == DS_OP_SOFTMAX ? softmax_row(w, &f, row, y)
                                       : attention_row(w, &f, row, y)) &&
            row_matches(w, row, y) == width) {
            w->cut_of[row] = f.cut;
            return 1;
        }
    return 0;
}

/* The row that tells the ways apart best is the one with the most slots. */
static size_t longest_row(const struct ds_weigher *w)
{
    size_t at = 0;
    for (size_t r = 1; r < w->e->n_rows && w->e->op == DS_OP_ATTENTION; r++)
        if (w->e->rows[r].input[w->side].slot > w->e->rows[at].input[w->side].slot)
            at = r;
    return at;
}

/* The first way that gives every bit of all rows. */
static int try_forms(struct ds_weigher *w, struct ds_explain_order *o)
{
    const int64_t width = ds_explain_width(w->e->op, &w->e->shared);
    const size_t first = longest_row(w);
    const int sinks = w->e->op == DS_OP_ATTENTION && w->e->shared.attention.sinks;
    for (int form = 0; form < PLAIN_FORMS * (sinks ? SINKS : 1); form++) {
        int good = row_comes_out(w, form, first, o->y + (int64_t)first * width);
        for (size_t r = 0; r < w->e->n_rows && good; r++)
            good = row_comes_out(w, form, r, o->y + (int64_t)r * width);
        if (good) {
            o->form = form;
            return 1;
        }
    }
    return 0;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* What is needed and not known; "": nothing. */
static const char *lacks(const struct ds_explain *e, const struct ds_explain_order *o)
{
    const int64_t width = ds_explain_width(e->op, &e->shared);
    for (size_t r = 0; r < e->n_rows; r++) {
        if (o->den_of[r] < 0)
            return "the order of a denominator was not found";
        if (e->op == DS_OP_SOFTMAX)
            continue;
        if (o->scores_of[r] < 0)
            return "the order of q.k was not found";
        for (int64_t c = 0; c < width; c++)
            if (o->tree_of[(int64_t)r * width + c] < 0)
                return "the order of a sum of values was not found";
    }
    return "";
}

/* Fused: with equal scores, at which the values are measured, that cannot be told. */
int ds_weigh_compile(const struct ds_tree *t, int fused, struct ds_replay *out,
                     struct ds_error *err)
{
    struct ds_tree copy = *t;
    if (!fused)
        return ds_replay_compile(t, t->root, out, err);
    copy.node = ds_calloc((size_t)t->n, sizeof *copy.node, "the replay", err);
    if (!copy.node)
        return -1;
    memcpy(copy.node, t->node, (size_t)t->n * sizeof *copy.node);
    for (int32_t v = 0; v < copy.n; v++)
        for (int32_t c = copy.node[v].first; c >= 0; c = copy.node[c].next)
            if (copy.node[c].term >= 0 &&
                (c != copy.node[v].first || copy.node[copy.node[c].next].term < 0))
                copy.node[c].flags |= DS_TREE_FUSED;
    int rc = ds_replay_compile(&copy, copy.root, out, err);
    free(copy.node);
    return rc;
}

static int setup(struct ds_weigher *w, struct ds_error *err)
{
    size_t room = 1, most = 1;
    const struct ds_explain *e = w->e;
    w->dim = e->op == DS_OP_ATTENTION ? e->shared.attention.head_dim : 0;
    w->replay = ds_calloc(w->o->n_trees, sizeof *w->replay, "the replay", err);
    w->fused = ds_calloc(w->o->n_trees, sizeof *w->fused, "the replay", err);
    for (size_t i = 0; i < w->o->n_trees && w->replay && w->fused; i++) {
        const struct ds_tree *t = &w->o->trees[i].tree;
        if (ds_weigh_compile(t, 0, &w->replay[i], err) != 0 ||
            ds_weigh_compile(t, 1, &w->fused[i], err) != 0)
            return -1;
        room = ds_replay_room(&w->fused[i]) > room ? ds_replay_room(&w->fused[i]) : room;
        room = ds_replay_room(&w->replay[i]) > room ? ds_replay_room(&w->replay[i]) : room;
        most = (size_t)t->terms > most ? (size_t)t->terms : most;
    }
    float **floats[] = {&w->score, &w->p, &w->ones, &w->column};
    int ok = w->replay && w->fused;
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++)
        ok &= (*floats[i] = ds_alloc_aligned(most, sizeof(float), "the replay", err)) != NULL;
    ok &= (w->room = ds_alloc_aligned(room, sizeof(float), "the replay", err)) != NULL;
    ok &= (w->acc = ds_alloc_aligned((size_t)w->dim + 1, sizeof(float), "sums", err)) != NULL;
    ok &= (w->part_acc = ds_alloc_aligned((size_t)w->dim * DS_WEIGH_MOST_PARTS + 1, sizeof(float),
                                          "sums", err)) != NULL;
    ok &= (w->blocks = ds_calloc(most, sizeof *w->blocks, "sums", err)) != NULL;
    w->most_blocks = (int)most;
    for (size_t i = 0; i < most && w->ones; i++)
        w->ones[i] = 1.0f;
    return ok ? 0 : -1;
}

static void release(struct ds_weigher *w)
{
    for (size_t i = 0; i < w->o->n_trees && w->replay; i++)
        ds_replay_free(&w->replay[i]);
    for (size_t i = 0; i < w->o->n_trees && w->fused; i++)
        ds_replay_free(&w->fused[i]);
    void *all[] = {w->fused,  w->replay, w->score, w->p,        w->ones,
                   w->column, w->room,   w->acc,   w->part_acc, w->blocks};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

static int weigh(const struct ds_explain *e, int side, struct ds_explain_order *o,
                 struct ds_error *err)
{
    struct ds_weigher w = {.e = e, .side = side, .o = o, .cut_of = o->cut_of};
    int rc = setup(&w, err);
    if (rc == 0 && try_forms(&w, o)) {
        ds_explain_match(e, o->y, &o->match);
        o->replayed = 1;
    }
    release(&w);
    return rc;
}

int ds_explain_weigh(const struct ds_explain *e, int side, struct ds_explain_order *o,
                     struct ds_error *err)
{
    const size_t elements = e->n_rows * (size_t)ds_explain_width(e->op, &e->shared);
    snprintf(o->not_replayed, sizeof o->not_replayed, "%s", lacks(e, o));
    if (o->not_replayed[0])
        return 0;
    o->y = ds_alloc_aligned(elements, sizeof *o->y, "the replay", err);
    int rc = o->y ? weigh(e, side, o, err) : -1;
    if (rc == 0 && !o->replayed)
        snprintf(o->not_replayed, sizeof o->not_replayed,
                 "no known way from scores to outputs gives its bits in these orders");
    return rc;
}
