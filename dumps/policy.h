/* policy.h: two sets of logits for the same tokens, one of the path that generated them and one of the path that
 * scores them: log-probabilities, and how far one policy is from the other. Pure; in f64.
 *
 * a is the distribution that tokens were drawn from (log-softmax of logits / temperature), b the one that scores
 * them, d = log b - log a of the drawn token. k1 = -d and k3 = exp(d) - 1 - d are the usual estimators of KL(a, b)
 * from draws; kl is the sum over the vocabulary itself. Equal logits give zeros, exactly. */
#ifndef DS_POLICY_H
#define DS_POLICY_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct ds_policy_token {
    int32_t request, step, token;
    double log_a, log_b; /* of the token */
    double kl;           /* sum over the vocabulary of a (log a - log b) */
    int same;            /* the logits have the same bits */
};

/* One token. temperature 0 is taken for 1: a choice of the largest logit has no other. */
void ds_policy_token(const float *a, const float *b, uint32_t vocab, double temperature,
                     struct ds_policy_token *t);

struct ds_policy {
    size_t tokens, differ;        /* of them those whose logits have other bits */
    double kl, kl_most;           /* mean and largest */
    double k1, k3;                /* means */
    double d_mean, d_p50, d_p99;  /* of |d| */
    double d_most;                /* the largest |d| ... */
    size_t most;                  /* ... and whose it is; 0 tokens: of no meaning */
    double ratio_low, ratio_high; /* smallest and largest exp(d) */
    double sequence_most;         /* largest |sum of d over a request| */
};
/* tokens: by request. */
int ds_policy_make(const struct ds_policy_token *tokens, size_t n, struct ds_policy *out,
                   struct ds_error *err);

#endif
