/* matmul_q8.c: y = x * w^T (+ bias) from 8-bit integers in blocks of 32, activations included, as
 * llama.cpp computes with quantised weights.
 *
 * Both sides: K in blocks of 32 from k = 0 (the last may be shorter); d = amax / 127 rounded, q =
 * v / d rounded, then to the nearest integer, ties to even, held within -127..127; q = 0 where d is
 * 0. A block with a NaN or an infinity has d = NaN, so that all its outputs show it. x is quantised
 * in each call, w once in prepare, unless it comes from a file as Q8_0: then the file's integers
 * and scales are taken as they are (the same ones that quantising its values would give, if in every
 * block but a zero one the largest integer is +-127, as ordinary quantisers write them).
 *
 * Order: in block b the 32 products of integers are added exactly in 32 bits (no order), the sum S
 * becomes f32 exactly; t = dx * dw rounded; S * t rounded; added to the row's sum, which starts
 * from +0, in ascending b. bias last; NaN as 7fc00000. Bits depend on the row alone.
 *
 * The quantiser stands between two sites: its input is the row that the stage before wrote
 * (attn_norm, attn_out, ffn_norm, act), digested as f32 before it is quantised; its effect is in
 * the matmul's own output. So drift that the quantiser absorbs is a matmul site labelled healed (an
 * input differs, the output is equal), and drift that it blows up is a jump of the size from one to
 * the other: one value that crosses a rounding border, or the block's largest moving all 32. */
#include "base/dtype.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul_parts.h"
#include "kernels/cpu/pinned.h"
#include "kernels/cpu/q8_tile.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = DS_Q8_BLOCK, PANEL = DS_Q8_PANEL, Q8_0 = 8, Q8_0_BYTES = 34 };

/* The inner code, the same bits in both. */
static const struct ds_q8_code *code(void)
{
    return ds_pinned_code() == &ds_pinned_scalar ? &ds_q8_plain : &ds_q8_avx2;
}

static int64_t blocks_of(int64_t k)
{
    return (k + BLOCK - 1) / BLOCK;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Packed: integers [panel][pair of k][16 columns][2], then scales [panel][block][16 columns].
 * Columns past n and terms past k are 0. */
struct packed {
    const int8_t *q;
    const float *scale;
};

static size_t integer_bytes(int64_t n, int64_t k)
{
    return (size_t)((n + PANEL - 1) / PANEL) * PANEL * (size_t)blocks_of(k) * BLOCK;
}

static struct packed packed_of(const struct ds_matmul_args *a)
{
    const int8_t *q = a->prepared;
    return (struct packed){q, (const float *)(const void *)(q + integer_bytes(a->n, a->k))};
}

/* Block b of column j of the weights. */
static float weight_block(const struct ds_weight_view *w, int64_t j, int64_t b, int16_t *q)
{
    const int64_t left = w->k - b * BLOCK;
    if (!w->file_data || w->file_type != Q8_0 || w->k % BLOCK != 0)
        return ds_q8_quantise(w->data + j * w->k + b * BLOCK, left < BLOCK ? left : BLOCK, q);
    const uint8_t *at =
        (const uint8_t *)w->file_data + (size_t)(j * (w->k / BLOCK) + b) * Q8_0_BYTES;
    for (int i = 0; i < BLOCK; i++)
        q[i] = (int8_t)at[2 + i];
    return ds_f16_value((uint16_t)(at[0] | at[1] << 8));
}

static void pack(const struct ds_weight_view *w, int8_t *q, float *scale)
{
    const int64_t blocks = blocks_of(w->k);
    for (int64_t j = 0; j < w->n; j++) {
        int8_t *panel = q + j / PANEL * PANEL * blocks * BLOCK;
        float *scales = scale + j / PANEL * PANEL * blocks;
        for (int64_t b = 0; b < blocks; b++) {
            int16_t v[BLOCK];
            scales[b * PANEL + j % PANEL] = weight_block(w, j, b, v);
            for (int64_t i = 0; i < BLOCK; i++)
                panel[(b * BLOCK + i) / 2 * 2 * PANEL + j % PANEL * 2 + i % 2] = (int8_t)v[i];
        }
    }
}

static int q8_prepare(const struct ds_weight_view *w, void **prepared, size_t *bytes_out, char *why,
                      size_t why_size)
{
    size_t integers, bytes;
    if (w->n < 0 || w->k < 0 || w->n > INT64_MAX / 64 || w->k > INT64_MAX / 64 ||
        __builtin_mul_overflow((size_t)(w->n + PANEL), (size_t)(w->k + BLOCK) * 2, &bytes))
        return ds_cpu_refuse(why, why_size, "weights of %lld x %lld", (long long)w->n,
                             (long long)w->k);
    if (!w->data && !(w->file_data && w->file_type == Q8_0 && w->k % BLOCK == 0))
        return ds_cpu_refuse(why, why_size, "this variant needs the weights as f32 or as Q8_0");
    integers = integer_bytes(w->n, w->k);
    bytes = integers + integers / BLOCK * sizeof(float);
    void *p = NULL;
    if (posix_memalign(&p, 64, bytes ? bytes : 64) != 0)
        return ds_cpu_refuse(why, why_size, "out of memory: %zu bytes for packed weights", bytes);
    memset(p, 0, bytes);
    pack(w, p, (float *)(void *)((char *)p + integers));
    *prepared = p;
    *bytes_out = bytes;
    return 0;
}

/* ---- launch ---------------------------------------------------------------------------------- */

/* The quantised rows of x in scratch: integers [row][block][32], then scales [row][block]. */
static int64_t row_floats(const struct ds_matmul_args *a)
{
    return blocks_of(a->k) * (BLOCK / 2 + 1);
}

static size_t q8_scratch(const void *args, int threads)
{
    const struct ds_matmul_args *a = args;
    (void)threads;
    return ds_cpu_scratch(a->rows * row_floats(a), 1);
}

static int16_t *integers_of(const struct ds_matmul_args *a, const struct ds_exec *exec, int64_t row)
{
    return (int16_t *)exec->scratch + row * blocks_of(a->k) * BLOCK;
}

static float *scales_of(const struct ds_matmul_args *a, const struct ds_exec *exec, int64_t row)
{
    return (float *)(void *)integers_of(a, exec, a->rows) + row * blocks_of(a->k);
}

static void quantise_rows(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                          int64_t end)
{
    const struct ds_matmul_args *a = args;
    const struct ds_q8_code *c = code();
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        int16_t *q = integers_of(a, exec, r);
        float *d = scales_of(a, exec, r);
        for (int64_t b = 0; b < blocks_of(a->k); b++) {
            const float *v = a->x + r * a->ldx + b * BLOCK;
            const int64_t left = a->k - b * BLOCK;
            d[b] = left < BLOCK ? ds_q8_quantise(v, left, q + b * BLOCK)
                                : c->quantise(v, q + b * BLOCK);
        }
    }
}

static void store(const struct ds_matmul_args *a, int64_t row, int64_t panel, const float *s)
{
    float *y = a->y + row * a->ldy;
    for (int64_t i = 0, j = panel * PANEL; i < PANEL && j < a->n; i++, j++) {
        const float v = a->bias ? s[i] + a->bias[j] : s[i];
        y[j] = v != v ? ds_f32_from_bits(0x7fc00000u) : v;
    }
}

static void q8_panels(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                      int64_t end)
{
    const struct ds_matmul_args *a = args;
    const struct ds_q8_code *c = code();
    const struct packed w = packed_of(a);
    const int64_t blocks = blocks_of(a->k);
    (void)thread;
    for (int64_t panel = begin; panel < end; panel++)
        for (int64_t r = 0; r < a->rows; r += c->tile_rows) {
            const int64_t left = a->rows - r;
            struct ds_q8_rows x = {.n = left < c->tile_rows ? (int)left : c->tile_rows};
            float s[DS_Q8_MOST_ROWS][PANEL];
            for (int i = 0; i < x.n; i++) {
                x.q[i] = integers_of(a, exec, r + i);
                x.d[i] = scales_of(a, exec, r + i);
            }
            c->tile(&x, w.q + panel * blocks * PANEL * BLOCK, w.scale + panel * blocks * PANEL,
                    blocks, s);
            for (int i = 0; i < x.n; i++)
                store(a, r + i, panel, s[i]);
        }
}

static int q8_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_matmul_args *a = args;
    if (ds_packed_check(a, why, why_size) != 0 ||
        ds_cpu_check_scratch(exec, q8_scratch(a, exec->threads), why, why_size) != 0)
        return -1;
    if (a->rows < 1)
        return 0;
    ds_cpu_split(exec, a, a->rows, 1, (double)a->rows * (double)a->k, quantise_rows);
    ds_cpu_split(exec, a, (a->n + PANEL - 1) / PANEL, 1, ds_parts_work(a), q8_panels);
    return 0;
}

static int q8_describe(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    const struct ds_matmul_args *a = args;
    *out = (struct ds_launch_info){
        .tile_rows = code()->tile_rows,
        .tile_cols = PANEL,
        .tile_k = BLOCK,
        .split = (int32_t)blocks_of(a->k),
        .threads = ds_cpu_threads(exec, (a->n + PANEL - 1) / PANEL, ds_parts_work(a))};
    return 0;
}

const struct ds_kernel ds_matmul_q8 = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_MATMUL,
    .name = "q8",
    .claims = DS_CLAIM_ALL,
    .prepare = q8_prepare,
    .scratch_bytes = q8_scratch,
    .launch = q8_launch,
    .describe = q8_describe,
    .summary = "activations and weights as int8 in blocks of 32; exact block sums, added in order"};
