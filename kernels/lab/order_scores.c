/* order_scores.c: the order in which attention adds q.k. Two slots, the second with score 0 and value
 * 0: the output is 1 / (1 + exp(-score)) of the first, from which the score is known well enough to
 * count ones, since the scale is an argument: -1/16 where ones are counted. Where the last bit of
 * a sum is asked for it is 2^20.
 *
 * The bits of the sum are not seen: order_whole.c replays what comes of it. */
#include "kernels/lab/order_attention.h"

#include "base/mem.h"
#include "kernels/lab/order_recover.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const float COUNTING = -0.0625f, LOOKING = 0x1p20f;

/* The sum behind row 0, head 0, which is a multiple of `unit`. */
static float sum_of(const struct ds_order_attention *at, float unit)
{
    double y = (double)*ds_order_attention_seen(at, 0);
    if (!(y > 0.0 && y < 1.0))
        return NAN;
    double sum = log(y / (1.0 - y)) / (double)at->a.scale / (double)unit, whole = rint(sum);
    return fabs(sum - whole) < 0.05 ? (float)whole * unit + 0.0f : NAN;
}

static void write_key(struct ds_order_attention *at, const struct ds_probe *p)
{
    const int64_t dim = at->a.head_dim;
    for (int64_t h = 0; h < at->a.kv_heads; h++) {
        float *k = at->k + ((at->slots - 2) * at->a.kv_heads + h) * dim;
        for (int64_t d = 0; d < dim; d++)
            k[d] = d >= p->lo && d < p->hi ? p->fill : 0.0f;
        for (int32_t i = 0; i < p->n; i++)
            k[p->term[i]] = p->value[i];
        float *other = k + at->a.kv_heads * dim;
        memset(other, 0, (size_t)dim * sizeof *other);
    }
}

static int ask_one(struct ds_order_attention *at, float side, struct ds_probe *p,
                   struct ds_error *err)
{
    const int64_t dim = at->a.head_dim;
    const int looking = side != 1.0f;
    at->a.scale = looking ? LOOKING : COUNTING;
    write_key(at, p);
    for (int64_t i = 0; i < at->a.rows * at->a.heads * dim; i++)
        at->q[i] = side;
    if (ds_order_attention_launch(at, err) != 0)
        return -1;
    p->result = sum_of(at, looking ? 0x1p-24f : 1.0f);
    return 0;
}

static int ask(void *self, float side, struct ds_probe *p, size_t n, struct ds_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (ask_one(self, side, &p[i], err) != 0)
            return -1;
    return 0;
}

int ds_order_scores(const struct ds_order_setting *s, struct ds_order_library *lib,
                    struct ds_order *out, struct ds_error *err)
{
    struct ds_order_attention at;
    struct ds_oracle o = {.self = &at, .terms = s->shape.head_dim, .ask = ask};
    struct ds_order_sum *sum = &out->sum[out->n_sums++];
    struct ds_tree t;
    *sum = (struct ds_order_sum){.name = "scores",
                                 .unit = "channels",
                                 .note = "of row 0, head 0, two slots",
                                 .terms = s->shape.head_dim,
                                 .fixed = 1,
                                 .rows = 1,
                                 .columns = 1};
    sum->classes = ds_calloc(1, sizeof *sum->classes, "classes", err);
    sum->class_of = ds_calloc(1, sizeof *sum->class_of, "classes", err);
    int rc = ds_order_attention_open(s, s->rows, s->queries > 1 ? s->queries + 1 : 2, &at, err);
    if (!sum->classes || !sum->class_of || rc != 0) {
        ds_order_attention_close(&at);
        return -1;
    }
    sum->n_classes = 1;
    sum->classes[0] = (struct ds_order_class){.tree = -1, .positions = 1};
    /* The last query row sees two slots: what is before them is padding. */
    for (int64_t r = 0; r < s->rows; r++)
        at.sequences[r].kv_first = (int32_t)(at.slots - 2);
    for (int64_t d = 0; d < at.a.kv_heads * at.a.head_dim; d++)
        at.v[(at.slots - 2) * at.a.kv_heads * at.a.head_dim + d] = 1.0f;
    rc = ds_recover_signed(&o, &t, err);
    if (rc == 0 && ds_recover_details(&o, &t, DS_ASK_FUSED, err) != 0) {
        ds_tree_free(&t);
        rc = -1;
    }
    if (rc == 0)
        rc = (sum->classes[0].tree = ds_order_library_put(lib, &t, err)) < 0 ? -1 : 0;
    else if (rc > 0)
        memcpy(sum->classes[0].why, err->msg, sizeof sum->classes[0].why - 1);
    out->launches += at.launches;
    ds_order_attention_close(&at);
    return rc < 0 ? -1 : 0;
}
