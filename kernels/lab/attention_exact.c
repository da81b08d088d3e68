/* attention_exact.c: attention in double precision and its error bound. */
#include "kernels/lab/attention_exact.h"

#include <math.h>
#include <string.h>

static const double U = 0x1p-24;

static double gamma_of(double n)
{
    return n * U / (1 - n * U);
}

const struct ds_sequence *ds_attention_sequence(const struct ds_attention_args *a, int64_t row)
{
    for (int64_t i = 0; i < a->n_sequences; i++)
        if (row >= a->sequences[i].q_first &&
            row < (int64_t)a->sequences[i].q_first + a->sequences[i].q_len)
            return &a->sequences[i];
    return NULL;
}

/* Where the key or value of a slot lies for a head. */
static int64_t at(const struct ds_attention_args *a, const struct ds_sequence *s, int64_t slot,
                  int64_t head)
{
    int64_t row = s->pages[slot / a->page_size] * a->page_size + slot % a->page_size;
    return (row * a->kv_heads + head / (a->heads / a->kv_heads)) * a->head_dim;
}

/* A score, and how far a float kernel's can be from it. */
static double score(const struct ds_attention_args *a, const float *q, const float *k, double *off)
{
    double sum = 0, size = 0, s;
    for (int64_t d = 0; d < a->head_dim; d++) {
        double t = (double)q[d] * (double)k[d];
        sum += t;
        size += fabs(t);
    }
    s = sum * (double)a->scale;
    *off = gamma_of((double)a->head_dim + 1) * size * fabs((double)a->scale);
    if (a->soft_cap > 0.0f) {
        s = (double)a->soft_cap * tanh(s / (double)a->soft_cap);
        *off += 4 * U * fabs(s);
    }
    return s;
}

/* Weights of slots begin.. and the share by which each can be off. */
static void weigh(const struct ds_attention_args *a, const struct ds_sequence *s, int64_t row,
                  int64_t head, int64_t begin, double *p, double *r, struct ds_attention_exact *out)
{
    const float *q = a->q + row * a->ldq + head * a->head_dim;
    double max = a->sinks ? (double)a->sinks[head] : (double)-INFINITY, sum = 0, off = 0;
    for (int64_t j = 0; j < out->slots; j++) {
        p[j] = score(a, q, a->cache_k + at(a, s, begin + j, head), &r[j]);
        max = p[j] > max ? p[j] : max;
    }
    out->open |= max == (double)INFINITY;
    for (int64_t j = 0; j < out->slots; j++) {
        r[j] += U * fabs(p[j] - max) + 4 * U;
        p[j] = p[j] == (double)-INFINITY ? 0 : exp(p[j] - max);
        sum += p[j];
    }
    if (a->sinks)
        sum += exp((double)a->sinks[head] - max);
    for (int64_t j = 0; j < out->slots; j++) {
        p[j] /= sum;
        off += p[j] > 0 ? p[j] * r[j] : 0;
    }
    out->lse = max + log(sum);
    out->lse_unit = off + gamma_of((double)out->slots + 1) + U * (fabs(max) + 2 * fabs(out->lse));
}

void ds_attention_exact(const struct ds_attention_args *a, int64_t row, int64_t head,
                        double *weights, struct ds_attention_exact *out)
{
    const struct ds_sequence *s = ds_attention_sequence(a, row);
    const int64_t end = (int64_t)s->kv_len - s->q_len + (row - s->q_first) + 1, n = a->head_dim;
    int64_t begin = s->kv_first;
    double *p = weights, *r = weights + a->max_kv_len, g;
    if (a->window > 0 && end - a->window > begin)
        begin = end - a->window;
    out->slots = end > begin ? end - begin : 0;
    out->open = 0;
    out->lse = (double)-INFINITY;
    out->lse_unit = 0;
    memset(out->y, 0, (size_t)n * sizeof *out->y);
    memset(out->unit, 0, (size_t)n * sizeof *out->unit);
    if (!out->slots)
        return;
    weigh(a, s, row, head, begin, p, r, out);
    g = gamma_of((double)out->slots + 1);
    for (int64_t j = 0; j < out->slots; j++) {
        const float *v = a->cache_v + at(a, s, begin + j, head);
        for (int64_t d = 0; d < n; d++) {
            out->y[d] += p[j] * (double)v[d];
            out->unit[d] += g * p[j] * fabs((double)v[d]);
            out->open |= p[j] < 1e-37 && !isfinite(v[d]);
        }
    }
    for (int64_t j = 0; j < out->slots; j++) {
        const float *v = a->cache_v + at(a, s, begin + j, head);
        for (int64_t d = 0; d < n; d++)
            out->unit[d] += p[j] * fabs((double)v[d] - out->y[d]) * r[j];
    }
    for (int64_t d = 0; d < n; d++)
        out->unit[d] += (g + 2 * U) * fabs(out->y[d]);
}
