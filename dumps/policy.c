/* policy.c: see policy.h. Pure. */
#include "dumps/policy.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* log of the sum of exp((x - max) / temperature), and max. */
static double log_sum(const float *x, uint32_t n, double temperature, double *max)
{
    double sum = 0;
    *max = -(double)INFINITY;
    for (uint32_t i = 0; i < n; i++)
        *max = (double)x[i] > *max ? (double)x[i] : *max;
    for (uint32_t i = 0; i < n; i++)
        sum += exp(((double)x[i] - *max) / temperature);
    return log(sum);
}

void ds_policy_token(const float *a, const float *b, uint32_t vocab, double temperature,
                     struct ds_policy_token *t)
{
    const double heat = temperature > 0 ? temperature : 1;
    double max_a, max_b;
    const double sum_a = log_sum(a, vocab, heat, &max_a), sum_b = log_sum(b, vocab, heat, &max_b);
    t->same = memcmp(a, b, vocab * sizeof *a) == 0;
    t->kl = 0;
    for (uint32_t i = 0; i < vocab; i++) {
        const double log_a = ((double)a[i] - max_a) / heat - sum_a,
                     log_b = ((double)b[i] - max_b) / heat - sum_b;
        if (exp(log_a) > 0)
            t->kl += exp(log_a) * (log_a - log_b);
        if ((int32_t)i == t->token) {
            t->log_a = log_a;
            t->log_b = log_b;
        }
    }
}

static int ascending(const void *pa, const void *pb)
{
    const double a = *(const double *)pa, b = *(const double *)pb;
    return (a > b) - (a < b);
}

int ds_policy_make(const struct ds_policy_token *tokens, size_t n, struct ds_policy *out,
                   struct ds_error *err)
{
    double *size = ds_calloc(n, sizeof *size, "tokens", err), sequence = 0;
    memset(out, 0, sizeof *out);
    if (!size)
        return -1;
    out->tokens = n;
    out->ratio_low = out->ratio_high = 1;
    for (size_t i = 0; i < n; i++) {
        const struct ds_policy_token *t = &tokens[i];
        const double d = t->log_b - t->log_a, ratio = exp(d);
        size[i] = fabs(d);
        out->differ += (size_t)!t->same;
        out->kl += t->kl / (double)n;
        out->kl_most = t->kl > out->kl_most ? t->kl : out->kl_most;
        out->k1 -= d / (double)n;
        out->k3 += (ratio - 1 - d) / (double)n;
        out->d_mean += size[i] / (double)n;
        /* a NaN is the largest of all */
        if (!(size[i] <= out->d_most)) {
            out->d_most = size[i];
            out->most = i;
        }
        out->ratio_low = ratio < out->ratio_low ? ratio : out->ratio_low;
        out->ratio_high = ratio > out->ratio_high ? ratio : out->ratio_high;
        sequence = i && tokens[i - 1].request == t->request ? sequence + d : d;
        out->sequence_most =
            !(fabs(sequence) <= out->sequence_most) ? fabs(sequence) : out->sequence_most;
    }
    if (n > 0) {
        qsort(size, n, sizeof *size, ascending);
        out->d_p50 = size[n / 2];
        out->d_p99 = size[n - 1 - n / 100];
    }
    free(size);
    return 0;
}
