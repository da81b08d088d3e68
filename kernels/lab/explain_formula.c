/* explain_formula.c: see explain_formula.h. */
#include "kernels/lab/explain_formula.h"

#include "base/dtype.h"

#include <math.h>

enum { MOST_LANES = 32 };

/* ---- orders ---------------------------------------------------------------------------------- */

static uint64_t mixed(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

struct ds_formula_spec ds_formula_order(int number, int sums)
{
    const uint64_t h = mixed((uint64_t)(number + 1) * 0x9e3779b97f4a7c15u);
    return (struct ds_formula_spec){.format = -1,
                                    .sums = sums,
                                    .parts = sums >= 0 ? 2 << (number & 1) : 1 << (number & 3),
                                    .lanes = 1 << (number >> 2) % 6,
                                    .fma = (number ^ number >> 2) & 1,
                                    .pairs = h >> 17 & 1,
                                    .shuffled = number >= 24,
                                    .seed = h};
}

static void shuffle(struct ds_formula *m, const struct ds_formula_spec *s, int64_t n)
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

static float add_lanes(const struct ds_formula_spec *s, float *lane)
{
    for (int half = s->lanes / 2; s->pairs && half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    for (int i = 1; !s->pairs && i < s->lanes; i++)
        lane[0] += lane[i];
    return lane[0];
}

/* The sum of x[k] * w[k]. */
static double add_up(struct ds_formula *m, const struct ds_formula_spec *s, const float *x,
                     const float *w, int64_t n)
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
        const float part = ds_format_sum(s->sums, add_lanes(s, lane));
        total = p ? ds_format_sum(s->sums, total + part) : part;
    }
    return (double)total;
}

/* ---- the ops --------------------------------------------------------------------------------- */

/* Factors as the spec wants them: in place, or rounded into `room`. */
static const float *factors(const struct ds_formula_spec *s, int which, const float *v, int64_t n,
                            float *room)
{
    if (s->format < 0 || !(s->which & which))
        return v;
    ds_format_factors(s->format, which == 2 ? s->largest : 0, room, v, n);
    return room;
}

static double matmul_one(struct ds_formula *m, const struct ds_formula_spec *s, const float *x,
                         int64_t c)
{
    const struct ds_matmul_args *a = &m->e->shared.matmul;
    const float *w = factors(s, 2, a->w.data + c * a->k, a->k, m->w);
    const double sum = add_up(m, s, x, w, a->k);
    if (!a->bias)
        return sum;
    return s->in_double ? sum + (double)a->bias[c] : (double)((float)sum + a->bias[c]);
}

static void norm_row(struct ds_formula *m, const struct ds_formula_spec *s, const float *x,
                     double *y)
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
static double weigh(struct ds_formula *m, const struct ds_formula_spec *s, const float *q,
                    const float *k, int64_t step, int64_t dim, int64_t slots, int64_t head)
{
    const struct ds_attention_args *a = &m->e->shared.attention;
    const float scale = a->scale, cap = a->soft_cap;
    double max = a->sinks ? (double)a->sinks[head] : (double)-INFINITY, sum = 0;
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
    const double sink = a->sinks ? exp((double)a->sinks[head] - max) : 0;
    return s->in_double ? sum + sink
                        : (double)((float)add_up(m, s, m->p, m->one, slots) + (float)sink);
}

static void attention_row(struct ds_formula *m, const struct ds_formula_spec *s,
                          const struct ds_explain_input *in, double *y)
{
    const struct ds_attention_args *a = &m->e->shared.attention;
    const int64_t step = a->kv_heads * a->head_dim, all = in->slot + 1 - in->kv_first,
                  slots = a->window > 0 && all > a->window ? a->window : all;
    const float *keys = in->k + (all - slots) * step, *values = in->v + (all - slots) * step;
    for (int64_t h = 0; h < a->heads; h++) {
        const int64_t at = h / (a->heads / a->kv_heads) * a->head_dim;
        const float *q = factors(s, 1, in->in[0] + h * a->head_dim, a->head_dim, m->x);
        const double den = weigh(m, s, q, keys + at, step, a->head_dim, slots, h);
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

static void softmax_row(struct ds_formula *m, const struct ds_formula_spec *s, const float *x,
                        double *y)
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

static double gather_one(struct ds_formula *m, const struct ds_formula_spec *s,
                         const float *weights, const float *x, int64_t n, int64_t width, int64_t c)
{
    for (int64_t k = 0; k < n; k++)
        m->column[k] = x[k * width + c];
    return add_up(m, s, weights, factors(s, 2, m->column, n, m->w), n);
}

static double silu_one(const struct ds_formula_spec *s, float g, float u)
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

/* Softmax over all, the largest first; the denominator up or down. */
void ds_formula_weights(const struct ds_explain *e, const struct ds_explain_input *in,
                        int in_double, uint64_t way, double *y)
{
    const struct ds_router_args *a = &e->shared.router;
    const float *x = in->in[0];
    double max = (double)-INFINITY, sum = 0, chosen = 0, last = (double)INFINITY;
    float part = 0;
    int64_t last_at = -1;
    for (int64_t i = 0; i < a->experts; i++)
        max = (double)x[i] > max ? (double)x[i] : max;
    for (int64_t i = 0; i < a->experts; i++) {
        const float v = x[way & 1 ? a->experts - 1 - i : i];
        sum += exp((double)v - max);
        part += expf(v - (float)max);
    }
    for (int64_t k = 0; k < a->top_k; k++) {
        int64_t best = -1;
        for (int64_t i = 0; i < a->experts; i++)
            if (((double)x[i] < last || ((double)x[i] == last && i > last_at)) &&
                (best < 0 || x[i] > x[best]))
                best = i;
        last = best < 0 ? last : (double)x[best];
        last_at = best;
        y[k] = best < 0    ? (double)NAN
               : in_double ? exp(last - max) / sum
               : way & 2   ? (double)(expf(x[best] - (float)max) * (1 / part))
                           : (double)(expf(x[best] - (float)max) / part);
        chosen = in_double ? chosen + y[k] : (double)((float)chosen + (float)y[k]);
    }
    for (int64_t k = 0; k < a->top_k && a->normalise; k++)
        y[k] = in_double ? y[k] / chosen : (double)((float)y[k] / (float)chosen);
}

static void rope_row(const struct ds_formula *m, const struct ds_formula_spec *s,
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

void ds_formula_row(struct ds_formula *m, const struct ds_formula_spec *s,
                    const struct ds_explain_input *in, int64_t step, double *y)
{
    const union ds_any_args *a = &m->e->shared;
    const int64_t n = ds_explain_width_in(m->e->op, a, 0);
    const float *x = m->e->op == DS_OP_EMBED ? a->embed.table + in->number * a->embed.width
                     : m->e->op == DS_OP_ATTENTION || n == 0
                         ? in->in[0]
                         : factors(s, 1, m->e->op == DS_OP_COMBINE ? in->in[1] : in->in[0],
                                   m->e->op == DS_OP_COMBINE ? a->combine.top_k : n, m->x);
    switch (m->e->op) {
    case DS_OP_ROUTER:
        ds_formula_weights(m->e, in, s->in_double, s->seed, y);
        return;
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
