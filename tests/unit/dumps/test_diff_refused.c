/* test_diff_refused.c: two records that say nothing of each other, and comparisons that cannot be made. */
#include "tests/unit/dumps/diff_fixture.h"

static void other_arch(struct sweep *s)
{
    strcpy(s->header.model_arch, "qwen2");
}

static void other_heads(struct sweep *s)
{
    s->header.n_heads++;
}

static void other_tokens(struct sweep *s)
{
    s->header.prompts[0].tokens[2]++;
}

static void no_first_token(struct sweep *s)
{
    struct ds_prompt *p = &s->header.prompts[0];
    memmove(p->tokens, p->tokens + 1, --p->n_tokens * sizeof *p->tokens);
}

static void begins_later(struct sweep *s)
{
    sweep_line(&s->header.options, &s->header.n_options, "position_offset", "3");
}

static void no_prompt(struct sweep *s)
{
    s->header.prompts[0].request = 1; /* a neighbour's */
}

static void other_dtype(struct sweep *s)
{
    strcpy(s->header.sites[3].dtype, "bf16");
}

static void other_width(struct sweep *s)
{
    s->header.sites[3].width = 64;
}

static void other_weight_shape(struct sweep *s)
{
    s->header.weights[0].cols = 7;
}

static void other_sites(struct sweep *s)
{
    for (size_t i = 0; i < s->header.n_sites; i++)
        snprintf(s->header.sites[i].stage, sizeof s->header.sites[i].stage, "mine%u",
                 (unsigned)i % 1000u);
}

/* Header of a writer that knows no hyperparameters: a layer with experts is seen from its weights. */
static void other_structure(struct sweep *s)
{
    snprintf(s->header.weights[2].name, sizeof s->header.weights[2].name,
             "blk.1.ffn_down_exps.weight[0]");
}

static void other_experts(struct sweep *s)
{
    sweep_line(&s->header.hparams, &s->header.n_hparams, "n_experts", "8");
}

static void no_trials(struct sweep *s)
{
    s->n_trials = 0;
}

static void test_incomparable(void **state)
{
    (void)state;
    static const struct {
        void (*change)(struct sweep *);
        const char *reason;
    } cases[] = {
        {other_arch, "llama in A, qwen2 in B"},
        {other_heads, "shapes differ: heads"},
        {other_tokens, "token 2 is 12 in A, 13 in B"},
        {no_first_token, "B lacks the first token of A (10: a BOS?), and goes on with the second"},
        {begins_later, "begin at position 0 in A, at position 3 in B"},
        {no_prompt, "one record has no prompt"},
        {other_dtype, "k_proj is stored in other formats: f32 in A, bf16 in B"},
        {other_width, "192 in A, 64 in B"},
        {other_weight_shape, "token_embd.weight"},
        {other_structure, "layer 1 has experts in B only"},
        {other_experts, "experts none in A, 8 in B"},
        {other_sites, "share no site"},
        {no_trials, "share no arm"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sweep a, b;
        struct ds_diff d;
        small(&a);
        small(&b);
        sweep_run(&a, 1);
        sweep_run(&b, 1);
        size_t trials = b.n_trials;
        cases[i].change(&b);
        make(&a, &b, NULL, &d);
        assert_int_equal(d.verdict.result, DS_RESULT_INCOMPARABLE);
        assert_int_equal(ds_verdict_exit(&d.verdict), 2);
        if (!strstr(d.verdict.reason, cases[i].reason))
            print_error("case %zu: %s\n", i, d.verdict.reason);
        assert_non_null(strstr(d.verdict.reason, cases[i].reason));
        ds_diff_free(&d);
        b.n_trials = trials;
        sweep_free(&a);
        sweep_free(&b);
    }
}

/* Partial runs that have nothing but the calls' positions in common: those agree, and it is no pass. */
static void test_positions_alone_are_incomparable(void **state)
{
    (void)state;
    struct sweep side[2];
    struct ds_diff d;
    for (int k = 0; k < 2; k++) {
        small(&side[k]);
        sweep_run(&side[k], 1);
        snprintf(side[k].header.sites[0].op, sizeof side[k].header.sites[0].op, "schedule");
        for (size_t i = 1; i < side[k].header.n_sites; i++)
            snprintf(side[k].header.sites[i].stage, sizeof side[k].header.sites[i].stage, "%s%u",
                     k ? "mine" : "yours", (unsigned)i % 1000u);
    }
    make(&side[0], &side[1], NULL, &d);
    assert_int_equal(d.verdict.result, DS_RESULT_INCOMPARABLE);
    assert_non_null(strstr(d.verdict.reason, "share positions and lengths"));
    ds_diff_free(&d);
    sweep_free(&side[0]);
    sweep_free(&side[1]);
}

/* Repeats on both sides agree with themselves, but no row is common: nothing was compared. */
static void test_no_common_row_is_incomparable(void **state)
{
    (void)state;
    struct sweep a, b;
    struct ds_diff d;
    small(&a);
    small(&b);
    sweep_run(&a, 2);
    sweep_run(&b, 2);
    for (size_t t = 0; t < b.n_trials; t++)
        for (size_t r = 0; r < b.trials[t].n_rows; r++)
            b.trials[t].rows[r].request = 7;
    make(&a, &b, NULL, &d);
    assert_int_equal(d.verdict.result, DS_RESULT_INCOMPARABLE);
    ds_diff_free(&d);
    sweep_free(&a);
    sweep_free(&b);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    struct sweep a, b;
    struct ds_diff d;
    struct ds_error err;
    int asked = 0;
    struct ds_diff_options o = {.blob = fake_blob, .ctx = &asked};
    small(&a);
    small(&b);
    b.header.weights[1].digest = 99;
    b.tag = changed_k;
    sweep_run(&a, 2);
    sweep_run(&b, 2);
    struct ds_source sa = sweep_source(&a), sb = sweep_source(&b);
    long failed = 0;
    for (long n = 1; n < 4000; n++) {
        ds_mem_fail_at(n);
        int rc = ds_diff_make(&sa, &sb, &o, &d, &err);
        ds_mem_fail_at(0);
        if (rc == 0) {
            ds_diff_free(&d);
            break;
        }
        assert_non_null(strstr(err.msg, "out of memory"));
        failed++;
    }
    assert_true(failed > 100 && failed < 3999);
    sweep_free(&a);
    sweep_free(&b);
}

static int unread_blob(void *ctx, int side, uint64_t digest, struct ds_blob *out,
                       struct ds_error *err)
{
    (void)side, (void)digest, (void)out;
    ds_fail(err, "dumped row: no room");
    return *(int *)ctx;
}

/* Damage of a dumped row costs its size and is listed; a row that could not be asked for ends the comparison with
 * what hindered it, instead of an answer from fewer rows. */
static void test_rows_that_cannot_be_asked_for(void **state)
{
    struct sweep a, b;
    struct ds_diff d;
    (void)state;
    small(&a);
    small(&b);
    b.tag = changed_k;
    sweep_run(&a, 2);
    sweep_run(&b, 2);
    struct ds_source sa = sweep_source(&a), sb = sweep_source(&b);
    int answer = DS_BLOB_UNREAD;
    struct ds_diff_options o = {.blob = unread_blob, .ctx = &answer};
    struct ds_error err = {{0}, {0}};
    assert_int_equal(ds_diff_make(&sa, &sb, &o, &d, &err), -1);
    assert_string_equal(err.msg, "dumped row: no room");
    answer = -1;
    assert_int_equal(ds_diff_make(&sa, &sb, &o, &d, &err), 0);
    size_t damaged = 0;
    for (size_t i = 0; i < d.n_items; i++)
        damaged += d.items[i].kind == DS_DIFF_DAMAGE;
    assert_true(damaged > 0);
    ds_diff_free(&d);
    sweep_free(&a);
    sweep_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_incomparable),
        cmocka_unit_test(test_positions_alone_are_incomparable),
        cmocka_unit_test(test_no_common_row_is_incomparable),
        cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_rows_that_cannot_be_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
