/* order_replay.c: from a tree to steps, and the steps run. A node is one addition rounded once: of
 * two f32 sums, of a sum and a product (rounded before, or fused), or, where the tree says that a
 * value is kept wider, in double. */
#include "kernels/lab/order_replay.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- compiling ------------------------------------------------------------------------------- */

/* What a subtree needs of the stack; the hungrier child goes first, so that it is never more than
 * the logarithm of the terms. */
static void needs(const struct ds_tree *t, int32_t *need)
{
    for (int32_t i = 0; i < t->n; i++) {
        int32_t most = 1, second = 0;
        for (int32_t c = t->node[i].first; c >= 0; c = t->node[c].next) {
            int32_t v = t->node[c].term >= 0 ? 0 : need[c];
            if (v > most) {
                second = most;
                most = v;
            } else if (v > second) {
                second = v;
            }
        }
        need[i] = second + 1 > most ? second + 1 : most;
    }
}

static int is_wide(const struct ds_tree_node *v)
{
    return v->term >= 0 ? (v->flags & DS_TREE_FUSED) != 0 : (v->flags & DS_TREE_WIDE) != 0;
}

/* The child evaluated first: the hungriest sum; among leaves alone one that is not fused. */
static int32_t first_child(const struct ds_tree *t, const struct ds_tree_node *v,
                           const int32_t *need)
{
    int32_t best = v->first;
    for (int32_t c = v->first; c >= 0; c = t->node[c].next) {
        const struct ds_tree_node *a = &t->node[c], *b = &t->node[best];
        if (b->term >= 0 ? a->term < 0 || ((b->flags & ~a->flags) & DS_TREE_FUSED) ||
                               ((a->flags & ~b->flags) & DS_TREE_FIRST)
                         : a->term < 0 && need[c] > need[best])
            best = c;
    }
    return best;
}

struct compiler {
    const struct ds_tree *t;
    struct ds_replay *r;
    const int32_t *need;
    int32_t root;
};

static uint32_t product_flags(const struct ds_tree_node *leaf)
{
    return leaf->flags & DS_TREE_BF16  ? DS_STEP_PRODUCT_BF16
           : leaf->flags & DS_TREE_F16 ? DS_STEP_PRODUCT_F16
                                       : 0;
}

static void emit(struct compiler *c, int kind, int32_t term, uint32_t flags)
{
    c->r->step[c->r->n++] =
        (struct ds_replay_step){.kind = (uint8_t)kind, .flags = (uint8_t)flags, .term = term};
    if (flags || kind == DS_STEP_EXACT)
        c->r->plain = 0;
}

/* Adds child `at`, which lies on the stack already unless it is a leaf, to what is below. */
static void emit_joined(struct compiler *c, const struct ds_tree_node *parent, int32_t at,
                        int first, int last, int wide_before)
{
    const struct ds_tree_node *v = &c->t->node[at];
    /* A node of three and more adds them without rounding in between. */
    uint32_t flags =
        last ? parent->flags & (DS_TREE_WIDE | DS_TREE_BF16 | DS_TREE_F16) : DS_TREE_WIDE;
    if (wide_before || (v->term < 0 && is_wide(v)))
        flags |= DS_STEP_DOUBLE;
    if (first)
        return;
    if (v->term < 0)
        emit(c, DS_STEP_ADD, 0, flags);
    else
        emit(c, v->flags & DS_TREE_FUSED ? DS_STEP_FMA : DS_STEP_MUL_ADD, v->term,
             flags | product_flags(v));
}

/* One entry of the stack of open nodes. */
struct open {
    int32_t node, child; /* child: being evaluated now */
    int32_t done;
    int wide;
};

static void begin_child(struct compiler *c, struct open *o, int32_t child)
{
    const struct ds_tree_node *v = &c->t->node[child];
    o->child = child;
    if (v->term >= 0 && o->done == 0)
        emit(c, v->flags & DS_TREE_FUSED ? DS_STEP_EXACT : DS_STEP_PUSH, v->term, product_flags(v));
}

/* The next child of an open node: the first one, then the others in their order. */
static int32_t next_child(const struct compiler *c, const struct open *o)
{
    const struct ds_tree_node *v = &c->t->node[o->node];
    int32_t first = first_child(c->t, v, c->need);
    if (o->done == 0)
        return first;
    int32_t at = o->child == first ? v->first : c->t->node[o->child].next;
    if (at == first)
        at = c->t->node[at].next;
    return at;
}

static void compile(struct compiler *c, struct open *open)
{
    int32_t top = 0;
    const struct ds_tree_node *node = c->t->node;
    if (node[c->root].term >= 0) {
        emit(c, DS_STEP_PUSH, node[c->root].term, 0);
        return;
    }
    open[top++] = (struct open){.node = c->root, .child = -1};
    while (top > 0) {
        struct open *o = &open[top - 1];
        const struct ds_tree_node *v = &node[o->node];
        if (o->child >= 0) { /* it has just been evaluated */
            emit_joined(c, v, o->child, o->done == 0, o->done == v->children - 1, o->wide);
            o->wide |= is_wide(&node[o->child]) && (node[o->child].term < 0 || o->done == 0);
            o->wide |= v->children > 2 && o->done > 0;
            o->done++;
        }
        if (o->done == v->children) {
            top--;
            continue;
        }
        begin_child(c, o, next_child(c, o));
        if (node[o->child].term < 0)
            open[top++] = (struct open){.node = o->child, .child = -1};
    }
}

int ds_replay_compile(const struct ds_tree *t, int32_t root, struct ds_replay *out,
                      struct ds_error *err)
{
    memset(out, 0, sizeof *out);
    int32_t *need = ds_calloc((size_t)t->n, sizeof *need, "the replay", err);
    struct open *open = ds_calloc((size_t)t->n + 1, sizeof *open, "the replay", err);
    out->step = ds_calloc((size_t)t->n + 1, sizeof *out->step, "the replay", err);
    int rc = need && open && out->step ? 0 : -1;
    if (rc == 0) {
        struct compiler c = {t, out, need, root};
        needs(t, need);
        out->plain = t->inputs == DS_INPUTS_F32 && !t->compensated;
        out->compensated = t->compensated;
        out->terms = t->terms;
        out->zero_start = t->zero_start;
        out->inputs = t->inputs;
        compile(&c, open);
        out->stack = need[root] + 2;
    }
    free(need);
    free(open);
    if (rc != 0)
        ds_replay_free(out);
    return rc;
}

void ds_replay_free(struct ds_replay *r)
{
    free(r->step);
    memset(r, 0, sizeof *r);
}

/* ---- running --------------------------------------------------------------------------------- */

enum cut { CUT_OFF, CUT_EVEN, CUT_AWAY };

static float cut_bits(float v, int keep, enum cut how)
{
    uint32_t u = ds_f32_bits(v), drop = 23u - (uint32_t)keep, low = (1u << drop) - 1u;
    if ((u & 0x7f800000u) == 0x7f800000u)
        return v;
    if (how != CUT_OFF)
        u += (low >> 1) + (how == CUT_AWAY ? 1u : (u >> drop) & 1u);
    return ds_f32_from_bits(u & ~low);
}

static float input(int inputs, float v)
{
    switch (inputs) {
    case DS_INPUTS_TF32:
        return cut_bits(v, 10, CUT_EVEN);
    case DS_INPUTS_TF32_CUT:
        return cut_bits(v, 10, CUT_OFF);
    case DS_INPUTS_TF32_AWAY:
        return cut_bits(v, 10, CUT_AWAY);
    case DS_INPUTS_BF16:
        return cut_bits(v, 7, CUT_EVEN);
    default:
        return v;
    }
}

static double rounded(double v, unsigned flags)
{
    if (flags & DS_TREE_WIDE)
        return v;
    if (flags & DS_TREE_BF16)
        return (double)ds_bf16_value(ds_bf16_round((float)v));
    if (flags & DS_TREE_F16)
        return (double)ds_f16_value(ds_f16_round((float)v));
    return (double)(float)v;
}

static unsigned product_rounding(unsigned flags)
{
    return flags & DS_STEP_PRODUCT_BF16  ? DS_TREE_BF16
           : flags & DS_STEP_PRODUCT_F16 ? DS_TREE_F16
                                         : 0;
}

/* Any step, one column, weights `stride` apart. A sum of two f32 in double, rounded to f32, is the
 * f32 sum; a fused product on an f32 sum needs fmaf, since the double sum would round first. */
static float run_any(const struct ds_replay *r, const float *x, const float *w, int64_t stride,
                     double *stack)
{
    double *top = stack - 1;
    for (int32_t i = 0; i < r->n; i++) {
        const struct ds_replay_step *s = &r->step[i];
        const float a = input(r->inputs, x[s->term]), b = input(r->inputs, w[s->term * stride]);
        const double exact = (double)a * (double)b,
                     product = rounded((double)(a * b), product_rounding(s->flags));
        switch (s->kind) {
        case DS_STEP_PUSH:
            *++top = product;
            break;
        case DS_STEP_EXACT:
            *++top = exact;
            break;
        case DS_STEP_FMA:
            if (s->flags & (DS_STEP_DOUBLE | DS_TREE_WIDE))
                *top = rounded(*top + exact, s->flags);
            else
                *top = rounded((double)fmaf(a, b, (float)*top), s->flags);
            break;
        case DS_STEP_MUL_ADD:
            *top = rounded(*top + product, s->flags);
            break;
        default:
            top--;
            top[0] = rounded(top[0] + top[1], s->flags);
        }
    }
    return (float)*top;
}

/* A sum and what its additions lost, or what is to be added to it. */
struct kept {
    float sum, error;
};

/* a + b without its rounding error (D. E. Knuth). */
static float error_of_sum(float a, float b)
{
    const float s = a + b, part = s - a;
    return (a - (s - part)) + (b - part);
}

static float whole(const struct ds_replay *r, const struct kept *k)
{
    return r->compensated == DS_SUM_KAHAN ? k->sum : k->sum + k->error;
}

/* Term a * b joins a compensated sum. */
static void join_compensated(const struct ds_replay *r, int fused, float a, float b, struct kept *k)
{
    const float product = a * b;
    if (r->compensated == DS_SUM_KAHAN) {
        const float term = fused ? fmaf(a, b, -k->error) : product - k->error, next = k->sum + term;
        k->error = (next - k->sum) - term;
        k->sum = next;
        return;
    }
    const float lost = error_of_sum(k->sum, product);
    k->error += r->compensated == DS_SUM_PRODUCT_ERRORS ? fmaf(a, b, -product) + lost : lost;
    k->sum += product;
}

static float run_compensated(const struct ds_replay *r, const float *x, const float *w,
                             int64_t stride, struct kept *stack)
{
    struct kept *top = stack - 1;
    for (int32_t i = 0; i < r->n; i++) {
        const struct ds_replay_step *s = &r->step[i];
        const float a = x[s->term], b = w[s->term * stride];
        switch (s->kind) {
        case DS_STEP_PUSH:
        case DS_STEP_EXACT:
            *++top = (struct kept){a * b, 0.0f};
            if (r->compensated == DS_SUM_PRODUCT_ERRORS)
                top->error = fmaf(a, b, -top->sum);
            break;
        case DS_STEP_FMA:
        case DS_STEP_MUL_ADD:
            join_compensated(r, s->kind == DS_STEP_FMA, a, b, top);
            break;
        default:
            top--;
            top[0] = (struct kept){whole(r, &top[0]) + whole(r, &top[1]), 0.0f};
        }
    }
    return whole(r, top);
}

static float run_one(const struct ds_replay *r, const float *x, const float *w, int64_t stride,
                     float *room)
{
    return r->compensated ? run_compensated(r, x, w, stride, (struct kept *)(void *)room)
                          : run_any(r, x, w, stride, (double *)(void *)room);
}

size_t ds_replay_room(const struct ds_replay *r)
{
    return (size_t)r->stack * DS_REPLAY_LANES;
}

/* A sum that starts from +0: -0 becomes +0, and nothing else changes. */
static float start(const struct ds_replay *r, float sum)
{
    return r->zero_start ? sum + 0.0f : sum;
}

float ds_replay_one(const struct ds_replay *r, const float *x, const float *w, float *room)
{
    return start(r, run_one(r, x, w, 1, room));
}

void ds_replay_block(const struct ds_replay *r, const float *x, const float *w, float *room,
                     float *out)
{
    if (r->plain && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        ds_replay_lanes_avx2(r, x, w, room);
    else if (r->plain)
        ds_replay_lanes_scalar(r, x, w, room);
    for (int j = 0; j < DS_REPLAY_LANES; j++)
        out[j] = start(r, r->plain ? room[j] : run_one(r, x, w + j, DS_REPLAY_LANES, room));
}
