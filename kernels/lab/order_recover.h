/* order_recover.h: finds the tree by which a sum is added, by asking for sums of chosen terms. Knows
 * no kernel: whoever has one answers the questions. */
#ifndef DS_LAB_ORDER_RECOVER_H
#define DS_LAB_ORDER_RECOVER_H

#include "kernels/lab/order_tree.h"

/* One question: the sum of terms that are `fill` in lo..hi-1 and 0 elsewhere, but for some that are
 * given. */
struct ds_probe {
    int64_t lo, hi;
    float fill;
    int32_t n;
    int32_t term[3];
    float value[3];
    float result;
};

/* Whoever can evaluate sums. Every product is side * value. Returns 0 with all results filled in,
 * or -1. */
struct ds_oracle {
    void *self;
    int64_t terms;
    int (*ask)(void *self, float side, struct ds_probe *probe, size_t n, struct ds_error *err);
};

/* Sums of terms of any sign. Masks a sum with +big at one term and -big at another: all that is added
 * before the two meet is swallowed, so what is left counts the terms outside their smallest common
 * subtree (A. Yaghoubi et al., FPRev: the summation order revealed from outside). Questions of one
 * round are asked together. 1 when the answers are not those of a fixed tree (err says why), -1 for
 * an error. */
int ds_recover_signed(const struct ds_oracle *o, struct ds_tree *t, struct ds_error *err);

/* Flags of a recovered tree: which products join unrounded, which sums are kept wider or narrower
 * than f32, and how the factors were rounded. Only what `which` asks for. */
enum { DS_ASK_FUSED = 1, DS_ASK_ROUNDING = 2, DS_ASK_INPUTS = 4, DS_ASK_START = 8 };
int ds_recover_details(const struct ds_oracle *o, struct ds_tree *t, unsigned which,
                       struct ds_error *err);

/* Sums of terms that cannot be negative, by the rooted-triple question: whether terms j and k meet
 * each other before either meets i. Answers 1 or 0; DS_NO_ORDER, with err set, if what it saw is
 * neither; -1 for an error. The recovery returns as the one above. */
enum { DS_NO_ORDER = -2 };
struct ds_triples {
    void *self;
    int64_t terms;
    int (*below)(void *self, int32_t i, int32_t j, int32_t k, struct ds_error *err);
};
int ds_recover_triples(const struct ds_triples *q, struct ds_tree *t, struct ds_error *err);
/* order_regular.c: the same for a long sum, if it is added in one of the regular orders that it knows: 1;
 * else 0. */
int ds_recover_regular(const struct ds_triples *q, struct ds_tree *t, struct ds_error *err);
/* Whether so many more triples are answered as a tree says: 1, 0; -1 for an error. */
int ds_triples_like(const struct ds_triples *q, const struct ds_tree *t, int samples,
                    struct ds_error *err);
/* The tree of a sum in which nothing is rounded but the result. */
int ds_recover_exact(int64_t terms, struct ds_tree *t, struct ds_error *err);

#endif
