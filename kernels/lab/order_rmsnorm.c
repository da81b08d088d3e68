/* order_rmsnorm.c: the order in which rmsnorm adds squares. The sum itself is not seen, only x * inv
 * * weight: so it is first found out how the output follows from the sum (one term alone shows that,
 * whatever the order), then values are chosen at which the last bit of the sum can be read.
 *
 * Triples: a term B^2 of 2^23 to 2^24, so that the sum's last place is 1, and two of 0.390625: each
 * alone is swallowed, together they add 1. */
#include "kernels/lab/order_ops.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "kernels/lab/order_recover.h"
#include "kernels/lab/order_replay.h"
#include "kernels/lab/order_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const float EPS = 1e-5f, SMALL = 0.625f;
enum { PROOFS = 8, FORMS = 6, SETS = 96 };

struct norm {
    struct ds_order_call call;
    struct ds_rmsnorm_args a;
    float *x, *w, *y;
    int64_t rows, width;
    int form;    /* how the output follows from the sum */
    int64_t row; /* the one that is asked */
    float big;   /* B */
    float tie;   /* its rounded square ends in 1/2, its square is a little more; 0: not found */
    float tie_big;
    uint64_t launches, rng;
};

/* ---- from the sum to the output -------------------------------------------------------------- */

static float finish(const struct norm *n, int form, float sum, float x, float w)
{
    float width = (float)n->width;
    float mean = form >= FORMS / 2 ? sum * (1.0f / width) : sum / width;
    float root = sqrtf(mean + EPS), inv = 1.0f / root;
    switch (form % (FORMS / 2)) {
    case 0:
        return x * inv * w;
    case 1:
        return x * (inv * w);
    default:
        return x / root * w;
    }
}

static float unit(struct norm *n)
{
    n->rng = n->rng * 6364136223846793005u + 1442695040888963407u;
    return (float)((int32_t)(n->rng >> 32) >> 7) * 0x1p-24f;
}

static int launch(void *self, struct ds_error *err)
{
    struct norm *n = self;
    n->launches++;
    return ds_order_launch(&n->call, &n->a, err);
}

/* A row of zeros but for some terms. */
static void clear_row(struct norm *n)
{
    memset(n->x + n->row * n->width, 0, (size_t)n->width * sizeof *n->x);
}

static float *term(struct norm *n, int64_t i)
{
    return n->x + n->row * n->width + i;
}

static float out(const struct norm *n, int64_t i)
{
    return n->y[n->row * n->width + i];
}

static void plain_weights(struct norm *n)
{
    for (int64_t i = 0; i < n->width; i++)
        n->w[i] = 1.0f;
}

/* The form that explains what single terms give. */
static int find_form(struct norm *n, struct ds_error *err)
{
    int fits[FORMS], at = 0;
    for (int f = 0; f < FORMS; f++)
        fits[f] = 1;
    for (int trial = 0; trial < 48; trial++) {
        int64_t i = trial % n->width;
        float v = unit(n) * 4.0f;
        clear_row(n);
        *term(n, i) = v;
        n->w[i] = unit(n);
        if (launch(n, err) != 0)
            return -1;
        for (int f = 0; f < FORMS; f++)
            fits[f] &= ds_f32_bits(out(n, i)) == ds_f32_bits(finish(n, f, v * v, v, n->w[i]));
    }
    while (at < FORMS && !fits[at])
        at++;
    plain_weights(n);
    n->form = at;
    if (at < FORMS)
        return 0;
    ds_fail(err, "its output is none of the known formulas of the sum of squares");
    return 1;
}

static int told_apart(const struct norm *n, float big, float sum)
{
    return ds_f32_bits(finish(n, n->form, sum, big, 1.0f)) !=
           ds_f32_bits(finish(n, n->form, sum + 1.0f, big, 1.0f));
}

/* B: its square is whole, the sum's last place is 1, and the output shows it. */
static int choose_values(struct norm *n)
{
    n->big = n->tie = 0.0f;
    for (float b = 2897.0f; b < 4000.0f && n->big == 0.0f; b += 1.0f)
        if (told_apart(n, b, b * b))
            n->big = b;
    for (int trial = 0; trial < 200000 && n->tie == 0.0f; trial++) {
        float c = 64.0f + fabsf(unit(n)) * 60.0f, square = c * c;
        if (square - floorf(square) != 0.5f || (double)c * (double)c <= (double)square)
            continue;
        for (float b = 2897.0f; b < 4000.0f && n->tie == 0.0f; b += 1.0f) {
            float whole = b * b + floorf(square);
            if (fmodf(whole, 2.0f) == 0.0f && told_apart(n, b, whole)) {
                n->tie = c;
                n->tie_big = b;
            }
        }
    }
    return n->big != 0.0f;
}

/* ---- questions ------------------------------------------------------------------------------- */

/* Which of sum and sum + 1 an output was made from; -1: neither. */
static int read_sum(const struct norm *n, int64_t i, float big, float sum)
{
    uint32_t got = ds_f32_bits(out(n, i));
    if (got == ds_f32_bits(finish(n, n->form, sum, big, 1.0f)))
        return 0;
    return got == ds_f32_bits(finish(n, n->form, sum + 1.0f, big, 1.0f)) ? 1 : -1;
}

static int below(void *self, int32_t i, int32_t j, int32_t k, struct ds_error *err)
{
    struct norm *n = self;
    *term(n, i) = n->big;
    *term(n, j) = *term(n, k) = SMALL;
    int rc = launch(n, err), answer = rc == 0 ? read_sum(n, i, n->big, n->big * n->big) : -1;
    const int no_order = rc == 0 && answer < 0;
    *term(n, i) = *term(n, j) = *term(n, k) = 0.0f;
    if (no_order)
        ds_fail(err, "terms %d, %d and %d gave a sum that no order gives", i, j, k);
    return no_order ? DS_NO_ORDER : answer;
}

/* Whether the square of term k joins the sum unrounded, when term i is there already. */
static int ask_fused(struct norm *n, int32_t k, int32_t i, int *fused, struct ds_error *err)
{
    *term(n, i) = n->tie_big;
    *term(n, k) = n->tie;
    int rc = launch(n, err);
    float whole = n->tie_big * n->tie_big + floorf(n->tie * n->tie);
    *fused = rc == 0 && read_sum(n, i, n->tie_big, whole) == 1;
    *term(n, i) = *term(n, k) = 0.0f;
    return rc;
}

static int find_joins(struct norm *n, struct ds_tree *t, struct ds_error *err)
{
    int rc = 0;
    for (int32_t v = 0; v < t->n && rc == 0 && n->tie != 0.0f; v++)
        for (int32_t c = t->node[v].first; c >= 0 && rc == 0; c = t->node[c].next) {
            int32_t beside = t->node[v].first == c ? t->node[c].next : t->node[v].first;
            int fused = 0;
            if (t->node[c].term < 0)
                continue;
            if (t->node[v].flags & DS_TREE_WIDE || ds_tree_multiway(t))
                fused = 1;
            else
                rc = ask_fused(n, t->node[c].term, t->node[beside].min, &fused, err);
            t->node[c].flags |= fused ? DS_TREE_FUSED : 0;
        }
    t->joins = n->tie != 0.0f;
    ds_tree_seal(t);
    return rc;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* Squares of one size are added to a large sum as if they were whole numbers, in whatever order: every other
 * set has some that lie far apart. */
static float value(struct norm *n, int apart)
{
    enum { LEAST = -12, MANY = 25 };
    const float v = unit(n) * 2.0f;
    return apart ? ldexpf(v, LEAST + (int)((n->rng >> 20) % MANY)) : v;
}

static void fill(void *self, uint64_t seed, int same_rows)
{
    struct norm *n = self;
    n->rng = seed * 0x9e3779b97f4a7c15u + 7;
    for (int64_t i = 0; i < n->rows * n->width; i++)
        n->x[i] = same_rows && i >= n->width ? n->x[i - n->width] : value(n, (int)(seed % 2));
    for (int64_t i = 0; i < n->width; i++)
        n->w[i] = unit(n) + 1.5f;
}

/* ---- is it that tree ------------------------------------------------------------------------- */

/* How many outputs of a row a tree gives. */
static uint64_t row_agreement(const struct norm *n, const struct ds_replay *r, const float *x,
                              const float *y, float *room)
{
    const float sum = ds_replay_one(r, x, x, room);
    uint64_t agree = 0;
    for (int64_t i = 0; i < n->width; i++)
        agree += ds_f32_bits(y[i]) == ds_f32_bits(finish(n, n->form, sum, x[i], n->w[i]));
    return agree;
}

/* What the row that is asked gives on sets of data, weights of 1: sets by sets of [width]. */
struct seen {
    struct norm *n;
    float *x, *y;
};

static int take_samples(struct norm *n, struct seen *s, struct ds_error *err)
{
    const size_t size = (size_t)(SETS * n->width);
    int rc = 0;
    *s = (struct seen){.n = n,
                       .x = ds_calloc(size, sizeof *s->x, "samples", err),
                       .y = ds_calloc(size, sizeof *s->y, "samples", err)};
    for (int set = 0; set < SETS && rc == 0; set++) {
        rc = s->x && s->y ? 0 : -1;
        if (rc != 0)
            break;
        fill(n, DS_ORDER_ROW_SEED + (uint64_t)set, 1);
        plain_weights(n);
        rc = launch(n, err);
        memcpy(s->x + set * n->width, n->x + n->row * n->width, (size_t)n->width * sizeof *s->x);
        memcpy(s->y + set * n->width, n->y + n->row * n->width, (size_t)n->width * sizeof *s->y);
    }
    memset(n->x, 0, (size_t)(n->rows * n->width) * sizeof *n->x);
    return rc;
}

/* How many of every step-th set a tree gives; no more are tried than `misses` that it does not. -1: an error. */
static int sets_given(const struct seen *s, const struct ds_tree *t, int step, int misses,
                      struct ds_error *err)
{
    const int64_t width = s->n->width;
    struct ds_replay r;
    if (ds_replay_compile(t, t->root, &r, err) != 0)
        return -1;
    float *room = ds_alloc_aligned(ds_replay_room(&r), sizeof *room, "the replay", err);
    int given = 0;
    for (int set = 0; set < SETS && room && set / step - given <= misses; set += step)
        given += row_agreement(s->n, &r, s->x + set * width, s->y + set * width, room) ==
                 (uint64_t)width;
    ds_replay_free(&r);
    free(room);
    return room ? given : -1;
}

static int fits(void *self, const struct ds_tree *t, struct ds_error *err)
{
    const int given = sets_given(self, t, 1, 0, err);
    return given < 0 ? -1 : given == SETS;
}

static int say_joins(void *self, struct ds_tree *t, struct ds_error *err)
{
    const struct seen *s = self;
    /* Squares are no -0: a start from +0 leaves no trace. */
    t->zero_start = 0;
    return find_joins(s->n, t, err);
}

/* Sums that are compensated in a way that is not known. 0 with *t where three of four sums of squares of one
 * size are those of an exact one, rounded once: orders of f32 additions give fewer. 1: they are not. */
static int try_exact(struct seen *s, struct ds_tree *t, struct ds_error *err)
{
    if (ds_recover_exact(s->n->width, t, err) != 0)
        return -1;
    const int given = say_joins(s, t, err) == 0 ? sets_given(s, t, 2, SETS, err) : -1;
    if (4 * given >= 3 * SETS / 2)
        return 0;
    ds_tree_free(t);
    return given < 0 ? -1 : 1;
}

/* 0: *t; 1: there is none, and *why says why. */
static int find_tree(struct norm *n, struct ds_tree *t, struct ds_error *why, struct ds_error *err)
{
    struct seen seen;
    const struct ds_sum_samples samples = {&seen, n->width, 1, fits};
    const struct ds_triples q = {
        .self = n, .terms = n->width, .work = (double)(n->rows * n->width), .below = below};
    const int missed = ds_recover_triples(&q, t, why);
    if (missed < 0)
        *err = *why;
    int rc = missed < 0 ? -1 : take_samples(n, &seen, err);
    if (missed < 0)
        return -1;
    if (rc != 0 && !missed)
        ds_tree_free(t);
    if (rc == 0)
        rc = ds_order_settle(&q, &samples, say_joins, !missed, t, why, err);
    if (rc == DS_SETTLED_NONE)
        rc = try_exact(&seen, t, err);
    else if (rc > 0)
        rc = 0;
    free(seen.x);
    free(seen.y);
    return rc;
}

static int measure_tree(struct norm *n, struct ds_order_class *cls, struct ds_order_library *lib,
                        struct ds_error *err)
{
    struct ds_tree t;
    struct ds_error why = {{0}, {0}};
    n->row = cls->row;
    int rc = find_form(n, &why);
    if (rc < 0)
        *err = why;
    clear_row(n);
    if (rc == 0 && !choose_values(n)) {
        ds_fail(&why, "the last bit of its sum cannot be seen");
        rc = 1;
    }
    if (rc == 0)
        rc = find_tree(n, &t, &why, err);
    if (rc > 0)
        memcpy(cls->why, why.msg, sizeof cls->why - 1);
    if (rc == 0)
        cls->tree = ds_order_library_put(lib, &t, err);
    return rc < 0 || (rc == 0 && cls->tree < 0) ? -1 : 0;
}

/* ---- replay ---------------------------------------------------------------------------------- */

/* The tree of the library that gives this class's row on all sets. */
static int find_known(struct norm *n, const struct ds_order_library *lib,
                      struct ds_order_class *cls, struct ds_error *err)
{
    for (size_t i = 0; i < lib->n && cls->tree < 0; i++) {
        struct ds_replay r;
        int alike = lib->tree[i]->terms == n->width, rc = 0;
        if (!alike)
            continue;
        if (ds_replay_compile(lib->tree[i], lib->tree[i]->root, &r, err) != 0)
            return -1;
        float *room = ds_alloc_aligned(ds_replay_room(&r), sizeof *room, "the replay", err);
        for (int set = 0; set < DS_ORDER_ROW_SETS && alike && room && rc == 0; set++) {
            fill(n, DS_ORDER_ROW_SEED + (uint64_t)set, 1);
            rc = launch(n, err);
            alike =
                rc == 0 && row_agreement(n, &r, n->x + cls->row * n->width,
                                         n->y + cls->row * n->width, room) == (uint64_t)n->width;
        }
        rc = room ? rc : -1;
        free(room);
        ds_replay_free(&r);
        if (rc != 0)
            return -1;
        if (alike)
            cls->tree = (int32_t)i;
    }
    return 0;
}

static int prove_class(struct norm *n, struct ds_order_sum *s, int32_t c,
                       const struct ds_order_library *lib, struct ds_error *err)
{
    struct ds_order_class *cls = &s->classes[c];
    struct ds_replay r = {0};
    if (cls->tree >= 0 &&
        ds_replay_compile(lib->tree[cls->tree], lib->tree[cls->tree]->root, &r, err) != 0)
        return -1;
    float *room = ds_alloc_aligned(ds_replay_room(&r) + 1, sizeof *room, "the replay", err);
    for (int64_t row = 0; row < n->rows && room; row++) {
        uint64_t agree = 0;
        if (s->class_of[row] != c)
            continue;
        if (cls->tree >= 0)
            agree = row_agreement(n, &r, n->x + row * n->width, n->y + row * n->width, room);
        cls->compared += (uint64_t)n->width;
        cls->reproduced += agree;
    }
    int rc = room ? 0 : -1;
    free(room);
    ds_replay_free(&r);
    return rc;
}

static int prove(struct norm *n, struct ds_order_sum *s, const struct ds_order_library *lib,
                 struct ds_error *err)
{
    for (int p = 0; p < PROOFS; p++) {
        fill(n, 200 + (uint64_t)p, 0);
        if (launch(n, err) != 0)
            return -1;
        for (size_t c = 0; c < s->n_classes; c++)
            if (prove_class(n, s, (int32_t)c, lib, err) != 0)
                return -1;
    }
    for (size_t c = 0; c < s->n_classes; c++) {
        s->compared += s->classes[c].compared;
        s->reproduced += s->classes[c].reproduced;
    }
    return 0;
}

static int measure(struct norm *n, struct ds_order_library *lib, struct ds_order_sum *s,
                   struct ds_error *err)
{
    const struct ds_order_rows rows = {n->rows, n->width, n->y, n, fill, launch};
    if (ds_order_rows_repeat(&rows, s, err) != 0)
        return -1;
    if (!s->fixed)
        return 0;
    if (ds_order_rows_classify(&rows, s, err) != 0)
        return -1;
    for (size_t c = 0; c < s->n_classes; c++)
        if (find_known(n, lib, &s->classes[c], err) != 0 ||
            (s->classes[c].tree < 0 && measure_tree(n, &s->classes[c], lib, err) != 0))
            return -1;
    return prove(n, s, lib, err);
}

int ds_order_rmsnorm(const struct ds_order_setting *set, struct ds_order_library *lib,
                     struct ds_order *o, struct ds_error *err)
{
    struct norm n = {.call = {.kernel = set->kernel, .threads = set->threads, .team = set->team},
                     .rows = set->rows,
                     .width = set->shape.width};
    struct ds_order_sum *s = &o->sum[0];
    size_t size = (size_t)(n.rows * n.width);
    n.x = ds_alloc_aligned(size, sizeof *n.x, "inputs", err);
    n.y = ds_alloc_aligned(size, sizeof *n.y, "outputs", err);
    n.w = ds_alloc_aligned((size_t)n.width, sizeof *n.w, "weights", err);
    *s = (struct ds_order_sum){.name = "squares",
                               .unit = "squares",
                               .note = "",
                               .terms = n.width,
                               .rows = n.rows,
                               .columns = 1};
    o->n_sums = 1;
    n.a = (struct ds_rmsnorm_args){.rows = n.rows,
                                   .width = n.width,
                                   .x = n.x,
                                   .ldx = n.width,
                                   .weight = n.w,
                                   .eps = EPS,
                                   .y = n.y,
                                   .ldy = n.width};
    int rc = n.x && n.y && n.w ? measure(&n, lib, s, err) : -1;
    o->launches += n.launches;
    ds_order_call_free(&n.call);
    free(n.x);
    free(n.y);
    free(n.w);
    return rc;
}
