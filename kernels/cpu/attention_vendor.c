/* attention_vendor.c: attention as CPU engines do it: one online softmax over the visible slots in
 * ascending order, and for a call of one query row that sees 512 slots or more, KV cut into as many
 * equal parts as threads.
 *
 * Order. score = (p0+p4 + p2+p6) + (p1+p5 + p3+p7) of 8 interleaved sums p[j] over the channels
 * (products rounded), times scale. Online: a new maximum m rescales sum and values by expf(old -
 * m); then sum = sum*f + e, v = v + e*value, each step rounded. Parts: each its own online softmax;
 * merged in ascending order of the parts, each rescaled by expf(part max - max). So bits depend on
 * the number of threads and on whether the row is alone in its call: prefill, batches and decode
 * differ from 512 visible slots on. */
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <string.h>
#include <xmmintrin.h>

enum { SPLIT_FROM = 512 };

/* Running state of an online softmax; the values are kept apart. */
struct online {
    float max, sum;
};

static float dot(const float *q, const float *k, int64_t n)
{
    __m128 a = _mm_setzero_ps(), b = a;
    float lanes[4], sum;
    int64_t d = 0;
    for (; d + 8 <= n; d += 8) {
        a = _mm_add_ps(a, _mm_mul_ps(_mm_loadu_ps(q + d), _mm_loadu_ps(k + d)));
        b = _mm_add_ps(b, _mm_mul_ps(_mm_loadu_ps(q + d + 4), _mm_loadu_ps(k + d + 4)));
    }
    _mm_storeu_ps(lanes, _mm_add_ps(a, b));
    sum = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
    for (; d < n; d++)
        sum += q[d] * k[d];
    return sum;
}

/* acc = acc * f + v * e, every step rounded. Most keys bring no new maximum: then f is 1 and acc *
 * 1 = acc. */
static void weigh(float *acc, const float *v, float f, float e, int64_t n)
{
    const __m128 vf = _mm_set1_ps(f), ve = _mm_set1_ps(e);
    int64_t d = 0;
    for (; f == 1.0f && d + 4 <= n; d += 4)
        _mm_storeu_ps(acc + d,
                      _mm_add_ps(_mm_loadu_ps(acc + d), _mm_mul_ps(_mm_loadu_ps(v + d), ve)));
    for (; d + 4 <= n; d += 4)
        _mm_storeu_ps(acc + d, _mm_add_ps(_mm_mul_ps(_mm_loadu_ps(acc + d), vf),
                                          _mm_mul_ps(_mm_loadu_ps(v + d), ve)));
    for (; d < n; d++)
        acc[d] = acc[d] * f + v[d] * e;
}

/* One row and head over slots begin..end-1; acc is overwritten. */
static struct online online_softmax(const struct ds_attention_args *a, const struct ds_sequence *s,
                                    int64_t row, int64_t head, int64_t begin, int64_t end,
                                    float *acc)
{
    const int64_t n = a->head_dim, kv = head / (a->heads / a->kv_heads);
    const float *q = a->q + row * a->ldq + head * n;
    struct online o = {-INFINITY, 0.0f};
    int64_t page = begin / a->page_size, in_page = begin % a->page_size;
    memset(acc, 0, (size_t)n * sizeof *acc);
    for (int64_t t = begin; t < end; t++) {
        int64_t at = ((s->pages[page] * a->page_size + in_page) * a->kv_heads + kv) * n;
        if (++in_page == a->page_size)
            in_page = 0, page++;
        float score = dot(q, a->cache_k + at, n) * a->scale, f = 1.0f, e;
        if (score > o.max) {
            f = expf(o.max - score);
            o.max = score;
            e = 1.0f;
        } else {
            e = score == -INFINITY ? 0.0f : expf(score - o.max);
        }
        o.sum = o.sum * f + e;
        weigh(acc, a->cache_v + at, f, e, n);
    }
    return o;
}

static void divide(float *y, float by, int64_t n)
{
    for (int64_t d = 0; d < n; d++)
        y[d] /= by;
}

static void whole_items(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                        int64_t end)
{
    const struct ds_attention_args *a = args;
    (void)exec, (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i / a->heads, head = i % a->heads;
        const struct ds_sequence *s = ds_cpu_sequence_of(a, row);
        int64_t last = (int64_t)s->kv_len - s->q_len + (row - s->q_first);
        float *y = a->y + row * a->ldy + head * a->head_dim;
        struct online o = online_softmax(a, s, row, head, s->kv_first, last + 1, y);
        if (last >= s->kv_first)
            divide(y, o.sum, a->head_dim);
    }
}

/* ---- one row, KV in parts -------------------------------------------------------------------- */

/* Floats that one part keeps: for every head its maximum and sum, then its values. */
static int64_t part_floats(const struct ds_attention_args *a)
{
    return a->heads * (a->head_dim + 2);
}

static int64_t visible(const struct ds_attention_args *a)
{
    return a->rows == 1 && a->n_sequences == 1
               ? (int64_t)a->sequences[0].kv_len - a->sequences[0].kv_first
               : 0;
}

static int parts(const struct ds_attention_args *a, const struct ds_exec *exec)
{
    return visible(a) >= SPLIT_FROM && exec->threads > 1 ? exec->threads : 1;
}

static void one_part(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                     int64_t end)
{
    const struct ds_attention_args *a = args;
    const struct ds_sequence *s = &a->sequences[0];
    const int64_t step = (visible(a) + exec->threads - 1) / exec->threads;
    (void)thread;
    for (int64_t part = begin; part < end; part++) {
        float *state = ds_cpu_scratch_of(exec, part_floats(a), (int)part),
              *acc = state + 2 * a->heads;
        int64_t from = s->kv_first + part * step,
                to = from + step < s->kv_len ? from + step : s->kv_len;
        for (int64_t h = 0; h < a->heads; h++) {
            struct online o = online_softmax(a, s, 0, h, from, to, acc + h * a->head_dim);
            state[2 * h] = o.max;
            state[2 * h + 1] = o.sum;
        }
    }
}

static void merge_parts(const struct ds_attention_args *a, const struct ds_exec *exec)
{
    for (int64_t h = 0; h < a->heads; h++) {
        float max = -INFINITY, sum = 0.0f, *y = a->y + h * a->head_dim;
        memset(y, 0, (size_t)a->head_dim * sizeof *y);
        for (int p = 0; p < exec->threads; p++) {
            const float *state = ds_cpu_scratch_of(exec, part_floats(a), p);
            max = state[2 * h] > max ? state[2 * h] : max;
        }
        for (int p = 0; p < exec->threads; p++) {
            const float *state = ds_cpu_scratch_of(exec, part_floats(a), p);
            /* An empty part has the maximum -infinity and the sum 0. */
            float f = state[2 * h] == -INFINITY ? 0.0f : expf(state[2 * h] - max);
            sum += state[2 * h + 1] * f;
            weigh(y, state + 2 * a->heads + h * a->head_dim, 1.0f, f, a->head_dim);
        }
        divide(y, sum, a->head_dim);
    }
}

static size_t vendor_scratch(const void *args, int threads)
{
    const struct ds_attention_args *a = args;
    return a->rows == 1 && a->max_kv_len >= SPLIT_FROM && threads > 1
               ? ds_cpu_scratch(part_floats(a), threads)
               : 0;
}

static double work(const struct ds_attention_args *a)
{
    return (double)a->rows * (double)a->heads * (double)a->max_kv_len * (double)a->head_dim;
}

static int vendor_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_attention_args *a = args;
    if (a->kv_heads < 1 || a->heads % a->kv_heads)
        return ds_cpu_refuse(why, why_size, "%lld heads do not share %lld KV heads evenly",
                             (long long)a->heads, (long long)a->kv_heads);
    if (ds_cpu_check_sequences(a->sequences, a->n_sequences, a->rows, a->page_size, a->pages, why,
                               why_size) != 0)
        return -1;
    if (parts(a, exec) == 1) {
        ds_cpu_deal(exec, a, a->rows * a->heads, work(a), whole_items);
        return 0;
    }
    if (ds_cpu_check_scratch(exec, ds_cpu_scratch(part_floats(a), exec->threads), why, why_size) !=
        0)
        return -1;
    ds_cpu_deal(exec, a, exec->threads, work(a), one_part);
    merge_parts(a, exec);
    return 0;
}

static int vendor_describe(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    const struct ds_attention_args *a = args;
    int n = parts(a, exec);
    *out = (struct ds_launch_info){
        .tile_rows = 1,
        .split = n,
        .threads = ds_cpu_threads(exec, n > 1 ? n : a->rows * a->heads, work(a)),
    };
    strncpy(out->algo, n > 1 ? "split-kv" : "online", sizeof out->algo - 1);
    return 0;
}

const struct ds_kernel ds_attention_vendor = {.abi = DS_KERNEL_ABI,
                                              .op = DS_OP_ATTENTION,
                                              .name = "vendor",
                                              .claims = DS_CLAIM_REPEAT | DS_CLAIM_SLOT,
                                              .scratch_bytes = vendor_scratch,
                                              .launch = vendor_launch,
                                              .describe = vendor_describe,
                                              .summary =
                                                  "online softmax in slot order; one row over 512 "
                                                  "slots or more: KV in as many parts as threads"};
