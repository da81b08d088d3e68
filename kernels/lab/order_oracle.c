/* order_oracle.c: answers the questions of the recovery with launches of a grid. One launch answers
 * as many questions as the class has columns in one row (the masks lie in the weights), or rows in
 * one column (they lie in the inputs), whichever is more. */
#include "kernels/lab/order_grid.h"

#include "base/mem.h"
#include "kernels/lab/order_recover.h"

#include <math.h>
#include <stdlib.h>

struct slots {
    struct ds_grid *g;
    int by_row;    /* masks in x, one question a row */
    int64_t fixed; /* the one row, or the one column */
    int64_t *at;   /* columns, or rows */
    int64_t n;
    float side; /* what the other side holds now; 0: unknown */
};

/* The columns of row r that belong to the class, each content once. */
static int64_t columns_of(const struct ds_grid *g, const struct ds_order_sum *s, int32_t cls,
                          int64_t r, char *used, int64_t *at)
{
    int64_t n = 0;
    for (int64_t c = 0; c < g->contents; c++)
        used[c] = 0;
    for (int64_t c = 0; c < g->columns; c++) {
        int64_t content = ds_grid_content(g, c);
        if (s->class_of[r * g->columns + c] != cls || used[content])
            continue;
        used[content] = 1;
        at[n++] = c;
    }
    return n;
}

static int64_t rows_of(const struct ds_grid *g, const struct ds_order_sum *s, int32_t cls,
                       int64_t c, int64_t *at)
{
    int64_t n = 0;
    for (int64_t r = 0; r < g->rows; r++)
        if (s->class_of[r * g->columns + c] == cls)
            at[n++] = r;
    return n;
}

static int choose_slots(struct slots *s, const struct ds_order_sum *sum, int32_t cls,
                        struct ds_error *err)
{
    const struct ds_grid *g = s->g;
    int64_t best_row = sum->classes[cls].row, best_column = sum->classes[cls].column, n;
    char *used = ds_calloc((size_t)g->contents, 1, "columns", err);
    s->at = ds_calloc((size_t)(g->columns + g->rows), sizeof *s->at, "columns", err);
    if (!used || !s->at) {
        free(used);
        return -1;
    }
    int64_t by_columns = 0, by_rows = 0;
    for (int64_t r = 0; r < g->rows; r++)
        if ((n = columns_of(g, sum, cls, r, used, s->at)) > by_columns)
            by_columns = n, best_row = r;
    for (int64_t c = 0; c < g->columns && g->x; c++)
        if ((n = rows_of(g, sum, cls, c, s->at)) > by_rows)
            by_rows = n, best_column = c;
    s->by_row = by_rows > by_columns;
    s->fixed = s->by_row ? best_column : best_row;
    s->n = s->by_row ? rows_of(g, sum, cls, best_column, s->at)
                     : columns_of(g, sum, cls, best_row, used, s->at);
    free(used);
    return 0;
}

static void set_side(struct slots *s, float side)
{
    struct ds_grid *g = s->g;
    float *p = s->by_row ? g->w : g->x;
    int64_t n = (s->by_row ? g->contents : g->rows) * g->terms;
    if (s->side == side || !p)
        return;
    for (int64_t i = 0; i < n; i++)
        p[i] = side;
    g->w_changed |= s->by_row;
    s->side = side;
}

static void write_question(const struct slots *s, int64_t slot, const struct ds_probe *p)
{
    const struct ds_grid *g = s->g;
    float *to = s->by_row ? g->x + s->at[slot] * g->terms
                          : g->w + ds_grid_content(g, s->at[slot]) * g->terms;
    for (int64_t k = 0; k < g->terms; k++)
        to[k] = k >= p->lo && k < p->hi ? p->fill : 0.0f;
    for (int32_t i = 0; i < p->n; i++)
        to[p->term[i]] = p->value[i];
}

/* The sum behind an output. What was divided is known again to some 20 bits, and questions have
 * answers of fewer bits than 18. Parts with weights of their own do not take each other's masks
 * back: what is left of them has swallowed everything, as a mask does until it is taken back. */
static float sum_of(const struct ds_grid *g, float y)
{
    if (g->finish == DS_FINISH_NONE || !isfinite(y) || y == 0.0f)
        return y;
    if (g->finish == DS_FINISH_PARTS && fabsf(y) > 0x1p40f)
        return 0.0f;
    int exponent;
    double f = frexp((double)y * (double)g->divisor, &exponent);
    return (float)ldexp(rint(ldexp(f, 18)), exponent - 18);
}

static int ask(void *self, float side, struct ds_probe *p, size_t n, struct ds_error *err)
{
    struct slots *s = self;
    struct ds_grid *g = s->g;
    set_side(s, side);
    for (size_t at = 0; at < n; at += (size_t)s->n) {
        int64_t now = n - at < (size_t)s->n ? (int64_t)(n - at) : s->n;
        for (int64_t i = 0; i < now; i++)
            write_question(s, i, &p[at + (size_t)i]);
        g->w_changed |= !s->by_row;
        if (ds_grid_launch(g, err) != 0)
            return -1;
        for (int64_t i = 0; i < now; i++)
            p[at + (size_t)i].result =
                sum_of(g, s->by_row ? g->y[s->at[i] * g->columns + s->fixed]
                                    : g->y[s->fixed * g->columns + s->at[i]]);
    }
    return 0;
}

static int with_slots(struct ds_grid *g, const struct ds_order_sum *sum, int32_t cls,
                      struct ds_tree *t, unsigned which, struct ds_error *err)
{
    struct slots s = {.g = g};
    struct ds_oracle o = {&s, g->terms, g->finish != DS_FINISH_NONE, ask};
    int rc = choose_slots(&s, sum, cls, err);
    if (rc == 0)
        rc = which ? ds_recover_details(&o, t, which, err) : ds_recover_signed(&o, t, err);
    free(s.at);
    return rc;
}

int ds_grid_recover(struct ds_grid *g, const struct ds_order_sum *sum, int32_t cls,
                    struct ds_tree *t, struct ds_error *err)
{
    return with_slots(g, sum, cls, t, 0, err);
}

int ds_grid_details(struct ds_grid *g, const struct ds_order_sum *sum, int32_t cls,
                    struct ds_tree *t, unsigned which, struct ds_error *err)
{
    return with_slots(g, sum, cls, t, which, err);
}
