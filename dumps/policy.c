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

/* A NaN has no sign that means anything. */
static double number(double x)
{
    return isnan(x) ? (double)NAN : x;
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
        if (!(exp(log_a) <= 0)) /* NaN is not nothing */
            t->kl += exp(log_a) * (log_a - log_b);
        if ((int32_t)i == t->token) {
            t->log_a = number(log_a);
            t->log_b = number(log_b);
        }
    }
}

/* What logprob.h leaves out, not finite, is told here: it is larger than all. */
static void tell_infinite(const double *a, const double *b, size_t n, struct ds_logprob_stats *s)
{
    double *const means[] = {&s->k1, &s->k2, &s->k3, &s->mean_ratio, &s->mean, &s->p50, &s->p99};
    for (size_t i = 0; i < sizeof means / sizeof means[0]; i++)
        *means[i] = (double)NAN;
    for (s->max_at = 0; s->max_at < n; s->max_at++)
        if (!isfinite(s->max = fabs(a[s->max_at] - b[s->max_at])))
            break;
    s->max = number(s->max);
}

static int compare_drawn(const struct ds_policy_token *tokens, size_t n,
                         struct ds_logprob_stats *out, struct ds_error *err)
{
    double *a = ds_calloc(2 * n, sizeof *a, "tokens", err), *b = a ? a + n : NULL;
    if (!a)
        return -1;
    for (size_t i = 0; i < n; i++) {
        a[i] = tokens[i].log_a;
        b[i] = tokens[i].log_b;
    }
    int rc = ds_logprob_compare(a, b, n, 0, out, err);
    if (rc == 0 && out->not_finite)
        tell_infinite(a, b, n, out);
    free(a);
    return rc;
}

int ds_policy_make(const struct ds_policy_token *tokens, size_t n, struct ds_policy *out,
                   struct ds_error *err)
{
    double sequence = 0;
    *out = (struct ds_policy){.tokens = n, .ratio_low = 1, .ratio_high = 1};
    for (size_t i = 0; i < n; i++) {
        const struct ds_policy_token *t = &tokens[i];
        const double d = t->log_b - t->log_a, ratio = exp(d);
        out->differ += (size_t)!t->same;
        out->blind += isnan(t->log_a) || isnan(t->log_b);
        out->kl += t->kl / (double)n;
        out->kl_most = t->kl > out->kl_most ? t->kl : out->kl_most;
        out->ratio_low = ratio < out->ratio_low ? ratio : out->ratio_low;
        out->ratio_high = ratio > out->ratio_high ? ratio : out->ratio_high;
        sequence = i && tokens[i - 1].request == t->request ? sequence + d : d;
        out->sequence_most =
            !(fabs(sequence) <= out->sequence_most) ? fabs(sequence) : out->sequence_most;
    }
    out->kl = number(out->kl);
    return compare_drawn(tokens, n, &out->drawn, err);
}
