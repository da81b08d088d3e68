/* test_diff.c: two records compared: what is named first, and what is listed. test_diff_refused.c: when there is nothing
 * to compare. */
#include "tests/unit/dumps/diff_fixture.h"

#include "base/hash.h"

/* Batch drift inside both records must not be mistaken for a difference between them. */
static uint32_t batch_drift(const struct cell *c)
{
    return strcmp(c->site->op, "matmul") == 0 && c->m >= 4;
}

static void test_same_records(void **state)
{
    (void)state;
    struct sweep a, b;
    struct ds_diff d;
    small(&a);
    small(&b);
    a.tag = b.tag = batch_drift;
    sweep_run(&a, 2);
    sweep_run(&b, 3);
    make(&a, &b, NULL, &d);
    assert_int_equal(d.verdict.result, DS_RESULT_SAME);
    assert_int_equal(ds_verdict_exit(&d.verdict), 0);
    assert_int_equal(d.n_items, 1); /* repeats are no work that the other side lacks */
    assert_string_equal(item(&d, DS_DIFF_REPEATS)->name, "each arm");
    assert_string_equal(item(&d, DS_DIFF_REPEATS)->a, "2");
    assert_string_equal(item(&d, DS_DIFF_REPEATS)->b, "3");
    assert_false(d.partial);
    assert_int_equal(d.pairs, 4);
    assert_false(d.verdict.first.found);
    ds_diff_free(&d);
    sweep_free(&a);
    sweep_free(&b);
}

static void test_a_changed_weight_is_named_first(void **state)
{
    (void)state;
    struct sweep a, b;
    struct ds_diff d;
    int asked = 0;
    struct ds_diff_options o = {.blob = fake_blob, .ctx = &asked};
    small(&a);
    small(&b);
    b.header.weights[1].digest = 99;
    b.tag = changed_k;
    sweep_run(&a, 2);
    sweep_run(&b, 2);
    make(&a, &b, &o, &d);
    assert_int_equal(d.verdict.result, DS_RESULT_DRIFT);
    assert_int_equal(d.items[0].kind, DS_DIFF_WEIGHT);
    assert_string_equal(d.items[0].name, "blk.0.attn_k.weight");
    assert_string_equal(d.items[0].a, "q4_1 0000000000000002");
    assert_string_equal(d.verdict.first.stage, "k_proj");
    assert_int_equal(d.verdict.first.layer, 0);
    assert_string_equal(d.verdict.first.factor, "record");
    assert_string_equal(d.verdict.first.value, "B");
    assert_int_equal(d.verdict.first.label, DS_LABEL_ORIGIN);
    assert_int_equal(d.verdict.first.kind,
                     DS_KIND_WRONG_DATA); /* 1 ULP is within reordering, but the weight differs */
    assert_true(d.verdict.first.sized && asked > 0);
    assert_int_equal(d.verdict.first.max_ulp, 1);
    assert_int_equal(d.verdict.first.elements, 64 * d.verdict.first.rows);
    ds_diff_free(&d);
    /* Without dumped rows there is no size, but the weight is evidence enough. */
    make(&a, &b, NULL, &d);
    assert_int_equal(d.verdict.first.kind, DS_KIND_WRONG_DATA);
    assert_false(d.verdict.first.sized);
    ds_diff_free(&d);
    sweep_free(&a);
    sweep_free(&b);
}

/* Two models have no weight in common: neither its numbers nor its bytes, under no name. One is enough for one
 * model, wherever it stands; one that is constant, or RoPE's factors, is none. */
static void test_two_models(void **state)
{
    (void)state;
    enum { NUMBERS = 1, BYTES = 2, ELSEWHERE = 4, ROPE = 8, SAME_NAME = 16, CONSTANT = 32 };
    static const struct {
        int shared, two;
    } cases[] = {
        {0, 1},         {NUMBERS, 0},           {BYTES, 0}, {ELSEWHERE, 0}, {NUMBERS | ROPE, 1},
        {SAME_NAME, 1}, {NUMBERS | CONSTANT, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int shared = cases[i].shared;
        struct sweep a, b;
        struct ds_diff d;
        small(&a);
        small(&b);
        struct ds_record_weight *x = a.header.weights, *y = b.header.weights;
        for (size_t w = 0; w < a.header.n_weights; w++) {
            y[w].digest = 0x900 + w;
            x[w].loaded = 0x50 + w;
            y[w].loaded = 0xa50 + w;
        }
        if (!(shared & SAME_NAME))
            snprintf(b.header.model_name, sizeof b.header.model_name, "another");
        if (shared & NUMBERS)
            y[1].digest = x[1].digest;
        if (shared & BYTES)
            y[1].loaded = x[1].loaded;
        if (shared & ELSEWHERE)
            y[2].digest = x[1].digest;
        if (shared & ROPE)
            snprintf(y[1].name, sizeof y[1].name, "rope_freqs.weight"),
                snprintf(x[1].name, sizeof x[1].name, "rope_freqs.weight");
        if (shared & CONSTANT) {
            static const float ones[] = {1, 1, 1, 1};
            x[1].rows = y[1].rows = 1, x[1].cols = y[1].cols = 4;
            x[1].digest = y[1].digest = ds_hash(ones, sizeof ones);
        }
        sweep_run(&a, 2);
        sweep_run(&b, 2);
        make(&a, &b, NULL, &d);
        assert_int_equal(d.two_models, cases[i].two);
        assert_int_equal(d.verdict.result == DS_RESULT_INCOMPARABLE, cases[i].two);
        ds_diff_free(&d);
        struct ds_diff_options o = {.across_models = 1};
        make(&a, &b, &o, &d);
        assert_int_equal(d.two_models, cases[i].two);
        assert_int_not_equal(d.verdict.result, DS_RESULT_INCOMPARABLE);
        ds_diff_free(&d);
        sweep_free(&a);
        sweep_free(&b);
    }
}

/* Alike bytes of the file and other numbers: dequantising differs. Other bytes and alike numbers:
 * no kernel was given other numbers. */
static void test_weights_as_loaded(void **state)
{
    (void)state;
    struct sweep a, b;
    struct ds_diff d;
    small(&a);
    small(&b);
    for (size_t i = 0; i < a.header.n_weights; i++)
        a.header.weights[i].loaded = b.header.weights[i].loaded = 0x50 + i;
    b.header.weights[1].digest = 99;
    b.header.weights[2].loaded = 0xff;
    sweep_run(&a, 2);
    sweep_run(&b, 2);
    make(&a, &b, NULL, &d);
    assert_int_equal(d.n_items, 2);
    assert_string_equal(item(&d, DS_DIFF_WEIGHT)->name, "blk.0.attn_k.weight");
    assert_string_equal(item(&d, DS_DIFF_WEIGHT)->a,
                        "q4_1 0000000000000002 from bytes 0000000000000051");
    assert_string_equal(item(&d, DS_DIFF_WEIGHT)->b,
                        "q4_1 0000000000000063 from bytes 0000000000000051");
    assert_string_equal(item(&d, DS_DIFF_WEIGHT_BYTES)->name, "blk.1.ffn_down.weight");
    assert_string_equal(item(&d, DS_DIFF_WEIGHT_BYTES)->a, "q4_1 0000000000000052");
    assert_string_equal(item(&d, DS_DIFF_WEIGHT_BYTES)->b, "q4_1 00000000000000ff");
    size_t marked = 0;
    for (size_t s = 0; s < d.header.n_sites; s++)
        marked += d.data_differs[s];
    assert_int_equal(marked, 1);
    ds_diff_free(&d);
    sweep_free(&a);
    sweep_free(&b);
}

static void pack_all(struct sweep *s, uint64_t odd)
{
    sweep_line(&s->header.options, &s->header.n_options, "digest_packed", "1");
    for (size_t t = 0; t < s->n_trials; t++) {
        struct ds_trial_data *d = &s->trials[t];
        d->n_packed = s->header.n_weights;
        d->packed = calloc(d->n_packed, sizeof *d->packed);
        for (uint32_t i = 0; i < d->n_packed; i++) {
            d->packed[i] =
                (struct ds_packed){"openblas", i, i == 1 ? 1 : -1, 64, i == 1 ? odd : 0x70 + i};
        }
    }
}

/* Equal numbers packed into other bytes; other numbers say nothing about packing. */
static void test_weights_as_packed(void **state)
{
    (void)state;
    struct sweep a, b;
    struct ds_diff d;
    for (int other = 0; other < 2; other++) {
        small(&a);
        small(&b);
        if (other)
            b.header.weights[1].digest = 99;
        sweep_run(&a, 2);
        sweep_run(&b, 2);
        pack_all(&a, 0xaa);
        pack_all(&b, 0xbb);
        make(&a, &b, NULL, &d);
        assert_int_equal(d.n_items, 1);
        if (other) {
            assert_int_equal(d.items[0].kind, DS_DIFF_WEIGHT);
        } else {
            assert_string_equal(item(&d, DS_DIFF_PACKED)->name, "blk.0.attn_k.weight");
            assert_string_equal(d.items[0].a, "openblas 00000000000000aa of rank 1");
            assert_string_equal(d.items[0].b, "openblas 00000000000000bb of rank 1");
        }
        ds_diff_free(&d);
        sweep_free(&a);
        sweep_free(&b);
    }
}

/* Another weight, in another place, explains nothing here: the size does. */
static void test_a_weight_elsewhere_explains_nothing(void **state)
{
    (void)state;
    struct sweep a, b;
    struct ds_diff d;
    int asked = 0;
    struct ds_diff_options o = {.blob = fake_blob, .ctx = &asked};
    small(&a);
    small(&b);
    b.header.weights[2].digest = 99; /* layer 1 down */
    b.tag = changed_k;
    sweep_run(&a, 2);
    sweep_run(&b, 2);
    make(&a, &b, &o, &d);
    assert_string_equal(item(&d, DS_DIFF_WEIGHT)->name, "blk.1.ffn_down.weight");
    assert_string_equal(d.verdict.first.stage, "k_proj");
    assert_int_equal(d.verdict.first.kind, DS_KIND_ROUNDING_ORDER);
    ds_diff_free(&d);
    sweep_free(&a);
    sweep_free(&b);
}

static uint32_t changed_norm(const struct cell *c)
{
    return strcmp(c->site->op, "rmsnorm") == 0;
}

static void test_another_epsilon_is_named(void **state)
{
    (void)state;
    struct sweep a, b;
    struct ds_diff d;
    small(&a);
    small(&b);
    strcpy(b.header.hparams[0].value, "1e-06");
    b.tag = changed_norm;
    sweep_run(&a, 1);
    sweep_run(&b, 1);
    make(&a, &b, NULL, &d);
    assert_string_equal(item(&d, DS_DIFF_HPARAM)->name, "rms_eps");
    assert_string_equal(item(&d, DS_DIFF_HPARAM)->b, "1e-06");
    assert_string_equal(d.verdict.first.stage, "attn_norm");
    assert_int_equal(d.verdict.first.rows, SWEEP_PROMPT + SWEEP_STEPS);
    for (size_t i = 0; i < d.header.n_sites; i++)
        assert_int_equal(d.data_differs[i], strcmp(d.header.sites[i].op, "rmsnorm") == 0);
    ds_diff_free(&d);
    sweep_free(&a);
    sweep_free(&b);
}

/* How experts are chosen says nothing about q_proj; a field that nobody knows may be read anywhere. */
static void test_a_hyperparameter_marks_the_sites_that_read_it(void **state)
{
    (void)state;
    static const struct {
        const char *name, *read_by, *not_by;
    } cases[] = {{"rms_eps", "attn_norm", "q_proj"},    {"norm_top_k", "down", "q_proj"},
                 {"top_k", "down", "attn_norm"},        {"rope_base", NULL, "attn_out"},
                 {"window", "attn_out", "q_proj"},      {"context", NULL, "attn_out"},
                 {"of a later version", "q_proj", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sweep a, b;
        struct ds_diff d;
        small(&a);
        small(&b);
        sweep_line(&a.header.hparams, &a.header.n_hparams, cases[i].name, "1");
        sweep_line(&b.header.hparams, &b.header.n_hparams, cases[i].name, "2");
        sweep_run(&a, 1);
        sweep_run(&b, 1);
        make(&a, &b, NULL, &d);
        int read = 0, other = 0;
        for (size_t s = 0; s < d.header.n_sites; s++) {
            const char *stage = d.header.sites[s].stage;
            read |= cases[i].read_by && strcmp(stage, cases[i].read_by) == 0 && d.data_differs[s];
            other |= cases[i].not_by && strcmp(stage, cases[i].not_by) == 0 && d.data_differs[s];
        }
        assert_int_equal(read, cases[i].read_by != NULL);
        assert_int_equal(other, 0);
        ds_diff_free(&d);
        sweep_free(&a);
        sweep_free(&b);
    }
}

static uint32_t by_core(const struct cell *c)
{
    return strcmp(c->site->op, "matmul") == 0 && strcmp(c->sweep->blas_core, "SkylakeX") == 0;
}

/* The core is one-valued in each record: it is what is compared, not a key that keeps the arms
 * apart. */
static void test_cores_are_named_beside_the_place(void **state)
{
    (void)state;
    struct sweep a, b;
    struct ds_diff d;
    sweep_init(&a, "batch blas-core", 1);
    sweep_init(&b, "batch blas-core", 1);
    static const char *const arms[2][2] = {{"1 Haswell", "2 Haswell"},
                                           {"1 SkylakeX", "2 SkylakeX"}};
    for (int i = 0; i < 2; i++) {
        sweep_arm(&a, arms[0][i]);
        sweep_arm(&b, arms[1][i]);
    }
    a.blas_core = "Haswell";
    b.blas_core = "SkylakeX";
    a.tag = b.tag = by_core;
    sweep_run(&a, 2);
    sweep_run(&b, 2);
    make(&a, &b, NULL, &d);
    assert_int_equal(d.pairs, 2);
    assert_string_equal(item(&d, DS_DIFF_FACTOR)->name, "blas-core");
    assert_string_equal(item(&d, DS_DIFF_LIBRARY)->a, "Haswell");
    assert_string_equal(item(&d, DS_DIFF_LIBRARY)->b, "SkylakeX");
    assert_string_equal(d.verdict.first.stage, "q_proj");
    assert_string_equal(d.verdict.first.launch->algo, "SkylakeX");
    assert_string_equal(d.verdict.first.ref_launch->algo, "Haswell");
    assert_string_equal(d.verdict.first.ref_blas_core, "Haswell");
    ds_diff_free(&d);
    sweep_free(&a);
    sweep_free(&b);
}

static void test_what_one_side_lacks_is_listed(void **state)
{
    (void)state;
    struct sweep a, b;
    struct ds_diff d;
    small(&a);
    small(&b);
    sweep_arm(&b, "8 1");
    for (uint32_t arm = 0; arm < 4; arm++)
        sweep_trial(&a, arm, 0);
    for (uint32_t arm = 0; arm < 5; arm++)
        if (arm != 3)
            sweep_trial(&b, arm, 0);
    sweep_line(&b.header.environment, &b.header.n_environment, "OMP_NUM_THREADS", "1");
    /* B never recorded layer 1 q_proj; A never recorded its last site. */
    for (size_t t = 0; t < a.n_trials; t++)
        for (size_t c = 0; c < a.trials[t].n_captures; c++)
            if (a.trials[t].captures[c].site == a.header.n_sites - 1)
                a.trials[t].captures[c].rows = 0;
    a.header.n_sites--;
    for (size_t t = 0; t < a.n_trials; t++)
        while (a.trials[t].n_captures &&
               a.trials[t].captures[a.trials[t].n_captures - 1].site == a.header.n_sites)
            a.trials[t].n_captures--;
    for (size_t t = 0; t < a.n_trials; t++) { /* drop captures of the site that is gone */
        size_t n = 0;
        for (size_t c = 0; c < a.trials[t].n_captures; c++)
            if (a.trials[t].captures[c].site < a.header.n_sites)
                a.trials[t].captures[n++] = a.trials[t].captures[c];
        a.trials[t].n_captures = n;
    }
    make(&a, &b, NULL, &d);
    assert_int_equal(d.verdict.result, DS_RESULT_INCOMPARABLE);
    assert_int_equal(ds_verdict_exit(&d.verdict), 2);
    assert_non_null(strstr(d.verdict.reason, "no difference over "));
    assert_non_null(strstr(d.verdict.reason, "missing in A: 1 arm ("));
    ds_diff_free(&d);
    make(&a, &b, &(struct ds_diff_options){.partial = 1}, &d);
    assert_int_equal(d.verdict.result, DS_RESULT_SAME);
    assert_true(d.partial);
    assert_int_equal(d.missing[0].arms, 1);
    assert_int_equal(d.missing[1].arms, 1);
    assert_int_equal(d.unmade[0], 0);
    assert_int_equal(d.unmade[1], 1);
    assert_int_equal(d.missing[1].sites, 1);
    assert_int_equal(d.missing[0].rows + d.missing[1].rows + d.missing[0].sites, 0);
    assert_int_equal(d.pairs, 3);
    assert_int_equal(count_items(&d, DS_DIFF_ARM),
                     3); /* A's "1 2" alone, B's without trial, B's "8 1" alone */
    assert_int_equal(count_items(&d, DS_DIFF_SITE), 1);
    assert_non_null(strstr(item(&d, DS_DIFF_SITE)->name, "token"));
    assert_null(item(&d, DS_DIFF_SITE)->a);
    assert_string_equal(item(&d, DS_DIFF_ENVIRONMENT)->name, "OMP_NUM_THREADS");
    assert_null(item(&d, DS_DIFF_ENVIRONMENT)->a);
    ds_diff_free(&d);
    sweep_free(&a);
    sweep_free(&b);
}

/* Arrival order by repeat and by record (`elements` is its number here). */
static uint32_t racy(const struct cell *c)
{
    uint64_t h = sweep_mix(c->repeat + 3, (uint64_t)c->position * 7 + c->sweep->elements);
    return cell_is(c, 0, "attn_out") ? 1 + (uint32_t)(h % 4) : 0;
}

static void test_unstable_sides_are_not_a_difference(void **state)
{
    (void)state;
    struct sweep a, b;
    struct ds_diff d;
    small(&a);
    small(&b);
    a.tag = b.tag = racy;
    a.elements = 1;
    b.elements = 2;
    sweep_run(&a, 4);
    sweep_run(&b, 4);
    make(&a, &b, NULL, &d);
    assert_int_equal(d.verdict.result, DS_RESULT_DRIFT);
    assert_false(d.verdict.stable);
    assert_string_equal(d.verdict.first.factor, "repeat");
    assert_string_equal(d.verdict.first.stage, "attn_out");
    for (size_t f = 1; f < d.verdict.n_factors; f++)
        assert_int_equal(d.verdict.factors[f].phase[DS_VERDICT_ALL].drifted, 0);
    ds_diff_free(&d);
    sweep_free(&a);
    sweep_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_records),
        cmocka_unit_test(test_a_changed_weight_is_named_first),
        cmocka_unit_test(test_two_models),
        cmocka_unit_test(test_weights_as_loaded),
        cmocka_unit_test(test_weights_as_packed),
        cmocka_unit_test(test_a_weight_elsewhere_explains_nothing),
        cmocka_unit_test(test_another_epsilon_is_named),
        cmocka_unit_test(test_a_hyperparameter_marks_the_sites_that_read_it),
        cmocka_unit_test(test_cores_are_named_beside_the_place),
        cmocka_unit_test(test_what_one_side_lacks_is_listed),
        cmocka_unit_test(test_unstable_sides_are_not_a_difference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
