/* truth.c: see truth.h. Each formula is the one in driftscope_kernel.h, evaluated as it stands. */
#include "kernels/lab/truth.h"

#include "kernels/lab/exact.h"

#include <float.h>
#include <math.h>

int ds_truth_known(int op)
{
    return op != DS_OP_CUSTOM && op != DS_OP_ATTENTION && op != DS_OP_PROCESS &&
           op != DS_OP_SCHEDULE;
}

double ds_truth_ulp(double v)
{
    int e;
    frexp(v, &e);
    return ldexp(1.0, e - 24 < -149 || v == 0 ? -149 : e - 24);
}

static void put(struct ds_truth *t, long double value, long double scale)
{
    t->value = (double)value;
    t->scale = isfinite(scale) ? (double)scale : 0.0;
    t->reach = t->scale;
    t->any_zero = 0;
}

/* A sum of zero is +0 in whatever order it is added, unless every term is -0. */
static void put_sum(struct ds_truth *t, long double value, long double scale, int all_minus_0)
{
    put(t, value == 0 ? 0 : value, scale);
    t->any_zero = all_minus_0;
}

static int minus_0(float x)
{
    return x == 0 && signbit(x);
}

/* Of a product of two numbers, whatever becomes of it in f32. */
static int product_minus_0(float x, float y)
{
    return (x == 0 || y == 0) && minus_0(x * y);
}

static void put_copy(struct ds_truth *t, const float *x, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        t[j] = (struct ds_truth){.value = (double)x[j]};
}

/* A format of blocks is relative to its block's largest value, and one with few bits of exponent to
 * the smallest that it holds. */
static void cache_row(const struct ds_cache_args *a, int64_t r, struct ds_truth *t)
{
    enum { BLOCK = 32 };
    const float *x = a->x + r * a->ldx;
    put_copy(t, x, a->width);
    for (int64_t b = 0; b < a->width; b += BLOCK) {
        const int64_t end = b + BLOCK < a->width ? b + BLOCK : a->width;
        double reach = 0x1p-7;
        for (int64_t j = b; j < end; j++)
            reach = fabs(t[j].value) > reach ? fabs(t[j].value) : reach;
        for (int64_t j = b; j < end; j++)
            t[j].scale = fabs(t[j].value), t[j].reach = reach;
    }
}

static void rmsnorm_row(const struct ds_rmsnorm_args *a, int64_t r, struct ds_truth *t)
{
    const float *x = a->x + r * a->ldx;
    long double sum = 0;
    for (int64_t j = 0; j < a->width; j++)
        sum += (long double)x[j] * (long double)x[j];
    long double inv = 1 / sqrtl(sum / a->width + (long double)a->eps);
    for (int64_t j = 0; j < a->width; j++) {
        long double v = (long double)x[j] * inv * (long double)a->weight[j];
        put(&t[j], v, fabsl(v));
    }
}

/* The sum of magnitudes and the largest. */
static double size_of(const float *x, int64_t n, double *most)
{
    double sum = 0;
    *most = 0;
    for (int64_t k = 0; k < n; k++) {
        const double a = fabs((double)x[k]);
        sum += a;
        *most = a > *most ? a : *most;
    }
    return sum;
}

static int all_minus_0(const struct ds_matmul_args *a, const float *x, const float *w, int64_t j)
{
    int all = !a->bias || minus_0(a->bias[j]);
    for (int64_t k = 0; k < a->k && all; k++)
        all = product_minus_0(x[k], w[k]);
    return all;
}

static void matmul_row(const struct ds_matmul_args *a, int64_t r, int64_t step, struct ds_truth *t)
{
    const float *x = a->x + r * a->ldx;
    double max_x, max_w;
    const double sum_x = size_of(x, a->k, &max_x);
    for (int64_t j = 0; j < a->n; j += step) {
        const float *w = a->w.data + j * a->k;
        double scale;
        const double sum_w = size_of(w, a->k, &max_w),
                     value = ds_exact_dot(x, w, a->k, a->bias ? a->bias[j] : 0.0f, &scale);
        put_sum(&t[j], (long double)value, (long double)scale,
                value == 0 && all_minus_0(a, x, w, j));
        t[j].reach = fmax(t[j].scale, max_x * sum_w + max_w * sum_x);
    }
}

static void rope_row(const struct ds_rope_args *a, int64_t r, struct ds_truth *t)
{
    const int64_t half = a->rope_dim / 2, step = a->neox ? 1 : 2, apart = a->neox ? half : 1;
    const float *cs = a->cos_sin + (int64_t)a->positions[r] * half * 2;
    for (int64_t h = 0; h < a->heads; h++, t += a->head_dim) {
        const float *x = a->x + r * a->ldx + h * a->head_dim;
        put_copy(t, x, a->head_dim);
        for (int64_t i = 0; i < half; i++) {
            long double x0 = (long double)x[i * step], x1 = (long double)x[i * step + apart];
            long double c = (long double)cs[2 * i], s = (long double)cs[2 * i + 1];
            put(&t[i * step], x0 * c - x1 * s, fabsl(x0 * c) + fabsl(x1 * s));
            put(&t[i * step + apart], x0 * s + x1 * c, fabsl(x0 * s) + fabsl(x1 * c));
            t[i * step].any_zero = minus_0((float)(x0 * c)) && minus_0((float)(-x1 * s));
            t[i * step + apart].any_zero = minus_0((float)(x0 * s)) && minus_0((float)(x1 * c));
        }
    }
}

static void softmax_row(const float *x, int64_t n, struct ds_truth *t)
{
    long double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; j++)
        if ((long double)x[j] > max)
            max = (long double)x[j];
    for (int64_t j = 0; j < n; j++)
        sum += expl((long double)x[j] - max);
    for (int64_t j = 0; j < n; j++) {
        long double v = expl((long double)x[j] - max) / sum;
        /* The difference is rounded before exp: an error relative to it. */
        put(&t[j], v, v * (1 + fabsl((long double)x[j]) + fabsl(max)));
        if (v < 0x1p-100L) /* an exp may give 0 before f32 ends, and is divided by a sum */
            t[j].scale = (double)INFINITY;
    }
}

static void silu_mul_row(const struct ds_silu_mul_args *a, int64_t r, struct ds_truth *t)
{
    for (int64_t j = 0; j < a->width; j++) {
        long double g = (long double)a->gate[r * a->ldx + j],
                    u = (long double)a->up[r * a->ldx + j];
        long double v = g / (1 + expl(-g)) * u;
        put(&t[j], v, fabsl(v));
    }
}

static void add_row(const struct ds_add_args *a, int64_t r, struct ds_truth *t)
{
    for (int64_t j = 0; j < a->width; j++) {
        long double v = (long double)a->a[r * a->lda + j] + (long double)a->b[r * a->ldb + j];
        put(&t[j], v, fabsl(v));
    }
}

/* The largest not yet taken, the lower index at a tie, NaN never; -1 = none is left. */
static int64_t best(const float *x, int64_t n, const struct ds_truth *taken, int64_t n_taken)
{
    int64_t at = -1;
    for (int64_t i = 0; i < n; i++) {
        int used = 0;
        for (int64_t j = 0; j < n_taken; j++)
            used |= taken[j].value == (double)i;
        if (!used && !isnan(x[i]) && (at < 0 || x[i] > x[at]))
            at = i;
    }
    return at;
}

static void router_row(const struct ds_router_args *a, int64_t r, struct ds_truth *t)
{
    const float *x = a->logits + r * a->ldx;
    long double max = -INFINITY, all = 0, chosen = 0;
    for (int64_t i = 0; i < a->experts; i++)
        max = (long double)x[i] > max ? (long double)x[i] : max;
    for (int64_t i = 0; i < a->experts; i++)
        all += expl((long double)x[i] - max);
    for (int64_t j = 0; j < a->top_k; j++) {
        int64_t at = best(x, a->experts, t, j);
        put(&t[j], at, 0);
        if (at < 0)
            t[j].scale = (double)INFINITY;
        put(&t[a->top_k + j], at < 0 ? NAN : expl((long double)x[at] - max) / all, 0);
        chosen += (long double)t[a->top_k + j].value;
    }
    for (int64_t j = a->top_k; j < 2 * a->top_k; j++) {
        long double v = (long double)t[j].value / (a->normalise ? chosen : 1);
        put(&t[j], v, 4 * fabsl(v));
        if (isnan(v)) /* the contract says nothing about the weights of a row with NaN */
            t[j].scale = (double)INFINITY;
    }
}

static void combine_row(const struct ds_combine_args *a, int64_t r, struct ds_truth *t)
{
    const float *w = a->weights + r * a->top_k;
    for (int64_t j = 0; j < a->width; j++) {
        struct ds_exact e;
        long double scale = 0;
        int all_minus_0 = 1;
        ds_exact_zero(&e);
        for (int64_t k = 0; k < a->top_k; k++) {
            float x = a->x[(r * a->top_k + k) * a->ldx + j];
            all_minus_0 &= product_minus_0(w[k], x);
            ds_exact_add_product(&e, w[k], x);
            scale += fabsl((long double)w[k] * (long double)x);
        }
        put_sum(&t[j], (long double)ds_exact_value(&e), scale, all_minus_0);
    }
}

static void allreduce_row(const struct ds_allreduce_args *a, int64_t r, struct ds_truth *t)
{
    for (int64_t j = 0; j < a->width; j++) {
        struct ds_exact e;
        long double scale = 0;
        int all_minus_0 = 1;
        ds_exact_zero(&e);
        for (int64_t k = 0; k < a->ranks; k++) {
            all_minus_0 &= minus_0(a->x[k][r * a->ldx + j]);
            ds_exact_add(&e, a->x[k][r * a->ldx + j]);
            scale += fabsl((long double)a->x[k][r * a->ldx + j]);
        }
        put_sum(&t[j], (long double)ds_exact_value(&e), scale, all_minus_0);
    }
}

void ds_truth_row(int op, const void *args, int64_t r, int64_t step, struct ds_truth *out)
{
    const struct ds_embed_args *embed = args;
    const struct ds_transfer_args *transfer = args;
    const struct ds_softmax_args *softmax = args;
    const struct ds_sample_args *sample = args;
    int64_t at;
    switch (op) {
    case DS_OP_EMBED:
        put_copy(out, embed->table + embed->ids[r] * embed->width, embed->width);
        return;
    case DS_OP_TRANSFER:
        put_copy(out, transfer->x + r * transfer->ldx, transfer->width);
        return;
    case DS_OP_CACHE:
        cache_row(args, r, out);
        return;
    case DS_OP_RMSNORM:
        rmsnorm_row(args, r, out);
        return;
    case DS_OP_MATMUL:
        matmul_row(args, r, step, out);
        return;
    case DS_OP_ROPE:
        rope_row(args, r, out);
        return;
    case DS_OP_SOFTMAX:
        softmax_row(softmax->x + r * softmax->ldx, softmax->width, out);
        return;
    case DS_OP_SILU_MUL:
        silu_mul_row(args, r, out);
        return;
    case DS_OP_ADD:
        add_row(args, r, out);
        return;
    case DS_OP_ROUTER:
        router_row(args, r, out);
        return;
    case DS_OP_COMBINE:
        combine_row(args, r, out);
        return;
    case DS_OP_ALLREDUCE:
        allreduce_row(args, r, out);
        return;
    case DS_OP_SAMPLE:
        at = best(sample->logits + r * sample->ldx, sample->vocab, NULL, 0);
        put(out, at < 0 ? 0 : at, 0);
        return;
    default:
        return;
    }
}

double ds_truth_roundings(int op, const void *args)
{
    switch (op) {
    case DS_OP_RMSNORM:
        return 0.5 * (double)((const struct ds_rmsnorm_args *)args)->width + 6;
    case DS_OP_MATMUL:
        return (double)((const struct ds_matmul_args *)args)->k + 1;
    case DS_OP_SOFTMAX:
        return (double)((const struct ds_softmax_args *)args)->width + 4;
    case DS_OP_ROUTER:
        return (double)((const struct ds_router_args *)args)->experts + 6;
    case DS_OP_COMBINE:
        return (double)((const struct ds_combine_args *)args)->top_k;
    case DS_OP_ALLREDUCE:
        return (double)((const struct ds_allreduce_args *)args)->ranks;
    case DS_OP_ROPE:
        return 3;
    case DS_OP_SILU_MUL:
        return 6;
    default:
        return 1;
    }
}
