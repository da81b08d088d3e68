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
    int rescaled; /* sums pass factors that are no powers of two: what is left of one is off by some last
                     places of what it was made of */
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
    /* Of a question, in elements that a launch goes through: of long sums no more are asked than
     * fit a limit, which is then the reason why there is no tree; 0: no limit. */
    double work;
    int (*below)(void *self, int32_t i, int32_t j, int32_t k, struct ds_error *err);
};
int ds_recover_triples(const struct ds_triples *q, struct ds_tree *t, struct ds_error *err);
/* Whether that tree may be a regular order, of which most triples were not asked. */
int ds_triples_are_sampled(int64_t terms);
/* The same where such a tree was found and does not give what was seen: all that is needed is asked. */
int ds_recover_triples_fully(const struct ds_triples *q, struct ds_tree *t, struct ds_error *err);

/* order_regular.c: orders that kernels are likely to use. */
enum ds_lane_join { DS_LANES_NEIGHBOURS = 0, DS_LANES_HALVES, DS_LANES_ASCENDING, DS_LANE_JOINS };
struct ds_regular {
    int64_t block; /* terms of a block; blocks are added in ascending order */
    int64_t lanes; /* interleaved in each block, at most DS_REGULAR_MOST_LANES */
    int join;      /* enum ds_lane_join: how lanes are put together */
    int rest;      /* what is left behind whole steps of lanes is added one by one, at the end */
    int descends;
};
enum { DS_REGULAR_MOST_LANES = 64 };
/* *t is to be released unless -1 came back. */
int ds_regular_build(const struct ds_regular *o, int64_t terms, struct ds_tree *t,
                     struct ds_error *err);
/* Whether an order with rest = 0 is the same. */
int ds_regular_is_double(const struct ds_regular *o, int64_t terms);

/* order_compensated.c: sums in which the errors of additions are kept. `fits` says whether a tree gives what
 * was seen: 1, 0, -1 for an error. 1 with *t when one does, 0 when none. */
struct ds_sum_samples {
    void *self;
    int64_t terms;
    int products; /* terms are products, whose rounding shows */
    int (*fits)(void *self, const struct ds_tree *t, struct ds_error *err);
};
int ds_recover_compensated(const struct ds_sum_samples *s, struct ds_tree *t, struct ds_error *err);

/* order_settle.c: the tree of a sum of terms that cannot be negative, held against whole sums. `found`: *t is
 * what ds_recover_triples gave, else *why says why there is none. What does not fit is looked for further:
 * by all questions where few were asked, then as a compensated sum. Returns DS_SETTLED_*, or -1 (*t is
 * released then). `finish` adds what is known of a tree that was found by questions; may be NULL. */
enum { DS_SETTLED_NONE = 0, DS_SETTLED_UNFIT, DS_SETTLED_FITS };
int ds_order_settle(const struct ds_triples *q, const struct ds_sum_samples *s,
                    int (*finish)(void *self, struct ds_tree *t, struct ds_error *err), int found,
                    struct ds_tree *t, struct ds_error *why, struct ds_error *err);
/* The same for a long sum of terms that cannot be negative, if it is added in one of the regular orders: 1;
 * else 0. */
int ds_recover_regular(const struct ds_triples *q, struct ds_tree *t, struct ds_error *err);
/* Whether so many more triples are answered as a tree says: 1, 0; -1 for an error. */
int ds_triples_like(const struct ds_triples *q, const struct ds_tree *t, int samples,
                    struct ds_error *err);
/* The tree of a sum in which nothing is rounded but the result. */
int ds_recover_exact(int64_t terms, struct ds_tree *t, struct ds_error *err);

#endif
