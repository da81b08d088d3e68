/* order_regular.c: orders that kernels are likely to use, held against a long sum of terms that cannot be
 * negative: a few hundred questions instead of some for every term, each of which costs a call on all
 * terms. Owns what is tried; what fits is proven by replay as every other tree. */
#include "kernels/lab/order_recover.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { LONG = 2048, SAMPLES = 1000 };

/* A lane that holds nothing (-1) adds nothing; the others are put together as if it were there. */
static int32_t join(struct ds_tree *t, int32_t a, int32_t b)
{
    return a < 0 ? b : b < 0 ? a : ds_tree_join(t, a, b);
}

static int32_t join_lanes(struct ds_tree *t, int32_t *lane, int64_t n, int how)
{
    for (int64_t i = 1; i < n && how == DS_LANES_ASCENDING; i++)
        lane[0] = join(t, lane[0], lane[i]);
    for (; n > 1 && how != DS_LANES_ASCENDING; n /= 2)
        for (int64_t i = 0; i < n / 2; i++)
            lane[i] = how == DS_LANES_HALVES ? join(t, lane[i], lane[i + n / 2])
                                             : join(t, lane[2 * i], lane[2 * i + 1]);
    return lane[0];
}

static int32_t block_of(struct ds_tree *t, const struct ds_regular *o, int64_t from, int64_t n)
{
    int32_t lane[DS_REGULAR_MOST_LANES];
    const int64_t whole = o->rest ? n / o->lanes * o->lanes : n,
                  first = o->descends ? from + n - 1 : from, step = o->descends ? -1 : 1;
    for (int64_t i = 0; i < o->lanes; i++)
        lane[i] = -1;
    for (int64_t i = 0; i < whole; i++)
        lane[i % o->lanes] =
            join(t, lane[i % o->lanes], ds_tree_leaf(t, (int32_t)(first + i * step)));
    int32_t sum = join_lanes(t, lane, o->lanes, o->join);
    for (int64_t i = whole; i < n; i++)
        sum = join(t, sum, ds_tree_leaf(t, (int32_t)(first + i * step)));
    return sum;
}

int ds_regular_build(const struct ds_regular *o, int64_t terms, struct ds_tree *t,
                     struct ds_error *err)
{
    int32_t sum = -1;
    if (ds_tree_init(t, terms, err) != 0)
        return -1;
    for (int64_t from = 0; from < terms; from += o->block) {
        const int32_t own = block_of(t, o, from, terms - from < o->block ? terms - from : o->block);
        sum = sum < 0 ? own : ds_tree_join(t, sum, own);
    }
    if (ds_tree_finish(t, sum, err) == 0)
        return 0;
    ds_tree_free(t);
    return -1;
}

int ds_regular_is_double(const struct ds_regular *o, int64_t terms)
{
    return o->rest && o->block % o->lanes == 0 && terms % o->block % o->lanes == 0;
}

/* 1: *t answers like it; 0: it does not. */
static int try_order(const struct ds_triples *q, const struct ds_regular *o, struct ds_tree *t,
                     struct ds_error *err)
{
    if (ds_regular_build(o, q->terms, t, err) != 0)
        return -1;
    const int like = ds_triples_like(q, t, SAMPLES, err);
    if (like != 1)
        ds_tree_free(t);
    return like;
}

int ds_triples_are_sampled(int64_t terms)
{
    return terms > LONG;
}

int ds_recover_regular(const struct ds_triples *q, struct ds_tree *t, struct ds_error *err)
{
    static const int64_t blocks[] = {INT64_MAX, 256, 512, 1024, 2048, 4096, 8192, 16384};
    int found = 0;
    if (!ds_triples_are_sampled(q->terms))
        return 0;
    for (size_t b = 0; b < sizeof blocks / sizeof blocks[0]; b++)
        for (int64_t lanes = 1; lanes <= DS_REGULAR_MOST_LANES; lanes *= 2)
            for (int i = 0; i < (lanes == 1 ? 1 : 2 * DS_LANE_JOINS); i++) {
                const struct ds_regular o = {.block = blocks[b] < q->terms ? blocks[b] : q->terms,
                                             .lanes = lanes,
                                             .join = i / 2,
                                             .rest = i % 2};
                if ((blocks[b] >= q->terms && b) || ds_regular_is_double(&o, q->terms))
                    continue; /* the same as another */
                if ((found = try_order(q, &o, t, err)) != 0)
                    return found;
            }
    return 0;
}
