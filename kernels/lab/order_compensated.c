/* order_compensated.c: sums in which what an addition loses is kept. Questions about single terms do not show
 * their order, since nothing is swallowed: every known way in every likely order is held against whole sums
 * instead, and one counts only if it gives all of them. Owns what is tried. */
#include "kernels/lab/order_recover.h"

#include <stdlib.h>

/* Chains begin with their first term, which a pair of leaves does not say of itself. */
static void mark_first(struct ds_tree *t, int descends)
{
    for (int32_t i = 0; i < t->n && descends; i++) {
        const int32_t a = t->node[i].first, b = a < 0 ? -1 : t->node[a].next;
        if (b >= 0 && t->node[a].term >= 0 && t->node[b].term >= 0)
            t->node[b].flags |= DS_TREE_FIRST;
    }
}

/* Every product joins a sum unrounded but those that start one. */
static void fuse(struct ds_tree *t)
{
    for (int32_t i = 0; i < t->n; i++) {
        const int32_t a = t->node[i].first, b = a < 0 ? -1 : t->node[a].next;
        if (b < 0)
            continue;
        const int pair = t->node[a].term >= 0 && t->node[b].term >= 0;
        const int32_t joins = pair                   ? t->node[b].flags & DS_TREE_FIRST ? a : b
                              : t->node[a].term >= 0 ? a
                                                     : b;
        if (t->node[joins].term >= 0)
            t->node[joins].flags |= DS_TREE_FUSED;
    }
}

/* 1: *t gives what was seen. */
static int try_way(const struct ds_sum_samples *s, const struct ds_regular *o, int way, int fused,
                   struct ds_tree *t, struct ds_error *err)
{
    if (ds_regular_build(o, s->terms, t, err) != 0)
        return -1;
    t->compensated = way;
    t->joins = s->products;
    mark_first(t, o->descends);
    if (fused)
        fuse(t);
    ds_tree_seal(t);
    const int fits = s->fits(s->self, t, err);
    if (fits != 1)
        ds_tree_free(t);
    return fits;
}

static int try_ways(const struct ds_sum_samples *s, const struct ds_regular *o, struct ds_tree *t,
                    struct ds_error *err)
{
    static const struct {
        int way, fused, products;
    } ways[] = {{DS_SUM_KAHAN, 0, 0},
                {DS_SUM_KAHAN, 1, 1},
                {DS_SUM_ERRORS, 0, 0},
                {DS_SUM_PRODUCT_ERRORS, 0, 1}};
    int found = 0;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0] && found == 0; i++)
        if (!ways[i].products || s->products)
            found = try_way(s, o, ways[i].way, ways[i].fused, t, err);
    return found;
}

/* One chain; lanes; parts one behind the other, by their number or their size. */
int ds_recover_compensated(const struct ds_sum_samples *s, struct ds_tree *t, struct ds_error *err)
{
    enum { PARTS = 4, SIZES = 3, DIRECTIONS = 2 };
    const int64_t size[] = {256, 512, 1024};
    int found = 0;
    for (int b = 0; b < PARTS + SIZES && found == 0; b++) {
        const int64_t block = b < PARTS ? (s->terms + (1 << b) - 1) >> b : size[b - PARTS];
        if (b && (block >= s->terms || block < 1))
            continue;
        for (int64_t lanes = 1; lanes <= DS_REGULAR_MOST_LANES && lanes <= block && found == 0;
             lanes *= 2)
            for (int i = 0; i < (lanes == 1 ? DIRECTIONS : 2 * DS_LANE_JOINS) && found == 0; i++) {
                const struct ds_regular o = {.block = block,
                                             .lanes = lanes,
                                             .join = lanes == 1 ? 0 : i / 2,
                                             .rest = lanes > 1 && i % 2,
                                             .descends = lanes == 1 && i};
                if (!ds_regular_is_double(&o, s->terms))
                    found = try_ways(s, &o, t, err);
            }
    }
    return found;
}
