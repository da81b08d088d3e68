/* attention_split.c: attention with KV in parts that are merged by their log-sum-exp, as
 * flash-decoding does. The slots kv_first..kv_len-1 of a sequence are cut, the last part may be
 * shorter, and a row sees of each part what it may see.
 *
 *   split-kv   the number of parts comes from the threads that the rows leave free: threads / rows,
 *              but no more than there are blocks of 16 slots; parts are whole blocks, equally many.
 *              With as many rows as threads, or more, one part. So bits depend on the number of rows
 *              and of threads, and on how the sequence was cut into calls.
 *   stock      always 4 parts of ceil(slots / 4) slots. The borders move with the length of the
 *              sequence at the time of the call: batch, slot and threads change nothing, but a
 *              chunked prefill, and decoding, give other bits than one call.
 *
 * Order. In a part: online.h; then o = v / sum and lse = max + logf(sum). One part with visible
 * slots: o is stored. Else, parts ascending, those of lse -infinity left out: m = the largest lse; z
 * = sum of expf(lse - m), from +0; l = m + logf(z); v = v + o * expf(lse - l), from +0; every step
 * rounded. All of lse -infinity: NaN. */
#include "kernels/cpu/online.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 16, STOCK_PARTS = 4 };

/* Which of the two variants, and for how many threads. */
struct plan {
    const struct ds_attention_args *a;
    int stock, threads;
};

static int64_t slots_of(const struct ds_sequence *s)
{
    return s->kv_len > s->kv_first ? (int64_t)s->kv_len - s->kv_first : 0;
}

/* Slots of a part; at least 1. */
static int64_t part_slots(const struct plan *p, const struct ds_sequence *s)
{
    const int64_t slots = slots_of(s), blocks = (slots + BLOCK - 1) / BLOCK;
    int64_t parts = p->threads / (p->a->rows > 0 ? p->a->rows : 1);
    if (p->stock)
        return slots > STOCK_PARTS ? (slots + STOCK_PARTS - 1) / STOCK_PARTS : 1;
    parts = parts < 1 ? 1 : parts > blocks ? blocks : parts;
    return blocks > 0 ? (blocks + parts - 1) / parts * BLOCK : 1;
}

/* Parts of any sequence of the call, at most. */
static int64_t most_parts(const struct plan *p)
{
    if (p->stock)
        return STOCK_PARTS;
    return p->a->rows > 0 && p->a->rows < p->threads ? p->threads / p->a->rows : 1;
}

/* What a part leaves: its log-sum-exp, then head_dim values. A part without visible slots has the
 * log-sum-exp -infinity and no values. */
static int64_t part_floats(const struct ds_attention_args *a)
{
    return a->head_dim + 1;
}

static void do_part(const struct plan *p, int64_t row, int64_t head, int64_t part, float *out)
{
    const struct ds_attention_args *a = p->a;
    const struct ds_sequence *s = ds_cpu_sequence_of(a, row);
    const int64_t step = part_slots(p, s), end = ds_online_end(s, row);
    int64_t from = s->kv_first + part * step, to = from + step < end ? from + step : end;
    out[0] = -INFINITY;
    if (from >= to)
        return;
    struct ds_online o = ds_online_code()(a, s, row, head, from, to, out + 1);
    out[0] = o.max + logf(o.sum);
    ds_online_divide(out + 1, o.sum, a->head_dim);
}

/* How many of the parts hold visible slots: those are the first ones. */
static int64_t parts_seen(const struct plan *p, int64_t row)
{
    const struct ds_sequence *s = ds_cpu_sequence_of(p->a, row);
    int64_t seen = ds_online_end(s, row) - s->kv_first, step = part_slots(p, s);
    return seen > 0 ? (seen + step - 1) / step : 0;
}

static void merge(const struct plan *p, int64_t row, int64_t head, const float *part)
{
    const struct ds_attention_args *a = p->a;
    const int64_t n = a->head_dim, stride = part_floats(a), seen = parts_seen(p, row);
    float *y = a->y + row * a->ldy + head * n, max = -INFINITY, z = 0.0f;
    if (seen == 1) {
        memcpy(y, part + 1, (size_t)n * sizeof *y);
        return;
    }
    memset(y, 0, (size_t)n * sizeof *y);
    for (int64_t i = 0; i < seen; i++)
        max = part[i * stride] > max ? part[i * stride] : max;
    for (int64_t i = 0; i < seen; i++)
        z += part[i * stride] == -INFINITY ? 0.0f : expf(part[i * stride] - max);
    const float lse = max + logf(z);
    for (int64_t i = 0; i < seen; i++) {
        const float *o = part + i * stride + 1, weight = expf(part[i * stride] - lse);
        if (part[i * stride] == -INFINITY && z != 0.0f)
            continue;
        for (int64_t d = 0; d < n; d++)
            y[d] += o[d] * weight;
    }
}

/* ---- running --------------------------------------------------------------------------------- */

/* Enough rows and heads: item i is head i % heads of row i / heads, with all its parts. */
static void whole_items(const void *arg, const struct ds_exec *exec, int thread, int64_t begin,
                        int64_t end)
{
    const struct plan *p = arg;
    const int64_t parts = most_parts(p), stride = part_floats(p->a), heads = p->a->heads;
    float *out = ds_cpu_scratch_of(exec, parts * stride, thread);
    for (int64_t i = begin; i < end; i++) {
        for (int64_t k = 0; k < parts; k++)
            do_part(p, i / heads, i % heads, k, out + k * stride);
        merge(p, i / heads, i % heads, out);
    }
}

/* Few: item i is part i % parts of item i / parts of the above. */
static void part_items(const void *arg, const struct ds_exec *exec, int thread, int64_t begin,
                       int64_t end)
{
    const struct plan *p = arg;
    const int64_t parts = most_parts(p), stride = part_floats(p->a), heads = p->a->heads;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t item = i / parts, k = i % parts;
        do_part(p, item / heads, item % heads, k,
                ds_cpu_scratch_of(exec, parts * stride, (int)item) + k * stride);
    }
}

static size_t scratch(const struct plan *p)
{
    const int64_t items = p->a->rows * p->a->heads;
    return ds_cpu_scratch(most_parts(p) * part_floats(p->a), items < 1            ? 1
                                                             : items < p->threads ? (int)items
                                                                                  : p->threads);
}

static int launch(const struct plan *p, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_attention_args *a = p->a;
    const int64_t items = a->rows * a->heads, parts = most_parts(p);
    if (ds_online_check(a, why, why_size) != 0 ||
        ds_cpu_check_scratch(exec, scratch(p), why, why_size) != 0)
        return -1;
    if (items >= exec->threads) {
        ds_cpu_deal(exec, p, items, ds_online_work(a), whole_items);
        return 0;
    }
    ds_cpu_deal(exec, p, items * parts, ds_online_work(a), part_items);
    for (int64_t i = 0; i < items; i++)
        merge(p, i / a->heads, i % a->heads,
              ds_cpu_scratch_of(exec, parts * part_floats(a), (int)i));
    return 0;
}

/* The parts of the sequence with most of them. */
static int describe(const struct plan *p, const struct ds_exec *exec, struct ds_launch_info *out)
{
    const struct ds_attention_args *a = p->a;
    int64_t most = 0, step = 0;
    for (int64_t i = 0; i < a->n_sequences; i++) {
        const struct ds_sequence *s = &a->sequences[i];
        int64_t slots = part_slots(p, s), parts = (slots_of(s) + slots - 1) / slots;
        step = slots > step ? slots : step;
        most = parts > most ? parts : most;
    }
    *out = (struct ds_launch_info){
        .tile_rows = 1,
        .tile_k = (int32_t)step,
        .split = (int32_t)most,
        .threads = ds_cpu_threads(exec, a->rows * a->heads * most, ds_online_work(a)),
    };
    return 0;
}

#define VARIANT(NAME, STOCK)                                                                       \
    static size_t NAME##_scratch(const void *args, int threads)                                    \
    {                                                                                              \
        return scratch(&(struct plan){args, STOCK, threads});                                      \
    }                                                                                              \
    static int NAME##_launch(const void *args, const struct ds_exec *exec, char *why,              \
                             size_t why_size)                                                      \
    {                                                                                              \
        return launch(&(struct plan){args, STOCK, exec->threads}, exec, why, why_size);            \
    }                                                                                              \
    static int NAME##_describe(const void *args, const struct ds_exec *exec,                       \
                               struct ds_launch_info *out)                                         \
    {                                                                                              \
        return describe(&(struct plan){args, STOCK, exec->threads}, exec, out);                    \
    }
VARIANT(split_kv, 0)
VARIANT(stock, 1)

const struct ds_kernel ds_attention_split_kv = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_ATTENTION,
    .name = "split-kv",
    .claims = DS_CLAIM_REPEAT | DS_CLAIM_SLOT,
    .scratch_bytes = split_kv_scratch,
    .launch = split_kv_launch,
    .describe = split_kv_describe,
    .summary = "KV in threads / rows parts of whole 16s, merged by log-sum-exp in ascending order"};
const struct ds_kernel ds_attention_stock = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_ATTENTION,
    .name = "stock",
    .claims = DS_CLAIM_REPEAT | DS_CLAIM_BATCH | DS_CLAIM_SLOT | DS_CLAIM_THREADS,
    .scratch_bytes = stock_scratch,
    .launch = stock_launch,
    .describe = stock_describe,
    .summary = "KV always in 4 equal parts, whatever its length; merged by log-sum-exp"};
