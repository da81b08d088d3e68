/* test_view_overview.c: Overview on records made here: the matrix against the verdict's, words against report's, where
 * Enter leads. */
#include "tests/unit/tui/view_testing.h"

#include "dumps/validity.h"
#include "tui/view_overview.h"

enum { LAYERS = 1, SITE = 2, RUNS = 5, ENVIRONMENT = 6 };

static const struct overview_own *own(const struct shown *s)
{
    return s->view.own;
}

static void open_record(struct shown *s, const char *name, const char *name_b)
{
    shown_open(s, &tui_view_overview, test_path(name), name_b ? test_path(name_b) : NULL, 0, 0);
    s->c.columns = 80;
    s->c.ascii = 1;
    assert_int_equal(shown_load(s), TUI_READY);
}

/* Every line of the table, and the head. */
static const char *all_text(const struct shown *s)
{
    static struct ds_buf b;
    b.len = 0;
    for (int i = 0; i < s->view.n_head; i++)
        ds_buf_printf(&b, "%s\n", s->view.head[i]);
    for (size_t i = 0; i < s->view.table.source.n_rows; i++)
        ds_buf_printf(&b, "%s\n", shown_value(s, i, 0).text);
    return b.data ? b.data : "";
}

static void assert_says(const struct shown *s, const char *words)
{
    if (!strstr(all_text(s), words))
        fail_msg("it does not say '%s':\n%s", words, all_text(s));
}

static size_t row_of(const struct shown *s, const char *kernel)
{
    for (size_t i = 0; i < own(s)->n_lines; i++)
        if (own(s)->lines[i].kind == TUI_ROW && strstr(own(s)->lines[i].text, kernel))
            return i;
    fail_msg("no kernel %s\n%s", kernel, all_text(s));
    return 0;
}

static void stand_on(struct shown *s, const char *kernel, const char *factor)
{
    assert_int_equal(tui_table_go(&s->view.table, row_of(s, kernel), shown_column(s, factor)), 0);
}

/* ---- the matrix ---------------------------------------------------------------------------------- */

static const char *expected_cell(const struct ds_verdict *v, size_t k, size_t f)
{
    switch (v->kernels[k].condition[f]) {
    case DS_COND_SAME:
        return "same";
    case DS_COND_UNSTABLE:
        return "unstable";
    case DS_COND_UNKNOWN:
        return "?";
    case DS_COND_NOT_RUN:
        return "-";
    default:
        return NULL;
    }
}

static void check_matrix(struct shown *s)
{
    const struct ds_verdict *v = s->c.whole->verdict;
    const struct overview_own *o = own(s);
    size_t k = 0, n = 0;
    assert_non_null(v);
    for (size_t i = 0; i < o->n_lines; i++) {
        if (o->lines[i].kind != TUI_ROW)
            continue;
        for (uint32_t j = 0; j < o->lines[i].joined; j++, k++) {
            assert_true(k < v->n_kernels); /* in order of first use */
            assert_true(strstr(o->lines[i].text, v->kernels[k].op) ||
                        strchr(o->lines[i].text, '+'));
            assert_non_null(strstr(o->lines[i].text, v->kernels[k].variant));
            for (size_t c = 1; c < o->n_columns; c++, n++) {
                size_t f = o->factors[c - 1];
                struct tui_value cell = shown_value(s, i, c);
                const char *want = expected_cell(v, k, f);
                assert_string_equal(o->columns[c].name, v->factors[f].name);
                if (want)
                    assert_memory_equal(cell.text, want, strlen(want));
                else
                    assert_true(strchr(cell.text, '|') || strstr(cell.text, "drift from "));
                assert_int_equal(s->view.table.source.is(s->view.table.source.ctx, i, c),
                                 v->kernels[k].condition[f] == DS_COND_DRIFT ||
                                         v->kernels[k].condition[f] == DS_COND_UNSTABLE
                                     ? TUI_IS_DRIFT
                                     : 0);
            }
        }
    }
    assert_int_equal(k, v->n_kernels);
    assert_true(n > 0);
}

static void test_matrix(void **state)
{
    (void)state;
    static const char *const names[] = {"drift.h5", "same.h5", "flaky.h5"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct shown s;
        int next;
        open_record(&s, names[i], NULL);
        check_matrix(&s);
        size_t together = own(&s)->n_lines;
        assert_int_equal(shown_request(&s, TUI_FOLD, &next), 1);
        assert_int_equal(shown_load(&s), TUI_READY);
        check_matrix(&s);
        assert_true(own(&s)->n_lines > together);
        shown_close(&s);
    }
}

static void test_cells_of_a_drift(void **state)
{
    (void)state;
    struct shown s;
    open_record(&s, "drift.h5", NULL);
    assert_string_equal(shown_cell(&s, "matmul", "batch"), "1-2|4");
    assert_string_equal(shown_cell(&s, "matmul", "threads"), "1|2");
    assert_string_equal(shown_cell(&s, "rmsnorm", "batch"), "same");
    /* The cursor stands where the verdict's first drift is. */
    assert_int_equal(tui_table_row(&s.view.table), row_of(&s, "matmul"));
    assert_string_equal(s.view.table.source.columns[s.view.table.column].name, "batch");
    shown_close(&s);
}

/* More classes than a cell can list: where it begins. */
static uint32_t each_other(const struct cell *c)
{
    return cell_is(c, 0, "down") ? (uint32_t)cell_number(c, "batch", 1) / 20 : 0;
}

static void test_many_classes(void **state)
{
    (void)state;
    struct sweep w;
    struct shown s;
    sweep_init(&w, "batch", 2);
    for (int i = 0; i < 24; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d", i ? 10 * i : 1);
        sweep_arm(&w, text);
    }
    w.tag = each_other;
    w.no_sizes = 1;
    sweep_run(&w, 1);
    write_sweep(&w, test_path("classes.h5"), w.n_trials);
    sweep_free(&w);
    open_record(&s, "classes.h5", NULL);
    assert_string_equal(shown_cell(&s, "matmul", "batch"), "drift from 20");
    shown_close(&s);
}

/* ---- going --------------------------------------------------------------------------------------- */

static void test_enter_leads_to_the_layers(void **state)
{
    (void)state;
    struct shown s;
    int next;
    open_record(&s, "drift.h5", NULL);
    const struct ds_header *h = s.c.whole->header;
    stand_on(&s, "matmul", "threads");
    assert_int_equal(shown_request(&s, TUI_ENTER, &next), 2);
    assert_int_equal(next, LAYERS);
    assert_int_equal(s.place.arm, 3);
    assert_int_equal(s.place.ref, 0);
    assert_int_equal(s.place.site, site_of(h, 2, "down"));
    stand_on(&s, "matmul", "batch");
    assert_int_equal(shown_request(&s, TUI_ENTER, &next), 2);
    assert_int_equal(next, LAYERS);
    assert_int_equal(s.place.arm, 2);
    assert_int_equal(s.place.site, site_of(h, 1, "q_proj"));
    stand_on(&s, "rmsnorm", "batch");
    assert_int_equal(shown_request(&s, TUI_ENTER, &next), -1);
    assert_int_equal(s.place.arm, 2);
    shown_close(&s);
}

static void test_first_origin(void **state)
{
    (void)state;
    struct shown s;
    int next;
    open_record(&s, "drift.h5", NULL);
    get_pair(s.data, 2, 0);
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_int_equal(shown_request(&s, TUI_FIRST_ORIGIN, &next), 2);
    assert_int_equal(next, SITE);
    assert_int_equal(s.place.site, s.c.whole->verdict->first.site);
    const struct tui_pair *p = get_pair(s.data, s.place.arm, s.place.ref);
    assert_int_equal(p->labels[s.place.site * p->n_rows + s.place.row], DS_LABEL_ORIGIN);
    shown_close(&s);
    open_record(&s, "same.h5", NULL);
    assert_int_equal(shown_request(&s, TUI_FIRST_ORIGIN, &next), -1);
    shown_close(&s);
}

static void test_walk(void **state)
{
    (void)state;
    struct shown s;
    size_t n = 0;
    open_record(&s, "drift.h5", NULL);
    tui_table_end(&s.view.table, 0);
    for (; tui_table_jump(&s.view.table, TUI_IS_DRIFT, 1) == 0; n++)
        assert_true(n < 2);
    assert_int_equal(n, 2);
    shown_close(&s);
}

/* Each line about a place leads to it. */
static void test_lines_lead(void **state)
{
    (void)state;
    struct shown s;
    int next;
    open_record(&s, "drift.h5", NULL);
    const struct ds_verdict *v = s.c.whole->verdict;
    size_t line = shown_line(&s, "origins", "L");
    assert_int_not_equal(line, SIZE_MAX);
    for (size_t i = 0; i < v->n_origins; i++) {
        while (shown_value(&s, line, 0).text[0] == ' ') /* broken */
            line++;
        assert_int_equal(tui_table_go(&s.view.table, line++, 1), 0);
        assert_int_equal(shown_request(&s, TUI_ENTER, &next), 2);
        assert_int_equal(next, SITE);
        assert_int_equal(s.place.site, v->origins[i].site);
        assert_int_equal(s.place.arm, v->origins[i].arm);
        assert_int_equal(s.place.ref, v->origins[i].ref_arm);
    }
    line = shown_line(&s, "where drift begins", "also");
    assert_int_equal(tui_table_go(&s.view.table, line, 1), 0);
    assert_int_equal(shown_request(&s, TUI_ENTER, &next), 2);
    assert_int_equal(s.place.site, site_of(s.c.whole->header, 2, "down"));
    assert_int_equal(s.place.arm, 3);
    shown_close(&s);
    open_record(&s, "flaky.h5", NULL);
    line = shown_line(&s, "repeats", "unstable");
    assert_int_equal(tui_table_go(&s.view.table, line, 1), 0);
    assert_int_equal(shown_request(&s, TUI_ENTER, &next), 2);
    assert_int_equal(next, RUNS);
    shown_close(&s);
}

/* ---- words --------------------------------------------------------------------------------------- */

/* All words of a text, in order, wherever lines are broken. */
static void assert_words(const struct shown *s, const char *text)
{
    const char *in = all_text(s);
    while (*text) {
        char word[128];
        size_t n = strcspn(text, " \n");
        snprintf(word, sizeof word, "%.*s", (int)n, text);
        const char *at = strstr(in, word);
        if (!at)
            fail_msg("no '%s' in\n%s", word, all_text(s));
        in = at + strlen(word);
        text += n;
        text += strspn(text, " \n");
    }
}

static void test_sentence_first(void **state)
{
    (void)state;
    static const char *const names[] = {"drift.h5", "same.h5", "one.h5", "flaky.h5"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct shown s;
        struct ds_buf b = {0};
        open_record(&s, names[i], NULL);
        ds_report_sentence(&s.c.whole->report, &b);
        assert_words(&s, b.data);
        assert_int_equal(strncmp(s.view.head[0] + 1, b.data, 10), 0);
        ds_buf_free(&b);
        shown_close(&s);
    }
}

/* What text reports say is all here; only commands may be longer than the screen. */
static void test_paragraphs(void **state)
{
    (void)state;
    static const int parts[] = {DS_REPORT_FIRSTS, DS_REPORT_UNSTABLE, DS_REPORT_FACTORS,
                                DS_REPORT_GROWTH, DS_REPORT_TOKENS,   DS_REPORT_RECORD};
    static const char *const names[] = {"drift.h5", "same.h5", "one.h5", "flaky.h5"};
    for (size_t i = 0; i < 4; i++)
        for (int columns = 60; columns <= 200; columns += 35) {
            struct shown s;
            open_record(&s, names[i], NULL);
            s.c.columns = columns;
            assert_int_equal(shown_load(&s), TUI_READY);
            for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
                struct ds_buf b = {0};
                ds_report_paragraph(&s.c.whole->report, parts[k], &b);
                assert_words(&s, b.data ? b.data : "");
                ds_buf_free(&b);
            }
            for (size_t k = 0; k < own(&s)->n_lines; k++)
                if (own(&s)->lines[k].kind == TUI_ROW_TEXT && own(&s)->lines[k].role != TUI_KEY)
                    assert_true(strlen(own(&s)->lines[k].text) <= (size_t)columns - 3);
            shown_close(&s);
        }
}

static void test_one_trial(void **state)
{
    (void)state;
    struct sweep w;
    struct shown s;
    int next;
    sweep_init(&w, "batch", 2);
    sweep_arm(&w, "1");
    sweep_run(&w, 1);
    write_sweep(&w, test_path("single.h5"), w.n_trials);
    sweep_free(&w);
    open_record(&s, "single.h5", NULL);
    assert_says(&s, "recorded: one trial");
    for (size_t i = 0; i < own(&s)->n_lines; i++) /* nothing was compared */
        assert_int_not_equal(own(&s)->lines[i].kind, TUI_ROW);
    tui_table_end(&s.view.table, 0);
    assert_int_equal(shown_request(&s, TUI_ENTER, &next), 2);
    assert_int_equal(next, LAYERS);
    shown_close(&s);
}

/* What makes the answer doubtful stands before it. */
static void test_doubt_comes_first(void **state)
{
    (void)state;
    struct sweep w;
    struct shown s;
    fixture_plan(&w, two_faults);
    sweep_run(&w, 2);
    for (size_t i = 0; i < w.n_trials; i++) /* one buffer for all layers */
        for (size_t k = 0; k < w.trials[i].n_captures; k++) {
            struct ds_capture *x = &w.trials[i].captures[k];
            for (uint32_t r = 0; r < x->rows; r++)
                if (x->site == site_of(&w.header, 1, "attn_out"))
                    w.trials[i].digests[x->first_digest + r] = 42;
        }
    write_sweep(&w, test_path("doubt.h5"), w.n_trials);
    sweep_free(&w);
    open_record(&s, "doubt.h5", NULL);
    assert_non_null(s.c.whole->verdict->validity);
    assert_true(s.c.whole->verdict->validity->n_items > 0);
    assert_int_equal(
        strncmp(s.view.head[0] + 1, "suspect", 7) && strncmp(s.view.head[0] + 1, "invalid", 7), 0);
    assert_string_equal(shown_value(&s, 0, 0).text, "about the record itself");
    shown_close(&s);
}

static void test_two_records(void **state)
{
    (void)state;
    struct shown s;
    struct sweep w;
    int next;
    char command[512], want[512];
    open_record(&s, "same.h5", "drift.h5");
    check_matrix(&s);
    shown_command(&s, command);
    snprintf(want, sizeof want, "driftscope diff %s %s", test_path("same.h5"),
             test_path("drift.h5"));
    assert_string_equal(command, want);
    shown_close(&s);
    open_record(&s, "same.h5", NULL);
    shown_command(&s, command);
    snprintf(want, sizeof want, "driftscope show %s", test_path("same.h5"));
    assert_string_equal(command, want);
    shown_close(&s);
    /* Nothing to compare: why, and where to look. */
    sweep_init(&w, "batch threads", 4);
    for (size_t i = 0; i < w.header.n_sites; i++)
        w.header.sites[i].width =
            w.header.sites[i].width == SWEEP_WIDTH ? 64 : w.header.sites[i].width;
    w.header.n_heads = 1;
    sweep_arm(&w, "1 1");
    sweep_run(&w, 1);
    write_sweep(&w, test_path("other.h5"), w.n_trials);
    sweep_free(&w);
    open_record(&s, "same.h5", "other.h5");
    assert_says(&s, "incomparable");
    tui_table_end(&s.view.table, 0);
    assert_int_equal(shown_request(&s, TUI_ENTER, &next), 2);
    assert_int_equal(next, ENVIRONMENT);
    shown_close(&s);
}

static void test_panel(void **state)
{
    (void)state;
    struct shown s;
    struct ds_buf b = {0};
    open_record(&s, "drift.h5", NULL);
    stand_on(&s, "matmul", "batch");
    shown_panel(&s, 12, 60, &b);
    assert_non_null(strstr(b.data, "other bits on equal inputs: 1-2|4"));
    assert_non_null(strstr(b.data, "Enter  L01 q_proj, arm 2 batch 4 against 0"));
    ds_buf_free(&b);
    shown_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matrix),
        cmocka_unit_test(test_cells_of_a_drift),
        cmocka_unit_test(test_many_classes),
        cmocka_unit_test(test_enter_leads_to_the_layers),
        cmocka_unit_test(test_first_origin),
        cmocka_unit_test(test_walk),
        cmocka_unit_test(test_lines_lead),
        cmocka_unit_test(test_sentence_first),
        cmocka_unit_test(test_paragraphs),
        cmocka_unit_test(test_one_trial),
        cmocka_unit_test(test_doubt_comes_first),
        cmocka_unit_test(test_two_records),
        cmocka_unit_test(test_panel),
    };
    return cmocka_run_group_tests(tests, make_records, remove_folder);
}
