/* order.h: in which order a kernel adds, measured from outside and proven by replay. Knows no model
 * and prints nothing. Start at ds_order_measure; order_tree.h says what a tree is. */
#ifndef DS_LAB_ORDER_H
#define DS_LAB_ORDER_H

#include "kernels/driftscope_kernel.h"
#include "kernels/lab/order_tree.h"
#include "kernels/lab/shape.h"

#include <stdint.h>

/* Trees found so far. A kernel uses few, at many row counts and shapes: a tree known for that number
 * of terms is recognised by what it gives on the same data, and need not be measured again. */
struct ds_order_library {
    struct ds_tree **tree;
    size_t n, cap;
};
void ds_order_library_free(struct ds_order_library *l);

struct ds_order_setting {
    const struct ds_kernel *kernel; /* rmsnorm, matmul, attention, softmax */
    struct ds_shape shape;
    int64_t rows;    /* of the call; attention: requests */
    int64_t visible; /* attention: KV slots of every request */
    int64_t queries; /* attention: query rows of every request, of which the last is measured: it
                        sees all slots; 0 as 1 */
    /* Attention: query rows of every request behind that one, each with a slot more. */
    int64_t after;
    int threads;
    void *team; /* base/team.h, of as many threads */
    int stored; /* matmul: how rows lie in memory, enum ds_element: f32 or bf16, y is f32 (f16 has not the numbers
                   that are asked with) */
    int whole;  /* attention: replay whole outputs on random scores, too */
};

/* Positions of the output that are added alike. */
struct ds_order_class {
    int32_t tree;                  /* index in the library; -1: not measured, `why` says why */
    int64_t positions;             /* outputs */
    int64_t row, column;           /* the first of them */
    uint64_t compared, reproduced; /* outputs replayed on random inputs */
    char why[256];
};

/* One sum that the op makes. */
struct ds_order_sum {
    const char *name; /* "products", "squares", "values", "denominator", "scores" */
    const char *unit; /* what a term is called: "k", "squares", "slots", "channels" */
    const char *note; /* what was assumed while it was measured; "" */
    int64_t terms;
    int fixed;             /* 0: repeats of one call on the same data disagree */
    int repeats, agreeing; /* the calls compared; how many gave the most frequent result */
    struct ds_order_class *classes;
    size_t n_classes;
    int64_t rows, columns;
    int32_t *class_of; /* [rows][columns] */
    uint64_t compared, reproduced;
};

/* Outputs that several sums and an exp lead to, replayed on random inputs along all trees. */
struct ds_order_whole {
    uint64_t compared, reproduced; /* 0: not replayed, and `why` says why */
    char way[192];                 /* what the trees do not say: "exp of libm, one maximum, ..." */
    char why[128];
};

enum { DS_ORDER_MOST_SUMS = 3 };
struct ds_order {
    struct ds_order_sum sum[DS_ORDER_MOST_SUMS];
    int n_sums;
    struct ds_order_whole whole; /* attention, where it was asked for */
    uint64_t launches;
};

/* Whether the op has a sum whose order can be measured. */
int ds_order_knows(int op);

/* Measures one setting. -1: the kernel refused the call, or no memory. An order that is not fixed or
 * cannot be found is a result, not an error. *out is released with ds_order_free also after -1. */
int ds_order_measure(const struct ds_order_setting *s, struct ds_order_library *lib,
                     struct ds_order *out, struct ds_error *err);
void ds_order_free(struct ds_order *o);

#endif
