/* explain_reproduce_choose.c: which rows and elements a reproducer shows, and of which side the arithmetic is
 * known. */
#include "cli/explain_reproduce.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int differs(const struct ds_explain_row *r, int64_t c)
{
    return ds_f32_bits(r->y[DS_SIDE_A][c]) != ds_f32_bits(r->y[DS_SIDE_B][c]);
}

/* Whether the order, or the way, found for a side gives the element's bits. */
static int given(const struct ds_shown *s, int side, size_t row, int64_t c)
{
    const struct ds_explain_order *o = &s->x->order[side];
    const size_t i = row * (size_t)s->width + (size_t)c;
    return o->replayed && (!o->tree_of || o->tree_of[i] >= 0) &&
           ds_f32_bits(o->y[i]) == ds_f32_bits(s->x->c->e.rows[row].y[side][c]);
}

int ds_shown_usable(const struct ds_shown *s, size_t row, int64_t c)
{
    if (!differs(&s->x->c->e.rows[row], c))
        return 0;
    for (int i = 0; i < DS_SIDES; i++) {
        const struct ds_explain_guess *g = &s->x->noise.guess[i];
        if (s->known[i] ? !given(s, i, row, c) : g->kind && !ds_guess_has(g, row))
            return 0;
    }
    return 1;
}

static void why_unknown(const struct ds_explanation *x, int side, char *text, size_t size)
{
    const struct ds_explain_order *o = &x->order[side];
    if (o->replayed)
        snprintf(text, size, "its order of addition gives %llu of the %llu elements that differ",
                 (unsigned long long)o->match.drift_same[side],
                 (unsigned long long)o->match.drifting);
    else if (!o->fixed)
        snprintf(text, size, "no fixed order: %d of %d calls on the same data agree", o->agreeing,
                 o->repeats);
    else if (ds_explain_stands_alone(x->c->e.op))
        snprintf(text, size, "no known way to compute an element gives its bits");
    else
        snprintf(text, size, "%.*s", (int)size - 1,
                 o->not_replayed[0] ? o->not_replayed
                 : o->why[0]        ? o->why
                                    : "its order of addition was not found");
}

/* Both, if that shows half of what differs at least; else the one that gives more; none. */
void ds_shown_know(struct ds_shown *s)
{
    const struct ds_explain *e = &s->x->c->e;
    size_t all = 0, both = 0, one[DS_SIDES] = {0, 0};
    for (size_t r = 0; r < e->n_rows; r++)
        for (int64_t c = 0; c < s->width; c++) {
            if (!differs(&e->rows[r], c))
                continue;
            const int a = given(s, DS_SIDE_A, r, c), b = given(s, DS_SIDE_B, r, c);
            all++;
            both += (size_t)(a && b);
            one[DS_SIDE_A] += (size_t)a;
            one[DS_SIDE_B] += (size_t)b;
        }
    const int more = one[DS_SIDE_B] > one[DS_SIDE_A];
    if (both && (2 * both >= all || 2 * both >= one[more]))
        s->known[DS_SIDE_A] = s->known[DS_SIDE_B] = 1;
    else if (one[more])
        s->known[more] = 1;
    for (int i = 0; i < DS_SIDES; i++) {
        s->form[i] = s->x->order[i].form;
        if (!s->known[i])
            why_unknown(s->x, i, s->unknown[i], sizeof s->unknown[i]);
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

static size_t usable_in(const struct ds_shown *s, size_t row)
{
    size_t n = 0;
    for (int64_t c = 0; c < s->width; c++)
        n += (size_t)ds_shown_usable(s, row, c);
    return n;
}

static int together(const struct ds_explain *e, size_t a, size_t b)
{
    return e->rows[a].at[DS_SIDE_A].call == e->rows[b].at[DS_SIDE_A].call &&
           e->rows[a].at[DS_SIDE_B].call == e->rows[b].at[DS_SIDE_B].call;
}

void ds_shown_rows(struct ds_shown *s)
{
    const struct ds_explain *e = &s->x->c->e;
    size_t first = 0;
    for (size_t r = 1; r < e->n_rows; r++)
        if (usable_in(s, r) > usable_in(s, first))
            first = r;
    s->rows[s->n_rows++] = first;
    for (size_t r = 0; r < e->n_rows && s->n_rows < DS_SHOWN_ROWS; r++)
        if (r != first && together(e, r, first) && usable_in(s, r))
            s->rows[s->n_rows++] = r;
}

/* ---- elements -------------------------------------------------------------------------------- */

void ds_shown_take(struct ds_shown *s, size_t row, int64_t c)
{
    const struct ds_explain_row *r = &s->x->c->e.rows[row];
    s->from_row[s->n] = row;
    s->column[s->n] = (int32_t)c;
    for (size_t i = 0; i < s->n_rows; i++)
        if (s->rows[i] == row)
            s->row[s->n] = (int32_t)i;
    for (int i = 0; i < DS_SIDES; i++)
        s->y[i][s->n] = r->y[i][c];
    s->n++;
}

struct element {
    double off;
    int64_t column;
};

static int by_size(const void *a, const void *b)
{
    const struct element *x = a, *y = b;
    if (x->off != y->off)
        return x->off > y->off ? -1 : 1;
    return (x->column > y->column) - (x->column < y->column);
}

static int by_column(const void *a, const void *b)
{
    const struct element *x = a, *y = b;
    return (x->column > y->column) - (x->column < y->column);
}

/* Of two known sides spread over the columns; else those that are farthest apart. */
static size_t pick(const struct ds_shown *s, struct element *all, size_t n, size_t most)
{
    if (n <= most)
        return n;
    if (s->known[DS_SIDE_A] && s->known[DS_SIDE_B]) {
        for (size_t i = 0; i < most; i++)
            all[i] = all[i * n / most];
    } else {
        qsort(all, n, sizeof *all, by_size);
        qsort(all, most, sizeof *all, by_column);
    }
    return most;
}

int ds_shown_choose(struct ds_shown *s, struct ds_error *err)
{
    ds_shown_rows(s);
    struct element *all = ds_calloc((size_t)s->width, sizeof *all, "the reproducer", err);
    if (!all)
        return -1;
    for (size_t i = 0; i < s->n_rows; i++) {
        const struct ds_explain_row *r = &s->x->c->e.rows[s->rows[i]];
        size_t n = 0;
        for (int64_t c = 0; c < s->width; c++) {
            if (!ds_shown_usable(s, s->rows[i], c))
                continue;
            const double off = fabs((double)r->y[DS_SIDE_A][c] - (double)r->y[DS_SIDE_B][c]);
            all[n++] = (struct element){isfinite(off) ? off : (double)INFINITY, c};
        }
        n = pick(s, all, n, DS_SHOWN_ELEMENTS / s->n_rows);
        for (size_t k = 0; k < n; k++)
            ds_shown_take(s, s->rows[i], all[k].column);
    }
    free(all);
    return s->n ? 0 : ds_fail(err, "--reproducer: no element of the rows dumped differs");
}
