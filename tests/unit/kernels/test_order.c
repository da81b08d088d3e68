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
RMSNORM(kahan_fma);
RMSNORM(kahan_down);
RMSNORM(kahan_lanes);
RMSNORM(neumaier);
RMSNORM(kahan_odd);
RMSNORM(nested);
MATMUL(kahan);
MATMUL(kahan_fma);
MATMUL(kahan_down);
MATMUL(kahan_lanes);
MATMUL(neumaier);
MATMUL(dot2);
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

/* Questions do not show the order of a sum that keeps its errors: whole sums do. */
static void test_compensated_sums(void **state)
{
    static const struct {
        const struct ds_kernel *matmul, *rmsnorm;
        int way;
        const char *words;
    } cases[] = {
        {&kahan_matmul, &kahan_rmsnorm, DS_SUM_KAHAN,
         "one chain of 200 k in ascending order, mul+add, compensated: what an addition loses is "
         "taken off the next term (Kahan)"},
        {&kahan_fma_matmul, &kahan_fma_rmsnorm, DS_SUM_KAHAN, "one chain of 200 k in ascending"},
        {&kahan_down_matmul, &kahan_down_rmsnorm, DS_SUM_KAHAN, "one chain of 200 k in descending"},
        {&kahan_lanes_matmul, &kahan_lanes_rmsnorm, DS_SUM_KAHAN, "4 interleaved lanes"},
        {&neumaier_matmul, &neumaier_rmsnorm, DS_SUM_ERRORS, "one chain of 200 k in ascending"},
        {&dot2_matmul, NULL, DS_SUM_PRODUCT_ERRORS, "one chain of 200 k in ascending"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int norm = 0; norm < 2; norm++) {
            const struct ds_kernel *k = norm ? cases[i].rmsnorm : cases[i].matmul;
            if (!k) /* of squares nothing is left to tell it from an exact sum */
                continue;
            struct ds_order_setting set = setting(k, norm ? "width=200" : "n=20,k=200", 2);
            struct ds_order_library lib = {0};
            struct ds_order o;
            struct ds_buf words = {0};
            struct ds_error err;
            assert_ok(ds_order_measure(&set, &lib, &o, &err), err);
            if (o.sum[0].classes[0].tree < 0)
                fail_msg("%s: %s", k->name, o.sum[0].classes[0].why);
            assert_int_equal(lib.n, 1);
            ds_tree_words(&words, lib.tree[0], "k");
            if (lib.tree[0]->compensated != cases[i].way || !strstr(words.data, cases[i].words))
                fail_msg("%s: %s", k->name, words.data);
            check_reproduced(k->name, &o.sum[0]);
            ds_buf_free(&words);
            ds_order_free(&o);
            ds_order_library_free(&lib);
        }
}

/* That its sums are mostly those of an exact one is what can be said of a way that is not known. */
static void test_unknown_compensation(void **state)
{
    struct ds_order_setting set = setting(&kahan_odd_rmsnorm, "width=300", 2);
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

/* Of a long sum few triples are asked. Where the order that they show does not give the bits, all are. */
static void test_long_order_with_a_flaw(void **state)
{
    struct ds_order_setting set = setting(&nested_rmsnorm, "width=2100", 1);
    struct ds_order_library lib = {0};
    struct ds_order o;
    struct ds_buf words = {0};
    struct ds_error err;
    (void)state;
    assert_ok(ds_order_measure(&set, &lib, &o, &err), err);
    assert_int_equal(lib.n, 1);
    ds_tree_words(&words, lib.tree[0], "squares");
    assert_string_equal(words.data,
                        "2 chains of 1000 and 4 squares in ascending order, mul+add, then 1 add; "
                        "then 1096 squares one by one in ascending order, mul+add");
    check_reproduced("nested", &o.sum[0]);
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

/* Values in parts of so many slots: each part divided by its own sum or not, rounded or not, then merged one
 * after another by the parts' log-sum-exp or their maxima. */
static int part_slots, part_rounds, part_divides;

static float part_stored(float x)
{
    return part_rounds ? ds_bf16_value(ds_bf16_round(x)) : x;
}

static void one_in_parts(const struct ds_attention_args *a, const struct ds_sequence *s,
                         const float *q, int64_t kv, float *y)
{
    float max = -INFINITY, sum = 0;
    memset(y, 0, (size_t)a->head_dim * sizeof *y);
    for (int64_t from = s->kv_first; from < s->kv_len; from += part_slots) {
        const int64_t to = from + part_slots < s->kv_len ? from + part_slots : s->kv_len;
        float score[16], own[64] = {0}, most = -INFINITY, part = 0;
        for (int64_t t = from; t < to; t++) {
            const int64_t at = s->pages[t / a->page_size] * a->page_size + t % a->page_size;
            const float *k = a->cache_k + (at * a->kv_heads + kv) * a->head_dim;
            score[t - from] = 0;
            for (int64_t d = 0; d < a->head_dim; d++)
                score[t - from] += q[d] * k[d];
            score[t - from] *= a->scale;
            most = fmaxf(most, score[t - from]);
        }
        for (int64_t t = from; t < to; t++) {
            const int64_t at = s->pages[t / a->page_size] * a->page_size + t % a->page_size;
            const float *v = a->cache_v + (at * a->kv_heads + kv) * a->head_dim,
                        p = expf(score[t - from] - most);
            part += p;
            for (int64_t d = 0; d < a->head_dim; d++)
                own[d] += p * v[d];
        }
        const float lse = part_divides ? most + logf(part) : most, next = fmaxf(max, lse),
                    f = expf(max - next), g = expf(lse - next);
        sum = sum * f + (part_divides ? 1 : part) * g;
        for (int64_t d = 0; d < a->head_dim; d++)
            y[d] = y[d] * f + part_stored(part_divides ? own[d] / part : own[d]) * g;
        max = next;
    }
    for (int64_t d = 0; d < a->head_dim; d++)
        y[d] /= sum;
}

/* Decode rows alone. */
static int launch_parts(const void *args, const struct ds_exec *exec, char *why, size_t size)
{
    const struct ds_attention_args *a = args;
    (void)exec, (void)why, (void)size;
    for (int64_t i = 0; i < a->n_sequences; i++)
        for (int64_t h = 0; h < a->heads; h++) {
            const struct ds_sequence *s = &a->sequences[i];
            one_in_parts(a, s, a->q + s->q_first * a->ldq + h * a->head_dim,
                         h / (a->heads / a->kv_heads),
                         a->y + s->q_first * a->ldy + h * a->head_dim);
        }
    return 0;
}

/* What merging with weights leaves is no lack of bits, and a lack of bits is seen through the weights. */
static void test_attention_in_parts(void **state)
{
    static const struct ds_kernel k = {.abi = DS_KERNEL_ABI,
                                       .op = DS_OP_ATTENTION,
                                       .name = "parts",
                                       .claims = DS_CLAIM_ALL,
                                       .launch = launch_parts};
    (void)state;
    for (int i = 0; i < 4 * 2 * 2 * 9; i++) {
        struct ds_order_setting set = setting(&k, "heads=2,kv_heads=1,head_dim=16", 1);
        struct ds_order_library lib = {0};
        struct ds_order o;
        struct ds_buf words = {0};
        struct ds_error err;
        part_slots = 2 + i % 4;
        part_rounds = i / 4 % 2;
        part_divides = i / 8 % 2;
        set.visible = 5 + i / 16;
        assert_ok(ds_order_measure(&set, &lib, &o, &err), err);
        const struct ds_order_class *values = &o.sum[0].classes[0];
        if (values->tree >= 0)
            ds_tree_words(&words, lib.tree[values->tree], "slots");
        const int named = words.data && strstr(words.data, "rounded to") != NULL;
        /* Where a third of a sum is rounded to bf16 no counting is possible. */
        const int counted = !part_divides || part_slots % 2 == 0;
        if ((named && !part_rounds) || (counted && named != part_rounds && values->tree >= 0))
            fail_msg("%d slots in parts of %d: %s", (int)set.visible, part_slots,
                     words.data ? words.data : values->why);
        if (!part_divides)
            check_reproduced("parts", &o.sum[0]);
        ds_buf_free(&words);
        ds_order_free(&o);
        ds_order_library_free(&lib);
    }
}

/* Every length of a few slots, in four parts, of which the last may be a single slot. */
static void test_stock_of_few_slots(void **state)
{
    (void)state;
    for (int64_t slots = 2; slots <= 18; slots++) {
        struct ds_order_setting set =
            setting(kernel(DS_OP_ATTENTION, "stock"), "heads=2,kv_heads=1,head_dim=16", 1);
        struct ds_order_library lib = {0};
        struct ds_order o;
        struct ds_error err;
        set.visible = slots;
        assert_ok(ds_order_measure(&set, &lib, &o, &err), err);
        check_reproduced("stock", &o.sum[0]);
        ds_order_free(&o);
        ds_order_library_free(&lib);
    }
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
        cmocka_unit_test(test_compensated_sums),
        cmocka_unit_test(test_unknown_compensation),
        cmocka_unit_test(test_long_order_with_a_flaw),
        cmocka_unit_test(test_order_by_size),
        cmocka_unit_test(test_order_by_zeros),
        cmocka_unit_test(test_no_sum),
        cmocka_unit_test(test_rmsnorm_trees),
        cmocka_unit_test(test_rmsnorm_not_fixed),
        cmocka_unit_test(test_every_variant),
        cmocka_unit_test(test_prefill),
        cmocka_unit_test(test_whole_attention),
        cmocka_unit_test(test_attention_in_parts),
        cmocka_unit_test(test_stock_of_few_slots),
        cmocka_unit_test(test_whole_attention_is_not_it),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests_name("order", tests, NULL, NULL);
}
