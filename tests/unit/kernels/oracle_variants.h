/* oracle_variants.h: the orders of the variants that are not pinned, as the head comments of
 * kernels/cpu state them, written down a second time: one output at a time, in scalar C, without
 * lanes or blocks. */
#ifndef DS_TEST_KERNELS_ORACLE_VARIANTS_H
#define DS_TEST_KERNELS_ORACLE_VARIANTS_H

#include "tests/unit/kernels/oracle.h"

#include <string.h>

/* ---- rmsnorm --------------------------------------------------------------------------------- */

/* Sum of squares begin..end-1 in `lanes` interleaved sums; lanes is 4 or 8. */
static inline float o_lanes(const float *x, int64_t begin, int64_t end, int lanes)
{
    float p[8] = {0};
    for (int64_t i = begin; i < end; i++) {
        float square = x[i] * x[i];
        p[(i - begin) % lanes] = p[(i - begin) % lanes] + square;
    }
    if (lanes == 4)
        return (p[0] + p[1]) + (p[2] + p[3]);
    return ((p[0] + p[4]) + (p[2] + p[6])) + ((p[1] + p[5]) + (p[3] + p[7]));
}

static inline float o_norm_sum(const char *variant, const float *x, int64_t n, int64_t rows,
                               int threads)
{
    int64_t parts = 1;
    float sum;
    if (strcmp(variant, "tail") == 0) {
        sum = o_lanes(x, 0, n - n % 8, 8);
        for (int64_t i = n - n % 8; i < n; i++)
            sum = sum + x[i] * x[i];
        return sum;
    }
    if (strcmp(variant, "split") == 0 && rows < threads)
        parts = threads / rows < n ? threads / rows : n;
    sum = o_lanes(x, 0, n / parts, 4);
    for (int64_t p = 1; p < parts; p++)
        sum = sum + o_lanes(x, p * n / parts, (p + 1) * n / parts, 4);
    return sum;
}

/* Element i of a row. */
static inline float o_norm(const char *variant, const float *x, const float *w, float eps,
                           int64_t n, int64_t rows, int threads, int dtype, int64_t i)
{
    float inv = 1.0f / sqrtf(o_norm_sum(variant, x, n, rows, threads) / (float)n + eps);
    float scaled = x[i] * inv;
    if (strcmp(variant, "cast-first") == 0 && dtype == DS_ELEMENT_BF16)
        scaled = ds_bf16_value(ds_bf16_round(scaled));
    if (strcmp(variant, "cast-first") == 0 && dtype == DS_ELEMENT_F16)
        scaled = ds_f16_value(ds_f16_round(scaled));
    return scaled * w[i];
}

/* ---- attention ------------------------------------------------------------------------------- */

static inline float o_score(const struct ds_attention_args *a, const struct ds_sequence *s,
                            int64_t row, int64_t head, int64_t slot)
{
    const int64_t n = a->head_dim, kv = head / (a->heads / a->kv_heads);
    const float *q = a->q + row * a->ldq + head * n;
    const float *k = a->cache_k + (o_cache_row(s, slot, a->page_size) * a->kv_heads + kv) * n;
    float p[8] = {0};
    for (int64_t d = 0; d < n - n % 8; d++) {
        float product = q[d] * k[d];
        p[d % 8] = p[d % 8] + product;
    }
    float sum = ((p[0] + p[4]) + (p[2] + p[6])) + ((p[1] + p[5]) + (p[3] + p[7]));
    for (int64_t d = n - n % 8; d < n; d++)
        sum = sum + q[d] * k[d];
    return sum * a->scale;
}

static inline float o_value(const struct ds_attention_args *a, const struct ds_sequence *s,
                            int64_t head, int64_t slot, int64_t d)
{
    const int64_t kv = head / (a->heads / a->kv_heads);
    return a->cache_v[(o_cache_row(s, slot, a->page_size) * a->kv_heads + kv) * a->head_dim + d];
}

struct o_range {
    float max, sum, value;
};

/* Online softmax over slots begin..end-1, channel d. */
static inline struct o_range o_online(const struct ds_attention_args *a,
                                      const struct ds_sequence *s, int64_t row, int64_t head,
                                      int64_t begin, int64_t end, int64_t d)
{
    struct o_range o = {-INFINITY, 0.0f, 0.0f};
    for (int64_t t = begin; t < end; t++) {
        float score = o_score(a, s, row, head, t), f = 1.0f, e = 1.0f;
        if (score > o.max) {
            f = expf(o.max - score);
            e = expf(score - score);
            o.max = score;
        } else {
            e = score == -INFINITY ? 0.0f : expf(score - o.max);
        }
        float kept = o.sum * f;
        o.sum = kept + e;
        kept = o.value * f;
        o.value = kept + o_value(a, s, head, t, d) * e;
    }
    return o;
}

/* Parts of `step` slots merged by log-sum-exp. */
static inline float o_parts(const struct ds_attention_args *a, const struct ds_sequence *s,
                            int64_t row, int64_t head, int64_t end, int64_t step, int64_t d)
{
    float max = -INFINITY, z = 0.0f, y = 0.0f;
    for (int pass = 0; pass < 3; pass++)
        for (int64_t from = s->kv_first; from < end; from += step) {
            struct o_range o =
                o_online(a, s, row, head, from, from + step < end ? from + step : end, d);
            float lse = o.max + logf(o.sum), value = o.value / o.sum;
            if (end - s->kv_first <= step)
                return value;
            if (pass == 0)
                max = lse > max ? lse : max;
            else if (pass == 1)
                z = z + (lse == -INFINITY ? 0.0f : expf(lse - max));
            else if (lse != -INFINITY || z == 0.0f)
                y = y + value * expf(lse - (max + logf(z)));
        }
    return y;
}

/* As vendor does it for a row alone: parts merged by their maxima. */
static inline float o_vendor_parts(const struct ds_attention_args *a, const struct ds_sequence *s,
                                   int64_t head, int64_t end, int threads, int64_t d)
{
    const int64_t step = (end - s->kv_first + threads - 1) / threads;
    float max = -INFINITY, sum = 0.0f, y = 0.0f;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t from = s->kv_first; from < end; from += step) {
            struct o_range o =
                o_online(a, s, 0, head, from, from + step < end ? from + step : end, d);
            float f = o.max == -INFINITY ? 0.0f : expf(o.max - max);
            if (pass == 0) {
                max = o.max > max ? o.max : max;
                continue;
            }
            sum = sum + o.sum * f;
            y = y + o.value * f;
        }
    return y / sum;
}

static inline float o_tiles(const struct ds_attention_args *a, const struct ds_sequence *s,
                            int64_t row, int64_t head, int64_t end, int64_t tile, int64_t d)
{
    float max = -INFINITY, sum = 0.0f, y = 0.0f;
    for (int64_t t = s->kv_first; t < end; t += tile) {
        int64_t to = t + tile < end ? t + tile : end;
        float m = max, u[8] = {0};
        for (int64_t j = t; j < to; j++)
            m = o_score(a, s, row, head, j) > m ? o_score(a, s, row, head, j) : m;
        float f = max == -INFINITY ? 0.0f : expf(max - m);
        y = y * f;
        for (int64_t j = t; j < to; j++) {
            float score = o_score(a, s, row, head, j);
            float e = score == -INFINITY ? 0.0f : expf(score - m);
            u[(j - t) % 8] = u[(j - t) % 8] + e;
            y = y + o_value(a, s, head, j, d) * e;
        }
        float kept = sum * f;
        sum = kept + (((u[0] + u[4]) + (u[2] + u[6])) + ((u[1] + u[5]) + (u[3] + u[7])));
        max = m;
    }
    return y / sum;
}

/* Channel d of one head of one query row of a call on so many threads. */
static inline float o_attend(const char *variant, const struct ds_attention_args *a, int threads,
                             int64_t row, int64_t head, int64_t d)
{
    const struct ds_sequence *s = a->sequences;
    while (row >= s->q_first + s->q_len)
        s++;
    const int64_t end = s->kv_len - s->q_len + (row - s->q_first) + 1;
    const int64_t slots = s->kv_len - s->kv_first;
    if (end <= s->kv_first)
        return 0.0f;
    if (strcmp(variant, "stock") == 0)
        return o_parts(a, s, row, head, end, slots > 4 ? (slots + 3) / 4 : 1, d);
    if (strcmp(variant, "tile-by-qlen") == 0)
        return o_tiles(a, s, row, head, end, s->q_len <= 2 ? 32 : 64, d);
    if (strcmp(variant, "split-kv") == 0) {
        int64_t blocks = (slots + 15) / 16, parts = threads / a->rows;
        parts = parts < 1 ? 1 : parts > blocks ? blocks : parts;
        return o_parts(a, s, row, head, end, (blocks + parts - 1) / parts * 16, d);
    }
    if (a->rows == 1 && threads > 1 && slots >= 512)
        return o_vendor_parts(a, s, head, end, threads, d);
    struct o_range o = o_online(a, s, row, head, s->kv_first, end, d);
    return o.value / o.sum;
}

#endif
