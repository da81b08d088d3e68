/* order_words.c: a tree in words that a person reads. Owns the patterns: chains, blocks, interleaved
 * lanes, pairwise sums, tails; what fits none is described part by part, so every tree has words.
 *
 * Works on a copy in which sums that are not rounded are one node with what they are added to. */
#include "kernels/lab/order_tree.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_PARTS = 4096, DEEPEST = 8, MOST_TEXT = 600 };

/* Leaves added one after another (or some at a time) to a head. */
struct run {
    int32_t head; /* node, -1: none, the chain is the whole subtree */
    int32_t count, first, stride;
    int32_t step;      /* leaves added in one rounding */
    int regular;       /* first + i * stride */
    int fused;         /* as ds_tree_all_fused */
    int32_t low, high; /* smallest and largest term below, head included */
};

struct words {
    const struct ds_tree *t;
    const char *unit; /* what a term is called */
    int32_t *term;    /* room for the leaves of a run */
    int depth;
    int say_joins; /* it is known which products are fused: each run says so */
};

static void describe(struct words *w, struct ds_buf *b, int32_t v);

/* ---- runs ------------------------------------------------------------------------------------ */

static int32_t leaf_children(const struct ds_tree *t, int32_t v, int32_t *inner)
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

static int32_t highest(const struct ds_tree *t, int32_t v)
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
        int32_t leaves = leaf_children(t, v, &inner);
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

static void find_run(const struct words *w, int32_t v, struct run *r)
{
    memset(r, 0, sizeof *r);
    r->low = w->t->node[v].min;
    r->high = highest(w->t, v);
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

static void say_order(struct ds_buf *b, const struct words *w, const struct run *r)
{
    if (!r->regular) {
        if (!say_stretches(b, w, r))
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

static void say_step(struct ds_buf *b, const struct words *w, const struct run *r)
{
    if (r->step > 1)
        ds_buf_printf(b, ", %d at a time in fused sums rounded once", r->step);
    if (w->say_joins && r->count > 1)
        ds_buf_puts(b, r->fused > 0 ? ", FMA" : r->fused == 0 ? ", mul+add" : ", FMA in part");
}

static void say_run(struct ds_buf *b, const struct words *w, const struct run *r)
{
    if (r->count == 1)
        ds_buf_printf(b, "one of %s", w->unit);
    else if (r->step == r->count && r->step > 2)
        ds_buf_printf(b, "one fused sum of %d %s, rounded once", r->count, w->unit);
    else {
        ds_buf_printf(b, "one chain of %d %s", r->count, w->unit);
        say_order(b, w, r);
        say_step(b, w, r);
    }
}

/* ---- several parts --------------------------------------------------------------------------- */

/* The subtrees that are put together by additions of whole sums. */
struct parts {
    int32_t at[MOST_PARTS];
    struct run run[MOST_PARTS];
    int32_t n;
};

static int is_sum_of_sums(const struct ds_tree *t, int32_t v)
{
    int32_t inner;
    return t->node[v].term < 0 && leaf_children(t, v, &inner) == 0;
}

static int by_low(const void *a, const void *b)
{
    const struct run *x = a, *y = b;
    return (x->low > y->low) - (x->low < y->low);
}

/* Parts by ascending smallest term. part_of[node] = its number, for nodes that are parts. */
static int collect_parts(const struct words *w, int32_t v, struct parts *p, int32_t *part_of,
                         int leaves_too)
{
    const struct ds_tree *t = w->t;
    int32_t todo = 1;
    p->n = 0;
    /* Nodes to open are kept at the end of `at`. */
    p->at[MOST_PARTS - 1] = v;
    while (todo > 0) {
        int32_t u = p->at[MOST_PARTS - todo--];
        if (u != v && !(leaves_too ? t->node[u].term < 0 : is_sum_of_sums(t, u))) {
            if (p->n + todo + 1 >= MOST_PARTS)
                return -1;
            find_run(w, u, &p->run[p->n]);
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

enum shape {
    SHAPE_OTHER,
    SHAPE_ASCENDING,
    SHAPE_DESCENDING,
    SHAPE_PAIRS,
    SHAPE_HALVES,
    SHAPE_SPLIT,
    SHAPE_FUSED
};

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

static enum shape find_shape(const struct ds_tree *t, int32_t v, const int32_t *part_of, int32_t n)
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
static int say_alike(struct words *w, struct ds_buf *b, const struct parts *p, enum shape shape)
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
        say_order(b, w, r);
        say_step(b, w, r);
        ds_buf_printf(b, ", %s", shape_words(shape, "block ", how, sizeof how));
    } else if (shorter >= 0) {
        ds_buf_printf(b, "2 chains of %d", r->count);
        if (shorter)
            ds_buf_printf(b, " and %d", p->run[1].count);
        ds_buf_printf(b, " %s", w->unit);
        say_order(b, w, r);
        say_step(b, w, r);
        ds_buf_puts(b, ", then 1 add");
    } else if (interleaved(p)) {
        ds_buf_printf(b, "%d interleaved lanes", p->n);
        say_step(b, w, r);
        if (p->n > 2)
            ds_buf_printf(b, ", %s", shape_words(shape, "lane ", how, sizeof how));
        else
            ds_buf_puts(b, ", then 1 add");
    } else {
        return 0;
    }
    return 1;
}

/* ---- blocks that are no chains --------------------------------------------------------------- */

/* ((B0 + B1) + B2) + ...: block[i] is the i-th block from the top, head[i] what is left of it, which
 * may be one block or the sum of several. */
struct spine {
    int32_t *block, *head, n;
};

static int find_spine(const struct ds_tree *t, int32_t v, struct spine *s)
{
    s->block = calloc(2 * MOST_PARTS, sizeof *s->block);
    s->n = 0;
    if (!s->block)
        return 0;
    s->head = s->block + MOST_PARTS;
    while (is_sum_of_sums(t, v) && t->node[v].children == 2 && s->n < MOST_PARTS) {
        s->head[s->n] = v = t->node[v].first;
        s->block[s->n++] = t->node[v].next;
    }
    return s->n > 0;
}

/* Whether the head with the n topmost blocks are blocks of one size, one behind the other; the last
 * ones in the order of k, which are the topmost, may be shorter. Returns how many are, or -1. */
static int32_t equal_blocks(const struct ds_tree *t, const struct spine *s, int32_t n)
{
    int32_t size = t->node[s->head[n - 1]].size, rest = t->node[s->block[0]].size;
    int32_t next = t->node[s->head[n - 1]].min + size, shorter = 0;
    if (highest(t, s->head[n - 1]) + 1 != next || rest > size)
        return -1;
    for (int32_t i = n - 1; i >= 0; i--) {
        const struct ds_tree_node *v = &t->node[s->block[i]];
        if (v->min != next || highest(t, s->block[i]) - v->min + 1 != v->size ||
            v->size != (shorter ? rest : size)) {
            if (shorter || v->min != next || v->size != rest)
                return -1;
        }
        shorter += v->size != size;
        next += v->size;
    }
    return shorter;
}

static void print_blocks(const struct words *w, struct ds_buf *b, const struct spine *s, int32_t n,
                         int32_t shorter, const char *one, const char *last)
{
    const struct ds_tree *t = w->t;
    int32_t size = t->node[s->head[n - 1]].size, rest = t->node[s->block[0]].size;
    int same = shorter == 0 || strcmp(one, last) == 0;
    ds_buf_printf(b, "%d blocks of %d", same ? n + 1 : n + 1 - shorter, size);
    if (same && shorter == 1)
        ds_buf_printf(b, " (last %d)", rest);
    else if (same && shorter)
        ds_buf_printf(b, " (last %d: %d)", shorter, rest);
    ds_buf_printf(b, " %s, each %s", w->unit, one);
    if (!same)
        ds_buf_printf(b, "; then %d of %d %s, %s%s", shorter, rest, w->unit,
                      shorter > 1 ? "each " : "", last);
    ds_buf_puts(b, "; block sums added in ascending order");
}

/* The words of the first block and of the last; 0 unless all of one size have the same. */
static int block_words(struct words *w, const struct spine *s, int32_t n, int32_t shorter,
                       struct ds_buf *one, struct ds_buf *last)
{
    describe(w, one, s->head[n - 1]);
    describe(w, last, s->block[0]);
    int ok = one->data && last->data && !one->failed && !last->failed;
    for (int32_t i = n - 1; i > 0 && ok; i--) {
        struct ds_buf own = {0};
        describe(w, &own, s->block[i]);
        ok = own.data && strcmp(own.data, i < shorter ? last->data : one->data) == 0;
        ds_buf_free(&own);
    }
    return ok && (shorter || strcmp(one->data, last->data) == 0);
}

/* "3 blocks of 256 k, each 16 interleaved lanes, pairwise; block sums added in ascending order".
 * Whatever is in the blocks, it is the same in all of them. */
static int say_blocks(struct words *w, struct ds_buf *b, int32_t v)
{
    struct spine s;
    int found = 0;
    if (find_spine(w->t, v, &s)) {
        for (int32_t n = s.n; n > 0 && !found; n--) {
            int32_t shorter = equal_blocks(w->t, &s, n);
            struct ds_buf one = {0}, last = {0};
            if (shorter < 0 || (n == 1 && shorter))
                continue;
            found = block_words(w, &s, n, shorter, &one, &last);
            if (found)
                print_blocks(w, b, &s, n, shorter, one.data, last.data);
            ds_buf_free(&one);
            ds_buf_free(&last);
        }
    }
    free(s.block);
    return found;
}

/* What fits no pattern: the two (or more) sides, each with its terms. */
static void say_sides(struct words *w, struct ds_buf *b, int32_t v)
{
    const struct ds_tree *t = w->t;
    const char *between = "";
    int32_t shown = 0;
    for (int32_t c = t->node[v].first; c >= 0; c = t->node[c].next, shown++) {
        int32_t high = highest(t, c);
        ds_buf_printf(b, "%s[", between);
        between = " + ";
        if (t->node[c].term >= 0) {
            ds_buf_printf(b, "%s %d]", w->unit, t->node[c].term);
            continue;
        }
        if (high - t->node[c].min + 1 == t->node[c].size)
            ds_buf_printf(b, "%s %d-%d: ", w->unit, t->node[c].min, high);
        else
            ds_buf_printf(b, "%d of %s %d-%d: ", t->node[c].size, w->unit, t->node[c].min, high);
        if (shown >= 8 || b->len > MOST_TEXT)
            ds_buf_puts(b, "...");
        else
            describe(w, b, c);
        ds_buf_puts(b, "]");
    }
}

static void say_parts(struct words *w, struct ds_buf *b, int32_t v)
{
    struct parts *p = calloc(1, sizeof *p);
    int32_t *part_of = calloc((size_t)w->t->n, sizeof *part_of);
    int done = 0;
    for (int step = 0; step < 3 && p && part_of && !done; step++) {
        /* Chains; two or three neighbours are tried as single terms first. */
        int leaves = step == 1;
        for (int32_t i = 0; i < w->t->n; i++)
            part_of[i] = -1;
        if (collect_parts(w, v, p, part_of, leaves) != 0 ||
            (step == 0 && p->run[0].count <= 3 && abs(p->run[0].stride) == 1))
            continue;
        done = say_alike(w, b, p, find_shape(w->t, v, part_of, p->n));
    }
    free(p);
    free(part_of);
    if (!done && !say_blocks(w, b, v))
        say_sides(w, b, v);
}

static void describe(struct words *w, struct ds_buf *b, int32_t v)
{
    struct run r;
    if (w->depth == DEEPEST || b->len > MOST_TEXT) {
        ds_buf_printf(b, "%d %s in a deeper order", w->t->node[v].size, w->unit);
        return;
    }
    w->depth++;
    find_run(w, v, &r);
    if (r.head < 0 && r.count == 2 && w->t->node[v].size == 2) {
        ds_buf_printf(b, "2 %s", w->unit);
    } else if (r.head < 0) {
        say_run(b, w, &r);
    } else if (r.count == 0) {
        say_parts(w, b, v);
    } else if (!r.regular) {
        say_parts(w, b, v);
    } else {
        struct run tail = r;
        describe(w, b, r.head);
        if (tail.count == 1) {
            ds_buf_printf(b, "; then %s %d", w->unit, tail.first);
        } else {
            ds_buf_printf(b, "; then %d %s one by one", tail.count, w->unit);
            say_order(b, w, &tail);
            say_step(b, w, &tail);
        }
    }
    w->depth--;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* A copy in which the children of a sum that is not rounded belong to its parent. */
static int contract(const struct ds_tree *t, struct ds_tree *out)
{
    int32_t *up = calloc((size_t)t->n, sizeof *up), *to = calloc((size_t)t->n, sizeof *to);
    int rc = up && to && ds_tree_init(out, t->terms, NULL) == 0 ? 0 : -1;
    for (int32_t i = t->n - 1; i >= 0 && rc == 0; i--) {
        int root = i == t->n - 1;
        if (t->node[i].term < 0 && !root && (t->node[i].flags & DS_TREE_WIDE)) {
            to[i] = to[up[i]];
        } else {
            to[i] = ds_tree_leaf(out, t->node[i].term);
            out->node[to[i]].flags = t->node[i].flags;
            if (!root)
                ds_tree_attach(out, to[up[i]], to[i]);
        }
        for (int32_t c = t->node[i].first; c >= 0; c = t->node[c].next)
            up[c] = i;
    }
    if (rc == 0)
        rc = ds_tree_finish(out, to[t->n - 1], NULL);
    free(up);
    free(to);
    return rc;
}

static void say_roundings(struct ds_buf *b, const struct ds_tree *t)
{
    static const char *const inputs[] = {"", "tf32", "tf32 (cut off)", "bf16",
                                         "tf32 (ties away from 0)"};
    int32_t bf16 = 0, f16 = 0;
    for (int32_t i = 0; i < t->n; i++) {
        bf16 += (t->node[i].flags & DS_TREE_BF16) != 0;
        f16 += (t->node[i].flags & DS_TREE_F16) != 0;
    }
    if (bf16)
        ds_buf_printf(b, ", %d sums rounded to bf16", bf16);
    if (f16)
        ds_buf_printf(b, ", %d sums rounded to f16", f16);
    if (t->inputs)
        ds_buf_printf(b, ", factors rounded to %s", inputs[t->inputs]);
}

static int says(const struct ds_buf *b, const char *what)
{
    return b->data && strstr(b->data, what) != NULL;
}

void ds_tree_words(struct ds_buf *b, const struct ds_tree *t, const char *unit)
{
    struct ds_tree plain = {0};
    struct ds_buf own = {0}; /* lengths are judged by what this tree needs */
    struct words w = {.t = &plain, .unit = unit, .say_joins = t->joins};
    int fused = ds_tree_all_fused(t);
    if (contract(t, &plain) == 0)
        w.term = calloc((size_t)t->terms, sizeof *w.term);
    if (!w.term) {
        b->failed = 1;
    } else {
        describe(&w, &own, plain.root);
        if (t->joins && t->terms > 1 && !says(&own, "FMA") && !says(&own, "mul+add") &&
            ds_tree_multiway(t) == 0)
            ds_buf_puts(&own, fused > 0 ? ", FMA" : fused ? ", FMA in part" : ", mul+add");
        say_roundings(&own, t);
        ds_buf_puts(b, own.data ? own.data : "");
        b->failed |= own.failed;
    }
    ds_buf_free(&own);
    free(w.term);
    ds_tree_free(&plain);
}
