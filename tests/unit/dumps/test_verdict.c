/* test_verdict.c: the verdict on synthetic sweeps: which factor is to blame, with which thresholds, and
 * what is not. */
#include "tests/unit/dumps/verdict_fixture.h"

/* ---- arms ------------------------------------------------------------------------------------ */

static void test_reference_differs_in_one_factor_only(void **state)
{
    (void)state;
    struct sweep s;
    usual_arms(&s);
    assert_int_equal(ds_arm_reference(&s.header, 3, 0), 0);
    assert_int_equal(ds_arm_reference(&s.header, 6, 1),
                     5); /* slot last against slot first at the same batch */
    assert_int_equal(ds_arm_reference(&s.header, 6, 0), -1); /* no slot last at batch 1 */
    assert_int_equal(ds_arm_reference(&s.header, 9, 0), 7);  /* batch at its own thread count */
    assert_int_equal(ds_arm_reference(&s.header, 9, 2), 3);
    assert_int_equal(ds_arm_reference(&s.header, 0, 0), -1);
    assert_int_equal(ds_arm_reference(&s.header, 99, 0), -1);
    assert_int_equal(ds_arm_reference(&s.header, 3, 99), -1);
    sweep_free(&s);
}

/* ---- nothing differs ------------------------------------------------------------------------- */

static void test_same(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    usual_arms(&s);
    sweep_run(&s, 3);
    run_verdict(&s, &v);
    assert_int_equal(v.result, DS_RESULT_SAME);
    assert_int_equal(ds_verdict_exit(&v), 0);
    assert_true(v.stable && !v.first.found && !v.discrete.found && !v.nonfinite.at.found);
    assert_int_equal(v.counts.arms, 13);
    assert_int_equal(v.counts.trials, 39);
    assert_int_equal(v.counts.sites, s.header.n_sites);
    assert_int_equal(v.counts.rows, SWEEP_PROMPT + SWEEP_STEPS);
    /* 17 sites with 9 rows, 3 with 4; 2 repeats of 13 arms; 5 + 3 batch, 1 slot, 4 threads, 1
     * chunk, 1 mode pairs */
    assert_int_equal(v.counts.digests_compared, (17 * 9 + 3 * 4) * (2 * 13 + 15));
    assert_int_equal(condition(&v, "matmul", "batch"), DS_COND_SAME);
    assert_int_equal(condition(&v, "matmul", "repeat"), DS_COND_SAME);
    assert_string_equal(classes(&v, "batch", DS_VERDICT_ALL), "1 2 3 4 8 16");
    assert_string_equal(classes(&v, "repeat", DS_VERDICT_DECODE), "0 1 2");
    assert_string_equal(switches(&v, "matmul"), ":");
    assert_int_equal(v.tokens_compared, v.tokens_same);
    assert_int_equal(v.tokens_compared, 15 * 4);
    assert_close("overhead", 0, v.overhead_prefill, 0.01, 1e-12);
    assert_close("overhead", 1, v.overhead_decode, 0.004, 1e-12);
    assert_int_equal(v.n_notes, 0);
    ds_verdict_free(&v);
    sweep_free(&s);
}

static void test_one_trial_is_a_recording(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch", 1);
    sweep_arm(&s, "1");
    sweep_arm(&s, "2");
    sweep_trial(&s, 0, 0);
    run_verdict(&s, &v);
    assert_int_equal(v.result, DS_RESULT_RECORDED);
    assert_int_equal(ds_verdict_exit(&v), 0);
    assert_int_equal(condition(&v, "matmul", "batch"), DS_COND_NOT_RUN);
    assert_int_equal(condition(&v, "matmul", "repeat"), DS_COND_NOT_RUN);
    assert_int_equal(factor(&v, "batch")->arms_alone, 1);
    ds_verdict_free(&v);
    sweep_free(&s);
}

static void test_nothing_to_compare_is_incomparable(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch slot", 1);
    sweep_arm(&s, "1 first");
    sweep_arm(&s, "2 last"); /* differs in two factors: no reference */
    run_verdict(&s, &v);
    assert_int_equal(v.result, DS_RESULT_INCOMPARABLE);
    assert_int_equal(ds_verdict_exit(&v), 2);
    assert_non_null(strstr(v.reason, "no complete trial"));
    ds_verdict_free(&v);
    sweep_run(&s, 1);
    run_verdict(&s, &v);
    assert_int_equal(v.result, DS_RESULT_INCOMPARABLE);
    assert_non_null(strstr(v.reason, "reference"));
    ds_verdict_free(&v);
    sweep_free(&s);
}

static void test_other_widths_are_incomparable(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch", 1);
    sweep_arm(&s, "1");
    sweep_arm(&s, "2");
    sweep_run(&s, 1);
    for (size_t i = 0; i < s.trials[1].n_captures; i++)
        s.trials[1].captures[i].width /= 2;
    for (size_t i = 0; i < s.trials[1].n_digests; i++)
        s.trials[1].digests[i] ^= 1;
    run_verdict(&s, &v);
    assert_int_equal(v.result, DS_RESULT_INCOMPARABLE);
    assert_non_null(strstr(v.reason, "width"));
    ds_verdict_free(&v);
    sweep_free(&s);
}

/* ---- batch ----------------------------------------------------------------------------------- */

static void test_batch_drift_with_its_thresholds(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch", 2);
    for (int b = 1; b <= 16; b++) {
        char text[8];
        snprintf(text, sizeof text, "%d", b);
        sweep_arm(&s, text);
    }
    s.tag = openblas_one_thread;
    sweep_run(&s, 2);
    run_verdict(&s, &v);
    assert_int_equal(v.result, DS_RESULT_DRIFT);
    assert_int_equal(ds_verdict_exit(&v), 1);
    assert_true(v.stable);
    assert_string_equal(v.first.stage, "q_proj");
    assert_int_equal(v.first.layer, 0);
    assert_string_equal(v.first.op, "matmul");
    assert_string_equal(v.first.variant, "openblas");
    assert_string_equal(v.first.factor, "batch");
    assert_int_equal(v.first.label, DS_LABEL_ORIGIN);
    assert_int_equal(v.first.kind, DS_KIND_ROUNDING_ORDER);
    assert_int_equal(v.first.step, 0); /* prefill of 6 rows, of 12 at batch 2 */
    assert_string_equal(v.first.value, "2");
    assert_int_equal(v.first.rows_in_call, 12);
    assert_int_equal(v.first.rows, SWEEP_PROMPT); /* decode at batch 2 is still M < 4 */
    const struct ds_finding *decode = &factor(&v, "batch")->phase[DS_VERDICT_DECODE].first;
    assert_string_equal(decode->value, "4");
    assert_int_equal(decode->rows_in_call, 4);
    assert_int_equal(decode->step, 1);
    assert_int_equal(decode->label, DS_LABEL_ORIGIN);
    assert_string_equal(classes(&v, "batch", DS_VERDICT_PREFILL),
                        "1|2 3 4 5 6 7 8 9 10 11 12 13 14 15 16");
    assert_string_equal(classes(&v, "batch", DS_VERDICT_ALL),
                        "1|2 3|4 5 6 7|8 9 10 11|12 13 14 15 16");
    assert_string_equal(switches(&v, "matmul"), ":4,8,12");
    assert_string_equal(switches(&v, "rmsnorm"), ":");
    assert_int_equal(condition(&v, "matmul", "batch"), DS_COND_DRIFT);
    assert_int_equal(condition(&v, "rmsnorm", "batch"), DS_COND_SAME);
    assert_int_equal(condition(&v, "matmul", "repeat"), DS_COND_SAME);
    assert_int_equal(kernel(&v, "rmsnorm")->origins, 0);
    assert_true(kernel(&v, "rmsnorm")->inherited > 0 && kernel(&v, "matmul")->origins > 0);
    assert_int_equal(v.sites_before, 2);
    assert_int_equal(v.n_growth, 2);
    assert_int_equal(v.growth[0].layer, 0);
    assert_true(v.growth[1].max_ulp > v.growth[0].max_ulp);
    /* A record may claim any number of layers; memory follows the sites that it has. */
    ds_verdict_free(&v);
    s.header.n_layers = INT32_MAX;
    struct ds_source claimed = sweep_source(&s);
    struct ds_error claim_err;
    assert_ok(ds_verdict_make(&claimed, &v, &claim_err), claim_err);
    assert_int_equal(v.n_growth, 2);
    ds_verdict_free(&v);
    sweep_free(&s);
}

/* With batches 1,2,4,8,16 the change at 12 lies between 8 and 16 for decode rows, but prefill rows
 * were quiet from 12 on. */
static void test_thresholds_from_few_batches(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    usual_arms(&s);
    s.tag = openblas_one_thread;
    sweep_run(&s, 1);
    run_verdict(&s, &v);
    const char *got = switches(&v, "matmul");
    assert_string_equal(got, ":4,8,12 threads 2:4,12");
    ds_verdict_free(&v);
    sweep_free(&s);
}

/* Another shape of the same kernel that does not change at 8. */
static uint32_t openblas_by_shape(const struct cell *c)
{
    if (!is_matmul(c))
        return 0;
    return c->site->width == 192 ? (c->m < 4 ? 0 : c->m < 12 ? 1 : 2) : openblas_one_thread(c);
}

static void test_thresholds_of_several_shapes(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    usual_arms(&s);
    s.tag = openblas_by_shape;
    sweep_run(&s, 1);
    run_verdict(&s, &v);
    assert_string_equal(switches(&v, "matmul"), ":4,8,12 threads 2:4,12");
    ds_verdict_free(&v);
    sweep_free(&s);
}

static uint32_t from_eight(const struct cell *c)
{
    return is_matmul(c) && c->m >= 8;
}

static uint32_t from_eight_or_twelve(const struct cell *c)
{
    return is_matmul(c) && c->m >= (c->site->width == 192 ? 12 : 8);
}

/* Bits that follow the row's place in the call, which chunking changes too. */
static uint32_t from_slot_three(const struct cell *c)
{
    return is_matmul(c) && c->slot >= 3;
}

static void test_thresholds_are_not_invented(void **state)
{
    (void)state;
    static const struct {
        uint32_t (*tag)(const struct cell *c);
        const char *want;
    } cases[] = {{from_eight, ":8"}, /* 8 against 4 in decode explains 12 against 6 in prefill */
                 {from_eight_or_twelve, ":8,12"}, /* but not for another shape */
                 {from_slot_three, ":"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sweep s;
        struct ds_verdict v;
        sweep_init(&s, "batch chunk", 2);
        static const char *const arms[] = {"1 0", "2 0", "4 0", "8 0", "1 4"};
        for (size_t k = 0; k < 5; k++)
            sweep_arm(&s, arms[k]);
        s.tag = cases[i].tag;
        sweep_run(&s, 1);
        run_verdict(&s, &v);
        assert_string_equal(switches(&v, "matmul"), cases[i].want);
        ds_verdict_free(&v);
        sweep_free(&s);
    }
}

/* The head is given fewer rows than the call has, and its launch says so. */
static void head_launch(const struct cell *c, struct ds_launch *l)
{
    sweep_default_launch(c, l);
    l->rows = strcmp(c->site->stage, "logits") == 0 ? cell_number(c, "batch", 1) : (int32_t)c->m;
}

static uint32_t head_from_three(const struct cell *c)
{
    return strcmp(c->site->stage, "logits") == 0 && cell_number(c, "batch", 1) >= 3;
}

static void test_rows_of_a_launch_count_not_rows_of_the_call(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    usual_arms(&s);
    s.tag = head_from_three;
    s.launch = head_launch;
    sweep_run(&s, 1);
    run_verdict(&s, &v);
    assert_string_equal(switches(&v, "matmul"), ":3 threads 2:4");
    ds_verdict_free(&v);
    sweep_free(&s);
}

static void test_first_drift_in_execution_order_over_factors(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    usual_arms(&s);
    s.tag = openblas_one_thread;
    sweep_run(&s, 2);
    run_verdict(&s, &v);
    /* batch 2, chunk 4 and mode decode all change layer 0 q_proj at position 0: the first factor is
     * named */
    assert_string_equal(v.first.factor, "batch");
    assert_string_equal(v.first.value, "2");
    assert_string_equal(factor(&v, "chunk")->phase[DS_VERDICT_ALL].first.stage, "q_proj");
    assert_string_equal(factor(&v, "mode")->phase[DS_VERDICT_ALL].first.stage, "q_proj");
    assert_int_equal(factor(&v, "mode")->phase[DS_VERDICT_ALL].first.rows_in_call, 1);
    assert_int_equal(factor(&v, "mode")->phase[DS_VERDICT_ALL].first.ref_rows_in_call, 6);
    assert_false(factor(&v, "threads")->phase[DS_VERDICT_ALL].first.found);
    assert_false(factor(&v, "slot")->phase[DS_VERDICT_ALL].first.found);
    assert_string_equal(classes(&v, "threads", DS_VERDICT_ALL), "1 2");
    ds_verdict_free(&v);
    sweep_free(&s);
}

/* ---- other factors --------------------------------------------------------------------------- */

static uint32_t split_attention(const struct cell *c)
{
    return strcmp(c->site->op, "attention") == 0 && c->phase == DS_PHASE_DECODE &&
                   cell_number(c, "threads", 1) > 1
               ? (uint32_t)cell_number(c, "threads", 1)
               : 0;
}

/* Of each kernel and factor the first place of its own drift, whoever drifted before it. */
static uint32_t two_kernels(const struct cell *c)
{
    int batch = cell_number(c, "batch", 1), threads = cell_number(c, "threads", 1);
    if (strcmp(c->site->op, "matmul") == 0)
        return (cell_is(c, 1, "q_proj") && batch >= 4) || (cell_is(c, 0, "down") && threads == 2);
    /* Where its inputs are equal, too: before q_proj of its layer, and at the same place later. */
    return cell_is(c, 1, "attn_norm") && batch == 8 && c->position >= 3 ? 5 : 0;
}

static void test_first_place_of_each_kernel_and_factor(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch threads", 3);
    sweep_arm(&s, "1 1");
    sweep_arm(&s, "4 1");
    sweep_arm(&s, "8 1");
    sweep_arm(&s, "1 2");
    s.tag = two_kernels;
    sweep_run(&s, 2);
    run_verdict(&s, &v);
    size_t batch = (size_t)(factor(&v, "batch") - v.factors),
           threads = (size_t)(factor(&v, "threads") - v.factors);
    const struct ds_kernel_first *f = &kernel(&v, "matmul")->first[batch];
    assert_true(f->found && !f->unstable);
    assert_int_equal(f->arm, 1); /* arm 2 has it there as well */
    assert_int_equal(f->ref_arm, 0);
    assert_int_equal(s.header.sites[f->site].layer, 1);
    assert_string_equal(s.header.sites[f->site].stage, "q_proj");
    assert_int_equal(f->position, 0);
    f = &kernel(&v, "rmsnorm")->first[batch];
    assert_true(f->found);
    assert_int_equal(f->arm, 2);
    assert_int_equal(f->position, 3);
    assert_string_equal(s.header.sites[f->site].stage, "attn_norm");
    f = &kernel(&v, "matmul")->first[threads];
    assert_int_equal(f->arm, 3);
    assert_int_equal(s.header.sites[f->site].layer, 0);
    assert_string_equal(s.header.sites[f->site].stage, "down");
    assert_false(kernel(&v, "rmsnorm")->first[threads].found);
    assert_false(kernel(&v, "add")->first[batch].found);
    assert_false(kernel(&v, "matmul")->first[0].found);
    ds_verdict_free(&v);
    sweep_free(&s);
}

static void test_threads_drift_in_decode_attention(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch threads", 2);
    static const char *const arms[] = {"1 1", "1 2", "1 3", "2 1", "2 2", "2 3"};
    for (size_t i = 0; i < 6; i++)
        sweep_arm(&s, arms[i]);
    s.tag = split_attention;
    sweep_run(&s, 2);
    run_verdict(&s, &v);
    assert_string_equal(v.first.stage, "attn_out");
    assert_string_equal(v.first.factor, "threads");
    assert_int_equal(v.first.phase, DS_PHASE_DECODE);
    assert_int_equal(v.first.step, 1);
    assert_int_equal(v.first.position, SWEEP_PROMPT);
    assert_string_equal(classes(&v, "threads", DS_VERDICT_PREFILL), "1 2 3");
    assert_string_equal(classes(&v, "threads", DS_VERDICT_DECODE), "1|2|3");
    assert_string_equal(classes(&v, "batch", DS_VERDICT_ALL), "1 2");
    assert_int_equal(condition(&v, "matmul", "threads"), DS_COND_SAME);
    assert_int_equal(condition(&v, "attention", "batch"), DS_COND_SAME);
    assert_string_equal(switches(&v, "attention"), ":");
    ds_verdict_free(&v);
    sweep_free(&s);
}

static uint32_t slot_only(const struct cell *c)
{
    return is_matmul(c) && c->slot >= 7 && c->m >= 12;
}

static void test_slot_drift_is_not_blamed_on_batch(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch slot", 1);
    static const char *const arms[] = {"1 first", "4 first", "16 first", "16 last"};
    for (size_t i = 0; i < 4; i++)
        sweep_arm(&s, arms[i]);
    s.tag = slot_only;
    sweep_run(&s, 2);
    run_verdict(&s, &v);
    assert_string_equal(v.first.factor, "slot");
    assert_string_equal(v.first.value, "last");
    assert_string_equal(v.first.ref_value, "first");
    assert_int_equal(v.first.rows_in_call, 16 * SWEEP_PROMPT);
    assert_string_equal(classes(&v, "batch", DS_VERDICT_ALL), "1 4 16");
    assert_string_equal(classes(&v, "slot", DS_VERDICT_ALL), "first|last");
    assert_string_equal(switches(&v, "matmul"), ":");
    ds_verdict_free(&v);
    sweep_free(&s);
}

static void test_no_factor_is_blamed_for_another(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    usual_arms(&s);
    s.tag = batch_only;
    sweep_run(&s, 2);
    run_verdict(&s, &v);
    assert_string_equal(v.first.factor, "batch");
    assert_string_equal(v.first.value, "4");
    for (size_t f = 1; f < v.n_factors; f++)
        if (strcmp(v.factors[f].name, "batch") != 0) {
            assert_false(v.factors[f].phase[DS_VERDICT_ALL].first.found);
            assert_int_equal(v.factors[f].phase[DS_VERDICT_ALL].drifted, 0);
            assert_int_equal(condition(&v, "matmul", v.factors[f].name), DS_COND_SAME);
        }
    ds_verdict_free(&v);
    sweep_free(&s);
}

static void pinned_launch(const struct cell *c, struct ds_launch *l)
{
    sweep_default_launch(c, l);
    if (strcmp(cell_value(c, "kernels"), "pinned") == 0 && is_matmul(c))
        snprintf(l->variant, sizeof l->variant, "pinned");
}

static uint32_t pinned_differs(const struct cell *c)
{
    return is_matmul(c) && strcmp(cell_value(c, "kernels"), "pinned") == 0 ? 9
                                                                           : openblas_one_thread(c);
}

static void test_kernel_sets_and_batch_are_told_apart(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch kernels", 1);
    static const char *const arms[] = {"1 vendor", "4 vendor", "1 pinned", "4 pinned"};
    for (size_t i = 0; i < 4; i++)
        sweep_arm(&s, arms[i]);
    s.tag = pinned_differs;
    s.launch = pinned_launch;
    sweep_run(&s, 2);
    run_verdict(&s, &v);
    size_t pinned = 0, openblas = 0;
    for (size_t k = 0; k < v.n_kernels; k++) {
        if (strcmp(v.kernels[k].variant, "pinned") == 0)
            pinned = k;
        if (strcmp(v.kernels[k].variant, "openblas") == 0)
            openblas = k;
    }
    assert_int_equal(v.kernels[pinned].condition[1], DS_COND_SAME); /* batch */
    assert_int_equal(v.kernels[openblas].condition[1], DS_COND_DRIFT);
    assert_int_equal(v.kernels[pinned].condition[2], DS_COND_DRIFT); /* kernels */
    const struct ds_finding *f = &factor(&v, "kernels")->phase[DS_VERDICT_ALL].first;
    assert_string_equal(f->variant, "pinned");
    assert_string_equal(f->ref_variant, "openblas");
    ds_verdict_free(&v);
    sweep_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_differs_in_one_factor_only),
        cmocka_unit_test(test_same),
        cmocka_unit_test(test_one_trial_is_a_recording),
        cmocka_unit_test(test_nothing_to_compare_is_incomparable),
        cmocka_unit_test(test_other_widths_are_incomparable),
        cmocka_unit_test(test_batch_drift_with_its_thresholds),
        cmocka_unit_test(test_thresholds_from_few_batches),
        cmocka_unit_test(test_thresholds_of_several_shapes),
        cmocka_unit_test(test_thresholds_are_not_invented),
        cmocka_unit_test(test_rows_of_a_launch_count_not_rows_of_the_call),
        cmocka_unit_test(test_first_drift_in_execution_order_over_factors),
        cmocka_unit_test(test_first_place_of_each_kernel_and_factor),
        cmocka_unit_test(test_threads_drift_in_decode_attention),
        cmocka_unit_test(test_slot_drift_is_not_blamed_on_batch),
        cmocka_unit_test(test_no_factor_is_blamed_for_another),
        cmocka_unit_test(test_kernel_sets_and_batch_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
