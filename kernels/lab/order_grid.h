/* order_grid.h: a kernel seen as a grid of sums of products: what matmul and attention have in
 * common when their order is measured. Private to kernels/lab. */
#ifndef DS_LAB_ORDER_GRID_H
#define DS_LAB_ORDER_GRID_H

#include "kernels/lab/order.h"
#include "kernels/lab/order_replay.h"

/* What happens to a sum before it is stored. */
enum ds_grid_finish {
    DS_FINISH_NONE = 0,
    DS_FINISH_DIVIDE,
    DS_FINISH_RECIPROCAL,
    DS_FINISH_PARTS /* parts of KV, each divided by its own sum, merged by their log-sum-exp */
};

/* y[r][c] = finish(sum over k of x[r][k] * w[content_of(c)][k]) */
struct ds_grid {
    int64_t rows, columns, terms;
    int64_t contents;          /* rows of w */
    const int32_t *content_of; /* [columns]; NULL: column c has content c */
    float *x;                  /* [rows][terms]; NULL: all factors are 1 */
    float *w;                  /* [contents][terms] */
    float *y;                  /* [rows][columns] */
    int finish;                /* enum ds_grid_finish */
    int cut; /* DS_FINISH_PARTS: which sums are parts. A single term is none (0), the last part alone
                may be one (1), or every one (2), since two terms may be two parts or one */
    float divisor;
    int w_changed; /* set by the grid, cleared by launch */
    void *self;
    int (*launch)(struct ds_grid *g, struct ds_error *err);
    uint64_t launches;
};

/* x, w and y of these sizes, 64-byte aligned; x only `with_x`. */
int ds_grid_alloc(struct ds_grid *g, int with_x, struct ds_error *err);
void ds_grid_free(struct ds_grid *g);

int ds_grid_measure(struct ds_grid *g, struct ds_order_library *lib, struct ds_order_sum *out,
                    struct ds_error *err);

/* ---- between the files of the grid ----------------------------------------------------------- */

/* One data set: the same row in every row of x, the same column in every column of w, so that
 * outputs differ by their order of addition only. The last set is all -0. */
enum { DS_GRID_SETS = 17 };
void ds_grid_same_data(struct ds_grid *g, int set);
/* Different data everywhere. */
void ds_grid_random_data(struct ds_grid *g, uint64_t seed);
int ds_grid_launch(struct ds_grid *g, struct ds_error *err);
static inline int64_t ds_grid_content(const struct ds_grid *g, int64_t column)
{
    return g->content_of ? g->content_of[column] : column;
}

/* order_output.c: from a tree and the data to the bits of an output. */
enum { DS_GRID_MOST_PARTS = 64 };
struct ds_grid_output {
    struct ds_replay part[DS_GRID_MOST_PARTS];
    float count[DS_GRID_MOST_PARTS], weight[DS_GRID_MOST_PARTS];
    int parts;
    float *room;
    int finish;
    float divisor;
};
int ds_grid_output(const struct ds_grid *g, const struct ds_tree *t, struct ds_grid_output *out,
                   struct ds_error *err);
void ds_grid_output_free(struct ds_grid_output *out);
float ds_grid_output_one(const struct ds_grid_output *out, const float *x, const float *w);
/* 16 columns, weights as [k][16]. */
void ds_grid_output_block(const struct ds_grid_output *out, const float *x, const float *w,
                          float *y);

/* order_classes.c: which outputs are added alike. seen[c * DS_GRID_SETS + s]: what class c gives on
 * set s. */
int ds_grid_classes(struct ds_grid *g, struct ds_order_sum *out, float **seen,
                    struct ds_error *err);
/* order_oracle.c: the tree of one class; not found: -1 with the reason. `details`: DS_ASK_*. */
int ds_grid_recover(struct ds_grid *g, const struct ds_order_sum *sum, int32_t cls,
                    struct ds_tree *t, struct ds_error *err);
int ds_grid_details(struct ds_grid *g, const struct ds_order_sum *sum, int32_t cls,
                    struct ds_tree *t, unsigned which, struct ds_error *err);
/* order_samples.c: 1 with *t when the class is one of compensated sums whose order was found; 0; -1. */
int ds_grid_compensated(struct ds_grid *g, const struct ds_order_sum *sum, int32_t cls,
                        struct ds_tree *t, struct ds_error *err);
/* Every other column of a matmul gets magnitudes that lie far apart. */
void ds_grid_spread_magnitudes(struct ds_grid *g, uint64_t seed);
/* order_proof.c: the share that the trees give bit for bit on random data. */
int ds_grid_proof(struct ds_grid *g, const struct ds_order_library *lib, struct ds_order_sum *out,
                  struct ds_error *err);

/* Keeps *t in the library; its index, or -1 and *t freed. An equal tree is found instead, and *t
 * freed. */
int32_t ds_order_library_put(struct ds_order_library *l, struct ds_tree *t, struct ds_error *err);

#endif
