/* order_tree.c: building a tree, its canonical form, its digest, its picture. No recursion: a chain
 * of 100,000 terms is as deep. */
#define _GNU_SOURCE
#include "kernels/lab/order_tree.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

int ds_tree_init(struct ds_tree *t, int64_t terms, struct ds_error *err)
{
    memset(t, 0, sizeof *t);
    if (terms < 1 || terms > INT32_MAX / 2)
        return ds_fail(err, "a sum of %lld terms has no tree", (long long)terms);
    t->node = ds_calloc((size_t)(2 * terms), sizeof *t->node, "the tree", err);
    t->cap = (int32_t)(2 * terms);
    t->terms = terms;
    t->root = -1;
    return t->node ? 0 : -1;
}

void ds_tree_free(struct ds_tree *t)
{
    free(t->node);
    memset(t, 0, sizeof *t);
}

int32_t ds_tree_leaf(struct ds_tree *t, int32_t term)
{
    if (t->n == t->cap)
        return -1;
    t->node[t->n] = (struct ds_tree_node){
        .term = term, .first = -1, .next = -1, .size = 1, .min = term, .flags = 0};
    return t->n++;
}

int32_t ds_tree_inner(struct ds_tree *t)
{
    return ds_tree_leaf(t, -1);
}

void ds_tree_attach(struct ds_tree *t, int32_t parent, int32_t child)
{
    if (parent < 0 || child < 0)
        return;
    t->node[child].next = t->node[parent].first;
    t->node[parent].first = child;
    t->node[parent].children++;
}

int32_t ds_tree_join(struct ds_tree *t, int32_t a, int32_t b)
{
    int32_t n = ds_tree_inner(t);
    ds_tree_attach(t, n, a);
    ds_tree_attach(t, n, b);
    return n;
}

/* ---- canonical form -------------------------------------------------------------------------- */

/* All nodes under root, every parent before its children. -1 when one is met twice. */
static int32_t preorder(const struct ds_tree *t, int32_t root, int32_t *out)
{
    int32_t n = 1;
    out[0] = root;
    for (int32_t i = 0; i < n; i++)
        for (int32_t c = t->node[out[i]].first; c >= 0; c = t->node[c].next) {
            if (n == t->n)
                return -1;
            out[n++] = c;
        }
    return n;
}

static int by_min(const void *a, const void *b, void *nodes)
{
    const struct ds_tree_node *node = nodes;
    int32_t x = node[*(const int32_t *)a].min, y = node[*(const int32_t *)b].min;
    return (x > y) - (x < y);
}

/* Sizes and smallest terms from the leaves up, siblings in ascending order. */
static void sort_children(struct ds_tree *t, int32_t at, int32_t *room)
{
    struct ds_tree_node *n = &t->node[at];
    int32_t k = 0;
    if (n->term >= 0)
        return;
    n->size = 0;
    for (int32_t c = n->first; c >= 0; c = t->node[c].next) {
        room[k++] = c;
        n->size += t->node[c].size;
    }
    qsort_r(room, (size_t)k, sizeof *room, by_min, t->node);
    n->children = k;
    n->min = k ? t->node[room[0]].min : 0;
    n->first = k ? room[0] : -1;
    for (int32_t i = 0; i < k; i++)
        t->node[room[i]].next = i + 1 < k ? room[i + 1] : -1;
}

/* Copies the nodes in postorder. `stack` holds what is to be written: a node twice, first to push
 * its children, then (as ~index) to be written after them. */
static void write_postorder(const struct ds_tree *t, int32_t root, struct ds_tree_node *out,
                            int32_t *stack, int32_t *place)
{
    int32_t n = 0, top = 0;
    stack[top++] = root;
    while (top > 0) {
        int32_t at = stack[--top];
        if (at < 0) {
            place[~at] = n;
            out[n++] = t->node[~at];
            continue;
        }
        stack[top++] = ~at;
        int32_t from = top;
        for (int32_t c = t->node[at].first; c >= 0; c = t->node[c].next)
            stack[top++] = c;
        for (int32_t i = from, j = top - 1; i < j; i++, j--) {
            int32_t swap = stack[i];
            stack[i] = stack[j];
            stack[j] = swap;
        }
    }
    for (int32_t i = 0; i < n; i++) {
        out[i].first = out[i].first < 0 ? -1 : place[out[i].first];
        out[i].next = i == n - 1 || out[i].next < 0 ? -1 : place[out[i].next];
    }
}

static int no_tree(struct ds_error *err)
{
    ds_fail(err, "the order found is no tree over the terms");
    return 1;
}

static int check_terms(const struct ds_tree *t, const int32_t *order, int32_t n,
                       struct ds_error *err)
{
    char *seen = ds_calloc((size_t)t->terms, 1, "the tree", err);
    int64_t leaves = 0;
    if (!seen)
        return -1;
    for (int32_t i = 0; i < n; i++) {
        const struct ds_tree_node *v = &t->node[order[i]];
        int ok = v->term < 0 ? v->children >= 2 : v->term < t->terms && !seen[v->term];
        if (!ok) {
            free(seen);
            return no_tree(err);
        }
        if (v->term >= 0) {
            seen[v->term] = 1;
            leaves++;
        }
    }
    free(seen);
    return leaves == t->terms ? 0 : no_tree(err);
}

static void measure_depth(struct ds_tree *t, int32_t *depth)
{
    for (int32_t i = 0; i < t->n; i++) {
        depth[i] = 0;
        for (int32_t c = t->node[i].first; c >= 0; c = t->node[c].next)
            depth[i] = depth[c] + 1 > depth[i] ? depth[c] + 1 : depth[i];
    }
    t->depth = depth[t->n - 1];
}

int ds_tree_finish(struct ds_tree *t, int32_t root, struct ds_error *err)
{
    if (root < 0)
        return no_tree(err);
    int32_t *order = ds_calloc((size_t)t->cap * 3, sizeof *order, "the tree", err);
    struct ds_tree_node *out = ds_calloc((size_t)t->cap, sizeof *out, "the tree", err);
    int32_t n = order && out ? preorder(t, root, order) : -1;
    int rc = !order || !out ? -1 : n < 0 ? no_tree(err) : check_terms(t, order, n, err);
    if (rc == 0) {
        int32_t *room = order + t->cap;
        for (int32_t i = n - 1; i >= 0; i--)
            sort_children(t, order[i], room);
        write_postorder(t, root, out, order, room);
        free(t->node);
        t->node = out;
        out = NULL;
        t->n = n;
        t->root = n - 1;
        measure_depth(t, order);
        ds_tree_seal(t);
    }
    free(order);
    free(out);
    return rc;
}

/* The postorder with the number of children is the tree: term, children, flags of every node. */
void ds_tree_seal(struct ds_tree *t)
{
    XXH3_state_t *state = XXH3_createState();
    int64_t head[4] = {t->terms, t->zero_start, t->inputs, t->joins};
    t->digest = 0;
    if (!state)
        return;
    XXH3_64bits_reset(state);
    XXH3_64bits_update(state, head, sizeof head);
    if (t->compensated)
        XXH3_64bits_update(state, &t->compensated, sizeof t->compensated);
    for (int32_t i = 0; i < t->n; i++) {
        int32_t part[3] = {t->node[i].term, t->node[i].children, (int32_t)t->node[i].flags};
        XXH3_64bits_update(state, part, sizeof part);
    }
    t->digest = XXH3_64bits_digest(state);
    XXH3_freeState(state);
}

/* ---- questions ------------------------------------------------------------------------------- */

int ds_tree_all_fused(const struct ds_tree *t)
{
    int64_t fused = 0, could = 0;
    for (int32_t i = 0; i < t->n; i++) {
        int32_t leaves = 0, of = 0, all = 0;
        for (int32_t c = t->node[i].first; c >= 0; c = t->node[c].next, all++)
            if (t->node[c].term >= 0) {
                leaves++;
                of += (t->node[c].flags & DS_TREE_FUSED) != 0;
            }
        /* Where all that meet are leaves, one of them is there first. */
        fused += of;
        could += leaves == all && leaves ? (of == leaves ? leaves : leaves - 1) : leaves;
    }
    return fused == 0 ? 0 : fused == could ? 1 : -1;
}

int32_t ds_tree_multiway(const struct ds_tree *t)
{
    int32_t n = 0;
    for (int32_t i = 0; i < t->n; i++) {
        int wide_child = 0;
        for (int32_t c = t->node[i].first; c >= 0; c = t->node[c].next)
            wide_child |= (t->node[c].flags & DS_TREE_WIDE) != 0;
        n += !(t->node[i].flags & DS_TREE_WIDE) && (t->node[i].children > 2 || wide_child);
    }
    return n;
}

/* ---- graphviz -------------------------------------------------------------------------------- */

static void dot_text(struct ds_buf *b, const char *text)
{
    struct ds_buf safe = {0};
    ds_buf_escape(&safe, text, (size_t)-1);
    ds_buf_puts(b, "\"");
    for (const char *p = safe.data ? safe.data : ""; *p; p++) {
        if (*p == '"' || *p == '\\')
            ds_buf_puts(b, "\\");
        ds_buf_add(b, p, 1);
    }
    ds_buf_puts(b, "\"");
    b->failed |= safe.failed;
    ds_buf_free(&safe);
}

void ds_tree_dot(struct ds_buf *b, const struct ds_tree *t, const char *name)
{
    ds_buf_puts(b, "digraph ");
    dot_text(b, name);
    ds_buf_printf(b, " {\n  label=");
    dot_text(b, name);
    ds_buf_puts(b, ";\n  node [shape=circle, label=\"+\"];\n");
    for (int32_t i = 0; i < t->n; i++) {
        const struct ds_tree_node *v = &t->node[i];
        if (v->term >= 0)
            ds_buf_printf(b, "  n%d [shape=box, label=\"%d%s\"];\n", i, v->term,
                          v->flags & DS_TREE_FUSED ? " fma" : "");
        else if (v->flags)
            ds_buf_printf(b, "  n%d [label=\"+%s\"];\n", i,
                          v->flags & DS_TREE_WIDE   ? " wide"
                          : v->flags & DS_TREE_BF16 ? " bf16"
                                                    : " f16");
    }
    for (int32_t i = 0; i < t->n; i++)
        for (int32_t c = t->node[i].first; c >= 0; c = t->node[c].next)
            ds_buf_printf(b, "  n%d -> n%d;\n", i, c);
    ds_buf_puts(b, "}\n");
}
