/* order_whole.c: attention's outputs on random scores, along its three measured trees: q.k by the first,
 * exp, the denominator and the values by the others. The trees do not say whose exp it is, which
 * maximum is taken off and how parts are merged: explain_weigh.c tries every known way, and one counts
 * only if it gives every bit of every row. */
#include "kernels/lab/order_attention.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "kernels/lab/content.h"
#include "kernels/lab/explain.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_ROWS = 4, STREAM_Q = 1, STREAM_K, STREAM_V, SEED = 300 };
/* Products of scores and values that one way may cost; there are about a hundred ways. */
static const double MOST_WORK = 1.5e7;

/* Scores about -4..4. */
static void fill(struct ds_order_attention *at, const struct ds_order_setting *s)
{
    const int64_t heads = s->shape.heads * s->shape.head_dim,
                  kv = s->shape.kv_heads * s->shape.head_dim, kept = at->slots + s->after;
    ds_content_fill(at->q, at->a.rows * heads, SEED, STREAM_Q);
    ds_content_fill(at->k, kept * kv, SEED, STREAM_K);
    ds_content_fill(at->v, kept * kv, SEED, STREAM_V);
    at->a.scale = 1.0f;
}

/* Rows of the call as explain sees them; the trees are the library's. */
static int gather(const struct ds_order_setting *s, const struct ds_order_attention *at,
                  struct ds_explain *e, struct ds_explain_order *o, const struct ds_order *found)
{
    const int64_t width = s->shape.heads * s->shape.head_dim;
    for (size_t r = 0; r < e->n_rows; r++) {
        struct ds_explain_row *row = &e->rows[r];
        const int64_t query = (int64_t)r * at->each + at->queries - 1;
        row->input[0] = (struct ds_explain_input){
            .in = {at->q + query * width}, .k = at->k, .v = at->v, .slot = (int32_t)s->visible - 1};
        row->input[1] = row->input[0];
        row->y[0] = row->y[1] = ds_order_attention_seen(at, (int64_t)r);
        o->den_of[r] = found->sum[1].classes[0].tree;
        o->scores_of[r] = found->sum[2].classes[0].tree;
        for (int64_t c = 0; c < width; c++) {
            const struct ds_order_sum *values = &found->sum[0];
            o->tree_of[(int64_t)r * width + c] =
                values->classes[values->class_of[(int64_t)r * values->columns + c]].tree;
        }
    }
    return 0;
}

static int replay(const struct ds_order_setting *s, const struct ds_order_attention *at,
                  const struct ds_order_library *lib, struct ds_order *out, struct ds_error *err)
{
    const int64_t width = s->shape.heads * s->shape.head_dim;
    struct ds_explain e = {.op = DS_OP_ATTENTION,
                           .shared.attention = at->a,
                           .side = {{.kernel = s->kernel, .threads = s->threads, .dtype = DS_F32},
                                    {.kernel = s->kernel, .threads = s->threads, .dtype = DS_F32}},
                           .n_rows = (size_t)(s->rows < MOST_ROWS ? s->rows : MOST_ROWS)};
    struct ds_explain_order o = {.fixed = 1, .n_trees = lib->n};
    e.rows = ds_calloc(e.n_rows, sizeof *e.rows, "rows", err);
    o.trees = ds_calloc(lib->n, sizeof *o.trees, "trees", err);
    o.tree_of = ds_calloc(e.n_rows * (size_t)width, sizeof *o.tree_of, "trees", err);
    o.den_of = ds_calloc(e.n_rows, sizeof *o.den_of, "trees", err);
    o.scores_of = ds_calloc(e.n_rows, sizeof *o.scores_of, "trees", err);
    o.cut_of = ds_calloc(e.n_rows, sizeof *o.cut_of, "trees", err);
    int rc = e.rows && o.trees && o.tree_of && o.den_of && o.scores_of && o.cut_of ? 0 : -1;
    for (size_t i = 0; i < lib->n && rc == 0; i++)
        o.trees[i].tree = *lib->tree[i]; /* its nodes stay the library's */
    if (rc == 0)
        rc = gather(s, at, &e, &o, out);
    if (rc == 0)
        rc = ds_explain_weigh(&e, 0, &o, err);
    if (rc == 0 && o.replayed) {
        ds_weigh_form_text(o.form, out->whole.way, sizeof out->whole.way);
        out->whole.compared = o.match.elements;
        out->whole.reproduced = o.match.same[0];
    } else if (rc == 0) {
        snprintf(out->whole.why, sizeof out->whole.why, "%s", o.not_replayed);
    }
    free(e.rows);
    free(o.trees);
    free(o.tree_of);
    free(o.den_of);
    free(o.scores_of);
    free(o.cut_of);
    free(o.y);
    return rc;
}

int ds_order_whole(const struct ds_order_setting *s, const struct ds_order_library *lib,
                   struct ds_order *out, struct ds_error *err)
{
    const double work = (double)s->visible * (double)(s->shape.heads * s->shape.head_dim) * 2;
    struct ds_order_attention at;
    if (out->n_sums != 3 || !out->sum[0].fixed)
        return 0;
    if (work > MOST_WORK) {
        snprintf(out->whole.why, sizeof out->whole.why, "that many slots and heads take too long");
        return 0;
    }
    int rc = ds_order_attention_open(s, s->rows, s->visible, &at, err);
    if (rc == 0) {
        fill(&at, s);
        rc = ds_order_attention_launch(&at, err);
    }
    if (rc == 0)
        rc = replay(s, &at, lib, out, err);
    out->launches += at.launches;
    ds_order_attention_close(&at);
    return rc;
}
