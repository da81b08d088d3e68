/* test_report.c: the verdict in words: the answer comes last, hostile names are escaped, lines fit. */
#include "tests/unit/report/made.h"

#include <math.h>

static const char *last_line(struct ds_buf *b)
{
    assert_true(b->len > 1 && b->data[b->len - 1] == '\n');
    b->data[b->len - 1] = '\0';
    const char *nl = strrchr(b->data, '\n');
    return nl ? nl + 1 : b->data;
}

/* All lines but the last, which is a sentence and may wrap. */
static void assert_lines_fit(const char *text, size_t most)
{
    for (const char *p = text; *p;) {
        const char *nl = strchr(p, '\n');
        size_t n = nl ? (size_t)(nl - p) : strlen(p);
        if (!nl || !nl[1])
            return;
        if (n > most)
            print_error("%zu columns: %.*s\n", n, (int)n, p);
        assert_true(n <= most);
        p += n + (nl != NULL);
    }
}

/* The census says where. */
static void test_census_of_repeats(void **state)
{
    (void)state;
    struct sweep s;
    struct made m;
    make_usual(&s, &m, one_odd_run, 5);
    ds_report_runs(&m.r, &m.out);
    ds_buf_add(&m.out, "", 1);
    assert_non_null(strstr(m.out.data, "arm 0         5 trials, 2 different runs"));
    assert_non_null(
        strstr(m.out.data, "repeats 0 and 1 first differ at layer 0 q_proj, position 3"));
    assert_non_null(strstr(m.out.data, "4 of 5 trials agree there, 2 values"));
    ds_buf_free(&m.out);
    ds_report_verdict(&m.r, &m.out);
    ds_buf_add(&m.out, "", 1);
    assert_lines_fit(m.out.data, 100);
    assert_non_null(strstr(m.out.data, "and 6 more arms like it"));
    done(&m);
    sweep_free(&s);
}

/* Other experts come before another token; both are told, each with its own margin. */
static void test_experts_that_changed(void **state)
{
    (void)state;
    struct sweep s;
    struct made m;
    make_usual(&s, &m, openblas, 1);
    change_experts(&m.v);
    ds_report_verdict(&m.r, &m.out);
    ds_buf_add(&m.out, "", 1);
    assert_non_null(strstr(m.out.data,
                           "experts       first others at layer 1, position 11, step 2: "
                           "expert 4 instead of 6, margin 0.25 nats,\n"
                           "              expert 3 instead of 1 (batch 4)\n"));
    assert_lines_fit(m.out.data, 100);
    assert_non_null(strstr(m.out.data, "step 3: 60 instead of 50, margin 0.5 nats (batch 4)"));
    done(&m);
    sweep_free(&s);
}

/* The first drift is the earliest kernel, not the earliest step: a token that changed before it does not
 * look like one without a cause. */
static void test_a_token_before_the_first_drift(void **state)
{
    (void)state;
    for (int32_t step = 2; step < 5; step++) {
        struct sweep s;
        struct made m;
        make_usual(&s, &m, openblas, 1);
        change_experts(&m.v);
        assert_true(m.v.token_change.found && m.v.first.found && m.v.token_change.step == 3);
        m.v.first.step = step;
        m.v.expert_change.found = 0;
        ds_report_verdict(&m.r, &m.out);
        ds_buf_add(&m.out, "", 1);
        assert_int_equal(
            strstr(m.out.data, "which is before step 4, where the first drift begins") != NULL,
            step == 4);
        assert_lines_fit(m.out.data, 100);
        done(&m);
        sweep_free(&s);
    }
}

static void test_text_ends_with_the_answer(void **state)
{
    (void)state;
    struct sweep s;
    struct made m;
    make_usual(&s, &m, openblas, 3);
    ds_report_verdict(&m.r, &m.out);
    assert_lines_fit(m.out.data, 100);
    assert_non_null(strstr(m.out.data, "matmul/openblas       same    1|2-3|4|8"));
    assert_non_null(strstr(m.out.data, "rmsnorm/rows          same    same"));
    assert_non_null(strstr(m.out.data, "gives other bits from M = 4, 8 rows in the call"));
    assert_non_null(strstr(
        m.out.data, "\nnext          driftscope show 'my record.h5' --site 0,q_proj --arm 1\n"
                    "              driftscope tui 'my record.h5'\ndrift: "));
    assert_null(strstr(m.out.data, "invariant"));
    assert_null(strchr(m.out.data, '\033'));
    assert_string_equal(
        last_line(&m.out),
        "drift: first at layer 0 q_proj, matmul/openblas, batch 2 (prefill, 12 rows in the call): "
        "rounding-order; stable over 3 repeats");
    done(&m);
    sweep_free(&s);
}

/* What stands where the reference has zeros is infinitely large beside them: no number that helps. */
static void test_values_instead_of_zeros(void **state)
{
    (void)state;
    struct sweep s;
    struct made m;
    struct ds_growth growth = {.layer = 3, .relative_rms = (double)INFINITY};
    make_usual(&s, &m, openblas, 2);
    assert_true(m.v.n_origins > 0);
    m.v.origins[0].sized = 1;
    m.v.origins[0].relative_rms = (double)INFINITY;
    struct ds_growth *const own = m.v.growth;
    const size_t n_own = m.v.n_growth;
    m.v.growth = &growth;
    m.v.n_growth = 1;
    ds_report_verdict(&m.r, &m.out);
    assert_non_null(strstr(m.out.data, "adds values instead of zeros ("));
    assert_non_null(strstr(m.out.data, "growth        L3 values instead of zeros"));
    assert_null(strstr(m.out.data, " inf"));
    m.v.growth = own;
    m.v.n_growth = n_own;
    done(&m);
    sweep_free(&s);
}

static uint32_t racy(const struct cell *c)
{
    return cell_is(c, 1, "attn_out")
               ? 1 + (uint32_t)(sweep_mix(c->repeat + 3 + c->arm * 10, (uint64_t)c->position) % 4)
               : 0;
}

static void test_sentences(void **state)
{
    (void)state;
    static const struct {
        uint32_t (*tag)(const struct cell *c);
        uint32_t repeats, arms;
        const char *want;
    } cases[] = {
        {NULL, 0, 0, "incomparable: the record holds no complete trial"},
        {NULL, 1, 1, "recorded: one trial, 20 sites, 9 rows; nothing to compare it with yet"},
        {NULL, 2, 7, "same: no difference over "},
        {openblas, 1, 7, "rounding-order; not repeated"},
        {racy, 3, 7, "drift: unstable, first at layer 1 attn_out, attention/plain (prefill): "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sweep s;
        struct made m;
        usual(&s);
        s.tag = cases[i].tag;
        for (uint32_t arm = 0; arm < cases[i].arms; arm++)
            for (uint32_t k = 0; k < cases[i].repeats; k++)
                sweep_trial(&s, arm, k);
        for (size_t t = 0; t < s.n_trials; t++)
            sweep_sizes(&s, &s.trials[t], 0);
        make(&s, &m);
        ds_report_verdict(&m.r, &m.out);
        assert_lines_fit(m.out.data, 110);
        const char *line = last_line(&m.out);
        if (!strstr(line, cases[i].want))
            print_error("case %zu: %s\n", i, line);
        assert_non_null(strstr(line, cases[i].want));
        done(&m);
        sweep_free(&s);
    }
}

static void test_hostile_names_are_escaped(void **state)
{
    (void)state;
    struct sweep s;
    struct made m;
    usual(&s);
    s.tag = openblas;
    strcpy(s.header.model_name, "m\033[2J\xff");
    strcpy(s.header.sites[2].stage, "q\033]0;x\007");
    free(s.header.arms[3].values[0]);
    s.header.arms[3].values[0] = sweep_text("4\n\033[31m\xc3");
    free(s.header.factors[0]);
    s.header.factors[0] = sweep_text("batch\033");
    sweep_run(&s, 2);
    make(&s, &m);
    ds_report_verdict(&m.r, &m.out);
    for (size_t i = 0; i < m.out.len; i++)
        assert_true((unsigned char)m.out.data[i] >= 0x20 || m.out.data[i] == '\n');
    done(&m);
    sweep_free(&s);
}

static void test_many_factors_wrap(void **state)
{
    (void)state;
    struct sweep s;
    struct made m;
    sweep_init(
        &s, "batch slot neighbours padding threads chunk mode kernels blas-core dtype process", 1);
    static const char *const arms[] = {
        "1 first copies 0 1 0 prefill vendor Haswell f32 1",
        "4 first copies 0 1 0 prefill vendor Haswell f32 1",
        "4 last copies 0 1 0 prefill vendor Haswell f32 1",
        "4 first varied 0 1 0 prefill vendor Haswell f32 1",
        "4 first copies 4 1 0 prefill vendor Haswell f32 1",
        "1 first copies 0 2 0 prefill vendor Haswell f32 1",
        "1 first copies 0 1 4 prefill vendor Haswell f32 1",
        "1 first copies 0 1 0 decode vendor Haswell f32 1",
        "1 first copies 0 1 0 prefill vendor+attention=pinned+matmul=reference Haswell f32 1",
        "1 first copies 0 1 0 prefill vendor SkylakeX f32 1",
        "1 first copies 0 1 0 prefill vendor Haswell f32 3"};
    for (size_t i = 0; i < sizeof arms / sizeof *arms; i++)
        sweep_arm(&s, arms[i]);
    s.tag = openblas;
    sweep_run(&s, 2);
    make(&s, &m);
    ds_report_verdict(&m.r, &m.out);
    assert_lines_fit(m.out.data, 100);
    const char *first = strstr(m.out.data, "kernel  "),
               *second = first ? strstr(first + 1, "\nkernel  ") : NULL;
    assert_non_null(second);
    assert_non_null(strstr(m.out.data, "process"));
    done(&m);
    sweep_free(&s);
}

static void test_grid(void **state)
{
    (void)state;
    struct sweep s;
    struct made m;
    struct ds_error err;
    usual(&s);
    s.tag = racy;
    sweep_run(&s, 2);
    s.tag = NULL;
    make(&s, &m);
    uint8_t *labels, bad[20] = {0};
    bad[7] = 1;
    assert_ok(ds_analysis_labels(m.a, 1, 0, &labels, &err), err);
    ds_report_grid(&m.r, m.a, labels, bad, &m.out);
    assert_string_equal(
        m.out.data,
        "      . embed\n"
        "layer norm q k ck attn add down add \n"
        "L00   .    . . .  .    .   !    .   \n"
        "L01   .    . . .  ~    ~   ~    ~   \n"
        "      ~ final_norm\n      ~ logits\n      . token\n"
        ". same  # origin  o origin when healed  - inherited  x drift, inputs not known\n"
        "~ unstable  ! non-finite  ? not compared\n");
    free(labels);
    done(&m);
    sweep_free(&s);
}

/* ---- one site -------------------------------------------------------------------------------- */

static int values_blob(void *ctx, int side, uint64_t digest, struct ds_blob *out,
                       struct ds_error *err)
{
    (void)digest;
    (void)err;
    if (!*(int *)ctx)
        return 0;
    static const uint32_t bits[2][4] = {{0x3f800000u, 0x80000000u, 0x7fc00000u, 0x40490fdbu},
                                        {0x3f800001u, 0u, 0x7fc00001u, 0x40490fdbu}};
    *out = (struct ds_blob){.dtype = "f32", .elements = 4, .bytes = 16, .data = malloc(16)};
    memcpy(out->data, bits[side], 16);
    return 1;
}

static void test_site_shows_rows_and_values(void **state)
{
    (void)state;
    struct sweep s;
    struct made m;
    struct ds_error err;
    int dumped = 1;
    uint32_t site;
    make_usual(&s, &m, openblas, 1);
    struct ds_report_view w = {
        .r = &m.r, .a = m.a, .s = &m.src, .arm = 3, .ref = 0, .blob = values_blob, .ctx = &dumped};
    assert_ok(ds_report_find_site(&s.header, "--site", "0,q_proj", &site, &err), err);
    assert_int_equal(site, 2);
    assert_ok(ds_report_site(&w, site, &m.out, &err), err);
    assert_lines_fit(m.out.data, 110);
    assert_non_null(
        strstr(m.out.data, "arm 3 (batch 4, slot first, threads 1) against arm 0: batch 1"));
    assert_non_null(strstr(m.out.data, "1          0x1p+0 3f800000"));
    assert_non_null(strstr(m.out.data, "0x1.000002p+0 3f800001  1\n"));
    assert_non_null(strstr(m.out.data, "-0         -0x0p+0 80000000"));
    assert_non_null(strstr(m.out.data, "7fc00001  NaN\n"));
    assert_null(strstr(m.out.data, "40490fdb")); /* equal elements are not listed */
    assert_non_null(strstr(m.out.data, "origin"));
    ds_buf_free(&m.out);
    dumped = 0;
    assert_ok(ds_report_site(&w, site, &m.out, &err), err);
    assert_non_null(strstr(m.out.data, "values not dumped on either side"));
    done(&m);
    sweep_free(&s);
}

static void test_sites_are_named_forgivingly(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_error err;
    uint32_t site;
    usual(&s);
    assert_ok(ds_report_find_site(&s.header, "--site", "1,kv_write/k", &site, &err), err);
    assert_int_equal(site, 12);
    assert_ok(ds_report_find_site(&s.header, "--site", "logits", &site, &err), err);
    assert_int_equal(site, 18);
    assert_ok(ds_report_find_site(&s.header, "--site", "-1,embed", &site, &err), err);
    assert_int_equal(site, 0);
    assert_int_equal(ds_report_find_site(&s.header, "--site", "0,q_prj", &site, &err), -1);
    assert_non_null(strstr(err.hint, "q_proj"));
    assert_int_equal(ds_report_find_site(&s.header, "--site", "9,q_proj", &site, &err), -1);
    assert_int_equal(ds_report_find_site(&s.header, "--site", "", &site, &err), -1);
    assert_int_equal(ds_report_find_site(&s.header, "--site", "0,", &site, &err), -1);
    sweep_free(&s);
}

static void test_text_is_whole_or_an_error(void **state)
{
    (void)state;
    struct sweep s;
    struct made m;
    make_usual(&s, &m, openblas, 3);
    ds_report_verdict(&m.r, &m.out);
    assert_false(m.out.failed);
    for (long n = 1; n < 400; n++) {
        struct ds_buf part = {0};
        ds_mem_fail_at(n);
        ds_report_verdict(&m.r, &part);
        ds_mem_fail_at(0);
        if (!part.failed && strcmp(part.data, m.out.data) != 0)
            print_error("allocation %ld of the text failed unseen\n", n);
        assert_true(part.failed || strcmp(part.data, m.out.data) == 0);
        ds_buf_free(&part);
    }
    done(&m);
    sweep_free(&s);
}

static void test_sentence_says_what_was_left_out(void **state)
{
    (void)state;
    struct sweep s;
    struct made m;
    usual(&s);
    make(&s, &m);
    m.r.damaged = 2;
    m.r.incomplete = 9;
    ds_report_sentence(&m.r, &m.out);
    assert_non_null(strstr(m.out.data, "; 2 damaged trials left out; 9 cut short"));
    done(&m);
    sweep_free(&s);
}

/* What damaged trials had may have differed: where the rest agrees that is no pass, and a drift stays one. */
static void test_damaged_trials_are_no_pass(void **state)
{
    (void)state;
    static const struct {
        int result, damaged, becomes, judged;
    } cases[] = {
        {DS_RESULT_SAME, 2, DS_RESULT_INCOMPARABLE, 1},
        {DS_RESULT_RECORDED, 1, DS_RESULT_INCOMPARABLE, 1},
        {DS_RESULT_DRIFT, 2, DS_RESULT_DRIFT, 0},
        {DS_RESULT_SAME, 0, DS_RESULT_SAME, 0},
        {DS_RESULT_RECORDED, 0, DS_RESULT_RECORDED, 0},
    };
    struct sweep s;
    struct made m;
    usual(&s);
    make(&s, &m);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        m.v.result = cases[i].result;
        m.v.reason[0] = '\0';
        m.r.damaged = (size_t)cases[i].damaged;
        assert_int_equal(ds_report_damage_judge(&m.r, &m.v), cases[i].judged);
        assert_int_equal((int)m.v.result, cases[i].becomes);
        assert_int_equal(m.v.reason[0] != '\0', cases[i].judged);
    }
    m.v.result = DS_RESULT_SAME;
    m.r.damaged = 2;
    ds_report_damage_judge(&m.r, &m.v);
    ds_buf_free(&m.out);
    ds_report_sentence(&m.r, &m.out);
    ds_buf_add(&m.out, "", 1);
    assert_string_equal(m.out.data,
                        "incomparable: nothing differs in what is left of a damaged record; "
                        "2 damaged trials left out");
    done(&m);
    sweep_free(&s);
}

/* What was dumped and not read belongs to the answer, on whichever side. */
static void test_sentence_says_what_was_not_read(void **state)
{
    (void)state;
    struct sweep s;
    struct made m;
    make_usual(&s, &m, openblas, 1);
    struct ds_damage_side sides[2] = {{.unread_rows = 7, .unread_bytes = 300000000}, {0}};
    m.r.damage = sides;
    ds_report_sentence(&m.r, &m.out);
    assert_non_null(strstr(m.out.data, "; 7 dumped rows (300 MB) were not held against their "
                                       "digests: --verify does that"));
    ds_buf_free(&m.out);
    sides[1] = sides[0];
    ds_report_sentence(&m.r, &m.out);
    assert_non_null(strstr(m.out.data, "; 14 dumped rows (600 MB) were not held"));
    ds_buf_free(&m.out);
    sides[0].unread_rows = sides[1].unread_rows = 0;
    ds_report_sentence(&m.r, &m.out);
    assert_null(strstr(m.out.data, "dumped rows"));
    done(&m);
    sweep_free(&s);
}

static void test_classes_in_short(void **state)
{
    (void)state;
    const char *values[] = {"1", "2", "3", "4", "8", "x"};
    struct ds_factor_verdict f = {.name = "batch", .values = values, .n_values = 6};
    static const struct {
        uint32_t class_of[6];
        const char *want;
    } cases[] = {
        {{0, 0, 0, 1, 1, DS_NO_CLASS}, "1-3|4-8"},
        {{0, 1, 0, 1, 0, 0}, "1,3,8-x|2,4"},
        {{DS_NO_CLASS, DS_NO_CLASS, DS_NO_CLASS, DS_NO_CLASS, DS_NO_CLASS, DS_NO_CLASS}, ""},
        {{0, 1, 2, 3, 4, 5}, "6 classes"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ds_buf b = {0};
        ds_report_classes(&f, cases[i].class_of, i == 3 ? 9 : 18, &b);
        assert_string_equal(b.data ? b.data : "", cases[i].want);
        ds_buf_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_census_of_repeats),
        cmocka_unit_test(test_experts_that_changed),
        cmocka_unit_test(test_a_token_before_the_first_drift),
        cmocka_unit_test(test_text_ends_with_the_answer),
        cmocka_unit_test(test_values_instead_of_zeros),
        cmocka_unit_test(test_sentences),
        cmocka_unit_test(test_hostile_names_are_escaped),
        cmocka_unit_test(test_many_factors_wrap),
        cmocka_unit_test(test_grid),
        cmocka_unit_test(test_site_shows_rows_and_values),
        cmocka_unit_test(test_sites_are_named_forgivingly),
        cmocka_unit_test(test_text_is_whole_or_an_error),
        cmocka_unit_test(test_sentence_says_what_was_left_out),
        cmocka_unit_test(test_damaged_trials_are_no_pass),
        cmocka_unit_test(test_sentence_says_what_was_not_read),
        cmocka_unit_test(test_classes_in_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
