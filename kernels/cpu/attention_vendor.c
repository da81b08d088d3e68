/* attention_vendor.c: attention as CPU engines do it: one online softmax over the visible slots in
 * ascending order, and for a call of one query row that sees 512 slots or more, KV cut into as many
 * equal parts as threads.
 *
 * Order. A range of slots: online.h. Parts: each its own online softmax; merged in ascending order
 * of the parts, sum = sum + part sum * g, v = v + part v * g with g = expf(part max - max), every
 * step rounded. So bits depend on the number of threads and on whether the row is alone in its call:
 * prefill, batches and decode differ from 512 visible slots on. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/online.h"

#include <math.h>
#include <string.h>

enum { SPLIT_FROM = 512 };

static void whole_items(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                        int64_t end)
{
    const struct ds_attention_args *a = args;
    (void)exec, (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i / a->heads, head = i % a->heads;
        const struct ds_sequence *s = ds_cpu_sequence_of(a, row);
        int64_t slots_end = ds_online_end(s, row);
        float *y = a->y + row * a->ldy + head * a->head_dim;
        struct ds_online o = ds_online_code()(a, s, row, head, s->kv_first, slots_end, y);
        if (slots_end > s->kv_first)
            ds_online_divide(y, o.sum, a->head_dim);
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
            struct ds_online o = ds_online_code()(a, s, 0, h, from, to, acc + h * a->head_dim);
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
            for (int64_t d = 0; d < a->head_dim; d++)
                y[d] += state[2 * a->heads + h * a->head_dim + d] * f;
        }
        ds_online_divide(y, sum, a->head_dim);
    }
}

static size_t vendor_scratch(const void *args, int threads)
{
    const struct ds_attention_args *a = args;
    return a->rows == 1 && a->max_kv_len >= SPLIT_FROM && threads > 1
               ? ds_cpu_scratch(part_floats(a), threads)
               : 0;
}

static int vendor_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_attention_args *a = args;
    if (ds_online_check(a, why, why_size) != 0)
        return -1;
    if (parts(a, exec) == 1) {
        ds_cpu_deal(exec, a, a->rows * a->heads, ds_online_work(a), whole_items);
        return 0;
    }
    if (ds_cpu_check_scratch(exec, ds_cpu_scratch(part_floats(a), exec->threads), why, why_size) !=
        0)
        return -1;
    ds_cpu_deal(exec, a, exec->threads, ds_online_work(a), one_part);
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
        .threads = ds_cpu_threads(exec, n > 1 ? n : a->rows * a->heads, ds_online_work(a)),
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
