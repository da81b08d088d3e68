/* order_replay.h: evaluates a tree with scalar arithmetic, so that a measured order can be proven:
 * the same bits as the kernel, or not. */
#ifndef DS_LAB_ORDER_REPLAY_H
#define DS_LAB_ORDER_REPLAY_H

#include "kernels/lab/order_tree.h"

enum { DS_REPLAY_LANES = 16 };

/* A tree as a list of steps on a stack of values. */
enum ds_replay_kind {
    DS_STEP_PUSH,    /* push x[k] * w[k], rounded to f32 */
    DS_STEP_EXACT,   /* push x[k] * w[k], not rounded */
    DS_STEP_FMA,     /* top = fma(x[k], w[k], top) */
    DS_STEP_MUL_ADD, /* top = top + x[k] * w[k], product rounded */
    DS_STEP_ADD      /* b = pop; top = top + b */
};
struct ds_replay_step {
    uint8_t kind;  /* enum ds_replay_kind */
    uint8_t flags; /* DS_TREE_WIDE, _BF16, _F16 of the sum made, and DS_STEP_DOUBLE */
    int32_t term;
};
enum {
    DS_STEP_PRODUCT_BF16 = 32, /* the product is rounded to it */
    DS_STEP_PRODUCT_F16 = 64,
    DS_STEP_DOUBLE = 128 /* an operand is wider than f32 */
};

struct ds_replay {
    struct ds_replay_step *step;
    int32_t n, stack; /* steps; values that the stack must hold */
    int plain;        /* f32 only: can run on lanes */
    int zero_start, inputs, compensated;
    int64_t terms;
};

/* Of the subtree under a node of a finished tree: t->root for all of it. */
int ds_replay_compile(const struct ds_tree *t, int32_t root, struct ds_replay *out,
                      struct ds_error *err);
void ds_replay_free(struct ds_replay *r);

/* Floats, 64-byte aligned, that the next two work in. */
size_t ds_replay_room(const struct ds_replay *r);
/* The sum over x[k] * w[k]. */
float ds_replay_one(const struct ds_replay *r, const float *x, const float *w, float *room);
/* 16 sums at once, weights as [k][16]. */
void ds_replay_block(const struct ds_replay *r, const float *x, const float *w, float *room,
                     float *out);

/* The inner loop over plain steps on 16 columns, weights as [k][16]: in plain C and, the same text,
 * for AVX2. The stack has r->stack * 16 floats. */
void ds_replay_lanes_scalar(const struct ds_replay *r, const float *x, const float *w,
                            float *stack);
void ds_replay_lanes_avx2(const struct ds_replay *r, const float *x, const float *w, float *stack);

#endif
