/* order_softmax.c: the order in which attention adds exp(score - max). One score is 0 and its term 1;
 * two are log(0.6 * 2^-24): each term alone is swallowed by 1, both together are not; all others are
 * so low that their terms are 0. The slot of score 0 has the value 1, so the output is 1 / sum.
 *
 * The bits of the sum are not seen, since its terms are the kernel's own exp: order_whole.c replays
 * what comes of it. */
#include "kernels/lab/order_attention.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "kernels/lab/order_recover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const float LOW = -200.0f;
static const float SMALL = -17.14641f; /* log(0.6 * 2^-24) */

static void value(struct ds_order_attention *at, int64_t slot, float v)
{
    at->v[slot * at->a.kv_heads * at->a.head_dim] = v;
}

/* What row 0, head 0, channel 0 gives. */
static int read_sum(const struct ds_order_attention *at)
{
    const float y = *ds_order_attention_seen(at, 0);
    if (y == 1.0f)
        return 0;
    return y == 1.0f / (1.0f + 0x1p-23f) ? 1 : -1;
}

static int below(void *self, int32_t i, int32_t j, int32_t k, struct ds_error *err)
{
    struct ds_order_attention *at = self;
    value(at, i, 1.0f);
    ds_order_attention_score(at, i, 0.0f);
    ds_order_attention_score(at, j, SMALL);
    ds_order_attention_score(at, k, SMALL);
    int rc = ds_order_attention_launch(at, err), answer = rc == 0 ? read_sum(at) : -1;
    value(at, i, 0.0f);
    ds_order_attention_score(at, i, LOW);
    ds_order_attention_score(at, j, LOW);
    ds_order_attention_score(at, k, LOW);
    if (rc == 0 && answer < 0)
        ds_fail(err, "slots %d, %d and %d gave %.9g, not 1 over a sum", i, j, k,
                (double)*ds_order_attention_seen(at, 0));
    return rc == 0 && answer < 0 ? DS_NO_ORDER : answer;
}

/* ---- trees known already --------------------------------------------------------------------- */

enum { SAMPLES = 400 };

int ds_order_find_triples(const struct ds_triples *q, const struct ds_order_library *lib,
                          int32_t *tree, struct ds_error *err)
{
    for (size_t i = 0; i < lib->n; i++) {
        if (lib->tree[i]->terms != q->terms || lib->tree[i]->joins || lib->tree[i]->compensated)
            continue;
        int alike = ds_triples_like(q, lib->tree[i], SAMPLES, err);
        if (alike < 0)
            return -1;
        if (alike) {
            *tree = (int32_t)i;
            return 1;
        }
    }
    return 0;
}

int ds_order_denominator(const struct ds_order_setting *s, struct ds_order_library *lib,
                         struct ds_order *out, struct ds_error *err)
{
    struct ds_order_attention at;
    struct ds_triples q = {.self = &at,
                           .terms = s->visible,
                           .work = 2.0 * (double)(s->rows * s->visible) *
                                   (double)(s->shape.heads * s->shape.head_dim),
                           .below = below};
    struct ds_order_sum *sum = &out->sum[out->n_sums++];
    struct ds_tree t;
    *sum = (struct ds_order_sum){.name = "denominator",
                                 .unit = "slots",
                                 .note = "of row 0, head 0",
                                 .terms = s->visible,
                                 .fixed = 1,
                                 .rows = 1,
                                 .columns = 1};
    sum->classes = ds_calloc(1, sizeof *sum->classes, "classes", err);
    sum->class_of = ds_calloc(1, sizeof *sum->class_of, "classes", err);
    int rc = ds_order_attention_open(s, s->rows, s->visible, &at, err);
    if (!sum->classes || !sum->class_of || rc != 0) {
        ds_order_attention_close(&at);
        return -1;
    }
    sum->n_classes = 1;
    sum->classes[0] = (struct ds_order_class){.tree = -1, .positions = 1};
    for (int64_t i = 0; i < s->visible; i++)
        ds_order_attention_score(&at, i, LOW);
    int known = ds_order_find_triples(&q, lib, &sum->classes[0].tree, err);
    if (known)
        rc = known < 0 ? -1 : 0;
    else if ((rc = ds_recover_triples(&q, &t, err)) == 0)
        rc = (sum->classes[0].tree = ds_order_library_put(lib, &t, err)) < 0 ? -1 : 0;
    if (rc > 0)
        memcpy(sum->classes[0].why, err->msg, sizeof sum->classes[0].why - 1);
    out->launches += at.launches;
    ds_order_attention_close(&at);
    return rc < 0 ? -1 : 0;
}
