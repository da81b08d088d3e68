/* test_schedules.c: whole sweeps of a small model over schedules of calls: prefix cache hits, rejected
 * drafts, padding on both sides, far positions. Pinned kernels give the same bits in all of them; of
 * what has one known fault the verdict names the fault and blames nothing else. */
#include "tests/whole/schedule_specimens.h"
#include "tests/whole/specimen_kernels.h"
#include "tests/whole/verdict_checks.h"

#include "base/dtype.h"

#include <stdio.h>

static int add_all(void **state)
{
    add_schedules(state);
    return add_specimens(state);
}

/* ---- healthy --------------------------------------------------------------------------------- */

static uint32_t find_site(const struct outcome *x, int32_t layer, const char *stage,
                          const char *part)
{
    for (uint32_t s = 0; s < x->header.n_sites; s++)
        if (x->header.sites[s].layer == layer && strcmp(x->header.sites[s].stage, stage) == 0 &&
            strcmp(x->header.sites[s].part, part) == 0)
            return s;
    fail_msg("no site %s", stage);
    return 0;
}

/* Rows that an arm has at a site, of one kind of row (-1: any). */
static int rows_at(const struct outcome *x, uint32_t arm, uint32_t site, int kind)
{
    const struct ds_trial_data *t = ds_analysis_trial(x->analysis, arm);
    int n = 0;
    for (size_t i = 0; i < t->n_captures; i++)
        for (uint32_t k = 0; t->captures[i].site == site && k < t->captures[i].rows; k++)
            n += kind < 0 || t->rows[t->captures[i].first_row + k].kind == (uint32_t)kind;
    return n;
}

static void test_pinned_bits_are_one_in_every_schedule(void **state)
{
    static const char *const dtypes[] = {"f32", "bf16"};
    (void)state;
    for (int d = 0; d < 2; d++)
        for (int all = 0; all < 2; all++) {
            struct outcome x;
            struct ask q = {.repeats = 1,
                            .steps = 3,
                            .full = 1,
                            .all_logits = all,
                            .position_offset = all ? 17 : 0,
                            .poison = all,
                            .factor = {[DS_FACTOR_BATCH] = "1,4",
                                       [DS_FACTOR_NEIGHBOURS] = all ? "varied" : "copies",
                                       [DS_FACTOR_PADDING] = "0,3,3r",
                                       [DS_FACTOR_CHUNK] = "0,4",
                                       [DS_FACTOR_PREFIX] = "0,1,8",
                                       [DS_FACTOR_ROLLBACK] = "0,2",
                                       [DS_FACTOR_DTYPE] = dtypes[d],
                                       [DS_FACTOR_KERNELS] = "pinned"}};
            judge(&x, &q);
            const char *what = dtypes[d];
            only_blames(&x, what, NULL, 0);
            check(what, x.v.result == DS_RESULT_SAME && x.result.failed == 0);
            check(what, x.v.counts.arms == 2 * 3 * 2 * 3 * 2 && x.v.n_notes == 0);
            check(what, !x.v.nonfinite.at.found);
            static const char *const factors[] = {"padding", "prefix", "rollback", "chunk"};
            for (int f = 0; f < 4; f++)
                check(what, factor_of(&x.v, factors[f])->phase[DS_VERDICT_ALL].compared > 1000);
            done(&x);
        }
}

static uint32_t arm_with(const struct outcome *x, int factor, const char *value)
{
    for (uint32_t a = 0; a < x->header.n_arms; a++)
        if (strcmp(x->header.arms[a].values[factor], value) == 0)
            return a;
    fail_msg("no arm has %s %s", ds_factor_names[factor], value);
    return 0;
}

static void test_rows_that_are_recorded(void **state)
{
    (void)state;
    struct outcome x;
    struct ask q = {.repeats = 1,
                    .factor = {[DS_FACTOR_KERNELS] = "pinned",
                               [DS_FACTOR_BATCH] = "4",
                               [DS_FACTOR_NEIGHBOURS] = "copies,varied",
                               [DS_FACTOR_PREFIX] = "0,5",
                               [DS_FACTOR_PADDING] = "0,2,2r",
                               [DS_FACTOR_ROLLBACK] = "0,3"}};
    judge(&x, &q);
    uint32_t k = find_site(&x, 1, "kv_write", "k"), proj = find_site(&x, 1, "q_proj", "");
    uint32_t logits = find_site(&x, 2, "logits", "");
    uint32_t prefix = arm_with(&x, DS_FACTOR_PREFIX, "5"),
             left = arm_with(&x, DS_FACTOR_PADDING, "2"),
             right = arm_with(&x, DS_FACTOR_PADDING, "2r"),
             drafts = arm_with(&x, DS_FACTOR_ROLLBACK, "3");
    assert_int_equal(rows_at(&x, 0, k, -1), PROMPT + 4);
    assert_int_equal(rows_at(&x, prefix, k, -1), PROMPT + 4);
    assert_int_equal(rows_at(&x, prefix, proj, -1), PROMPT + 4 - 5);
    assert_int_equal(rows_at(&x, left, proj, DS_ROW_PAD), 2);
    assert_int_equal(rows_at(&x, right, proj, DS_ROW_PAD), 2);
    assert_int_equal(rows_at(&x, right, logits, -1), 5);
    assert_int_equal(rows_at(&x, drafts, proj, -1), PROMPT + 4);
    assert_int_equal(rows_at(&x, drafts, logits, -1), 5);
    const struct ds_trial_data *t = ds_analysis_trial(x.analysis, drafts);
    for (size_t i = 0; i < t->n_calls; i++)
        assert_int_equal(t->calls[i].m, i == 0 ? 4 * PROMPT : 4 * 4);
    t = ds_analysis_trial(x.analysis, prefix);
    assert_true(t->calls[0].m == 0 && t->calls[0].rows == 5);
    assert_true(t->calls[1].m == 4 * PROMPT - 5 && t->calls[1].rows == PROMPT - 5);
    t = ds_analysis_trial(x.analysis, left);
    assert_true(t->calls[0].m == 4 * (PROMPT + 2)); /* a rectangle */
    drop(&x);
}

/* ---- bookkeeping ----------------------------------------------------------------------------- */

static void test_bookkeeping_is_blamed_and_not_arithmetic(void **state)
{
    static const struct {
        const char *variant, *stage;
        int32_t step, position;
        uint32_t rows;
    } cases[] = {
        {"far", "positions", 1, PROMPT, 4},
        {"forget", "kv_len", 2, PROMPT + 1, 3},
        {"page", "slots", 0, 0, PROMPT + 4},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char kernels[64];
        struct outcome x;
        snprintf(kernels, sizeof kernels, "pinned,pinned+schedule=%s", cases[i].variant);
        struct ask q = {.factor = {[DS_FACTOR_BATCH] = "4", [DS_FACTOR_KERNELS] = kernels}};
        judge(&x, &q);
        const char *what = cases[i].variant;
        struct culprit guilty = {"schedule", cases[i].variant, " kernels ", NULL};
        only_blames(&x, what, &guilty, 1);
        check(what, x.v.result == DS_RESULT_DRIFT && x.v.stable && x.result.failed == 0);
        check_text(what, x.v.first.stage, cases[i].stage);
        check_text(what, x.v.first.op, "schedule");
        check_text(what, x.v.first.variant, cases[i].variant);
        check(what, x.v.first.layer == -1 && x.v.first.label == DS_LABEL_ORIGIN);
        check(what, x.v.first.step == cases[i].step && x.v.first.position == cases[i].position);
        check(what, x.v.first.rows == cases[i].rows);
        done(&x);
    }
}

/* Faults that a rejection or a prefix hit brings out, in one factor and from one step on. */
static void test_a_schedule_is_wrong_where_it_was_used(void **state)
{
    static const struct {
        const char *variant, *drifts, *stage, *factor, *value;
        int32_t step, position;
        uint32_t rows;
    } cases[] = {
        {"trim", " rollback ", "kv_len", "rollback", "2", 2, PROMPT + 1, 3},
        {"uniform", " rollback ", "kv_len", "rollback", "2", 2, PROMPT + 1, 3},
        {"restart", " prefix ", "positions", "prefix", "4", 0, 4, PROMPT - 4},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char kernels[64];
        const char *what = cases[i].variant;
        struct outcome x;
        snprintf(kernels, sizeof kernels, "pinned+schedule=%s", what);
        struct ask q = {.factor = {[DS_FACTOR_BATCH] = "4,1",
                                   [DS_FACTOR_NEIGHBOURS] = "varied",
                                   [DS_FACTOR_SLOT] = "last",
                                   [DS_FACTOR_CHUNK] = "0,4",
                                   [DS_FACTOR_PADDING] = "0,2",
                                   [DS_FACTOR_PREFIX] = "0,4",
                                   [DS_FACTOR_ROLLBACK] = "0,2",
                                   [DS_FACTOR_KERNELS] = kernels}};
        judge(&x, &q);
        only_blames(&x, what, &(struct culprit){"schedule", what, cases[i].drifts, NULL}, 1);
        check(what, x.result.failed == 0 && x.v.stable && x.v.first.found);
        check_text(what, x.v.first.stage, cases[i].stage);
        check_text(what, x.v.first.factor, cases[i].factor);
        check_text(what, x.v.first.value, cases[i].value);
        check(what, x.v.first.step == cases[i].step && x.v.first.position == cases[i].position);
        check(what, x.v.first.rows == cases[i].rows);
        done(&x);
    }
}

static void test_what_cannot_be_followed_ends_the_trial(void **state)
{
    static const char *const want[] = {"position 64 is impossible",   "position -1 is impossible",
                                       "kv_len 18 is impossible",     "kv_len 0 is impossible",
                                       "kv_first 11 is impossible",   "page 4 is impossible",
                                       "a changed place in the call", "a changed place in the call",
                                       "a changed place in the call"};
    (void)state;
    for (which_lie = 0; which_lie < 9; which_lie++) {
        struct outcome x;
        struct ask q = {
            .repeats = 1,
            .factor = {
                [DS_FACTOR_BATCH] = "4", [DS_FACTOR_KERNELS] = "pinned,pinned+schedule=lie"}};
        judge(&x, &q);
        check(want[which_lie], x.result.failed == 1);
        if (!strstr(x.result.first_failure.msg, want[which_lie]) ||
            !strstr(x.result.first_failure.msg, "positions: schedule/lie")) {
            print_error("%s: '%s'\n", want[which_lie], x.result.first_failure.msg);
            cut_short = 1;
        }
        check(want[which_lie], x.v.counts.arms == 1);
        done(&x);
    }
}

/* ---- arithmetic that a schedule brings out --------------------------------------------------- */

/* The kernel of a short call; what the cache holds is innocent. */
static void test_a_prefix_hit_changes_the_suffix_only(void **state)
{
    (void)state;
    struct outcome x;
    struct ask q = {
        .factor = {[DS_FACTOR_PREFIX] = "0,5", [DS_FACTOR_KERNELS] = "pinned+matmul=split"}};
    specimen.from_rows = 5;
    judge(&x, &q);
    only_blames(&x, "prefix", &(struct culprit){"matmul", "split", " prefix ", NULL}, 1);
    const struct place p = {0, "q_proj", "prefix", "5", DS_PHASE_PREFILL,
                            4, 0,        5,        4,   DS_KIND_ROUNDING_ORDER};
    first_is(&x, "prefix", &x.v.first, &p);
    uint8_t *labels;
    struct ds_error err;
    uint32_t arm = arm_with(&x, DS_FACTOR_PREFIX, "5");
    assert_ok(ds_analysis_labels(x.analysis, arm, 0, &labels, &err), err);
    for (int32_t layer = 0; layer < 2; layer++)
        for (size_t i = 0; i < ds_analysis_rows(x.analysis); i++) {
            size_t site = find_site(&x, layer, "kv_write", "k"), n = ds_analysis_rows(x.analysis);
            int cached = ds_analysis_row(x.analysis, i)->position < 5;
            if (cached)
                check("cached rows", labels[site * n + i] == DS_LABEL_SAME);
        }
    free(labels);
    done(&x);
}

static int is_wide(const struct ds_attention_args *a, const struct ds_sequence *s)
{
    (void)a;
    return s->q_len > 2 && s->q_len < 5;
}

static int wide_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    (void)why, (void)why_size;
    attend_own(args, exec, MAP_RIGHT, is_wide);
    return 0;
}

static const struct ds_kernel wide_attention =
    SPECIMEN(DS_OP_ATTENTION, "wide", wide_launch, score_floats);

/* The number of query rows of the verifying call chooses the kernel. */
static void test_a_verifying_call_is_as_wide_as_its_drafts(void **state)
{
    (void)state;
    struct outcome x;
    struct ask q = {
        .factor = {
            [DS_FACTOR_ROLLBACK] = "0,1,2,3,4", [DS_FACTOR_KERNELS] = "pinned+attention=wide"}};
    judge(&x, &q);
    only_blames(&x, "rollback", &(struct culprit){"attention", "wide", " rollback ", NULL}, 1);
    check_text("rollback", x.v.first.stage, "attn_out");
    check_text("rollback", x.v.first.value, "2");
    check("rollback", x.v.first.phase == DS_PHASE_DECODE && x.v.first.step == 1);
    classes_are(&x, "rollback", "rollback", DS_VERDICT_DECODE, "0,1,4|2,3");
    classes_are(&x, "rollback", "rollback", DS_VERDICT_PREFILL, "0,1,2,3,4");
    done(&x);
}

/* The last chunk has 1 to 5 rows; of one number there is no launch. */
static void test_a_tail_that_cannot_be_launched_is_named(void **state)
{
    (void)state;
    struct outcome x;
    struct ask q = {
        .steps = 2,
        .factor = {
            [DS_FACTOR_CHUNK] = "0,4,5,6,7,8", [DS_FACTOR_KERNELS] = "pinned+matmul=refuse"}};
    specimen.at_rows = 3;
    judge(&x, &q);
    check("tail", x.result.failed == 1 && x.v.n_failed == 1 && x.v.counts.arms == 5);
    if (x.v.n_failed == 1) {
        const struct ds_failed_arm *f = x.v.failed;
        check_text("tail", f->factor, "chunk");
        check_text("tail", f->value, "6");
        check_text("tail", f->site->stage, "q_proj");
        check_text("tail", f->at->variant, "refuse");
        check_text("tail", f->at->why, "no tile for 3 rows");
        check("tail", f->at->rows == 3 && f->at->call == 1 && f->at->how == DS_FAILED_REFUSED);
        check("tail", f->at->first == 6 && f->at->last == 8);
    }
    only_blames(&x, "tail", NULL, 0);
    struct ds_buf json = {0};
    struct ds_error err;
    struct ds_report r = {.header = &x.header, .v = &x.v};
    assert_ok(ds_render_verdict_json(&r, &json, &err), err);
    ds_buf_add(&json, "", 1);
    check("tail", strstr(json.data, "\"how\": \"refused\"") != NULL);
    check("tail", strstr(json.data, "\"rows\": 3,") != NULL);
    ds_buf_free(&json);
    done(&x);
}

/* Trials tell what their process did before. */
static void test_histories_are_counted(void **state)
{
    (void)state;
    struct outcome x;
    struct ask q = {.repeats = 2,
                    .steps = 3,
                    .factor = {[DS_FACTOR_CHUNK] = "0,5",
                               [DS_FACTOR_PROCESS] = "1,2",
                               [DS_FACTOR_PREFIX] = "0,2",
                               [DS_FACTOR_KERNELS] = "pinned"}};
    static const struct {
        uint32_t trials, calls;
    } want[] = {{0, 0},  {1, 4},  /* the base arm and its bare pass: 4 calls each */
                {2, 8},  {3, 12}, /* chunk 5: 5 calls */
                {4, 17}, {5, 22}, /* prefix 2: 5 calls, the earlier pass counted */
                {6, 27}, {0, 0},  {0, 0}};
    judge(&x, &q);
    assert_int_equal(x.n_trials, sizeof want / sizeof want[0]);
    for (size_t i = 0; i < x.n_trials; i++) {
        const struct ds_trial *t = &x.trials[i].info;
        check("histories",
              t->earlier_trials == want[i].trials && t->earlier_calls == want[i].calls);
        if (cut_short)
            print_error("trial %zu: %u trials, %u calls\n", i, t->earlier_trials, t->earlier_calls);
    }
    const struct ds_trial_data *t = ds_analysis_trial(x.analysis, 0);
    for (size_t i = 0; i < t->n_rows; i++)
        check("rows", t->rows[i].kv_len == t->rows[i].position + 1 &&
                          t->rows[i].q_len == (t->rows[i].step ? 1 : PROMPT));
    done(&x);
}

/* ---- results --------------------------------------------------------------------------------- */

static void test_results_of_cached_rows_are_not_computed(void **state)
{
    (void)state;
    for (int filled = 0; filled < 2; filled++) {
        struct outcome x;
        const char *what = filled ? "filled" : "unfilled";
        struct ask q = {.all_logits = 1,
                        .factor = {[DS_FACTOR_PREFIX] = "0,5",
                                   [DS_FACTOR_KERNELS] = filled ? "pinned+process=penalty"
                                                                : "pinned+process=unfilled"}};
        judge(&x, &q);
        uint32_t processed = find_site(&x, 2, "logits_processed", ""),
                 logits = find_site(&x, 2, "logits", ""),
                 prefix = arm_with(&x, DS_FACTOR_PREFIX, "5");
        check(what, rows_at(&x, 0, logits, -1) == PROMPT + 4);
        check(what, rows_at(&x, prefix, logits, -1) == PROMPT + 4);
        check(what, rows_at(&x, prefix, processed, -1) == PROMPT + 4);
        check(what, x.v.stable == filled && x.v.first.found == !filled);
        if (!filled) {
            struct culprit guilty = {"process", "unfilled", NULL, " repeat "};
            check_text(what, x.v.first.stage, "logits_processed");
            check_text(what, x.v.first.variant, guilty.variant);
            check_text(what, x.v.first.factor, "repeat");
            check(what, x.v.first.arm == prefix && x.v.first.position == 0 && x.v.first.rows == 5);
            check(what, x.v.first.label == DS_LABEL_ORIGIN);
            check(what, x.v.tokens_same == x.v.tokens_compared);
        }
        done(&x);
    }
}

/* A penalty is no numerical drift: logits are equal, what becomes of them is not. */
static void test_a_penalty_is_found_behind_equal_logits(void **state)
{
    (void)state;
    struct outcome x;
    struct ask q = {.factor = {[DS_FACTOR_KERNELS] = "pinned,pinned+process=penalty"}};
    judge(&x, &q);
    only_blames(&x, "penalty", &(struct culprit){"process", "penalty", " kernels ", NULL}, 1);
    check_text("penalty", x.v.first.stage, "logits_processed");
    check("penalty", x.v.first.label == DS_LABEL_ORIGIN && x.v.first.step == 0);
    check("penalty", condition_of(&x.v, "matmul", "pinned", "kernels") == DS_COND_SAME);
    done(&x);
}

/* ---- padding, far positions ------------------------------------------------------------------ */

/* Rows that see nothing divide 0 by 0. */
static int no_key_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_attention_args *a = args;
    attend_own(a, exec, MAP_RIGHT, NULL);
    (void)why, (void)why_size;
    for (int64_t i = 0; i < a->n_sequences; i++)
        for (int64_t k = 0; k < a->sequences[i].q_len; k++)
            if (a->sequences[i].kv_len - a->sequences[i].q_len + k < a->sequences[i].kv_first)
                for (int64_t j = 0; j < a->heads * a->head_dim; j++)
                    a->y[(a->sequences[i].q_first + k) * a->ldy + j] = NAN;
    return 0;
}

/* Positions go through 16 bits on their way to the table. */
static int half_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    struct ds_rope_args a = *(const struct ds_rope_args *)args;
    int32_t rounded[64];
    for (int64_t r = 0; r < a.rows && r < 64; r++)
        rounded[r] = (int32_t)ds_f16_value(ds_f16_round((float)a.positions[r]));
    a.positions = rounded;
    return ds_kernel_find(DS_OP_ROPE, "pinned")->launch(&a, exec, why, why_size);
}

static const struct ds_kernel others[] = {
    SPECIMEN(DS_OP_ATTENTION, "no-key", no_key_launch, score_floats),
    SPECIMEN(DS_OP_ROPE, "half", half_launch, NULL),
};

static void test_padding_rows_that_see_nothing(void **state)
{
    (void)state;
    struct outcome x;
    struct ask q = {.factor = {[DS_FACTOR_BATCH] = "2",
                               [DS_FACTOR_PADDING] = "0,3,3r",
                               [DS_FACTOR_KERNELS] = "pinned+attention=no-key"}};
    judge(&x, &q);
    check("no key", x.v.nonfinite.at.found && x.v.nonfinite.at.layer == 0);
    check_text("no key", x.v.nonfinite.at.stage, "attn_out");
    check("no key", x.v.nonfinite.at.row_kind == DS_ROW_PAD && x.v.nonfinite.inputs == 1);
    check("no key", x.v.nonfinite.at.arm == arm_with(&x, DS_FACTOR_PADDING, "3"));
    only_blames(&x, "no key", NULL, 0);
    done(&x);
}

static void test_far_positions(void **state)
{
    (void)state;
    struct outcome x;
    struct ask q = {.model = "random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=128,"
                             "ctx=2100,seed=9",
                    .position_offset = 2044,
                    .factor = {[DS_FACTOR_KERNELS] = "pinned,pinned+rope=half"}};
    judge(&x, &q);
    only_blames(&x, "half", &(struct culprit){"rope", "half", " kernels ", NULL}, 1);
    check_text("half", x.v.first.stage, "q_rope");
    check("half", x.v.first.position == 2049 && x.v.first.rows == 4); /* 2049 2051 2053 2055 */
    done(&x);
}

static int add_everything(void **state)
{
    struct ds_error err;
    assert_ok(ds_kernel_add(&wide_attention, &err), err);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_ok(ds_kernel_add(&others[i], &err), err);
    return add_all(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pinned_bits_are_one_in_every_schedule),
        cmocka_unit_test(test_rows_that_are_recorded),
        cmocka_unit_test(test_bookkeeping_is_blamed_and_not_arithmetic),
        cmocka_unit_test(test_a_schedule_is_wrong_where_it_was_used),
        cmocka_unit_test(test_what_cannot_be_followed_ends_the_trial),
        cmocka_unit_test_teardown(test_a_prefix_hit_changes_the_suffix_only, forget_specimen),
        cmocka_unit_test(test_a_verifying_call_is_as_wide_as_its_drafts),
        cmocka_unit_test_teardown(test_a_tail_that_cannot_be_launched_is_named, forget_specimen),
        cmocka_unit_test(test_histories_are_counted),
        cmocka_unit_test(test_results_of_cached_rows_are_not_computed),
        cmocka_unit_test(test_a_penalty_is_found_behind_equal_logits),
        cmocka_unit_test(test_padding_rows_that_see_nothing),
        cmocka_unit_test(test_far_positions),
    };
    return cmocka_run_group_tests_name("schedules", tests, add_everything, NULL);
}
