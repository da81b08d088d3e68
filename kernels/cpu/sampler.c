/* sampler.c: see sampler.h. Orders and rounding points (all of it is one text for every variant and
 * every machine, so the bits are the pinned ones):
 *
 *   penalty      z = x < 0 ? x * r : x / r for every token that the request has, once each; f32
 *   temperature  z = z / t; f32
 *   top-k        the k-th largest stays, and all that are equal to it
 *   top-p        weights exp(z - max) in f64, their sum in ascending id; in descending z (equal ones:
 *                ascending id) a token stays while the sum before it is below p times that sum
 *   min-p        stays where exp(z - max) >= p in f64
 *   draw         score = z + noise, added in f64, rounded once to f32; the largest score, of equal ones
 *                the lowest id
 *
 * NaN takes part in nothing and stays NaN. Nothing depends on other rows. */
#include "kernels/cpu/sampler.h"

#include <math.h>
#include <string.h>

/* ---- numbers --------------------------------------------------------------------------------- */

static uint64_t multiply(uint64_t a, uint64_t b, uint64_t *high)
{
    const unsigned __int128 p = (unsigned __int128)a * b;
    *high = (uint64_t)(p >> 64);
    return (uint64_t)p;
}

void ds_sampler_words(uint64_t seed, uint64_t stream, uint64_t step, uint64_t block,
                      uint64_t out[4])
{
    uint64_t c[4] = {step, block, 0, 0}, k[2] = {seed, stream};
    for (int round = 0; round < 10; round++) {
        uint64_t high0, high2;
        const uint64_t low0 = multiply(0xd2e7470ee14c6c93u, c[0], &high0),
                       low2 = multiply(0xca5a826395121157u, c[2], &high2);
        const uint64_t next[4] = {high2 ^ c[1] ^ k[0], low2, high0 ^ c[3] ^ k[1], low0};
        memcpy(c, next, sizeof c);
        k[0] += 0x9e3779b97f4a7c15u;
        k[1] += 0xbb67ae8584caa73bu;
    }
    memcpy(out, c, sizeof c);
}

static double from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* x = 2^n * m with m from sqrt(1/2) to sqrt(2); log m = 2 atanh(f), f = (m - 1) / (m + 1), as a series. */
double ds_sampler_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint64_t from = 0x3fe6a09e667f3bcdu; /* sqrt(1/2) */
    const int64_t n = (int64_t)(bits - from) >> 52;
    const double m = from_bits(bits - ((uint64_t)n << 52)), f = (m - 1.0) / (m + 1.0), s = f * f;
    double p = 0.0;
    for (int k = 23; k > 1; k -= 2)
        p = (p + 1.0 / k) * s;
    /* ln 2 in two parts, of which the first times n is exact */
    return (double)n * 0x1.62e42fee00000p-1 +
           (2.0 * f + (2.0 * f * p + (double)n * 0x1.a39ef35793c76p-33));
}

double ds_sampler_exp(double x)
{
    if (!(x > -708.0))
        return 0.0;
    const double t = x * 0x1.71547652b82fep+0 + 0x1.8p+52, n = t - 0x1.8p+52;
    const double r = (x - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;
    double p = 1.0;
    for (int k = 13; k > 0; k--)
        p = p * r / k + 1.0;
    return p * from_bits((uint64_t)(1023 + (int64_t)n) << 52);
}

/* u = (2 k + 1) / 2^53 with k the upper 52 bits: never 0, never 1, and exact. */
double ds_sampler_noise(uint64_t word)
{
    const double u = (double)((word >> 12) * 2 + 1) * 0x1p-53;
    return -ds_sampler_log(-ds_sampler_log(u));
}

/* At most so large is the noise of that word: with w = 1 - u, -log u >= w >= 2^(bits - 54). */
static double noise_bound(uint64_t word)
{
    const uint64_t w = ((uint64_t)1 << 53) - 1 - (word >> 12) * 2;
    return (double)(__builtin_clzll(w) - 10) * 0.6931472;
}

/* ---- filters --------------------------------------------------------------------------------- */

/* Moves the k-th largest of n numbers to x[k - 1]. */
static float kth_largest(float *x, int64_t n, int64_t k)
{
    int64_t low = 0, high = n - 1;
    while (low < high) {
        const float pivot = x[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (x[i] > pivot)
                i++;
            while (x[j] < pivot)
                j--;
            if (i <= j) {
                const float t = x[i];
                x[i++] = x[j];
                x[j--] = t;
            }
        }
        if (k - 1 <= j)
            high = j;
        else if (k - 1 >= i)
            low = i;
        else
            break;
    }
    return x[k - 1];
}

/* The numbers of a row that are none of NaN and -infinity; how many. */
static int64_t gather(const float *y, int64_t vocab, float *out)
{
    int64_t n = 0;
    for (int64_t i = 0; i < vocab; i++)
        if (y[i] > -INFINITY)
            out[n++] = y[i];
    return n;
}

static void keep_from(float *y, int64_t vocab, float least)
{
    for (int64_t i = 0; i < vocab; i++)
        if (y[i] < least)
            y[i] = -INFINITY;
}

static float largest(const float *y, int64_t vocab)
{
    float max = -INFINITY;
    for (int64_t i = 0; i < vocab; i++)
        max = y[i] > max ? y[i] : max;
    return max;
}

/* Against the largest logit; of +infinity nothing but others of it has a weight. */
static double weight(float z, float max)
{
    return z == max ? 1.0 : max == INFINITY ? 0.0 : ds_sampler_exp((double)z - (double)max);
}

/* Whether id a comes before b in descending order. */
static int before(const float *y, int32_t a, int32_t b)
{
    return y[a] > y[b] || (y[a] == y[b] && a < b);
}

static void sift(const float *y, int32_t *heap, int64_t n, int64_t i)
{
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(y, heap[child + 1], heap[child]))
            child++;
        if (!before(y, heap[child], heap[i]))
            return;
        const int32_t t = heap[i];
        heap[i] = heap[child];
        heap[child] = t;
    }
}

/* Ids are taken from a heap, best first, until they have the share p: far fewer than all as a rule. */
static void top_p(float *y, int64_t vocab, double p, int32_t *heap)
{
    const float max = largest(y, vocab);
    int64_t n = 0;
    double total = 0, sum = 0;
    for (int64_t i = 0; i < vocab; i++)
        if (y[i] > -INFINITY) {
            total += weight(y[i], max);
            heap[n++] = (int32_t)i;
        }
    for (int64_t i = n / 2; i-- > 0;)
        sift(y, heap, n, i);
    while (n > 0 && sum < p * total) {
        sum += weight(y[heap[0]], max);
        heap[0] = heap[--n];
        sift(y, heap, n, 0);
    }
    for (int64_t i = 0; i < n; i++)
        y[heap[i]] = -INFINITY;
}

static void min_p(float *y, int64_t vocab, double p)
{
    const float max = largest(y, vocab);
    for (int64_t i = 0; i < vocab; i++)
        if (y[i] > -INFINITY && weight(y[i], max) < p)
            y[i] = -INFINITY;
}

void ds_sampler_process(const struct ds_sampler *s, const float *x, int64_t vocab,
                        const int32_t *tokens, int32_t n, float *y, float *work)
{
    memcpy(y, x, (size_t)vocab * sizeof *y);
    if (s->repetition_penalty != 1.0f)
        for (int32_t i = 0; i < n; i++) {
            const float z = x[tokens[i]];
            y[tokens[i]] = z < 0.0f ? z * s->repetition_penalty : z / s->repetition_penalty;
        }
    for (int64_t i = 0; i < vocab; i++)
        y[i] = y[i] / s->temperature;
    if (s->top_k > 0) {
        const int64_t left = gather(y, vocab, work);
        if (s->top_k < left)
            keep_from(y, vocab, kth_largest(work, left, s->top_k));
    }
    if (s->top_p < 1.0f)
        top_p(y, vocab, (double)s->top_p, (int32_t *)(void *)work);
    if (s->min_p > 0.0f)
        min_p(y, vocab, (double)s->min_p);
}

/* ---- the draw -------------------------------------------------------------------------------- */

enum { BEST = 8 };

/* The best scores so far, best first. */
static void take(float best[BEST], int *n, float score)
{
    if (*n == BEST && !(score > best[BEST - 1]))
        return;
    int at = *n < BEST ? (*n)++ : BEST - 1;
    for (; at > 0 && best[at - 1] < score; at--)
        best[at] = best[at - 1];
    best[at] = score;
}

/* Most tokens cannot be among the best whatever their noise is: the bound of their word says so, and the
 * two logarithms are not computed. */
int32_t ds_sampler_draw(const struct ds_sampler *s, const float *y, int64_t vocab, int32_t stream,
                        int32_t step, float *scores)
{
    const int wanted = scores ? BEST : 1;
    float best[BEST], top = -INFINITY;
    int n = 0;
    int32_t id = 0;
    uint64_t words[4];
    for (int64_t i = 0; i < vocab; i++) {
        float score = -INFINITY;
        if (i % 4 == 0)
            ds_sampler_words(s->seed, (uint64_t)stream, (uint64_t)step, (uint64_t)(i / 4), words);
        if (y[i] > -INFINITY) {
            const double worst = n < wanted ? -(double)INFINITY : (double)best[wanted - 1];
            /* a score is rounded: below by more than that, or it is computed */
            if (!((double)y[i] + noise_bound(words[i % 4]) < worst - fabs(worst) * 0x1p-22)) {
                score = (float)((double)y[i] + ds_sampler_noise(words[i % 4]));
                take(best, &n, score);
            }
        }
        if (scores)
            scores[i] = score;
        if (score > top) {
            top = score;
            id = (int32_t)i;
        }
    }
    return id;
}
