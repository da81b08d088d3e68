/* oracle.h: kernels/PINNED.md written down a second time, one output at a time, in scalar C. Shares
 * nothing with the code under test: no table, no lanes, no blocks of columns. */
#ifndef DS_TEST_KERNELS_ORACLE_H
#define DS_TEST_KERNELS_ORACLE_H

#include "base/dtype.h"
#include "kernels/driftscope_kernel.h"

#include <math.h>
#include <stdlib.h>

static inline float o_store(float x)
{
    return isnan(x) ? ds_f32_from_bits(0x7fc00000u) : x;
}

/* Sum of 16 partial values by the tree of PINNED.md, spelt out. */
static inline float o_tree(const float *p)
{
    float q[8], r[4], s[2];
    for (int j = 0; j < 8; j++)
        q[j] = p[j] + p[j + 8];
    for (int j = 0; j < 4; j++)
        r[j] = q[j] + q[j + 4];
    for (int j = 0; j < 2; j++)
        s[j] = r[j] + r[j + 2];
    return s[0] + s[1];
}

static inline float o_pow2(int n)
{
    return ds_f32_from_bits((uint32_t)(n + 127) << 23);
}

static inline float o_exp(float x)
{
    static const float c[] = {0x1.6a2256p-10f,
                              0x1.123b02p-7f,
                              0x1.5558f8p-5f,
                              0x1.555490p-3f,
                              0x1.fffffcp-2f,
                              1.0f,
                              1.0f};
    if (isnan(x))
        return x;
    if (x < -104.0f)
        x = -104.0f;
    if (x > 89.0f)
        x = 89.0f;
    float n = fmaf(x, 0x1.715476p+0f, 12582912.0f) - 12582912.0f;
    float r = fmaf(n, 0x1.05c610p-29f, fmaf(n, -0x1.62e430p-1f, x)), p = c[0];
    for (int i = 1; i < 7; i++)
        p = fmaf(p, r, c[i]);
    int k = (int)n, half = (k - (k % 2 != 0 && k < 0)) / 2; /* rounds down */
    return p * o_pow2(half) * o_pow2(k - half);
}

static inline float o_softmax_term(float x, float m)
{
    return x == -INFINITY ? 0.0f : o_exp(x - m);
}

static inline float o_matmul(const float *x, const float *w, int64_t k, const float *bias)
{
    float total = 0.0f;
    for (int64_t k0 = 0; k0 < k; k0 += 256) {
        float s = 0.0f;
        for (int64_t i = k0; i < k && i < k0 + 256; i++)
            s = fmaf(x[i], w[i], s);
        total = k0 == 0 ? s : total + s;
    }
    return o_store(bias ? total + *bias : total);
}

/* y[0..n-1] of one row */
static inline void o_rmsnorm(const float *x, const float *w, float eps, int64_t n, float *y)
{
    float p[16] = {0};
    for (int64_t i = 0; i < n; i++)
        p[i % 16] = fmaf(x[i], x[i], p[i % 16]);
    float mean = o_tree(p) / (float)n, inv = 1.0f / sqrtf(mean + eps);
    for (int64_t i = 0; i < n; i++) {
        float t = x[i] * inv;
        y[i] = o_store(t * w[i]);
    }
}

static inline float o_silu_mul(float g, float u)
{
    float d = 1.0f + o_exp(-g), s = g / d;
    return o_store(s * u);
}

static inline int64_t o_cache_row(const struct ds_sequence *s, int64_t slot, int64_t page_size)
{
    return s->pages[slot / page_size] * page_size + slot % page_size;
}

static inline float o_tanh(float x)
{
    static const float c[] = {0x1.52269ap-6f, -0x1.b83c5ap-5f, 0x1.110726p-3f, -0x1.555532p-2f};
    float a = fabsf(x);
    if (!(a < 0.625f)) {
        float y = 1.0f - 2.0f / (o_exp(a + a) + 1.0f);
        return signbit(x) ? -y : y;
    }
    float z = x * x, p = -0x1.75e1cap-8f;
    for (int i = 0; i < 4; i++)
        p = fmaf(p, z, c[i]);
    return fmaf(p, z * x, x);
}

static inline float o_log(float x)
{
    static const float c[] = {0x1.055b68p-3f, -0x1.0d8542p-3f, 0x1.22da1ep-3f, -0x1.547244p-3f,
                              0x1.99a008p-3f, -0x1.000226p-2f, 0x1.555554p-2f};
    if (x == 0.0f)
        return -INFINITY;
    if (isnan(x) || isinf(x))
        return x;
    int k = 0;
    while (ds_f32_bits(x) > 0x3fb504f2u) /* doubling and halving are exact here */
        x *= 0.5f, k++;
    while (ds_f32_bits(x) < 0x3f3504f3u)
        x *= 2.0f, k--;
    float t = x - 1.0f, z = t * t, p = -0x1.38b576p-4f;
    for (int i = 0; i < 7; i++)
        p = fmaf(p, t, c[i]);
    p = (p * t) * z;
    p = fmaf((float)k, -0x1.05c610p-29f, p);
    p = fmaf(z, -0.5f, p);
    return fmaf((float)k, 0x1.62e430p-1f, t + p);
}

/* One block of attention, slots `begin` to end-1 of which the row from `from` on: maximum, sum,
 * values. */
static inline void o_block(const struct ds_attention_args *a, const struct ds_sequence *s,
                           const float *q, int64_t kv_head, int64_t begin, int64_t from,
                           int64_t end, float *max, float *sum, float *values)
{
    const int64_t n = a->head_dim, width = a->kv_heads * n;
    float score[256], m[16], l[16] = {0};
    for (int j = 0; j < 16; j++)
        m[j] = -INFINITY;
    for (int64_t t = from; t < end; t++) {
        const float *k = a->cache_k + o_cache_row(s, t, a->page_size) * width + kv_head * n;
        float p[16] = {0};
        for (int64_t d = 0; d < n; d++)
            p[d % 16] = fmaf(q[d], k[d], p[d % 16]);
        score[t - begin] = o_tree(p) * a->scale;
        if (a->soft_cap > 0)
            score[t - begin] = a->soft_cap * o_tanh(score[t - begin] / a->soft_cap);
        float *lane = &m[(t - begin) % 16];
        *lane = score[t - begin] > *lane ? score[t - begin] : *lane;
    }
    for (int w = 8; w; w /= 2)
        for (int j = 0; j < w; j++)
            m[j] = m[j] > m[j + w] ? m[j] : m[j + w];
    *max = m[0];
    for (int64_t d = 0; d < n; d++)
        values[d] = 0.0f;
    for (int64_t t = from; t < end; t++) {
        const float *v = a->cache_v + o_cache_row(s, t, a->page_size) * width + kv_head * n;
        float e = o_softmax_term(score[t - begin], *max);
        l[(t - begin) % 16] += e;
        for (int64_t d = 0; d < n; d++)
            values[d] = fmaf(e, v[d], values[d]);
    }
    *sum = o_tree(l);
}

/* (max, sum, acc) and one more block. */
static inline void o_merge(float *max, float *sum, float *acc, float bm, float bs,
                           const float *part, int64_t n)
{
    float m = bm > *max ? bm : *max, f = o_softmax_term(*max, m), g = o_softmax_term(bm, m);
    *max = m;
    *sum = fmaf(*sum, f, bs * g);
    for (int64_t d = 0; d < n; d++)
        acc[d] = fmaf(acc[d], f, part[d] * g);
}

/* One row and head: y[0..head_dim-1], and *lse. */
static inline void o_attention_lse(const struct ds_attention_args *a, const struct ds_sequence *s,
                                   int64_t row, int64_t head, float *y, float *lse)
{
    const int64_t n = a->head_dim, end = s->kv_len - s->q_len + (row - s->q_first) + 1;
    int64_t from = s->kv_first, first = 1;
    float max = 0, sum = 0, *acc = calloc((size_t)n, 4), *part = calloc((size_t)n, 4);
    if (a->window && end - a->window > from)
        from = end - a->window;
    for (int64_t t = s->kv_first; t < end; t += 256) {
        float bm, bs;
        if (t + 256 <= from)
            continue;
        o_block(a, s, a->q + row * a->ldq + head * n, head / (a->heads / a->kv_heads), t,
                from > t ? from : t, end < t + 256 ? end : t + 256, &bm, &bs, part);
        if (first) {
            max = bm, sum = bs, first = 0;
            for (int64_t d = 0; d < n; d++)
                acc[d] = part[d];
            continue;
        }
        o_merge(&max, &sum, acc, bm, bs, part, n);
    }
    if (a->sinks && !first) {
        for (int64_t d = 0; d < n; d++)
            part[d] = 0.0f;
        o_merge(&max, &sum, acc, a->sinks[head], 1.0f, part, n);
    }
    for (int64_t d = 0; d < n; d++)
        y[d] = first ? 0.0f : o_store(acc[d] / sum);
    *lse = first ? -INFINITY : o_store(max + o_log(sum));
    free(acc);
    free(part);
}

static inline void o_attention(const struct ds_attention_args *a, const struct ds_sequence *s,
                               int64_t row, int64_t head, float *y)
{
    float lse;
    o_attention_lse(a, s, row, head, y, &lse);
}

/* y[0..n-1] of one row */
static inline void o_softmax(const float *x, int64_t n, float *y)
{
    float m[16], total = 0.0f;
    for (int j = 0; j < 16; j++)
        m[j] = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        m[i % 16] = x[i] > m[i % 16] ? x[i] : m[i % 16];
    for (int w = 8; w; w /= 2)
        for (int j = 0; j < w; j++)
            m[j] = m[j] > m[j + w] ? m[j] : m[j + w];
    for (int64_t i0 = 0; i0 < n; i0 += 256) {
        float l[16] = {0};
        for (int64_t i = i0; i < n && i < i0 + 256; i++)
            l[i % 16] += o_softmax_term(x[i], m[0]);
        total = i0 == 0 ? o_tree(l) : total + o_tree(l);
    }
    for (int64_t i = 0; i < n; i++)
        y[i] = o_store(o_softmax_term(x[i], m[0]) / total);
}

/* Which expert comes first: by sorting pairs, not by searching for the next. */
struct o_choice {
    float logit;
    int32_t id;
};
static inline int o_choice_order(const void *pa, const void *pb)
{
    const struct o_choice *a = pa, *b = pb;
    if (isnan(a->logit) != isnan(b->logit))
        return isnan(a->logit) ? 1 : -1;
    if (a->logit > b->logit)
        return -1;
    return a->logit < b->logit ? 1 : a->id - b->id;
}

static inline void o_router(const float *x, int64_t experts, int64_t top_k, int normalise,
                            int32_t *ids, float *weights)
{
    struct o_choice *list = malloc((size_t)experts * sizeof *list);
    float *p = malloc((size_t)experts * sizeof *p), sum = 0.0f;
    for (int64_t i = 0; i < experts; i++)
        list[i] = (struct o_choice){x[i], (int32_t)i};
    qsort(list, (size_t)experts, sizeof *list, o_choice_order);
    o_softmax(x, experts, p);
    for (int64_t j = 0; j < top_k; j++) {
        ids[j] = list[j].id;
        weights[j] = p[ids[j]];
        sum = j == 0 ? weights[j] : sum + weights[j];
    }
    for (int64_t j = 0; j < top_k && normalise; j++)
        weights[j] = o_store(weights[j] / sum);
    free(list);
    free(p);
}

#endif
