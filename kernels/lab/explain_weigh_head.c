/* explain_weigh_head.c: one head along measured trees by one form: its exp, its parts and how they are
 * merged. Knows no kernel. */
#include "kernels/lab/explain_weigh.h"

#include <math.h>
#include <string.h>

/* ---- exp and tanh ---------------------------------------------------------------------------- */

/* The exp of kernels/PINNED.md. */
static float pinned_exp(float x)
{
    x = x < -104.0f ? -104.0f : x;
    x = 89.0f < x ? 89.0f : x;
    const float n = fmaf(x, 0x1.715476p+0f, 12582912.0f) - 12582912.0f,
                r = fmaf(n, 0x1.05c610p-29f, fmaf(n, -0x1.62e430p-1f, x));
    float p = 0x1.6a2256p-10f;
    p = fmaf(p, r, 0x1.123b02p-7f);
    p = fmaf(p, r, 0x1.5558f8p-5f);
    p = fmaf(p, r, 0x1.555490p-3f);
    p = fmaf(p, r, 0x1.fffffcp-2f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    const float h = floorf(n / 2.0f);
    return p * ldexpf(1.0f, (int)h) * ldexpf(1.0f, (int)(n - h));
}

float ds_weigh_exp(int exp, float x)
{
    return exp == DS_EXP_LIBM ? expf(x) : pinned_exp(x);
}

/* The tanh of kernels/PINNED.md. */
static float pinned_tanh(float x)
{
    if (!(fabsf(x) < 0.625f)) {
        const float e = pinned_exp(fabsf(x) + fabsf(x));
        return copysignf(1.0f - 2.0f / (e + 1.0f), x);
    }
    const float z = x * x;
    float p = -0x1.75e1cap-8f;
    p = fmaf(p, z, 0x1.52269ap-6f);
    p = fmaf(p, z, -0x1.b83c5ap-5f);
    p = fmaf(p, z, 0x1.110726p-3f);
    p = fmaf(p, z, -0x1.555532p-2f);
    return fmaf(p, z * x, x);
}

float ds_weigh_tanh(int exp, float x)
{
    return exp == DS_EXP_LIBM ? tanhf(x) : pinned_tanh(x);
}

float ds_weigh_term(const struct ds_weigh_form *f, float x, float max)
{
    return x == -INFINITY ? 0.0f : ds_weigh_exp(f->exp, x - max);
}

/* ---- parts of trees -------------------------------------------------------------------------- */

int ds_weigh_parts(const struct ds_tree *t, int cut, struct ds_weigh_part *out, int most)
{
    int n = 0;
    int32_t v = t->root;
    int64_t end = t->terms;
    for (;;) {
        const int32_t a = t->node[v].first, b = a >= 0 ? t->node[a].next : -1;
        const int splits =
            t->node[v].children == 2 && t->node[b].min > 0 && t->node[a].min == 0 &&
            t->node[b].min + t->node[b].size == end &&
            (cut == 2 || (t->node[a].size > 1 && ((cut == 1 && n == 0) || t->node[b].size > 1)));
        if (n == most)
            return 0;
        if (!splits) {
            out[n++] = (struct ds_weigh_part){0, end, 0, 0};
            break;
        }
        out[n++] = (struct ds_weigh_part){t->node[b].min, end, 0, 0};
        end = t->node[b].min;
        v = a;
    }
    for (int i = 0, j = n - 1; i < j; i++, j--) {
        const struct ds_weigh_part swap = out[i];
        out[i] = out[j];
        out[j] = swap;
    }
    return n;
}

/* ---- one part -------------------------------------------------------------------------------- */

static const float *value(const struct ds_weigher *w, const struct ds_explain_input *in,
                          int64_t slot, int64_t head)
{
    const struct ds_attention_args *a = &w->e->shared.attention;
    return in->v + ((w->before + slot) * a->kv_heads + head / (a->heads / a->kv_heads)) * w->dim;
}

/* One sum over a range by the whole tree: terms outside are +0, which no order can tell from none. */
static float sum_range(const struct ds_weigher *w, int32_t tree, const struct ds_weigh_part *p,
                       const float *x)
{
    for (int64_t j = 0; j < w->slots; j++)
        w->column[j] = j >= p->begin && j < p->end ? x[j] : 0.0f;
    return ds_replay_one(&w->replay[tree], w->column, w->ones, w->room);
}

static const float *sink_of(const struct ds_weigher *w, int64_t head)
{
    const float *sinks = w->e->op == DS_OP_ATTENTION ? w->e->shared.attention.sinks : NULL;
    return sinks ? sinks + head : NULL;
}

/* A sink that is not merged last is there before the first slot. */
static float first_max(const struct ds_weigher *w, const struct ds_weigh_form *f, int64_t head)
{
    const float *sink = sink_of(w, head);
    return sink && !f->sink_last ? *sink : -INFINITY;
}

void ds_weigh_whole(const struct ds_weigher *w, const struct ds_weigh_form *f,
                    const struct ds_explain_input *in, int64_t row, int64_t head,
                    struct ds_weigh_part *p, float *acc)
{
    p->max = first_max(w, f, head);
    for (int64_t j = p->begin; j < p->end; j++)
        p->max = w->score[j] > p->max ? w->score[j] : p->max;
    for (int64_t j = 0; j < w->slots; j++)
        w->p[j] = j >= p->begin && j < p->end ? ds_weigh_term(f, w->score[j], p->max) : 0.0f;
    p->sum = sum_range(w, w->den, p, w->p);
    for (int64_t d = 0; d < w->dim; d++) {
        const int32_t tree =
            w->o->tree_of[row * w->e->shared.attention.heads * w->dim + head * w->dim + d];
        for (int64_t j = 0; j < w->slots; j++)
            w->column[j] = j >= p->begin && j < p->end ? value(w, in, j, head)[d] : 0.0f;
        acc[d] = tree < 0 ? NAN
                          : ds_replay_one(&(f->fma ? w->fused : w->replay)[tree], w->p, w->column,
                                          w->room);
    }
}

/* A block joins what stands there: its terms are taken off a maximum that knows it. */
static void weigh_block(const struct ds_weigher *w, const struct ds_weigh_form *f,
                        const struct ds_explain_input *in, int64_t head,
                        const struct ds_weigh_part *b, struct ds_weigh_part *p, float *acc)
{
    float max = p->max;
    for (int64_t j = b->begin; j < b->end; j++)
        max = w->score[j] > max ? w->score[j] : max;
    const float old = p->max == max         ? 1.0f
                      : p->max == -INFINITY ? 0.0f
                                            : ds_weigh_term(f, p->max, max);
    for (int64_t j = b->begin; j < b->end; j++)
        w->p[j] = ds_weigh_term(f, w->score[j], max);
    p->sum = p->sum * old + sum_range(w, w->den, b, w->p);
    p->max = max;
    for (int64_t d = 0; d < w->dim; d++) {
        acc[d] *= old;
        for (int64_t j = b->begin; j < b->end; j++) {
            const float v = value(w, in, j, head)[d];
            acc[d] = f->fma ? fmaf(w->p[j], v, acc[d]) : acc[d] + w->p[j] * v;
        }
    }
}

static void weigh_running(const struct ds_weigher *w, const struct ds_weigh_form *f,
                          const struct ds_explain_input *in, int64_t head,
                          const struct ds_weigh_part *blocks, int n, struct ds_weigh_part *p,
                          float *acc)
{
    p->max = first_max(w, f, head);
    p->sum = 0;
    memset(acc, 0, (size_t)w->dim * sizeof *acc);
    for (int i = 0; i < n; i++) {
        struct ds_weigh_part b = blocks[i];
        b.begin = b.begin > p->begin ? b.begin : p->begin;
        b.end = b.end < p->end ? b.end : p->end;
        if (b.begin < b.end)
            weigh_block(w, f, in, head, &b, p, acc);
    }
}

/* ---- merging --------------------------------------------------------------------------------- */

/* Weights of parts by log-sum-exp; each part's values are divided by its own sum. */
static void merge_lse(const struct ds_weigher *w, const struct ds_weigh_part *part, int n,
                      float *acc)
{
    float lse[DS_WEIGH_MOST_PARTS], max = -INFINITY, z = 0;
    for (int i = 0; i < n; i++) {
        lse[i] = part[i].max + logf(part[i].sum);
        max = lse[i] > max ? lse[i] : max;
    }
    for (int i = 0; i < n; i++)
        z += expf(lse[i] - max);
    for (int64_t d = 0; d < w->dim; d++) {
        acc[d] = 0;
        for (int i = 0; i < n; i++)
            acc[d] += w->part_acc[i * w->dim + d] / part[i].sum * expf(lse[i] - (max + logf(z)));
    }
}

static float merge_largest(const struct ds_weigher *w, const struct ds_weigh_form *f,
                           const struct ds_weigh_part *part, int n, float *acc)
{
    float max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        max = part[i].max > max ? part[i].max : max;
    memset(acc, 0, (size_t)w->dim * sizeof *acc);
    for (int i = 0; i < n; i++) {
        const float g = ds_weigh_term(f, part[i].max, max);
        sum += part[i].sum * g;
        for (int64_t d = 0; d < w->dim; d++)
            acc[d] += w->part_acc[i * w->dim + d] * g;
    }
    return sum;
}

static float merge_fma(const struct ds_weigher *w, const struct ds_weigh_form *f,
                       const struct ds_weigh_part *part, int n, float *acc)
{
    float max = part[0].max, sum = part[0].sum;
    memcpy(acc, w->part_acc, (size_t)w->dim * sizeof *acc);
    for (int i = 1; i < n; i++) {
        const float m = part[i].max > max ? part[i].max : max, old = ds_weigh_term(f, max, m),
                    g = ds_weigh_term(f, part[i].max, m);
        sum = fmaf(sum, old, part[i].sum * g);
        for (int64_t d = 0; d < w->dim; d++)
            acc[d] = fmaf(acc[d], old, w->part_acc[i * w->dim + d] * g);
        max = m;
    }
    return sum;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* The blocks before each of which the maximum moves on; 0: there are none. */
static int cut_blocks(const struct ds_weigher *w, const struct ds_weigh_form *f)
{
    if (f->running == DS_MAX_BY_BLOCK)
        return ds_weigh_parts(&w->o->trees[w->den].tree, 2, w->blocks, w->most_blocks);
    for (int64_t j = 0; j < w->slots; j++)
        w->blocks[j] = (struct ds_weigh_part){j, j + 1, 0, 0};
    return (int)w->slots;
}

/* The parts that the row sees anything of, from its window's first slot on; 0: the trees are not of the form. */
static int visible_parts(const struct ds_weigher *w, const struct ds_weigh_form *f,
                         struct ds_weigh_part *part)
{
    int n = 1, kept = 0;
    part[0] = (struct ds_weigh_part){0, w->slots, 0, 0};
    if (f->merge != DS_MERGE_NONE)
        n = ds_weigh_parts(&w->o->trees[w->values].tree, f->cut, part, DS_WEIGH_MOST_PARTS);
    for (int i = 0; i < n; i++) {
        part[i].begin = part[i].begin > w->from ? part[i].begin : w->from;
        if (part[i].begin < part[i].end)
            part[kept++] = part[i];
    }
    return kept;
}

/* The sink is one more part, without values; or it was in the maximum, and joins the sum. */
static float add_sink(const struct ds_weigher *w, const struct ds_weigh_form *f, int64_t head,
                      float max, float sum)
{
    const float *sink = sink_of(w, head);
    if (!sink)
        return sum;
    if (!f->sink_last)
        return sum + ds_weigh_term(f, *sink, max);
    const float n = *sink > max ? *sink : max, old = ds_weigh_term(f, max, n),
                g = ds_weigh_term(f, *sink, n);
    for (int64_t d = 0; d < w->dim; d++)
        w->acc[d] = fmaf(w->acc[d], old, 0.0f * g);
    return fmaf(sum, old, g);
}

/* Of the parts one sum, and their values in w->acc. */
static float merge(const struct ds_weigher *w, const struct ds_weigh_form *f,
                   const struct ds_weigh_part *part, int n, float *max)
{
    *max = part[0].max;
    for (int i = 1; i < n; i++)
        *max = part[i].max > *max ? part[i].max : *max;
    if (n == 1)
        return part[0].sum;
    if (f->merge == DS_MERGE_LARGEST)
        return merge_largest(w, f, part, n, w->acc);
    if (f->merge == DS_MERGE_FMA)
        return merge_fma(w, f, part, n, w->acc);
    merge_lse(w, part, n, w->acc);
    return 1.0f;
}

int ds_weigh_head(const struct ds_weigher *w, const struct ds_weigh_form *f,
                  const struct ds_explain_input *in, int64_t row, int64_t head, float *y)
{
    struct ds_weigh_part part[DS_WEIGH_MOST_PARTS];
    int n_blocks = 0;
    const int n = visible_parts(w, f, part);
    if (n < 1 || (f->running && (n_blocks = cut_blocks(w, f)) < 1) ||
        (sink_of(w, head) && (f->merge == DS_MERGE_LSE || (n > 1 && !f->sink_last))))
        return 0;
    for (int i = 0; i < n; i++) {
        float *acc = n == 1 ? w->acc : w->part_acc + i * w->dim;
        if (f->running)
            weigh_running(w, f, in, head, w->blocks, n_blocks, &part[i], acc);
        else
            ds_weigh_whole(w, f, in, row, head, &part[i], acc);
    }
    float max;
    const float sum = merge(w, f, part, n, &max), all = add_sink(w, f, head, max, sum);
    for (int64_t d = 0; d < w->dim; d++)
        y[d] = f->reciprocal ? w->acc[d] * (1.0f / all) : w->acc[d] / all;
    return 1;
}
