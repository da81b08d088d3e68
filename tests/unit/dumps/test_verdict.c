/* test_verdict.c: the verdict on synthetic sweeps: what drifts, what is to blame, and what is not.
 */
#include "tests/unit/testing.h"

#include "tests/unit/dumps/synthetic_sweep.h"

#include <math.h>

static void run_verdict(struct sweep *s, struct ds_verdict *v)
{
    struct ds_error err;
    struct ds_source src = sweep_source(s);
    assert_ok(ds_verdict_make(&src, v, &err), err);
}

static const struct ds_factor_verdict *factor(const struct ds_verdict *v, const char *name)
{
    for (size_t i = 0; i < v->n_factors; i++)
        if (strcmp(v->factors[i].name, name) == 0)
            return &v->factors[i];
    fail_msg("no factor %s", name);
    return NULL;
}

static const struct ds_kernel_verdict *kernel(const struct ds_verdict *v, const char *op)
{
    for (size_t i = 0; i < v->n_kernels; i++)
        if (strcmp(v->kernels[i].op, op) == 0)
            return &v->kernels[i];
    fail_msg("no kernel %s", op);
    return NULL;
}

static int condition(const struct ds_verdict *v, const char *op, const char *name)
{
    return kernel(v, op)->condition[factor(v, name) - v->factors];
}

/* Classes as "1 2|4", values of one class apart by spaces. */
static const char *classes(const struct ds_verdict *v, const char *name, int phase)
{
    static char text[256];
    const struct ds_factor_verdict *f = factor(v, name);
    text[0] = '\0';
    for (uint32_t c = 0; c < f->phase[phase].n_classes; c++) {
        int first = 1;
        for (uint32_t i = 0; i < f->n_values; i++)
            if (f->phase[phase].class_of[i] == c) {
                strcat(text, c && first ? "|" : first ? "" : " ");
                strcat(text, f->values[i]);
                first = 0;
            }
    }
    return text;
}

static const char *switches(const struct ds_verdict *v, const char *op)
{
    static char text[256];
    const struct ds_kernel_verdict *k = kernel(v, op);
    text[0] = '\0';
    for (uint32_t s = 0; s < k->n_switches; s++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s:", s ? " " : "",
                 k->switches[s].setting);
        for (uint32_t i = 0; i < k->switches[s].n; i++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%u", i ? "," : "",
                     k->switches[s].rows[i]);
    }
    return text;
}

/* The default sweep in small: batch at every thread count, slot at the largest batch, chunk and
 * mode. */
static void usual_arms(struct sweep *s)
{
    sweep_init(s, "batch slot threads chunk mode", 2);
    static const char *const arms[] = {
        "1 first 1 0 prefill", "2 first 1 0 prefill",  "3 first 1 0 prefill",
        "4 first 1 0 prefill", "8 first 1 0 prefill",  "16 first 1 0 prefill",
        "16 last 1 0 prefill", "1 first 2 0 prefill",  "2 first 2 0 prefill",
        "4 first 2 0 prefill", "16 first 2 0 prefill", "1 first 1 4 prefill",
        "1 first 1 0 decode"};
    for (size_t i = 0; i < sizeof arms / sizeof *arms; i++)
        sweep_arm(s, arms[i]);
}

static uint32_t is_matmul(const struct cell *c)
{
    return strcmp(c->site->op, "matmul") == 0;
}

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

/* What OpenBLAS does on one thread: other code from M = 4, 8 and 12 on. */
static uint32_t openblas_one_thread(const struct cell *c)
{
    return !is_matmul(c) ? 0 : c->m < 4 ? 0 : c->m < 8 ? 1 : c->m < 12 ? 2 : 3;
}

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

/* A naive verdict compares every arm with the base arm and would blame slot, and threads at batch
 * 4, for what batch does. */
static uint32_t batch_only(const struct cell *c)
{
    return is_matmul(c) && cell_number(c, "batch", 1) >= 4;
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

/* One unstable arm (two threads) beside true batch drift at one thread: both are named, each at its
 * place. */
static uint32_t racy_threads_and_batch(const struct cell *c)
{
    if (cell_number(c, "threads", 1) > 1 && cell_is(c, 0, "attn_out"))
        return 1 + (uint32_t)(sweep_mix(c->arm + 7, c->repeat * 64 + (uint64_t)c->position) % 5);
    return openblas_one_thread(c);
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

/* ---- labels ---------------------------------------------------------------------------------- */

/* One row of k_proj changes: the cache row inherits, attention from that position on, not before.
 */
static uint32_t one_row(const struct cell *c)
{
    if (cell_number(c, "batch", 1) == 1)
        return 0;
    if (cell_is(c, 0, "down"))
        return TAG_DROP;
    return cell_is(c, 0, "k_proj") && c->position == 4;
}

static uint32_t one_row_base(const struct cell *c)
{
    return cell_is(c, 0, "down") ? TAG_DROP : one_row(c);
}

static void test_inherited_along_edges_and_healed(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_analysis *a;
    struct ds_error err;
    struct ds_verdict v;
    sweep_init(&s, "batch", 1);
    sweep_arm(&s, "1");
    sweep_arm(&s, "2");
    s.tag = one_row_base;
    sweep_run(&s, 2);
    struct ds_source src = sweep_source(&s);
    assert_ok(ds_analysis_new(&src, NULL, &a, &err), err);
    uint8_t *labels;
    assert_ok(ds_analysis_labels(a, 1, 0, &labels, &err), err);
    size_t rows = ds_analysis_rows(a);
    enum { NORM = 1, Q, K, KV, ATTN, RES, DOWN, OUT };
    for (size_t r = 0; r < rows; r++) {
        int hit = ds_analysis_row(a, r)->position == 4,
            after = ds_analysis_row(a, r)->position >= 4;
        assert_int_equal(labels[NORM * rows + r], DS_LABEL_SAME);
        assert_int_equal(labels[Q * rows + r], DS_LABEL_SAME);
        assert_int_equal(labels[K * rows + r], hit ? DS_LABEL_ORIGIN : DS_LABEL_SAME);
        assert_int_equal(labels[KV * rows + r], hit ? DS_LABEL_INHERITED : DS_LABEL_SAME);
        assert_int_equal(labels[ATTN * rows + r], after ? DS_LABEL_INHERITED : DS_LABEL_SAME);
        assert_int_equal(labels[RES * rows + r], after ? DS_LABEL_INHERITED : DS_LABEL_SAME);
        assert_int_equal(labels[DOWN * rows + r], after ? DS_LABEL_HEALED : DS_LABEL_SAME);
        assert_int_equal(labels[OUT * rows + r], after ? DS_LABEL_INHERITED : DS_LABEL_SAME);
    }
    free(labels);
    assert_ok(ds_analysis_verdict(a, &v, &err), err);
    assert_int_equal(kernel(&v, "matmul")->origins, 1);
    assert_int_equal(kernel(&v, "matmul")->healed, 5); /* positions 4..8 */
    assert_int_equal(kernel(&v, "cache")->inherited, 1);
    assert_int_equal(kernel(&v, "attention")->origins, 0);
    assert_int_equal(v.first.rows, 1);
    assert_int_equal(v.first.position, 4);
    ds_verdict_free(&v);
    ds_analysis_free(a);
    sweep_free(&s);
}

/* Inputs read by the whole call: equal only where every recorded row of the call agrees. */
static void test_whole_call_edges_are_unknown_unless_all_agree(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_analysis *a;
    struct ds_error err;
    sweep_init(&s, "batch", 1);
    for (size_t e = 0; e < s.header.n_edges; e++)
        if (s.header.edges[e].from == 4 && s.header.edges[e].to == 5)
            s.header.edges[e].kind = DS_EDGE_ALL;
    sweep_arm(&s, "1");
    sweep_arm(&s, "2");
    sweep_run(&s, 1);
    uint32_t row = 0;
    *sweep_find(&s.trials[1], 4, 4, &row) ^= 1; /* a cache row of the prompt */
    *sweep_find(&s.trials[1], 5, 0, &row) ^=
        1; /* attention rows 0 (same call) and 7 (a decode call) */
    *sweep_find(&s.trials[1], 5, 7, &row) ^= 1;
    struct ds_source src = sweep_source(&s);
    assert_ok(ds_analysis_new(&src, NULL, &a, &err), err);
    uint8_t *labels;
    assert_ok(ds_analysis_labels(a, 1, 0, &labels, &err), err);
    size_t rows = ds_analysis_rows(a);
    assert_int_equal(labels[5 * rows + 0], DS_LABEL_UNKNOWN);
    assert_int_equal(labels[5 * rows + 7], DS_LABEL_ORIGIN);
    free(labels);
    ds_analysis_free(a);
    sweep_free(&s);
}

static uint32_t two_faults(const struct cell *c)
{
    if (cell_number(c, "batch", 1) == 1)
        return cell_is(c, 0, "resid_ffn") ? TAG_DROP : 0;
    if (cell_is(c, 0, "resid_ffn"))
        return TAG_DROP; /* healed between the layers */
    return cell_is(c, 0, "attn_out") || cell_is(c, 1, "attn_norm");
}

static void test_independent_origins_by_kernel(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch", 2);
    sweep_arm(&s, "1");
    sweep_arm(&s, "2");
    s.tag = two_faults;
    sweep_run(&s, 2);
    run_verdict(&s, &v);
    assert_string_equal(v.first.stage, "attn_out");
    assert_int_equal(kernel(&v, "attention")->origins, 9);
    assert_int_equal(kernel(&v, "rmsnorm")->origins, 9);
    assert_int_equal(kernel(&v, "matmul")->origins, 0);
    assert_int_equal(kernel(&v, "add")->healed, 9);
    ds_verdict_free(&v);
    sweep_free(&s);
}

/* ---- sizes and kinds ------------------------------------------------------------------------- */

static void test_kinds_need_evidence(void **state)
{
    (void)state;
    static const struct {
        double relative;
        uint32_t elements;
        int kind;
        const char *what;
    } cases[] = {
        {1e-8, 20, DS_KIND_ROUNDING_ORDER, "a few last places"},
        {5.6e-7, 500, DS_KIND_ROUNDING_ORDER, "f32 in another order"},
        {2e-5, 500, DS_KIND_UNKNOWN, "more than reordering"},
        {2.95e-4, SWEEP_WIDTH, DS_KIND_LOWER_PRECISION, "TF32"},
        {2.3e-3, SWEEP_WIDTH, DS_KIND_LOWER_PRECISION, "bf16 inputs"},
        {2.95e-4, 60, DS_KIND_UNKNOWN, "as large, in a tenth of the elements"},
        {4e-2, SWEEP_WIDTH, DS_KIND_UNKNOWN, "between the precisions"},
        {1.2, SWEEP_WIDTH, DS_KIND_WRONG_DATA, "other data"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sweep s;
        struct ds_verdict v;
        sweep_init(&s, "batch", 1);
        sweep_arm(&s, "1");
        sweep_arm(&s, "4");
        s.tag = openblas_one_thread;
        s.relative = cases[i].relative;
        s.elements = cases[i].elements;
        sweep_run(&s, 2);
        run_verdict(&s, &v);
        if (v.first.kind != cases[i].kind)
            print_error("%s: %s (%s)\n", cases[i].what, ds_kind_name(v.first.kind), v.first.why);
        assert_int_equal(v.first.kind, cases[i].kind);
        assert_true(v.first.sized);
        assert_int_equal(v.first.elements, (uint64_t)cases[i].elements * v.first.rows);
        assert_close("relative rms", i, v.first.relative_rms, cases[i].relative, 1e-12);
        ds_verdict_free(&v);
        sweep_free(&s);
    }
}

static struct ds_drift *drift_at(struct sweep *s, uint32_t site)
{
    for (size_t t = 0; t < s->n_trials; t++)
        for (size_t i = 0; i < s->trials[t].n_drifts; i++)
            if (s->trials[t].drifts[i].site == site)
                return &s->trials[t].drifts[i];
    return NULL;
}

/* One grossly wrong row among good ones must not pass as rounding. */
static void test_one_wrong_row_is_not_rounding(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch", 1);
    sweep_arm(&s, "1");
    sweep_arm(&s, "4");
    s.tag = openblas_one_thread;
    s.relative = 1e-8;
    sweep_run(&s, 1);
    drift_at(&s, 2)->diff_sq =
        1e-9; /* of 2304: alone relative 6.6e-7 in the site, but far above in this row */
    drift_at(&s, 2)->ref_sq = 1e-1;
    run_verdict(&s, &v);
    assert_true(v.first.relative_rms < 4e-6);
    assert_int_equal(v.first.kind, DS_KIND_UNKNOWN);
    ds_verdict_free(&v);
    sweep_free(&s);
}

static void test_equal_values_and_nans_are_their_own_thing(void **state)
{
    (void)state;
    for (int which = 0; which < 3; which++) {
        struct sweep s;
        struct ds_verdict v;
        sweep_init(&s, "batch", 1);
        sweep_arm(&s, "1");
        sweep_arm(&s, "4");
        s.tag = batch_only;
        sweep_run(&s, 2);
        for (size_t t = 0; t < s.n_trials; t++)
            for (size_t i = 0; i < s.trials[t].n_drifts; i++) {
                struct ds_drift *d = &s.trials[t].drifts[i];
                d->flags = which == 0 ? DS_DRIFT_VALUES_EQUAL : which == 1 ? DS_DRIFT_NAN_BITS : 0;
                d->max_ulp = 0;
                d->diff_sq = 0;
                d->nonfinite = which == 2 ? 3 : which == 1;
                d->ref_nonfinite = which == 1;
            }
        run_verdict(&s, &v);
        assert_int_equal(v.result, DS_RESULT_DRIFT);
        assert_int_equal(v.first.kind, which == 2 ? DS_KIND_NON_FINITE : DS_KIND_UNKNOWN);
        assert_non_null(strstr(v.first.why, which == 0   ? "values equal"
                                            : which == 1 ? "NaN"
                                                         : "one side"));
        ds_verdict_free(&v);
        sweep_free(&s);
    }
}

static void test_no_sizes_no_claim(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch", 1);
    sweep_arm(&s, "1");
    sweep_arm(&s, "4");
    s.tag = batch_only;
    s.no_sizes = 1;
    sweep_run(&s, 2);
    run_verdict(&s, &v);
    assert_int_equal(v.first.kind, DS_KIND_UNKNOWN);
    assert_false(v.first.sized);
    assert_int_equal(v.n_growth, 0);
    ds_verdict_free(&v);
    sweep_free(&s);
}

static void test_first_nonfinite_in_execution_order(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch", 2);
    sweep_arm(&s, "1");
    sweep_arm(&s, "2");
    sweep_run(&s, 2);
    struct ds_nonfinite list[] = {
        {15, 3, 0, 2, 7}, {8, 3, 1, 2, 7}, {7, 5, 0, 4, 1}, {7, 3, 0, 2, 7}};
    s.trials[2].nonfinites = calloc(4, sizeof list[0]);
    memcpy(s.trials[2].nonfinites, list, sizeof list);
    s.trials[2].n_nonfinites = 4;
    run_verdict(&s, &v);
    assert_int_equal(v.result, DS_RESULT_SAME);
    assert_true(v.nonfinite.at.found);
    assert_string_equal(v.nonfinite.at.stage, "down");
    assert_int_equal(v.nonfinite.at.layer, 0);
    assert_int_equal(v.nonfinite.at.position, 3);
    assert_int_equal(v.nonfinite.at.rows, 2);
    assert_int_equal(v.nonfinite.inf, 2);
    assert_int_equal(v.nonfinite.inputs, 1);
    ds_verdict_free(&v);
    sweep_free(&s);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static int32_t flips_at_two(const struct cell *c, uint64_t logits)
{
    (void)logits;
    return 100 + c->step + (cell_number(c, "batch", 1) >= 4 && c->step >= 2 ? 50 : 0);
}

static void test_token_flip_is_the_first_discrete_change(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch", 1);
    sweep_arm(&s, "1");
    sweep_arm(&s, "2");
    sweep_arm(&s, "4");
    s.tag = batch_only;
    s.token = flips_at_two;
    sweep_run(&s, 1);
    run_verdict(&s, &v);
    assert_string_equal(v.first.stage, "q_proj");
    assert_true(v.discrete.found);
    assert_int_equal(v.discrete.step, 2);
    assert_int_equal(v.discrete.a, 102);
    assert_int_equal(v.discrete.b, 152);
    assert_string_equal(v.discrete.value, "4");
    assert_close("margin", 0, v.discrete.margin, 0.25, 0);
    assert_int_equal(v.tokens_compared, 8);
    assert_int_equal(v.tokens_same, 6);
    ds_verdict_free(&v);
    sweep_free(&s);
}

static void test_choice_alone_is_selection_only(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch", 1);
    sweep_arm(&s, "1");
    sweep_arm(&s, "4");
    s.token = flips_at_two; /* from equal logits */
    sweep_run(&s, 2);
    run_verdict(&s, &v);
    assert_string_equal(v.first.stage, "token");
    assert_int_equal(v.first.kind, DS_KIND_SELECTION_ONLY);
    assert_int_equal(kernel(&v, "matmul")->origins, 0);
    ds_verdict_free(&v);
    sweep_free(&s);
}

/* --free: after other tokens were fed the rows are other rows. */
static void test_rows_after_other_tokens_are_not_compared(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch", 1);
    sweep_arm(&s, "1");
    sweep_arm(&s, "4");
    s.token = flips_at_two;
    sweep_run(&s, 1);
    for (size_t t = 0; t < 2; t++)
        for (size_t i = 0; i < s.trials[t].n_steps; i++)
            s.trials[t].steps[i].forced = s.trials[t].steps[i].token;
    for (uint32_t site = 0; site < s.header.n_sites; site++) {
        uint32_t row = 0;
        uint64_t *d = sweep_find(&s.trials[1], site, SWEEP_PROMPT + 2,
                                 &row); /* step 3, fed the token of step 2 */
        if (d)
            *d ^= 5;
    }
    run_verdict(&s, &v);
    assert_string_equal(v.first.stage,
                        "token"); /* the choice itself, and nothing of what it caused */
    assert_int_equal(v.first.step, 2);
    assert_int_equal(factor(&v, "batch")->phase[DS_VERDICT_ALL].drifted, 1);
    assert_int_equal(v.tokens_compared, 3);
    ds_verdict_free(&v);
    sweep_free(&s);
}

/* ---- the record itself ----------------------------------------------------------------------- */

static void test_constant_and_copied_captures_are_noted(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch", 2);
    sweep_arm(&s, "1");
    sweep_run(&s, 1);
    struct ds_trial_data *t = &s.trials[0];
    for (int32_t p = 0; p < SWEEP_PROMPT + SWEEP_STEPS; p++) {
        uint32_t row = 0;
        *sweep_find(t, 3, p, &row) = 42; /* k_proj of layer 0: one row's bits everywhere */
        *sweep_find(t, 8 + 7, p, &row) =
            *sweep_find(t, 7, p, &row); /* down: the same buffer in both layers */
    }
    run_verdict(&s, &v);
    assert_int_equal(v.n_notes, 2);
    assert_non_null(strstr(v.notes[0], "k_proj"));
    assert_non_null(strstr(v.notes[1], "down"));
    ds_verdict_free(&v);
    sweep_free(&s);
}

static void test_a_partial_record_says_what_was_compared(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    usual_arms(&s);
    s.tag = openblas_one_thread;
    for (uint32_t arm = 0; arm < 4; arm++)
        sweep_trial(&s, arm, 0);
    sweep_trial(&s, 0, 1);
    run_verdict(&s, &v);
    assert_int_equal(v.result, DS_RESULT_DRIFT);
    assert_int_equal(v.counts.arms, 4);
    assert_int_equal(factor(&v, "batch")->arms, 3);
    assert_int_equal(factor(&v, "batch")->arms_alone, 5); /* 8 and 16; 2, 4, 16 at two threads */
    assert_int_equal(factor(&v, "threads")->arms, 0);
    assert_int_equal(condition(&v, "matmul", "threads"), DS_COND_NOT_RUN);
    /* decode rows of batch 2 and 3 differ from batch 1's: they read a cache that prefill wrote with
     * other bits */
    assert_string_equal(classes(&v, "batch", DS_VERDICT_DECODE), "1|2 3|4");
    ds_verdict_free(&v);
    sweep_free(&s);
}

static void test_bad_indices_are_errors(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    struct ds_error err;
    sweep_init(&s, "batch", 1);
    sweep_arm(&s, "1");
    sweep_run(&s, 1);
    struct ds_source src = sweep_source(&s);
    s.trials[0].captures[3].first_digest = UINT64_MAX - 1;
    assert_int_equal(ds_verdict_make(&src, &v, &err), -1);
    assert_non_null(strstr(err.msg, "capture 3"));
    s.trials[0].captures[3].first_digest = 0;
    s.trials[0].rows[2].call = 77;
    assert_int_equal(ds_verdict_make(&src, &v, &err), -1);
    s.trials[0].rows[2].call = 0;
    s.trials[0].info.arm = 5;
    assert_int_equal(ds_verdict_make(&src, &v, &err), -1);
    s.trials[0].info.arm = 0;
    sweep_free(&s);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    struct ds_error err;
    sweep_init(&s, "batch threads", 1);
    sweep_arm(&s, "1 1");
    sweep_arm(&s, "4 1");
    sweep_arm(&s, "4 2");
    s.tag = racy_threads_and_batch;
    sweep_run(&s, 2);
    struct ds_source src = sweep_source(&s);
    long failed = 0;
    for (long n = 1; n < 2000; n++) {
        ds_mem_fail_at(n);
        int rc = ds_verdict_make(&src, &v, &err);
        ds_mem_fail_at(0);
        if (rc == 0) {
            ds_verdict_free(&v);
            break;
        }
        assert_non_null(strstr(err.msg, "out of memory"));
        failed++;
    }
    assert_true(failed > 50 && failed < 1999);
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
        cmocka_unit_test(test_threads_drift_in_decode_attention),
        cmocka_unit_test(test_slot_drift_is_not_blamed_on_batch),
        cmocka_unit_test(test_no_factor_is_blamed_for_another),
        cmocka_unit_test(test_kernel_sets_and_batch_are_told_apart),
        cmocka_unit_test(test_arrival_order_is_unstable_and_not_batch_drift),
        cmocka_unit_test(test_luck_in_one_arm_is_not_drift),
        cmocka_unit_test(test_luck_in_two_arms_is_not_drift),
        cmocka_unit_test(test_single_trial_of_an_unstable_kernel_is_not_drift),
        cmocka_unit_test(test_unstable_arm_beside_true_batch_drift),
        cmocka_unit_test(test_unstable_shape_beside_true_drift_of_another),
        cmocka_unit_test(test_modal_digest_and_rate),
        cmocka_unit_test(test_inherited_along_edges_and_healed),
        cmocka_unit_test(test_whole_call_edges_are_unknown_unless_all_agree),
        cmocka_unit_test(test_independent_origins_by_kernel),
        cmocka_unit_test(test_kinds_need_evidence),
        cmocka_unit_test(test_one_wrong_row_is_not_rounding),
        cmocka_unit_test(test_equal_values_and_nans_are_their_own_thing),
        cmocka_unit_test(test_no_sizes_no_claim),
        cmocka_unit_test(test_first_nonfinite_in_execution_order),
        cmocka_unit_test(test_token_flip_is_the_first_discrete_change),
        cmocka_unit_test(test_choice_alone_is_selection_only),
        cmocka_unit_test(test_rows_after_other_tokens_are_not_compared),
        cmocka_unit_test(test_constant_and_copied_captures_are_noted),
        cmocka_unit_test(test_a_partial_record_says_what_was_compared),
        cmocka_unit_test(test_bad_indices_are_errors),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
