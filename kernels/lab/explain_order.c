/* explain_order.c: measures, in a child process with the side's library core, the trees by which a
 * side's kernel adds, and brings them back. Owns the process and what it hands over; order.h
 * measures, explain_add.c adds. */
#include "kernels/lab/explain.h"

#include "base/mem.h"
#include "base/team.h"
#include "kernels/lab/contain.h"
#include "kernels/lab/order.h"
#include "kernels/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TREES = 64, HANG_SECONDS = 300, MOST_SETTINGS = 16 };
static const double MOST_WORK = 1e8;
static const size_t MOST_NODE_BYTES = (size_t)256 << 20;

/* ---- what the child hands over --------------------------------------------------------------- */

struct handed_tree {
    struct ds_tree tree; /* node: NULL */
    size_t first_node;
    char sum[16], unit[16], words[1024];
};
struct handed {
    struct ds_contained contained;
    int n_trees, fixed, repeats, agreeing, left_out; /* left_out: settings */
    size_t n_nodes, cap_nodes;
    struct handed_tree tree[MOST_TREES];
};

struct job {
    const struct ds_explain *e;
    int side;
    int clipped;      /* measure the slots of the window alone */
    struct handed *h; /* shared, and what follows: */
    int32_t *tree_of, *den_of, *scores_of;
    struct ds_tree_node *nodes;
};

/* ---- what is measured ------------------------------------------------------------------------ */

static int64_t terms_of(const struct ds_explain *e, int side)
{
    const union ds_any_args *s = &e->shared;
    int64_t most = 1;
    switch (e->op) {
    case DS_OP_MATMUL:
        return s->matmul.k;
    case DS_OP_COMBINE:
        return s->combine.top_k;
    case DS_OP_ALLREDUCE:
        return s->allreduce.ranks;
    case DS_OP_ATTENTION:
        most = s->attention.head_dim;
        for (size_t i = 0; i < e->n_rows; i++)
            if (e->rows[i].input[side].slot + 1 > most)
                most = e->rows[i].input[side].slot + 1;
        return most;
    default:
        return ds_explain_width_in(e->op, s, 0);
    }
}

static void shape_of(const struct ds_explain *e, struct ds_shape *shape)
{
    const union ds_any_args *s = &e->shared;
    memset(shape, 0, sizeof *shape);
    shape->op = e->op;
    switch (e->op) {
    case DS_OP_MATMUL:
        shape->n = s->matmul.n;
        shape->k = s->matmul.k;
        break;
    case DS_OP_ATTENTION:
        shape->heads = s->attention.heads;
        shape->kv_heads = s->attention.kv_heads;
        shape->head_dim = s->attention.head_dim;
        break;
    case DS_OP_COMBINE:
        shape->width = s->combine.width;
        shape->top_k = s->combine.top_k;
        break;
    case DS_OP_ALLREDUCE:
        shape->width = s->allreduce.width;
        shape->ranks = s->allreduce.ranks;
        break;
    default:
        shape->width = ds_explain_width_in(e->op, s, 0);
    }
}

/* Attention is measured for one new token of each request: the one at the place of the row in its chunk. */
static struct ds_order_setting setting_of(const struct job *j, const struct ds_explain_row *row,
                                          void *team)
{
    const struct ds_explain_at *at = &row->at[j->side];
    struct ds_order_setting s = {.kernel = j->e->side[j->side].kernel,
                                 .rows = at->rows,
                                 .threads = j->e->side[j->side].threads,
                                 .team = team};
    shape_of(j->e, &s.shape);
    if (j->e->op == DS_OP_ATTENTION) {
        s.rows = at->n_sequences;
        s.visible = row->input[j->side].slot + 1 - row->input[j->side].kv_first;
        s.queries = at->row - at->q_first + 1;
        const int32_t window = j->e->shared.attention.window;
        if (j->clipped && window > 0 && s.visible > window)
            s.visible = window;
        if (s.queries > s.visible)
            s.queries = s.visible;
        s.after = at->q_len - (at->row - at->q_first + 1);
        s.after = s.after > 0 ? s.after : 0;
    }
    return s;
}

/* ---- in the child ---------------------------------------------------------------------------- */

static void copy_text(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from ? from : "");
}

/* The number of the handed tree, the same for one that is there; -1: no room. */
static int hand_over(const struct job *j, const struct ds_tree *t, const struct ds_order_sum *sum)
{
    struct handed *h = j->h;
    struct ds_buf words = {0};
    for (int i = 0; i < h->n_trees; i++)
        if (h->tree[i].tree.digest == t->digest && h->tree[i].tree.terms == t->terms &&
            strncmp(h->tree[i].sum, sum->name, sizeof h->tree[i].sum - 1) == 0)
            return i;
    if (h->n_trees == MOST_TREES || (size_t)t->n > h->cap_nodes - h->n_nodes)
        return -1;
    struct handed_tree *to = &h->tree[h->n_trees];
    to->tree = *t;
    to->tree.node = NULL;
    to->first_node = h->n_nodes;
    memcpy(j->nodes + h->n_nodes, t->node, (size_t)t->n * sizeof *t->node);
    h->n_nodes += (size_t)t->n;
    copy_text(to->sum, sizeof to->sum, sum->name);
    copy_text(to->unit, sizeof to->unit, sum->unit);
    ds_tree_words(&words, t, sum->unit);
    copy_text(to->words, sizeof to->words, words.data);
    ds_buf_free(&words);
    return h->n_trees++;
}

/* Ops whose outputs follow from the one sum that is measured. */
static int is_added(int op)
{
    return op == DS_OP_MATMUL || op == DS_OP_RMSNORM || op == DS_OP_COMBINE ||
           op == DS_OP_ALLREDUCE;
}

/* Rows of the setting: which tree each element has. */
static void assign(const struct job *j, const struct ds_order_sum *sum, const int *handed,
                   int64_t rows)
{
    const int64_t width = ds_explain_width(j->e->op, &j->e->shared);
    for (size_t r = 0; r < j->e->n_rows; r++) {
        const struct ds_explain_at *at = &j->e->rows[r].at[j->side];
        for (int64_t c = 0; at->rows == rows && c < width; c++)
            j->tree_of[(int64_t)r * width + c] =
                handed[sum->class_of[at->row * sum->columns + (sum->columns > 1 ? c : 0)]];
    }
}

/* Whether one measurement holds for both rows. */
static int same_setting(const struct job *j, const struct ds_explain_row *a,
                        const struct ds_explain_row *b)
{
    const struct ds_order_setting x = setting_of(j, a, NULL), y = setting_of(j, b, NULL);
    return x.rows == y.rows && x.visible == y.visible && x.queries == y.queries &&
           x.after == y.after;
}

/* The place of a row among what was measured: attention looks at one row of each request. */
static int64_t measured_row(const struct job *j, const struct ds_explain_row *row, int64_t rows)
{
    const struct ds_explain_at *at = &row->at[j->side];
    const int64_t n =
        j->e->op == DS_OP_ATTENTION ? at->q_first / (at->q_len > 0 ? at->q_len : 1) : at->row;
    return n < rows ? n : rows - 1;
}

/* Sums of a softmax, of the rows that the setting of `row` holds for. */
static void assign_weighed(const struct job *j, const struct ds_order_sum *sum, const int *handed,
                           const struct ds_explain_row *row)
{
    const int64_t width = ds_explain_width(j->e->op, &j->e->shared);
    for (size_t r = 0; r < j->e->n_rows; r++) {
        if (!same_setting(j, row, &j->e->rows[r]))
            continue;
        const int64_t at = measured_row(j, &j->e->rows[r], sum->rows) * sum->columns;
        if (strcmp(sum->name, "denominator") == 0)
            j->den_of[r] = handed[sum->class_of[at]];
        else if (strcmp(sum->name, "scores") == 0)
            j->scores_of[r] = handed[sum->class_of[at]];
        else
            for (int64_t c = 0; c < width; c++)
                j->tree_of[(int64_t)r * width + c] = handed[sum->class_of[at + c]];
    }
}

static int take_sum(const struct job *j, const struct ds_order_library *lib,
                    const struct ds_order_sum *sum, int64_t rows, const struct ds_explain_row *row,
                    struct ds_error *err)
{
    int *handed = ds_calloc(sum->n_classes, sizeof *handed, "trees", err);
    if (!handed)
        return -1;
    for (size_t c = 0; c < sum->n_classes; c++)
        handed[c] =
            sum->classes[c].tree < 0 ? -1 : hand_over(j, lib->tree[sum->classes[c].tree], sum);
    if (sum->repeats > 0 && (j->h->fixed || !sum->fixed)) {
        j->h->agreeing = sum->agreeing;
        j->h->repeats = sum->repeats;
    }
    j->h->fixed &= sum->fixed;
    if (is_added(j->e->op) && sum->fixed && sum->class_of)
        assign(j, sum, handed, rows);
    if (ds_explain_weighs(j->e->op) && sum->fixed && sum->class_of)
        assign_weighed(j, sum, handed, row);
    free(handed);
    return 0;
}

static int measure_setting(const struct job *j, const struct ds_explain_row *row, void *team,
                           struct ds_order_library *lib, struct ds_error *err)
{
    const struct ds_order_setting s = setting_of(j, row, team);
    struct ds_order order;
    int rc = ds_order_measure(&s, lib, &order, err);
    for (int i = 0; i < order.n_sums && rc == 0; i++)
        rc = take_sum(j, lib, &order.sum[i], s.rows, row, err);
    ds_order_free(&order);
    return rc;
}

/* How long a measurement takes: launches grow with the slots, and each computes the whole call. */
static double work_of(const struct ds_explain *e, const struct ds_order_setting *s)
{
    return e->op == DS_OP_ATTENTION ? (double)(s->rows * (s->queries + s->after)) *
                                          (double)s->visible * (double)s->visible
                                    : 0;
}

/* Every setting once; of long attention as many as take about half a minute. */
static int child(void *arg, struct ds_contained *c, struct ds_error *err)
{
    const struct job *j = arg;
    const struct ds_explain_side *side = &j->e->side[j->side];
    struct ds_order_library lib = {0};
    struct ds_team *team = NULL;
    double work = 0;
    int rc = 0, settings = 0;
    ds_explain_take_device(side);
    if (strcmp(side->kernel->name, "openblas") == 0)
        rc = ds_blas_open(side->core, err);
    if (rc == 0)
        rc = (team = ds_team_new(side->threads, err)) ? 0 : -1;
    for (size_t r = 0; r < j->e->n_rows && rc == 0; r++) {
        int done = 0;
        for (size_t i = 0; i < r; i++)
            done |= same_setting(j, &j->e->rows[i], &j->e->rows[r]);
        if (done)
            continue;
        const struct ds_order_setting s = setting_of(j, &j->e->rows[r], team);
        work += work_of(j->e, &s);
        if (settings >= MOST_SETTINGS || (settings++ && work > MOST_WORK)) {
            j->h->left_out++;
            continue;
        }
        c->beats++;
        rc = measure_setting(j, &j->e->rows[r], team, &lib, err);
    }
    ds_order_library_free(&lib);
    ds_team_free(team);
    return rc;
}

/* ---- in the parent --------------------------------------------------------------------------- */

static int take_tree(const struct handed_tree *from, const struct ds_tree_node *nodes,
                     struct ds_explain_tree *to, struct ds_error *err)
{
    if (ds_tree_init(&to->tree, from->tree.terms, err) != 0)
        return -1;
    struct ds_tree_node *node = to->tree.node;
    const int32_t cap = to->tree.cap;
    if (from->tree.n > cap) {
        ds_tree_free(&to->tree);
        return ds_fail(err, "a tree of %d nodes for %lld terms", from->tree.n,
                       (long long)from->tree.terms);
    }
    memcpy(node, nodes + from->first_node, (size_t)from->tree.n * sizeof *node);
    to->tree = from->tree;
    to->tree.node = node;
    to->tree.cap = cap;
    memcpy(to->sum, from->sum, sizeof to->sum);
    memcpy(to->unit, from->unit, sizeof to->unit);
    memcpy(to->words, from->words, sizeof to->words);
    return 0;
}

static int take_over(const struct job *j, struct ds_explain_order *out, struct ds_error *err)
{
    const struct handed *h = j->h;
    const size_t n = j->e->n_rows * (size_t)ds_explain_width(j->e->op, &j->e->shared);
    out->fixed = h->fixed;
    out->repeats = h->repeats;
    out->agreeing = h->agreeing;
    out->clipped = j->clipped;
    out->trees = ds_calloc((size_t)h->n_trees, sizeof *out->trees, "trees", err);
    out->tree_of = ds_calloc(n, sizeof *out->tree_of, "trees", err);
    out->den_of = ds_calloc(j->e->n_rows, sizeof *out->den_of, "trees", err);
    out->scores_of = ds_calloc(j->e->n_rows, sizeof *out->scores_of, "trees", err);
    out->cut_of = ds_calloc(j->e->n_rows, sizeof *out->cut_of, "trees", err);
    if (!out->trees || !out->tree_of || !out->den_of || !out->scores_of || !out->cut_of)
        return -1;
    memcpy(out->tree_of, j->tree_of, n * sizeof *out->tree_of);
    memcpy(out->den_of, j->den_of, j->e->n_rows * sizeof *out->den_of);
    memcpy(out->scores_of, j->scores_of, j->e->n_rows * sizeof *out->scores_of);
    for (; out->n_trees < (size_t)h->n_trees; out->n_trees++)
        if (take_tree(&h->tree[out->n_trees], j->nodes, &out->trees[out->n_trees], err) != 0)
            return -1;
    for (size_t i = 0; i < n; i++)
        if (out->tree_of[i] >= 0)
            out->trees[out->tree_of[i]].elements++;
    for (size_t r = 0; r < j->e->n_rows; r++) {
        if (out->den_of[r] >= 0)
            out->trees[out->den_of[r]].elements += n / j->e->n_rows;
        if (out->scores_of[r] >= 0)
            out->trees[out->scores_of[r]].elements += n / j->e->n_rows;
    }
    if (h->left_out && ds_explain_weighs(j->e->op))
        snprintf(out->not_replayed, sizeof out->not_replayed,
                 "the call is long: %d of its lengths were not measured", h->left_out);
    else if (h->fixed && ds_explain_weighs(j->e->op))
        return ds_explain_weigh(j->e, j->side, out, err);
    return h->fixed && is_added(j->e->op) ? ds_explain_add(j->e, j->side, out, err) : 0;
}

/* The process that measures ended otherwise than by a result: the kernel crashed, hung or refused. */
static void why_not(const struct handed *h, struct ds_explain_order *out)
{
    struct ds_buf b = {0};
    if (h->contained.fault.kind != DS_FAULT_NONE)
        ds_fault_print(&b, &h->contained.fault);
    snprintf(out->why, sizeof out->why, "%.200s", b.data ? b.data : h->contained.error.msg);
    out->broke_off = 1;
    ds_buf_free(&b);
}

static size_t rounded_up(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

static int measure(const struct ds_explain *e, int side, int clipped, struct ds_explain_order *out,
                   struct ds_error *err)
{
    memset(out, 0, sizeof *out);
    out->fixed = 1;
    const size_t head = rounded_up(sizeof(struct handed)),
                 elements = e->n_rows * (size_t)ds_explain_width(e->op, &e->shared),
                 map = rounded_up((elements + 2 * e->n_rows) * sizeof(int32_t));
    size_t nodes = (size_t)terms_of(e, side) * 2 * MOST_TREES * sizeof(struct ds_tree_node);
    nodes = nodes < MOST_NODE_BYTES ? nodes : MOST_NODE_BYTES;
    char *shared = ds_contain_map(head + map + nodes, err);
    if (!shared)
        return -1;
    int32_t *of = (int32_t *)(void *)(shared + head);
    struct job j = {e,
                    side,
                    clipped,
                    (struct handed *)(void *)shared,
                    of,
                    of + elements,
                    of + elements + e->n_rows,
                    (struct ds_tree_node *)(void *)(shared + head + map)};
    j.h->cap_nodes = nodes / sizeof(struct ds_tree_node);
    j.h->fixed = 1;
    for (size_t i = 0; i < elements + 2 * e->n_rows; i++)
        of[i] = -1;
    int rc = ds_contain(&j.h->contained, child, &j, HANG_SECONDS, err);
    if (rc == 0 && ds_contained_lacks_memory(&j.h->contained))
        rc = ds_fail(err, "%.900s", j.h->contained.error.msg);
    else if (rc == 0 && (j.h->contained.fault.kind != DS_FAULT_NONE || j.h->contained.rc != 0))
        why_not(j.h, out);
    else if (rc == 0)
        rc = take_over(&j, out, err);
    ds_contain_unmap(shared, head + map + nodes);
    return rc;
}

/* Whether a window hides slots from a row. */
static int is_cut(const struct ds_explain *e, int side)
{
    const int32_t window = e->op == DS_OP_ATTENTION ? e->shared.attention.window : 0;
    for (size_t i = 0; i < e->n_rows && window > 0; i++)
        if (e->rows[i].input[side].slot + 1 - e->rows[i].input[side].kv_first > window)
            return 1;
    return 0;
}

int ds_explain_order(const struct ds_explain *e, int side, struct ds_explain_order *out,
                     struct ds_error *err)
{
    struct ds_explain_order clipped;
    if (e->side[side].ranks && e->side[side].kernel)
        return ds_explain_ranks_order(e, side, out, err);
    if (!e->side[side].kernel || !ds_order_knows(e->op)) {
        memset(out, 0, sizeof *out);
        out->fixed = 1;
        snprintf(out->why, sizeof out->why, "%s",
                 e->side[side].kernel ? "it adds nothing up" : "its kernel is not here");
        return ds_explain_stands_alone(e->op) ? ds_explain_each(e, side, out, err) : 0;
    }
    if (measure(e, side, 0, out, err) != 0)
        return -1;
    if (out->why[0] || out->replayed || !out->fixed || !is_cut(e, side))
        return 0;
    int rc = measure(e, side, 1, &clipped, err);
    if (rc == 0 && clipped.replayed) {
        const struct ds_explain_order all = *out;
        *out = clipped;
        clipped = all;
    }
    ds_explain_order_free(&clipped);
    return rc;
}

int ds_explain_order_copy(const struct ds_explain_order *from, size_t elements,
                          struct ds_explain_order *to, struct ds_error *err)
{
    to->trees = ds_calloc(from->n_trees, sizeof *to->trees, "trees", err);
    to->tree_of = ds_calloc(elements, sizeof *to->tree_of, "trees", err);
    if (!to->trees || !to->tree_of)
        return -1;
    memcpy(to->tree_of, from->tree_of, elements * sizeof *to->tree_of);
    for (; to->n_trees < from->n_trees; to->n_trees++) {
        const struct ds_explain_tree *t = &from->trees[to->n_trees];
        struct ds_explain_tree *mine = &to->trees[to->n_trees];
        if (ds_tree_init(&mine->tree, t->tree.terms, err) != 0)
            return -1;
        struct ds_tree_node *node = mine->tree.node;
        const int32_t cap = mine->tree.cap;
        memcpy(node, t->tree.node, (size_t)t->tree.n * sizeof *node);
        *mine = *t;
        mine->tree.node = node;
        mine->tree.cap = cap;
    }
    return 0;
}

int ds_explain_order_borrow(const struct ds_explain *e, int side, struct ds_explain_order *o,
                            const struct ds_explain_order *other, struct ds_error *err)
{
    const size_t n = e->n_rows * (size_t)ds_explain_width(e->op, &e->shared);
    struct ds_explain_order mine = {
        .fixed = 1, .borrowed = 1, .repeats = o->repeats, .agreeing = o->agreeing};
    if (e->op != DS_OP_RMSNORM || o->why[0] || !o->fixed || o->n_trees || !other->replayed)
        return 0;
    if (ds_explain_order_copy(other, n, &mine, err) != 0 ||
        ds_explain_add(e, side, &mine, err) != 0) {
        ds_explain_order_free(&mine);
        return -1;
    }
    if (mine.match.same[side] != mine.match.elements) {
        ds_explain_order_free(&mine);
        return 0;
    }
    ds_explain_order_free(o);
    *o = mine;
    return 0;
}

void ds_explain_order_free(struct ds_explain_order *o)
{
    for (size_t i = 0; i < o->n_trees; i++)
        ds_tree_free(&o->trees[i].tree);
    free(o->trees);
    free(o->tree_of);
    free(o->den_of);
    free(o->scores_of);
    free(o->cut_of);
    free(o->sum_of);
    free(o->y);
    memset(o, 0, sizeof *o);
}
