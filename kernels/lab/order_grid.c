/* order_grid.c: measuring a grid of sums: is the order fixed, which outputs are added alike, by which
 * tree, and does the tree give their bits. Owns the data and the order of these steps. */
#include "kernels/lab/order_grid.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "kernels/lab/order_recover.h"
#include "kernels/lab/order_replay.h"

#include <stdlib.h>
#include <string.h>

enum { REPEATS = 5, MOST_REPEATS = 64, MOST_CLASSES_PROBED = 512 };
/* Outputs that repeats are to have shown, and products that this may cost, beyond the first few. */
static const double SHOWN = 65536, MOST_WORK = 5e7;

int ds_grid_alloc(struct ds_grid *g, int with_x, struct ds_error *err)
{
    if (with_x)
        g->x = ds_alloc_aligned((size_t)(g->rows * g->terms), sizeof *g->x, "inputs", err);
    g->w = ds_alloc_aligned((size_t)(g->contents * g->terms), sizeof *g->w, "weights", err);
    g->y = ds_alloc_aligned((size_t)(g->rows * g->columns), sizeof *g->y, "outputs", err);
    return (with_x && !g->x) || !g->w || !g->y ? -1 : 0;
}

void ds_grid_free(struct ds_grid *g)
{
    free(g->x);
    free(g->w);
    free(g->y);
    g->x = g->w = g->y = NULL;
}

/* ---- data ------------------------------------------------------------------------------------ */

static float unit(uint64_t *state) /* -1..1, 24 bits */
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)((int32_t)(*state >> 32) >> 7) * 0x1p-24f;
}

static void fill(float *to, int64_t n, uint64_t seed)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (int64_t i = 0; i < n; i++)
        to[i] = unit(&state);
}

static void one_row(float *to, int64_t n, int set, int is_x)
{
    if (set == DS_GRID_SETS - 1)
        for (int64_t i = 0; i < n; i++)
            to[i] = is_x ? 1.0f : -0.0f;
    else
        fill(to, n, (uint64_t)(2 * set + is_x) + 100);
}

void ds_grid_same_data(struct ds_grid *g, int set)
{
    if (g->x)
        one_row(g->x, g->terms, set, 1);
    for (int64_t r = 1; g->x && r < g->rows; r++)
        memcpy(g->x + r * g->terms, g->x, (size_t)g->terms * sizeof *g->x);
    one_row(g->w, g->terms, set, 0);
    for (int64_t c = 1; c < g->contents; c++)
        memcpy(g->w + c * g->terms, g->w, (size_t)g->terms * sizeof *g->w);
    g->w_changed = 1;
}

void ds_grid_random_data(struct ds_grid *g, uint64_t seed)
{
    if (g->x)
        fill(g->x, g->rows * g->terms, 2 * seed);
    fill(g->w, g->contents * g->terms, 2 * seed + 1);
    g->w_changed = 1;
}

int ds_grid_launch(struct ds_grid *g, struct ds_error *err)
{
    g->launches++;
    return g->launch(g, err);
}

/* ---- is it fixed ----------------------------------------------------------------------------- */

/* The same call several times; every launch has another seed. *first: what the first one gave. */
static int repeats(struct ds_grid *g, struct ds_order_sum *out, float **first, struct ds_error *err)
{
    const size_t bytes = (size_t)(g->rows * g->columns) * sizeof *g->y;
    float *kept[REPEATS] = {NULL};
    int times[REPEATS] = {0}, n = 0, rc = 0;
    ds_grid_random_data(g, 1);
    for (int i = 0; i < REPEATS && rc == 0; i++) {
        int at = 0;
        rc = ds_grid_launch(g, err);
        while (rc == 0 && at < n && memcmp(kept[at], g->y, bytes) != 0)
            at++;
        if (rc == 0 && at == n) {
            kept[n] = ds_calloc(1, bytes, "outputs", err);
            rc = kept[n] ? 0 : -1;
            if (rc == 0)
                memcpy(kept[n++], g->y, bytes);
        }
        if (rc == 0)
            times[at]++;
    }
    out->repeats = REPEATS;
    out->agreeing = 0;
    for (int i = 0; i < n; i++)
        out->agreeing = times[i] > out->agreeing ? times[i] : out->agreeing;
    out->fixed = rc == 0 && out->agreeing == REPEATS;
    *first = kept[0];
    for (int i = 1; i < n; i++)
        free(kept[i]);
    return rc;
}

/* One more of the same calls: 0, and out->fixed says whether it agreed. */
static int once_more(struct ds_grid *g, struct ds_order_sum *out, const float *first,
                     struct ds_error *err)
{
    if (ds_grid_launch(g, err) != 0)
        return -1;
    out->fixed = memcmp(first, g->y, (size_t)(g->rows * g->columns) * sizeof *g->y) == 0;
    out->repeats++;
    out->agreeing += out->fixed;
    return 0;
}

/* An order that changes with what was computed before may hold for a few calls of few outputs. */
static int more_repeats(struct ds_grid *g, struct ds_order_sum *out, const float *first,
                        struct ds_error *err)
{
    const double outputs = (double)g->rows * (double)g->columns, work = outputs * (double)g->terms;
    int rc = 0;
    while (rc == 0 && out->fixed && out->repeats < MOST_REPEATS && outputs * out->repeats < SHOWN &&
           work * out->repeats < MOST_WORK)
        rc = once_more(g, out, first, err);
    return rc;
}

/* ---- the library ----------------------------------------------------------------------------- */

void ds_order_library_free(struct ds_order_library *l)
{
    for (size_t i = 0; i < l->n; i++) {
        ds_tree_free(l->tree[i]);
        free(l->tree[i]);
    }
    free(l->tree);
    memset(l, 0, sizeof *l);
}

int32_t ds_order_library_put(struct ds_order_library *l, struct ds_tree *t, struct ds_error *err)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->tree[i]->digest == t->digest && l->tree[i]->terms == t->terms) {
            ds_tree_free(t);
            return (int32_t)i;
        }
    struct ds_tree *copy = ds_calloc(1, sizeof *copy, "a tree", err);
    if (!copy || ds_grow(&l->tree, &l->cap, l->n + 1, sizeof *l->tree, "trees", err) != 0) {
        free(copy);
        ds_tree_free(t);
        return -1;
    }
    *copy = *t;
    memset(t, 0, sizeof *t);
    l->tree[l->n] = copy;
    return (int32_t)l->n++;
}

/* ---- one class ------------------------------------------------------------------------------- */

/* How many of the sets a tree gives as they were seen. */
static int agreement(const struct ds_grid *g, const struct ds_tree *t, const float *seen,
                     int *agree, struct ds_error *err)
{
    struct ds_grid_output o;
    *agree = 0;
    if (ds_grid_output(g, t, &o, err) != 0) {
        ds_grid_output_free(&o);
        return -1;
    }
    float *x = ds_alloc_aligned((size_t)g->terms * 2, sizeof *x, "data", err);
    for (int s = 0; s < DS_GRID_SETS && x; s++) {
        float *w = x + g->terms;
        one_row(w, g->terms, s, 0);
        one_row(x, g->terms, s, 1);
        for (int64_t i = 0; i < g->terms && !g->x; i++)
            x[i] = 1.0f;
        *agree += ds_f32_bits(ds_grid_output_one(&o, x, w)) == ds_f32_bits(seen[s]);
    }
    int rc = x ? 0 : -1;
    free(x);
    ds_grid_output_free(&o);
    return rc;
}

/* Returns 1 with the class's tree when the library has it. */
static int find_known(const struct ds_grid *g, const struct ds_order_library *lib,
                      const float *seen, struct ds_order_class *cls, struct ds_error *err)
{
    for (size_t i = 0; i < lib->n; i++) {
        int agree;
        if (lib->tree[i]->terms != g->terms)
            continue;
        if (agreement(g, lib->tree[i], seen, &agree, err) != 0)
            return -1;
        if (agree == DS_GRID_SETS) {
            cls->tree = (int32_t)i;
            return 1;
        }
    }
    return 0;
}

/* The parts of a merge hang on one node where their masks could not be told apart. They are merged one
 * after another; the proof shows whether that is so. */
static int spread_parts(struct ds_tree *t, struct ds_error *err)
{
    int32_t n = 0, cur = t->node[t->root].first;
    if (t->node[t->root].children < 3)
        return 0;
    int32_t *part = ds_calloc((size_t)t->node[t->root].children, sizeof *part, "parts", err);
    if (!part)
        return -1;
    for (int32_t c = cur; c >= 0; c = t->node[c].next)
        part[n++] = c;
    for (int32_t i = 1; i < n; i++)
        cur = ds_tree_join(t, cur, part[i]);
    free(part);
    return ds_tree_finish(t, cur, err) != 0 ? -1 : 0;
}

/* One value in one part does not tell a quotient from parts that are merged with weights of 1/2 or 1/4, nor
 * any of them where parts are rounded: whole sets do. They also tell which sums are parts. */
static int try_finishes(struct ds_grid *g, const struct ds_tree *t, const float *seen, int *agree,
                        struct ds_error *err)
{
    static const struct {
        int finish, cut;
    } all[] = {{DS_FINISH_DIVIDE, 0},
               {DS_FINISH_RECIPROCAL, 0},
               {DS_FINISH_PARTS, 0},
               {DS_FINISH_PARTS, 1},
               {DS_FINISH_PARTS, 2}};
    const int before = g->finish, before_cut = g->cut, before_agree = *agree;
    if (*agree == DS_GRID_SETS || before == DS_FINISH_NONE)
        return 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        g->finish = all[i].finish;
        g->cut = all[i].cut;
        if (agreement(g, t, seen, agree, err) != 0)
            return -1;
        if (*agree == DS_GRID_SETS)
            return 0;
    }
    g->finish = before;
    g->cut = before_cut;
    *agree = before_agree;
    return 0;
}

/* How the sums of a tree round, asked only where f32 does not explain what was seen. *agree: how many of the
 * sets the tree gives then. */
static int settle_class(struct ds_grid *g, const struct ds_order_sum *sum, int32_t c,
                        const float *seen, struct ds_tree *t, int *agree, struct ds_error *err)
{
    /* Weights of 1 make every product exact. */
    const unsigned which = DS_ASK_START | (g->x ? DS_ASK_FUSED | DS_ASK_INPUTS : 0);
    if ((g->finish == DS_FINISH_PARTS && spread_parts(t, err) != 0) ||
        ds_grid_details(g, sum, c, t, which, err) != 0 || agreement(g, t, seen, agree, err) != 0 ||
        try_finishes(g, t, seen, agree, err) != 0)
        return -1;
    if (*agree == DS_GRID_SETS)
        return 0;
    if (ds_grid_details(g, sum, c, t, DS_ASK_ROUNDING, err) != 0 ||
        agreement(g, t, seen, agree, err) != 0)
        return -1;
    return try_finishes(g, t, seen, agree, err);
}

/* Questions show no order of compensated sums, or a wrong one. */
static int measure_class(struct ds_grid *g, struct ds_order_library *lib,
                         const struct ds_order_sum *sum, int32_t c, const float *seen,
                         struct ds_error *err)
{
    struct ds_order_class *cls = &sum->classes[c];
    struct ds_tree t, other;
    struct ds_error why;
    int agree = 0, rc = ds_grid_recover(g, sum, c, &t, &why);
    const int missed = rc;
    if (rc < 0)
        *err = why;
    if (rc == 0 && (rc = settle_class(g, sum, c, seen, &t, &agree, err)) != 0)
        ds_tree_free(&t);
    if (rc < 0)
        return -1;
    if (agree < DS_GRID_SETS && (rc = ds_grid_compensated(g, sum, c, &other, err)) != 0) {
        if (!missed)
            ds_tree_free(&t);
        t = other;
    } else if (missed) {
        memcpy(cls->why, why.msg, sizeof cls->why - 1);
        return 0;
    }
    if (rc < 0)
        return -1;
    cls->tree = ds_order_library_put(lib, &t, err);
    return cls->tree < 0 ? -1 : 0;
}

static int measure_classes(struct ds_grid *g, struct ds_order_library *lib,
                           struct ds_order_sum *out, const float *seen, struct ds_error *err)
{
    for (size_t c = 0; c < out->n_classes; c++) {
        const float *own = seen + c * DS_GRID_SETS;
        int known = find_known(g, lib, own, &out->classes[c], err);
        if (known < 0)
            return -1;
        if (!known && c >= MOST_CLASSES_PROBED)
            strcpy(out->classes[c].why, "too many classes of positions");
        else if (!known && measure_class(g, lib, out, (int32_t)c, own, err) != 0)
            return -1;
    }
    return 0;
}

/* ... and the first call again, after all others. */
static int again_at_the_end(struct ds_grid *g, struct ds_order_sum *out, const float *first,
                            struct ds_error *err)
{
    ds_grid_random_data(g, 1);
    return once_more(g, out, first, err);
}

int ds_grid_measure(struct ds_grid *g, struct ds_order_library *lib, struct ds_order_sum *out,
                    struct ds_error *err)
{
    float *seen = NULL, *first = NULL;
    out->terms = g->terms;
    out->rows = g->rows;
    out->columns = g->columns;
    int rc = repeats(g, out, &first, err);
    if (rc == 0)
        rc = more_repeats(g, out, first, err);
    if (rc == 0 && out->fixed) {
        rc = ds_grid_classes(g, out, &seen, err);
        if (rc == 0)
            rc = measure_classes(g, lib, out, seen, err);
        if (rc == 0)
            rc = ds_grid_proof(g, lib, out, err);
        if (rc == 0)
            rc = again_at_the_end(g, out, first, err);
    }
    free(first);
    free(seen);
    return rc;
}
