/* test_view_tensor.c: the view Tensor on rows whose bytes are known. */
#include "tests/unit/tui/view_testing.h"

#include "tui/view_tensor.h"

#include <math.h>

static struct sweep sweep;
static uint32_t site;

/* Positions of the site; arm 2 is one side, all others the other. */
enum { VALUES = 0, REF_ONLY, NEITHER, HALF, WHOLE, EQUAL };

static const uint32_t ref_bits[] = {
    0x3f800000u, /* 0: equal */
    0x00000000u, /* 1: +0 against -0 */
    0x7fc00000u, /* 2: NaN of other bits */
    0x7fc00001u, /* 3: NaN, equal bits */
    0x3f800000u, /* 4: a number against NaN */
    0x7f7fffffu, /* 5: the largest against Inf */
    0x00000001u, /* 6: subnormals */
    0xbf800000u, /* 7: 1 ULP */
    0x3f800000u, /* 8: 3 ULP */
    0x3f800000u, /* 9: 1000 ULP */
};
static const uint32_t mine_bits[] = {0x3f800000u, 0x80000000u, 0x7fc00007u, 0x7fc00001u,
                                     0x7fc00000u, 0x7f800000u, 0x00000003u, 0xbf800001u,
                                     0x3f800003u, 0x3f8003e8u};
enum { N = sizeof ref_bits / sizeof *ref_bits };

static void fill(struct ds_trial_data *t, int mine)
{
    static const uint16_t half[2][3] = {{0x3f80, 0x7fc0, 0x8000}, {0x3f81, 0x7fc0, 0x0000}};
    static const int32_t whole[2][2] = {{5, -7}, {5, INT32_MAX}};
    put_values(t, site, VALUES, "f32", mine ? mine_bits : ref_bits, N, 1);
    put_values(t, site, REF_ONLY, "f32", mine ? mine_bits : ref_bits, N - 1, !mine);
    put_values(t, site, NEITHER, "f32", mine ? mine_bits : ref_bits, N - 2, 0);
    put_values(t, site, HALF, "bf16", half[mine], 3, 1);
    put_values(t, site, WHOLE, "i32", whole[mine], 2, 1);
    put_values(t, site, EQUAL, "f32", ref_bits, 4, 1);
}

static int make(void **state)
{
    if (make_folder(state) != 0)
        return -1;
    fixture_plan(&sweep, two_faults);
    sweep_run(&sweep, 2);
    sweep_line(&sweep.header.options, &sweep.header.n_options, "dump_rows", "8");
    site = site_of(&sweep.header, 1, "down");
    for (size_t i = 0; i < sweep.n_trials; i++)
        fill(&sweep.trials[i], sweep.trials[i].info.arm == 2);
    write_sweep(&sweep, test_path("one.h5"), sweep.n_trials);
    return 0;
}

static int clean(void **state)
{
    sweep_free(&sweep);
    return remove_folder(state);
}

static void open_row(struct shown *s, size_t row)
{
    shown_open(s, &tui_view_tensor, test_path("one.h5"), NULL, 2, 0);
    s->place.site = site;
    s->place.row = row;
}

static void test_both_sides(void **state)
{
    (void)state;
    struct shown s;
    open_row(&s, VALUES);
    assert_int_equal(shown_load(&s), TUI_READY);
    static const struct {
        const char *index, *ref, *is, *mine, *difference, *ulp, *note;
    } want[N] = {
        {"0", "1", "=", "1", "", "", ""},
        {"1", "0", "~", "-0", "0", "0", "values equal"},
        {"2", "NaN 7fc00000", "!=", "NaN 7fc00007", "NaN", "NaN", "NaN bits"},
        {"3", "NaN 7fc00001", "=", "NaN 7fc00001", "", "", "NaN"},
        {"4", "1", "!=", "NaN 7fc00000", "NaN", "NaN", "NaN"},
        {"5", "3.40282347e+38", "!=", "Inf", "Inf", "1", "Inf"},
        {"6", "1.40129846e-45", "!=", "4.20389539e-45", "2.8026e-45", "2", "subnormal"},
        {"7", "-1", "!=", "-1.00000012", "-1.19209e-07", "1", ""},
        {"8", "1", "!=", "1.00000036", "3.57628e-07", "3", ""},
        {"9", "1", "!=", "1.00011921", "0.000119209", "1000", ""},
    };
    assert_int_equal(s.view.table.source.n_rows, N);
    for (int i = 0; i < N; i++) {
        assert_string_equal(shown_cell(&s, want[i].index, "reference"), want[i].ref);
        assert_string_equal(shown_cell(&s, want[i].index, "is"), want[i].is);
        assert_string_equal(shown_cell(&s, want[i].index, "this"), want[i].mine);
        assert_string_equal(shown_cell(&s, want[i].index, "difference"), want[i].difference);
        assert_string_equal(shown_cell(&s, want[i].index, "ULP"), want[i].ulp);
        assert_string_equal(shown_cell(&s, want[i].index, "note"), want[i].note);
        assert_int_equal(!!(shown_is(&s, (size_t)i) & TUI_IS_DRIFT), strcmp(want[i].is, "=") != 0);
    }
    assert_non_null(strstr(s.view.head[0], "8 of 10 elements (f32) differ, max 1000 ULP"));
    assert_non_null(strstr(s.view.head[0], "NaN on a side"));
    /* What is marked is what differs. */
    struct tui_value v = shown_value(&s, 8, shown_column(&s, "this"));
    assert_int_equal(v.n_spans, 1);
    assert_int_equal(v.span[0].begin, 1);
    assert_int_equal(shown_value(&s, 0, shown_column(&s, "this")).n_spans, 0);
    shown_close(&s);
}

static void test_number_formats(void **state)
{
    (void)state;
    struct shown s;
    open_row(&s, VALUES);
    s.place.number = TUI_NUMBER_HEX;
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_string_equal(shown_cell(&s, "9", "this"), "3f8003e8");
    struct tui_value v = shown_value(&s, 9, shown_column(&s, "this"));
    assert_int_equal(v.n_spans, 1);
    assert_int_equal(v.span[0].begin, 5);
    assert_int_equal(v.span[0].end, 8);
    s.place.number = TUI_NUMBER_A;
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_string_equal(shown_cell(&s, "7", "this"), "-0x1.000002p+0");
    assert_string_equal(shown_cell(&s, "1", "this"), "-0x0p+0");
    s.place.metric = TUI_METRIC_REL;
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_string_equal(shown_cell(&s, "9", "relative"), "0.000119209");
    assert_string_equal(shown_cell(&s, "1", "relative"), "NaN"); /* 0 / 0 */
    shown_close(&s);
}

static void test_jumps(void **state)
{
    (void)state;
    struct shown s;
    int next;
    open_row(&s, VALUES);
    assert_int_equal(shown_load(&s), TUI_READY);
    /* A NaN on one side is more than any distance. */
    assert_int_equal(shown_request(&s, TUI_NEXT_JUMP, &next), 1);
    assert_int_equal(s.place.element, 2);
    assert_int_equal(shown_request(&s, TUI_NEXT_JUMP, &next), 1);
    assert_int_equal(s.place.element, 4);
    assert_int_equal(shown_request(&s, TUI_NEXT_JUMP, &next), 1);
    assert_int_equal(s.place.element, 2); /* and round */
    assert_int_equal(shown_is(&s, 1), TUI_IS_DRIFT | TUI_IS_ORIGIN);
    assert_int_equal(shown_is(&s, 0), 0);
    assert_int_equal(tui_table_jump(&s.view.table, TUI_IS_DRIFT, 1), 0);
    assert_int_equal(tui_table_row(&s.view.table), 4);
    /* Where an element was asked for, the cursor is. */
    s.place.element = 7;
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_int_equal(tui_table_row(&s.view.table), 7);
    shown_close(&s);
}

static void test_other_formats(void **state)
{
    (void)state;
    struct shown s;
    open_row(&s, HALF);
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_string_equal(shown_cell(&s, "0", "reference"), "1");
    assert_string_equal(shown_cell(&s, "0", "this"), "1.0078125");
    assert_string_equal(shown_cell(&s, "0", "ULP"), "1");
    assert_string_equal(shown_cell(&s, "1", "is"), "=");
    assert_string_equal(shown_cell(&s, "2", "reference"), "-0");
    assert_string_equal(shown_cell(&s, "2", "this"), "0");
    assert_string_equal(shown_cell(&s, "2", "is"), "~");
    s.place.row = WHOLE;
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_string_equal(shown_cell(&s, "1", "this"), "2147483647");
    assert_string_equal(shown_cell(&s, "1", "distance"), "2147483654");
    assert_string_equal(shown_cell(&s, "1", "difference"), "2.14748e+09");
    tui_table_mark(&s.view.table, 0);
    s.place.number = TUI_NUMBER_HEX;
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_int_equal(tui_table_marks(&s.view.table), 1);
    s.place.row = EQUAL; /* of which no element was marked */
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_int_equal(tui_table_marks(&s.view.table), 0);
    assert_non_null(strstr(s.view.head[0], "all 4 elements (f32) have equal bits"));
    shown_close(&s);
}

static void test_what_is_not_dumped(void **state)
{
    (void)state;
    struct shown s;
    int next;
    open_row(&s, NEITHER);
    assert_int_equal(shown_load(&s), TUI_EMPTY);
    assert_non_null(strstr(s.why, "neither side"));
    assert_non_null(strstr(s.why, "--dump all --dump-rows N"));
    assert_non_null(strstr(s.why, "here: 8"));
    assert_int_equal(s.view.table.source.n_rows, 0);
    /* One side: it alone, and nothing is compared with it. */
    s.place.row = REF_ONLY;
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_string_equal(shown_cell(&s, "5", "reference"), "3.40282347e+38");
    assert_string_equal(shown_cell(&s, "5", "this"), ".");
    assert_string_equal(shown_cell(&s, "5", "is"), "");
    assert_int_equal(shown_is(&s, 5), 0);
    assert_non_null(strstr(s.view.head[0], "the values of this are not dumped"));
    assert_int_equal(shown_request(&s, TUI_NEXT_JUMP, &next), -1);
    /* Rows without values are passed over. */
    assert_int_equal(shown_request(&s, TUI_NEXT_ROW, &next), 1);
    assert_int_equal(s.place.row, HALF);
    s.place.row = EQUAL;
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_int_equal(shown_request(&s, TUI_NEXT_ROW, &next), -1);
    s.place.row = VALUES;
    assert_int_equal(shown_request(&s, TUI_PREVIOUS_ROW, &next), -1);
    s.place.row = 100000;
    assert_int_equal(shown_load(&s), TUI_EMPTY);
    s.place.row = VALUES;
    s.place.site = 0;
    assert_int_equal(shown_load(&s), TUI_EMPTY);
    shown_close(&s);
}

static void test_panel(void **state)
{
    (void)state;
    struct shown s;
    struct ds_buf b = {0};
    open_row(&s, VALUES);
    s.place.element = 8;
    assert_int_equal(shown_load(&s), TUI_READY);
    shown_panel(&s, 30, 60, &b);
    static const char *const lines[] = {"element 8",
                                        "ref  0 01111111 00000000000000000000000",
                                        "this 0 01111111 00000000000000000000011",
                                        "                                     ^^",
                                        "            =         2",
                                        "   0 (-0, +0)         1 ##",
                                        "            1         2 ##",
                                        ">         2-3         2 ##",
                                        "     512-1023         1 ##",
                                        "          NaN         2 ##"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(b.data, lines[i]))
            fail_msg("no '%s' in\n%s", lines[i], b.data);
    ds_buf_free(&b);
    shown_panel(&s, 8, 60, &b); /* little room: the bins in a few lines */
    assert_non_null(strstr(b.data, "[2-3: 2]"));
    ds_buf_free(&b);
    for (int h = 1; h < 20; h++)
        for (int w = 1; w < 60; w += 6) {
            shown_panel(&s, h, w, &b);
            ds_buf_free(&b);
        }
    shown_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_sides),
        cmocka_unit_test(test_number_formats),
        cmocka_unit_test(test_jumps),
        cmocka_unit_test(test_other_formats),
        cmocka_unit_test(test_what_is_not_dumped),
        cmocka_unit_test(test_panel),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
