/* test_order.c: orders known by construction are found exactly, and reproduce every output. */
#include "tests/unit/kernels/order_specimens.h"

#include "base/mem.h"

MATMUL(sequential);
MATMUL(fma);
MATMUL(reversed);
MATMUL(split2);
MATMUL(split4);
MATMUL(split8);
MATMUL(lanes);
MATMUL(tail);
MATMUL(pairwise);
MATMUL(by_size);
MATMUL(nonzeros);
MATMUL(fused4);
MATMUL(double);
MATMUL(bf16_parts);
MATMUL(f16);
MATMUL(edges);
MATMUL(by_rows);
MATMUL(arrival);
MATMUL(largest);
RMSNORM(sequential);
RMSNORM(fma);
RMSNORM(reversed);
RMSNORM(split2);
RMSNORM(split4);
RMSNORM(split8);
RMSNORM(lanes);
RMSNORM(tail);
RMSNORM(pairwise);
RMSNORM(double);
RMSNORM(arrival);
RMSNORM(kahan);
MATMUL(counted);

/* ---- matmul ---------------------------------------------------------------------------------- */

static const struct {
    const struct ds_kernel *kernel;
    tree_fn tree;
} matmuls[] = {
    {&sequential_matmul, tree_sequential},
    {&fma_matmul, tree_fma},
    {&reversed_matmul, tree_reversed},
    {&split2_matmul, tree_split2},
    {&split4_matmul, tree_split4},
    {&split8_matmul, tree_split8},
    {&lanes_matmul, tree_lanes},
    {&tail_matmul, tree_tail},
    {&pairwise_matmul, tree_pairwise},
    {&fused4_matmul, tree_fused4},
    {&double_matmul, tree_double},
    {&bf16_parts_matmul, bf16_parts_tree},
    {&f16_matmul, f16_tree},
};

/* Pairs that nothing was added to before show no start from +0. */
static int starts_from_zero(const struct ds_kernel *k)
{
    return k != &pairwise_matmul;
}

static void test_matmul_trees(void **state)
{
    static const char *const shapes[] = {"n=24,k=67", "n=3,k=96", "n=24,k=16"};
    (void)state;
    for (size_t i = 0; i < sizeof matmuls / sizeof matmuls[0]; i++)
        for (size_t s = 0; s < 3; s++)
            for (int64_t rows = 1; rows <= 3; rows += 2) {
                struct ds_order_setting set = setting(matmuls[i].kernel, shapes[s], rows);
                struct ds_order_library lib = {0};
                struct ds_order o;
                struct ds_error err;
                struct ds_tree want;
                assert_ok(ds_order_measure(&set, &lib, &o, &err), err);
                assert_int_equal(o.sum[0].fixed, 1);
                assert_int_equal(o.sum[0].n_classes, 1);
                if (o.sum[0].classes[0].tree < 0)
                    fail_msg("%s: %s", matmuls[i].kernel->name, o.sum[0].classes[0].why);
                make_tree(&want, set.shape.k, matmuls[i].tree, 1,
                          starts_from_zero(matmuls[i].kernel));
                check_tree(matmuls[i].kernel->name, lib.tree[0], &want);
                check_reproduced(matmuls[i].kernel->name, &o.sum[0]);
                ds_tree_free(&want);
                ds_order_free(&o);
                ds_order_library_free(&lib);
            }
}

static void test_edges_have_their_own_tree(void **state)
{
    struct ds_order_setting set = setting(&edges_matmul, "n=40,k=33", 2);
    struct ds_order_library lib = {0};
    struct ds_order o;
    struct ds_error err;
    struct ds_tree ascending, descending;
    (void)state;
    make_tree(&ascending, 33, tree_fma, 1, 1);
    make_tree(&descending, 33, tree_reversed, 1, 1);
    assert_ok(ds_order_measure(&set, &lib, &o, &err), err);
    assert_int_equal(o.sum[0].n_classes, 2);
    for (int64_t i = 0; i < 80; i++) {
        const struct ds_order_class *c = &o.sum[0].classes[o.sum[0].class_of[i]];
        int edge = i % 40 < 8 || i % 40 >= 32;
        assert_true(c->tree >= 0);
        check_tree("edges", lib.tree[c->tree], edge ? &descending : &ascending);
        assert_int_equal(c->positions, edge ? 32 : 48);
    }
    check_reproduced("edges", &o.sum[0]);
    ds_tree_free(&ascending);
    ds_tree_free(&descending);
    ds_order_free(&o);
    ds_order_library_free(&lib);
}

/* The library of trees recognises what it has: one tree a kernel, whatever the rows. */
static void test_rows_change_the_tree(void **state)
{
    struct ds_order_library lib = {0};
    struct ds_error err;
    (void)state;
    for (int64_t rows = 1; rows <= 5; rows++) {
        struct ds_order_setting set = setting(&by_rows_matmul, "n=20,k=64", rows);
        struct ds_order o;
        assert_ok(ds_order_measure(&set, &lib, &o, &err), err);
        assert_int_equal(o.sum[0].n_classes, 1);
        assert_int_equal(o.sum[0].classes[0].tree, rows < 3 ? 0 : 1);
        check_reproduced("by_rows", &o.sum[0]);
        ds_order_free(&o);
    }
    assert_int_equal(lib.n, 2);
    ds_order_library_free(&lib);
}

static void test_no_fixed_order(void **state)
{
    struct ds_order_setting set = setting(&arrival_matmul, "n=20,k=64", 2);
    struct ds_order_library lib = {0};
    struct ds_order o;
    struct ds_error err;
    (void)state;
    assert_ok(ds_order_measure(&set, &lib, &o, &err), err);
    assert_int_equal(o.sum[0].fixed, 0);
    assert_in_range(o.sum[0].agreeing, 1, o.sum[0].repeats - 1);
    assert_int_equal(o.sum[0].n_classes, 0);
    assert_int_equal(o.sum[0].compared, 0);
    ds_order_free(&o);
    ds_order_library_free(&lib);
}

/* Five calls of so few outputs do not show it. */
static void test_order_by_history(void **state)
{
    struct ds_order_setting set = setting(&counted_matmul, "n=24,k=20", 1);
    struct ds_order_library lib = {0};
    struct ds_order o;
    struct ds_error err;
    (void)state;
    assert_ok(ds_order_measure(&set, &lib, &o, &err), err);
    assert_int_equal(o.sum[0].fixed, 0);
    assert_in_range(o.sum[0].repeats, 6, 64);
    assert_int_equal(o.sum[0].agreeing, o.sum[0].repeats - 1);
    ds_order_free(&o);
    ds_order_library_free(&lib);
}

/* The answers of a compensated sum belong to no tree. That its sums are mostly those of an exact one is what
 * can be said. */
static void test_compensated_sum(void **state)
{
    struct ds_order_setting set = setting(&kahan_rmsnorm, "width=300", 2);
    struct ds_order_library lib = {0};
    struct ds_order o;
    struct ds_buf words = {0};
    struct ds_error err;
    (void)state;
    assert_ok(ds_order_measure(&set, &lib, &o, &err), err);
    assert_int_equal(o.sum[0].fixed, 1);
    assert_int_equal(lib.n, 1);
    ds_tree_words(&words, lib.tree[0], "squares");
    assert_string_equal(words.data,
                        "one sum of 300 squares that shows no order, as one that is exact and "
                        "rounded once: kept wider than f32, or compensated");
    assert_true(o.sum[0].compared == 8 * 2 * 300 &&
                4 * o.sum[0].reproduced >= 3 * o.sum[0].compared);
    ds_buf_free(&words);
    ds_order_free(&o);
    ds_order_library_free(&lib);
}

/* Where the order follows the sizes of the terms, no tree reproduces everything. */
static void test_order_by_size(void **state)
{
    struct ds_order_setting set = setting(&by_size_matmul, "n=20,k=64", 1);
    struct ds_order_library lib = {0};
    struct ds_order o;
    struct ds_error err;
    (void)state;
    assert_ok(ds_order_measure(&set, &lib, &o, &err), err);
    assert_true(o.sum[0].reproduced < o.sum[0].compared);
    ds_order_free(&o);
    ds_order_library_free(&lib);
}

/* Nor where it follows which terms are zero. */
static void test_order_by_zeros(void **state)
{
    for (int64_t rows = 1; rows <= 2; rows++) {
        struct ds_order_setting set = setting(&nonzeros_matmul, "n=20,k=64", rows);
        struct ds_order_library lib = {0};
        struct ds_order o;
        struct ds_error err;
        (void)state;
        assert_ok(ds_order_measure(&set, &lib, &o, &err), err);
        assert_int_equal(o.sum[0].fixed, 1);
        assert_true(o.sum[0].compared > 0 && o.sum[0].reproduced < o.sum[0].compared);
        ds_order_free(&o);
        ds_order_library_free(&lib);
    }
}

static void test_no_sum(void **state)
{
    struct ds_order_setting set = setting(&largest_matmul, "n=20,k=64", 1);
    struct ds_order_library lib = {0};
    struct ds_order o;
    struct ds_error err;
    (void)state;
    assert_ok(ds_order_measure(&set, &lib, &o, &err), err);
    assert_int_equal(o.sum[0].classes[0].tree, -1);
    assert_non_null(strstr(o.sum[0].classes[0].why, "not exact"));
    assert_int_equal(o.sum[0].reproduced, 0);
    ds_order_free(&o);
    ds_order_library_free(&lib);
}

/* ---- rmsnorm --------------------------------------------------------------------------------- */

static void test_rmsnorm_trees(void **state)
{
    static const struct {
        const struct ds_kernel *kernel;
        tree_fn tree;
    } cases[] = {
        {&sequential_rmsnorm, tree_sequential}, {&fma_rmsnorm, tree_fma},
        {&reversed_rmsnorm, tree_reversed},     {&split2_rmsnorm, tree_split2},
        {&split4_rmsnorm, tree_split4},         {&split8_rmsnorm, tree_split8},
        {&lanes_rmsnorm, tree_lanes},           {&tail_rmsnorm, tree_tail},
        {&pairwise_rmsnorm, tree_pairwise},     {&double_rmsnorm, tree_double},
    };
    static const char *const shapes[] = {"width=67", "width=576"};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t s = 0; s < 2; s++) {
            struct ds_order_setting set = setting(cases[i].kernel, shapes[s], 1 + (int64_t)s);
            struct ds_order_library lib = {0};
            struct ds_order o;
            struct ds_error err;
            struct ds_tree want;
            assert_ok(ds_order_measure(&set, &lib, &o, &err), err);
            if (o.sum[0].classes[0].tree < 0)
                fail_msg("%s: %s", cases[i].kernel->name, o.sum[0].classes[0].why);
            make_tree(&want, set.shape.width, cases[i].tree, 1, 0);
            check_tree(cases[i].kernel->name, lib.tree[0], &want);
            check_reproduced(cases[i].kernel->name, &o.sum[0]);
            ds_tree_free(&want);
            ds_order_free(&o);
            ds_order_library_free(&lib);
        }
}

static void test_rmsnorm_not_fixed(void **state)
{
    struct ds_order_setting set = setting(&arrival_rmsnorm, "width=576", 3);
    struct ds_order_library lib = {0};
    struct ds_order o;
    struct ds_error err;
    (void)state;
    assert_ok(ds_order_measure(&set, &lib, &o, &err), err);
    assert_int_equal(o.sum[0].fixed, 0);
    ds_order_free(&o);
    ds_order_library_free(&lib);
}

/* ---- every variant of the registry ------------------------------------------------------------ */

/* Integer products in blocks are no sum of f32 terms: what must be said is that it is not found. */
static int is_no_sum(const struct ds_kernel *k)
{
    return strcmp(k->name, "q8") == 0;
}

static void check_variant(const struct ds_kernel *k, const char *shape, int64_t rows, int threads)
{
    struct ds_order_setting set = setting(k, shape, rows);
    struct ds_order_library lib = {0};
    struct ds_order o;
    struct ds_error err;
    set.threads = threads;
    set.visible = 600;
    set.team = ds_team_new(threads, &err);
    assert_non_null(set.team);
    assert_ok(ds_order_measure(&set, &lib, &o, &err), err);
    for (int s = 0; s < o.n_sums; s++) {
        const struct ds_order_sum *sum = &o.sum[s];
        if (!(k->claims & DS_CLAIM_REPEAT))
            continue;
        assert_int_equal(sum->fixed, 1);
        for (size_t c = 0; c < sum->n_classes; c++) {
            if (sum->classes[c].tree < 0 && !is_no_sum(k))
                fail_msg("%s/%s %s, %d rows, %d threads: %s", ds_op_name(k->op), k->name, sum->name,
                         (int)rows, threads, sum->classes[c].why);
        }
        if (!is_no_sum(k) && sum->compared)
            check_reproduced(k->name, sum);
    }
    ds_order_free(&o);
    ds_order_library_free(&lib);
    ds_team_free(set.team);
}

static void test_every_variant(void **state)
{
    static const struct {
        int op;
        const char *shape;
        int64_t rows[2];
    } calls[] = {
        {DS_OP_MATMUL, "n=40,k=300", {1, 9}},
        {DS_OP_RMSNORM, "width=100", {1, 3}},
        {DS_OP_ATTENTION, "heads=2,kv_heads=1,head_dim=16", {1, 2}},
        {DS_OP_SOFTMAX, "width=100", {1, 3}},
        {DS_OP_COMBINE, "width=40,top_k=8", {1, 3}},
        {DS_OP_ALLREDUCE, "width=40,ranks=8", {1, 3}},
    };
    (void)state;
    for (size_t i = 0; i < ds_kernel_count(); i++) {
        const struct ds_kernel *k = ds_kernel_at(i);
        char why[256];
        for (size_t c = 0; c < sizeof calls / sizeof calls[0]; c++) {
            if (k->op != calls[c].op || strcmp(k->name, "openblas") == 0 ||
                (k->available && k->available(why, sizeof why) != 0))
                continue;
            check_variant(k, calls[c].shape, calls[c].rows[0], 1);
            check_variant(k, calls[c].shape, calls[c].rows[0], 2);
            check_variant(k, calls[c].shape, calls[c].rows[1], 2);
        }
    }
}

/* The last row of a prefill is added as the kernel says of calls with so many new tokens. */
static void test_prefill(void **state)
{
    (void)state;
    for (size_t i = 0; i < ds_kernel_count(); i++) {
        const struct ds_kernel *k = ds_kernel_at(i);
        char why[256];
        if (k->op != DS_OP_ATTENTION || (k->available && k->available(why, sizeof why) != 0))
            continue;
        struct ds_order_setting set = setting(k, "heads=2,kv_heads=1,head_dim=16", 2);
        struct ds_order_library lib = {0};
        struct ds_order o;
        struct ds_error err;
        set.visible = 100;
        set.queries = 5;
        assert_ok(ds_order_measure(&set, &lib, &o, &err), err);
        assert_int_equal(o.n_sums, 3);
        for (int s = 0; s < 3 && (k->claims & DS_CLAIM_REPEAT); s++)
            for (size_t c = 0; c < o.sum[s].n_classes; c++)
                if (o.sum[s].classes[c].tree < 0)
                    fail_msg("%s %s: %s", k->name, o.sum[s].name, o.sum[s].classes[c].why);
        if (k->claims & DS_CLAIM_REPEAT)
            check_reproduced(k->name, &o.sum[0]);
        ds_order_free(&o);
        ds_order_library_free(&lib);
    }
}

static struct ds_order measure_whole(const struct ds_kernel *k, int64_t rows, int64_t visible)
{
    struct ds_order_setting set = setting(k, "heads=2,kv_heads=1,head_dim=16", rows);
    struct ds_order_library lib = {0};
    struct ds_order o;
    struct ds_error err;
    set.visible = visible;
    set.whole = 1;
    assert_ok(ds_order_measure(&set, &lib, &o, &err), err);
    ds_order_library_free(&lib);
    return o;
}

/* On random scores the three trees and the kernel's own exp give whole outputs. */
static void test_whole_attention(void **state)
{
    (void)state;
    for (size_t i = 0; i < ds_kernel_count(); i++) {
        const struct ds_kernel *k = ds_kernel_at(i);
        char why[256];
        if (k->op != DS_OP_ATTENTION || !(k->claims & DS_CLAIM_REPEAT) ||
            (k->available && k->available(why, sizeof why) != 0))
            continue;
        for (int64_t rows = 1; rows <= 2; rows++) {
            struct ds_order o = measure_whole(k, rows, rows == 1 ? 300 : 70);
            if (o.whole.compared != (uint64_t)rows * 32 || o.whole.reproduced != o.whole.compared)
                fail_msg("%s: %d of %d outputs; %s", k->name, (int)o.whole.reproduced,
                         (int)o.whole.compared, o.whole.why);
            assert_true(o.whole.way[0] && !o.whole.why[0]);
            ds_order_free(&o);
        }
    }
}

/* Another scale than it was given: equal scores do not show that, random ones do. */
static int launch_scaled(const void *args, const struct ds_exec *exec, char *why, size_t size)
{
    struct ds_attention_args a = *(const struct ds_attention_args *)args;
    a.scale *= 1.0009765625f;
    return kernel(DS_OP_ATTENTION, "reference")->launch(&a, exec, why, size);
}

static void test_whole_attention_is_not_it(void **state)
{
    struct ds_kernel k = *kernel(DS_OP_ATTENTION, "reference");
    (void)state;
    k.name = "scaled";
    k.launch = launch_scaled;
    struct ds_order o = measure_whole(&k, 1, 70);
    assert_int_equal(o.sum[0].reproduced, o.sum[0].compared);
    assert_int_equal(o.whole.compared, 0);
    assert_non_null(strstr(o.whole.why, "no known way"));
    ds_order_free(&o);
}

static void test_refused(void **state)
{
    struct ds_order_setting set = setting(&fma_matmul, "n=1,k=70000", 1);
    struct ds_order_library lib = {0};
    struct ds_order o;
    struct ds_error err;
    (void)state;
    assert_int_equal(ds_order_measure(&set, &lib, &o, &err), -1);
    assert_non_null(strstr(err.msg, "too long"));
    ds_order_free(&o);
    set = setting(&fma_matmul, "n=1,k=70", 0);
    assert_int_equal(ds_order_measure(&set, &lib, &o, &err), -1);
    assert_non_null(strstr(err.msg, "nothing to measure in 0 rows of 70 terms"));
    ds_order_free(&o);
    assert_int_equal(ds_order_knows(DS_OP_ADD), 0);
    assert_int_equal(ds_order_knows(DS_OP_ATTENTION), 1);
}

/* Whatever allocation fails, it is an error and nothing leaks. */
static void test_out_of_memory(void **state)
{
    struct ds_order_setting set = setting(&edges_matmul, "n=24,k=20", 2);
    struct ds_error err;
    int failures = 0;
    (void)state;
    for (long n = 1; n < 400; n++) {
        struct ds_order_library lib = {0};
        struct ds_order o;
        ds_mem_fail_at(n);
        int rc = ds_order_measure(&set, &lib, &o, &err);
        ds_mem_fail_at(0);
        failures += rc != 0;
        if (rc == 0 && o.sum[0].classes[0].tree >= 0 && o.sum[0].n_classes == 2)
            check_reproduced("out of memory", &o.sum[0]);
        ds_order_free(&o);
        ds_order_library_free(&lib);
    }
    assert_in_range(failures, 20, 399);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul_trees),
        cmocka_unit_test(test_edges_have_their_own_tree),
        cmocka_unit_test(test_rows_change_the_tree),
        cmocka_unit_test(test_no_fixed_order),
        cmocka_unit_test(test_order_by_history),
        cmocka_unit_test(test_compensated_sum),
        cmocka_unit_test(test_order_by_size),
        cmocka_unit_test(test_order_by_zeros),
        cmocka_unit_test(test_no_sum),
        cmocka_unit_test(test_rmsnorm_trees),
        cmocka_unit_test(test_rmsnorm_not_fixed),
        cmocka_unit_test(test_every_variant),
        cmocka_unit_test(test_prefill),
        cmocka_unit_test(test_whole_attention),
        cmocka_unit_test(test_whole_attention_is_not_it),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests_name("order", tests, NULL, NULL);
}
