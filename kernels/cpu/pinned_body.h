/* pinned_body.h: the pinned kernels written once on sixteen lanes; pinned_scalar.c, pinned_avx2.c
 * and pinned_avx512.c include it after their v16 header. Every order and rounding point is fixed by
 * kernels/PINNED.md; lanes are always independent outputs or the 16 interleaved partial sums, so
 * the width of the hardware changes no bit. */
#include "kernels/cpu/file_weights.h"
#include "kernels/cpu/pinned.h"

#include <stddef.h>
#include <string.h>

#include "kernels/cpu/pinned_matmul.h"

#include "kernels/cpu/pinned_file.h"

/* exp(x): n = round(x / ln 2), r = x - n ln 2 in two steps, 1 + r + r^2 q(r), scaled by 2^n in two
 * steps. */
static inline v16 v16_exp(v16 x)
{
    const v16 magic = v16_set1(12582912.0f), one = v16_set1(1.0f);
    x = v16_max(v16_set1(-104.0f), x);
    x = v16_min(v16_set1(89.0f), x);
    v16 t = v16_fma(x, v16_set1(0x1.715476p+0f), magic);
    v16 n = v16_sub(t, magic);
    v16 r = v16_fma(n, v16_set1(-0x1.62e430p-1f), x);
    r = v16_fma(n, v16_set1(0x1.05c610p-29f), r);
    v16 p = v16_set1(0x1.6a2256p-10f);
    p = v16_fma(p, r, v16_set1(0x1.123b02p-7f));
    p = v16_fma(p, r, v16_set1(0x1.5558f8p-5f));
    p = v16_fma(p, r, v16_set1(0x1.555490p-3f));
    p = v16_fma(p, r, v16_set1(0x1.fffffcp-2f));
    p = v16_fma(p, r, one);
    p = v16_fma(p, r, one);
    return v16_scale(p, t);
}

/* exp(x - m), and +0 where x is -infinity (also when m is). */
static inline v16 softmax_term(v16 x, float m)
{
    return v16_zero_at_ninf(v16_exp(v16_sub(x, v16_set1(m))), x);
}

static void pinned_exp(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16)
        v16_store_n(y + i, v16_canon(v16_exp(v16_load_n(x + i, n - i))), n - i);
}

static void pinned_copy(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16)
        v16_store_n(y + i, v16_canon(v16_load_n(x + i, n - i)), n - i);
}

static void pinned_add(float *y, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16)
        v16_store_n(y + i, v16_canon(v16_add(v16_load_n(a + i, n - i), v16_load_n(b + i, n - i))),
                    n - i);
}

static void pinned_silu_mul(float *y, const float *gate, const float *up, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16) {
        v16 g = v16_load_n(gate + i, n - i), u = v16_load_n(up + i, n - i);
        v16 e = v16_exp(v16_sub(v16_set1(0.0f), g));
        v16 s = v16_div(g, v16_add(v16_set1(1.0f), e));
        v16_store_n(y + i, v16_canon(v16_mul(s, u)), n - i);
    }
}

static void pinned_rmsnorm(const struct ds_rmsnorm_args *a, int64_t row)
{
    const float *x = a->x + row * a->ldx;
    float *y = a->y + row * a->ldy;
    const int64_t n = a->width;
    v16 sum = v16_set1(0.0f);
    for (int64_t i = 0; i < n; i += 16) {
        v16 v = v16_load_n(x + i, n - i);
        sum = v16_head(v16_fma(v, v, sum), sum, n - i);
    }
    float mean = v16_tree_sum(sum) / (float)n;
    v16 inv = v16_set1(1.0f / sqrtf(mean + a->eps));
    for (int64_t i = 0; i < n; i += 16) {
        v16 v = v16_mul(v16_load_n(x + i, n - i), inv);
        v16_store_n(y + i, v16_canon(v16_mul(v, v16_load_n(a->weight + i, n - i))), n - i);
    }
}

/* One pair: y0 = fma(x0, cos, -(x1 * sin)), y1 = fma(x1, cos, x0 * sin). */
static inline void rotate_pair(float *y0, float *y1, float x0, float x1, float c, float s)
{
    float r0 = fmaf(x0, c, -(x1 * s)), r1 = fmaf(x1, c, x0 * s);
    *y0 = r0 != r0 ? (float)NAN : r0;
    *y1 = r1 != r1 ? (float)NAN : r1;
}

static void rope_head(const struct ds_rope_args *a, const float *x, float *y, const float *cs)
{
    const int64_t half = a->rope_dim / 2;
    if (a->neox) {
        for (int64_t i = 0; i < half; i++)
            rotate_pair(y + i, y + i + half, x[i], x[i + half], cs[2 * i], cs[2 * i + 1]);
    } else {
        for (int64_t i = 0; i < 2 * half; i += 16) {
            int64_t n = 2 * half - i;
            v16_store_n(y + i, v16_canon(v16_rotate(v16_load_n(x + i, n), v16_load_n(cs + i, n))),
                        n);
        }
    }
    pinned_copy(y + 2 * half, x + 2 * half, a->head_dim - 2 * half);
}

static void pinned_rope(const struct ds_rope_args *a, int64_t row)
{
    const float *cs = a->cos_sin + (int64_t)a->positions[row] * (a->rope_dim / 2) * 2;
    for (int64_t h = 0; h < a->heads; h++)
        rope_head(a, a->x + row * a->ldx + h * a->head_dim, a->y + row * a->ldy + h * a->head_dim,
                  cs);
}

#include "kernels/cpu/pinned_attention_extra.h"

/* One block of visible slots of one request: where their keys and values lie. */
struct kv_block {
    int64_t offset[DS_PINNED_BLOCK]; /* of the slot's row and KV head in cache_k and cache_v */
    int64_t n;
};

static void find_block(struct kv_block *b, const struct ds_attention_args *a,
                       const struct ds_sequence *s, int64_t slot, int64_t n, int64_t kv_head)
{
    const int64_t width = a->kv_heads * a->head_dim;
    int64_t page = slot / a->page_size, in_page = slot % a->page_size;
    b->n = n;
    for (int64_t j = 0; j < n; j++) {
        b->offset[j] = (s->pages[page] * a->page_size + in_page) * width + kv_head * a->head_dim;
        if (++in_page == a->page_size) {
            in_page = 0;
            page++;
        }
    }
}

/* scale * dot: 16 interleaved chains over the channels, the fixed tree, then one product. */
static inline float score(const float *q, const float *k, int64_t n, float scale)
{
    v16 sum = v16_set1(0.0f);
    int64_t d = 0;
    for (; d + 16 <= n; d += 16)
        sum = v16_fma(v16_load(q + d), v16_load(k + d), sum);
    if (d < n)
        sum =
            v16_head(v16_fma(v16_load_n(q + d, n - d), v16_load_n(k + d, n - d), sum), sum, n - d);
    return v16_tree_sum(sum) * scale;
}

/* Turns a block's scores into exp(score - max); returns max and the sum. Lanes past the block hold
 * -infinity, so that they give +0 and neither change the maximum nor a sum. */
static void softmax_block(float *p, int64_t n, float *max_out, float *sum_out)
{
    v16 max = v16_set1(-INFINITY), sum = v16_set1(0.0f);
    for (int64_t j = n; j % 16; j++)
        p[j] = -INFINITY;
    for (int64_t j = 0; j < n; j += 16)
        max = v16_max(v16_load(p + j), max);
    *max_out = v16_tree_max(max);
    for (int64_t j = 0; j < n; j += 16) {
        v16 e = softmax_term(v16_load(p + j), *max_out);
        v16_store(p + j, e);
        sum = v16_add(sum, e);
    }
    *sum_out = v16_tree_sum(sum);
}

/* acc[d] = one chain fma(p[j], v_j[d], acc) in ascending j from +0, for all channels d. */
static void weigh_values(float *acc, const float *p, const struct kv_block *b, const float *values,
                         int64_t n)
{
    int64_t d = 0;
    for (; d + 64 <= n; d += 64) {
        v16 s0 = v16_set1(0.0f), s1 = s0, s2 = s0, s3 = s0;
        for (int64_t j = 0; j < b->n; j++) {
            const float *v = values + b->offset[j] + d;
            v16 w = v16_set1(p[j]);
            s0 = v16_fma(w, v16_load(v), s0);
            s1 = v16_fma(w, v16_load(v + 16), s1);
            s2 = v16_fma(w, v16_load(v + 32), s2);
            s3 = v16_fma(w, v16_load(v + 48), s3);
        }
        v16_store(acc + d, s0);
        v16_store(acc + d + 16, s1);
        v16_store(acc + d + 32, s2);
        v16_store(acc + d + 48, s3);
    }
    for (; d < n; d += 16) {
        v16 s = v16_set1(0.0f);
        for (int64_t j = 0; j < b->n; j++)
            s = v16_fma(v16_set1(p[j]), v16_load_n(values + b->offset[j] + d, n - d), s);
        v16_store(acc + d, s);
    }
}

static inline float exp_one(float x, float m)
{
    float lanes[16];
    v16_store(lanes, softmax_term(v16_set1(x), m));
    return lanes[0];
}

/* Adds a block's maximum, sum and values to those of the blocks before it. */
static void merge_block(float *max, float *sum, float *acc, float block_max, float block_sum,
                        const float *block, int64_t n)
{
    float m = block_max > *max ? block_max : *max;
    float old = exp_one(*max, m), new = exp_one(block_max, m);
    *max = m;
    *sum = fmaf(*sum, old, block_sum * new);
    for (int64_t d = 0; d < n; d += 16) {
        v16 v = v16_mul(v16_load(block + d), v16_set1(new));
        v16_store(acc + d, v16_fma(v16_load(acc + d), v16_set1(old), v));
    }
}

/* The first slot that a row sees which sees slots below `end`. */
static inline int64_t first_visible(const struct ds_attention_args *a, const struct ds_sequence *s,
                                    int64_t end)
{
    return a->window && end - a->window > s->kv_first ? end - a->window : s->kv_first;
}

/* The sink as one more block, the denominator out, the log-sum-exp. */
static void finish_row(const struct ds_attention_args *a, int64_t row, int64_t head, float max,
                       float sum, float *acc, float *part, int64_t padded)
{
    float *y = a->y + row * a->ldy + head * a->head_dim;
    if (a->sinks) {
        for (int64_t d = 0; d < padded; d += 16)
            v16_store(part + d, v16_set1(0.0f));
        merge_block(&max, &sum, acc, a->sinks[head], 1.0f, part, padded);
    }
    for (int64_t d = 0; d < a->head_dim; d += 16)
        v16_store_n(y + d, v16_canon(v16_div(v16_load(acc + d), v16_set1(sum))), a->head_dim - d);
    if (a->lse) {
        float lse = max + pinned_log(sum);
        a->lse[row * a->heads + head] = lse != lse ? (float)NAN : lse;
    }
}

static void empty_row(const struct ds_attention_args *a, int64_t row, int64_t head)
{
    float *y = a->y + row * a->ldy + head * a->head_dim;
    for (int64_t d = 0; d < a->head_dim; d += 16)
        v16_store_n(y + d, v16_set1(0.0f), a->head_dim - d);
    if (a->lse)
        a->lse[row * a->heads + head] = -INFINITY;
}

static void pinned_attention(const struct ds_attention_args *a, const struct ds_sequence *s,
                             int64_t row, int64_t head, float *work)
{
    const int64_t n = a->head_dim, padded = (n + 15) / 16 * 16,
                  kv_head = head / (a->heads / a->kv_heads);
    const int64_t end = (int64_t)s->kv_len - s->q_len + (row - s->q_first) + 1;
    const int64_t begin = first_visible(a, s, end);
    const float *q = a->q + row * a->ldq + head * n;
    float *p = work, *acc = p + DS_PINNED_BLOCK, *part = acc + padded, max = 0.0f, sum = 0.0f;
    int first = 1;
    if (end <= s->kv_first) {
        empty_row(a, row, head);
        return;
    }
    for (int64_t slot = begin - (begin - s->kv_first) % DS_PINNED_BLOCK; slot < end;
         slot += DS_PINNED_BLOCK) {
        struct kv_block b;
        float block_max, block_sum;
        const int64_t skip = slot < begin ? begin - slot : 0, /* before the window */
            len = (end - slot < DS_PINNED_BLOCK ? end - slot : DS_PINNED_BLOCK) - skip;
        find_block(&b, a, s, slot + skip, len, kv_head);
        for (int64_t j = 0; j < skip; j++)
            p[j] = -INFINITY;
        for (int64_t j = 0; j < len; j++)
            p[skip + j] = score(q, a->cache_k + b.offset[j], n, a->scale);
        if (a->soft_cap > 0.0f)
            cap_scores(p + skip, len, a->soft_cap);
        softmax_block(p, skip + len, &block_max, &block_sum);
        weigh_values(first ? acc : part, p + skip, &b, a->cache_v, n);
        if (first) {
            max = block_max;
            sum = block_sum;
            first = 0;
        } else {
            merge_block(&max, &sum, acc, block_max, block_sum, part, padded);
        }
    }
    finish_row(a, row, head, max, sum, acc, part, padded);
}

#include "kernels/cpu/pinned_rows.h"

#define DS_PINNED_TABLE                                                                            \
    {                                                                                              \
        V16_NAME, V16_ROWS, V16_PANELS, pinned_matmul, pinned_matmul_file, pinned_rmsnorm,         \
            pinned_rope, pinned_attention, pinned_silu_mul, pinned_add, pinned_copy, pinned_exp,   \
            pinned_softmax, pinned_combine, pinned_allreduce                                       \
    }
