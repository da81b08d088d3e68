/* test_diff_arms.c: which arms of two records are held against each other, records of part of the
 * work (other prompts' lengths, other steps, other calls), and what is said of settings beside the
 * first drift. */
#include "tests/unit/testing.h"

#include "dumps/diff.h"
#include "dumps/validity.h"
#include "tests/unit/dumps/synthetic_sweep.h"

static void make_how(struct sweep *a, struct sweep *b, int partial, struct ds_diff *d)
{
    static struct ds_source sa, sb; /* outlive the diff, as it asks */
    const struct ds_diff_options o = {.partial = partial};
    struct ds_error err;
    sa = sweep_source(a);
    sb = sweep_source(b);
    assert_ok(ds_diff_make(&sa, &sb, &o, d, &err), err);
}

static void make(struct sweep *a, struct sweep *b, struct ds_diff *d)
{
    make_how(a, b, 0, d);
}

/* Nothing differs, but one side has more: no answer, unless what both have will do. */
static void make_partial(struct sweep *a, struct sweep *b, const char *missing, struct ds_diff *d)
{
    make(a, b, d);
    assert_int_equal(d->verdict.result, DS_RESULT_INCOMPARABLE);
    assert_int_equal(ds_verdict_exit(&d->verdict), 2);
    assert_true(d->partial);
    assert_string_equal(d->missing_words, missing);
    assert_non_null(strstr(d->verdict.reason, missing));
    ds_diff_free(d);
    make_how(a, b, 1, d);
    assert_int_equal(d->verdict.result, DS_RESULT_SAME);
    assert_string_equal(d->missing_words, missing);
}

static void done(struct sweep *a, struct sweep *b, struct ds_diff *d)
{
    ds_diff_free(d);
    sweep_free(a);
    sweep_free(b);
}

static size_t count_items(const struct ds_diff *d, int kind)
{
    size_t n = 0;
    for (size_t i = 0; i < d->n_items; i++)
        n += d->items[i].kind == kind;
    return n;
}

/* name NULL: the first of that kind. */
static const struct ds_diff_item *item(const struct ds_diff *d, int kind, const char *name)
{
    for (size_t i = 0; i < d->n_items; i++)
        if (d->items[i].kind == kind && (!name || strcmp(d->items[i].name, name) == 0))
            return &d->items[i];
    return NULL;
}

static void assert_item(const struct ds_diff *d, int kind, const char *name, const char *a,
                        const char *b)
{
    const struct ds_diff_item *x = item(d, kind, name);
    if (!x)
        print_error("no item %s %s\n", ds_diff_kind_name(kind), name);
    assert_non_null(x);
    assert_int_equal(x->a != NULL, a != NULL);
    assert_int_equal(x->b != NULL, b != NULL);
    if (a)
        assert_string_equal(x->a, a);
    if (b)
        assert_string_equal(x->b, b);
}

/* arms: "1 1,2 1", comma between arms */
static void start(struct sweep *s, const char *factors, const char *arms)
{
    char *copy = sweep_text(arms), *save = NULL;
    sweep_init(s, factors, 1);
    for (char *arm = strtok_r(copy, ",", &save); arm; arm = strtok_r(NULL, ",", &save))
        sweep_arm(s, arm);
    free(copy);
}

static uint32_t from_two_rows(const struct cell *c)
{
    return c->phase == DS_PHASE_DECODE && strcmp(c->site->op, "matmul") == 0 && c->m >= 2;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

static void test_arms_are_paired_sensibly(void **state)
{
    (void)state;
    static const struct {
        const char *factors_a, *arms_a, *factors_b, *arms_b;
        size_t pairs, alone;
        const char *factor, *a, *b; /* named; NULL = none */
        uint32_t last_a, last_b;    /* the arms of the last pair */
    } cases[] = {
        {"batch", "1", "batch", "4", 1, 0, "batch", "1", "4", 0, 0},
        {"batch", "1,2", "batch", "4,8", 1, 2, "batch", "1,2", "4,8", 0, 0},
        {"batch", "1,2,4", "batch", "4,8", 1, 3, NULL, NULL, NULL, 2, 0},
        {"batch", "1", "batch", "4,1", 1, 1, NULL, NULL, NULL, 0, 1},
        {"batch threads", "1 1,1 2", "batch threads", "4 1,8 1,4 2", 2, 1, "batch", "1", "4,8", 1,
         2},
        {"batch threads", "1 1,1 2", "threads batch", "2 1,1 1", 2, 0, NULL, NULL, NULL, 1, 0},
        {"batch", "1,2", "batch threads", "1 2,2 2", 2, 0, NULL, NULL, NULL, 1, 1},
        /* values in common, but no two arms agree: the base arms */
        {"batch threads", "1 1,2 2", "batch threads", "1 2,2 1", 1, 2, "threads", "1", "2", 0, 0},
        {"dtype batch", "f32 1,bf16 1", "dtype batch", "bf16 1", 1, 1, NULL, NULL, NULL, 1, 0},
        {"process", "1,2,3", "process", "1,2,3", 3, 0, NULL, NULL, NULL, 2, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sweep a, b;
        struct ds_diff d;
        start(&a, cases[i].factors_a, cases[i].arms_a);
        start(&b, cases[i].factors_b, cases[i].arms_b);
        if (strncmp(cases[i].factors_b, "dtype", 5) == 0) /* a site says the base arm's format */
            for (size_t s = 0; s + 2 < b.header.n_sites; s++)
                strcpy(b.header.sites[s].dtype, "bf16");
        sweep_run(&a, 1);
        sweep_run(&b, 1);
        make(&a, &b, &d);
        print_message("case %zu: %s\n", i, d.verdict.reason);
        assert_int_equal(d.verdict.result,
                         cases[i].alone ? DS_RESULT_INCOMPARABLE : DS_RESULT_SAME);
        ds_diff_free(&d);
        make_how(&a, &b, 1, &d);
        assert_int_equal(d.verdict.result, DS_RESULT_SAME);
        assert_int_equal(d.missing[0].arms + d.missing[1].arms, cases[i].alone);
        assert_int_equal(d.pairs, cases[i].pairs);
        assert_int_equal(count_items(&d, DS_DIFF_ARM), cases[i].alone);
        assert_int_equal(count_items(&d, DS_DIFF_FACTOR), cases[i].factor != NULL);
        if (cases[i].factor)
            assert_item(&d, DS_DIFF_FACTOR, cases[i].factor, cases[i].a, cases[i].b);
        assert_int_equal(d.arm_of[2 * d.pairs - 2], cases[i].last_a);
        assert_int_equal(d.arm_of[2 * d.pairs - 1], cases[i].last_b);
        done(&a, &b, &d);
    }
}

static void test_other_formats_are_never_paired(void **state)
{
    (void)state;
    static const char *const arms[][2] = {{"f32", "bf16"}, {"f32,f16", "bf16"}};
    for (size_t i = 0; i < 2; i++) {
        struct sweep a, b;
        struct ds_diff d;
        start(&a, "dtype", arms[i][0]);
        start(&b, "dtype", arms[i][1]);
        sweep_run(&a, 1);
        sweep_run(&b, 1);
        make(&a, &b, &d);
        assert_int_equal(d.verdict.result, DS_RESULT_INCOMPARABLE);
        assert_non_null(strstr(d.verdict.reason, "other formats: f32"));
        assert_int_equal(ds_verdict_exit(&d.verdict), 2);
        done(&a, &b, &d);
    }
}

/* ---- parts of the work ----------------------------------------------------------------------- */

/* Batches, chunks and decode against prefill share every row key. */
static void test_other_calls_compare_by_row(void **state)
{
    (void)state;
    static const char *const settings[] = {"1 4 prefill", "4 0 prefill", "1 0 decode"};
    for (size_t i = 0; i < 3; i++) {
        struct sweep a, b;
        struct ds_diff d;
        start(&a, "batch chunk mode", "1 0 prefill");
        start(&b, "batch chunk mode", settings[i]);
        a.tag = b.tag = from_two_rows;
        sweep_run(&a, 1);
        sweep_run(&b, 1);
        make(&a, &b, &d);
        assert_int_equal(d.verdict.result, i == 1 ? DS_RESULT_DRIFT : DS_RESULT_SAME);
        assert_int_equal(count_items(&d, DS_DIFF_ROWS), 0);
        assert_int_equal(d.unpaired[0] + d.unpaired[1], 0);
        assert_int_equal(count_items(&d, DS_DIFF_FACTOR), 1);
        const struct ds_factor_verdict *v = &d.verdict.factors[d.verdict.n_factors - 1];
        assert_int_equal(v->phase[DS_VERDICT_ALL].compared, a.trials[0].n_digests);
        if (i == 1) { /* only decode calls have the rows that switch it */
            assert_int_equal(d.verdict.first.step, 1);
            assert_int_equal(d.verdict.first.rows_in_call, 4);
            assert_int_equal(d.verdict.first.ref_rows_in_call, 1);
        }
        done(&a, &b, &d);
    }
}

/* As if the run had ended after `steps` decode steps. */
static void cut_steps(struct sweep *s, int32_t steps)
{
    for (size_t t = 0; t < s->n_trials; t++) {
        struct ds_trial_data *d = &s->trials[t];
        size_t rows = 0, calls = 0, captures = 0, n = 0;
        while (rows < d->n_rows && d->rows[rows].step <= steps)
            rows++;
        while (calls < d->n_calls && d->calls[calls].first_row < rows)
            calls++;
        for (size_t i = 0; i < d->n_captures; i++)
            if (d->captures[i].call < calls)
                d->captures[captures++] = d->captures[i];
        for (size_t i = 0; i < d->n_steps; i++)
            if (d->steps[i].step <= steps)
                d->steps[n++] = d->steps[i];
        d->n_rows = rows;
        d->n_calls = calls;
        d->n_captures = captures;
        d->n_steps = n;
    }
}

static void test_fewer_steps_are_listed(void **state)
{
    (void)state;
    struct sweep a, b;
    struct ds_diff d;
    start(&a, "batch", "1");
    start(&b, "batch", "1");
    sweep_line(&a.header.options, &a.header.n_options, "steps", "3");
    sweep_line(&b.header.options, &b.header.n_options, "steps", "1");
    sweep_line(&b.header.options, &b.header.n_options, "rollback", "0"); /* A does not know it */
    sweep_line(&b.header.options, &b.header.n_options, "dump", "3");
    sweep_run(&a, 1);
    sweep_run(&b, 1);
    cut_steps(&b, 1);
    make_partial(&a, &b, "missing in B: 2 rows (from request 0, position 7)", &d);
    assert_int_equal(d.missing[0].rows, 2);
    assert_item(&d, DS_DIFF_ROWS, "request 0, positions 7 to 8", "recorded", NULL);
    assert_int_equal(count_items(&d, DS_DIFF_ROWS), 1);
    assert_int_equal(d.unpaired[0], 2 * a.header.n_sites);
    assert_int_equal(d.unpaired[1], 0);
    assert_item(&d, DS_DIFF_OPTION, "steps", "3", "1");
    assert_int_equal(count_items(&d, DS_DIFF_OPTION), 1);
    done(&a, &b, &d);
}

/* The token that the sweep feeds at a position. */
static int32_t fed_at(int32_t position)
{
    return position < SWEEP_PROMPT ? 10 + position : 100 + position - SWEEP_PROMPT;
}

/* Makes a finished sweep one of a prompt of `n` tokens, whose further tokens were forced one by one;
 * from position `other` on they are other tokens. */
static void shorten(struct sweep *s, int32_t n, int32_t other)
{
    struct ds_trial_data *t = &s->trials[0];
    s->header.prompts[0].n_tokens = (uint32_t)n;
    for (size_t i = 0; i < t->n_rows; i++) {
        struct ds_row *r = &t->rows[i];
        r->step = r->position < n ? 0 : r->position - n + 1;
        r->kind = r->step ? DS_ROW_GENERATED : DS_ROW_PROMPT;
        if (r->position >= other)
            for (size_t c = 0; c < t->n_captures; c++)
                if (i >= t->captures[c].first_row &&
                    i - t->captures[c].first_row < t->captures[c].rows)
                    t->digests[t->captures[c].first_digest + i - t->captures[c].first_row] ^= 1;
    }
    t->n_steps = 0;
    t->steps = realloc(t->steps, t->n_rows * sizeof *t->steps);
    for (int32_t p = n - 1; p < (int32_t)t->n_rows; p++)
        t->steps[t->n_steps++] = (struct ds_step){
            .step = p - n + 1, .token = 7, .forced = fed_at(p + 1) + (p + 1 >= other)};
}

static void test_a_prompt_that_is_the_beginning_of_the_other(void **state)
{
    (void)state;
    /* same tokens throughout; other ones right after the short prompt; and later */
    static const int32_t others[] = {100, 4, 7};
    for (size_t i = 0; i < 6; i++) {
        struct sweep a, b;
        struct ds_diff d;
        int32_t other = others[i / 2];
        int longer = i % 2;
        start(&a, "batch", "1");
        start(&b, "batch", "1");
        sweep_run(&a, 1);
        sweep_run(&b, 1);
        shorten(longer ? &a : &b, 4, other);
        make(&a, &b, &d);
        print_message("other from %d, shorter %s\n", other, longer ? "A" : "B");
        assert_int_equal(d.verdict.result, other < 100 ? DS_RESULT_INCOMPARABLE : DS_RESULT_SAME);
        assert_int_equal(d.parted, other < 100 ? SWEEP_PROMPT + SWEEP_STEPS - other : 0);
        assert_item(&d, DS_DIFF_PROMPT, "length", longer ? "its first 4 tokens" : "6 tokens",
                    longer ? "6 tokens" : "its first 4 tokens");
        const struct ds_factor_verdict *v = &d.verdict.factors[d.verdict.n_factors - 1];
        size_t late = 3, early = a.header.n_sites - late, compared = 0;
        for (int32_t p = 0; p < SWEEP_PROMPT + SWEEP_STEPS && p < other; p++)
            compared += early + (p >= SWEEP_PROMPT - 1 ? late : 0);
        assert_int_equal(v->phase[DS_VERDICT_ALL].compared, compared);
        assert_int_equal(d.verdict.n_notes, other < 100);
        /* choices are compared where the tokens before them are the same */
        int32_t steps = 0;
        for (int32_t p = SWEEP_PROMPT - 1; p < SWEEP_PROMPT + SWEEP_STEPS; p++)
            steps += p < other;
        assert_int_equal(d.verdict.tokens_compared, steps);
        done(&a, &b, &d);
    }
}

/* ---- beside the first drift ------------------------------------------------------------------ */

static void tile_128(const struct cell *c, struct ds_launch *l)
{
    sweep_default_launch(c, l);
    if (strcmp(c->site->op, "attention") == 0) {
        l->tile_k = 128;
        l->split = 4;
        l->threads = 2;
        strcpy(l->variant, "fused");
    }
}

static void tile_64(const struct cell *c, struct ds_launch *l)
{
    sweep_default_launch(c, l);
    if (strcmp(c->site->op, "attention") == 0)
        l->tile_k = 64;
}

/* What ran before: set as one process would have it, `first` trials of other arms before the first. */
static void set_history(struct sweep *s, uint32_t first, uint32_t calls)
{
    for (size_t i = 0; i < s->n_trials; i++) {
        s->trials[i].info.start_s = (double)i;
        s->trials[i].info.earlier_trials = first + (uint32_t)i;
        s->trials[i].info.earlier_calls = calls + 3 * (uint32_t)i;
    }
}

static void test_unlike_histories_are_told(void **state)
{
    (void)state;
    enum { NOTHING, LISTED, SUSPECT };
    static const struct {
        uint32_t repeats, first[2], calls[2];
        int bare; /* the first trial of A is followed by a pass without probes */
        int want;
    } cases[] = {
        {1, {0, 0}, {0, 0}, 0, NOTHING}, {1, {1, 0}, {3, 0}, 0, SUSPECT},
        {1, {0, 2}, {0, 6}, 0, SUSPECT}, {1, {2, 2}, {6, 6}, 0, NOTHING},
        {1, {2, 2}, {6, 9}, 0, LISTED},  /* as many trials, of other lengths */
        {3, {3, 0}, {9, 0}, 0, LISTED},  /* three repeats agree on each side */
        {3, {2, 0}, {6, 0}, 0, NOTHING}, /* A's first is as B's last */
        {2, {0, 0}, {0, 0}, 1, NOTHING},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sweep a, b;
        struct ds_diff d;
        start(&a, "batch", "2");
        start(&b, "batch", "2");
        sweep_run(&a, cases[i].repeats);
        sweep_run(&b, cases[i].repeats);
        set_history(&a, cases[i].first[0], cases[i].calls[0]);
        set_history(&b, cases[i].first[1], cases[i].calls[1]);
        if (cases[i].bare) {
            a.trials[1].info.pass = DS_PASS_BARE;
            b.trials[1].info.pass = DS_PASS_BARE;
            b.trials[1].info.repeat = a.trials[1].info.repeat = 0;
        }
        make(&a, &b, &d);
        const struct ds_validity *v = d.verdict.validity;
        int said = count_items(&d, DS_DIFF_HISTORY) ? LISTED : NOTHING;
        for (size_t k = 0; k < v->n_items; k++)
            if (v->items[k].kind == DS_VALIDITY_HISTORY) {
                assert_non_null(strstr(v->items[k].text, "no repeats show"));
                said = said == NOTHING ? SUSPECT : -1;
            }
        if (said != cases[i].want)
            fail_msg("case %zu: %d, want %d", i, said, cases[i].want);
        done(&a, &b, &d);
    }
}

static uint32_t by_tile(const struct cell *c)
{
    return cell_is(c, 0, "attn_out") && c->sweep->launch == tile_128;
}

static void test_launches_are_told_beside_the_first_drift(void **state)
{
    (void)state;
    struct sweep a, b;
    struct ds_diff d;
    start(&a, "batch", "1");
    start(&b, "batch", "1");
    a.launch = tile_64;
    b.launch = tile_128;
    a.tag = b.tag = by_tile;
    sweep_run(&a, 1);
    sweep_run(&b, 1);
    b.trials[0].info.threads_seen = 2;
    make(&a, &b, &d);
    assert_string_equal(d.verdict.first.stage, "attn_out");
    assert_item(&d, DS_DIFF_LAUNCH, "tile", "64", "128");
    assert_item(&d, DS_DIFF_LAUNCH, "split", "0", "4");
    assert_item(&d, DS_DIFF_LAUNCH, "threads", "1", "2");
    assert_item(&d, DS_DIFF_LAUNCH, "variant", "plain", "fused");
    assert_item(&d, DS_DIFF_LAUNCH, "threads seen", "1", "2");
    assert_int_equal(count_items(&d, DS_DIFF_LAUNCH), 5);
    done(&a, &b, &d);
}

/* On a busy machine fewer threads do all the work: no other launch. */
static void test_fewer_threads_at_work_are_no_other_launch(void **state)
{
    (void)state;
    static const struct {
        int32_t asked[2], seen[2];
        int told;
    } cases[] = {{{2, 2}, {1, 2}, 0}, {{4, 4}, {2, 7}, 0}, {{2, 2}, {3, 4}, 1},
                 {{2, 2}, {1, 4}, 1}, {{2, 2}, {4, 5}, 0}, {{1, 2}, {1, 2}, 0},
                 {{1, 2}, {1, 3}, 0}, {{1, 4}, {1, 2}, 1}, {{2, 2}, {-1, 2}, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sweep a, b, *side[2] = {&a, &b};
        struct ds_diff d;
        size_t told = 0;
        for (int k = 0; k < 2; k++) {
            start(side[k], "batch", "1");
            side[k]->launch = k ? tile_128 : tile_64;
            side[k]->tag = by_tile;
            sweep_run(side[k], 1);
            side[k]->trials[0].info.threads_asked = cases[i].asked[k];
            side[k]->trials[0].info.threads_seen = cases[i].seen[k];
        }
        make(&a, &b, &d);
        for (size_t k = 0; k < d.n_items; k++)
            told += strcmp(d.items[k].name, "threads seen") == 0;
        if (told != (size_t)cases[i].told)
            fail_msg("case %zu: told %zu times", i, told);
        done(&a, &b, &d);
    }
}

static uint32_t by_core(const struct cell *c)
{
    return strcmp(c->site->op, "matmul") == 0 && strcmp(c->sweep->blas_core, "SkylakeX") == 0;
}

static void test_the_core_is_told_beside_a_matmul(void **state)
{
    (void)state;
    struct sweep a, b;
    struct ds_diff d;
    start(&a, "batch", "1");
    start(&b, "batch", "1");
    a.blas_core = "Haswell";
    b.blas_core = "SkylakeX";
    a.tag = b.tag = by_core;
    sweep_run(&a, 1);
    sweep_run(&b, 1);
    strcpy(a.trials[0].info.blas_config, "OpenBLAS 0.3.21 Haswell");
    strcpy(b.trials[0].info.blas_config, "OpenBLAS 0.3.21 SkylakeX");
    make(&a, &b, &d);
    assert_item(&d, DS_DIFF_LAUNCH, "OpenBLAS core", "Haswell", "SkylakeX");
    done(&a, &b, &d);
}

/* Every site is in both headers, but B's run digested few of them. */
static void test_sites_never_digested_are_listed(void **state)
{
    (void)state;
    struct sweep a, b;
    struct ds_diff d;
    start(&a, "batch", "1,2");
    start(&b, "batch", "1,2");
    sweep_run(&a, 1);
    sweep_run(&b, 1);
    for (size_t t = 0; t < b.n_trials; t++) {
        struct ds_trial_data *x = &b.trials[t];
        size_t n = 0;
        for (size_t i = 0; i < x->n_captures; i++)
            if (strcmp(b.header.sites[x->captures[i].site].stage, "q_proj") != 0)
                x->captures[n++] = x->captures[i];
        x->n_captures = n;
    }
    make_partial(&a, &b, "missing in B: 1 site (layer 0 q_proj)", &d);
    assert_item(&d, DS_DIFF_SITE, "layer 0 q_proj", "recorded", NULL);
    assert_int_equal(count_items(&d, DS_DIFF_SITE), 1);
    assert_int_equal(d.unpaired[0], 2 * (SWEEP_PROMPT + SWEEP_STEPS));
    assert_int_equal(d.unpaired[1], 0);
    done(&a, &b, &d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arms_are_paired_sensibly),
        cmocka_unit_test(test_other_formats_are_never_paired),
        cmocka_unit_test(test_other_calls_compare_by_row),
        cmocka_unit_test(test_fewer_steps_are_listed),
        cmocka_unit_test(test_a_prompt_that_is_the_beginning_of_the_other),
        cmocka_unit_test(test_sites_never_digested_are_listed),
        cmocka_unit_test(test_unlike_histories_are_told),
        cmocka_unit_test(test_launches_are_told_beside_the_first_drift),
        cmocka_unit_test(test_fewer_threads_at_work_are_no_other_launch),
        cmocka_unit_test(test_the_core_is_told_beside_a_matmul),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
