/* order_specimens.h: kernels whose order of addition is known by construction, and the trees that
 * must be found for them. */
#ifndef DS_TEST_ORDER_SPECIMENS_H
#define DS_TEST_ORDER_SPECIMENS_H

#include "tests/unit/kernels/harness.h"

#include "kernels/lab/order.h"

/* ---- one output ------------------------------------------------------------------------------ */

/* What a specimen may look at: its terms, where the output lies, the call. */
struct spot {
    const float *x, *w;
    int64_t k, row, column, rows, columns;
    uint64_t seed;
};
typedef float (*sum_fn)(const struct spot *s);

static inline float sum_sequential(const struct spot *s)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < s->k; i++)
        sum += s->x[i] * s->w[i];
    return sum;
}

static inline float chain_fma(const struct spot *s, int64_t from, int64_t to)
{
    float sum = 0.0f;
    for (int64_t i = from; i < to; i++)
        sum = fmaf(s->x[i], s->w[i], sum);
    return sum;
}

static inline float sum_fma(const struct spot *s)
{
    return chain_fma(s, 0, s->k);
}

static inline float sum_reversed(const struct spot *s)
{
    float sum = 0.0f;
    for (int64_t i = s->k - 1; i >= 0; i--)
        sum = fmaf(s->x[i], s->w[i], sum);
    return sum;
}

static inline float sum_split(const struct spot *s, int64_t parts)
{
    float sum = chain_fma(s, 0, s->k / parts);
    for (int64_t p = 1; p < parts; p++)
        sum += chain_fma(s, p * s->k / parts, (p + 1) * s->k / parts);
    return sum;
}

static inline float sum_split2(const struct spot *s)
{
    return sum_split(s, 2);
}

static inline float sum_split4(const struct spot *s)
{
    return sum_split(s, 4);
}

static inline float sum_split8(const struct spot *s)
{
    return sum_split(s, 8);
}

/* Eight lanes over whole eights, FMA or not, lanes pairwise; then the rest one by one. */
static inline float eight_lanes(const struct spot *s, int fma)
{
    float p[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= s->k; i += 8)
        for (int64_t j = 0; j < 8; j++)
            p[j] = fma ? fmaf(s->x[i + j], s->w[i + j], p[j]) : p[j] + s->x[i + j] * s->w[i + j];
    float sum = ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
    for (; i < s->k; i++)
        sum += s->x[i] * s->w[i];
    return sum;
}

static inline float sum_lanes(const struct spot *s)
{
    return eight_lanes(s, 0);
}

static inline float sum_tail(const struct spot *s)
{
    return eight_lanes(s, 1);
}

/* Large terms apart from small ones: no tree, although one chain where all are small. */
static inline float sum_by_size(const struct spot *s)
{
    float small = 0, large = 0;
    for (int64_t k = 0; k < s->k; k++) {
        const float term = s->x[k] * s->w[k];
        if (fabsf(term) >= 1)
            large += term;
        else
            small += term;
    }
    return large + small;
}

/* Descending once in a thousand sums, whoever asks for them. */
static inline float sum_counted(const struct spot *s)
{
    static uint64_t sums;
    float sum = 0;
    const int descends = ++sums % 1000 == 0;
    for (int64_t i = 0; i < s->k; i++) {
        const int64_t k = descends ? s->k - 1 - i : i;
        sum += s->x[k] * s->w[k];
    }
    return sum;
}

/* What an addition loses is taken off the next term (W. Kahan): n terms, `step` apart. */
static inline float kahan(const struct spot *s, int64_t from, int64_t n, int64_t step, int fma)
{
    float sum = 0, lost = 0;
    for (int64_t i = 0, k = from; i < n; i++, k += step) {
        const float term = fma ? fmaf(s->x[k], s->w[k], -lost) : s->x[k] * s->w[k] - lost,
                    next = sum + term;
        lost = (next - sum) - term;
        sum = next;
    }
    return sum;
}

static inline float sum_kahan(const struct spot *s)
{
    return kahan(s, 0, s->k, 1, 0);
}

static inline float sum_kahan_fma(const struct spot *s)
{
    return kahan(s, 0, s->k, 1, 1);
}

static inline float sum_kahan_down(const struct spot *s)
{
    return kahan(s, s->k - 1, s->k, -1, 0);
}

/* Four lanes, neighbours first. */
static inline float sum_kahan_lanes(const struct spot *s)
{
    float lane[4];
    for (int64_t i = 0; i < 4; i++)
        lane[i] = kahan(s, i, (s->k + 3 - i) / 4, 4, 0);
    return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

/* What additions lose is added up beside (A. Neumaier). */
static inline float sum_neumaier(const struct spot *s)
{
    float sum = 0, lost = 0;
    for (int64_t k = 0; k < s->k; k++) {
        const float term = s->x[k] * s->w[k], next = sum + term;
        lost += fabsf(sum) >= fabsf(term) ? (sum - next) + term : (term - next) + sum;
        sum = next;
    }
    return sum + lost;
}

/* Also what products lose (T. Ogita, S. M. Rump, S. Oishi: Dot2). */
static inline float sum_dot2(const struct spot *s)
{
    float sum = s->x[0] * s->w[0], lost = fmaf(s->x[0], s->w[0], -sum);
    for (int64_t k = 1; k < s->k; k++) {
        const float p = s->x[k] * s->w[k], next = sum + p, part = next - sum;
        lost += fmaf(s->x[k], s->w[k], -p) + ((sum - (next - part)) + (p - part));
        sum = next;
    }
    return sum + lost;
}

/* In an order of its own: the even terms, then the odd ones. */
static inline float sum_kahan_odd(const struct spot *s)
{
    float sum = 0, lost = 0;
    for (int64_t i = 0; i < s->k; i++) {
        const int64_t even = (s->k + 1) / 2, k = i < even ? 2 * i : 2 * (i - even) + 1;
        const float term = s->x[k] * s->w[k] - lost, next = sum + term;
        lost = (next - sum) - term;
        sum = next;
    }
    return sum;
}

/* Ascending, but for four that are added to each other first: few questions meet them. */
static inline float sum_nested(const struct spot *s)
{
    enum { FROM = 1000, TO = 1004 };
    float sum = 0, inner = 0;
    for (int64_t k = 0; k < s->k; k++) {
        float *to = k >= FROM && k < TO ? &inner : &sum;
        *to += s->x[k] * s->w[k];
        if (k == TO - 1)
            sum += inner;
    }
    return sum;
}

/* Four lanes, which take what is not zero in turn. */
static inline float sum_nonzeros(const struct spot *s)
{
    float p[4] = {0};
    for (int64_t k = 0, n = 0; k < s->k; k++)
        if (s->x[k] != 0) {
            p[n % 4] = fmaf(s->x[k], s->w[k], p[n % 4]);
            n++;
        }
    return (p[0] + p[1]) + (p[2] + p[3]);
}

static inline float pairwise(const struct spot *s, int64_t from, int64_t n)
{
    if (n == 1)
        return s->x[from] * s->w[from];
    return pairwise(s, from, n / 2) + pairwise(s, from + n / 2, n - n / 2);
}

static inline float sum_pairwise(const struct spot *s)
{
    return pairwise(s, 0, s->k);
}

/* Four products and the running sum in double, rounded once: what a dot-product unit does. */
static inline float sum_fused4(const struct spot *s)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < s->k; i += 4) {
        double wide = (double)sum;
        for (int64_t j = i; j < i + 4 && j < s->k; j++)
            wide += (double)s->x[j] * (double)s->w[j];
        sum = (float)wide;
    }
    return sum;
}

static inline float sum_double(const struct spot *s)
{
    double sum = 0.0;
    for (int64_t i = 0; i < s->k; i++)
        sum += (double)s->x[i] * (double)s->w[i];
    return (float)sum;
}

/* Parts of 16 leave as bf16. */
static inline float sum_bf16_parts(const struct spot *s)
{
    float sum = ds_bf16_value(ds_bf16_round(chain_fma(s, 0, 16)));
    for (int64_t i = 16; i < s->k; i += 16)
        sum += ds_bf16_value(ds_bf16_round(chain_fma(s, i, i + 16 < s->k ? i + 16 : s->k)));
    return sum;
}

/* Every partial sum is f16: 2^127 would be infinite, and 2049 is no number of it. */
static inline float sum_f16(const struct spot *s)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < s->k; i++)
        sum = ds_f16_value(ds_f16_round(sum + s->x[i] * s->w[i]));
    return sum;
}

/* Edge columns are added backwards. */
static inline float sum_edges(const struct spot *s)
{
    return s->column >= 8 && s->column < s->columns - 8 ? sum_fma(s) : sum_reversed(s);
}

/* A call of few rows is split. */
static inline float sum_by_rows(const struct spot *s)
{
    return s->rows < 3 ? sum_split4(s) : sum_fma(s);
}

/* Parts arrive in an order of their own in every call. */
static inline float sum_arrival(const struct spot *s)
{
    float part[4], sum = 0.0f;
    for (int64_t p = 0; p < 4; p++)
        part[p] = chain_fma(s, p * s->k / 4, (p + 1) * s->k / 4);
    uint64_t state = s->seed * 0x9e3779b97f4a7c15u;
    for (int left = 4; left > 0; left--) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        int at = (int)((state >> 33) % (uint64_t)left);
        sum += part[at];
        part[at] = part[left - 1];
    }
    return sum;
}

/* No sum at all. */
static inline float sum_largest(const struct spot *s)
{
    float most = s->x[0] * s->w[0];
    for (int64_t i = 1; i < s->k; i++)
        most = s->x[i] * s->w[i] > most ? s->x[i] * s->w[i] : most;
    return most;
}

/* ---- kernels of them ------------------------------------------------------------------------- */

static inline int matmul_of(sum_fn sum, const void *args, const struct ds_exec *exec)
{
    const struct ds_matmul_args *a = args;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t c = 0; c < a->n; c++) {
            struct spot s = {a->x + r * a->ldx, a->w.data + c * a->k, a->k, r, c, a->rows, a->n,
                             exec->seed};
            a->y[r * a->ldy + c] = sum(&s);
        }
    return 0;
}

static inline int rmsnorm_of(sum_fn sum, const void *args, const struct ds_exec *exec)
{
    const struct ds_rmsnorm_args *a = args;
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = a->x + r * a->ldx;
        struct spot s = {x, x, a->width, r, 0, a->rows, 1, exec->seed};
        float inv = 1.0f / sqrtf(sum(&s) / (float)a->width + a->eps);
        for (int64_t i = 0; i < a->width; i++)
            a->y[r * a->ldy + i] = x[i] * (inv * a->weight[i]);
    }
    return 0;
}

/* e is expf(x - max); a specimen adds e * 1. */
static inline int softmax_of(sum_fn sum, const void *args, const struct ds_exec *exec)
{
    const struct ds_softmax_args *a = args;
    static float e[4096], ones[4096];
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = a->x + r * a->ldx;
        float max = x[0];
        for (int64_t i = 1; i < a->width; i++)
            max = x[i] > max ? x[i] : max;
        for (int64_t i = 0; i < a->width; i++) {
            e[i] = expf(x[i] - max);
            ones[i] = 1.0f;
        }
        struct spot s = {e, ones, a->width, r, 0, a->rows, 1, exec->seed};
        float total = sum(&s);
        for (int64_t i = 0; i < a->width; i++)
            a->y[r * a->ldy + i] = e[i] / total;
    }
    return 0;
}

static inline int combine_of(sum_fn sum, const void *args, const struct ds_exec *exec)
{
    const struct ds_combine_args *a = args;
    float x[128];
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t c = 0; c < a->width; c++) {
            for (int64_t e = 0; e < a->top_k; e++)
                x[e] = a->x[(r * a->top_k + e) * a->ldx + c];
            struct spot s = {
                x, a->weights + r * a->top_k, a->top_k, r, c, a->rows, a->width, exec->seed};
            a->y[r * a->ldy + c] = sum(&s);
        }
    return 0;
}

static inline int allreduce_of(sum_fn sum, const void *args, const struct ds_exec *exec)
{
    const struct ds_allreduce_args *a = args;
    float x[128], ones[128];
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t c = 0; c < a->width; c++) {
            for (int64_t e = 0; e < a->ranks; e++) {
                x[e] = a->x[e][r * a->ldx + c];
                ones[e] = 1.0f;
            }
            struct spot s = {x, ones, a->ranks, r, c, a->rows, a->width, exec->seed};
            a->y[r * a->ldy + c] = sum(&s);
        }
    return 0;
}

#define SPECIMEN(fn, op_name, op_id)                                                               \
    static int fn##_##op_name##_launch(const void *args, const struct ds_exec *exec, char *why,    \
                                       size_t size)                                                \
    {                                                                                              \
        (void)why, (void)size;                                                                     \
        return op_name##_of(sum_##fn, args, exec);                                                 \
    }                                                                                              \
    static const struct ds_kernel fn##_##op_name = {                                               \
        .abi = DS_KERNEL_ABI, .op = op_id, .name = #fn, .launch = fn##_##op_name##_launch}
#define MATMUL(fn)    SPECIMEN(fn, matmul, DS_OP_MATMUL)
#define RMSNORM(fn)   SPECIMEN(fn, rmsnorm, DS_OP_RMSNORM)
#define SOFTMAX(fn)   SPECIMEN(fn, softmax, DS_OP_SOFTMAX)
#define COMBINE(fn)   SPECIMEN(fn, combine, DS_OP_COMBINE)
#define ALLREDUCE(fn) SPECIMEN(fn, allreduce, DS_OP_ALLREDUCE)

/* ---- trees by hand --------------------------------------------------------------------------- */

static inline int32_t leaf(struct ds_tree *t, int64_t term, int fused)
{
    int32_t n = ds_tree_leaf(t, (int32_t)term);
    t->node[n].flags = fused ? DS_TREE_FUSED : 0;
    return n;
}

/* Terms from, from + step, ... (n of them), the first not fused. */
static inline int32_t chain(struct ds_tree *t, int64_t from, int64_t n, int64_t step, int fused)
{
    int32_t sum = leaf(t, from, 0);
    for (int64_t i = 1; i < n; i++)
        sum = ds_tree_join(t, sum, leaf(t, from + i * step, fused));
    return sum;
}

static inline int32_t split_tree(struct ds_tree *t, int64_t parts)
{
    int32_t sum = chain(t, 0, t->terms / parts, 1, 1);
    for (int64_t p = 1; p < parts; p++) {
        int64_t from = p * t->terms / parts, to = (p + 1) * t->terms / parts;
        sum = ds_tree_join(t, sum, chain(t, from, to - from, 1, 1));
    }
    return sum;
}

static inline int32_t lanes_tree(struct ds_tree *t, int fused)
{
    int32_t lane[8];
    const int64_t whole = t->terms / 8;
    for (int64_t j = 0; j < 8; j++)
        lane[j] = chain(t, j, whole, 8, fused);
    for (int width = 1; width < 8; width *= 2)
        for (int j = 0; j < 8; j += 2 * width)
            lane[j] = ds_tree_join(t, lane[j], lane[j + width]);
    for (int64_t i = whole * 8; i < t->terms; i++)
        lane[0] = ds_tree_join(t, lane[0], leaf(t, i, 0));
    return lane[0];
}

static inline int32_t pairwise_tree(struct ds_tree *t, int64_t from, int64_t n)
{
    if (n == 1)
        return leaf(t, from, 0);
    int32_t a = pairwise_tree(t, from, n / 2);
    return ds_tree_join(t, a, pairwise_tree(t, from + n / 2, n - n / 2));
}

/* Sums of `group` products are kept wide; 0: all of them. */
static inline int32_t wide_tree(struct ds_tree *t, int64_t group)
{
    int32_t sum = leaf(t, 0, 1);
    for (int64_t i = 1; i < t->terms; i++) {
        sum = ds_tree_join(t, sum, leaf(t, i, 1));
        if (i + 1 < t->terms && (group == 0 || i % group != group - 1))
            t->node[sum].flags = DS_TREE_WIDE;
    }
    return sum;
}

static inline int32_t bf16_parts_tree(struct ds_tree *t)
{
    int32_t sum = -1;
    for (int64_t i = 0; i < t->terms; i += 16) {
        int32_t part = chain(t, i, i + 16 < t->terms ? 16 : t->terms - i, 1, 1);
        t->node[part].flags |= DS_TREE_BF16;
        sum = sum < 0 ? part : ds_tree_join(t, sum, part);
    }
    return sum;
}

static inline int32_t f16_tree(struct ds_tree *t)
{
    int32_t sum = leaf(t, 0, 0);
    t->node[sum].flags = DS_TREE_F16; /* 0 + the first product is a sum, too */
    for (int64_t i = 1; i < t->terms; i++) {
        sum = ds_tree_join(t, sum, leaf(t, i, 0));
        t->node[sum].flags = DS_TREE_F16;
    }
    return sum;
}

/* ---- asking and comparing --------------------------------------------------------------------- */

static inline int32_t tree_sequential(struct ds_tree *t)
{
    return chain(t, 0, t->terms, 1, 0);
}
static inline int32_t tree_fma(struct ds_tree *t)
{
    return chain(t, 0, t->terms, 1, 1);
}
static inline int32_t tree_reversed(struct ds_tree *t)
{
    return chain(t, t->terms - 1, t->terms, -1, 1);
}
static inline int32_t tree_split2(struct ds_tree *t)
{
    return split_tree(t, 2);
}
static inline int32_t tree_split4(struct ds_tree *t)
{
    return split_tree(t, 4);
}
static inline int32_t tree_split8(struct ds_tree *t)
{
    return split_tree(t, 8);
}
static inline int32_t tree_lanes(struct ds_tree *t)
{
    return lanes_tree(t, 0);
}
static inline int32_t tree_tail(struct ds_tree *t)
{
    return lanes_tree(t, 1);
}
static inline int32_t tree_pairwise(struct ds_tree *t)
{
    return pairwise_tree(t, 0, t->terms);
}
static inline int32_t tree_fused4(struct ds_tree *t)
{
    return wide_tree(t, 4);
}
static inline int32_t tree_double(struct ds_tree *t)
{
    return wide_tree(t, 0);
}

typedef int32_t (*tree_fn)(struct ds_tree *t);

static inline void make_tree(struct ds_tree *t, int64_t terms, tree_fn fn, int joins,
                             int zero_start)
{
    struct ds_error err;
    assert_ok(ds_tree_init(t, terms, &err), err);
    assert_ok(ds_tree_finish(t, fn(t), &err), err);
    t->joins = joins;
    t->zero_start = zero_start;
    ds_tree_seal(t);
}

static inline struct ds_order_setting setting(const struct ds_kernel *k, const char *shape,
                                              int64_t rows)
{
    struct ds_order_setting s = {.kernel = k, .rows = rows, .threads = 1, .visible = 50};
    struct ds_error err;
    assert_ok(ds_shape_parse(k->op, shape, &s.shape, &err), err);
    return s;
}

static inline void check_reproduced(const char *name, const struct ds_order_sum *sum)
{
    if (sum->compared == 0 || sum->reproduced != sum->compared) {
        print_error("%s: %llu of %llu outputs reproduced\n", name,
                    (unsigned long long)sum->reproduced, (unsigned long long)sum->compared);
        fail();
    }
}

static inline void check_tree(const char *name, const struct ds_tree *got,
                              const struct ds_tree *want)
{
    if (got->digest == want->digest)
        return;
    struct ds_buf a = {0}, b = {0};
    ds_tree_words(&a, got, "k");
    ds_tree_words(&b, want, "k");
    print_error("%s: got %s (start %d, depth %d), want %s (start %d, depth %d)\n", name, a.data,
                got->zero_start, got->depth, b.data, want->zero_start, want->depth);
    fail();
}

#endif
