/* explain_weigh.c: softmax and attention again along measured trees, with scalar arithmetic: scores by
 * the tree of q.k, their exp, the denominator and the values by theirs. The trees do not say whose exp it
 * is, which maximum is taken off, how parts are merged and how the division is made: every known way is
 * tried on the first row, and one counts only if it gives every bit of every row. Knows no kernel.
 *
 * Ways. exp: libm's, or the one of kernels/PINNED.md. Maximum: one; or that of the slots so far, block by
 * block (the blocks that the denominator's tree adds up one after another), what was summed before being
 * scaled. Parts: the last sums that the values' tree puts together, each with a maximum and a denominator
 * of its own, merged by their log-sum-exp, or by exp(their maximum - the largest). */
#include "kernels/lab/explain.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "kernels/lab/order_replay.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PARTS = 64 };
enum { EXPS = 2, FINISHES = 2, JOINS = 2, MAXIMA = 3, MERGES = 4, CUTS = 3 };
enum { EXP_LIBM, EXP_PINNED };
enum { MAX_ONE, MAX_BY_SLOT, MAX_BY_BLOCK };
enum { MERGE_NONE, MERGE_LSE, MERGE_LARGEST, MERGE_FMA };
enum { FORMS = EXPS * FINISHES * JOINS * MAXIMA * MERGES };

struct form {
    int exp, reciprocal, fma, running, merge;
    int cut; /* how parts are found: find_parts */
};

static struct form form_of(int form)
{
    struct form f = {.exp = form % EXPS};
    f.reciprocal = (form /= EXPS) % FINISHES;
    f.fma = (form /= FINISHES) % JOINS;
    f.running = (form /= JOINS) % MAXIMA;
    f.merge = form / MAXIMA;
    return f;
}

void ds_weigh_form_text(int form, char *text, size_t size)
{
    static const char *const merge[MERGES] = {
        "", ", parts merged by their log-sum-exp", ", parts merged by their maxima",
        ", parts merged by their maxima one after another, FMA"};
    const struct form f = form_of(form);
    snprintf(text, size, "%s, values %s, %s%s, %s the sum",
             f.exp == EXP_LIBM ? "exp of libm" : "the pinned exp", f.fma ? "FMA" : "mul+add",
             f.running == MAX_BY_SLOT    ? "the maximum so far"
             : f.running == MAX_BY_BLOCK ? "the maximum so far, by blocks"
                                         : "one maximum",
             merge[f.merge], f.reciprocal ? "times 1 over" : "divided by");
}

int ds_explain_weighs(int op)
{
    return op == DS_OP_ATTENTION || op == DS_OP_SOFTMAX;
}

/* The exp of kernels/PINNED.md. */
static float pinned_exp(float x)
{
    x = x < -104.0f ? -104.0f : x;
    x = 89.0f < x ? 89.0f : x;
    const float n = fmaf(x, 0x1.715476p+0f, 12582912.0f) - 12582912.0f,
                r = fmaf(n, 0x1.05c610p-29f, fmaf(n, -0x1.62e430p-1f, x));
    float p = 0x1.6a2256p-10f;
    p = fmaf(p, r, 0x1.123b02p-7f);
    p = fmaf(p, r, 0x1.5558f8p-5f);
    p = fmaf(p, r, 0x1.555490p-3f);
    p = fmaf(p, r, 0x1.fffffcp-2f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    const float h = floorf(n / 2.0f);
    return p * ldexpf(1.0f, (int)h) * ldexpf(1.0f, (int)(n - h));
}

static float term(const struct form *f, float x, float max)
{
    if (x == -INFINITY)
        return 0.0f;
    return f->exp == EXP_LIBM ? expf(x - max) : pinned_exp(x - max);
}

/* Slots begin..end-1, added up. */
struct part {
    int64_t begin, end;
    float max, sum;
};

struct weigher {
    const struct ds_explain *e;
    int side;
    const struct ds_explain_order *o;
    struct ds_replay *replay, *fused; /* [n_trees]; the trees of values with FMA */
    int64_t slots, dim;               /* of the row at hand; channels of a head; softmax: 0 */
    float *score, *p, *ones, *column, *room;
    /* Of the row and head at hand: */
    int32_t values, den; /* trees */
    float *acc, *part_acc;
    struct part *blocks; /* as many as there are slots */
    int most_blocks;
};

/* ---- parts of trees -------------------------------------------------------------------------- */

/* ((P0 + P1) + P2) + ...: what the tree adds last, one after another; each a range of terms, ascending.
 * A single term is no part (cut 0), the last part alone (1), or always one (2), since two
 * terms may be two parts or one. 0: it is not so. */
static int find_parts(const struct ds_tree *t, int cut, struct part *out, int most)
{
    int n = 0;
    int32_t v = t->root;
    int64_t end = t->terms;
    for (;;) {
        const int32_t a = t->node[v].first, b = a >= 0 ? t->node[a].next : -1;
        const int splits =
            t->node[v].children == 2 && t->node[b].min > 0 && t->node[a].min == 0 &&
            t->node[b].min + t->node[b].size == end &&
            (cut == 2 || (t->node[a].size > 1 && ((cut == 1 && n == 0) || t->node[b].size > 1)));
        if (n == most)
            return 0;
        if (!splits) {
            out[n++] = (struct part){0, end, 0, 0};
            break;
        }
        out[n++] = (struct part){t->node[b].min, end, 0, 0};
        end = t->node[b].min;
        v = a;
    }
    for (int i = 0, j = n - 1; i < j; i++, j--) {
        const struct part swap = out[i];
        out[i] = out[j];
        out[j] = swap;
    }
    return n;
}

/* ---- one part -------------------------------------------------------------------------------- */

static const float *value(const struct weigher *w, const struct ds_explain_input *in, int64_t slot,
                          int64_t head)
{
    const struct ds_attention_args *a = &w->e->shared.attention;
    return in->v + (slot * a->kv_heads + head / (a->heads / a->kv_heads)) * w->dim;
}

/* One sum over a range by the whole tree: terms outside are +0, which no order can tell from none. */
static float sum_range(const struct weigher *w, int32_t tree, const struct part *p, const float *x)
{
    for (int64_t j = 0; j < w->slots; j++)
        w->column[j] = j >= p->begin && j < p->end ? x[j] : 0.0f;
    return ds_replay_one(&w->replay[tree], w->column, w->ones, w->room);
}

/* One maximum for all of the part. */
static void weigh_whole(const struct weigher *w, const struct form *f,
                        const struct ds_explain_input *in, int64_t row, int64_t head,
                        struct part *p, float *acc)
{
    p->max = -INFINITY;
    for (int64_t j = p->begin; j < p->end; j++)
        p->max = w->score[j] > p->max ? w->score[j] : p->max;
    for (int64_t j = 0; j < w->slots; j++)
        w->p[j] = j >= p->begin && j < p->end ? term(f, w->score[j], p->max) : 0.0f;
    p->sum = sum_range(w, w->den, p, w->p);
    for (int64_t d = 0; d < w->dim; d++) {
        const int32_t tree =
            w->o->tree_of[row * w->e->shared.attention.heads * w->dim + head * w->dim + d];
        for (int64_t j = 0; j < w->slots; j++)
            w->column[j] = j >= p->begin && j < p->end ? value(w, in, j, head)[d] : 0.0f;
        acc[d] = tree < 0 ? NAN
                          : ds_replay_one(&(f->fma ? w->fused : w->replay)[tree], w->p, w->column,
                                          w->room);
    }
}

/* A block joins what stands there: its terms are taken off a maximum that knows it. */
static void weigh_block(const struct weigher *w, const struct form *f,
                        const struct ds_explain_input *in, int64_t head, const struct part *b,
                        struct part *p, float *acc)
{
    float max = p->max;
    for (int64_t j = b->begin; j < b->end; j++)
        max = w->score[j] > max ? w->score[j] : max;
    const float old = p->max == max ? 1.0f : p->max == -INFINITY ? 0.0f : term(f, p->max, max);
    for (int64_t j = b->begin; j < b->end; j++)
        w->p[j] = term(f, w->score[j], max);
    p->sum = p->sum * old + sum_range(w, w->den, b, w->p);
    p->max = max;
    for (int64_t d = 0; d < w->dim; d++) {
        acc[d] *= old;
        for (int64_t j = b->begin; j < b->end; j++) {
            const float v = value(w, in, j, head)[d];
            acc[d] = f->fma ? fmaf(w->p[j], v, acc[d]) : acc[d] + w->p[j] * v;
        }
    }
}

static void weigh_running(const struct weigher *w, const struct form *f,
                          const struct ds_explain_input *in, int64_t head,
                          const struct part *blocks, int n, struct part *p, float *acc)
{
    p->max = -INFINITY;
    p->sum = 0;
    memset(acc, 0, (size_t)w->dim * sizeof *acc);
    for (int i = 0; i < n; i++) {
        struct part b = blocks[i];
        b.begin = b.begin > p->begin ? b.begin : p->begin;
        b.end = b.end < p->end ? b.end : p->end;
        if (b.begin < b.end)
            weigh_block(w, f, in, head, &b, p, acc);
    }
}

/* ---- merging --------------------------------------------------------------------------------- */

/* Weights of parts by log-sum-exp; each part's values are divided by its own sum. */
static void merge_lse(const struct weigher *w, const struct part *part, int n, float *acc)
{
    float lse[MOST_PARTS], max = -INFINITY, z = 0;
    for (int i = 0; i < n; i++) {
        lse[i] = part[i].max + logf(part[i].sum);
        max = lse[i] > max ? lse[i] : max;
    }
    for (int i = 0; i < n; i++)
        z += expf(lse[i] - max);
    for (int64_t d = 0; d < w->dim; d++) {
        acc[d] = 0;
        for (int i = 0; i < n; i++)
            acc[d] += w->part_acc[i * w->dim + d] / part[i].sum * expf(lse[i] - (max + logf(z)));
    }
}

static float merge_largest(const struct weigher *w, const struct form *f, const struct part *part,
                           int n, float *acc)
{
    float max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        max = part[i].max > max ? part[i].max : max;
    memset(acc, 0, (size_t)w->dim * sizeof *acc);
    for (int i = 0; i < n; i++) {
        const float g = term(f, part[i].max, max);
        sum += part[i].sum * g;
        for (int64_t d = 0; d < w->dim; d++)
            acc[d] += w->part_acc[i * w->dim + d] * g;
    }
    return sum;
}

static float merge_fma(const struct weigher *w, const struct form *f, const struct part *part,
                       int n, float *acc)
{
    float max = part[0].max, sum = part[0].sum;
    memcpy(acc, w->part_acc, (size_t)w->dim * sizeof *acc);
    for (int i = 1; i < n; i++) {
        const float m = part[i].max > max ? part[i].max : max, old = term(f, max, m),
                    g = term(f, part[i].max, m);
        sum = fmaf(sum, old, part[i].sum * g);
        for (int64_t d = 0; d < w->dim; d++)
            acc[d] = fmaf(acc[d], old, w->part_acc[i * w->dim + d] * g);
        max = m;
    }
    return sum;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* The blocks before each of which the maximum moves on; 0: there are none. */
static int cut_blocks(const struct weigher *w, const struct form *f)
{
    if (f->running == MAX_BY_BLOCK)
        return find_parts(&w->o->trees[w->den].tree, 2, w->blocks, w->most_blocks);
    for (int64_t j = 0; j < w->slots; j++)
        w->blocks[j] = (struct part){j, j + 1, 0, 0};
    return (int)w->slots;
}

/* One head by one form; 0: the trees are not of that form. */
static int weigh_head(const struct weigher *w, const struct form *f,
                      const struct ds_explain_input *in, int64_t row, int64_t head, float *y)
{
    struct part part[MOST_PARTS] = {{0, w->slots, 0, 0}};
    int n = 1, n_blocks = 0;
    if (f->merge != MERGE_NONE &&
        (n = find_parts(&w->o->trees[w->values].tree, f->cut, part, MOST_PARTS)) < 1)
        return 0;
    if (f->running && (n_blocks = cut_blocks(w, f)) < 1)
        return 0;
    for (int i = 0; i < n; i++) {
        float *acc = n == 1 ? w->acc : w->part_acc + i * w->dim;
        if (f->running)
            weigh_running(w, f, in, head, w->blocks, n_blocks, &part[i], acc);
        else
            weigh_whole(w, f, in, row, head, &part[i], acc);
    }
    float sum = part[0].sum;
    if (n == 1) { /* as without parts */
    } else if (f->merge == MERGE_LSE) {
        merge_lse(w, part, n, w->acc);
        sum = 1.0f;
    } else if (f->merge == MERGE_LARGEST) {
        sum = merge_largest(w, f, part, n, w->acc);
    } else if (f->merge == MERGE_FMA) {
        sum = merge_fma(w, f, part, n, w->acc);
    }
    for (int64_t d = 0; d < w->dim; d++)
        y[d] = f->reciprocal ? w->acc[d] * (1.0f / sum) : w->acc[d] / sum;
    return 1;
}

static void store(int dtype, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = dtype == DS_BF16  ? ds_bf16_value(ds_bf16_round(y[i]))
               : dtype == DS_F16 ? ds_f16_value(ds_f16_round(y[i]))
                                 : y[i];
}

static int attention_row(struct weigher *w, const struct form *f, size_t row, float *y)
{
    const struct ds_attention_args *a = &w->e->shared.attention;
    const struct ds_explain_input *in = &w->e->rows[row].input[w->side];
    const struct ds_replay *scores = &w->replay[w->o->scores_of[row]];
    w->slots = in->slot + 1 - in->kv_first;
    w->den = w->o->den_of[row];
    for (int64_t h = 0; h < a->heads; h++) {
        const int64_t kv = h / (a->heads / a->kv_heads) * a->head_dim;
        w->values = w->o->tree_of[((int64_t)row * a->heads + h) * a->head_dim];
        for (int64_t j = 0; j < w->slots; j++)
            w->score[j] = ds_replay_one(scores, in->in[0] + h * a->head_dim,
                                        in->k + j * a->kv_heads * a->head_dim + kv, w->room) *
                          a->scale;
        if (!weigh_head(w, f, in, (int64_t)row, h, y + h * a->head_dim))
            return 0;
    }
    store(w->e->side[w->side].dtype, y, a->heads * a->head_dim);
    return 1;
}

static int softmax_row(struct weigher *w, const struct form *f, size_t row, float *y)
{
    const float *x = w->e->rows[row].input[w->side].in[0];
    struct part all = {0, w->e->shared.softmax.width, 0, 0};
    if (f->running || f->merge)
        return 0;
    w->slots = all.end;
    w->den = w->o->den_of[row];
    memcpy(w->score, x, (size_t)w->slots * sizeof *x);
    weigh_whole(w, f, NULL, (int64_t)row, 0, &all, NULL);
    for (int64_t i = 0; i < w->slots; i++)
        y[i] = f->reciprocal ? w->p[i] * (1.0f / all.sum) : w->p[i] / all.sum;
    store(w->e->side[w->side].dtype, y, w->slots);
    return 1;
}

/* How many elements of a row come out. */
static int64_t row_matches(const struct weigher *w, size_t row, const float *y)
{
    const int64_t width = ds_explain_width(w->e->op, &w->e->shared);
    int64_t n = 0;
    for (int64_t i = 0; i < width; i++)
        n += ds_f32_bits(y[i]) == ds_f32_bits(w->e->rows[row].y[w->side][i]);
    return n;
}

/* Whether a row comes out, in whichever way its tree can be cut into parts. */
static int row_comes_out(struct weigher *w, int form, size_t row, float *y)
{
    const int64_t width = ds_explain_width(w->e->op, &w->e->shared);
    struct form f = form_of(form);
    for (f.cut = 0; f.cut < (f.merge ? CUTS : 1); f.cut++)
        if ((w->e->op == DS_OP_SOFTMAX ? softmax_row(w, &f, row, y)
                                       : attention_row(w, &f, row, y)) &&
            row_matches(w, row, y) == width)
            return 1;
    return 0;
}

/* The row that tells the ways apart best is the one with the most slots. */
static size_t longest_row(const struct weigher *w)
{
    size_t at = 0;
    for (size_t r = 1; r < w->e->n_rows && w->e->op == DS_OP_ATTENTION; r++)
        if (w->e->rows[r].input[w->side].slot > w->e->rows[at].input[w->side].slot)
            at = r;
    return at;
}

/* The first way that gives every bit of all rows. */
static int try_forms(struct weigher *w, struct ds_explain_order *o)
{
    const int64_t width = ds_explain_width(w->e->op, &w->e->shared);
    const size_t first = longest_row(w);
    for (int form = 0; form < FORMS; form++) {
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
    const struct ds_attention_args *a = &e->shared.attention;
    const int64_t width = ds_explain_width(e->op, &e->shared);
    if (e->op == DS_OP_ATTENTION && (a->window > 0 || a->soft_cap > 0))
        return "a window or a soft cap stands between scores and sums";
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

/* The same additions where every product that meets a sum joins it unrounded: with equal scores, at which
 * the values are measured, that cannot be told. */
static int compile_fused(const struct ds_tree *t, struct ds_replay *out, struct ds_error *err)
{
    struct ds_tree copy = *t;
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

static int setup(struct weigher *w, struct ds_error *err)
{
    size_t room = 1, most = 1;
    const struct ds_explain *e = w->e;
    w->dim = e->op == DS_OP_ATTENTION ? e->shared.attention.head_dim : 0;
    w->replay = ds_calloc(w->o->n_trees, sizeof *w->replay, "the replay", err);
    w->fused = ds_calloc(w->o->n_trees, sizeof *w->fused, "the replay", err);
    for (size_t i = 0; i < w->o->n_trees && w->replay && w->fused; i++) {
        const struct ds_tree *t = &w->o->trees[i].tree;
        if (ds_replay_compile(t, t->root, &w->replay[i], err) != 0 ||
            compile_fused(t, &w->fused[i], err) != 0)
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
    ok &= (w->part_acc = ds_alloc_aligned((size_t)w->dim * MOST_PARTS + 1, sizeof(float), "sums",
                                          err)) != NULL;
    ok &= (w->blocks = ds_calloc(most, sizeof *w->blocks, "sums", err)) != NULL;
    w->most_blocks = (int)most;
    for (size_t i = 0; i < most && w->ones; i++)
        w->ones[i] = 1.0f;
    return ok ? 0 : -1;
}

static void release(struct weigher *w)
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

int ds_explain_weigh(const struct ds_explain *e, int side, struct ds_explain_order *o,
                     struct ds_error *err)
{
    struct weigher w = {.e = e, .side = side, .o = o};
    const size_t elements = e->n_rows * (size_t)ds_explain_width(e->op, &e->shared);
    snprintf(o->not_replayed, sizeof o->not_replayed, "%s", lacks(e, o));
    if (o->not_replayed[0])
        return 0;
    o->y = ds_alloc_aligned(elements, sizeof *o->y, "the replay", err);
    int rc = o->y ? setup(&w, err) : -1;
    if (rc == 0 && try_forms(&w, o)) {
        ds_explain_match(e, o->y, &o->match);
        o->replayed = 1;
    } else if (rc == 0) {
        snprintf(o->not_replayed, sizeof o->not_replayed,
                 "no known way from scores to outputs gives its bits in these orders");
    }
    release(&w);
    return rc;
}
