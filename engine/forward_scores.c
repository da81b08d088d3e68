/* forward_scores.c: attn_scores and attn_probs, when they are asked for: what a fused attention kernel
 * keeps to itself, recomputed beside it for the recorded rows. Nobody reads them: the kernel that runs,
 * its inputs and its output are the same with and without. Owns their arithmetic; must not know which
 * attention kernel runs.
 *
 *   attn_scores  (sum of q[d] * k[d] in f64, ascending d) * scale, soft cap * tanh(score / soft cap) in
 *                f64 where the model has one, rounded once to f32 and then to the activation type: in f16 a
 *                score from 65520 on is Inf, as it is in an engine that stores f16 scores.
 *   attn_probs   softmax/pinned (kernels/PINNED.md) of the stored scores, then rounded to the activation
 *                type.
 *
 * q are the rows of q_rope as stored, also where the attention kernel reads them before rounding; k is
 * what stands in the cache. A row is [heads][keys]: the keys that it sees in their order, the first one
 * first (padding and what lies before a window left out), then +0 up to the row's width. Keys beyond
 * that (a wrong length, right padding) are left out. Each head of each row is computed by one thread.
 * NaN is stored as 7fc00000. */
#include "engine/forward_private.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "engine/round.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int ds_forward_scores_new(struct ds_forward *f, const struct ds_site *sites, size_t n,
                          struct ds_error *err)
{
    const int64_t heads = f->m->hp.n_heads;
    static const int stages[] = {DS_ST_ATTN_SCORES, DS_ST_ATTN_PROBS};
    for (int32_t layer = 0; layer < f->m->hp.n_layers; layer++)
        for (size_t s = 0; s < sizeof stages / sizeof stages[0]; s++) {
            uint32_t at = ds_site_map_at(f->map, stages[s], layer, 0);
            if (at == DS_NO_SITE)
                continue;
            int64_t width = at < n ? sites[at].width : 0;
            if (width < heads || width % heads || width > INT32_MAX ||
                (f->score_keys && width != f->score_keys * heads))
                return ds_fail(err, "layer %d %s: a row of %lld elements is none of %lld heads",
                               (int)layer, ds_stage(stages[s])->name, (long long)width,
                               (long long)heads);
            f->score_keys = width / heads;
        }
    return 0;
}

void ds_forward_scores_free(struct ds_forward *f)
{
    free(f->scores);
    free(f->half_scores);
}

static int make_room(struct ds_forward *f, struct ds_error *err)
{
    const size_t rows = f->n_rec,
                 row = (size_t)(f->score_keys * f->m->hp.n_heads) * sizeof *f->scores;
    if (rows <= f->score_rows)
        return 0;
    ds_forward_scores_free(f);
    f->score_rows = 0;
    f->half_scores = NULL;
    if (!(f->scores = ds_alloc_aligned(rows, row, "attention scores", err)) ||
        (f->config.dtype != DS_F32 &&
         !(f->half_scores = ds_alloc_aligned(rows, row / 2, "16-bit attention scores", err))))
        return -1;
    f->score_rows = rows;
    return 0;
}

/* One layer of a call. */
struct scoring {
    struct ds_forward *f;
    struct ds_attention_args a;
    const struct ds_kernel *softmax;
    int probs;
};

/* Slots that a recorded row sees: begin..end-1, no more than a row has room for. */
static void visible(const struct scoring *w, int32_t row, const struct ds_sequence **of,
                    int64_t *begin, int64_t *end)
{
    const struct ds_attention_args *a = &w->a;
    const struct ds_sequence *s = a->sequences;
    for (int64_t i = 1; i < a->n_sequences && a->sequences[i].q_first <= row; i++)
        s = &a->sequences[i];
    *of = s;
    *end = (int64_t)s->kv_len - s->q_len + (row - s->q_first) + 1;
    *begin = a->window && *end - a->window > s->kv_first ? *end - a->window : s->kv_first;
    if (*end < *begin)
        *end = *begin;
    if (*end - *begin > w->f->score_keys)
        *end = *begin + w->f->score_keys;
}

static float one_score(const struct ds_attention_args *a, const float *q, const float *k)
{
    double sum = 0;
    for (int64_t d = 0; d < a->head_dim; d++)
        sum += (double)q[d] * (double)k[d];
    sum *= (double)a->scale;
    if (a->soft_cap > 0.0f)
        sum = (double)a->soft_cap * tanh(sum / (double)a->soft_cap);
    return isnan(sum) ? ds_f32_from_bits(0x7fc00000u) : (float)sum;
}

/* One head of recorded row i: its scores, or, of the scores that stand there, their softmax. */
static void one_head(const struct scoring *w, int64_t i, int64_t head)
{
    struct ds_forward *f = w->f;
    const struct ds_attention_args *a = &w->a;
    const size_t keys = (size_t)f->score_keys, at = (size_t)(i * a->heads + head) * keys;
    float *y = f->scores + at;
    uint16_t *half = f->half_scores ? f->half_scores + at : NULL;
    const struct ds_sequence *s;
    int64_t begin, end, kv_head = head / (a->heads / a->kv_heads);
    visible(w, f->rec[i].slot, &s, &begin, &end);
    const float *q = a->q + f->rec[i].slot * a->ldq + head * a->head_dim;
    for (int64_t t = begin; t < end && !w->probs; t++) {
        int64_t row = s->pages[t / a->page_size] * a->page_size + t % a->page_size;
        y[t - begin] = one_score(a, q, a->cache_k + (row * a->kv_heads + kv_head) * a->head_dim);
    }
    if (w->probs && end > begin) {
        const struct ds_exec alone = {.threads = 1};
        char why[64];
        if (half)
            ds_widen_many(f->config.dtype, y, half, keys);
        const struct ds_softmax_args x = {.rows = 1,
                                          .width = end - begin,
                                          .x = y,
                                          .ldx = end - begin,
                                          .y = y,
                                          .ldy = end - begin};
        w->softmax->launch(&x, &alone, why, sizeof why);
    }
    memset(y + (end - begin), 0, (keys - (size_t)(end - begin)) * sizeof *y);
    if (half)
        ds_round_many(f->config.dtype, half, y, keys);
}

static void share(void *arg, int thread, int threads)
{
    const struct scoring *w = arg;
    long begin, end;
    ds_team_share((long)w->f->n_rec * (long)w->a.heads, 1, thread, threads, &begin, &end);
    for (long i = begin; i < end; i++)
        one_head(w, i / w->a.heads, i % w->a.heads);
}

static int show(struct ds_pass *p, int stage)
{
    struct ds_forward *f = p->f;
    const size_t element = ds_dtype_size(f->config.dtype),
                 width = (size_t)(f->score_keys * f->m->hp.n_heads);
    if (!f->launch_known[stage])
        ds_pass_describe(f, stage, NULL);
    if (!ds_forward_host(f) && ds_log_flush(p) != 0)
        return -1;
    /* Their numbers: row i of what is shown is recorded row i. */
    const uint32_t *all = (const uint32_t *)f->own_row;
    return ds_probe_site(p->probe, ds_site_map_at(f->map, stage, p->layer, 0), &f->launch[stage],
                         f->half_scores ? (void *)f->half_scores : f->scores, width * element,
                         (uint32_t)width, all, f->n_rec, p->err);
}

/* From a device: queries of the call and the layer's keys, for the host. */
static int bring_inputs(struct ds_pass *p, struct ds_attention_args *a)
{
    struct ds_forward *f = p->f;
    const size_t q = (size_t)f->config.max_rows * (size_t)f->q_dim * sizeof *f->score_q,
                 k = (size_t)(f->cache.pages * f->cache.page_size * f->kv_dim) * sizeof *f->score_k;
    if ((!f->score_q && !(f->score_q = ds_alloc(q, "queries of a device", p->err))) ||
        (!f->score_k && !(f->score_k = ds_alloc(k, "keys of a device", p->err))) ||
        ds_desk_bring(f, f->score_q, a->q, (size_t)(f->rows * f->q_dim), p->err) != 0 ||
        ds_desk_bring(f, f->score_k, a->cache_k, k / sizeof *f->score_k, p->err) != 0)
        return -1;
    a->q = f->score_q;
    a->cache_k = f->score_k;
    return 0;
}

int ds_pass_scores(struct ds_pass *p)
{
    struct ds_forward *f = p->f;
    if (!p->probe || !f->n_rec || !f->score_keys)
        return 0;
    struct scoring w = {.f = f, .softmax = ds_kernel_find(DS_OP_SOFTMAX, "pinned")};
    if (make_room(f, p->err) != 0)
        return -1;
    ds_forward_attention_args(f, p->layer, &w.a);
    w.a.q = f->at.q_rope;
    if (!ds_forward_host(f) && bring_inputs(p, &w.a) != 0)
        return -1;
    for (w.probs = 0; w.probs < 2; w.probs++) {
        const int stage = w.probs ? DS_ST_ATTN_PROBS : DS_ST_ATTN_SCORES;
        if (ds_site_map_at(f->map, stage, p->layer, 0) == DS_NO_SITE)
            continue;
        ds_team_run(f->team, share, &w);
        if (show(p, stage) != 0)
            return -1;
    }
    return 0;
}
