/* attention.c: causal softmax attention, the reference and the pinned variant.
 *
 *   reference  per row and head, over the visible slots in ascending order: score = (sum of
 *              q[d]*k[d] in ascending d) * scale; max; p = expf(score - max); sum of p;
 *              y[d] = (sum of p*v[d]) / sum. Products and sums rounded. Soft cap: cap * tanhf(score /
 *              cap); a sink joins the maximum first and the sum last; lse = max + logf(sum).
 *   pinned     KV in blocks of 256 slots counted from kv_first. In a block: scores by 16 interleaved
 *              fma chains and a fixed tree, p = exp(score - block max), p summed in 16 interleaved
 *              sums and the tree, values in one fma chain a channel in slot order. Blocks merged in
 *              ascending order, the first assigned, a sink last. Exactly: kernels/PINNED.md. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pinned.h"

#include <math.h>
#include <string.h>

static int check(const struct ds_attention_args *a, char *why, size_t why_size)
{
    if (a->kv_heads < 1 || a->heads % a->kv_heads)
        return ds_cpu_refuse(why, why_size, "%lld heads do not share %lld KV heads evenly",
                             (long long)a->heads, (long long)a->kv_heads);
    if (a->window < 0 || !(a->soft_cap >= 0.0f && a->soft_cap < INFINITY))
        return ds_cpu_refuse(why, why_size, "window %d, soft_cap %g make no sense", a->window,
                             (double)a->soft_cap);
    if (ds_cpu_check_sequences(a->sequences, a->n_sequences, a->rows, a->page_size, a->pages, why,
                               why_size) != 0)
        return -1;
    for (int64_t i = 0; i < a->n_sequences; i++)
        if (a->sequences[i].kv_len > a->max_kv_len)
            return ds_cpu_refuse(why, why_size, "request %d: kv_len %d is above max_kv_len %d",
                                 a->sequences[i].request, a->sequences[i].kv_len, a->max_kv_len);
    return 0;
}

enum { FEATURES = DS_FEATURE_WINDOW | DS_FEATURE_SOFT_CAP | DS_FEATURE_SINKS | DS_FEATURE_LSE };

static double work(const struct ds_attention_args *a)
{
    return (double)a->rows * (double)a->heads * (double)a->max_kv_len * (double)a->head_dim;
}

/* ---- reference ------------------------------------------------------------------------------- */

static int64_t cache_offset(const struct ds_attention_args *a, const struct ds_sequence *s,
                            int64_t slot, int64_t head)
{
    int64_t row = s->pages[slot / a->page_size] * a->page_size + slot % a->page_size;
    return (row * a->kv_heads + head / (a->heads / a->kv_heads)) * a->head_dim;
}

static void reference_head(const struct ds_attention_args *a, const struct ds_sequence *s,
                           int64_t row, int64_t head, float *p)
{
    const int64_t end = (int64_t)s->kv_len - s->q_len + (row - s->q_first) + 1, n = a->head_dim;
    const float *q = a->q + row * a->ldq + head * n;
    const int64_t begin =
        a->window && end - a->window > s->kv_first ? end - a->window : s->kv_first;
    float *y = a->y + row * a->ldy + head * n, sum = 0.0f,
          max = a->sinks ? a->sinks[head] : -INFINITY;
    memset(y, 0, (size_t)n * sizeof *y);
    if (a->lse)
        a->lse[row * a->heads + head] = -INFINITY;
    if (end <= s->kv_first)
        return;
    for (int64_t t = begin; t < end; t++) {
        const float *k = a->cache_k + cache_offset(a, s, t, head);
        float dot = 0.0f;
        for (int64_t d = 0; d < n; d++)
            dot += q[d] * k[d];
        p[t] = dot * a->scale;
        if (a->soft_cap > 0.0f)
            p[t] = a->soft_cap * tanhf(p[t] / a->soft_cap);
        max = p[t] > max ? p[t] : max;
    }
    for (int64_t t = begin; t < end; t++) {
        const float *v = a->cache_v + cache_offset(a, s, t, head);
        p[t] = expf(p[t] - max);
        sum += p[t];
        for (int64_t d = 0; d < n; d++)
            y[d] += p[t] * v[d];
    }
    if (a->sinks)
        sum += expf(a->sinks[head] - max);
    if (a->lse)
        a->lse[row * a->heads + head] = max + logf(sum);
    for (int64_t d = 0; d < n; d++)
        y[d] /= sum;
}

static void reference_items(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                            int64_t end)
{
    const struct ds_attention_args *a = args;
    float *scores = ds_cpu_scratch_of(exec, a->max_kv_len, thread);
    for (int64_t i = begin; i < end; i++)
        reference_head(a, ds_cpu_sequence_of(a, i / a->heads), i / a->heads, i % a->heads, scores);
}

static size_t reference_scratch(const void *args, int threads)
{
    return ds_cpu_scratch(((const struct ds_attention_args *)args)->max_kv_len, threads);
}

static int reference_launch(const void *args, const struct ds_exec *exec, char *why,
                            size_t why_size)
{
    const struct ds_attention_args *a = args;
    if (check(a, why, why_size) != 0 ||
        ds_cpu_check_scratch(exec, reference_scratch(a, exec->threads), why, why_size) != 0)
        return -1;
    ds_cpu_deal(exec, a, a->rows * a->heads, work(a), reference_items);
    return 0;
}

/* ---- pinned ---------------------------------------------------------------------------------- */

/* Of a multiplication in elementary operations, as ds_cpu_threads() counts them. */
static const double WORK = 0.6;

/* How a call is cut: tiles of rows and of heads that share a KV head; and, where that leaves too
 * few pieces for the threads, rows that see several blocks of KV into these. No cut changes the
 * order of a single output. */
struct plan {
    const struct ds_attention_args *a;
    int64_t rows, heads;        /* of a tile */
    int64_t groups, head_tiles; /* tiles of rows; tiles of heads in all */
    int64_t blocks;             /* of a row, if computed one by one; else 0 */
    float *state;               /* of the blocks: see pinned.h */
};

static int64_t parts_of(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

static int64_t items_of(struct plan *p)
{
    p->groups = parts_of(p->a->rows, p->rows);
    p->head_tiles = p->a->kv_heads * parts_of(p->a->heads / p->a->kv_heads, p->heads);
    return p->groups * p->head_tiles * (p->blocks ? p->blocks : 1);
}

static struct plan make_plan(const struct ds_attention_args *a, int threads)
{
    const int64_t group = a->heads / a->kv_heads, useful = ds_cpu_worth(threads, WORK * work(a)),
                  enough = useful > 1 ? 4 * useful : 1;
    struct plan p = {.a = a, .heads = group < DS_PINNED_QUERIES ? group : DS_PINNED_QUERIES};
    p.rows = a->window ? 1 : DS_PINNED_QUERIES / p.heads;
    if (p.rows > a->max_q_len)
        p.rows = a->max_q_len > 1 ? a->max_q_len : 1;
    while (items_of(&p) < enough && p.rows > 1)
        p.rows = (p.rows + 1) / 2;
    if (items_of(&p) < enough && a->max_kv_len > DS_PINNED_BLOCK)
        p.blocks = parts_of(a->max_kv_len, DS_PINNED_BLOCK);
    while (items_of(&p) < enough && p.heads > 1)
        p.heads = (p.heads + 1) / 2;
    return p;
}

/* Floats that the blocks of one row leave behind. */
static int64_t state_floats(const struct plan *p)
{
    return p->blocks ? (p->blocks + 1) * p->a->heads * ds_pinned_part_floats(p->a->head_dim) : 0;
}

/* Heads *head0..*head1-1 of tile i. */
static void heads_of(const struct plan *p, int64_t i, int64_t *head0, int64_t *head1)
{
    const int64_t group = p->a->heads / p->a->kv_heads, per_group = parts_of(group, p->heads),
                  first = i / per_group * group;
    *head0 = first + i % per_group * p->heads;
    *head1 = *head0 + p->heads < first + group ? *head0 + p->heads : first + group;
}

static void pinned_items(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                         int64_t end)
{
    const struct plan *p = args;
    const struct ds_attention_args *a = p->a;
    float *work = ds_cpu_scratch_of(exec, ds_pinned_attention_floats(a->head_dim), thread);
    for (int64_t i = begin; i < end; i++) {
        int64_t tile = i / p->head_tiles, head0, head1;
        heads_of(p, i % p->head_tiles, &head0, &head1);
        int64_t row = tile * p->rows, last = row + p->rows < a->rows ? row + p->rows : a->rows;
        while (row < last) { /* a tile lies within one sequence */
            const struct ds_sequence *s = ds_cpu_sequence_of(a, row);
            int64_t stop = (int64_t)s->q_first + s->q_len;
            stop = stop < last ? stop : last;
            ds_pinned_code()->attention(a, s, row, stop, head0, head1, work);
            row = stop;
        }
    }
}

static void pinned_parts(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                         int64_t end)
{
    const struct plan *p = args;
    const struct ds_attention_args *a = p->a;
    float *work = ds_cpu_scratch_of(exec, ds_pinned_attention_floats(a->head_dim), thread);
    for (int64_t i = begin; i < end; i++) {
        int64_t tile = i / p->blocks, row = tile / p->head_tiles, head0, head1;
        heads_of(p, tile % p->head_tiles, &head0, &head1);
        ds_pinned_code()->attention_part(a, ds_cpu_sequence_of(a, row), row, head0, head1,
                                         i % p->blocks, work, p->state + row * state_floats(p));
    }
}

static void pinned_join(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                        int64_t end)
{
    const struct plan *p = args;
    const int64_t heads = p->a->heads;
    (void)exec, (void)thread;
    for (int64_t i = begin; i < end; i++)
        ds_pinned_code()->attention_join(p->a, ds_cpu_sequence_of(p->a, i / heads), i / heads,
                                         i % heads, p->state + i / heads * state_floats(p));
}

static size_t pinned_scratch(const void *args, int threads)
{
    const struct ds_attention_args *a = args;
    if (a->kv_heads < 1 || a->heads < a->kv_heads)
        return 0; /* refused by the launch */
    const struct plan p = make_plan(a, threads);
    size_t work_bytes = ds_cpu_scratch(ds_pinned_attention_floats(a->head_dim), threads), state;
    if (__builtin_mul_overflow((size_t)state_floats(&p) * sizeof(float), (size_t)a->rows, &state) ||
        __builtin_add_overflow(work_bytes, state, &work_bytes))
        return SIZE_MAX;
    return work_bytes;
}

static int pinned_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_attention_args *a = args;
    if (check(a, why, why_size) != 0 ||
        ds_cpu_check_scratch(exec, pinned_scratch(a, exec->threads), why, why_size) != 0)
        return -1;
    struct plan p = make_plan(a, exec->threads);
    if (!p.blocks) {
        ds_cpu_deal(exec, &p, items_of(&p), WORK * work(a), pinned_items);
        return 0;
    }
    p.state = ds_cpu_scratch_of(exec, ds_pinned_attention_floats(a->head_dim), exec->threads);
    ds_cpu_deal(exec, &p, items_of(&p), WORK * work(a), pinned_parts);
    ds_cpu_deal(exec, &p, a->rows * a->heads,
                0.25 * (double)(a->rows * a->heads * p.blocks * a->head_dim), pinned_join);
    return 0;
}

static int pinned_describe(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    const struct ds_attention_args *a = args;
    struct plan p = make_plan(a, exec->threads);
    *out = (struct ds_launch_info){
        .tile_rows = (int32_t)p.rows,
        .tile_k = DS_PINNED_BLOCK,
        .split = (int32_t)parts_of(a->max_kv_len, DS_PINNED_BLOCK),
        .threads = ds_cpu_threads(exec, items_of(&p), WORK * work(a)),
    };
    strncpy(out->algo, ds_pinned_code()->name, sizeof out->algo - 1);
    return 0;
}

const struct ds_kernel ds_attention_reference = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_ATTENTION,
    .name = "reference",
    .claims = DS_CLAIM_ALL,
    .features = FEATURES,
    .scratch_bytes = reference_scratch,
    .launch = reference_launch,
    .summary = "plain softmax over all visible slots in ascending order"};
const struct ds_kernel ds_attention_pinned = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_ATTENTION,
    .name = "pinned",
    .claims = DS_CLAIM_ALL,
    .features = FEATURES,
    .scratch_bytes = pinned_scratch,
    .launch = pinned_launch,
    .describe = pinned_describe,
    .summary = "KV in blocks of 256 from the first visible slot, merged in ascending order"};
