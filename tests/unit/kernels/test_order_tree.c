/* test_order_tree.c: trees: canonical form, digest, words, picture; and their replay held against
 * sums written by hand. */
#include "tests/unit/kernels/order_specimens.h"

#include "kernels/lab/order_replay.h"

#include "base/mem.h"

typedef int32_t (*tree_fn)(struct ds_tree *t);

static void make(struct ds_tree *t, int64_t terms, tree_fn fn, int joins)
{
    struct ds_error err;
    assert_ok(ds_tree_init(t, terms, &err), err);
    assert_ok(ds_tree_finish(t, fn(t), &err), err);
    t->joins = joins;
    ds_tree_seal(t);
}

/* ---- canonical form -------------------------------------------------------------------------- */

/* The same tree with children and nodes made in another order. */
static int32_t mirrored_lanes(struct ds_tree *t)
{
    int32_t lane[8];
    for (int64_t j = 7; j >= 0; j--) {
        lane[j] = leaf(t, j, 0);
        for (int64_t i = j + 8; i < t->terms; i += 8) {
            int32_t l = leaf(t, i, 1);
            lane[j] = ds_tree_join(t, l, lane[j]);
        }
    }
    for (int width = 1; width < 8; width *= 2)
        for (int j = 0; j < 8; j += 2 * width)
            lane[j] = ds_tree_join(t, lane[j + width], lane[j]);
    return lane[0];
}

static int32_t fused_lanes(struct ds_tree *t)
{
    return lanes_tree(t, 1);
}

static int32_t rounded_lanes(struct ds_tree *t)
{
    return lanes_tree(t, 0);
}

static void test_canonical(void **state)
{
    struct ds_tree a, b, c;
    (void)state;
    make(&a, 64, fused_lanes, 1);
    make(&b, 64, mirrored_lanes, 1);
    make(&c, 64, rounded_lanes, 1);
    assert_int_equal(a.digest, b.digest);
    assert_int_equal(a.n, 127);
    assert_int_equal(b.n, 127);
    for (int32_t i = 0; i < a.n; i++)
        assert_memory_equal(&a.node[i], &b.node[i], sizeof a.node[i]);
    assert_int_equal(a.depth, 10);
    assert_int_equal(ds_tree_all_fused(&a), 1);
    assert_int_equal(ds_tree_all_fused(&c), 0);
    assert_true(a.digest != c.digest);
    b.zero_start = 1;
    ds_tree_seal(&b);
    assert_true(a.digest != b.digest);
    ds_tree_free(&a);
    ds_tree_free(&b);
    ds_tree_free(&c);
}

static void test_refused(void **state)
{
    struct ds_error err;
    struct ds_tree t;
    (void)state;
    assert_int_equal(ds_tree_init(&t, 0, &err), -1);
    /* A term twice, a term missing, a node with one child, no root. */
    for (int i = 0; i < 4; i++) {
        assert_ok(ds_tree_init(&t, 3, &err), err);
        int32_t pair = ds_tree_join(&t, leaf(&t, 0, 0), leaf(&t, i == 0 ? 0 : 1, 0)), root = pair;
        if (i == 0) {
            root = ds_tree_join(&t, pair, leaf(&t, 2, 0));
        } else if (i == 2) {
            root = ds_tree_inner(&t);
            ds_tree_attach(&t, root, pair);
        } else if (i == 3) {
            root = -1;
        }
        assert_int_equal(ds_tree_finish(&t, root, &err), 1);
        assert_non_null(strstr(err.msg, "no tree"));
        ds_tree_free(&t);
    }
}

/* ---- words ----------------------------------------------------------------------------------- */

static int32_t two_chains(struct ds_tree *t)
{
    return split_tree(t, 2);
}
static int32_t eight_chains(struct ds_tree *t)
{
    return split_tree(t, 8);
}
static int32_t one_chain(struct ds_tree *t)
{
    return chain(t, 0, t->terms, 1, 1);
}
static int32_t backwards(struct ds_tree *t)
{
    return chain(t, t->terms - 1, t->terms, -1, 0);
}
static int32_t halves(struct ds_tree *t)
{
    return pairwise_tree(t, 0, t->terms);
}
static int32_t dot4(struct ds_tree *t)
{
    return wide_tree(t, 4);
}
static int32_t all_wide(struct ds_tree *t)
{
    return wide_tree(t, 0);
}

/* Blocks of 256, the last shorter. */
static int32_t blocks(struct ds_tree *t)
{
    int32_t sum = chain(t, 0, t->terms < 256 ? t->terms : 256, 1, 1);
    for (int64_t i = 256; i < t->terms; i += 256)
        sum = ds_tree_join(t, sum, chain(t, i, t->terms - i < 256 ? t->terms - i : 256, 1, 1));
    return sum;
}

/* 16 lanes, then lanes 8, 4, 2, 1 apart. */
static int32_t sixteen(struct ds_tree *t, int64_t from, int64_t n)
{
    int32_t lane[16];
    for (int64_t j = 0; j < 16; j++)
        lane[j] = chain(t, from + j, n / 16, 16, 1);
    for (int apart = 8; apart; apart /= 2)
        for (int j = 0; j < apart; j++)
            lane[j] = ds_tree_join(t, lane[j], lane[j + apart]);
    return lane[0];
}
static int32_t lanes_apart(struct ds_tree *t)
{
    return sixteen(t, 0, t->terms);
}
static int32_t blocks_of_lanes(struct ds_tree *t)
{
    int32_t sum = sixteen(t, 0, 64);
    for (int64_t i = 64; i < t->terms; i += 64)
        sum = ds_tree_join(t, sum, sixteen(t, i, t->terms - i < 64 ? t->terms - i : 64));
    return sum;
}
/* As BLIS adds from two rows on, and where the second block is the last. */
static int32_t blocks_of_8_lanes(struct ds_tree *t)
{
    int32_t sum = -1;
    for (int64_t from = 0; from < t->terms; from += 512) {
        const int64_t n = t->terms - from < 512 ? t->terms - from : 512;
        int32_t lane[8];
        for (int64_t j = 0; j < 8; j++)
            lane[j] = chain(t, from + j, n / 8, 8, 1);
        for (int apart = 1; apart < 8; apart *= 2)
            for (int j = 0; j < 8; j += 2 * apart)
                lane[j] = ds_tree_join(t, lane[j], lane[j + apart]);
        sum = sum < 0 ? lane[0] : ds_tree_join(t, sum, lane[0]);
    }
    return sum;
}
static int32_t blocks_last_two_shorter(struct ds_tree *t)
{
    static const int64_t from[] = {0, 20, 40, 60, 76, 92};
    int32_t sum = chain(t, 0, 20, 1, 0);
    for (int i = 1; i < 5; i++)
        sum = ds_tree_join(t, sum, chain(t, from[i], from[i + 1] - from[i], 1, 0));
    return sum;
}
static int32_t multiway(struct ds_tree *t)
{
    int32_t sum = ds_tree_inner(t);
    for (int64_t i = 0; i < t->terms; i++)
        ds_tree_attach(t, sum, leaf(t, i, 1));
    return sum;
}
static int32_t odd_one(struct ds_tree *t) /* ((0 + 3) + (1 + 2)) + 4 */
{
    int32_t a = ds_tree_join(t, leaf(t, 0, 0), leaf(t, 3, 0));
    int32_t b = ds_tree_join(t, leaf(t, 1, 0), leaf(t, 2, 0));
    return ds_tree_join(t, ds_tree_join(t, a, b), leaf(t, 4, 0));
}
static int32_t lane_and_rest(struct ds_tree *t) /* 0, 2, 4, 6, 1, 3, 5 */
{
    int32_t sum = chain(t, 0, 4, 2, 0);
    for (int64_t i = 1; i < 7; i += 2)
        sum = ds_tree_join(t, sum, leaf(t, i, 0));
    return sum;
}
static int32_t scattered(struct ds_tree *t)
{
    int32_t sum = leaf(t, 3, 0);
    static const int order[] = {0, 5, 1, 4, 6, 2, 9, 8, 7};
    for (int i = 0; i < t->terms - 1; i++)
        sum = ds_tree_join(t, sum, leaf(t, order[i], 0));
    return sum;
}

/* Every second four. */
static int32_t stripes(struct ds_tree *t)
{
    int32_t lane[2] = {leaf(t, 0, 0), leaf(t, 4, 0)};
    for (int64_t i = 1; i < t->terms; i++)
        if (i != 4)
            lane[i / 4 % 2] = ds_tree_join(t, lane[i / 4 % 2], leaf(t, i, 1));
    return ds_tree_join(t, lane[0], lane[1]);
}

static void test_words(void **state)
{
    static const struct {
        int64_t terms;
        tree_fn tree;
        int joins;
        const char *words;
    } cases[] = {
        {1, one_chain, 1, "one k"},
        {2, one_chain, 1, "2 k, FMA"},
        {576, one_chain, 1, "one chain of 576 k in ascending order, FMA"},
        {576, one_chain, 0, "one chain of 576 k in ascending order"},
        {9, backwards, 1, "one chain of 9 k in descending order, mul+add"},
        {576, two_chains, 1, "2 chains of 288 k in ascending order, FMA, then 1 add"},
        {300, blocks, 1, "2 chains of 256 and 44 k in ascending order, FMA, then 1 add"},
        {576, blocks, 1,
         "3 blocks of 256 (last 64) k, each one chain in ascending order, FMA, block sums added in "
         "ascending order"},
        {64, eight_chains, 1,
         "8 blocks of 8 k, each one chain in ascending order, FMA, block sums added in ascending "
         "order"},
        {67, eight_chains, 0,
         "8 blocks of 8 or 9 k, each one chain in ascending order, block sums added in ascending "
         "order"},
        {92, blocks_last_two_shorter, 0,
         "5 blocks of 20 (last 2: 16) k, each one chain in ascending order, block sums added in "
         "ascending order"},
        {64, rounded_lanes, 1, "8 interleaved lanes, mul+add, pairwise"},
        {67, rounded_lanes, 0,
         "8 interleaved lanes, pairwise; then 3 k one by one in ascending order"},
        {67, fused_lanes, 1,
         "8 interleaved lanes, FMA, pairwise; then 3 k one by one in ascending order, mul+add"},
        {64, lanes_apart, 1, "16 interleaved lanes, FMA, pairwise, halves apart"},
        {192, blocks_of_lanes, 0,
         "3 blocks of 64 k, each 16 interleaved lanes, pairwise, halves apart; block sums added in "
         "ascending order"},
        {160, blocks_of_lanes, 0,
         "3 blocks of 64 (last 32) k, each 16 interleaved lanes, pairwise, halves apart; block "
         "sums added in ascending order"},
        {576, blocks_of_8_lanes, 0,
         "2 blocks of 512 (last 64) k, each 8 interleaved lanes, pairwise; block sums added in "
         "ascending order"},
        {1600, blocks_of_8_lanes, 0,
         "4 blocks of 512 (last 64) k, each 8 interleaved lanes, pairwise; block sums added in "
         "ascending order"},
        {64, halves, 0, "64 k, pairwise"},
        {96, halves, 0, "96 k, pairwise, split in halves"},
        {64, dot4, 1,
         "one chain of 64 k in ascending order, 4 at a time in fused sums rounded once, FMA"},
        {64, all_wide, 1, "one fused sum of 64 k, rounded once"},
        {65, all_wide, 1,
         "one sum of 65 k that shows no order, as one that is exact and rounded once: kept wider "
         "than f32, or compensated"},
        {4, multiway, 1, "one fused sum of 4 k, rounded once"},
        {5, odd_one, 0, "[2 of k 0-3: 2 k] + [k 1-2: 2 k]; then k 4"},
        {10, scattered, 0, "one chain of 10 k in no regular order"},
        {32, stripes, 1,
         "[16 of k 0-27: one chain of 16 k in ascending order, 4 side by side, 8 apart, FMA] + [16 "
         "of "
         "k 4-31: one chain of 16 k in ascending order, 4 side by side, 8 apart, FMA]"},
        {7, lane_and_rest, 0, "one chain of 7 k: 4 from 0, 2 apart, then 3 from 1, 2 apart"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_tree t;
        struct ds_buf b = {0};
        make(&t, cases[i].terms, cases[i].tree, cases[i].joins);
        ds_tree_words(&b, &t, "k");
        if (!b.data || strcmp(b.data, cases[i].words) != 0)
            print_error("%d: got  %s\n    want %s\n", (int)i, b.data, cases[i].words);
        assert_string_equal(b.data, cases[i].words);
        ds_buf_free(&b);
        ds_tree_free(&t);
    }
}

static void test_dot(void **state)
{
    struct ds_tree t;
    struct ds_buf b = {0};
    (void)state;
    make(&t, 3, dot4, 1);
    ds_tree_dot(&b, &t, "a \"name\"\n");
    assert_string_equal(b.data, "digraph \"a \\\"name\\\"\\\\n\" {\n"
                                "  label=\"a \\\"name\\\"\\\\n\";\n"
                                "  node [shape=circle, label=\"+\"];\n"
                                "  n0 [shape=box, label=\"0 fma\"];\n"
                                "  n1 [shape=box, label=\"1 fma\"];\n"
                                "  n2 [label=\"+ wide\"];\n"
                                "  n3 [shape=box, label=\"2 fma\"];\n"
                                "  n2 -> n0;\n  n2 -> n1;\n  n4 -> n2;\n  n4 -> n3;\n}\n");
    ds_buf_free(&b);
    ds_tree_free(&t);
}

/* ---- replay ---------------------------------------------------------------------------------- */

static int32_t chain_rounded(struct ds_tree *t)
{
    return chain(t, 0, t->terms, 1, 0);
}

static void test_replay(void **state)
{
    static const struct {
        tree_fn tree;
        sum_fn sum;
    } cases[] = {
        {chain_rounded, sum_sequential},
        {one_chain, sum_fma},
        {two_chains, sum_split2},
        {eight_chains, sum_split8},
        {rounded_lanes, sum_lanes},
        {fused_lanes, sum_tail},
        {halves, sum_pairwise},
        {dot4, sum_fused4},
        {all_wide, sum_double},
        {bf16_parts_tree, sum_bf16_parts},
        {f16_tree, sum_f16},
    };
    const int64_t k = 67;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_tree t;
        struct ds_replay r;
        struct ds_error err;
        make(&t, k, cases[i].tree, 1);
        assert_ok(ds_replay_compile(&t, t.root, &r, &err), err);
        float *room = ds_alloc_aligned(ds_replay_room(&r), sizeof *room, "room", &err);
        assert_non_null(room);
        struct matrix x = matrix_random(1, k, k, 0, 0), w = matrix_random(16, k, k, 0, 0);
        float packed[67 * 16], y[16];
        for (int64_t j = 0; j < 16 * k; j++)
            packed[j] = w.p[j % 16 * k + j / 16];
        ds_replay_block(&r, x.p, packed, room, y);
        for (int64_t j = 0; j < 16; j++) {
            struct spot s = {x.p, w.p + j * k, k, 0, j, 1, 16, 0};
            assert_bits_equal("block", j, y[j], cases[i].sum(&s));
            assert_bits_equal("one", j, ds_replay_one(&r, x.p, w.p + j * k, room),
                              cases[i].sum(&s));
        }
        free(room);
        matrix_free(&x);
        matrix_free(&w);
        ds_replay_free(&r);
        ds_tree_free(&t);
    }
}

/* A long chain of blocks on the right needs a short stack only. */
static int32_t right_heavy(struct ds_tree *t)
{
    int32_t sum = ds_tree_join(t, leaf(t, t->terms - 2, 0), leaf(t, t->terms - 1, 0));
    for (int64_t i = t->terms - 4; i >= 0; i -= 2)
        sum = ds_tree_join(t, ds_tree_join(t, leaf(t, i, 0), leaf(t, i + 1, 0)), sum);
    return sum;
}

static void test_replay_stack(void **state)
{
    struct ds_tree t;
    struct ds_replay r;
    struct ds_error err;
    (void)state;
    make(&t, 60000, right_heavy, 1);
    assert_int_equal(t.depth, 30000);
    assert_ok(ds_replay_compile(&t, t.root, &r, &err), err);
    assert_in_range(r.stack, 2, 5);
    ds_replay_free(&r);
    ds_tree_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_canonical), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_words),     cmocka_unit_test(test_dot),
        cmocka_unit_test(test_replay),    cmocka_unit_test(test_replay_stack),
    };
    return cmocka_run_group_tests_name("order tree", tests, NULL, NULL);
}
