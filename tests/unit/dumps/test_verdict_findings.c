/* test_verdict_findings.c: labels, channels, tokens, and what is said of the record itself. */
#include "dumps/validity.h"
#include "tests/unit/dumps/verdict_fixture.h"

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

/* Heads and channels of all rows, which are not dumped here: from the trial's masks, if they are of just the
 * rows that the finding is about. */
static void test_channels_from_masks(void **state)
{
    (void)state;
    for (int wrong = 0; wrong < 4; wrong++) {
        struct sweep s;
        struct ds_verdict v;
        sweep_init(&s, "batch", 1);
        sweep_arm(&s, "1");
        sweep_arm(&s, "2");
        s.tag = one_row;
        sweep_run(&s, 1);
        struct ds_trial_data *t = &s.trials[1];
        enum { SITE = 3, WIDTH = 192, WORDS = WIDTH / 64 };
        t->masks = calloc(2, sizeof *t->masks);
        t->mask_words = calloc(2 * WORDS, sizeof *t->mask_words);
        t->n_masks = 2;
        t->n_mask_words = 2 * WORDS;
        t->masks[0] = (struct ds_mask){SITE, 0, DS_PHASE_PREFILL, 1, WIDTH, 1, 0};
        t->masks[1] = (struct ds_mask){SITE + 1, 0, DS_PHASE_PREFILL, 1, WIDTH, 1, WORDS};
        t->mask_words[1] = 0xe; /* elements 65..67: head 1 of 64 channels */
        t->mask_words[WORDS] = ~(uint64_t)0;
        if (wrong == 1)
            t->masks[0].rows = 2;
        if (wrong == 2)
            t->masks[0].width = 64;
        if (wrong == 3)
            t->masks[0].ref_arm = 1;
        run_verdict(&s, &v);
        assert_int_equal(v.first.site, SITE);
        assert_int_equal(v.first.mask_rows, !wrong);
        assert_string_equal(v.first.channels, wrong ? "" : "1-3");
        assert_string_equal(v.first.heads, wrong ? "" : "1");
        assert_int_equal(v.first.element_ends, !wrong);
        assert_int_equal(v.first.first_element, wrong ? 0 : 65);
        assert_int_equal(v.first.last_element, wrong ? 0 : 67);
        assert_true(v.first.ends && v.first.rows == 1);
        assert_int_equal(v.first.first_row.position, v.first.position);
        assert_int_equal(v.first.last_row.position, v.first.position);
        assert_int_equal(v.first.beyond_rounding, 0);
        ds_verdict_free(&v);
        sweep_free(&s);
    }
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
    assert_int_equal(v.validity->n_items, 2);
    assert_int_equal(v.validity->items[0].kind, DS_VALIDITY_CONSTANT);
    assert_non_null(strstr(v.validity->items[0].text, "k_proj"));
    assert_int_equal(v.validity->items[1].kind, DS_VALIDITY_LAYERS);
    assert_non_null(strstr(v.validity->items[1].text, "down"));
    assert_int_equal(v.validity->items[1].sites, 2);
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

static uint32_t last_logits(const struct cell *c)
{
    return cell_number(c, "batch", 1) == 2 && cell_is(c, 40, "logits");
}

/* A record may call every site a sum of ranks and have two edges for each one: ways back through it double
 * with every site. The verdict must not walk them all. */
static void test_sums_of_sums_end(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_error err;
    struct ds_verdict v;
    sweep_init(&s, "batch", 40);
    for (size_t i = 0; i + 2 < s.header.n_sites; i++)
        snprintf(s.header.sites[i].op, sizeof s.header.sites[i].op, "allreduce");
    const size_t n = s.header.n_edges;
    s.header.edges = realloc(s.header.edges, 2 * n * sizeof *s.header.edges);
    memcpy(s.header.edges + n, s.header.edges, n * sizeof *s.header.edges);
    s.header.n_edges = 2 * n;
    sweep_arm(&s, "1");
    sweep_arm(&s, "2");
    s.tag = last_logits;
    sweep_run(&s, 1);
    struct ds_source src = sweep_source(&s);
    assert_ok(ds_verdict_make(&src, &v, &err), err);
    assert_true(v.first.found);
    assert_string_equal(s.header.sites[v.first.site].stage, "logits");
    ds_verdict_free(&v);
    sweep_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_channels_from_masks),
        cmocka_unit_test(test_inherited_along_edges_and_healed),
        cmocka_unit_test(test_whole_call_edges_are_unknown_unless_all_agree),
        cmocka_unit_test(test_independent_origins_by_kernel),
        cmocka_unit_test(test_token_flip_is_the_first_discrete_change),
        cmocka_unit_test(test_choice_alone_is_selection_only),
        cmocka_unit_test(test_rows_after_other_tokens_are_not_compared),
        cmocka_unit_test(test_constant_and_copied_captures_are_noted),
        cmocka_unit_test(test_a_partial_record_says_what_was_compared),
        cmocka_unit_test(test_bad_indices_are_errors),
        cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_sums_of_sums_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
