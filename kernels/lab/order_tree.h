/* order_tree.h: the order in which a kernel adds its terms, as a tree. Knows no kernel: it is built
 * by whoever measured it, or by hand. */
#ifndef DS_LAB_ORDER_TREE_H
#define DS_LAB_ORDER_TREE_H

#include "base/buf.h"
#include "base/error.h"

#include <stdint.h>

/* Properties of a node. */
enum {
    DS_TREE_FUSED = 1, /* leaf: its product joins the sum unrounded (FMA) */
    DS_TREE_WIDE = 2,  /* inner: the sum goes on wider than f32, it is not rounded here */
    DS_TREE_BF16 = 4,  /* the sum, or a leaf's product, is rounded to bf16, f16 */
    DS_TREE_F16 = 8,
    DS_TREE_FIRST =
        16 /* leaf of a compensated sum: there before its sibling, which there matters */
};

/* What becomes of the error of an addition. Chains of terms only: whole sums are added to each other as
 * they are. */
enum ds_tree_compensation {
    DS_SUM_PLAIN = 0, /* it is lost */
    DS_SUM_KAHAN,     /* it is taken off the next term (W. Kahan) */
    DS_SUM_ERRORS,    /* errors are added up beside the sum, and to it at its end (I. Babuska, A.
                            Neumaier) */
    DS_SUM_PRODUCT_ERRORS /* ... and the errors of the products as well (T. Ogita, S. M. Rump, S. Oishi) */
};

/* How the factors of every product were rounded before they were multiplied: to the nearest (ties to
 * even, or away from 0), or cut off. */
enum ds_tree_inputs {
    DS_INPUTS_F32 = 0,
    DS_INPUTS_TF32,
    DS_INPUTS_TF32_CUT,
    DS_INPUTS_BF16,
    DS_INPUTS_TF32_AWAY
};

struct ds_tree_node {
    int32_t term;        /* leaf: which term; -1: an inner node, the sum of its children */
    int32_t first, next; /* first child, next sibling; -1: none */
    int32_t children;
    int32_t size; /* leaves below, itself included */
    int32_t min;  /* smallest term below */
    uint32_t flags;
};

/* After ds_tree_finish the nodes are in postorder (children before their parent, the root last),
 * siblings in ascending order of their smallest term: equal trees are equal arrays. Addition
 * commutes, so the order of two siblings is no property of a tree; a fused leaf is one that is
 * added to its sibling. */
struct ds_tree {
    struct ds_tree_node *node;
    int32_t n, cap, root;
    int64_t terms;
    int zero_start;  /* a sum of terms that are all -0 is +0: it starts from +0 somewhere */
    int inputs;      /* enum ds_tree_inputs */
    int joins;       /* whether it is known which leaves are fused */
    int compensated; /* enum ds_tree_compensation */
    uint64_t digest;
    int32_t depth; /* additions on the longest path */
};

/* Room for a tree of so many terms: at most 2 * terms nodes. Releases with ds_tree_free. */
int ds_tree_init(struct ds_tree *t, int64_t terms, struct ds_error *err);
void ds_tree_free(struct ds_tree *t);

/* Add a node; the index, never failing within the room. */
int32_t ds_tree_leaf(struct ds_tree *t, int32_t term);
int32_t ds_tree_inner(struct ds_tree *t);
void ds_tree_attach(struct ds_tree *t, int32_t parent, int32_t child);
/* A new node with these two children. */
int32_t ds_tree_join(struct ds_tree *t, int32_t a, int32_t b);

/* Brings the tree under `root` into its canonical form; computes size, depth and digest. 1 when it
 * is not a tree over all terms, each once; -1 without memory; err is set in both. */
int ds_tree_finish(struct ds_tree *t, int32_t root, struct ds_error *err);
/* The digest anew, after flags of a finished tree were set. */
void ds_tree_seal(struct ds_tree *t);

/* Whether every leaf that could be fused is: 1; none: 0; some: -1. */
int ds_tree_all_fused(const struct ds_tree *t);
/* Nodes that add three terms or more in one rounding. */
int32_t ds_tree_multiway(const struct ds_tree *t);

/* How many letters of "slots" stand behind so many: of one, "slot". */
int ds_tree_unit_length(const char *unit, int64_t n);
/* In words: "2 chains of 288 k in ascending order, FMA, then 1 add"; `unit` is what a term is called:
 * "k", "slots". */
void ds_tree_words(struct ds_buf *b, const struct ds_tree *t, const char *unit);
/* Graphviz text of one digraph; `name` is escaped. */
void ds_tree_dot(struct ds_buf *b, const struct ds_tree *t, const char *name);

#endif
