/* policy.h: two sets of logits for the same tokens, one of the path that generated them and one of the path that
 * scores them: log-probabilities, and how far one policy is from the other. Pure; in f64.
 *
 * a is the distribution that tokens were drawn from (log-softmax of logits / temperature), b the one that scores
 * them; of the drawn tokens' log-probabilities logprob.h has the sizes and the estimators of KL(a, b); kl is the sum
 * over the vocabulary itself. Equal logits give zeros, exactly. */
#ifndef DS_POLICY_H
#define DS_POLICY_H

#include "base/error.h"
#include "dumps/logprob.h"

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
    size_t tokens, differ; /* of them those whose logits have other bits */
    size_t blind; /* of them those without a log-probability on a side: NaN among the logits */
    double kl, kl_most; /* mean and largest */
    /* Of the drawn tokens. Where one is not finite, so are max, whose index max_at is, and the means. */
    struct ds_logprob_stats drawn;
    double ratio_low, ratio_high; /* smallest and largest exp(log b - log a) */
    double sequence_most;         /* largest |sum of log b - log a over a request| */
};
/* tokens: by request. */
int ds_policy_make(const struct ds_policy_token *tokens, size_t n, struct ds_policy *out,
                   struct ds_error *err);

#endif
