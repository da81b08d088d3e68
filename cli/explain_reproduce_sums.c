/* explain_reproduce_sums.c: reproducers of matmul, rmsnorm, combine and allreduce: factors and orders. Where
 * wrong data were found that account for a side's values, that side has factors of its own, and where its bits
 * come out of those its arithmetic is known after all. */
#include "cli/explain_reproduce.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "kernels/lab/explain_formula.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the two sides, and of what should have been read. */
struct factors {
    int32_t from_x[DS_SHOWN_ELEMENTS], from_w[DS_SHOWN_ELEMENTS], order[DS_SHOWN_ELEMENTS],
        order_of_ranks[DS_SHOWN_ELEMENTS];
    float bias[DS_SHOWN_ELEMENTS];
};

struct sums {
    struct ds_shown *s;
    const struct ds_explain *e;
    int64_t terms;
    float *x, *w; /* [n_x][terms], [n_w][terms] */
    int32_t n_x, n_w;
    struct factors *of; /* [DS_SHOWN_DATA] */
    float *scale, *at;
    int32_t *place; /* [DS_SIDES][n_rows] */
    int ranks[DS_SIDES];
    float largest; /* weight of all; 0: not needed */
};

enum { MOST_X = 2 * DS_SHOWN_ROWS + DS_SHOWN_ELEMENTS, MOST_W = DS_SIDES * DS_SHOWN_ELEMENTS };

static int64_t terms_of(const struct ds_explain *e)
{
    switch (e->op) {
    case DS_OP_MATMUL:
        return e->shared.matmul.k;
    case DS_OP_RMSNORM:
        return e->shared.rmsnorm.width;
    case DS_OP_COMBINE:
        return e->shared.combine.top_k;
    default:
        return e->shared.allreduce.ranks;
    }
}

/* ---- what should have been read --------------------------------------------------------------- */

static void put_x(struct sums *m, size_t row, float *to)
{
    const struct ds_explain_input *in = &m->e->rows[row].input[DS_SIDE_A];
    for (int64_t k = 0; k < m->terms; k++)
        to[k] = m->e->op == DS_OP_ALLREDUCE ? 1.0f : in->in[m->e->op == DS_OP_COMBINE ? 1 : 0][k];
}

static void put_w(struct sums *m, size_t row, int64_t c, float *to)
{
    const struct ds_explain_input *in = &m->e->rows[row].input[DS_SIDE_A];
    for (int64_t k = 0; k < m->terms; k++)
        to[k] = m->e->op == DS_OP_MATMUL    ? m->e->shared.matmul.w.data[c * m->terms + k]
                : m->e->op == DS_OP_RMSNORM ? in->in[0][k]
                                            : in->in[0][k * m->s->width + c];
}

/* Two elements that multiply with the same row of w: of one column, or of one row (rmsnorm). */
static int same_w(const struct sums *m, size_t i, size_t j)
{
    const struct ds_shown *s = m->s;
    return m->e->op == DS_OP_MATMUL    ? s->column[i] == s->column[j]
           : m->e->op == DS_OP_RMSNORM ? s->row[i] == s->row[j]
                                       : s->row[i] == s->row[j] && s->column[i] == s->column[j];
}

static void gather(struct sums *m)
{
    struct ds_shown *s = m->s;
    struct factors *f = &m->of[DS_SHOWN_TRUE];
    for (; m->n_x < (int32_t)s->n_rows; m->n_x++)
        put_x(m, s->rows[m->n_x], m->x + m->n_x * m->terms);
    for (size_t i = 0; i < s->n; i++) {
        size_t j = 0;
        while (j < i && !same_w(m, i, j))
            j++;
        f->from_x[i] = s->row[i];
        f->from_w[i] = j < i ? f->from_w[j] : m->n_w;
        if (j == i)
            put_w(m, s->from_row[i], s->column[i], m->w + m->n_w++ * m->terms);
        if (m->e->op == DS_OP_MATMUL && m->e->shared.matmul.bias)
            f->bias[i] = m->e->shared.matmul.bias[s->column[i]];
        if (m->e->op == DS_OP_RMSNORM) {
            m->scale[i] = m->e->shared.rmsnorm.weight[s->column[i]];
            m->at[i] = m->e->rows[s->from_row[i]].input[DS_SIDE_A].in[0][s->column[i]];
        }
    }
    for (int i = 0; i < DS_SIDES; i++)
        m->of[i] = *f;
}

/* ---- what a side is thought to have read ------------------------------------------------------ */

static void other_w(struct sums *m, const struct ds_explain_guess *g, int64_t c, float *to)
{
    const struct ds_matmul_args *a = &m->e->shared.matmul;
    put_w(m, 0, g->kind == DS_GUESS_COLUMNS ? c + g->a : c, to);
    if (g->kind == DS_GUESS_BLOCKS)
        ds_explain_block_weights((int)g->a, g->b, a->w.data + c * a->k, a->k, to);
    for (int64_t k = 0; k < m->terms; k++)
        if (g->kind == DS_GUESS_TRANSPOSED)
            to[k] = a->w.data[k * a->n + c];
        else if (g->kind == DS_GUESS_WEIGHTS)
            to[k] = m->e->others[g->a].data[c * a->k + k];
        else if (g->kind == DS_GUESS_TERMS && k >= g->a && k < g->b)
            to[k] = g->value < 0 ? 0.0f : 2 * to[k];
        else if (g->kind == DS_GUESS_WEIGHT && c == g->a && k == g->b)
            to[k] = (float)g->value;
}

static int is_of_weights(const struct ds_explain_guess *g)
{
    return g->kind == DS_GUESS_TRANSPOSED || g->kind == DS_GUESS_WEIGHTS ||
           g->kind == DS_GUESS_BLOCKS || g->kind == DS_GUESS_TERMS || g->kind == DS_GUESS_WEIGHT ||
           g->kind == DS_GUESS_COLUMNS;
}

static void other_data(struct sums *m, int side, const struct ds_explain_guess *g)
{
    const struct ds_shown *s = m->s;
    const float *bias = m->e->shared.matmul.bias;
    struct factors *f = &m->of[side];
    int32_t row = -1;
    for (size_t i = 0; i < s->n; i++) {
        const int64_t c = s->column[i];
        const int64_t beyond =
            g->kind == DS_GUESS_COLUMNS && (c + g->a < 0 || c + g->a >= s->width);
        if (is_of_weights(g) && !beyond) {
            f->from_w[i] = m->n_w;
            other_w(m, g, c, m->w + m->n_w++ * m->terms);
        }
        if (g->kind == DS_GUESS_ROW && (int64_t)s->from_row[i] == g->a) {
            if (row < 0)
                put_x(m, (size_t)g->b, m->x + (row = m->n_x++) * m->terms);
            f->from_x[i] = row;
        }
        if (bias && g->kind == DS_GUESS_COLUMNS && !beyond)
            f->bias[i] = bias[c + g->a];
        if (bias && g->kind == DS_GUESS_BIAS)
            f->bias[i] = (float)g->value * bias[((c + g->a) % s->width + s->width) % s->width];
    }
}

/* Factors as a format of few bits keeps them. */
static void other_format(struct sums *m, int side, const struct ds_explain_rounded *r)
{
    const struct ds_shown *s = m->s;
    struct factors *f = &m->of[side];
    for (size_t i = 0; i < s->n_rows && (r->which & 1); i++)
        ds_format_factors(r->format, 0, m->x + (m->n_x + (int32_t)i) * m->terms,
                          m->x + (int64_t)i * m->terms, m->terms);
    for (size_t i = 0; i < s->n && (r->which & 1); i++)
        f->from_x[i] = m->n_x + s->row[i];
    m->n_x += (r->which & 1) ? (int32_t)s->n_rows : 0;
    for (size_t i = 0; i < s->n && (r->which & 2); i++) {
        size_t j = 0;
        while (j < i && !same_w(m, i, j))
            j++;
        const int32_t own = f->from_w[i];
        f->from_w[i] = j < i ? f->from_w[j] : m->n_w;
        if (j == i)
            ds_format_factors(r->format, ds_format_by_tensor(r->format) ? m->largest : 0,
                              m->w + m->n_w++ * m->terms, m->w + own * m->terms, m->terms);
    }
}

static float largest_weight(const struct ds_matmul_args *a)
{
    float most = 0;
    for (int64_t i = 0; i < a->n * a->k; i++)
        most = fmaxf(most, fabsf(a->w.data[i]));
    return isfinite(most) ? most : 0;
}

static void guess(struct sums *m, int side)
{
    struct ds_shown *s = m->s;
    const struct ds_explain_noise *n = &s->x->noise;
    const struct ds_explain_guess *g = &n->guess[side];
    const struct ds_explain_rounded *r = ds_explain_format_of(n, side);
    if (m->e->op != DS_OP_MATMUL || m->ranks[side])
        return;
    s->near[side] = 8 * n->order_error.most;
    if (g->kind == DS_GUESS_BLOCKS) /* a scale is only nearly the largest weight */
        s->near[side] = 8 * fmax(n->order_error.most, n->error[side] / 8);
    if (g->kind) {
        snprintf(s->guess[side], sizeof s->guess[side], "%s", g->text);
        other_data(m, side, g);
    } else if (r) {
        s->near[side] = 8 * fmax(n->order_error.most, r->rest[side]);
        snprintf(s->guess[side], sizeof s->guess[side], "%s are rounded to %s",
                 r->which == 1   ? "x"
                 : r->which == 2 ? "the weights"
                                 : "x and the weights",
                 ds_explain_format_name(r->format));
        m->largest = ds_format_by_tensor(r->format) ? largest_weight(&m->e->shared.matmul) : 0;
        other_format(m, side, r);
    }
}

/* ---- orders ---------------------------------------------------------------------------------- */

/* 0: the order lacks a tree of some element. */
static int take_orders(struct sums *m, int side, const struct ds_explain_order *o,
                       struct ds_error *err)
{
    struct ds_shown *s = m->s;
    for (size_t i = 0; i < s->n; i++) {
        const size_t at = s->from_row[i] * (size_t)s->width + (size_t)s->column[i];
        if (!o->tree_of || o->tree_of[at] < 0 || (o->ranks && (!o->sum_of || o->sum_of[at] < 0)))
            return 0;
        if (ds_shown_tree(s, side, o, o->tree_of[at], 0, &m->of[side].order[i], err) != 0 ||
            (o->ranks &&
             ds_shown_tree(s, side, o, o->sum_of[at], 0, &m->of[side].order_of_ranks[i], err) != 0))
            return -1;
    }
    return 1;
}

static float finish(const struct sums *m, int side, size_t i, float sum)
{
    const struct ds_explain *e = m->e;
    const int dtype = e->side[DS_SIDE_A].dtype; /* the one that is written */
    if (e->op == DS_OP_RMSNORM)
        sum = ds_norm_finish(m->s->form[side], dtype, sum, m->terms, e->shared.rmsnorm.eps,
                             m->at[i], m->scale[i]);
    else if (e->op == DS_OP_MATMUL && e->shared.matmul.bias)
        sum += m->of[side].bias[i];
    return ds_shown_stored(m->s, sum);
}

static int add_ranks(const struct sums *m, int side, size_t i, const float *x, const float *w,
                     float *y, struct ds_error *err)
{
    const struct factors *f = &m->of[side];
    const int64_t ranks = m->ranks[side], each = m->terms / ranks;
    float part[64], ones[64];
    for (int64_t r = 0; r < ranks; r++) {
        if (ds_shown_add(m->s, side, f->order[i], each, x + r * each, w + r * each, &part[r],
                         err) != 0)
            return -1;
        part[r] = r ? ds_shown_stored(m->s, part[r]) : finish(m, side, i, part[r]);
        ones[r] = 1.0f;
    }
    if (ds_shown_add(m->s, side, f->order_of_ranks[i], ranks, ones, part, y, err) != 0)
        return -1;
    *y = ds_shown_stored(m->s, *y);
    return 0;
}

/* How many elements of a side the program will give, as it goes through the steps: -1 error. */
static int64_t matches(const struct sums *m, int side, struct ds_error *err)
{
    const struct ds_shown *s = m->s;
    const struct factors *f = &m->of[side];
    int64_t same = 0;
    for (size_t i = 0; i < s->n; i++) {
        const float *x = m->x + f->from_x[i] * m->terms, *w = m->w + f->from_w[i] * m->terms;
        float y;
        if (m->ranks[side]) {
            if (add_ranks(m, side, i, x, w, &y, err) != 0)
                return -1;
        } else {
            if (ds_shown_add(s, side, f->order[i], m->terms, x, w, &y, err) != 0)
                return -1;
            y = finish(m, side, i, y);
        }
        same += ds_f32_bits(y) == ds_f32_bits(s->y[side][i]);
    }
    return same;
}

/* A program that shows nothing is not written. */
static int prove(struct sums *m, int side, struct ds_error *err)
{
    const int rc = take_orders(m, side, &m->s->x->order[side], err);
    if (rc < 0)
        return -1;
    const int64_t same = rc ? matches(m, side, err) : 0;
    if (same < 0 || same == (int64_t)m->s->n)
        return same < 0 ? -1 : 0;
    return ds_fail(err,
                   "--reproducer: it would show nothing: its terms, added in %c's order, give "
                   "%lld of %zu elements of %c",
                   'A' + side, (long long)same, m->s->n, 'A' + side);
}

static void forget_steps(struct ds_shown_steps *t)
{
    t->n = t->n_trees = 0;
    free(t->number);
    t->number = NULL;
}

/* Whether the other side's bits come out of the data that it is thought to have read, in its own order or in that
 * of the side that is known. */
static int try_guess(struct sums *m, int side, struct ds_error *err)
{
    struct ds_shown *s = m->s;
    const struct ds_explain_order *from[] = {&s->x->order[side], &s->x->order[DS_SIDE_B - side]};
    for (int i = 0; i < 2 && s->guess[side][0] && !s->known[side]; i++) {
        if (from[i]->ranks || !from[i]->fixed)
            continue;
        s->form[side] = from[i]->form;
        forget_steps(&s->steps[side]);
        const int rc = take_orders(m, side, from[i], err);
        const int64_t same = rc > 0 ? matches(m, side, err) : rc;
        if (same < 0)
            return -1;
        s->known[side] = same == (int64_t)s->n;
    }
    if (!s->known[side])
        forget_steps(&s->steps[side]);
    return 0;
}

/* ---- all ------------------------------------------------------------------------------------- */

static int setup(struct sums *m, struct ds_error *err)
{
    struct ds_shown *s = m->s;
    const size_t terms = (size_t)m->terms;
    m->x = ds_shown_room(s, MOST_X * terms, sizeof *m->x, err);
    m->w = ds_shown_room(s, (MOST_W + DS_SHOWN_ELEMENTS) * terms, sizeof *m->w, err);
    m->of = ds_shown_room(s, DS_SHOWN_DATA, sizeof *m->of, err);
    m->scale = ds_shown_room(s, DS_SHOWN_ELEMENTS, sizeof *m->scale, err);
    m->at = ds_shown_room(s, DS_SHOWN_ELEMENTS, sizeof *m->at, err);
    m->place = ds_shown_room(s, DS_SIDES * s->n_rows, sizeof *m->place, err);
    for (int i = 0; i < DS_SIDES; i++)
        m->ranks[i] = s->x->order[i].replayed ? s->x->order[i].ranks : 0;
    for (size_t r = 0; r < s->n_rows && m->place; r++)
        for (size_t i = 0; i < DS_SIDES; i++)
            m->place[i * s->n_rows + r] = (int32_t)m->e->rows[s->rows[r]].at[i].row;
    return m->x && m->w && m->of && m->scale && m->at && m->place ? 0 : -1;
}

static void add_arrays(const struct sums *m)
{
    struct ds_shown *s = m->s;
    const struct ds_explain *e = m->e;
    ds_shown_array(s, "x", -1, DS_ARRAY_F32, (size_t)m->n_x, (size_t)m->terms, m->x);
    ds_shown_array(s, "w", -1, DS_ARRAY_F32, (size_t)m->n_w, (size_t)m->terms, m->w);
    ds_shown_array(s, "scale", -1, DS_ARRAY_F32, s->n, 0, m->scale);
    ds_shown_array(s, "at", -1, DS_ARRAY_F32, s->n, 0, m->at);
    ds_shown_number(s, "terms", -1, (double)m->terms);
    ds_shown_number(s, "has_bias", -1, e->op == DS_OP_MATMUL && e->shared.matmul.bias);
    ds_shown_number(s, "eps", -1, e->op == DS_OP_RMSNORM ? (double)e->shared.rmsnorm.eps : 0);
    for (int i = 0; i < DS_SHOWN_DATA; i++) {
        const struct factors *f = &m->of[i];
        ds_shown_array(s, "from_x", i, DS_ARRAY_I32, s->n, 0, f->from_x);
        ds_shown_array(s, "from_w", i, DS_ARRAY_I32, s->n, 0, f->from_w);
        ds_shown_array(s, "bias", i, DS_ARRAY_F32, s->n, 0, f->bias);
        if (i == DS_SHOWN_TRUE)
            continue;
        ds_shown_array(s, "order", i, DS_ARRAY_I32, s->n, 0, f->order);
        ds_shown_array(s, "order_of_ranks", i, DS_ARRAY_I32, s->n, 0, f->order_of_ranks);
        ds_shown_array(s, "place", i, DS_ARRAY_I32, s->n_rows, 0, m->place + (size_t)i * s->n_rows);
        ds_shown_number(s, "ranks", i, m->ranks[i]);
    }
}

int ds_shown_sums(struct ds_shown *s, struct ds_error *err)
{
    struct sums m = {.s = s, .e = &s->x->c->e, .terms = terms_of(&s->x->c->e)};
    if (ds_shown_choose(s, err) != 0 || setup(&m, err) != 0)
        return -1;
    gather(&m);
    for (int i = 0; i < DS_SIDES; i++) {
        if (s->known[i] ? prove(&m, i, err) != 0 : (guess(&m, i), try_guess(&m, i, err) != 0))
            return -1;
    }
    add_arrays(&m);
    return 0;
}
