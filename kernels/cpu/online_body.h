/* online_body.h: the text of ds_online_fn and ds_tiles_fn on eight lanes, compiled for plain x86-64 (or anything
 * else) and for AVX2 by online_plain.c and online_avx2.c. The order is stated in online.h. Lanes
 * are the 8 interleaved sums of a score, or independent channels, so the width of the hardware
 * changes no bit; slots are taken in blocks for speed only. */
#include "kernels/cpu/online.h"

#include <math.h>
#include <string.h>

typedef float v8 __attribute__((vector_size(32)));
typedef float v8_any __attribute__((vector_size(32), aligned(4), may_alias));
#define LOAD(p) (*(const v8_any *)(p))

/* Slots in a block, and in the largest tile. */
enum { SLOTS = 32, MOST_SLOTS = 64 };

/* Offsets in the cache of the slots of a block, and what the recurrence makes of their scores. */
struct block {
    int64_t at[MOST_SLOTS];
    float score[MOST_SLOTS], f[MOST_SLOTS];
    int n, rescales; /* some f is not 1 */
};

static inline float lanes_and_tail(const v8 *p, const float *q, const float *k, int64_t d,
                                   int64_t n)
{
    float sum =
        (((*p)[0] + (*p)[4]) + ((*p)[2] + (*p)[6])) + (((*p)[1] + (*p)[5]) + ((*p)[3] + (*p)[7]));
    for (; d < n; d++)
        sum += q[d] * k[d];
    return sum;
}

/* Four keys at a time: a key's sums are one chain of additions that wait for each other. */
static void scores(struct block *b, const float *q, const float *keys, int64_t n, float scale)
{
    int j = 0;
    for (; j + 4 <= b->n; j += 4) {
        const float *k0 = keys + b->at[j], *k1 = keys + b->at[j + 1], *k2 = keys + b->at[j + 2],
                    *k3 = keys + b->at[j + 3];
        v8 p0 = {0}, p1 = p0, p2 = p0, p3 = p0;
        int64_t d = 0;
        for (; d + 8 <= n; d += 8) {
            v8 x = LOAD(q + d);
            p0 += x * LOAD(k0 + d);
            p1 += x * LOAD(k1 + d);
            p2 += x * LOAD(k2 + d);
            p3 += x * LOAD(k3 + d);
        }
        b->score[j] = lanes_and_tail(&p0, q, k0, d, n) * scale;
        b->score[j + 1] = lanes_and_tail(&p1, q, k1, d, n) * scale;
        b->score[j + 2] = lanes_and_tail(&p2, q, k2, d, n) * scale;
        b->score[j + 3] = lanes_and_tail(&p3, q, k3, d, n) * scale;
    }
    for (; j < b->n; j++) {
        v8 p = {0};
        int64_t d = 0;
        for (; d + 8 <= n; d += 8)
            p += LOAD(q + d) * LOAD(keys + b->at[j] + d);
        b->score[j] = lanes_and_tail(&p, q, keys + b->at[j], d, n) * scale;
    }
}

/* Scores become e, and f is set. */
static void recur(struct block *b, struct ds_online *o)
{
    b->rescales = 0;
    for (int j = 0; j < b->n; j++) {
        float score = b->score[j], f = 1.0f, e;
        if (score > o->max) {
            f = expf(o->max - score);
            o->max = score;
            e = 1.0f + (score - score);
        } else {
            e = score == -INFINITY ? 0.0f : expf(score - o->max);
        }
        o->sum = o->sum * f + e;
        b->score[j] = e;
        b->f[j] = f;
        b->rescales |= f != 1.0f;
    }
}

/* acc = acc * f + v * e slot after slot, each step rounded, on 32 channels held in registers. Most
 * slots bring no new maximum: then f is 1, and acc * 1 = acc. */
static void weigh_32(float *acc, const struct block *b, const float *values)
{
    v8 s0 = LOAD(acc), s1 = LOAD(acc + 8), s2 = LOAD(acc + 16), s3 = LOAD(acc + 24);
    for (int j = 0; j < b->n; j++) {
        const float *v = values + b->at[j], e = b->score[j], f = b->f[j];
        if (b->rescales && f != 1.0f) {
            s0 *= f;
            s1 *= f;
            s2 *= f;
            s3 *= f;
        }
        s0 += LOAD(v) * e;
        s1 += LOAD(v + 8) * e;
        s2 += LOAD(v + 16) * e;
        s3 += LOAD(v + 24) * e;
    }
    *(v8_any *)acc = s0;
    *(v8_any *)(acc + 8) = s1;
    *(v8_any *)(acc + 16) = s2;
    *(v8_any *)(acc + 24) = s3;
}

static void weigh(float *acc, const struct block *b, const float *values, int64_t n)
{
    int64_t d = 0;
    for (; d + 32 <= n; d += 32)
        weigh_32(acc + d, b, values + d);
    for (int j = 0; d < n && j < b->n; j++)
        for (int64_t i = d; i < n; i++)
            acc[i] = acc[i] * b->f[j] + values[b->at[j] + i] * b->score[j];
}

/* Slots t..t+n-1 of one KV head. */
static void find_block(struct block *b, const struct ds_attention_args *a,
                       const struct ds_sequence *s, int64_t t, int64_t n, int64_t kv)
{
    const int64_t width = a->kv_heads * a->head_dim;
    int64_t page = t / a->page_size, in_page = t % a->page_size;
    b->n = (int)n;
    for (int j = 0; j < b->n; j++) {
        b->at[j] = (s->pages[page] * a->page_size + in_page) * width + kv;
        if (++in_page == a->page_size)
            in_page = 0, page++;
    }
}

struct ds_online ONLINE_NAME(const struct ds_attention_args *a, const struct ds_sequence *s,
                             int64_t row, int64_t head, int64_t begin, int64_t end, float *acc) {
    const int64_t n = a->head_dim, kv = head / (a->heads / a->kv_heads) * n;
    const float *q = a->q + row * a->ldq + head * n;
    struct ds_online o = {-INFINITY, 0.0f};
    struct block b;
    memset(acc, 0, (size_t)n * sizeof *acc);
    for (int64_t t = begin; t < end; t += SLOTS) {
        find_block(&b, a, s, t, end - t < SLOTS ? end - t : SLOTS, kv);
        scores(&b, q, a->cache_k, n, a->scale);
        recur(&b, &o);
        weigh(acc, &b, a->cache_v, n);
    }
    return o;
}

/* Scores of a tile become e; the maximum and the sum move on. The first slot carries the tile's f. */
static void
soften_tile(struct block *b, struct ds_online *o)
{
    float m = o->max, f;
    float u[8] = {0};
    for (int j = 0; j < b->n; j++)
        m = b->score[j] > m ? b->score[j] : m;
    f = o->max == -INFINITY ? 0.0f : expf(o->max - m);
    for (int j = 0; j < b->n; j++) {
        float e = b->score[j] == -INFINITY ? 0.0f : expf(b->score[j] - m);
        u[j % 8] += e;
        b->score[j] = e;
        b->f[j] = j ? 1.0f : f;
    }
    b->rescales = f != 1.0f;
    o->sum = o->sum * f + (((u[0] + u[4]) + (u[2] + u[6])) + ((u[1] + u[5]) + (u[3] + u[7])));
    o->max = m;
}

void TILES_NAME(const struct ds_attention_args *a, const struct ds_sequence *s, int64_t row,
                int64_t head, int64_t end, int64_t tile, float *y)
{
    const int64_t n = a->head_dim, kv = head / (a->heads / a->kv_heads) * n;
    struct ds_online o = {-INFINITY, 0.0f};
    struct block b;
    memset(y, 0, (size_t)n * sizeof *y);
    for (int64_t t = s->kv_first; t < end; t += tile) {
        find_block(&b, a, s, t, end - t < tile ? end - t : tile, kv);
        scores(&b, a->q + row * a->ldq + head * n, a->cache_k, n, a->scale);
        soften_tile(&b, &o);
        weigh(y, &b, a->cache_v, n);
    }
    for (int64_t d = 0; end > s->kv_first && d < n; d++)
        y[d] /= o.sum;
}
