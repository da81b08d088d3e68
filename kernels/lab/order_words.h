/* order_words.h: what the files that put a tree into words share. Private to kernels/lab. */
#ifndef DS_LAB_ORDER_WORDS_H
#define DS_LAB_ORDER_WORDS_H

#include "kernels/lab/order_tree.h"

enum { MOST_PARTS = 4096, DEEPEST = 8, MOST_TEXT = 600 };

/* Leaves added one after another (or some at a time) to a head. */
struct run {
    int32_t head; /* node, -1: none, the chain is the whole subtree */
    int32_t count, first, stride;
    int32_t step;      /* leaves added in one rounding */
    int regular;       /* first + i * stride */
    int fused;         /* as ds_tree_all_fused */
    int32_t low, high; /* smallest and largest term below, head included */
};

struct words {
    const struct ds_tree *t;
    const char *unit; /* what a term is called */
    int32_t *term;    /* room for the leaves of a run */
    int depth;
    int say_joins; /* it is known which products are fused: each run says so */
};

/* The subtrees that are put together by additions of whole sums. */
struct parts {
    int32_t at[MOST_PARTS];
    struct run run[MOST_PARTS];
    int32_t n;
};

/* How parts are added to each other. */
enum shape {
    SHAPE_OTHER,
    SHAPE_ASCENDING,
    SHAPE_DESCENDING,
    SHAPE_PAIRS,
    SHAPE_HALVES,
    SHAPE_SPLIT,
    SHAPE_FUSED
};

/* ---- order_runs.c ---------------------------------------------------------------------------- */

/* How many leaves a node adds; *inner is another child, -1 if there is none. */
int32_t ds_words_leaf_children(const struct ds_tree *t, int32_t v, int32_t *inner);
/* The largest term below. */
int32_t ds_words_highest(const struct ds_tree *t, int32_t v);
/* The chain that ends at v; its leaves lie in w->term, the last added first, until the next call. */
void ds_words_find_run(const struct words *w, int32_t v, struct run *r);
void ds_words_say_run(struct ds_buf *b, const struct words *w, const struct run *r);
void ds_words_say_order(struct ds_buf *b, const struct words *w, const struct run *r);
void ds_words_say_step(struct ds_buf *b, const struct words *w, const struct run *r);

/* ---- order_parts.c --------------------------------------------------------------------------- */

/* Whether a node adds no leaf. */
int ds_words_is_sum_of_sums(const struct ds_tree *t, int32_t v);
/* Parts by ascending smallest term; part_of[node] = its number. With leaves_too single terms are parts,
 * else chains. -1: too many. */
int ds_words_collect_parts(const struct words *w, int32_t v, struct parts *p, int32_t *part_of,
                           int leaves_too);
enum shape ds_words_find_shape(const struct ds_tree *t, int32_t v, const int32_t *part_of,
                               int32_t n);
/* Words for parts that are chains of one kind, put together in a known way; 0 if they are not. */
int ds_words_say_alike(struct words *w, struct ds_buf *b, const struct parts *p, enum shape shape);

#endif
