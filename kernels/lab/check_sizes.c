/* check_sizes.c: right results at sizes that are multiples of nothing, held against the formula's exact
 * value. Ops whose rows stand alone. */
#include "kernels/lab/check_rows.h"

#include "base/buf.h"
#include "kernels/lab/content.h"
#include "kernels/lab/truth.h"

#include <stdio.h>

/* ---- sizes --------------------------------------------------------------------------------------------------------- */

enum { MOST_SIZES = 24, CALLS = 6 /* of each */ };
struct sizes {
    struct ds_shape shape[MOST_SIZES];
    int n;
};

static void add_size(struct sizes *s, struct ds_shape shape)
{
    if (s->n < MOST_SIZES)
        s->shape[s->n++] = shape;
}

/* One dimension at sizes around the given one and at small odd ones. */
static void vary(struct sizes *s, const struct ds_shape *base, int64_t *field_of_copy,
                 struct ds_shape *copy, int64_t least)
{
    const int64_t given = *field_of_copy, sizes[] = {1, 7, 17, 255, given - 1, given + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        *copy = *base;
        *field_of_copy = sizes[i];
        if (sizes[i] >= least && sizes[i] <= given + 1)
            add_size(s, *copy);
    }
    *copy = *base;
}

static void sizes_of(const struct ds_shape *base, struct sizes *s)
{
    struct ds_shape x = *base;
    s->n = 0;
    switch (base->op) {
    case DS_OP_MATMUL:
        vary(s, base, &x.k, &x, 1);
        vary(s, base, &x.n, &x, 1);
        x.n = 17, x.k = 7;
        add_size(s, x);
        x.n = x.k = 1;
        add_size(s, x);
        x.n = 33, x.k = 257;
        add_size(s, x);
        return;
    case DS_OP_EMBED:
        vary(s, base, &x.width, &x, 1);
        x.vocab = 5;
        add_size(s, x);
        return;
    case DS_OP_ROPE:
        x.heads++;
        add_size(s, x);
        x.head_dim++;
        add_size(s, x);
        x.heads = 1, x.head_dim = 7, x.rope_dim = 6;
        add_size(s, x);
        x.neox = !x.neox;
        add_size(s, x);
        x.head_dim = 80, x.rope_dim = 20;
        add_size(s, x);
        return;
    case DS_OP_SAMPLE:
        vary(s, base, &x.vocab, &x, 1);
        return;
    case DS_OP_ROUTER:
        vary(s, base, &x.experts, &x, base->top_k);
        x.top_k = 1;
        add_size(s, x);
        x.top_k = x.experts;
        add_size(s, x);
        return;
    case DS_OP_COMBINE:
        vary(s, base, &x.width, &x, 1);
        vary(s, base, &x.top_k, &x, 1);
        for (x.top_k = 8; x.top_k <= 16; x.top_k += x.top_k == 8 ? 1 : 7)
            add_size(s, x);
        return;
    case DS_OP_ALLREDUCE:
        vary(s, base, &x.width, &x, 1);
        for (x.ranks = 1; x.ranks <= 16; x.ranks += x.ranks < 3 ? 1 : x.ranks == 3 ? 2 : 11)
            add_size(s, x);
        return;
    default:
        vary(s, base, &x.width, &x, 1);
        return;
    }
}

/* Two calls of every number of rows: the second has other rows at the same addresses, which a kernel
 * that keeps something of the first would not see. */
static int size_calls_of(struct ds_check *c, const struct ds_shape *shape, const char *format)
{
    static const int64_t rows[] = {1, 3, 8};
    enum { OTHER = 1000 };
    struct ds_buf text = {0};
    char where[96];
    int rc = 0;
    ds_shape_print(&text, shape);
    snprintf(where, sizeof where, "%.60s%s%.12s%s: ", text.data ? text.data : "",
             format ? ", " : "", format ? format : "", format ? " weights" : "");
    ds_buf_free(&text);
    for (int i = 0; i < CALLS && rc >= 0; i++) {
        const int64_t n = rows[i / 2];
        struct ds_segment seg;
        struct ds_call call = ds_rows_call(c, &seg, i % 2 ? OTHER : 0, n);
        struct ds_rows_judge j;
        call.place = DS_PLACE_END;
        call.gap = n == 3 ? 3 : 0;
        call.bias = (shape->op == DS_OP_MATMUL || shape->op == DS_OP_ROUTER) && i % 3 == 1;
        rc = ds_rows_judge_call(c, &call, &j);
        const double cost = ds_subject_work(c->subject, &call) + (double)n + 0.5 * (i % 2);
        if (rc == 1 && ds_check_wrong(c, j.bad > 0, cost))
            ds_rows_judge_pair(c, &j, n, where);
    }
    return rc < 0 ? -1 : 0;
}

static int size_calls(struct ds_check *c, const struct ds_shape *shape)
{
    return size_calls_of(c, shape, NULL);
}

/* What it costs to make the arrays of a shape, in units of the budget. */
static double cost_of(const struct ds_shape *s)
{
    return 8.0 * ((double)s->n * (double)s->k + (double)s->vocab * (double)s->width);
}

/* The calls of one size, or of weights made of another seed. */
static int at_size(struct ds_check *c, const struct ds_shape *shape, uint64_t seed)
{
    struct ds_subject *own = c->subject;
    struct ds_error refused;
    int rc = 0;
    if (cost_of(shape) > c->budget && !c->opt->full) {
        c->property->not_tried += CALLS;
        return 0;
    }
    c->budget -= cost_of(shape);
    c->subject = ds_subject_new(ds_subject_kernel(own), shape, seed, &refused);
    if (c->subject)
        rc = size_calls(c, shape);
    else {
        c->property->not_tried += CALLS;
        snprintf(c->property->note, sizeof c->property->note, "%.190s", refused.msg);
    }
    ds_subject_free(c->subject);
    c->subject = own;
    return rc;
}

/* One call at a size; where it is refused nothing is said of it. */
static int one_size(struct ds_check *c, const struct ds_shape *shape, int64_t rows)
{
    struct ds_subject *own = c->subject;
    struct ds_buf text = {0};
    struct ds_error refused;
    char where[96];
    int rc = 0;
    if (cost_of(shape) > c->budget && !c->opt->full) {
        c->property->not_tried++;
        return 0;
    }
    c->budget -= cost_of(shape);
    ds_shape_print(&text, shape);
    snprintf(where, sizeof where, "%.90s: ", text.data ? text.data : "");
    ds_buf_free(&text);
    c->subject = ds_subject_new(ds_subject_kernel(own), shape, c->opt->seed, &refused);
    if (c->subject) {
        struct ds_segment seg;
        struct ds_call call = ds_rows_call(c, &seg, 0, rows);
        struct ds_rows_judge j;
        call.place = DS_PLACE_END;
        call.bias = shape->op == DS_OP_MATMUL && rows > 1;
        rc = ds_rows_judge_call(c, &call, &j);
        if (rc == 1 &&
            ds_check_wrong(c, j.bad > 0, ds_subject_work(c->subject, &call) + (double)rows))
            ds_rows_judge_pair(c, &j, rows, where);
    } else
        c->property->not_tried++;
    ds_subject_free(c->subject);
    c->subject = own;
    return rc < 0 ? -1 : 0;
}

/* Rows on which ways to the same formula part: where the largest is there many times and below zero, and
 * where an exp of what is not taken off first would be too large. */
static int hard_rows(struct ds_check *c)
{
    static const int64_t rows[] = {1, 4, 17};
    const int op = ds_subject_kernel(c->subject)->op;
    const int ties = op == DS_OP_SAMPLE || op == DS_OP_ROUTER;
    const int contents[2] = {ties ? DS_CONTENT_TIED : -1,
                             ties || op == DS_OP_SOFTMAX ? DS_CONTENT_MIXED : -1};
    for (int i = 0; i < 6; i++) {
        struct ds_segment seg;
        struct ds_call call = ds_rows_call(c, &seg, 0, rows[i / 2]);
        struct ds_rows_judge j;
        char where[64];
        if (contents[i % 2] < 0)
            continue;
        seg.content = contents[i % 2];
        const int rc = ds_rows_judge_call(c, &call, &j);
        if (rc < 0)
            return -1;
        snprintf(where, sizeof where, "%s values: ", ds_content_name(seg.content));
        if (rc == 1 &&
            ds_check_wrong(c, j.bad > 0, ds_subject_work(c->subject, &call) + (double)rows[i / 2]))
            ds_rows_judge_pair(c, &j, rows[i / 2], where);
    }
    return 0;
}

/* The sizes along which a kernel of the op takes steps of 4, 8, 16, 32 or 64 at a time; returns how many. */
static int stepped(struct ds_shape *x, int64_t *field[2])
{
    switch (x->op) {
    case DS_OP_MATMUL:
        field[0] = &x->n, field[1] = &x->k;
        return 2;
    case DS_OP_SAMPLE:
        field[0] = &x->vocab;
        return 1;
    case DS_OP_ROPE:
        return 0;
    case DS_OP_ROUTER:
        field[0] = &x->experts;
        return 1;
    default:
        field[0] = &x->width;
        return 1;
    }
}

/* Every remainder that a tail of up to 64 may have: alone, and behind whole steps of them. */
static int every_remainder(struct ds_check *c)
{
    enum { STEP = 64, WHOLE = 2, ROWS = 13 /* tiles of 8, of 4 and of 1 */ };
    const struct ds_shape *given = ds_subject_shape(c->subject);
    struct ds_shape x = *given;
    int64_t *field[2];
    const int n = stepped(&x, field);
    for (int64_t r = 0; n && r < STEP; r++) {
        const int64_t size[2] = {r ? r : STEP, r + WHOLE / n * STEP};
        for (int i = 0; i < 2; i++) {
            *field[0] = size[i];
            if (n > 1) /* another remainder than the first one's, each of them once */
                *field[1] = size[i] - r + (r * 23 + 5) % STEP;
            if (given->op == DS_OP_ROUTER && x.experts < x.top_k)
                continue;
            if (n > 1 && *field[1] < 1)
                *field[1] = STEP;
            if (one_size(c, &x, i ? ROWS : 1) != 0)
                return -1;
        }
    }
    return 0;
}

int ds_rows_sizes(struct ds_check *c)
{
    const struct ds_shape *given = ds_subject_shape(c->subject);
    struct sizes s;
    int rc = 0;
    if (!ds_truth_known(given->op)) {
        ds_check_not_applicable(c, "no formula is known");
        return 0;
    }
    if (ds_rows_observe(c) != 0 || size_calls(c, given) != 0 || hard_rows(c) != 0)
        return -1;
    sizes_of(given, &s);
    for (int i = 0; i < s.n && rc == 0; i++)
        rc = at_size(c, &s.shape[i], c->opt->seed);
    /* One layer's weights behind another's: what a kernel kept of the first is not theirs. */
    for (uint64_t other = 0; other < 2 && rc == 0; other++)
        rc = at_size(c, given, c->opt->seed + other);
    /* ... nor is what was kept of theirs the first one's. */
    if (rc == 0)
        rc = size_calls(c, given);
    if (rc == 0 && !c->opt->not_first)
        rc = every_remainder(c);
    return rc == 0 ? ds_rows_each_format(c, DS_CONTENT_PLAIN, size_calls_of) : rc;
}
