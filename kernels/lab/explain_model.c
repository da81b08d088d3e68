/* explain_model.c: what other orders of addition and other formats of the inputs make of given rows:
 * measured on these very inputs, since bounds (gamma_K) contain every effect of TF32 and prove
 * nothing. Owns the formula of each op with a chosen order and chosen roundings; knows no kernel.
 *
 * An order: K in 1 to 8 parts, each in 1 to 32 interleaved lanes added up in pairs or one after
 * another; FMA or product and sum; the terms as they come or shuffled. That is what matmuls, split
 * sums and reductions of warps do. */
#include "kernels/lab/explain.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "kernels/lab/truth.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LANES = 32, MOST_ELEMENTS = 4096 };
static const double MOST_WORK = 2e6; /* multiply-adds of one evaluation */

const char *ds_explain_format_name(int format)
{
    static const char *const names[DS_FORMAT_COUNT] = {"TF32",
                                                       "TF32 cut off",
                                                       "bf16",
                                                       "f16",
                                                       "fp8-e4m3",
                                                       "8-bit blocks of 32",
                                                       "bf16 partial sums",
                                                       "f16 partial sums"};
    return format >= 0 && format < DS_FORMAT_COUNT ? names[format] : "";
}

/* ---- formats --------------------------------------------------------------------------------- */

static float to_tf32(float v, int cut)
{
    uint32_t u = ds_f32_bits(v);
    if ((u & 0x7f800000u) == 0x7f800000u)
        return v;
    if (!cut)
        u += 0xfffu + (u >> 13 & 1u);
    return ds_f32_from_bits(u & ~0x1fffu);
}

/* 4 bits of exponent, 3 of mantissa, largest 448. */
static float to_fp8(float v)
{
    int e;
    if (v == 0 || !isfinite(v))
        return v;
    frexpf(v, &e);
    const int last = e - 4 < -9 ? -9 : e - 4;
    const float r = ldexpf(rintf(ldexpf(v, -last)), last);
    return r > 448.0f ? 448.0f : r < -448.0f ? -448.0f : r;
}

static float amax_of(const float *v, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fabsf(v[i]) > most ? fabsf(v[i]) : most;
    return most;
}

/* A row of factors, rounded. fp8 has one scale a row, 8 bits one for each block of 32. */
static void round_factors(int format, float *to, const float *from, int64_t n)
{
    const float scale = format == DS_FORMAT_FP8 ? amax_of(from, n) / 448.0f : 1.0f;
    for (int64_t i = 0; i < n; i++) {
        const float v = from[i];
        float d;
        switch (format) {
        case DS_FORMAT_TF32:
        case DS_FORMAT_TF32_CUT:
            to[i] = to_tf32(v, format == DS_FORMAT_TF32_CUT);
            break;
        case DS_FORMAT_BF16:
            to[i] = ds_bf16_value(ds_bf16_round(v));
            break;
        case DS_FORMAT_F16:
            to[i] = ds_f16_value(ds_f16_round(v));
            break;
        case DS_FORMAT_FP8:
            to[i] = scale > 0 ? to_fp8(v / scale) * scale : v;
            break;
        default:
            d = amax_of(from + i / 32 * 32, n - i / 32 * 32 < 32 ? n - i / 32 * 32 : 32) / 127.0f;
            to[i] = d > 0 ? rintf(v / d) * d : v;
        }
    }
}

static float round_sum(int format, float v)
{
    return format == DS_FORMAT_BF16_SUMS  ? ds_bf16_value(ds_bf16_round(v))
           : format == DS_FORMAT_F16_SUMS ? ds_f16_value(ds_f16_round(v))
                                          : v;
}

/* ---- orders ---------------------------------------------------------------------------------- */

struct spec {
    int in_double; /* no rounding at all: what rounded inputs alone do */
    int format, which;
    int sums; /* -1, or the format of partial sums */
    int parts, lanes, fma, pairs, shuffled;
    uint64_t seed;
};

static uint64_t mixed(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Every number of parts with every number of lanes, then those that shuffle. */
static struct spec order_of(int number, int sums)
{
    const uint64_t h = mixed((uint64_t)(number + 1) * 0x9e3779b97f4a7c15u);
    return (struct spec){.format = -1,
                         .sums = sums,
                         .parts = sums >= 0 ? 2 << (number & 1) : 1 << (number & 3),
                         .lanes = 1 << (number >> 2) % 6,
                         .fma = (number ^ number >> 2) & 1,
                         .pairs = h >> 17 & 1,
                         .shuffled = number >= 24,
                         .seed = h};
}

struct modeler {
    const struct ds_explain *e;
    int64_t width, terms;
    float *x, *w, *p, *one; /* rounded factors; attention: weights of the slots; ones */
    float *column;          /* of values, or of experts */
    double *pd;
    int32_t *turn; /* the shuffle: place -> term */
    int64_t n_turn;
    size_t room;
};

static void shuffle(struct modeler *m, const struct spec *s, int64_t n)
{
    uint64_t h = s->seed;
    for (int64_t i = 0; i < n; i++)
        m->turn[i] = (int32_t)i;
    for (int64_t i = n - 1; i > 0 && s->shuffled; i--) {
        h = mixed(h + 0x9e3779b97f4a7c15u);
        int64_t j = (int64_t)(h % (uint64_t)(i + 1));
        int32_t t = m->turn[i];
        m->turn[i] = m->turn[j];
        m->turn[j] = t;
    }
    m->n_turn = n;
}

static float add_lanes(const struct spec *s, float *lane)
{
    for (int half = s->lanes / 2; s->pairs && half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    for (int i = 1; !s->pairs && i < s->lanes; i++)
        lane[0] += lane[i];
    return lane[0];
}

/* The sum of x[k] * w[k]. */
static double add_up(struct modeler *m, const struct spec *s, const float *x, const float *w,
                     int64_t n)
{
    double exact = 0;
    float total = 0;
    if (s->in_double) {
        for (int64_t k = 0; k < n; k++)
            exact += (double)x[k] * (double)w[k];
        return exact;
    }
    if (m->n_turn != n)
        shuffle(m, s, n);
    for (int p = 0; p < s->parts; p++) {
        const int64_t begin = n * p / s->parts, end = n * (p + 1) / s->parts;
        float lane[MOST_LANES] = {0};
        for (int64_t k = begin; k < end; k++) {
            float *to = &lane[(k - begin) & (s->lanes - 1)];
            const int32_t t = m->turn[k];
            *to = s->fma ? fmaf(x[t], w[t], *to) : *to + x[t] * w[t];
        }
        const float part = round_sum(s->sums, add_lanes(s, lane));
        total = p ? round_sum(s->sums, total + part) : part;
    }
    return (double)total;
}

/* ---- the ops --------------------------------------------------------------------------------- */

/* Factors as the spec wants them: in place, or rounded into `room`. */
static const float *factors(const struct spec *s, int which, const float *v, int64_t n, float *room)
{
    if (s->format < 0 || !(s->which & which))
        return v;
    round_factors(s->format, room, v, n);
    return room;
}

static double matmul_one(struct modeler *m, const struct spec *s, const float *x, int64_t c)
{
    const struct ds_matmul_args *a = &m->e->shared.matmul;
    const float *w = factors(s, 2, a->w.data + c * a->k, a->k, m->w);
    const double sum = add_up(m, s, x, w, a->k);
    if (!a->bias)
        return sum;
    return s->in_double ? sum + (double)a->bias[c] : (double)((float)sum + a->bias[c]);
}

static void norm_row(struct modeler *m, const struct spec *s, const float *x, double *y)
{
    const struct ds_rmsnorm_args *a = &m->e->shared.rmsnorm;
    const float *w = factors(s, 2, a->weight, a->width, m->w);
    const double sum = add_up(m, s, x, x, a->width);
    const double inv = 1 / sqrt(sum / (double)a->width + (double)a->eps);
    for (int64_t i = 0; i < a->width; i++)
        y[i] = s->in_double ? (double)x[i] * inv * (double)w[i]
                            : (double)ds_norm_finish((int)(s->seed % DS_NORM_FORMS), DS_F32,
                                                     (float)sum, a->width, a->eps, x[i], w[i]);
}

/* Scores, weights, their sum; in `one` call for a head. */
static double weigh(struct modeler *m, const struct spec *s, const float *q, const float *k,
                    int64_t step, int64_t dim, int64_t slots, float scale, float cap)
{
    double max = (double)-INFINITY, sum = 0;
    for (int64_t j = 0; j < slots; j++) {
        const float *key = factors(s, 2, k + j * step, dim, m->w);
        const double sc = add_up(m, s, q, key, dim);
        m->pd[j] = s->in_double ? sc * (double)scale : (double)((float)sc * scale);
        if (cap > 0)
            m->pd[j] = s->in_double ? (double)cap * tanh(m->pd[j] / (double)cap)
                                    : (double)(cap * tanhf((float)m->pd[j] / cap));
        max = m->pd[j] > max ? m->pd[j] : max;
    }
    for (int64_t j = 0; j < slots; j++) {
        m->pd[j] = s->in_double ? exp(m->pd[j] - max) : (double)expf((float)m->pd[j] - (float)max);
        m->p[j] = (float)m->pd[j];
        sum += m->pd[j];
    }
    return s->in_double ? sum : add_up(m, s, m->p, m->one, slots);
}

static void attention_row(struct modeler *m, const struct spec *s,
                          const struct ds_explain_input *in, double *y)
{
    const struct ds_attention_args *a = &m->e->shared.attention;
    const int64_t step = a->kv_heads * a->head_dim, all = in->slot + 1 - in->kv_first,
                  slots = a->window > 0 && all > a->window ? a->window : all;
    const float *keys = in->k + (all - slots) * step, *values = in->v + (all - slots) * step;
    for (int64_t h = 0; h < a->heads; h++) {
        const int64_t at = h / (a->heads / a->kv_heads) * a->head_dim;
        const float *q = factors(s, 1, in->in[0] + h * a->head_dim, a->head_dim, m->x);
        const double den =
            weigh(m, s, q, keys + at, step, a->head_dim, slots, a->scale, a->soft_cap);
        const float *p = factors(s, 1, m->p, slots, m->x);
        for (int64_t d = 0; d < a->head_dim; d++) {
            double sum = 0;
            for (int64_t j = 0; j < slots; j++)
                m->column[j] = values[j * step + at + d];
            const float *v = factors(s, 2, m->column, slots, m->w);
            for (int64_t j = 0; s->in_double && j < slots; j++)
                sum += (s->format >= 0 && (s->which & 1) ? (double)p[j] : m->pd[j]) * (double)v[j];
            if (!s->in_double)
                sum = add_up(m, s, p, v, slots);
            y[h * a->head_dim + d] = s->in_double ? sum / den : (double)((float)sum / (float)den);
        }
    }
}

static void softmax_row(struct modeler *m, const struct spec *s, const float *x, double *y)
{
    const int64_t n = m->e->shared.softmax.width;
    float max = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (int64_t i = 0; i < n; i++) {
        m->pd[i] = s->in_double ? exp((double)x[i] - (double)max) : (double)expf(x[i] - max);
        m->p[i] = (float)m->pd[i];
        sum += m->pd[i];
    }
    if (!s->in_double)
        sum = add_up(m, s, m->p, m->one, n);
    for (int64_t i = 0; i < n; i++)
        y[i] = s->in_double ? m->pd[i] / sum : (double)(m->p[i] / (float)sum);
}

static double gather_one(struct modeler *m, const struct spec *s, const float *weights,
                         const float *x, int64_t n, int64_t width, int64_t c)
{
    for (int64_t k = 0; k < n; k++)
        m->column[k] = x[k * width + c];
    return add_up(m, s, weights, factors(s, 2, m->column, n, m->w), n);
}

static double silu_one(const struct spec *s, float g, float u)
{
    if (s->in_double)
        return (double)g / (1 + exp(-(double)g)) * (double)u;
    /* Ways to evaluate it, and an exp that is off by one place. */
    float e = expf(-g);
    e = ds_f32_from_bits(ds_f32_bits(e) + (uint32_t)(s->seed >> 20 & 1));
    switch (s->seed % 3) {
    case 0:
        return (double)(g / (1 + e) * u);
    case 1:
        return (double)(g * u / (1 + e));
    default:
        return (double)(1 / (1 + e) * g * u);
    }
}

static void rope_row(const struct modeler *m, const struct spec *s,
                     const struct ds_explain_input *in, const float *x, double *y)
{
    const struct ds_rope_args *a = &m->e->shared.rope;
    const int64_t half = a->rope_dim / 2, step = a->neox ? 1 : 2, apart = a->neox ? half : 1;
    const float *cs = a->cos_sin + (int64_t)in->number * half * 2;
    for (int64_t i = 0; i < m->width; i++)
        y[i] = (double)x[i];
    for (int64_t h = 0; h < a->heads; h++)
        for (int64_t i = 0; i < half; i++) {
            const int64_t at = h * a->head_dim + i * step;
            const float x0 = x[at], x1 = x[at + apart], c = cs[2 * i], n = cs[2 * i + 1];
            if (s->in_double) {
                y[at] = (double)x0 * (double)c - (double)x1 * (double)n;
                y[at + apart] = (double)x0 * (double)n + (double)x1 * (double)c;
            } else {
                y[at] = (double)(s->fma ? fmaf(x0, c, -(x1 * n)) : x0 * c - x1 * n);
                y[at + apart] = (double)(s->fma ? fmaf(x0, n, x1 * c) : x0 * n + x1 * c);
            }
        }
}

/* Elements step * i of one row. */
static void model_row(struct modeler *m, const struct spec *s, const struct ds_explain_input *in,
                      int64_t step, double *y)
{
    const union ds_any_args *a = &m->e->shared;
    const int64_t n = ds_explain_width_in(m->e->op, a, 0);
    const float *x = m->e->op == DS_OP_EMBED ? a->embed.table + in->number * a->embed.width
                     : m->e->op == DS_OP_ATTENTION || n == 0
                         ? in->in[0]
                         : factors(s, 1, m->e->op == DS_OP_COMBINE ? in->in[1] : in->in[0],
                                   m->e->op == DS_OP_COMBINE ? a->combine.top_k : n, m->x);
    switch (m->e->op) {
    case DS_OP_RMSNORM:
        norm_row(m, s, x, y);
        return;
    case DS_OP_ATTENTION:
        attention_row(m, s, in, y);
        return;
    case DS_OP_SOFTMAX:
        softmax_row(m, s, x, y);
        return;
    case DS_OP_ROPE:
        rope_row(m, s, in, x, y);
        return;
    default:
        break;
    }
    const float *b = (m->e->op == DS_OP_ADD || m->e->op == DS_OP_SILU_MUL)
                         ? factors(s, 2, in->in[1], m->width, m->w)
                         : NULL;
    for (int64_t c = 0; c < m->width; c += step) {
        if (m->e->op == DS_OP_MATMUL)
            y[c] = matmul_one(m, s, x, c);
        else if (m->e->op == DS_OP_COMBINE)
            y[c] = gather_one(m, s, x, in->in[0], a->combine.top_k, m->width, c);
        else if (m->e->op == DS_OP_ALLREDUCE)
            y[c] = gather_one(m, s, m->one, in->in[0], a->allreduce.ranks, m->width, c);
        else if (m->e->op == DS_OP_ADD)
            y[c] = s->in_double ? (double)x[c] + (double)b[c] : (double)(x[c] + b[c]);
        else if (m->e->op == DS_OP_SILU_MUL)
            y[c] = silu_one(s, x[c], b[c]);
        else
            y[c] = (double)x[c];
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

struct stats {
    struct modeler m;
    const double *exact;
    int64_t step; /* every step-th column */
    double *row;
    size_t n;              /* elements */
    double *want, *got;    /* [n] */
    float *side[DS_SIDES]; /* [n] */
    double *order_off;     /* [n] the most that an order was off */
    double *most_off;      /* [n] the most that anything was off */
    float *orders;         /* [DS_EXPLAIN_ORDERS][n] */
};

static int64_t terms_of(const struct ds_explain *e)
{
    const union ds_any_args *s = &e->shared;
    switch (e->op) {
    case DS_OP_MATMUL:
        return s->matmul.k;
    case DS_OP_COMBINE:
        return s->combine.top_k;
    case DS_OP_ALLREDUCE:
        return s->allreduce.ranks;
    case DS_OP_RMSNORM:
    case DS_OP_SOFTMAX:
        return ds_explain_width_in(e->op, s, 0);
    case DS_OP_ATTENTION:
        return e->rows[0].input[DS_SIDE_A].slot + 1 - e->rows[0].input[DS_SIDE_A].kv_first;
    case DS_OP_ROPE:
        return 2;
    default:
        return 0;
    }
}

/* Multiply-adds of one element, and whether single columns can be left out. */
static double work_of(const struct ds_explain *e, int64_t terms)
{
    return e->op == DS_OP_ATTENTION ? 2.0 * (double)terms : terms > 0 ? (double)terms : 1.0;
}

static int64_t largest_room(const struct ds_explain *e)
{
    int64_t most = ds_explain_width(e->op, &e->shared), n;
    for (int i = 0; i < 2; i++)
        most = (n = ds_explain_width_in(e->op, &e->shared, i)) > most ? n : most;
    for (size_t r = 0; r < e->n_rows && e->op == DS_OP_ATTENTION; r++)
        most = (n = e->rows[r].input[DS_SIDE_A].slot + 1) > most ? n : most;
    n = terms_of(e);
    return n > most ? n : most;
}

static void evaluate(struct stats *t, const struct spec *s)
{
    const struct ds_explain *e = t->m.e;
    const int dtype = e->side[DS_SIDE_A].dtype;
    size_t at = 0;
    t->m.n_turn = -1;
    for (size_t r = 0; r < e->n_rows; r++) {
        model_row(&t->m, s, &e->rows[r].input[DS_SIDE_A], t->step, t->row);
        for (int64_t c = 0; c < t->m.width; c += t->step) {
            double v = t->row[c];
            if (!s->in_double)
                v = dtype == DS_BF16  ? (double)ds_bf16_value(ds_bf16_round((float)v))
                    : dtype == DS_F16 ? (double)ds_f16_value(ds_f16_round((float)v))
                                      : v;
            t->got[at++] = v;
        }
    }
}

/* Root of the mean square of a[i] - b[i], where both are finite. */
static double rms(const double *a, const double *b, size_t n)
{
    double sum = 0;
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = a[i] - (b ? b[i] : 0);
        if (!isfinite(d))
            continue;
        sum += d * d;
        used++;
    }
    return used ? sqrt(sum / (double)used) : 0;
}

static double rms_side(const float *a, const double *b, size_t n)
{
    double sum = 0;
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)a[i] - b[i];
        if (!isfinite(d))
            continue;
        sum += d * d;
        used++;
    }
    return used ? sqrt(sum / (double)used) : 0;
}

static double rms_floats(const float *a, const float *b, size_t n)
{
    double sum = 0;
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)a[i] - (double)b[i];
        if (!isfinite(d))
            continue;
        sum += d * d;
        used++;
    }
    return used ? sqrt(sum / (double)used) : 0;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct ds_explain_range range_of(double *v, size_t n)
{
    qsort(v, n, sizeof *v, compare_doubles);
    return n ? (struct ds_explain_range){v[0], v[n / 2], v[n - 1]} : (struct ds_explain_range){0};
}

/* The most that element i was off the exact value, in one of several evaluations. */
static void note_off(const struct stats *t, double *most)
{
    for (size_t i = 0; i < t->n; i++) {
        const double d = fabs(t->got[i] - t->want[i]);
        if (d > most[i])
            most[i] = d;
    }
}

static void run_orders(struct stats *t, struct ds_explain_noise *out)
{
    double error[DS_EXPLAIN_ORDERS], pair[DS_EXPLAIN_ORDERS * DS_EXPLAIN_ORDERS / 2];
    size_t pairs = 0;
    for (int o = 0; o < DS_EXPLAIN_ORDERS; o++) {
        const struct spec s = order_of(o, -1);
        evaluate(t, &s);
        error[o] = rms(t->got, t->want, t->n);
        note_off(t, t->order_off);
        float *keep = t->orders + (size_t)o * t->n;
        for (size_t i = 0; i < t->n; i++)
            keep[i] = (float)t->got[i];
        for (int p = 0; p < o; p++)
            pair[pairs++] = rms_floats(keep, t->orders + (size_t)p * t->n, t->n);
    }
    out->order_error = range_of(error, DS_EXPLAIN_ORDERS);
    out->order_difference = range_of(pair, pairs);
    memcpy(t->most_off, t->order_off, t->n * sizeof *t->most_off);
    for (int f = DS_FORMAT_INPUTS; f < DS_FORMAT_COUNT && out->terms > 2; f++) {
        for (int o = 0; o < 8; o++) {
            const struct spec s = order_of(o, f);
            evaluate(t, &s);
            error[o] = rms(t->got, t->want, t->n);
            note_off(t, t->most_off);
        }
        out->sums_error[f - DS_FORMAT_INPUTS] = range_of(error, 8);
    }
}

static void run_formats(struct stats *t, struct ds_explain_noise *out)
{
    for (int f = 0; f < DS_FORMAT_INPUTS; f++)
        for (int which = 1; which <= 3; which++) {
            const struct spec s = {.in_double = 1, .format = f, .which = which, .sums = -1};
            evaluate(t, &s);
            struct ds_explain_rounded *r = &out->rounded[out->n_rounded];
            *r = (struct ds_explain_rounded){
                .format = f, .which = which, .shift = rms(t->got, t->want, t->n)};
            if (!(r->shift > 0))
                continue; /* the op has no such input, or it holds such numbers only */
            for (int side = 0; side < DS_SIDES; side++)
                r->rest[side] = rms_side(t->side[side], t->got, t->n);
            note_off(t, t->most_off);
            out->n_rounded++;
        }
}

/* Multiples of what the orders gave, element by element. */
static void look_at_elements(struct stats *t, int side, struct ds_explain_noise *out)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++) {
        const double off = fabs((double)t->side[side][i] - t->want[i]),
                     unit = fmax(fmax(t->order_off[i], out->order_error.median),
                                 ds_truth_ulp(t->want[i]) / 2);
        if (!isfinite((double)t->side[side][i]) && isfinite(t->want[i]))
            out->nonfinite[side]++;
        if (!isfinite(off) || !(unit > 0))
            continue;
        out->outside[side] += off > 16 * unit;
        out->beyond[side] += off > 8 * fmax(t->most_off[i], unit);
        t->got[n++] = off / unit;
    }
    out->typical[side] = range_of(t->got, n).median;
}

/* Each row's elements are the exact ones times one factor: that of its largest element, held by the
 * others, and it leaves over a quarter of the error at most. Of the rows' factors the one farthest
 * from 1; 0: it is not so. */
static double ratio_of(const struct stats *t, int side, const struct ds_explain_noise *noise)
{
    const size_t rows = t->m.e->n_rows, n = t->n / rows;
    double worst = 1, left = 0;
    for (size_t r = 0; r < rows; r++) {
        const double *want = t->want + r * n;
        const float *got = t->side[side] + r * n;
        double ratio = 0, most = 0;
        for (size_t i = 0; i < n; i++)
            if (fabs(want[i]) > most) {
                most = fabs(want[i]);
                ratio = (double)got[i] / want[i];
            }
        for (size_t i = 0; i < n; i++) {
            const double d = fabs((double)got[i] - ratio * want[i]);
            if (!(d <= 8 * noise->order_error.most + fabs(want[i]) * 0x1p-20))
                return 0;
            left += d * d;
        }
        if (fabs(ratio - 1) > fabs(worst - 1))
            worst = ratio;
    }
    left = sqrt(left / (double)t->n);
    return n > 2 && isfinite(worst) && worst != 1 && 4 * left <= noise->error[side] ? worst : 0;
}

static void gamma_share(const struct stats *t, struct ds_explain_noise *out)
{
    const struct ds_explain *e = t->m.e;
    const double u = 0x1p-24, k = (double)out->terms, gamma = k * u / (1 - k * u);
    size_t at = 0;
    for (size_t r = 0; r < e->n_rows && e->op == DS_OP_MATMUL; r++)
        for (int64_t c = 0; c < t->m.width; c += t->step, at++) {
            const float *x = e->rows[r].input[DS_SIDE_A].in[0],
                        *w = e->shared.matmul.w.data + c * e->shared.matmul.k;
            double size = 0;
            for (int64_t i = 0; i < e->shared.matmul.k; i++)
                size += fabs((double)x[i] * (double)w[i]);
            for (int s = 0; s < DS_SIDES && size > 0; s++)
                out->gamma[s] = fmax(out->gamma[s],
                                     fabs((double)t->side[s][at] - t->want[at]) / (gamma * size));
        }
}

static int setup(struct stats *t, const struct ds_explain *e, struct ds_error *err)
{
    const size_t room = (size_t)largest_room(e);
    const double all = (double)e->n_rows * (double)t->m.width;
    const double most = fmin(MOST_ELEMENTS, MOST_WORK / work_of(e, terms_of(e)));
    t->step = all > most ? (int64_t)(all / most) + 1 : 1;
    if (t->step > t->m.width)
        t->step = t->m.width;
    if (t->step % 2 == 0 && t->step < t->m.width)
        t->step++; /* columns of all kinds, not those of one lane */
    t->n = e->n_rows * (size_t)((t->m.width + t->step - 1) / t->step);
    float **floats[] = {&t->m.x, &t->m.w, &t->m.p, &t->m.one, &t->m.column};
    int ok = 1;
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++)
        ok &= (*floats[i] = ds_alloc_aligned(room, sizeof(float), "the model", err)) != NULL;
    double **doubles[] = {&t->want, &t->got, &t->order_off, &t->most_off};
    for (size_t i = 0; i < sizeof doubles / sizeof doubles[0]; i++)
        ok &= (*doubles[i] = ds_calloc(t->n, sizeof(double), "the model", err)) != NULL;
    for (int s = 0; s < DS_SIDES; s++)
        ok &= (t->side[s] = ds_calloc(t->n, sizeof(float), "the model", err)) != NULL;
    ok &= (t->row = ds_calloc((size_t)t->m.width, sizeof *t->row, "the model", err)) != NULL;
    ok &= (t->m.pd = ds_calloc(room, sizeof *t->m.pd, "the model", err)) != NULL;
    ok &= (t->m.turn = ds_calloc(room, sizeof *t->m.turn, "the model", err)) != NULL;
    ok &= (t->orders = ds_calloc(t->n * DS_EXPLAIN_ORDERS, sizeof *t->orders, "the model", err)) !=
          NULL;
    for (size_t i = 0; i < room && t->m.one; i++)
        t->m.one[i] = 1.0f;
    return ok ? 0 : -1;
}

static void release(struct stats *t)
{
    void *all[] = {
        t->m.x,  t->m.w,    t->m.p,       t->m.one,    t->m.column,        t->want,
        t->got,  t->row,    t->order_off, t->most_off, t->side[DS_SIDE_A], t->side[DS_SIDE_B],
        t->m.pd, t->m.turn, t->orders};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

static void take_sides(struct stats *t)
{
    const struct ds_explain *e = t->m.e;
    size_t at = 0;
    for (size_t r = 0; r < e->n_rows; r++)
        for (int64_t c = 0; c < t->m.width; c += t->step, at++) {
            t->want[at] = t->exact[(int64_t)r * t->m.width + c];
            for (int s = 0; s < DS_SIDES; s++)
                t->side[s][at] = e->rows[r].y[s][c];
        }
}

int ds_explain_noise(const struct ds_explain *e, const double *exact, struct ds_explain_noise *out,
                     struct ds_error *err)
{
    struct stats t = {.m = {.e = e, .width = ds_explain_width(e->op, &e->shared)}, .exact = exact};
    memset(out, 0, sizeof *out);
    if (setup(&t, e, err) != 0) {
        release(&t);
        return -1;
    }
    take_sides(&t);
    out->terms = terms_of(e);
    out->elements = t.n;
    out->size = rms(t.want, NULL, t.n);
    for (int s = 0; s < DS_SIDES; s++)
        out->error[s] = rms_side(t.side[s], t.want, t.n);
    out->difference = rms_floats(t.side[DS_SIDE_B], t.side[DS_SIDE_A], t.n);
    run_orders(&t, out);
    run_formats(&t, out);
    for (int s = 0; s < DS_SIDES; s++) {
        look_at_elements(&t, s, out);
        out->ratio[s] = ratio_of(&t, s, out);
    }
    gamma_share(&t, out);
    release(&t);
    int rc = 0;
    for (int s = 0; s < DS_SIDES && rc == 0; s++)
        if (out->error[s] > 2 * out->order_error.most || out->outside[s])
            rc = ds_explain_data(e, exact, s, out->order_error.most, out->data[s],
                                 sizeof out->data[s], err);
    for (int s = 0; s < DS_SIDES; s++)
        ds_explain_blocks(e, s, &out->block_bits[s], &out->block_size[s]);
    return rc;
}
