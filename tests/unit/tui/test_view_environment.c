/* Environment: of two records what differs before what is equal, the parts that differ marked; of one what it was made
 * with; and which parts of two texts are told as different. */
#include "tests/unit/tui/view_fixture.h"

#include "tui/view_environment.h"

enum { LAYERS = 1, SITE = 2 };

static void lines_of(struct sweep *s, const char *flags, const char *cpu)
{
    struct ds_header *h = &s->header;
    sweep_line(&h->environment, &h->n_environment, "cpu_flags", flags);
    sweep_line(&h->environment, &h->n_environment, "cpu_model", cpu);
    sweep_line(&h->environment, &h->n_environment, "libc", "2.36");
    sweep_line(&h->hparams, &h->n_hparams, "rope_base", "10000");
    sweep_line(&h->options, &h->n_options, "steps", "3");
    sweep_weight(s, "blk.0.ffn_up.weight", 0x1234);
}

static void test_one_record(void **state)
{
    struct shown s;
    struct ds_error err;
    struct sweep sweep;
    const char *path = test_path("one.h5");
    (void)state;
    fixture_plan(&sweep, two_faults);
    lines_of(&sweep, "sse avx", "EPYC \x1b[31m");
    free(sweep.header.prompts[0].text);
    sweep.header.prompts[0].text = sweep_text("two\nlines\tand \x07");
    sweep.blas_core = "Zen";
    sweep_run(&sweep, 2);
    write_sweep(&sweep, path, sweep.n_trials);
    shown_open(&s, &tui_view_environment, path, NULL, 80, 100);
    const char *lines[] = {
        " trials                 8 natural, 0 heal, 0 without probes, 0 lost; 0 incomplete, 0 "
        "damaged",
        " BLAS                   Zen",
        "-model ---------",
        " model                  synthetic",
        " architecture           llama",
        "-hyperparameters ------",
        " rope_base              10000",
        " cpu_model              EPYC \\x1b[31m",
        " steps                  3",
        " request 0              two\\nlines\\tand \\x07",
        " request 0 tokens       6: 10 11 12 13 14 15",
        " batch                  1, 2, 4",
        " arm 2                  batch 4; 2 trials",
        " blk.0.ffn_up.weight    q4_1 576x576 0000000000001234",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        tui_table_end(&s.view.table, i > 9);
        /* Columns are as wide as they are: of a row, the value is what is tested. */
        assert_line(&s, lines[i] + (lines[i][0] == ' ' ? 24 : 0));
    }
    shown_find(&s, "name=\"arm 2\"");
    assert_int_equal(shown_enter(&s, &err), LAYERS);
    assert_int_equal(s.place.arm, 2);
    shown_find(&s, "name=libc");
    assert_int_equal(shown_enter(&s, &err), -1);
    char want[200];
    snprintf(want, sizeof want, "driftscope show %s --environment", path);
    assert_command(&s, want);
    shown_close(&s);
    sweep_free(&sweep);
}

/* The role of each byte of a cell's text: 1 where it is marked as different. */
static void cell_of(struct shown *s, size_t row, size_t column, struct tui_value *v)
{
    memset(v, 0, sizeof *v);
    s->view.table.source.cell(s->view.table.source.ctx, row, column, v);
}

static void assert_marked(const struct tui_value *v, const char *const *parts, int n)
{
    assert_int_equal(v->n_spans, n);
    assert_int_equal(v->span_role, TUI_DIFFERS);
    for (int i = 0; i < n; i++) {
        char got[512];
        snprintf(got, sizeof got, "%.*s", v->span[i].end - v->span[i].begin,
                 v->text + v->span[i].begin);
        assert_string_equal(got, parts[i]);
    }
}

static void write_one(const char *path, const char *flags, const char *cpu, const char *extra,
                      uint64_t seed)
{
    struct sweep s;
    fixture_plan(&s, no_fault);
    lines_of(&s, flags, cpu);
    if (extra)
        sweep_line(&s.header.environment, &s.header.n_environment, extra, "1");
    s.seed = seed;
    sweep_run(&s, 1);
    write_sweep(&s, path, s.n_trials);
    sweep_free(&s);
}

static void test_two_records(void **state)
{
    struct shown s;
    struct tui_value v;
    const char *a = test_path("a.h5"), *b = test_path("b.h5");
    (void)state;
    write_one(a, "sse sse2 avx avx2 f16c", "EPYC 7763", NULL, 1);
    write_one(b, "sse sse2 avx f16c avx512f", "EPYC 9654", "OMP_NUM_THREADS", 1);
    shown_open(&s, &tui_view_environment, a, b, 60, 100);
    assert_line(&s, "-differs: environment ---");
    assert_line(&s, "-equal: environment ---");
    assert_line(&s, " libc  ");
    /* What differs, before anything that is equal. */
    const char *text = s.text.data;
    assert_true(strstr(text, "cpu_flags") < strstr(text, "-equal: model"));
    assert_true(strstr(text, " libc ") > strstr(text, "-equal: model"));
    shown_find(&s, "name=cpu_flags");
    size_t row = tui_table_row(&s.view.table);
    cell_of(&s, row, 1, &v);
    assert_marked(&v, (const char *const[]){"avx2"}, 1);
    cell_of(&s, row, 2, &v);
    assert_marked(&v, (const char *const[]){"avx512f"}, 1);
    shown_find(&s, "name=cpu_model");
    cell_of(&s, tui_table_row(&s.view.table), 1, &v);
    assert_marked(&v, (const char *const[]){"7763"}, 1);
    shown_find(&s, "name=omp");
    cell_of(&s, tui_table_row(&s.view.table), 1, &v);
    assert_true(v.null);
    assert_string_equal(v.text, "-");
    shown_find(&s, "name=libc");
    cell_of(&s, tui_table_row(&s.view.table), 2, &v);
    assert_string_equal(v.text, "=");
    assert_string_equal(v.full, "2.36"); /* what an export writes */
    const struct env_own *own = s.view.own;
    assert_int_equal(own->env.n_differ, s.context.whole->diff->n_items);
    /* The panel has both whole texts. */
    shown_find(&s, "name=cpu_flags");
    assert_line(&s, "A sse sse2 avx avx2 f16c\nB sse sse2 avx f16c avx512f");
    char want[300];
    snprintf(want, sizeof want, "driftscope diff %s %s --environment", a, b);
    assert_command(&s, want);
    shown_close(&s);
}

/* Records that are not compared: all that is unlike, by name. */
static void test_incomparable(void **state)
{
    struct shown s;
    struct sweep sweep;
    const char *a = test_path("x.h5"), *b = test_path("y.h5");
    (void)state;
    write_one(a, "sse", "EPYC", NULL, 1);
    fixture_plan(&sweep, no_fault);
    lines_of(&sweep, "sse", "Xeon");
    snprintf(sweep.header.model_arch, sizeof sweep.header.model_arch, "qwen3");
    sweep_run(&sweep, 1);
    write_sweep(&sweep, b, sweep.n_trials);
    sweep_free(&sweep);
    shown_open(&s, &tui_view_environment, a, b, 60, 100);
    assert_line(&s, ">incomparable: the models' architectures differ: llama in A, qwen3 in B");
    assert_line(&s, "-differs: model ---");
    assert_line(&s, "-differs: environment ---");
    assert_line(&s, "-equal: hyperparameters ---");
    const struct env_own *own = s.view.own;
    assert_int_equal(own->env.n_differ, 2);
    shown_close(&s);
}

/* Long texts: the difference is in sight, the panel shows more, the export all. */
static void test_long(void **state)
{
    enum { LENGTH = 3000 };
    struct shown s;
    struct tui_value v;
    struct ds_buf out = {0};
    char x[LENGTH + 8], y[LENGTH + 8];
    const char *a = test_path("l.h5"), *b = test_path("m.h5");
    (void)state;
    memset(x, 'x', LENGTH);
    strcpy(x + LENGTH, "end");
    memcpy(y, x, sizeof y);
    y[2000] = 'Y';
    write_one(a, "sse", x, NULL, 1);
    write_one(b, "sse", y, NULL, 1);
    shown_open(&s, &tui_view_environment, a, b, 40, 100);
    shown_find(&s, "name=cpu_model");
    cell_of(&s, tui_table_row(&s.view.table), 2, &v);
    assert_int_equal(v.n_spans, 1);
    assert_in_range(v.span[0].begin, 1, 40);
    assert_int_equal(v.text[v.span[0].begin], 'Y');
    assert_string_equal(v.full, y);
    tui_table_mark(&s.view.table, 0);
    tui_table_export(&s.view.table, TUI_TSV, &out);
    assert_non_null(strstr(out.data, x));
    assert_non_null(strstr(out.data, y));
    ds_buf_free(&out);
    shown_close(&s);
    shown_open(&s, &tui_view_environment, a, NULL, 40, 100);
    shown_find(&s, "end name=cpu_model"); /* beyond what a cell holds */
    shown_close(&s);
}

/* ---- what differs between two texts ---------------------------------------------------------- */

static void test_difference(void **state)
{
    static const struct {
        const char *a, *b, *marked; /* of a, in [] */
    } cases[] = {
        {"", "", ""},
        {"same", "same", "same"},
        {"", "x", ""},
        {"x", "", "[x]"},
        {"0.3.21", "0.3.26", "0.3.2[1]"},
        {"abc", "abXc", "abc"}, /* nothing of a is missing in b */
        {"sse avx fma", "sse fma", "sse [avx] fma"},
        {"a, b, c", "c, a", "a, [b], c"},
        {"a b", "b a", "[a b]"},                         /* the same words in another order */
        {"gr\xc3\xb6n", "gr\xc3\xa4n", "gr[\xc3\xb6]n"}, /* never half a character */
        {"aaaa", "aa", "aa[aa]"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct env_span span[8];
        struct ds_buf got = {0};
        size_t n = env_difference(cases[i].a, cases[i].b, span, 8), at = 0;
        ds_buf_puts(&got, "");
        for (size_t k = 0; k < n; k++) {
            ds_buf_add(&got, cases[i].a + at, span[k].begin - at);
            ds_buf_printf(&got, "[%.*s]", (int)(span[k].end - span[k].begin),
                          cases[i].a + span[k].begin);
            at = span[k].end;
        }
        ds_buf_puts(&got, cases[i].a + at);
        assert_string_equal(got.data ? got.data : "", cases[i].marked);
        ds_buf_free(&got);
    }
}

/* Any bytes: spans ascend, lie in the text, and equal texts have none. */
static void test_difference_random(void **state)
{
    uint64_t x = 7;
    (void)state;
    for (int i = 0; i < 100000; i++) {
        char text[2][24];
        for (int side = 0; side < 2; side++) {
            size_t n = (x = sweep_mix(x, 1)) % 23;
            for (size_t k = 0; k < n; k++)
                text[side][k] = "ab ,\xc3\xb6\xff"[(x = sweep_mix(x, 2)) % 7];
            text[side][n] = '\0';
        }
        size_t most = x % 4, at = 0;
        struct env_span span[4];
        size_t n = env_difference(text[0], text[1], span, most);
        assert_true(n <= most);
        if (strcmp(text[0], text[1]) == 0)
            assert_int_equal(n, 0);
        for (size_t k = 0; k < n; k++) {
            assert_true(span[k].begin >= at && span[k].begin < span[k].end);
            at = span[k].end;
        }
        assert_true(at <= strlen(text[0]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_record),   cmocka_unit_test(test_two_records),
        cmocka_unit_test(test_incomparable), cmocka_unit_test(test_long),
        cmocka_unit_test(test_difference),   cmocka_unit_test(test_difference_random),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
