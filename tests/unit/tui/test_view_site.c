/* test_view_site.c: the view Site on records made here, held against what the record was made of.
 * */
#include "tests/unit/tui/view_testing.h"

#include "tui/view_site.h"

static struct sweep sweep;
static uint32_t q_proj, logits;

static void launch(const struct cell *c, struct ds_launch *l)
{
    sweep_default_launch(c, l);
    l->rows = (int32_t)c->m;
    l->split = cell_number(c, "batch", 1) == 4 ? 2 : 1;
}

/* q_proj of layer 1 has its bytes at two positions: 0 on both sides, 1 on the reference's only. */
static void make_record(const char *name)
{
    static const float mine[4] = {1, 2, 3, 4}, ref[4] = {1, 2, -0.0f, 4}, other[4] = {9, 9, 9, 9};
    fixture_plan(&sweep, two_faults);
    sweep.launch = launch;
    sweep_run(&sweep, 2);
    q_proj = site_of(&sweep.header, 1, "q_proj");
    logits = site_of(&sweep.header, 4, "logits");
    for (size_t i = 0; i < sweep.n_trials; i++) {
        struct ds_trial_data *t = &sweep.trials[i];
        int drifts = t->info.arm == 2;
        put_values(t, q_proj, 0, "f32", drifts ? mine : ref, 4, 1);
        put_values(t, q_proj, 1, "f32", drifts ? other : ref, 4, !drifts);
    }
    write_sweep(&sweep, test_path(name), sweep.n_trials);
}

static int make(void **state)
{
    if (make_folder(state) != 0)
        return -1;
    make_record("one.h5");
    return 0;
}

static int clean(void **state)
{
    sweep_free(&sweep);
    return remove_folder(state);
}

static void test_rows_and_arms(void **state)
{
    (void)state;
    struct shown s;
    shown_open(&s, &tui_view_site, test_path("one.h5"), NULL, 2, 0);
    s.place.site = q_proj;
    assert_int_equal(shown_load(&s), TUI_READY);
    /* What drifts, with the sizes that the probe gave, and the rest. */
    assert_string_equal(shown_cell(&s, "0:2", "label"), "origin");
    assert_string_equal(shown_cell(&s, "0:2", "kind"), "prompt");
    char ulp[16];
    snprintf(ulp, sizeof ulp, "%u", 3 + q_proj);
    assert_string_equal(shown_cell(&s, "0:2", "ULP"), ulp);
    assert_string_equal(shown_cell(&s, "0:2", "abs"), "1e-06");
    assert_string_equal(shown_cell(&s, "0:2", "elements"), "288");
    assert_string_equal(shown_cell(&s, "0:2", "rel"), "3e-07");
    assert_string_equal(shown_cell(&s, "0:6", "label"), "same");
    assert_string_equal(shown_cell(&s, "0:6", "kind"), "generated");
    assert_string_equal(shown_cell(&s, "0:6", "step"), "1");
    assert_string_equal(shown_cell(&s, "0:6", "ULP"), "=");
    /* From its dumped values; without them not known, which is not zero. */
    assert_string_equal(shown_cell(&s, "0:0", "elements"), "1");
    assert_string_equal(shown_cell(&s, "0:0", "abs"), "3");
    assert_string_equal(shown_cell(&s, "0:1", "label"), "origin");
    assert_string_equal(shown_cell(&s, "0:1", "ULP"), "?");
    /* Settings that share bits have one letter. */
    assert_string_equal(shown_cell(&s, "0:2", "<base arm"), "a");
    assert_string_equal(shown_cell(&s, "0:2", "batch 2"), "a");
    assert_string_equal(shown_cell(&s, "0:2", ">batch 4"), "b");
    assert_string_equal(shown_cell(&s, "0:2", "threads 2"), "a");
    assert_string_equal(shown_cell(&s, "0:6", ">batch 4"), "a");
    assert_int_equal(shown_is(&s, shown_line(&s, "row", "0:2")) & ~TUI_IS_JUMP,
                     TUI_IS_DRIFT | TUI_IS_ORIGIN);
    assert_int_equal(shown_is(&s, shown_line(&s, "row", "0:6")), 0);
    assert_true(strncmp(s.view.head[0], "origin; ", 8) == 0);
    assert_non_null(strstr(s.view.head[1], "6 rows"));
    shown_close(&s);
}

static void test_sections(void **state)
{
    (void)state;
    struct shown s;
    shown_open(&s, &tui_view_site, test_path("one.h5"), NULL, 2, 0);
    s.place.site = q_proj;
    assert_int_equal(shown_load(&s), TUI_READY);
    size_t rows = shown_line(&s, "launch", "rows"), split = shown_line(&s, "launch", "split"),
           variant = shown_line(&s, "launch", "variant"),
           tree = shown_line(&s, "launch", "its tree");
    /* Both sides, and what differs is told without a colour. */
    assert_non_null(strstr(shown_value(&s, rows, 0).text, "6        != 24"));
    assert_int_equal(shown_value(&s, rows, 0).n_spans, 2);
    assert_non_null(strstr(shown_value(&s, split, 0).text, "!= 2"));
    assert_non_null(strstr(shown_value(&s, variant, 0).text, " = openblas"));
    assert_int_equal(shown_value(&s, variant, 0).n_spans, 0);
    assert_non_null(strstr(shown_value(&s, tree, 0).text,
                           "driftscope order matmul/openblas --shape n=576,k=576 --rows 24,6"));
    /* Inputs with their labels. */
    size_t input = shown_line(&s, "input", "L01 attn_norm");
    assert_true(input != SIZE_MAX);
    assert_string_equal(shown_value(&s, input, shown_column(&s, "label")).text, "same");
    assert_string_equal(shown_value(&s, input, shown_column(&s, "kind")).text, "same row");
    /* Positions with sizes: that of 0 from its values, 1 has none. */
    size_t two = shown_line(&s, "position", "2");
    assert_true(two != SIZE_MAX);
    assert_string_equal(shown_value(&s, two, shown_column(&s, "elements")).text, "288");
    shown_close(&s);
}

static void test_going_on_from_a_line(void **state)
{
    (void)state;
    struct shown s;
    int next;
    shown_open(&s, &tui_view_site, test_path("one.h5"), NULL, 2, 0);
    s.place.site = q_proj;
    assert_int_equal(shown_load(&s), TUI_READY);
    /* A row: its first differing element. */
    tui_table_go(&s.view.table, shown_line(&s, "row", "0:0"), 0);
    tui_view_site.moved(&s.view, &s.c);
    assert_int_equal(shown_request(&s, TUI_ENTER, &next), 2);
    assert_int_equal(next, 3);
    assert_int_equal(s.place.row, 0);
    assert_int_equal(s.place.element, 2);
    /* A position: its row. */
    tui_table_go(&s.view.table, shown_line(&s, "position", "3"), 0);
    assert_int_equal(shown_request(&s, TUI_ENTER, &next), 2);
    assert_int_equal(s.place.row, 3);
    /* The next row, to the end and no further. */
    assert_int_equal(shown_request(&s, TUI_NEXT_ROW, &next), 1);
    assert_int_equal(s.place.row, 4);
    for (int i = 0; i < 20; i++)
        shown_request(&s, TUI_NEXT_ROW, &next);
    assert_int_equal(s.place.row, SWEEP_PROMPT + SWEEP_STEPS - 1);
    assert_int_equal(shown_request(&s, TUI_NEXT_ROW, &next), -1);
    /* An input: its site. */
    tui_table_go(&s.view.table, shown_line(&s, "input", "L01 attn_norm"), 0);
    assert_int_equal(shown_request(&s, TUI_ENTER, &next), 2);
    assert_int_equal(next, 2);
    assert_int_equal(s.place.site, site_of(&sweep.header, 1, "attn_norm"));
    assert_int_equal(shown_load(&s), TUI_READY);
    /* The same stage of other layers. */
    assert_int_equal(shown_request(&s, TUI_NEXT_LAYER, &next), 1);
    assert_int_equal(s.place.site, site_of(&sweep.header, 2, "attn_norm"));
    assert_int_equal(shown_request(&s, TUI_PREVIOUS_LAYER, &next), 1);
    assert_int_equal(shown_request(&s, TUI_PREVIOUS_LAYER, &next), 1);
    assert_int_equal(s.place.site, site_of(&sweep.header, 0, "attn_norm"));
    assert_int_equal(shown_request(&s, TUI_PREVIOUS_LAYER, &next), -1);
    shown_close(&s);
}

static void test_folding(void **state)
{
    (void)state;
    struct shown s;
    int next;
    shown_open(&s, &tui_view_site, test_path("one.h5"), NULL, 2, 0);
    s.place.site = q_proj;
    assert_int_equal(shown_load(&s), TUI_READY);
    size_t lines = s.view.table.source.n_rows, rows = SWEEP_PROMPT + SWEEP_STEPS;
    tui_table_go(&s.view.table, shown_line(&s, "row", "0:3"), 0);
    tui_table_mark(&s.view.table, 0);
    s.place.metric = TUI_METRIC_ABS; /* the same lines in another metric stay marked */
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_int_equal(tui_table_marks(&s.view.table), 1);
    assert_int_equal(shown_request(&s, TUI_FOLD, &next), 1);
    assert_int_equal(tui_table_marks(&s.view.table), 0);
    assert_int_equal(s.view.table.source.n_rows, lines - rows + 1);
    assert_int_equal(shown_line(&s, "row", "0:3"), SIZE_MAX);
    /* On the line that stands for them, Enter and the same key bring them back. */
    assert_int_equal(shown_request(&s, TUI_ENTER, &next), 1);
    assert_int_equal(s.view.table.source.n_rows, lines);
    assert_true(shown_line(&s, "row", "0:3") != SIZE_MAX);
    shown_close(&s);
}

static void test_commands(void **state)
{
    (void)state;
    struct shown s;
    char text[512], want[512];
    shown_open(&s, &tui_view_site, test_path("one.h5"), NULL, 2, 0);
    s.place.site = site_of(&sweep.header, 1, "kv_write");
    assert_int_equal(shown_load(&s), TUI_READY);
    shown_command(&s, text);
    snprintf(want, sizeof want, "driftscope show %s --site 1,kv_write/k --long --arm 2 --against 0",
             test_path("one.h5"));
    assert_string_equal(text, want);
    shown_close(&s);
    /* Of two records a pair is what `diff` shows, arms of one record what `show` does. */
    char two[128];
    snprintf(two, sizeof two, "%s", test_path("one.h5"));
    shown_open(&s, &tui_view_site, test_path("one.h5"), two, 5, 4);
    assert_int_equal(shown_load(&s), TUI_READY);
    shown_command(&s, text);
    snprintf(want, sizeof want, "driftscope diff %s %s --site -1,embed --long --arm 2", two, two);
    assert_string_equal(text, want);
    assert_string_equal(tui_side_name(s.c.whole, &s.place, 0), "A");
    assert_string_equal(tui_side_name(s.c.whole, &s.place, 1), "B");
    s.place = (struct tui_place){.arm = 4, .ref = 5};
    assert_string_equal(tui_side_name(s.c.whole, &s.place, 0), "B");
    s.place = (struct tui_place){.arm = 5, .ref = 1};
    assert_string_equal(tui_side_name(s.c.whole, &s.place, 1), "this");
    shown_command(&s, text);
    snprintf(want, sizeof want, "driftscope show %s --site -1,embed --long --arm 2 --against 0", two);
    assert_string_equal(text, want);
    s.place.ref = 0; /* an arm of the second record against another arm of the first */
    shown_command(&s, text);
    snprintf(want, sizeof want,
             "driftscope diff %s %s --site -1,embed --long --arm 2 --against 0", two, two);
    assert_string_equal(text, want);
    shown_close(&s);
}

static void test_places_without_drift(void **state)
{
    (void)state;
    struct shown s;
    shown_open(&s, &tui_view_site, test_path("one.h5"), NULL, 2, 0);
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_string_equal(s.view.head[0], "no row differs: 9 same");
    /* Logits exist where they are needed: other rows are not there at all. */
    s.place.site = logits;
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_int_equal(shown_line(&s, "row", "0:4"), SIZE_MAX);
    assert_true(shown_line(&s, "row", "0:5") != SIZE_MAX);
    /* An arm against itself: its repeats. */
    s.place.ref = 2;
    assert_int_equal(shown_load(&s), TUI_READY);
    s.place.site = 100000;
    assert_int_equal(shown_load(&s), TUI_EMPTY);
    assert_true(s.why[0] != '\0');
    assert_int_equal(s.view.table.source.n_rows, 0);
    /* And back. */
    s.place.site = q_proj;
    s.place.ref = 0;
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_string_equal(shown_cell(&s, "0:2", "label"), "origin");
    shown_close(&s);
}

static void test_every_metric(void **state)
{
    (void)state;
    struct shown s;
    static const char *const names[] = {"elements", "ULP", "abs", "rel"};
    shown_open(&s, &tui_view_site, test_path("one.h5"), NULL, 2, 0);
    s.place.site = q_proj;
    for (int metric = 0; metric < TUI_METRICS; metric++) {
        s.place.metric = metric;
        assert_int_equal(shown_load(&s), TUI_READY);
        assert_string_equal(s.view.table.source.columns[SITE_SIZE].name, names[metric]);
        for (int k = 0; k < TUI_METRICS; k++) /* each is there once */
            assert_true(shown_column(&s, names[k]) == SITE_SIZE || k != metric);
        assert_string_equal(shown_cell(&s, "0:2", "abs"), "1e-06");
    }
    shown_close(&s);
}

static void test_panel(void **state)
{
    (void)state;
    struct shown s;
    struct ds_buf b = {0};
    shown_open(&s, &tui_view_site, test_path("one.h5"), NULL, 2, 0);
    s.place.site = q_proj;
    s.place.row = 0;
    assert_int_equal(shown_load(&s), TUI_READY);
    shown_panel(&s, 40, 60, &b);
    assert_non_null(strstr(b.data, "request 0, position 0"));
    assert_non_null(strstr(b.data, "1 elements, first 2"));
    assert_non_null(strstr(b.data, "a  3: base arm; batch 2; threads 2"));
    assert_non_null(strstr(b.data, "b  1: batch 4"));
    assert_non_null(strstr(b.data, "L01 attn_norm    same"));
    ds_buf_free(&b);
    for (int h = 1; h < 12; h++) /* and in no room at all */
        for (int w = 1; w < 50; w += 7) {
            shown_panel(&s, h, w, &b);
            ds_buf_free(&b);
        }
    shown_close(&s);
}

/* ---- other records --------------------------------------------------------------------------- */

static void test_two_hundred_arms(void **state)
{
    (void)state;
    struct sweep many;
    struct shown s;
    char values[32];
    sweep_init(&many, "batch", 1);
    for (int i = 1; i <= 200; i++) {
        snprintf(values, sizeof values, "%d", i);
        sweep_arm(&many, values);
    }
    sweep_run(&many, 1);
    write_sweep(&many, test_path("many.h5"), many.n_trials);
    shown_open(&s, &tui_view_site, test_path("many.h5"), NULL, 150, 0);
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_int_equal(s.view.table.source.n_columns, SITE_ARMS + 200 + SITE_BEHIND);
    assert_string_equal(s.view.table.source.columns[SITE_ARMS + 7].name, "7");
    assert_string_equal(shown_cell(&s, "0:0", ">150"), "a");
    shown_close(&s);
    sweep_free(&many);
}

static void test_one_trial(void **state)
{
    (void)state;
    struct sweep one;
    struct shown s;
    int next;
    sweep_init(&one, "batch", 1);
    sweep_arm(&one, "1");
    sweep_run(&one, 1);
    write_sweep(&one, test_path("single.h5"), 1);
    shown_open(&s, &tui_view_site, test_path("single.h5"), NULL, 0, 0);
    s.place.site = 2;
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_string_equal(shown_cell(&s, "0:0", ">base arm"), "a");
    assert_int_equal(shown_request(&s, TUI_NEXT_LAYER, &next), -1);
    shown_close(&s);
    sweep_free(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_and_arms),
        cmocka_unit_test(test_sections),
        cmocka_unit_test(test_going_on_from_a_line),
        cmocka_unit_test(test_folding),
        cmocka_unit_test(test_commands),
        cmocka_unit_test(test_places_without_drift),
        cmocka_unit_test(test_every_metric),
        cmocka_unit_test(test_panel),
        cmocka_unit_test(test_two_hundred_arms),
        cmocka_unit_test(test_one_trial),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
