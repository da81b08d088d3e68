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

enum { NARROW = 32, WIDE = 64, NARROW_UP_TO = 2 };

static int64_t tile_of(const struct ds_sequence *s)
{
    return s->q_len <= NARROW_UP_TO ? NARROW : WIDE;
}

static void items(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                  int64_t end)
{
    const struct ds_attention_args *a = args;
    (void)exec, (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i / a->heads, head = i % a->heads;
        const struct ds_sequence *s = ds_cpu_sequence_of(a, row);
        ds_tiles_code()(a, s, row, head, ds_online_end(s, row), tile_of(s),
                        a->y + row * a->ldy + head * a->head_dim);
    }
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
