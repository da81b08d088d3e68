/* test_order_triples.c: trees found by triples again, from answers that are a tree's own: long sums in
 * regular orders, which cost a few hundred questions, and ones that are regular but for a few terms. */
#include "tests/unit/testing.h"

#include "kernels/lab/order_recover.h"

#include <stdlib.h>

/* ---- a tree that answers ----------------------------------------------------------------------- */

struct oracle {
    struct ds_tree tree;
    int32_t *parent, *depth, *leaf;
    int64_t asked;
};

static int32_t meet(const struct oracle *o, int32_t a, int32_t b)
{
    a = o->leaf[a], b = o->leaf[b];
    while (a != b) {
        if (o->depth[a] >= o->depth[b])
            a = o->parent[a];
        else
            b = o->parent[b];
    }
    return o->depth[a];
}

static int below(void *self, int32_t i, int32_t j, int32_t k, struct ds_error *err)
{
    struct oracle *o = self;
    (void)err;
    o->asked++;
    return meet(o, j, k) > meet(o, i, j);
}

static void open_oracle(struct oracle *o, int32_t root)
{
    struct ds_error err;
    struct ds_tree *t = &o->tree;
    assert_int_equal(ds_tree_finish(t, root, &err), 0);
    o->asked = 0;
    o->parent = calloc((size_t)t->n, sizeof *o->parent);
    o->depth = calloc((size_t)t->n, sizeof *o->depth);
    o->leaf = calloc((size_t)t->n, sizeof *o->leaf);
    assert_true(o->parent && o->depth && o->leaf);
    for (int32_t v = t->n - 1; v >= 0; v--) {
        if (t->node[v].term >= 0)
            o->leaf[t->node[v].term] = v;
        for (int32_t c = t->node[v].first; c >= 0; c = t->node[c].next) {
            o->parent[c] = v;
            o->depth[c] = o->depth[v] + 1;
        }
    }
}

/* ---- orders ------------------------------------------------------------------------------------ */

struct made {
    const char *name;
    int64_t terms, block, lanes;
    int halves, swapped; /* swapped: these two terms of the last block are exchanged */
};

static int32_t term_at(const struct made *m, int64_t i)
{
    const int64_t last = m->terms - 1;
    return (int32_t)(m->swapped && i == last                ? last - m->swapped
                     : m->swapped && i == last - m->swapped ? last
                                                            : i);
}

static int32_t one_block(struct ds_tree *t, const struct made *m, int64_t from, int64_t n)
{
    int32_t lane[64];
    int64_t lanes = m->lanes;
    for (int64_t i = 0; i < n; i++) {
        const int32_t x = ds_tree_leaf(t, term_at(m, from + i));
        lane[i % lanes] = i < lanes ? x : ds_tree_join(t, lane[i % lanes], x);
    }
    for (; lanes > 1; lanes /= 2)
        for (int64_t i = 0; i < lanes / 2; i++)
            lane[i] = m->halves ? ds_tree_join(t, lane[i], lane[i + lanes / 2])
                                : ds_tree_join(t, lane[2 * i], lane[2 * i + 1]);
    return lane[0];
}

static void make(struct oracle *o, const struct made *m)
{
    struct ds_error err;
    int32_t sum = -1;
    assert_int_equal(ds_tree_init(&o->tree, m->terms, &err), 0);
    for (int64_t from = 0; from < m->terms; from += m->block) {
        const int64_t n = m->terms - from < m->block ? m->terms - from : m->block;
        const int32_t own = one_block(&o->tree, m, from, n);
        sum = sum < 0 ? own : ds_tree_join(&o->tree, sum, own);
    }
    open_oracle(o, sum);
}

static void close_oracle(struct oracle *o)
{
    ds_tree_free(&o->tree);
    free(o->parent);
    free(o->depth);
    free(o->leaf);
}

static void test_trees_are_found_again(void **state)
{
    static const struct made all[] = {
        {"chain", 2500, 2500, 1, 0, 0},
        {"8 lanes", 2500, 2500, 8, 1, 0},
        {"16 lanes", 2500, 2500, 16, 1, 0},
        {"16 lanes, neighbours", 2500, 2500, 16, 0, 0},
        {"blocks of 256", 2560 + 48, 256, 16, 1, 0},
        {"blocks of 512", 4096, 512, 32, 1, 0},
        {"blocks of 384", 6 * 384, 384, 8, 1, 0},
        {"two swapped", 2500, 2500, 16, 1, 1},
        {"chain, two swapped", 2500, 2500, 1, 0, 2},
        {"short", 300, 300, 4, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct oracle o;
        struct ds_tree t;
        struct ds_error err;
        make(&o, &all[i]);
        const struct ds_triples q = {.self = &o, .terms = all[i].terms, .below = below};
        assert_int_equal(ds_recover_triples(&q, &t, &err), 0);
        if (t.digest != o.tree.digest)
            fail_msg("%s: another tree, depth %d, want %d", all[i].name, t.depth, o.tree.depth);
        if (all[i].terms > 2048 && !all[i].swapped && all[i].block != 384 && o.asked > 3000)
            fail_msg("%s: %ld questions", all[i].name, (long)o.asked);
        ds_tree_free(&t);
        close_oracle(&o);
    }
}

/* Where the order is none of the regular ones it may take longer to find than anybody waits. */
static void test_limit_of_questions(void **state)
{
    static const struct made swapped = {"two swapped", 2500, 2500, 16, 1, 1};
    struct oracle o;
    struct ds_tree t;
    struct ds_error err;
    struct ds_triples q = {.self = &o, .terms = 2500, .work = 1e8, .below = below};
    (void)state;
    make(&o, &swapped);
    assert_int_equal(ds_recover_triples_fully(&q, &t, &err), 1);
    assert_string_equal(err.msg,
                        "it is none of the regular orders, and 200 questions, the most that "
                        "are asked of 2500 terms, do not show which");
    assert_int_equal(o.asked, 200);
    q.work = 1;
    assert_int_equal(ds_recover_triples_fully(&q, &t, &err), 0);
    assert_true(t.digest == o.tree.digest);
    ds_tree_free(&t);
    close_oracle(&o);
}

/* ---- no tree ----------------------------------------------------------------------------------- */

/* As sums that are compensated answer: two small terms are lost only where a large one comes between. */
static int compensated(void *self, int32_t i, int32_t j, int32_t k, struct ds_error *err)
{
    (void)self, (void)err;
    return !((i > j && i < k) || (i > k && i < j));
}

static void test_answers_of_no_tree(void **state)
{
    const struct ds_triples q = {.terms = 200, .below = compensated};
    struct ds_tree t;
    struct ds_error err;
    (void)state;
    assert_int_equal(ds_recover_triples(&q, &t, &err), 1);
    assert_string_equal(err.msg, "the answers belong to no tree");
    assert_int_equal(ds_recover_exact(200, &t, &err), 0);
    assert_int_equal(ds_tree_multiway(&t), 1);
    ds_tree_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trees_are_found_again),
        cmocka_unit_test(test_limit_of_questions),
        cmocka_unit_test(test_answers_of_no_tree),
    };
    return cmocka_run_group_tests_name("order by triples", tests, NULL, NULL);
}
