/* order_parts.c: chains of one kind put together in a known way: blocks, lanes, pairs. */
#include "kernels/lab/order_words.h"

#include <stdlib.h>
#include <string.h>

int ds_words_is_sum_of_sums(const struct ds_tree *t, int32_t v)
{
    int32_t inner;
    return t->node[v].term < 0 && ds_words_leaf_children(t, v, &inner) == 0;
}

static int by_low(const void *a, const void *b)
{
    const struct run *x = a, *y = b;
    return (x->low > y->low) - (x->low < y->low);
}

/* Parts by ascending smallest term. part_of[node] = its number, for nodes that are parts. */
int ds_words_collect_parts(const struct words *w, int32_t v, struct parts *p, int32_t *part_of,
                           int leaves_too)
{
    const struct ds_tree *t = w->t;
    int32_t todo = 1;
    p->n = 0;
    /* Nodes to open are kept at the end of `at`. */
    p->at[MOST_PARTS - 1] = v;
    while (todo > 0) {
        int32_t u = p->at[MOST_PARTS - todo--];
        if (u != v && !(leaves_too ? t->node[u].term < 0 : ds_words_is_sum_of_sums(t, u))) {
            if (p->n + todo + 1 >= MOST_PARTS)
                return -1;
            ds_words_find_run(w, u, &p->run[p->n]);
            p->at[p->n++] = u;
            continue;
        }
        for (int32_t c = t->node[u].first; c >= 0; c = t->node[c].next) {
            if (p->n + todo + 2 >= MOST_PARTS)
                return -1;
            p->at[MOST_PARTS - ++todo] = c;
        }
    }
    qsort(p->run, (size_t)p->n, sizeof *p->run, by_low);
    for (int32_t i = 0; i < p->n; i++)
        for (int32_t j = 0; j < p->n; j++)
            if (p->run[j].low == t->node[p->at[i]].min)
                part_of[p->at[i]] = j;
    return 0;
}

/* ---- how parts are put together --------------------------------------------------------------- */

/* Whether the sums above the parts lo, lo+step, ..., n of them, have the shape: every binary node is
 * compared with the split that the shape has there. */
struct expect {
    const struct ds_tree *t;
    const int32_t *part_of;
    enum shape shape;
};

/* Which of a list of n parts are in the half that holds the first one: every other, or a number of
 * them from the start. */
static int32_t left_of(enum shape shape, int32_t n)
{
    int32_t p = 1;
    switch (shape) {
    case SHAPE_ASCENDING:
        return n - 1;
    case SHAPE_DESCENDING:
        return 1;
    case SHAPE_PAIRS: /* the largest power of two below n */
        while (p * 2 < n)
            p *= 2;
        return p;
    case SHAPE_SPLIT:
        return n / 2;
    default:
        return (n + 1) / 2;
    }
}

static int matches(const struct expect *e, int32_t v, int32_t lo, int32_t step, int32_t n)
{
    const struct ds_tree *t = e->t;
    while (n > 1) {
        if (e->part_of[v] >= 0 || t->node[v].children != 2)
            return 0;
        int32_t a = t->node[v].first, b = t->node[a].next, left = left_of(e->shape, n);
        if (e->shape == SHAPE_HALVES) {
            /* Parts j and j + n/2 meet first: the last addition is of the even and the odd ones. */
            if (n % 2 || !matches(e, b, lo + step, step * 2, n / 2))
                return 0;
            v = a, step *= 2, n /= 2;
            continue;
        }
        if (e->shape == SHAPE_DESCENDING) {
            if (!matches(e, a, lo, step, left))
                return 0;
            v = b, lo += left * step, n -= left;
        } else {
            if (!matches(e, b, lo + left * step, step, n - left))
                return 0;
            v = a, n = left;
        }
    }
    return e->part_of[v] == lo;
}

enum shape ds_words_find_shape(const struct ds_tree *t, int32_t v, const int32_t *part_of,
                               int32_t n)
{
    static const enum shape all[] = {SHAPE_ASCENDING, SHAPE_PAIRS, SHAPE_HALVES, SHAPE_SPLIT,
                                     SHAPE_DESCENDING};
    if (t->node[v].children == n && n > 2)
        return SHAPE_FUSED;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct expect e = {t, part_of, all[i]};
        if (matches(&e, v, 0, 1, n))
            return all[i];
    }
    return SHAPE_OTHER;
}

static const char *shape_words(enum shape s, const char *what, char *out, size_t size)
{
    static const char *const words[] = {
        [SHAPE_OTHER] = "",
        [SHAPE_ASCENDING] = "%ssums added in ascending order",
        [SHAPE_DESCENDING] = "%ssums added in descending order",
        [SHAPE_PAIRS] = "pairwise",
        [SHAPE_HALVES] = "pairwise, halves apart",
        [SHAPE_SPLIT] = "pairwise, split in halves",
        [SHAPE_FUSED] = "%ssums added in one rounding",
    };
    size_t n = 0;
    for (const char *p = words[s]; *p && n + 16 < size; p++)
        if (p[0] == '%' && p[1] == 's') {
            n += strlen(strcpy(out + n, what));
            p++;
        } else {
            out[n++] = *p;
        }
    out[n] = '\0';
    return out;
}

/* All parts are plain chains of one kind. */
static int alike(const struct parts *p)
{
    for (int32_t i = 0; i < p->n; i++) {
        const struct run *r = &p->run[i], *f = &p->run[0];
        if (r->head >= 0 || !r->regular || (r->count > 1 && r->stride != f->stride) ||
            (r->fused != f->fused && r->count > 1) || (r->step != f->step && i + 1 < p->n))
            return 0;
    }
    return 1;
}

/* One behind the other, of one size but for the last ones: how many those are; UNEVEN when sizes
 * differ by one here and there; else -1. */
enum { UNEVEN = INT32_MAX };
static int32_t contiguous(const struct parts *p)
{
    int32_t shorter = 0, low = p->run[0].count, high = low, rest = p->run[p->n - 1].count;
    int tidy = rest <= low;
    if (p->run[0].stride != 1 && p->run[0].stride != -1)
        return -1;
    for (int32_t i = 1; i < p->n; i++) {
        int32_t n = p->run[i].count, size = p->run[0].count;
        if (p->run[i].low != p->run[i - 1].high + 1)
            return -1;
        tidy &= (n == size && !shorter) || n == rest;
        shorter += n != size;
        low = n < low ? n : low;
        high = n > high ? n : high;
    }
    return tidy ? shorter : high - low == 1 ? UNEVEN : -1;
}

static void say_size(struct ds_buf *b, const struct parts *p, int32_t shorter)
{
    int32_t low = p->run[0].count, high = low;
    for (int32_t i = 1; i < p->n && shorter == UNEVEN; i++) {
        low = p->run[i].count < low ? p->run[i].count : low;
        high = p->run[i].count > high ? p->run[i].count : high;
    }
    ds_buf_printf(b, "%d blocks of %d", p->n, low);
    if (shorter == UNEVEN)
        ds_buf_printf(b, " or %d", high);
    else if (shorter == 1)
        ds_buf_printf(b, " (last %d)", p->run[p->n - 1].count);
    else if (shorter)
        ds_buf_printf(b, " (last %d: %d)", shorter, p->run[p->n - 1].count);
}

static int interleaved(const struct parts *p)
{
    for (int32_t i = 0; i < p->n; i++)
        if (p->run[i].low != p->run[0].low + i || (p->run[i].count > 1 && p->run[i].stride != p->n))
            return 0;
    return p->n > 1;
}

/* Words for parts that are chains of one kind, put together in a known way; 0 if they are not. */
int ds_words_say_alike(struct words *w, struct ds_buf *b, const struct parts *p, enum shape shape)
{
    const struct run *r = &p->run[0];
    char how[80];
    if (shape == SHAPE_OTHER || !alike(p))
        return 0;
    int32_t shorter = contiguous(p);
    if (r->count == 1 && shorter == 0) {
        ds_buf_printf(b, "%d %s, %s", p->n, w->unit, shape_words(shape, "", how, sizeof how));
    } else if (shorter >= 0 && p->n > 2) {
        say_size(b, p, shorter);
        ds_buf_printf(b, " %s, each one chain", w->unit);
        ds_words_say_order(b, w, r);
        ds_words_say_step(b, w, r);
        ds_buf_printf(b, ", %s", shape_words(shape, "block ", how, sizeof how));
    } else if (shorter >= 0) {
        ds_buf_printf(b, "2 chains of %d", r->count);
        if (shorter)
            ds_buf_printf(b, " and %d", p->run[1].count);
        ds_buf_printf(b, " %.*s",
                      ds_tree_unit_length(w->unit, shorter ? p->run[1].count : r->count), w->unit);
        ds_words_say_order(b, w, r);
        ds_words_say_step(b, w, r);
        ds_buf_puts(b, ", then 1 add");
    } else if (interleaved(p)) {
        ds_buf_printf(b, "%d interleaved lanes", p->n);
        ds_words_say_step(b, w, r);
        if (p->n > 2)
            ds_buf_printf(b, ", %s", shape_words(shape, "lane ", how, sizeof how));
        else
            ds_buf_puts(b, ", then 1 add");
    } else {
        return 0;
    }
    return 1;
}
