/* test_order_softmax.c: the orders of softmax, combine and allreduce, known by construction, are found
 * exactly; and a replay fails where the tree that was seen is not the one that is used. */
#include "tests/unit/kernels/order_specimens.h"

#include "base/mem.h"

SOFTMAX(sequential);
SOFTMAX(reversed);
SOFTMAX(split4);
SOFTMAX(lanes);
SOFTMAX(pairwise);
SOFTMAX(double);
SOFTMAX(by_rows);
SOFTMAX(arrival);
SOFTMAX(kahan);
SOFTMAX(kahan_down);
SOFTMAX(kahan_lanes);
SOFTMAX(neumaier);
SOFTMAX(nested);
COMBINE(sequential);
COMBINE(fma);
COMBINE(reversed);
COMBINE(lanes);
COMBINE(pairwise);
COMBINE(fused4);
COMBINE(bf16_parts);
COMBINE(edges);
COMBINE(arrival);
ALLREDUCE(sequential);
ALLREDUCE(reversed);
ALLREDUCE(lanes);
ALLREDUCE(pairwise);
ALLREDUCE(double);
ALLREDUCE(arrival);

/* Three terms or fewer ascend: that is what a question shows. A row of many is added backwards. */
static float sum_falsely(const struct spot *s)
{
    int64_t n = 0;
    for (int64_t i = 0; i < s->k; i++)
        n += s->x[i] != 0.0f;
    return n > 3 ? sum_reversed(s) : sum_fma(s);
}
SOFTMAX(falsely);

/* The last place of exp is cut off: whoever replays with an exp of his own is wrong. */
static int coarse_launch(const void *args, const struct ds_exec *exec, char *why, size_t size)
{
    const struct ds_softmax_args *a = args;
    (void)exec, (void)why, (void)size;
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = a->x + r * a->ldx;
        float *y = a->y + r * a->ldy, max = x[0], sum = 0.0f;
        for (int64_t i = 1; i < a->width; i++)
            max = x[i] > max ? x[i] : max;
        for (int64_t i = 0; i < a->width; i++) {
            y[i] = ds_f32_from_bits(ds_f32_bits(expf(x[i] - max)) & ~(i % 2 ? 7u : 0u));
            sum += y[i];
        }
        for (int64_t i = 0; i < a->width; i++)
            y[i] *= 1.0f / sum;
    }
    return 0;
}
static const struct ds_kernel coarse = {
    .abi = DS_KERNEL_ABI, .op = DS_OP_SOFTMAX, .name = "coarse", .launch = coarse_launch};

/* Outputs that are no e / sum. */
static int rounded_launch(const void *args, const struct ds_exec *exec, char *why, size_t size)
{
    const struct ds_softmax_args *a = args;
    sequential_softmax_launch(args, exec, why, size);
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            float *y = a->y + r * a->ldy + i;
            *y = *y == 1.0f || *y > 0.99f ? *y : ds_bf16_value(ds_bf16_round(*y));
        }
    return 0;
}
static const struct ds_kernel rounded = {
    .abi = DS_KERNEL_ABI, .op = DS_OP_SOFTMAX, .name = "rounded", .launch = rounded_launch};

static int32_t tree_lanes_fused(struct ds_tree *t)
{
    return lanes_tree(t, 0);
}

struct known {
    const struct ds_kernel *kernel;
    tree_fn tree;
    int zero_start;
};

static void measure_known(const struct known *c, const char *shape, int64_t rows, int joins)
{
    struct ds_order_setting set = setting(c->kernel, shape, rows);
    struct ds_order_library lib = {0};
    struct ds_order o;
    struct ds_error err;
    struct ds_tree want;
    assert_ok(ds_order_measure(&set, &lib, &o, &err), err);
    assert_int_equal(o.sum[0].fixed, 1);
    assert_int_equal(o.sum[0].n_classes, 1);
    if (o.sum[0].classes[0].tree < 0)
        fail_msg("%s: %s", c->kernel->name, o.sum[0].classes[0].why);
    make_tree(&want, o.sum[0].terms, c->tree, joins, c->zero_start);
    check_tree(c->kernel->name, lib.tree[0], &want);
    check_reproduced(c->kernel->name, &o.sum[0]);
    ds_tree_free(&want);
    ds_order_free(&o);
    ds_order_library_free(&lib);
}

/* All terms are alike: which product is fused has no meaning, and no flag says so. */
static void unfuse(struct ds_tree *t, int32_t root)
{
    for (int32_t i = 0; i <= root; i++)
        t->node[i].flags &= ~(uint32_t)DS_TREE_FUSED;
}
static int32_t plain_reversed(struct ds_tree *t)
{
    int32_t root = tree_reversed(t);
    unfuse(t, root);
    return root;
}
static int32_t plain_split4(struct ds_tree *t)
{
    int32_t root = tree_split4(t);
    unfuse(t, root);
    return root;
}
static int32_t plain_double(struct ds_tree *t)
{
    int32_t root = tree_double(t);
    unfuse(t, root);
    return root;
}

static void test_softmax_trees(void **state)
{
    static const struct known cases[] = {
        {&sequential_softmax, tree_sequential, 0},
        {&reversed_softmax, plain_reversed, 0},
        {&split4_softmax, plain_split4, 0},
        {&lanes_softmax, tree_lanes_fused, 0},
        {&pairwise_softmax, tree_pairwise, 0},
        {&double_softmax, plain_double, 0},
        {&coarse, tree_sequential, 0},
    };
    static const char *const shapes[] = {"width=67", "width=160", "width=4", "width=1"};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t s = 0; s < 2; s++)
            measure_known(&cases[i], shapes[s], 1 + 2 * (int64_t)s, 0);
    measure_known(&cases[0], shapes[2], 2, 0);
    measure_known(&cases[0], shapes[3], 2, 0);
}

static void test_combine_trees(void **state)
{
    static const struct known cases[] = {
        {&sequential_combine, tree_sequential, 1}, {&fma_combine, tree_fma, 1},
        {&reversed_combine, tree_reversed, 1},     {&lanes_combine, tree_lanes_fused, 1},
        {&pairwise_combine, tree_pairwise, 0},     {&fused4_combine, tree_fused4, 1},
        {&bf16_parts_combine, bf16_parts_tree, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        measure_known(&cases[i], "width=20,top_k=16", 1, 1);
        measure_known(&cases[i], "width=3,top_k=40", 4, 1);
    }
}

static void test_allreduce_trees(void **state)
{
    static const struct known cases[] = {
        {&sequential_allreduce, tree_sequential, 1}, {&reversed_allreduce, plain_reversed, 1},
        {&lanes_allreduce, tree_lanes_fused, 1},     {&pairwise_allreduce, tree_pairwise, 0},
        {&double_allreduce, plain_double, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        measure_known(&cases[i], "width=20,ranks=16", 1, 0);
        measure_known(&cases[i], "width=3,ranks=72", 4, 0);
    }
}

/* reference and pinned, as their head comments have it. */
static void test_registry(void **state)
{
    const struct known ascending[] = {
        {kernel(DS_OP_SOFTMAX, "reference"), tree_sequential, 0},
        {kernel(DS_OP_ALLREDUCE, "reference"), tree_sequential, 0},
        {kernel(DS_OP_ALLREDUCE, "pinned"), tree_sequential, 0},
    };
    const struct known combines[] = {
        {kernel(DS_OP_COMBINE, "reference"), tree_sequential, 1},
        {kernel(DS_OP_COMBINE, "pinned"), tree_fma, 1},
    };
    (void)state;
    measure_known(&ascending[0], "width=50", 2, 0);
    measure_known(&ascending[1], "width=50,ranks=6", 2, 0);
    measure_known(&ascending[2], "width=50,ranks=6", 2, 0);
    measure_known(&combines[0], "width=50,top_k=6", 2, 1);
    measure_known(&combines[1], "width=50,top_k=6", 2, 1);
}

/* Blocks of 256; in each 16 lanes, then those 8, 4, 2, 1 apart. */
static int32_t pinned_tree(struct ds_tree *t)
{
    int32_t sum = -1;
    for (int64_t from = 0; from < t->terms; from += 256) {
        int64_t n = t->terms - from < 256 ? t->terms - from : 256;
        int32_t lane[16];
        for (int64_t j = 0; j < 16; j++)
            lane[j] = chain(t, from + j, n / 16, 16, 0);
        for (int apart = 8; apart; apart /= 2)
            for (int j = 0; j < apart; j++)
                lane[j] = ds_tree_join(t, lane[j], lane[j + apart]);
        sum = sum < 0 ? lane[0] : ds_tree_join(t, sum, lane[0]);
    }
    return sum;
}

static void test_pinned_softmax(void **state)
{
    const struct known pinned = {kernel(DS_OP_SOFTMAX, "pinned"), pinned_tree, 0};
    (void)state;
    measure_known(&pinned, "width=320", 1, 0);
    measure_known(&pinned, "width=64", 3, 0);
}

static struct ds_order measure_one(const struct ds_kernel *k, const char *shape, int64_t rows,
                                   struct ds_order_library *lib)
{
    struct ds_order_setting set = setting(k, shape, rows);
    struct ds_order o;
    struct ds_error err;
    assert_ok(ds_order_measure(&set, lib, &o, &err), err);
    return o;
}

/* Nothing is swallowed: only whole rows show in which order errors are kept. */
static void test_compensated(void **state)
{
    static const struct {
        const struct ds_kernel *kernel;
        const char *words;
    } cases[] = {
        {&kahan_softmax, "one chain of 150 terms in ascending order, compensated: what an addition "
                         "loses is taken off the next term (Kahan)"},
        {&kahan_down_softmax, "one chain of 150 terms in descending order, compensated"},
        {&kahan_lanes_softmax, "4 interleaved lanes, pairwise, compensated"},
        {&neumaier_softmax, "one sum of 150 terms that shows no order, as one that is exact"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int64_t rows = 1; rows <= 3; rows += 2) {
            struct ds_order_library lib = {0};
            struct ds_order o = measure_one(cases[i].kernel, "width=150", rows, &lib);
            struct ds_buf words = {0};
            assert_int_equal(lib.n, 1);
            ds_tree_words(&words, lib.tree[0], "terms");
            if (!strstr(words.data, cases[i].words))
                fail_msg("%s: %s", cases[i].kernel->name, words.data);
            check_reproduced(cases[i].kernel->name, &o.sum[0]);
            ds_buf_free(&words);
            ds_order_free(&o);
            ds_order_library_free(&lib);
        }
}

/* A tree of a plain sum answers like that of a compensated one, and is not it. */
static void test_plain_beside_compensated(void **state)
{
    struct ds_order_library lib = {0};
    struct ds_order first = measure_one(&kahan_softmax, "width=60", 2, &lib),
                    second = measure_one(&sequential_softmax, "width=60", 2, &lib);
    (void)state;
    assert_int_equal(lib.n, 2);
    check_reproduced("compensated", &first.sum[0]);
    check_reproduced("plain", &second.sum[0]);
    ds_order_free(&first);
    ds_order_free(&second);
    ds_order_library_free(&lib);
}

/* Of a long sum few triples are asked. Where the order that they show does not give the bits, all are. */
static void test_long_order_with_a_flaw(void **state)
{
    struct ds_order_library lib = {0};
    struct ds_order o = measure_one(&nested_softmax, "width=2100", 1, &lib);
    struct ds_buf words = {0};
    (void)state;
    assert_int_equal(lib.n, 1);
    ds_tree_words(&words, lib.tree[0], "terms");
    assert_string_equal(words.data, "2 chains of 1000 and 4 terms in ascending order, then 1 add; "
                                    "then 1096 terms one by one in ascending order");
    check_reproduced("nested", &o.sum[0]);
    ds_buf_free(&words);
    ds_order_free(&o);
    ds_order_library_free(&lib);
}

/* Questions have few terms; only whole rows show that the tree is not theirs. */
static void test_false_order(void **state)
{
    struct ds_order_library lib = {0};
    struct ds_order o = measure_one(&falsely_softmax, "width=160", 3, &lib);
    struct ds_tree want;
    (void)state;
    make_tree(&want, 160, tree_sequential, 0, 0);
    assert_true(o.sum[0].classes[0].tree >= 0);
    check_tree("falsely", lib.tree[o.sum[0].classes[0].tree], &want);
    assert_true(o.sum[0].compared >= 480);
    assert_true(o.sum[0].reproduced < o.sum[0].compared / 2);
    ds_tree_free(&want);
    ds_order_free(&o);
    ds_order_library_free(&lib);
}

/* What cannot be replayed is not counted, and said. */
static void test_exp_is_not_seen(void **state)
{
    struct ds_order_library lib = {0};
    struct ds_order o = measure_one(&rounded, "width=40", 2, &lib);
    (void)state;
    assert_true(o.sum[0].classes[0].tree >= 0);
    assert_int_equal(o.sum[0].compared, 0);
    assert_int_equal(o.sum[0].reproduced, 0);
    assert_non_null(strstr(o.sum[0].note, "not replayed"));
    ds_order_free(&o);
    ds_order_library_free(&lib);
}

static void test_rows_and_edges(void **state)
{
    struct ds_order_library lib = {0}, other = {0};
    struct ds_order few = measure_one(&by_rows_softmax, "width=64", 2, &lib);
    struct ds_order many = measure_one(&by_rows_softmax, "width=64", 3, &lib);
    struct ds_order edges = measure_one(&edges_combine, "width=40,top_k=9", 2, &other);
    (void)state;
    assert_int_equal(lib.n, 2);
    assert_int_not_equal(few.sum[0].classes[0].tree, many.sum[0].classes[0].tree);
    check_reproduced("few", &few.sum[0]);
    check_reproduced("many", &many.sum[0]);
    assert_int_equal(edges.sum[0].n_classes, 2);
    assert_int_not_equal(edges.sum[0].class_of[0], edges.sum[0].class_of[20]);
    check_reproduced("edges", &edges.sum[0]);
    ds_order_free(&few);
    ds_order_free(&many);
    ds_order_free(&edges);
    ds_order_library_free(&lib);
    ds_order_library_free(&other);
}

static void test_not_fixed(void **state)
{
    const struct ds_kernel *const kernels[] = {&arrival_softmax, &arrival_combine,
                                               &arrival_allreduce};
    static const char *const shapes[] = {"width=300", "width=40,top_k=64", "width=40,ranks=64"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct ds_order_library lib = {0};
        struct ds_order o = measure_one(kernels[i], shapes[i], 1, &lib);
        assert_int_equal(o.sum[0].fixed, 0);
        assert_int_equal(o.sum[0].compared, 0);
        ds_order_free(&o);
        ds_order_library_free(&lib);
    }
}

static void test_out_of_memory(void **state)
{
    const struct ds_kernel *const kernels[] = {&sequential_softmax, &fma_combine,
                                               &sequential_allreduce};
    static const char *const shapes[] = {"width=9", "width=5,top_k=6", "width=5,ranks=6"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        int failures = 0;
        for (long n = 1; n < 150; n++) {
            struct ds_order_setting set = setting(kernels[i], shapes[i], 2);
            struct ds_order_library lib = {0};
            struct ds_order o;
            struct ds_error err;
            ds_mem_fail_at(n);
            int rc = ds_order_measure(&set, &lib, &o, &err);
            ds_mem_fail_at(0);
            failures += rc != 0;
            if (rc == 0)
                check_reproduced("out of memory", &o.sum[0]);
            ds_order_free(&o);
            ds_order_library_free(&lib);
        }
        assert_in_range(failures, 12, 148);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax_trees),
        cmocka_unit_test(test_combine_trees),
        cmocka_unit_test(test_allreduce_trees),
        cmocka_unit_test(test_registry),
        cmocka_unit_test(test_pinned_softmax),
        cmocka_unit_test(test_compensated),
        cmocka_unit_test(test_plain_beside_compensated),
        cmocka_unit_test(test_long_order_with_a_flaw),
        cmocka_unit_test(test_false_order),
        cmocka_unit_test(test_exp_is_not_seen),
        cmocka_unit_test(test_rows_and_edges),
        cmocka_unit_test(test_not_fixed),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests_name("order of softmax, combine, allreduce", tests, NULL, NULL);
}
