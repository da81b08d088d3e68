/* logprob.h: how far two lists of log-probabilities lie apart: those that two systems, or two versions of
 * one, gave to the same tokens. Pure numbers: knows no record, no lock and no file.
 *
 * A is the reference: the tokens were chosen by it. All logarithms are natural. */
#ifndef DS_LOGPROB_H
#define DS_LOGPROB_H

#include "base/error.h"

#include <stddef.h>

/* log(sum(exp(x))), finite where all x are; -Inf for none. NaN where an x is NaN. */
double ds_log_sum_exp(const double *x, size_t n);

/* sum(exp(a) * (a - b)) over outcomes whose probabilities sum to 1 on both sides, in nats. An outcome of
 * probability 0 in A counts nothing; one of probability 0 in B alone makes it infinite; never below 0,
 * which rounding could bring it to. Where outcomes were merged into one ("the rest"), it is a lower bound
 * of what the unmerged ones would give. */
double ds_logprob_kl(const double *a, const double *b, size_t n);

/* Of d = a - b, over the tokens at which both numbers are finite. The three estimators of KL(A || B) from
 * tokens that A chose, r = exp(b - a): k1 = -log r, k2 = (log r)^2 / 2, k3 = (r - 1) - log r (J. Schulman,
 * "Approximating KL divergence"): k1 is unbiased, k2 has the least variance, k3 is unbiased and never
 * negative. */
struct ds_logprob_stats {
    size_t n;                   /* tokens that count */
    size_t not_finite;          /* and those that do not */
    double k1, k2, k3;          /* means; 0 with n = 0, as all that follows */
    double mean_ratio;          /* of exp|d| */
    double mean, p50, p99, max; /* of |d| */
    double clipped;             /* share of tokens whose ratio r lies outside 1 - eps .. 1 + eps */
    size_t max_at;              /* index of the largest |d| */
    size_t first;               /* index of the first token with a != b; (size_t)-1: none */
};
/* -1: no memory. */
int ds_logprob_compare(const double *a, const double *b, size_t n, double eps,
                       struct ds_logprob_stats *out, struct ds_error *err);

/* The value below which a share q of n ascending values lies, linear between two of them; NaN for none. */
double ds_quantile(const double *ascending, size_t n, double q);

/* The Mann-Whitney test, one-sided: p is the chance that ranks as high as those of x, or higher, come by if x
 * and y are samples of one distribution. Ties share their mean rank. Up to 64 values in all it is exact, also
 * with ties (all ways to share out the ranks are counted); beyond it comes from the normal approximation
 * with the correction for ties. p = 1 where either sample is empty or all values are equal. NaN counts as
 * the largest value. -1: no memory. */
struct ds_two_sample {
    double p;
    double larger; /* chance that a value of x is larger than one of y, ties half; 0.5: neither */
    int exact;
};
int ds_two_sample_test(const double *x, size_t nx, const double *y, size_t ny,
                       struct ds_two_sample *out, struct ds_error *err);

#endif
