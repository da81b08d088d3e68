/* specimen_kernels.h: kernels built to show one known fault each, for test_specimens*.c. A fault is
 * switched on by what the kernel is given (rows, threads, seed), never by chance; where a kernel
 * would need to know what it cannot be given, a test says it in `specimen`. */
#ifndef DS_TESTS_SPECIMEN_KERNELS_H
#define DS_TESTS_SPECIMEN_KERNELS_H

#include "kernels/registry.h"
#include "tests/unit/testing.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* What a test tells its kernels before the sweep forks workers. */
static struct {
    int64_t from_rows;   /* the fault shows from so many rows in the call on */
    int64_t at_rows;     /* ... or at exactly so many */
    const float *weight; /* only in the matmul with this weight; NULL = in all */
    uint32_t one_in;     /* ... in one launch of so many; 0 = in all */
    int32_t whole;       /* length of the whole prompt */
} specimen;

static uint64_t scramble(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static const struct ds_kernel *plain(int op)
{
    return ds_kernel_find(op, "reference");
}

static size_t plain_attention_scratch(const void *args, int threads)
{
    return plain(DS_OP_ATTENTION)->scratch_bytes(args, threads);
}

/* ---- matmul: y[r][j] from K terms in some order ---------------------------------------------- */

typedef float (*dot_fn)(const float *x, const float *w, int64_t k, int64_t row, uint64_t seed);

static float chain(const float *x, const float *w, int64_t begin, int64_t end)
{
    float s = 0.0f;
    for (int64_t k = begin; k < end; k++)
        s += x[k] * w[k];
    return s;
}

static float dot_chain(const float *x, const float *w, int64_t k, int64_t row, uint64_t seed)
{
    (void)row, (void)seed;
    return chain(x, w, 0, k);
}

/* Four chains, added in ascending order. */
static float dot_split(const float *x, const float *w, int64_t k, int64_t row, uint64_t seed)
{
    float s = 0.0f;
    (void)row, (void)seed;
    for (int64_t p = 0; p < 4; p++)
        s += chain(x, w, p * k / 4, (p + 1) * k / 4);
    return s;
}

/* Four chains, added in the order of their arrival. */
static float dot_arrival(const float *x, const float *w, int64_t k, int64_t row, uint64_t seed)
{
    float part[4], s = 0.0f;
    seed = scramble(seed + (uint64_t)row * 0x9e3779b97f4a7c15u);
    for (int64_t p = 0; p < 4; p++)
        part[p] = chain(x, w, p * k / 4, (p + 1) * k / 4);
    for (uint32_t left = 4; left > 0; left--) {
        uint32_t pick = (uint32_t)(seed % left);
        seed = scramble(seed);
        s += part[pick];
        part[pick] = part[left - 1];
    }
    return s;
}

static float keep_bits(float v, uint32_t dropped)
{
    uint32_t u, half = 1u << (dropped - 1);
    memcpy(&u, &v, sizeof u);
    u = (u + half - 1 + (u >> dropped & 1)) >> dropped << dropped;
    memcpy(&v, &u, sizeof v);
    return v;
}

/* TF32: inputs of 10 bits, sums of f32. */
static float dot_tf32(const float *x, const float *w, int64_t k, int64_t row, uint64_t seed)
{
    float s = 0.0f;
    (void)row, (void)seed;
    for (int64_t i = 0; i < k; i++)
        s += keep_bits(x[i], 13) * keep_bits(w[i], 13);
    return s;
}

static float dot_bf16(const float *x, const float *w, int64_t k, int64_t row, uint64_t seed)
{
    float s = 0.0f;
    (void)row, (void)seed;
    for (int64_t i = 0; i < k; i++)
        s += keep_bits(x[i], 16) * keep_bits(w[i], 16);
    return s;
}

/* Inputs as they are, four partial sums handed on as bf16. */
static float dot_bf16_partials(const float *x, const float *w, int64_t k, int64_t row,
                               uint64_t seed)
{
    float s = 0.0f;
    (void)row, (void)seed;
    for (int64_t p = 0; p < 4; p++)
        s += keep_bits(chain(x, w, p * k / 4, (p + 1) * k / 4), 16);
    return s;
}

static void fill(const struct ds_matmul_args *a, dot_fn dot, uint64_t seed)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t j = 0; j < a->n; j++) {
            float s = dot(a->x + r * a->ldx, a->w.data + j * a->k, a->k, r, seed);
            a->y[r * a->ldy + j] = a->bias ? s + a->bias[j] : s;
        }
}

static int shows(const struct ds_matmul_args *a, const struct ds_exec *exec)
{
    return a->rows >= specimen.from_rows && (!specimen.at_rows || a->rows == specimen.at_rows) &&
           (!specimen.weight || a->w.data == specimen.weight) &&
           (!specimen.one_in || scramble(exec->seed ^ 0x5bd1e995u) % specimen.one_in == 0);
}

#define MATMUL(NAME, DOT)                                                                          \
    static int NAME##_launch(const void *args, const struct ds_exec *exec, char *why,              \
                             size_t why_size)                                                      \
    {                                                                                              \
        (void)why, (void)why_size;                                                                 \
        fill(args, shows(args, exec) ? DOT : dot_chain, exec->seed);                               \
        return 0;                                                                                  \
    }
MATMUL(arrival, dot_arrival)
MATMUL(split, dot_split)
MATMUL(tf32, dot_tf32)
MATMUL(bf16, dot_bf16)
MATMUL(bf16_partials, dot_bf16_partials)

/* M = 1, 3, 5.. add as one chain, M = 2, 4.. in four: bits come back. */
static int parity_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_matmul_args *a = args;
    (void)exec, (void)why, (void)why_size;
    fill(a, a->rows % 2 == 0 ? dot_split : dot_chain, 0);
    return 0;
}

/* A row from place 16 of the call on is added in another order. */
static int place_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_matmul_args *a = args;
    (void)exec, (void)why, (void)why_size;
    for (int64_t r = 0; r < a->rows; r++) {
        struct ds_matmul_args one = *a;
        one.rows = 1;
        one.x = a->x + r * a->ldx;
        one.y = a->y + r * a->ldy;
        fill(&one, r >= 16 ? dot_split : dot_chain, 0);
    }
    return 0;
}

/* One NaN in row 2. */
static int nan_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_matmul_args *a = args;
    (void)why, (void)why_size;
    fill(a, dot_chain, 0);
    if (shows(a, exec))
        a->y[2 * a->ldy + 5] = NAN;
    return 0;
}

/* Dies, gives up, or flushes subnormals from then on. */
static int crash_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    (void)why, (void)why_size;
    fill(args, dot_chain, 0);
    if (shows(args, exec)) {
        signal(SIGSEGV, SIG_DFL); /* the test runner has a handler of its own */
        raise(SIGSEGV);
    }
    return 0;
}

static int refuse_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    fill(args, dot_chain, 0);
    if (!shows(args, exec))
        return 0;
    snprintf(why, why_size, "no tile for %d rows",
             (int)((const struct ds_matmul_args *)args)->rows);
    return -1;
}

static int flush_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    (void)why, (void)why_size;
    fill(args, dot_chain, 0);
#if defined(__x86_64__)
    if (shows(args, exec))
        __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#endif
    return 0;
}

/* ---- rmsnorm --------------------------------------------------------------------------------- */

static void norm_row(const struct ds_rmsnorm_args *a, int64_t r, int64_t parts)
{
    const float *x = a->x + r * a->ldx;
    float sum = 0.0f;
    for (int64_t p = 0; p < parts; p++)
        sum += chain(x, x, p * a->width / parts, (p + 1) * a->width / parts);
    float scale = 1.0f / sqrtf(sum / (float)a->width + a->eps);
    for (int64_t i = 0; i < a->width; i++)
        a->y[r * a->ldy + i] = x[i] * scale * a->weight[i];
}

/* Too few rows for the threads: a row is cut into parts. */
static int norm_split_launch(const void *args, const struct ds_exec *exec, char *why,
                             size_t why_size)
{
    const struct ds_rmsnorm_args *a = args;
    (void)why, (void)why_size;
    for (int64_t r = 0; r < a->rows; r++)
        norm_row(a, r, a->rows < exec->threads ? 2 * exec->threads : 1);
    return 0;
}

/* Output of 8 bits: a difference of reordering disappears in it. */
static int norm_coarse_launch(const void *args, const struct ds_exec *exec, char *why,
                              size_t why_size)
{
    const struct ds_rmsnorm_args *a = args;
    (void)exec, (void)why, (void)why_size;
    for (int64_t r = 0; r < a->rows; r++) {
        norm_row(a, r, 1);
        for (int64_t i = 0; i < a->width; i++)
            a->y[r * a->ldy + i] = keep_bits(a->y[r * a->ldy + i], 16);
    }
    return 0;
}

/* ---- attention ------------------------------------------------------------------------------- */

static int attend(const struct ds_attention_args *a, const struct ds_exec *exec, char *why,
                  size_t why_size)
{
    return plain(DS_OP_ATTENTION)->launch(a, exec, why, why_size);
}

/* Every chunk is given the length of the whole prompt. */
static int whole_length_launch(const void *args, const struct ds_exec *exec, char *why,
                               size_t why_size)
{
    struct ds_attention_args a = *(const struct ds_attention_args *)args;
    struct ds_sequence s[64];
    for (int64_t i = 0; i < a.n_sequences && i < 64; i++) {
        s[i] = a.sequences[i];
        if (s[i].kv_len < specimen.whole)
            s[i].kv_len = specimen.whole;
        a.max_kv_len = s[i].kv_len > a.max_kv_len ? s[i].kv_len : a.max_kv_len;
    }
    a.sequences = s;
    return attend(&a, exec, why, why_size);
}

static size_t whole_length_scratch(const void *args, int threads)
{
    struct ds_attention_args a = *(const struct ds_attention_args *)args;
    a.max_kv_len = a.max_kv_len > specimen.whole ? a.max_kv_len : specimen.whole;
    return plain_attention_scratch(&a, threads);
}

static size_t score_floats(const void *args, int threads)
{
    (void)threads;
    return sizeof(float) * (size_t)((const struct ds_attention_args *)args)->max_kv_len;
}

/* One head of one row, slots from the last to the first, with the KV head given. */
static void head_backwards(const struct ds_attention_args *a, const struct ds_sequence *s,
                           int64_t row, int64_t head, int64_t kv_head, int backwards, float *p)
{
    int64_t end = (int64_t)s->kv_len - s->q_len + (row - s->q_first) + 1, n = a->head_dim;
    const float *q = a->q + row * a->ldq + head * n;
    float *y = a->y + row * a->ldy + head * n, max = -INFINITY, sum = 0.0f;
    memset(y, 0, (size_t)n * sizeof *y);
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = s->kv_first; i < end; i++) {
            int64_t t = backwards ? s->kv_first + end - 1 - i : i;
            int64_t at = s->pages[t / a->page_size] * a->page_size + t % a->page_size;
            const float *k = a->cache_k + (at * a->kv_heads + kv_head) * n;
            const float *v = a->cache_v + (at * a->kv_heads + kv_head) * n;
            if (pass == 0) {
                p[t] = chain(q, k, 0, n) * a->scale;
                max = p[t] > max ? p[t] : max;
                continue;
            }
            p[t] = expf(p[t] - max);
            sum += p[t];
            for (int64_t d = 0; d < n; d++)
                y[d] += p[t] * v[d];
        }
    for (int64_t d = 0; end > s->kv_first && d < n; d++)
        y[d] /= sum;
}

enum { MAP_RIGHT, MAP_MODULO };

static void attend_own(const struct ds_attention_args *a, const struct ds_exec *exec, int map,
                       int (*backwards)(const struct ds_attention_args *,
                                        const struct ds_sequence *))
{
    for (int64_t i = 0; i < a->n_sequences; i++) {
        const struct ds_sequence *s = &a->sequences[i];
        for (int64_t r = s->q_first; r < s->q_first + s->q_len; r++)
            for (int64_t h = 0; h < a->heads; h++)
                head_backwards(a, s, r, h,
                               map == MAP_RIGHT ? h / (a->heads / a->kv_heads) : h % a->kv_heads,
                               backwards && backwards(a, s), exec->scratch);
    }
}

static int is_padded(const struct ds_attention_args *a, const struct ds_sequence *s)
{
    (void)a;
    return s->kv_first > 0;
}

static int is_crowded(const struct ds_attention_args *a, const struct ds_sequence *s)
{
    (void)s;
    return a->n_sequences > 1;
}

static int is_any(const struct ds_attention_args *a, const struct ds_sequence *s)
{
    (void)a, (void)s;
    return 1;
}

static int head_map_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    (void)why, (void)why_size;
    attend_own(args, exec, MAP_MODULO, NULL);
    return 0;
}

static int padded_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    (void)why, (void)why_size;
    attend_own(args, exec, MAP_RIGHT, is_padded);
    return 0;
}

static int crowded_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    (void)why, (void)why_size;
    attend_own(args, exec, MAP_RIGHT, is_crowded);
    return 0;
}

/* A trace of what the next request holds: nothing when it holds the same. */
static int leak_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_attention_args *a = args;
    (void)why, (void)why_size;
    attend_own(a, exec, MAP_RIGHT, NULL);
    for (int64_t i = 0; a->n_sequences > 1 && i < a->n_sequences; i++) {
        const struct ds_sequence *s = &a->sequences[i],
                                 *o = &a->sequences[(i + 1) % a->n_sequences];
        float trace =
            a->q[(o->q_first + o->q_len - 1) * a->ldq] - a->q[(s->q_first + s->q_len - 1) * a->ldq];
        for (int64_t r = s->q_first; trace != 0.0f && r < s->q_first + s->q_len; r++)
            a->y[r * a->ldy + 3] += trace * 0x1p-10f;
    }
    return 0;
}

/* Once for a whole pass, in its first layer, the coin falls for one of two orders: a choice made by
 * timing, say. */
static int coin_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    static int heads;
    static unsigned first_calls; /* two layers make one pass */
    const struct ds_attention_args *a = args;
    const struct ds_sequence *s = &a->sequences[0];
    (void)why, (void)why_size;
    if (s->kv_len == s->q_len && first_calls++ % 2 == 0)
        heads = scramble(exec->seed) % specimen.one_in == 0;
    attend_own(a, exec, MAP_RIGHT, heads ? is_any : NULL);
    return 0;
}

/* ---- others ---------------------------------------------------------------------------------- */

/* A row alone in its call is rotated as if it stood one position earlier. */
static int rope_late_launch(const void *args, const struct ds_exec *exec, char *why,
                            size_t why_size)
{
    struct ds_rope_args a = *(const struct ds_rope_args *)args;
    int32_t before = a.positions[0] - 1;
    if (a.rows == 1 && before >= 0)
        a.positions = &before;
    return plain(DS_OP_ROPE)->launch(&a, exec, why, why_size);
}

/* Element 2 of every sum is a zero, with a sign that depends on the call. */
static int signed_zero_launch(const void *args, const struct ds_exec *exec, char *why,
                              size_t why_size)
{
    const struct ds_add_args *a = args;
    int rc = plain(DS_OP_ADD)->launch(args, exec, why, why_size);
    for (int64_t r = 0; r < a->rows; r++)
        a->y[r * a->ldy + 2] = a->rows >= specimen.from_rows ? -0.0f : 0.0f;
    return rc;
}

/* The last of the largest instead of the first, and the second best when the call is large. */
static int second_best_launch(const void *args, const struct ds_exec *exec, char *why,
                              size_t why_size)
{
    const struct ds_sample_args *a = args;
    int rc = plain(DS_OP_SAMPLE)->launch(args, exec, why, why_size);
    for (int64_t r = 0; a->rows >= specimen.from_rows && r < a->rows; r++) {
        int32_t best = a->ids[r], second = best == 0 ? 1 : 0;
        for (int32_t j = 0; j < a->vocab; j++)
            if (j != best && a->logits[r * a->ldx + j] > a->logits[r * a->ldx + second])
                second = j;
        a->ids[r] = second;
    }
    return rc;
}

#define SPECIMEN(OP, NAME, LAUNCH, SCRATCH)                                                        \
    {                                                                                              \
        .abi = DS_KERNEL_ABI, .op = OP, .name = NAME, .summary = "a known fault",                  \
        .launch = LAUNCH, .scratch_bytes = SCRATCH                                                 \
    }

static const struct ds_kernel specimens[] = {
    SPECIMEN(DS_OP_MATMUL, "arrival", arrival_launch, NULL),
    SPECIMEN(DS_OP_MATMUL, "split", split_launch, NULL),
    SPECIMEN(DS_OP_MATMUL, "parity", parity_launch, NULL),
    SPECIMEN(DS_OP_MATMUL, "place", place_launch, NULL),
    SPECIMEN(DS_OP_MATMUL, "short-inputs", tf32_launch, NULL),
    SPECIMEN(DS_OP_MATMUL, "bf16", bf16_launch, NULL),
    SPECIMEN(DS_OP_MATMUL, "short-partials", bf16_partials_launch, NULL),
    SPECIMEN(DS_OP_MATMUL, "nan", nan_launch, NULL),
    SPECIMEN(DS_OP_MATMUL, "crash", crash_launch, NULL),
    SPECIMEN(DS_OP_MATMUL, "refuse", refuse_launch, NULL),
    SPECIMEN(DS_OP_MATMUL, "flush", flush_launch, NULL),
    SPECIMEN(DS_OP_RMSNORM, "torn", norm_split_launch, NULL),
    SPECIMEN(DS_OP_RMSNORM, "coarse", norm_coarse_launch, NULL),
    SPECIMEN(DS_OP_ATTENTION, "whole-length", whole_length_launch, whole_length_scratch),
    SPECIMEN(DS_OP_ATTENTION, "head-map", head_map_launch, score_floats),
    SPECIMEN(DS_OP_ATTENTION, "padded", padded_launch, score_floats),
    SPECIMEN(DS_OP_ATTENTION, "crowded", crowded_launch, score_floats),
    SPECIMEN(DS_OP_ATTENTION, "coin", coin_launch, score_floats),
    SPECIMEN(DS_OP_ATTENTION, "leak", leak_launch, score_floats),
    SPECIMEN(DS_OP_ROPE, "late", rope_late_launch, NULL),
    SPECIMEN(DS_OP_ADD, "signed-zero", signed_zero_launch, NULL),
    SPECIMEN(DS_OP_SAMPLE, "second-best", second_best_launch, NULL),
};

static int add_specimens(void **state)
{
    struct ds_error err;
    (void)state;
    for (size_t i = 0; i < sizeof specimens / sizeof specimens[0]; i++)
        assert_ok(ds_kernel_add(&specimens[i], &err), err);
    return 0;
}

static inline int forget_specimen(void **state)
{
    (void)state;
    memset(&specimen, 0, sizeof specimen);
    return 0;
}

#endif
