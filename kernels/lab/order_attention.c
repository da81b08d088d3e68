/* order_attention.c: attention's sum of values as a grid: rows of the call by channels of all heads.
 * All scores are 0, so every weight is exp(0) = 1 and the output is the sum of values over the number
 * of slots. Owns the call and the search for how that division is made. */
#include "kernels/lab/order_attention.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static const float SCALE = 0.125f;

/* ---- the call -------------------------------------------------------------------------------- */

int ds_order_attention_open(const struct ds_order_setting *s, int64_t rows, int64_t slots,
                            struct ds_order_attention *at, struct ds_error *err)
{
    const int64_t heads = s->shape.heads, kv = s->shape.kv_heads, dim = s->shape.head_dim;
    const int64_t queries = s->queries > 1 ? s->queries : 1, each = queries + s->after,
                  all = rows * each, kept = slots + s->after;
    memset(at, 0, sizeof *at);
    at->call = (struct ds_order_call){.kernel = s->kernel, .threads = s->threads, .team = s->team};
    at->slots = slots;
    at->queries = queries;
    at->each = each;
    at->q = ds_alloc_aligned((size_t)(all * heads * dim), sizeof *at->q, "queries", err);
    at->k = ds_alloc_aligned((size_t)(kept * kv * dim), sizeof *at->k, "keys", err);
    at->v = ds_alloc_aligned((size_t)(kept * kv * dim), sizeof *at->v, "values", err);
    at->y = ds_alloc_aligned((size_t)(all * heads * dim), sizeof *at->y, "outputs", err);
    at->sequences = ds_calloc((size_t)rows, sizeof *at->sequences, "sequences", err);
    if (!at->q || !at->k || !at->v || !at->y || !at->sequences)
        return -1;
    for (int64_t r = 0; r < rows; r++)
        at->sequences[r] = (struct ds_sequence){.request = (int32_t)r,
                                                .q_first = (int32_t)(r * each),
                                                .q_len = (int32_t)each,
                                                .kv_len = (int32_t)kept,
                                                .pages = &at->page};
    for (int64_t i = 0; i < all * heads; i++)
        at->q[i * dim] = 1.0f;
    at->a = (struct ds_attention_args){.rows = all,
                                       .heads = heads,
                                       .kv_heads = kv,
                                       .head_dim = dim,
                                       .scale = SCALE,
                                       .q = at->q,
                                       .ldq = heads * dim,
                                       .cache_k = at->k,
                                       .cache_v = at->v,
                                       .page_size = kept,
                                       .pages = 1,
                                       .sequences = at->sequences,
                                       .n_sequences = rows,
                                       .max_q_len = (int32_t)each,
                                       .max_kv_len = (int32_t)kept,
                                       .y = at->y,
                                       .ldy = heads * dim};
    return 0;
}

void ds_order_attention_close(struct ds_order_attention *at)
{
    ds_order_call_free(&at->call);
    free(at->q);
    free(at->k);
    free(at->v);
    free(at->y);
    free(at->sequences);
    memset(at, 0, sizeof *at);
}

int ds_order_attention_launch(struct ds_order_attention *at, struct ds_error *err)
{
    at->launches++;
    return ds_order_launch(&at->call, &at->a, err);
}

const float *ds_order_attention_seen(const struct ds_order_attention *at, int64_t request)
{
    return at->y + (request * at->each + at->queries - 1) * at->a.ldy;
}

void ds_order_attention_score(struct ds_order_attention *at, int64_t slot, float score)
{
    for (int64_t h = 0; h < at->a.kv_heads; h++)
        at->k[(slot * at->a.kv_heads + h) * at->a.head_dim] = score / SCALE;
}

/* ---- the values as a grid -------------------------------------------------------------------- */

static int launch(struct ds_grid *g, struct ds_error *err)
{
    struct ds_order_attention *at = g->self;
    for (int64_t c = 0; g->w_changed && c < g->contents; c++)
        for (int64_t s = 0; s < g->terms; s++)
            at->v[s * g->contents + c] = g->w[c * g->terms + s];
    g->w_changed = 0;
    if (ds_order_attention_launch(at, err) != 0)
        return -1;
    for (int64_t r = 0; r < g->rows; r++)
        memcpy(g->y + r * g->columns, ds_order_attention_seen(at, r),
               (size_t)g->columns * sizeof *g->y);
    return 0;
}

/* How a sum becomes an output: a value in the first slot alone shows it. */
static int find_finish(struct ds_grid *g, struct ds_error *err)
{
    int divide = 1, reciprocal = 1;
    const float inverse = 1.0f / g->divisor;
    memset(g->w, 0, (size_t)(g->contents * g->terms) * sizeof *g->w);
    for (int64_t trial = 0; trial < 32; trial++) {
        for (int64_t c = 0; c < g->contents; c++)
            g->w[c * g->terms] = 1.0f + (float)(trial * g->contents + c) * 0x1.3p-15f;
        g->w_changed = 1;
        if (ds_grid_launch(g, err) != 0)
            return -1;
        for (int64_t c = 0; c < g->columns; c++) {
            float v = g->w[ds_grid_content(g, c) * g->terms];
            divide &= ds_f32_bits(g->y[c]) == ds_f32_bits(v / g->divisor);
            reciprocal &= ds_f32_bits(g->y[c]) == ds_f32_bits(v * inverse);
        }
    }
    g->finish = divide ? DS_FINISH_DIVIDE : reciprocal ? DS_FINISH_RECIPROCAL : DS_FINISH_PARTS;
    return 0;
}

static int measure_values(const struct ds_order_setting *s, struct ds_order_library *lib,
                          struct ds_order *out, struct ds_error *err)
{
    const int64_t dim = s->shape.head_dim, group = s->shape.heads / s->shape.kv_heads;
    struct ds_order_attention at;
    struct ds_grid g = {.rows = s->rows,
                        .columns = s->shape.heads * dim,
                        .contents = s->shape.kv_heads * dim,
                        .terms = s->visible,
                        .divisor = (float)s->visible,
                        .self = &at,
                        .launch = launch};
    struct ds_order_sum *sum = &out->sum[out->n_sums++];
    int32_t *content = ds_calloc((size_t)g.columns, sizeof *content, "channels", err);
    int rc = ds_order_attention_open(s, s->rows, s->visible, &at, err);
    *sum = (struct ds_order_sum){.name = "values", .unit = "slots", .note = "scores equal"};
    for (int64_t c = 0; c < g.columns && content; c++)
        content[c] = (int32_t)(c / dim / group * dim + c % dim);
    g.content_of = content;
    if (rc == 0)
        rc = content && ds_grid_alloc(&g, 0, err) == 0 ? find_finish(&g, err) : -1;
    if (rc == 0)
        rc = ds_grid_measure(&g, lib, sum, err);
    out->launches += g.launches;
    ds_order_attention_close(&at);
    ds_grid_free(&g);
    free(content);
    return rc;
}

/* Of a long denominator few triples were asked; whole outputs are its proof. */
static void say_sampled(const struct ds_order_setting *s, struct ds_order *out)
{
    struct ds_order_sum *denominator = &out->sum[1];
    if (ds_triples_are_sampled(s->visible) && denominator->classes[0].tree >= 0 &&
        (!out->whole.compared || out->whole.reproduced < out->whole.compared))
        denominator->note = "of row 0, head 0; a regular order that 1000 questions agree with, and "
                            "no replay proves";
}

int ds_order_attention(const struct ds_order_setting *s, struct ds_order_library *lib,
                       struct ds_order *out, struct ds_error *err)
{
    if (measure_values(s, lib, out, err) != 0)
        return -1;
    if (ds_order_denominator(s, lib, out, err) != 0 || ds_order_scores(s, lib, out, err) != 0)
        return -1;
    const int rc = s->whole ? ds_order_whole(s, lib, out, err) : 0;
    say_sampled(s, out);
    return rc;
}
