/* explain_reproduce_steps.c: the orders of a reproducer as steps, and whether they give what is claimed:
 * a program that shows nothing is not written. */
#include "cli/explain_reproduce.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "kernels/lab/order_replay.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_STACK = 4000 };

void ds_reproduce_free(struct ds_shown_steps *t)
{
    free(t->first);
    free(t->zero_start);
    free(t->inputs);
    free(t->term);
    free(t->kind);
    free(t->flags);
}

static int add_steps(struct ds_shown_steps *t, const struct ds_replay *r, struct ds_error *err)
{
    const size_t n = t->n + (size_t)r->n;
    if (r->stack > MOST_STACK || n > INT32_MAX)
        return ds_fail(err, "the order of addition is too deep for a reproducer");
    int32_t *term = realloc(t->term, n * sizeof *term);
    t->term = term ? term : t->term;
    uint8_t *kind = realloc(t->kind, n);
    t->kind = kind ? kind : t->kind;
    uint8_t *flags = realloc(t->flags, n);
    t->flags = flags ? flags : t->flags;
    if (!term || !kind || !flags)
        return ds_fail(err, "out of memory for the reproducer");
    for (int32_t i = 0; i < r->n; i++, t->n++) {
        t->kind[t->n] = r->step[i].kind;
        t->flags[t->n] = r->step[i].flags;
        t->term[t->n] = r->step[i].term;
    }
    t->zero_start[t->n_trees] = r->zero_start;
    t->inputs[t->n_trees] = r->inputs;
    t->first[++t->n_trees] = (int32_t)t->n;
    return 0;
}

int ds_reproduce_compile(const struct ds_shown *s, int side, struct ds_shown_steps *t,
                         struct ds_error *err)
{
    const struct ds_explain_order *o = &s->x->order[side];
    int32_t *number = ds_calloc(o->n_trees, sizeof *number, "the reproducer", err);
    t->first = ds_calloc(o->n_trees + 1, sizeof *t->first, "the reproducer", err);
    t->zero_start = ds_calloc(o->n_trees, sizeof *t->zero_start, "the reproducer", err);
    t->inputs = ds_calloc(o->n_trees, sizeof *t->inputs, "the reproducer", err);
    int rc = number && t->first && t->zero_start && t->inputs ? 0 : -1;
    for (size_t i = 0; i < s->n && rc == 0; i++) {
        const int32_t tree =
            s->x->order[side].tree_of[s->from_row[i] * (size_t)s->width + (size_t)s->column[i]];
        if (!number[tree]) {
            const struct ds_tree *from = &o->trees[tree].tree;
            struct ds_replay r;
            rc = ds_replay_compile(from, from->root, &r, err);
            if (rc == 0) {
                rc = add_steps(t, &r, err);
                ds_replay_free(&r);
            }
            number[tree] = (int32_t)t->n_trees;
        }
        t->tree[i] = number[tree] - 1;
    }
    for (size_t r = 0; r < s->n_rows; r++)
        t->place[r] = (int32_t)s->x->c->e.rows[s->rows[r]].at[side].row;
    free(number);
    return rc;
}

/* ---- whether they give what is claimed ------------------------------------------------------- */

static float stored(int dtype, float v)
{
    return dtype == DS_BF16  ? ds_bf16_value(ds_bf16_round(v))
           : dtype == DS_F16 ? ds_f16_value(ds_f16_round(v))
                             : v;
}

/* Element i from its sum. */
static float finish(const struct ds_shown *s, int side, size_t i, float sum)
{
    const struct ds_explain *e = &s->x->c->e;
    const int dtype = e->side[DS_SIDE_A].dtype; /* the one that is written */
    if (e->op == DS_OP_RMSNORM)
        sum = ds_norm_finish(s->x->order[side].form, dtype, sum, s->terms, e->shared.rmsnorm.eps,
                             s->at[i], s->scale[i]);
    else if (e->op == DS_OP_MATMUL && e->shared.matmul.bias)
        sum += s->bias[i];
    return stored(dtype, sum);
}

/* The steps of one tree on the factors of element i. */
static int add_element(const struct ds_shown *s, const struct ds_shown_steps *t, size_t i,
                       float *sum, struct ds_error *err)
{
    const int32_t tree = t->tree[i], first = t->first[tree];
    struct ds_replay r = {.n = t->first[tree + 1] - first,
                          .stack = MOST_STACK,
                          .zero_start = t->zero_start[tree],
                          .inputs = t->inputs[tree],
                          .terms = s->terms};
    float *room = ds_alloc_aligned(ds_replay_room(&r), sizeof *room, "the reproducer", err);
    r.step = ds_calloc((size_t)r.n, sizeof *r.step, "the reproducer", err);
    const int rc = room && r.step ? 0 : -1;
    for (int32_t k = 0; k < r.n && rc == 0; k++)
        r.step[k] = (struct ds_replay_step){
            .kind = t->kind[first + k], .flags = t->flags[first + k], .term = t->term[first + k]};
    if (rc == 0)
        *sum = ds_replay_one(&r, s->factors_x + (size_t)s->row[i] * (size_t)s->terms,
                             s->factors_w + (size_t)s->weight[i] * (size_t)s->terms, room);
    free(r.step);
    free(room);
    return rc;
}

int ds_reproduce_shows(const struct ds_shown *s, int side, const struct ds_shown_steps *t,
                       struct ds_error *err)
{
    size_t same = 0;
    for (size_t i = 0; i < s->n; i++) {
        float sum;
        if (add_element(s, t, i, &sum, err) != 0)
            return -1;
        same += ds_f32_bits(finish(s, side, i, sum)) == ds_f32_bits(side ? s->b[i] : s->a[i]);
    }
    return same == s->n ? 0
                        : ds_fail(err,
                                  "--reproducer: it would show nothing: its terms, added in %c's "
                                  "order, give %zu of %zu elements of %c",
                                  'A' + side, same, s->n, 'A' + side);
}
