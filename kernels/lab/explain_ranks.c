/* explain_ranks.c: a matmul whose K is shared out among ranks: each multiplies its part of the row with its
 * columns of the weights, its partial sum is stored like any row, and an allreduce adds them. Made again
 * of the calls that it consists of, and added along the orders measured of both. */
#include "kernels/lab/explain.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One rank's matmul, or the allreduce, on the rows of another explanation. */
struct share {
    struct ds_explain e;
    struct ds_explain_row *rows;
    float *w;
};

static void share_free(struct share *s)
{
    free(s->rows);
    free(s->w);
}

static int share_init(struct share *s, const struct ds_explain *e, int side, struct ds_error *err)
{
    memset(s, 0, sizeof *s);
    s->e = *e;
    s->rows = ds_calloc(e->n_rows, sizeof *s->rows, "rows of a rank", err);
    if (!s->rows)
        return -1;
    memcpy(s->rows, e->rows, e->n_rows * sizeof *s->rows);
    s->e.rows = s->rows;
    s->e.side[side].ranks = 0;
    return 0;
}

/* The matmul of one rank: its columns of the weights, its elements of the rows; the first adds the bias. */
static int share_of_rank(struct share *s, const struct ds_explain *e, int side, int64_t rank,
                         struct ds_error *err)
{
    const struct ds_matmul_args *a = &e->shared.matmul;
    const int64_t k = a->k / e->side[side].ranks;
    if (share_init(s, e, side, err) != 0 ||
        !(s->w = ds_alloc_aligned((size_t)(a->n * k), sizeof *s->w, "weights of a rank", err)))
        return -1;
    for (int64_t j = 0; j < a->n; j++)
        memcpy(s->w + j * k, a->w.data + j * a->k + rank * k, (size_t)k * sizeof *s->w);
    s->e.shared.matmul = (struct ds_matmul_args){.n = a->n,
                                                 .k = k,
                                                 .w = {.data = s->w, .n = a->n, .k = k},
                                                 .bias = rank == 0 ? a->bias : NULL};
    for (size_t r = 0; r < e->n_rows; r++)
        s->rows[r].input[side].in[0] += rank * k;
    return 0;
}

/* The allreduce of partial sums: [n_rows][ranks][n]. */
static int share_of_sum(struct share *s, const struct ds_explain *e, int side, const float *parts,
                        struct ds_error *err)
{
    const int64_t n = e->shared.matmul.n, ranks = e->side[side].ranks;
    if (share_init(s, e, side, err) != 0)
        return -1;
    s->e.op = DS_OP_ALLREDUCE;
    s->e.shared.allreduce = (struct ds_allreduce_args){.width = n, .ranks = ranks};
    s->e.side[side].kernel = e->side[side].reduce;
    for (size_t r = 0; r < e->n_rows; r++)
        s->rows[r].input[side].in[0] = parts + (int64_t)r * ranks * n;
    return 0;
}

static void put_part(const struct ds_explain *e, int side, int64_t rank, const float *y,
                     float *parts)
{
    const int64_t n = e->shared.matmul.n, ranks = e->side[side].ranks;
    for (size_t r = 0; r < e->n_rows; r++)
        memcpy(parts + ((int64_t)r * ranks + rank) * n, y + (int64_t)r * n,
               (size_t)n * sizeof *parts);
}

static float *parts_new(const struct ds_explain *e, int side, struct ds_error *err)
{
    return ds_alloc_aligned(e->n_rows * (size_t)(e->side[side].ranks * e->shared.matmul.n),
                            sizeof(float), "partial sums", err);
}

int ds_explain_ranks_run(const struct ds_explain *e, int side, const struct ds_kernel *kernel,
                         uint64_t seed, float *y, struct ds_error *err)
{
    float *parts = parts_new(e, side, err);
    struct share s;
    int rc = parts ? 0 : -1;
    for (int32_t rank = 0; rank < e->side[side].ranks && rc == 0; rank++) {
        rc = share_of_rank(&s, e, side, rank, err);
        if (rc == 0)
            rc = ds_explain_run(&s.e, side, kernel, seed + (uint64_t)rank, y, err);
        if (rc == 0)
            put_part(e, side, rank, y, parts);
        share_free(&s);
    }
    if (rc == 0) {
        rc = share_of_sum(&s, e, side, parts, err);
        if (rc == 0)
            rc = ds_explain_run(&s.e, side, e->side[side].reduce, seed, y, err);
        share_free(&s);
    }
    free(parts);
    return rc;
}

/* ---- along the orders ------------------------------------------------------------------------ */

/* Moves what was measured of the allreduce behind the trees of the matmul. */
static int take_sum(struct ds_explain_order *out, struct ds_explain_order *sum, size_t elements,
                    struct ds_error *err)
{
    const size_t n = out->n_trees + sum->n_trees;
    struct ds_explain_tree *trees = ds_calloc(n, sizeof *trees, "trees", err);
    if (!trees)
        return -1;
    memcpy(trees, out->trees, out->n_trees * sizeof *trees);
    memcpy(trees + out->n_trees, sum->trees, sum->n_trees * sizeof *trees);
    for (size_t i = 0; i < elements; i++)
        sum->tree_of[i] += sum->tree_of[i] < 0 ? 0 : (int32_t)out->n_trees;
    out->sum_of = sum->tree_of;
    sum->tree_of = NULL;
    free(out->trees);
    free(sum->trees);
    out->trees = trees;
    out->n_trees = n;
    sum->trees = NULL;
    sum->n_trees = 0;
    free(out->y);
    out->y = sum->y;
    sum->y = NULL;
    return 0;
}

/* The same trees for every rank: all have one shape. */
static int add_rank(const struct ds_explain *e, int side, int64_t rank,
                    struct ds_explain_order *first, float *parts, struct ds_error *err)
{
    const size_t elements = e->n_rows * (size_t)e->shared.matmul.n;
    struct ds_explain_order copy = {.fixed = 1};
    struct share s;
    int rc = share_of_rank(&s, e, side, rank, err);
    if (rc == 0)
        rc = ds_explain_order_copy(first, elements, &copy, err);
    if (rc == 0)
        rc = ds_explain_add(&s.e, side, &copy, err);
    if (rc == 0)
        put_part(e, side, rank, copy.y, parts);
    ds_explain_order_free(&copy);
    share_free(&s);
    return rc;
}

static int add_ranks(const struct ds_explain *e, int side, struct ds_explain_order *out,
                     struct ds_error *err)
{
    struct ds_explain_order sum = {.fixed = 1};
    struct share s;
    float *parts = parts_new(e, side, err);
    int rc = parts ? 0 : -1;
    for (int32_t rank = 0; rank < e->side[side].ranks && rc == 0; rank++)
        rc = add_rank(e, side, rank, out, parts, err);
    if (rc == 0) {
        rc = share_of_sum(&s, e, side, parts, err);
        if (rc == 0)
            rc = ds_explain_order(&s.e, side, &sum, err);
        share_free(&s);
    }
    free(parts);
    out->replayed = 0;
    if (rc == 0 && sum.replayed) {
        rc = take_sum(out, &sum, e->n_rows * (size_t)e->shared.matmul.n, err);
        if (rc == 0) {
            ds_explain_match(e, out->y, &out->match);
            out->replayed = 1;
        }
    } else if (rc == 0) {
        snprintf(out->not_replayed, sizeof out->not_replayed,
                 "the order in which the ranks are added was not found");
    }
    ds_explain_order_free(&sum);
    return rc;
}

int ds_explain_ranks_order(const struct ds_explain *e, int side, struct ds_explain_order *out,
                           struct ds_error *err)
{
    struct share s;
    int rc = share_of_rank(&s, e, side, 0, err);
    memset(out, 0, sizeof *out);
    out->fixed = 1;
    if (rc == 0)
        rc = ds_explain_order(&s.e, side, out, err);
    share_free(&s);
    out->ranks = e->side[side].ranks;
    out->rounded = e->side[side].dtype;
    return rc == 0 && out->replayed ? add_ranks(e, side, out, err) : rc;
}
