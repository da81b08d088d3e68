/* order_details.c: how the sums of a known tree round: fused products, sums kept wider or narrower
 * than f32, rounded factors, the start from +0. Owns those questions.
 *
 * fused     with the factor 1.5 on the other side, 1 + 2^-23 makes a product between two f32. Added
 *           to -1.5 it leaves 1.5 * 2^-23, or, rounded before, another number. All are short enough
 *           to pass through sums in bf16 or f16.
 * rounding  1 + 2^-p - 1, the first two under the node asked about, the last above it: 2^-p if the
 *           node keeps p + 1 bits, else 0 or twice that. Where sums are divided, or parts of them merged
 *           with weights, 1 - 1 leaves something of its own: it is asked for, too, and taken off, and bits
 *           of f32 and more are not told from it. */
#include "kernels/lab/order_recover.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

static const float SIDE = 1.5f;
enum { NOTHING = 0 };
/* Bits behind the point that f32, f16 and bf16 lack; a bit that no sum has, which leaves what weights
 * leave; one that is far below what they leave. */
static const int lacks[] = {24, 11, 8, NOTHING, 40};
enum { F32 = 0, F16, BF16, CONTROL, FAR_BELOW, N_LACKS };

static int32_t *parents_of(const struct ds_tree *t, struct ds_error *err)
{
    int32_t *parent = ds_calloc((size_t)t->n, sizeof *parent, "parents", err);
    if (!parent)
        return NULL;
    parent[t->n - 1] = -1;
    for (int32_t i = 0; i < t->n; i++)
        for (int32_t c = t->node[i].first; c >= 0; c = t->node[c].next)
            parent[c] = i;
    return parent;
}

/* A term beside the subtree `child` under its parent. */
static int32_t term_beside(const struct ds_tree *t, int32_t parent, int32_t child)
{
    int32_t c = t->node[parent].first;
    if (c == child)
        c = t->node[c].next;
    return t->node[c].min;
}

static int ask_fused(const struct ds_oracle *o, struct ds_tree *t, const int32_t *parent,
                     struct ds_error *err)
{
    size_t n = 0;
    struct ds_probe *p = ds_calloc((size_t)t->terms, sizeof *p, "questions", err);
    if (!p)
        return -1;
    for (int32_t i = 0; i < t->n; i++)
        if (t->node[i].term >= 0 && parent[i] >= 0)
            p[n++] = (struct ds_probe){
                .n = 2,
                .term = {t->node[i].term, term_beside(t, parent[i], i)},
                .value = {1.0f + 0x1p-23f, -1.0f},
            };
    int rc = n ? o->ask(o->self, SIDE, p, n, err) : 0;
    n = 0;
    for (int32_t i = 0; i < t->n && rc == 0; i++) {
        t->node[i].flags &= ~(uint32_t)DS_TREE_FUSED;
        if (t->node[i].term >= 0 && parent[i] >= 0 && p[n++].result == 0x1.8p-23f)
            t->node[i].flags |= DS_TREE_FUSED;
    }
    free(p);
    t->joins = 1;
    return rc;
}

static float power(int p)
{
    return p == NOTHING ? 0.0f : ldexpf(1.0f, -p);
}

/* One question for a node and a number of bits; 0 if the node has no two sums below to ask with. */
static void rounding_probe(const struct ds_tree *t, const int32_t *parent, int32_t i, int bits,
                           struct ds_probe *p)
{
    const struct ds_tree_node *v = &t->node[i];
    *p = (struct ds_probe){.n = 2,
                           .term = {t->node[v->first].min, t->node[t->node[v->first].next].min},
                           .value = {1.0f, power(bits)}};
    if (parent[i] < 0)
        return;
    p->n = 3;
    p->term[2] = term_beside(t, parent[i], i);
    p->value[2] = -1.0f;
}

/* Whether a bit arrived. A format that lacks it leaves nothing or twice as much. */
static int keeps(const struct ds_probe *p, int b, int rescaled)
{
    const double want = (double)power(lacks[b]),
                 got = (double)p[b].result - (double)p[CONTROL].result;
    return rescaled ? fabs(got - want) < want / 4 : got == want;
}

static uint32_t rounding_of(const struct ds_probe *p, int at_root, int rescaled)
{
    /* The output is f32 whatever the sum was. */
    const int wide =
        !at_root && keeps(p, F32, rescaled) && (!rescaled || keeps(p, FAR_BELOW, rescaled));
    return wide                        ? DS_TREE_WIDE
           : !keeps(p, BF16, rescaled) ? DS_TREE_BF16
           : !keeps(p, F16, rescaled)  ? DS_TREE_F16
                                       : 0;
}

/* The same for the product of a leaf: 1 + 2^-p of its own, and -1 beside it. A chain's first product
 * may be rounded as the sums after it are. */
static void product_probe(const struct ds_tree *t, const int32_t *parent, int32_t i, int bits,
                          struct ds_probe *p)
{
    *p = (struct ds_probe){.n = 1, .term = {t->node[i].term}, .value = {1.0f + power(bits)}};
    if (parent[i] < 0)
        return;
    p->n = 2;
    p->term[1] = term_beside(t, parent[i], i);
    p->value[1] = -1.0f;
}

static int ask_rounding(const struct ds_oracle *o, struct ds_tree *t, const int32_t *parent,
                        struct ds_error *err)
{
    size_t n = 0;
    const uint32_t all = DS_TREE_WIDE | DS_TREE_BF16 | DS_TREE_F16;
    struct ds_probe *p = ds_calloc((size_t)t->n * N_LACKS, sizeof *p, "questions", err);
    if (!p)
        return -1;
    for (int32_t i = 0; i < t->n; i++)
        for (int b = 0; b < N_LACKS; b++)
            if (t->node[i].term < 0)
                rounding_probe(t, parent, i, lacks[b], &p[n++]);
            else
                product_probe(t, parent, i, lacks[b], &p[n++]);
    int rc = o->ask(o->self, 1.0f, p, n, err);
    for (int32_t i = 0; i < t->n && rc == 0; i++) {
        uint32_t flags = rounding_of(p + (size_t)i * N_LACKS, parent[i] < 0, o->rescaled);
        /* A factor has no more bits than f32, and bits that it lost itself its product cannot lose. */
        if (t->node[i].term >= 0)
            flags = t->inputs == DS_INPUTS_F32 ? flags & ~(uint32_t)DS_TREE_WIDE : 0;
        t->node[i].flags = (t->node[i].flags & ~all) | flags;
    }
    free(p);
    return rc;
}

/* A leaf that joins a sum which is there already, if there is one: the first product of a chain may
 * be rounded as a sum is. */
static int32_t late_leaf(const struct ds_tree *t)
{
    for (int32_t i = 0; i < t->n; i++)
        for (int32_t c = t->node[i].first; c >= 0; c = t->node[c].next) {
            int32_t beside = c == t->node[i].first ? t->node[c].next : t->node[i].first;
            if (t->node[c].term >= 0 && t->node[beside].term < 0)
                return c;
        }
    return 0; /* in postorder a leaf */
}

/* Which bits of a factor arrive: 1 + 2^-p beside -1, added to each other before anything else. 1 + 3/4
 * of a last place tells cutting from rounding, 1 + 1/2 where a tie goes. */
static int ask_inputs(const struct ds_oracle *o, struct ds_tree *t, const int32_t *parent,
                      struct ds_error *err)
{
    static const float more[4] = {0x1p-20f, 0x1p-10f, 0x1p-11f + 0x1p-12f, 0x1p-11f};
    struct ds_probe p[4];
    int32_t at = late_leaf(t);
    for (int i = 0; i < 4; i++) {
        p[i] = (struct ds_probe){.n = 1, .term = {t->node[at].term}, .value = {1.0f + more[i]}};
        if (parent[at] >= 0) {
            p[i].n = 2;
            p[i].term[1] = term_beside(t, parent[at], at);
            p[i].value[1] = -1.0f;
        }
    }
    if (o->ask(o->self, 1.0f, p, 4, err) != 0)
        return -1;
    for (int i = 0; i < 4 && p[0].n == 1; i++)
        p[i].result -= 1.0f;
    t->inputs = p[0].result == more[0]   ? DS_INPUTS_F32
                : p[1].result != more[1] ? DS_INPUTS_BF16
                : p[2].result == 0.0f    ? DS_INPUTS_TF32_CUT
                : p[3].result != 0.0f    ? DS_INPUTS_TF32_AWAY
                                         : DS_INPUTS_TF32;
    return 0;
}

static int ask_start(const struct ds_oracle *o, struct ds_tree *t, struct ds_error *err)
{
    struct ds_probe p = {.hi = t->terms, .fill = -0.0f};
    if (o->ask(o->self, 1.0f, &p, 1, err) != 0)
        return -1;
    t->zero_start = !signbit(p.result);
    return 0;
}

int ds_recover_details(const struct ds_oracle *o, struct ds_tree *t, unsigned which,
                       struct ds_error *err)
{
    int32_t *parent = parents_of(t, err);
    int rc = parent ? 0 : -1;
    if (rc == 0 && (which & DS_ASK_FUSED))
        rc = ask_fused(o, t, parent, err);
    if (rc == 0 && (which & DS_ASK_ROUNDING))
        rc = ask_rounding(o, t, parent, err);
    if (rc == 0 && (which & DS_ASK_INPUTS))
        rc = ask_inputs(o, t, parent, err);
    if (rc == 0 && (which & DS_ASK_START))
        rc = ask_start(o, t, err);
    free(parent);
    ds_tree_seal(t);
    return rc;
}
