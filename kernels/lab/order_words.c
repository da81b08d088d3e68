/* order_words.c: a tree in words that a person reads. Owns the patterns: chains, blocks, interleaved
 * lanes, pairwise sums, tails; what fits none is described part by part, so every tree has words.
 *
 * Works on a copy in which sums that are not rounded are one node with what they are added to. */
#include "kernels/lab/order_words.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static void describe(struct words *w, struct ds_buf *b, int32_t v);

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
    while (ds_words_is_sum_of_sums(t, v) && t->node[v].children == 2 && s->n < MOST_PARTS) {
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
    if (ds_words_highest(t, s->head[n - 1]) + 1 != next || rest > size)
        return -1;
    for (int32_t i = n - 1; i >= 0; i--) {
        const struct ds_tree_node *v = &t->node[s->block[i]];
        if (v->min != next || ds_words_highest(t, s->block[i]) - v->min + 1 != v->size ||
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
            if (shorter < 0)
                continue;
            found = block_words(w, &s, n, shorter, &one, &last);
            /* One block and another that is no part of it: they are told as the sides of a sum. */
            if (n == 1 && shorter && found)
                found = strcmp(one.data, last.data) == 0;
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
        int32_t high = ds_words_highest(t, c);
        ds_buf_printf(b, "%s[", between);
        between = " + ";
        if (t->node[c].term >= 0) {
            ds_buf_printf(b, "%.*s %d]", ds_tree_unit_length(w->unit, 1), w->unit, t->node[c].term);
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
        if (ds_words_collect_parts(w, v, p, part_of, leaves) != 0 ||
            (step == 0 && p->run[0].count <= 3 && abs(p->run[0].stride) == 1))
            continue;
        done = ds_words_say_alike(w, b, p, ds_words_find_shape(w->t, v, part_of, p->n));
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
    ds_words_find_run(w, v, &r);
    if (r.head < 0 && r.count == 2 && w->t->node[v].size == 2) {
        ds_buf_printf(b, "2 %s", w->unit);
    } else if (r.head < 0) {
        ds_words_say_run(b, w, &r);
    } else if (r.count == 0) {
        say_parts(w, b, v);
    } else if (!r.regular) {
        say_parts(w, b, v);
    } else {
        struct run tail = r;
        describe(w, b, r.head);
        if (tail.count == 1) {
            ds_buf_printf(b, "; then %.*s %d", ds_tree_unit_length(w->unit, 1), w->unit,
                          tail.first);
        } else {
            ds_buf_printf(b, "; then %d %s one by one", tail.count, w->unit);
            ds_words_say_order(b, w, &tail);
            ds_words_say_step(b, w, &tail);
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

static void say_compensation(struct ds_buf *b, const struct ds_tree *t)
{
    static const char *const words[] = {
        "", ", compensated: what an addition loses is taken off the next term (Kahan)",
        ", compensated: what additions lose is added up beside and joins at the end (Neumaier)",
        ", compensated: what products and additions lose is added up beside and joins at the end "
        "(Dot2)"};
    ds_buf_puts(b, words[t->compensated]);
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
        ds_buf_printf(b, ", %d sum%s rounded to bf16", bf16, bf16 == 1 ? "" : "s");
    if (f16)
        ds_buf_printf(b, ", %d sum%s rounded to f16", f16, f16 == 1 ? "" : "s");
    if (t->inputs)
        ds_buf_printf(b, ", factors rounded to %s", inputs[t->inputs]);
}

static int says(const struct ds_buf *b, const char *what)
{
    return b->data && strstr(b->data, what) != NULL;
}

int ds_tree_unit_length(const char *unit, int64_t n)
{
    const size_t len = strlen(unit);
    return (int)(n == 1 && len > 1 && unit[len - 1] == 's' ? len - 1 : len);
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
        ds_buf_lose(b);
    } else {
        describe(&w, &own, plain.root);
        if (t->joins && t->terms > 1 && !says(&own, "FMA") && !says(&own, "mul+add") &&
            ds_tree_multiway(t) == 0)
            ds_buf_puts(&own, fused > 0 ? ", FMA" : fused ? ", FMA in part" : ", mul+add");
        say_roundings(&own, t);
        say_compensation(&own, t);
        ds_buf_puts(b, own.data ? own.data : "");
        b->failed |= own.failed;
    }
    ds_buf_free(&own);
    free(w.term);
    ds_tree_free(&plain);
}
