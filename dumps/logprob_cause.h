/* logprob_cause.h: simple causes of a difference between two systems' log-probabilities of the same tokens, each
 * claimed only with evidence that rounding does not give. Pure numbers: knows no file and no request format. */
#ifndef DS_LOGPROB_CAUSE_H
#define DS_LOGPROB_CAUSE_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* A token among the best of a position, on both sides; NaN: that side does not list it. */
struct ds_lp_alternative {
    uint64_t key; /* of the token, the same on both sides */
    double a, b;
    int seen; /* the sequence has had this token before */
};

/* One position of two sequences whose tokens were equal until here. */
struct ds_lp_position {
    uint32_t sequence, position;
    uint64_t key;                /* the chosen token */
    double a, b;                 /* its log-probabilities; NaN: not given */
    size_t first, n;             /* its alternatives */
    uint32_t listed_a, listed_b; /* how many alternatives each side lists */
    double sum_a, sum_b;         /* of their probabilities */
};

struct ds_lp_pairs {
    struct ds_lp_position *positions; /* by sequence, then by position */
    size_t n, cap;
    struct ds_lp_alternative *alternatives;
    size_t n_alternatives, cap_alternatives;
};
void ds_lp_pairs_free(struct ds_lp_pairs *p);

enum ds_lp_cause_kind {
    DS_LP_PADDING, /* tokens at the ends of sequences are 0 on one side: masked, as padding is */
    DS_LP_TEMPERATURE, /* one ratio among the alternatives */
    DS_LP_FILTER,      /* alternatives are masked, or left out and the rest made to sum to 1 */
    DS_LP_PENALTY,     /* tokens that came before, and only those, are moved */
    DS_LP_TOP_K,       /* the k listed ones sum to 1 */
    DS_LP_COARSE_HEAD, /* logits, or log-probabilities, of a coarse format */
    DS_LP_FEWER_BITS, /* the same tokens move the same way in unlike sequences, by as little as rounding moves them */
    DS_LP_WEIGHTS, /* the same, by more */
    DS_LP_CAUSES
};
/* "masked-padding", "temperature", "filtered", "penalty", "top-k-renormalised", "bf16-head", "fewer-bits", "weights". */
const char *ds_lp_cause_name(int kind);

struct ds_lp_cause {
    int kind;
    int side; /* 0: A is the one that was changed, 1: B */
    /* Temperature of B if A's is 1; largest probability that was masked; mean penalty (nats);
     * the step of the logits, 0: the log-probabilities themselves are bf16; of fewer bits how
     * far tokens move within a position over the spread of A's log-probabilities there; F of the
     * weights. */
    double value;
    double share; /* of what was looked at it holds for */
    size_t n, of; /* ... in numbers */
};

/* In the order of the kinds, each at most once; `out` has room for DS_LP_CAUSES. -1: no memory. */
int ds_lp_causes(const struct ds_lp_pairs *p, struct ds_lp_cause *out, size_t *n,
                 struct ds_error *err);

#endif
