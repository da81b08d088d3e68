/* test_verdict_unstable.c: trials of one arm that disagree: unstable, and never blamed on a factor. */
#include "tests/unit/dumps/verdict_fixture.h"

/* ---- unstable -------------------------------------------------------------------------------- */

/* A split sum combined in order of arrival: its bits are chance, in every trial of every arm. */
static uint32_t arrival_order(const struct cell *c)
{
    if (!cell_is(c, 0, "q_proj") && !cell_is(c, 1, "q_proj"))
        return 0;
    uint64_t h =
        sweep_mix(c->arm * 131 + c->repeat + 1, c->site_index * 64 + (uint64_t)c->position);
    return 1 + (uint32_t)(h % 3);
}

static void test_arrival_order_is_unstable_and_not_batch_drift(void **state)
{
    (void)state;
    for (uint32_t repeats = 2; repeats <= 4; repeats++) {
        struct sweep s;
        struct ds_verdict v;
        usual_arms(&s);
        s.tag = arrival_order;
        sweep_run(&s, repeats);
        run_verdict(&s, &v);
        assert_int_equal(v.result, DS_RESULT_DRIFT);
        assert_false(v.stable);
        assert_int_equal(v.unstable.arms, 13);
        assert_int_equal(v.unstable.trials, 13 * repeats);
        assert_true(v.unstable.disagree >= 13 && v.unstable.disagree <= 13 * repeats);
        double p = (double)v.unstable.disagree / (13.0 * repeats);
        assert_true(v.unstable.low < p && p <= v.unstable.high && v.unstable.low > 0 &&
                    v.unstable.high <= 1);
        assert_string_equal(v.first.factor, "repeat");
        assert_string_equal(v.first.stage, "q_proj");
        assert_int_equal(v.first.layer, 0);
        assert_int_equal(v.first.label, DS_LABEL_ORIGIN);
        for (size_t f = 1; f < v.n_factors; f++) {
            assert_int_equal(v.factors[f].phase[DS_VERDICT_ALL].drifted, 0);
            assert_false(v.factors[f].phase[DS_VERDICT_ALL].first.found);
            assert_true(v.factors[f].phase[DS_VERDICT_ALL].unstable > 0);
        }
        assert_int_equal(condition(&v, "matmul", "repeat"), DS_COND_UNSTABLE);
        assert_int_equal(condition(&v, "matmul", "batch"), DS_COND_UNSTABLE);
        assert_int_equal(condition(&v, "rmsnorm", "batch"), DS_COND_SAME);
        assert_string_equal(switches(&v, "matmul"), ":");
        const struct ds_kernel_first *f =
            &kernel(&v, "matmul")->first[factor(&v, "batch") - v.factors];
        assert_true(f->found && f->unstable && f->arm == f->ref_arm);
        assert_int_equal(f->site, v.first.site);
        assert_false(kernel(&v, "rmsnorm")->first[factor(&v, "batch") - v.factors].found);
        ds_verdict_free(&v);
        sweep_free(&s);
    }
}

/* Two repeats whose rows all happen to agree in one arm: the difference to the other arm is still
 * chance. */
static uint32_t lucky_arm(const struct cell *c)
{
    if (!cell_is(c, 0, "q_proj"))
        return 0;
    return c->arm == 1 ? 1 : 1 + c->repeat % 2;
}

static void test_luck_in_one_arm_is_not_drift(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch", 1);
    sweep_arm(&s, "1");
    sweep_arm(&s, "2");
    sweep_arm(&s, "4");
    s.tag = lucky_arm;
    sweep_run(&s, 2);
    run_verdict(&s, &v);
    assert_false(v.stable);
    assert_int_equal(factor(&v, "batch")->phase[DS_VERDICT_ALL].drifted, 0);
    ds_verdict_free(&v);
    sweep_free(&s);
}

/* Even where neither of two arms showed it: the instability seen in a third is too rare for their
 * agreement to mean anything. */
static uint32_t rarely_unstable(const struct cell *c)
{
    if (!cell_is(c, 0, "q_proj") || c->position != 4)
        return 0;
    return c->arm == 2 ? 1 + c->repeat : c->arm;
}

static void test_luck_in_two_arms_is_not_drift(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch", 1);
    sweep_arm(&s, "1");
    sweep_arm(&s, "2");
    sweep_arm(&s, "4");
    s.tag = rarely_unstable;
    sweep_run(&s, 2);
    run_verdict(&s, &v);
    assert_int_equal(v.unstable.arms, 1);
    assert_int_equal(factor(&v, "batch")->phase[DS_VERDICT_ALL].drifted, 0);
    assert_true(factor(&v, "batch")->phase[DS_VERDICT_ALL].unstable > 0);
    ds_verdict_free(&v);
    sweep_free(&s);
}

/* An arm without repeats cannot show its own instability. */
static void test_single_trial_of_an_unstable_kernel_is_not_drift(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch", 1);
    sweep_arm(&s, "1");
    sweep_arm(&s, "2");
    s.tag = arrival_order;
    for (uint32_t k = 0; k < 3; k++)
        sweep_trial(&s, 0, k);
    sweep_trial(&s, 1, 0);
    run_verdict(&s, &v);
    assert_false(v.stable);
    assert_int_equal(factor(&v, "batch")->phase[DS_VERDICT_ALL].drifted, 0);
    ds_verdict_free(&v);
    sweep_free(&s);
}

static void test_unstable_arm_beside_true_batch_drift(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch threads", 2);
    static const char *const arms[] = {"1 1", "2 1", "4 1", "1 2", "2 2", "4 2"};
    for (size_t i = 0; i < 6; i++)
        sweep_arm(&s, arms[i]);
    s.tag = racy_threads_and_batch;
    sweep_run(&s, 3);
    run_verdict(&s, &v);
    assert_false(v.stable);
    assert_int_equal(v.unstable.arms, 3);
    assert_string_equal(v.first.stage, "attn_out");
    assert_string_equal(v.first.factor, "repeat");
    assert_string_equal(factor(&v, "batch")->phase[DS_VERDICT_ALL].first.stage, "q_proj");
    assert_string_equal(factor(&v, "batch")->phase[DS_VERDICT_ALL].first.value, "2");
    assert_int_equal(condition(&v, "matmul", "batch"), DS_COND_DRIFT);
    assert_int_equal(condition(&v, "attention", "threads"), DS_COND_UNSTABLE);
    assert_int_equal(condition(&v, "matmul", "threads"), DS_COND_SAME);
    assert_false(factor(&v, "threads")->phase[DS_VERDICT_ALL].first.found);
    ds_verdict_free(&v);
    sweep_free(&s);
}

/* An unstable projection hides neither the batch drift of the same kernel at other shapes, nor is
 * it taken for it. */
static uint32_t racy_q_and_batch(const struct cell *c)
{
    uint32_t race = arrival_order(c);
    return race ? race : openblas_one_thread(c);
}

static void test_unstable_shape_beside_true_drift_of_another(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    usual_arms(&s);
    s.tag = racy_q_and_batch;
    sweep_run(&s, 3);
    run_verdict(&s, &v);
    assert_false(v.stable);
    assert_string_equal(v.first.stage, "q_proj");
    assert_string_equal(factor(&v, "batch")->phase[DS_VERDICT_ALL].first.stage, "k_proj");
    assert_int_equal(condition(&v, "matmul", "batch"), DS_COND_DRIFT);
    assert_int_equal(condition(&v, "matmul", "repeat"), DS_COND_UNSTABLE);
    assert_string_equal(switches(&v, "matmul"), ":4,8,12 threads 2:4,12");
    ds_verdict_free(&v);
    sweep_free(&s);
}

static void test_modal_digest_and_rate(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    struct ds_analysis *a;
    struct ds_error err;
    sweep_init(&s, "batch", 1);
    sweep_arm(&s, "1");
    for (uint32_t k = 0; k < 10; k++)
        sweep_trial(&s, 0, k);
    uint32_t row = 0;
    uint64_t right = *sweep_find(&s.trials[5], 2, 3, &row);
    *sweep_find(&s.trials[0], 2, 3, &row) = 1; /* the first trial is in the minority */
    *sweep_find(&s.trials[7], 2, 3, &row) = 2;
    struct ds_source src = sweep_source(&s);
    assert_ok(ds_analysis_new(&src, NULL, &a, &err), err);
    uint64_t digest = 0;
    assert_int_equal(ds_analysis_digest(a, 0, 2, 3, &digest), 1);
    assert_true(digest == right);
    assert_ok(ds_analysis_verdict(a, &v, &err), err);
    assert_int_equal(v.unstable.trials, 10);
    assert_int_equal(v.unstable.disagree, 2);
    assert_int_equal(v.unstable.rows, 1);
    /* Wilson, 2 of 10: 0.0567 .. 0.5098 (Agresti and Coull 1998, table of the score interval) */
    assert_close("low", 0, v.unstable.low, 0.0567, 5e-4);
    assert_close("high", 0, v.unstable.high, 0.5098, 5e-4);
    assert_string_equal(classes(&v, "repeat", DS_VERDICT_ALL), "0|1 2 3 4 5 6 8 9|7");
    assert_string_equal(v.first.stage, "q_proj");
    assert_int_equal(v.first.position, 3);
    ds_verdict_free(&v);
    ds_analysis_free(a);
    sweep_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arrival_order_is_unstable_and_not_batch_drift),
        cmocka_unit_test(test_luck_in_one_arm_is_not_drift),
        cmocka_unit_test(test_luck_in_two_arms_is_not_drift),
        cmocka_unit_test(test_single_trial_of_an_unstable_kernel_is_not_drift),
        cmocka_unit_test(test_unstable_arm_beside_true_batch_drift),
        cmocka_unit_test(test_unstable_shape_beside_true_drift_of_another),
        cmocka_unit_test(test_modal_digest_and_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
