/* order_runs.c: chains of a tree, found and said. */
#include "kernels/lab/order_words.h"

#include <stdlib.h>
#include <string.h>

/* No instruction adds more terms than this in one rounding; a longer sum without an order is another thing. */
enum { MOST_FUSED = 64 };

int32_t ds_words_leaf_children(const struct ds_tree *t, int32_t v, int32_t *inner)
{
    int32_t leaves = 0;
    *inner = -1;
    for (int32_t c = t->node[v].first; c >= 0; c = t->node[c].next)
        if (t->node[c].term >= 0)
            leaves++;
        else
            *inner = c;
    return leaves;
}

int32_t ds_words_highest(const struct ds_tree *t, int32_t v)
{
    /* In postorder a subtree is the nodes that end with its root. */
    int32_t high = -1, seen = 0;
    for (int32_t i = v; i >= 0 && seen < t->node[v].size; i--)
        if (t->node[i].term >= 0) {
            seen++;
            high = t->node[i].term > high ? t->node[i].term : high;
        }
    return high;
}

/* Writes the leaves of v's chain into w->term, the last added first; returns how many. */
static int32_t unroll(const struct words *w, int32_t v, struct run *r)
{
    const struct ds_tree *t = w->t;
    int32_t n = 0, fused = 0, could = 0, inner;
    r->step = 0;
    for (;;) {
        int32_t leaves = ds_words_leaf_children(t, v, &inner);
        if (leaves == 0 || leaves < t->node[v].children - 1)
            break;
        int32_t from = n, own = 0;
        for (int32_t c = t->node[v].first; c >= 0; c = t->node[c].next)
            if (t->node[c].term >= 0) {
                w->term[n++] = t->node[c].term;
                own += (t->node[c].flags & DS_TREE_FUSED) != 0;
            }
        for (int32_t i = from, j = n - 1; i < j; i++, j--) {
            int32_t swap = w->term[i];
            w->term[i] = w->term[j];
            w->term[j] = swap;
        }
        fused += own;
        could += inner < 0 && own < leaves ? leaves - 1 : leaves;
        if (inner >= 0 || r->step == 0)
            r->step = leaves > r->step ? leaves : r->step;
        v = inner;
        if (v < 0)
            break;
    }
    r->head = v;
    r->fused = fused == 0 ? 0 : fused == could ? 1 : -1;
    return n;
}

/* In a pair that starts a chain nothing but a fused product tells who was first: as in the rest. */
static void order_start(const struct words *w, int32_t n, const struct run *r)
{
    int32_t *a = w->term;
    if (r->head >= 0 || n < 2)
        return;
    int ascending = n == 2 || a[n - 3] > a[n - 2];
    if (ascending != (a[n - 2] > a[n - 1])) {
        int32_t swap = a[n - 2];
        a[n - 2] = a[n - 1];
        a[n - 1] = swap;
    }
}

void ds_words_find_run(const struct words *w, int32_t v, struct run *r)
{
    memset(r, 0, sizeof *r);
    r->low = w->t->node[v].min;
    r->high = ds_words_highest(w->t, v);
    if (w->t->node[v].term >= 0) {
        *r = (struct run){-1, 1, w->t->node[v].term, 1, 1, 1, 0, r->low, r->high};
        return;
    }
    int32_t n = unroll(w, v, r);
    if (r->head < 0 && n == w->t->node[v].children && n > 2)
        r->step = n; /* a single fused sum */
    else if (r->head < 0 && r->step == 2 && n == 2)
        r->step = 1;
    if (r->step <= 2 && r->head < 0)
        order_start(w, n, r);
    r->count = n;
    r->regular = n > 0;
    if (n == 0)
        return;
    r->first = w->term[n - 1];
    r->stride = n > 1 ? w->term[n - 2] - r->first : 1;
    for (int32_t i = 0; i < n; i++)
        r->regular &= w->term[n - 1 - i] == r->first + i * r->stride;
}

/* Up to four stretches of one distance each, of the chain unrolled last; 0 if it has more. */
static int say_stretches(struct ds_buf *b, const struct words *w, const struct run *r)
{
    struct ds_buf own = {0};
    int32_t at = r->count - 1, n = 0;
    while (at >= 0 && n < 5) {
        int32_t first = w->term[at], len = 1, step = at ? w->term[at - 1] - first : 1;
        while (at >= len && w->term[at - len] == first + len * step)
            len++;
        ds_buf_printf(&own, "%s%d from %d", n++ ? ", then " : ": ", len, first);
        if (len > 1 && step != 1)
            ds_buf_printf(&own, ", %d apart", step);
        at -= len;
    }
    if (n < 5)
        ds_buf_puts(b, own.data ? own.data : "");
    b->failed |= own.failed;
    ds_buf_free(&own);
    return n < 5;
}

/* Stretches of one length, one distance from each other, of the chain unrolled last: what is left of every
 * second vector, say. */
static int say_stripes(struct ds_buf *b, const struct words *w, const struct run *r)
{
    const int32_t *last = w->term + r->count - 1, first = *last;
    int32_t wide = 1;
    while (wide < r->count && last[-wide] == first + wide)
        wide++;
    if (wide < 2 || r->count < 2 * wide)
        return 0;
    const int32_t apart = last[-wide] - first;
    for (int32_t i = 0; i < r->count; i++)
        if (last[-i] != first + i / wide * apart + i % wide)
            return 0;
    ds_buf_printf(b, " in %s order, %d side by side, %d apart",
                  apart > 0 ? "ascending" : "descending", wide, abs(apart));
    return 1;
}

void ds_words_say_order(struct ds_buf *b, const struct words *w, const struct run *r)
{
    if (!r->regular) {
        if (!say_stripes(b, w, r) && !say_stretches(b, w, r))
            ds_buf_puts(b, " in no regular order");
    } else if (r->stride == 1 || r->count == 1) {
        ds_buf_puts(b, " in ascending order");
    } else if (r->stride == -1) {
        ds_buf_puts(b, " in descending order");
    } else {
        ds_buf_printf(b, " in %s order, %d apart", r->stride > 0 ? "ascending" : "descending",
                      abs(r->stride));
    }
}

void ds_words_say_step(struct ds_buf *b, const struct words *w, const struct run *r)
{
    if (r->step > 1)
        ds_buf_printf(b, ", %d at a time in fused sums rounded once", r->step);
    if (w->say_joins && r->count > 1)
        ds_buf_puts(b, r->fused > 0 ? ", FMA" : r->fused == 0 ? ", mul+add" : ", FMA in part");
}

void ds_words_say_run(struct ds_buf *b, const struct words *w, const struct run *r)
{
    if (r->count == 1)
        ds_buf_printf(b, "one %.*s", ds_tree_unit_length(w->unit, 1), w->unit);
    else if (r->step == r->count && r->step > MOST_FUSED)
        ds_buf_printf(
            b,
            "one sum of %d %s that shows no order, as one that is exact and rounded once: "
            "kept wider than f32, or compensated",
            r->count, w->unit);
    else if (r->step == r->count && r->step > 2)
        ds_buf_printf(b, "one fused sum of %d %s, rounded once", r->count, w->unit);
    else {
        ds_buf_printf(b, "one chain of %d %s", r->count, w->unit);
        ds_words_say_order(b, w, r);
        ds_words_say_step(b, w, r);
    }
}
