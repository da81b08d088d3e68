/* attention_tile.c: attention whose KV tile follows the number of new tokens, as libraries pick the
 * narrowest template that fits.
 *
 *   tile-by-qlen   a sequence with 1 or 2 new tokens in the call: tiles of 32 slots, else of 64,
 *                  counted from kv_first. So bits depend on how a sequence was cut into calls, from
 *                  33 visible slots on, and on nothing else: 1 and 2 new tokens agree with each
 *                  other, and so do 3 and more.
 *
 * Order. Scores: online.h. A tile: t = the largest of its scores and of the maximum m so far, f =
 * expf(m - t), 0 in the first tile; e = expf(score - t), 0 for -infinity; u = 8 interleaved sums of
 * e (slot j of the tile in sum j % 8, from +0), then ((u0+u4) + (u2+u6)) + ((u1+u5) + (u3+u7)); sum =
 * sum*f + u; v[d] = v[d]*f, then v[d] = v[d] + e*value slot after slot; every step rounded. At the
 * end v / sum. */
#include "kernels/cpu/online.h"

#include <math.h>
#include <string.h>

typedef float v8 __attribute__((vector_size(32)));
typedef float v8_any __attribute__((vector_size(32), aligned(4), may_alias));
#define LOAD(p) (*(const v8_any *)(p))
#define TREE(p) ((((p)[0] + (p)[4]) + ((p)[2] + (p)[6])) + (((p)[1] + (p)[5]) + ((p)[3] + (p)[7])))

enum { NARROW = 32, WIDE = 64, NARROW_UP_TO = 2 };

static int64_t tile_of(const struct ds_sequence *s)
{
    return s->q_len <= NARROW_UP_TO ? NARROW : WIDE;
}

static float dot(const float *q, const float *k, int64_t n)
{
    v8 p = {0};
    int64_t d = 0;
    for (; d + 8 <= n; d += 8)
        p += LOAD(q + d) * LOAD(k + d);
    float sum = TREE(p);
    for (; d < n; d++)
        sum += q[d] * k[d];
    return sum;
}

static void scale_values(float *v, float by, int64_t n)
{
    int64_t d = 0;
    for (; d + 8 <= n; d += 8)
        *(v8_any *)(v + d) = LOAD(v + d) * by;
    for (; d < n; d++)
        v[d] *= by;
}

/* v = v + e * value over the slots of a tile. */
static void add_values(float *v, const float *e, const float *const *value, int64_t slots,
                       int64_t n)
{
    int64_t d = 0;
    for (; d + 16 <= n; d += 16) {
        v8 s0 = LOAD(v + d), s1 = LOAD(v + d + 8);
        for (int64_t j = 0; j < slots; j++) {
            s0 += LOAD(value[j] + d) * e[j];
            s1 += LOAD(value[j] + d + 8) * e[j];
        }
        *(v8_any *)(v + d) = s0;
        *(v8_any *)(v + d + 8) = s1;
    }
    for (; d < n; d++)
        for (int64_t j = 0; j < slots; j++)
            v[d] += value[j][d] * e[j];
}

static void one_head(const struct ds_attention_args *a, const struct ds_sequence *s, int64_t row,
                     int64_t head)
{
    const int64_t n = a->head_dim, width = a->kv_heads * n, end = ds_online_end(s, row),
                  tile = tile_of(s), kv = head / (a->heads / a->kv_heads) * n;
    const float *q = a->q + row * a->ldq + head * n, *value[WIDE];
    float *y = a->y + row * a->ldy + head * n, e[WIDE], max = -INFINITY, sum = 0.0f;
    memset(y, 0, (size_t)n * sizeof *y);
    for (int64_t t = s->kv_first; t < end; t += tile) {
        const int64_t slots = end - t < tile ? end - t : tile;
        float m = max;
        v8 u = {0};
        for (int64_t j = 0; j < slots; j++) {
            int64_t slot = t + j,
                    at = (s->pages[slot / a->page_size] * a->page_size + slot % a->page_size) *
                             width +
                         kv;
            value[j] = a->cache_v + at;
            e[j] = dot(q, a->cache_k + at, n) * a->scale;
            m = e[j] > m ? e[j] : m;
        }
        const float f = max == -INFINITY ? 0.0f : expf(max - m);
        for (int64_t j = 0; j < slots; j++) {
            e[j] = e[j] == -INFINITY ? 0.0f : expf(e[j] - m);
            u[j % 8] += e[j];
        }
        sum = sum * f + TREE(u);
        max = m;
        scale_values(y, f, n);
        add_values(y, e, value, slots, n);
    }
    if (end > s->kv_first)
        ds_online_divide(y, sum, n);
}

static void items(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                  int64_t end)
{
    const struct ds_attention_args *a = args;
    (void)exec, (void)thread;
    for (int64_t i = begin; i < end; i++)
        one_head(a, ds_cpu_sequence_of(a, i / a->heads), i / a->heads, i % a->heads);
}

static int tile_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_attention_args *a = args;
    if (ds_online_check(a, why, why_size) != 0)
        return -1;
    ds_cpu_deal(exec, a, a->rows * a->heads, ds_online_work(a), items);
    return 0;
}

static int tile_describe(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    const struct ds_attention_args *a = args;
    *out = (struct ds_launch_info){
        .tile_rows = 1,
        .tile_k = a->max_q_len <= NARROW_UP_TO ? NARROW : WIDE,
        .threads = ds_cpu_threads(exec, a->rows * a->heads, ds_online_work(a)),
    };
    return 0;
}

const struct ds_kernel ds_attention_tile_by_qlen = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_ATTENTION,
    .name = "tile-by-qlen",
    .claims = DS_CLAIM_REPEAT | DS_CLAIM_BATCH | DS_CLAIM_SLOT | DS_CLAIM_THREADS,
    .launch = tile_launch,
    .describe = tile_describe,
    .summary = "online softmax over KV tiles of 32 slots for 1 or 2 new tokens, of 64 for more"};
