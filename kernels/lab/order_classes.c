/* order_classes.c: which outputs of a grid are added alike. With the same numbers in every row and
 * every column two outputs differ only if their order of addition does; classes are refined set by
 * set until the data run out. */
#include "kernels/lab/order_grid.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* (class so far, bits seen) -> new class */
struct entry {
    int32_t from, to; /* from: -1: empty */
    uint32_t bits;
};
struct table {
    struct entry *entry;
    size_t cap, n;
    float *seen; /* of the new classes */
    size_t cap_seen;
};

static size_t place_of(const struct table *t, int32_t from, uint32_t bits)
{
    uint64_t h = ((uint64_t)(uint32_t)from << 32 | bits) * 0x9e3779b97f4a7c15u;
    size_t at = (size_t)(h >> 32) & (t->cap - 1);
    while (t->entry[at].from >= 0 && (t->entry[at].from != from || t->entry[at].bits != bits))
        at = (at + 1) & (t->cap - 1);
    return at;
}

static int table_new(struct table *t, size_t cap, struct ds_error *err)
{
    t->entry = ds_calloc(cap, sizeof *t->entry, "classes", err);
    t->cap = cap;
    t->n = 0;
    for (size_t i = 0; i < cap && t->entry; i++)
        t->entry[i].from = -1;
    return t->entry ? 0 : -1;
}

static int table_grow(struct table *t, struct ds_error *err)
{
    struct table bigger = *t;
    if (table_new(&bigger, t->cap * 2, err) != 0)
        return -1;
    for (size_t i = 0; i < t->cap; i++)
        if (t->entry[i].from >= 0)
            bigger.entry[place_of(&bigger, t->entry[i].from, t->entry[i].bits)] = t->entry[i];
    bigger.n = t->n;
    free(t->entry);
    *t = bigger;
    return 0;
}

/* The new class of an output of class `from` that gave `y` on this set. */
static int32_t look_up(struct table *t, int32_t from, float y, int set, const float *seen,
                       struct ds_error *err)
{
    uint32_t bits = ds_f32_bits(y);
    size_t at = place_of(t, from, bits);
    if (t->entry[at].from >= 0)
        return t->entry[at].to;
    if (ds_grow(&t->seen, &t->cap_seen, (t->n + 1) * DS_GRID_SETS, sizeof *t->seen, "classes",
                err) != 0)
        return -1;
    float *own = t->seen + t->n * DS_GRID_SETS;
    memcpy(own, seen + (size_t)from * DS_GRID_SETS, DS_GRID_SETS * sizeof *own);
    own[set] = y;
    t->entry[at] = (struct entry){from, (int32_t)t->n, bits};
    int32_t to = (int32_t)t->n++;
    return t->n * 2 > t->cap && table_grow(t, err) != 0 ? -1 : to;
}

static int refine(const struct ds_grid *g, int32_t *class_of, int set, float **seen, size_t *n,
                  struct ds_error *err)
{
    struct table t = {0};
    int rc = table_new(&t, 1024, err);
    for (int64_t i = 0; i < g->rows * g->columns && rc == 0; i++) {
        class_of[i] = look_up(&t, class_of[i], g->y[i], set, *seen, err);
        rc = class_of[i] < 0 ? -1 : 0;
    }
    free(t.entry);
    if (rc != 0) {
        free(t.seen);
        return -1;
    }
    free(*seen);
    *seen = t.seen;
    *n = t.n;
    return 0;
}

static int describe_classes(const struct ds_grid *g, struct ds_order_sum *out, size_t n,
                            struct ds_error *err)
{
    out->classes = ds_calloc(n, sizeof *out->classes, "classes", err);
    if (!out->classes)
        return -1;
    out->n_classes = n;
    for (int64_t i = g->rows * g->columns - 1; i >= 0; i--) {
        struct ds_order_class *c = &out->classes[out->class_of[i]];
        c->tree = -1;
        c->positions++;
        c->row = i / g->columns;
        c->column = i % g->columns;
    }
    return 0;
}

int ds_grid_classes(struct ds_grid *g, struct ds_order_sum *out, float **seen, struct ds_error *err)
{
    size_t n = 1;
    *seen = ds_calloc(DS_GRID_SETS, sizeof **seen, "classes", err);
    out->class_of =
        ds_calloc((size_t)(g->rows * g->columns), sizeof *out->class_of, "classes", err);
    if (!*seen || !out->class_of)
        return -1;
    for (int s = 0; s < DS_GRID_SETS; s++) {
        ds_grid_same_data(g, s);
        if (ds_grid_launch(g, err) != 0 || refine(g, out->class_of, s, seen, &n, err) != 0)
            return -1;
    }
    return describe_classes(g, out, n, err);
}
