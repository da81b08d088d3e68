/* logprob.c: see logprob.h. Sums run in the order of the tokens, in double. */
#include "dumps/logprob.h"

#include "base/mem.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

double ds_log_sum_exp(const double *x, size_t n)
{
    double most = -(double)INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (isnan(x[i]))
            return x[i];
        most = x[i] > most ? x[i] : most;
    }
    if (isinf(most))
        return most;
    for (size_t i = 0; i < n; i++)
        sum += exp(x[i] - most);
    return most + log(sum);
}

double ds_logprob_kl(const double *a, const double *b, size_t n)
{
    double kl = 0;
    for (size_t i = 0; i < n; i++)
        if (!(a[i] == -(double)INFINITY))
            kl += exp(a[i]) * (a[i] - b[i]);
    return kl < 0 ? 0 : kl;
}

static int ascending(const void *pa, const void *pb)
{
    const double a = *(const double *)pa, b = *(const double *)pb;
    if (isnan(a) || isnan(b))
        return (isnan(a) != 0) - (isnan(b) != 0);
    return (a > b) - (a < b);
}

double ds_quantile(const double *x, size_t n, double q)
{
    if (n == 0)
        return (double)NAN;
    const double at = q * (double)(n - 1);
    const size_t below = at >= (double)(n - 1) ? n - 1 : at > 0 ? (size_t)at : 0;
    if (below + 1 >= n)
        return x[n - 1];
    return x[below] + (at - (double)below) * (x[below + 1] - x[below]);
}

/* Adds one token's share of the means. */
static void add_token(struct ds_logprob_stats *s, double d, double eps)
{
    const double r = exp(-d);
    s->k1 += d;
    s->k2 += d * d / 2;
    s->k3 += expm1(-d) + d;
    s->mean_ratio += exp(fabs(d));
    s->mean += fabs(d);
    s->clipped += !(r >= 1 - eps && r <= 1 + eps);
}

static void take_means(struct ds_logprob_stats *s)
{
    double *const sums[] = {&s->k1, &s->k2, &s->k3, &s->mean_ratio, &s->mean, &s->clipped};
    for (size_t i = 0; s->n && i < sizeof sums / sizeof sums[0]; i++)
        *sums[i] /= (double)s->n;
}

int ds_logprob_compare(const double *a, const double *b, size_t n, double eps,
                       struct ds_logprob_stats *out, struct ds_error *err)
{
    double *size = ds_calloc(n, sizeof *size, "logprobs", err);
    *out = (struct ds_logprob_stats){.first = SIZE_MAX};
    if (!size)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(a[i]) || !isfinite(b[i])) {
            out->not_finite++;
            continue;
        }
        const double d = a[i] - b[i];
        if (d != 0 && out->first == SIZE_MAX)
            out->first = i;
        if (out->n == 0 || fabs(d) > out->max) {
            out->max = fabs(d);
            out->max_at = i;
        }
        size[out->n++] = fabs(d);
        add_token(out, d, eps);
    }
    take_means(out);
    if (out->n) {
        qsort(size, out->n, sizeof *size, ascending);
        out->p50 = ds_quantile(size, out->n, 0.5);
        out->p99 = ds_quantile(size, out->n, 0.99);
    }
    free(size);
    return 0;
}

/* ---- two samples ----------------------------------------------------------------------------- */

enum { MOST_EXACT = 64 };

struct ranked {
    double value;
    int of_x;
    uint64_t rank2; /* twice the mean rank, from 2 on: whole also for ties */
};

static int by_value(const void *pa, const void *pb)
{
    return ascending(&((const struct ranked *)pa)->value, &((const struct ranked *)pb)->value);
}

/* Gives ranks to sorted values; *ties: the sum of t^3 - t over groups of t equal ones. */
static void give_ranks(struct ranked *v, size_t n, double *ties)
{
    *ties = 0;
    for (size_t i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && by_value(&v[i], &v[j]) == 0;)
            j++;
        const double t = (double)(j - i);
        *ties += t * t * t - t;
        for (size_t k = i; k < j; k++)
            v[k].rank2 = i + 1 + j; /* twice the mean of i + 1 .. j */
    }
}

/* The share of all ways to choose nx of the ranks whose sum is at least `sum2`. ways[k][s]: to choose k of
 * the ranks so far with the sum s. */
static int exact_share(const struct ranked *v, size_t n, size_t nx, uint64_t sum2, double *p,
                       struct ds_error *err)
{
    uint64_t most = 0;
    for (size_t i = 0; i < n; i++)
        most += v[i].rank2;
    const size_t width = (size_t)most + 1;
    double *ways = ds_calloc((nx + 1) * width, sizeof *ways, "rank sums", err), all = 0, high = 0;
    if (!ways)
        return -1;
    ways[0] = 1;
    for (size_t i = 0; i < n; i++)
        for (size_t k = i + 1 < nx ? i + 1 : nx; k > 0; k--)
            for (size_t s = (size_t)v[i].rank2; s < width; s++)
                ways[k * width + s] += ways[(k - 1) * width + s - (size_t)v[i].rank2];
    for (size_t s = 0; s < width; s++) {
        all += ways[nx * width + s];
        high += s >= sum2 ? ways[nx * width + s] : 0;
    }
    *p = high / all;
    free(ways);
    return 0;
}

static double normal_share(double nx, double ny, double u, double ties)
{
    const double n = nx + ny, var = nx * ny / 12 * (n + 1 - ties / (n * (n - 1)));
    if (!(var > 0))
        return 1;
    return 0.5 * erfc((u - nx * ny / 2 - 0.5) / sqrt(2 * var));
}

int ds_two_sample_test(const double *x, size_t nx, const double *y, size_t ny,
                       struct ds_two_sample *out, struct ds_error *err)
{
    const size_t n = nx + ny;
    *out = (struct ds_two_sample){.p = 1, .larger = 0.5};
    if (nx == 0 || ny == 0)
        return 0;
    struct ranked *v = ds_calloc(n, sizeof *v, "samples", err);
    if (!v)
        return -1;
    for (size_t i = 0; i < n; i++)
        v[i] = (struct ranked){.value = i < nx ? x[i] : y[i - nx], .of_x = i < nx};
    qsort(v, n, sizeof *v, by_value);
    double ties;
    uint64_t sum2 = 0;
    give_ranks(v, n, &ties);
    for (size_t i = 0; i < n; i++)
        sum2 += v[i].of_x ? v[i].rank2 : 0;
    /* U: pairs in which x is the larger one, ties half. */
    const double u = (double)sum2 / 2 - (double)nx * ((double)nx + 1) / 2;
    out->larger = u / ((double)nx * (double)ny);
    out->exact = n <= MOST_EXACT;
    int rc = 0;
    if (out->exact)
        rc = exact_share(v, n, nx, sum2, &out->p, err);
    else
        out->p = normal_share((double)nx, (double)ny, u, ties);
    free(v);
    return rc;
}
