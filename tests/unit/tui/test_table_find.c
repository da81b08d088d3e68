/* Moving, searching, filtering, sorting, marking and jumping, case by case. */
#include "tests/unit/tui/table_sample.h"

#include "base/mem.h"

static void test_moving(void **state)
{
    struct tui_table t;

    (void)state;
    sample_open(&t);
    assert_int_equal(tui_table_row(&t), 1);
    tui_table_move(&t, -1, 0);
    assert_int_equal(tui_table_row(&t), 1); /* the heading above is none to stand on */
    tui_table_move(&t, 3, 0);
    assert_int_equal(tui_table_row(&t), 4);
    tui_table_move(&t, 1, 0);
    assert_int_equal(tui_table_row(&t), 6);
    tui_table_move(&t, -1, 0);
    assert_int_equal(tui_table_row(&t), 4);
    tui_table_move(&t, 1000, 0);
    assert_int_equal(tui_table_row(&t), 7);
    tui_table_move(&t, LONG_MIN, LONG_MIN);
    assert_int_equal(tui_table_row(&t), 1);
    tui_table_move(&t, LONG_MAX, LONG_MAX);
    assert_int_equal(tui_table_row(&t), 7);
    tui_table_end(&t, 0);
    assert_int_equal(tui_table_row(&t), 1);
    assert_int_equal(tui_table_go(&t, 5, 0), -1);
    assert_int_equal(tui_table_go(&t, 6, 0), 0);
    assert_int_equal(tui_table_row(&t), 6);
    assert_int_equal(tui_table_go(&t, 8, 0), -1);
    tui_table_free(&t);
}

static void test_no_rows(void **state)
{
    struct tui_source s = sample_source(sample_rows, 0);
    struct tui_table t = {0};
    struct ds_buf out = {0};
    int wrapped;

    (void)state;
    for (int heading_only = 0; heading_only < 2; heading_only++) {
        s.n_rows = (size_t)heading_only;
        assert_int_equal(tui_table_source(&t, &s, NULL), 0);
        tui_table_move(&t, 1, 1);
        tui_table_page(&t, -2);
        tui_table_end(&t, 1);
        tui_table_mark(&t, 0);
        assert_int_equal(tui_table_marks(&t), 0);
        assert_true(tui_table_row(&t) == SIZE_MAX);
        assert_int_equal(tui_table_search(&t, "x", 1, &wrapped), -1);
        assert_int_equal(tui_table_jump(&t, TUI_IS_DRIFT, 1), -1);
        assert_int_equal(tui_table_filter(&t, "rows>1", NULL), 0);
        assert_int_equal(tui_table_filter(&t, "", NULL), 0);
        assert_int_equal(tui_table_sort(&t, 1, 0, NULL), 0);
        assert_drawn(&t, 1, 20, 1, heading_only ? ">prefill -----------\n" : " no rows\n");
        for (int format = TUI_TEXT; format <= TUI_JSON; format++)
            tui_table_export(&t, format, &out);
    }
    tui_table_free(&t);
    ds_buf_free(&out);
}

static void test_search(void **state)
{
    static const struct {
        const char *text;
        size_t from;
        int step, rc;
        size_t to;
        int wrapped;
    } cases[] = {
        {"proj", 1, 1, 0, 2, 0},
        {"proj", 2, 1, 0, 6, 0},
        {"proj", 6, 1, 0, 1, 1},
        {"proj", 1, -1, 0, 6, 1},
        {"proj", 6, -1, 0, 2, 0},
        {"proj", 2, 0, 0, 2, 0},
        {"embed", 1, 0, 0, 7, 0},
        {"attention/vendor", 1, 1, 0, 3, 0},
        {"attention/Vendor", 1, 1, 0, 3, 0},
        {"attention/VENDOR", 1, 1, -1, 1, 0},
        {"vendor L1", 1, 1, 0, 3, 0},      /* words in any order, of any column */
        {"\"vendor L1\"", 1, 1, -1, 1, 0}, /* these words as they stand */
        {"\"the record\"", 1, 1, 0, 4, 0}, /* text rows */
        {"decode", 1, 1, 0, 6, 0},         /* a heading is found at its first row */
        {"decode", 6, 1, 0, 6, 1},
        {"vendor", 3, 1, 0, 3, 1},  /* the only one */
        {"rows>3", 1, 1, -1, 1, 0}, /* no condition: these letters */
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tui_table t;
        int wrapped = -1;
        sample_open(&t);
        assert_int_equal(tui_table_go(&t, cases[i].from, 0), 0);
        int rc = tui_table_search(&t, cases[i].text, cases[i].step, &wrapped);
        if (rc != cases[i].rc || tui_table_row(&t) != cases[i].to || wrapped != cases[i].wrapped)
            fail_msg("case %zu, '%s': %d, at %zu, wrapped %d", i, cases[i].text, rc,
                     tui_table_row(&t), wrapped);
        assert_int_equal(rc ? tui_table_go(&t, 7, 0) : 0, 0);
        assert_string_equal(t.search, cases[i].text);
        tui_table_free(&t);
    }
}

static void test_filter(void **state)
{
    static const struct {
        const char *text, *shown;
    } cases[] = {
        {"", "0 1 2 3 4 5 6 7"},
        {"  ", "0 1 2 3 4 5 6 7"},
        {"proj", "0 1 2 5 6"},
        {"!proj", "0 3 4 5 7"},
        {"proj openblas l1", "0 2 5 6"},
        {"L1", "0 2 3 4 5 6"},
        {"record", "0 4"},
        {"kernel=openblas", "0 1 2 5 6"},
        {"kern=openblas", "0 1 2 5 6"},
        {"Kernel==openblas", ""},
        {"kernel==embed/rows", "5 7"},
        {"kernel!=openblas", "0 3 5 7"},
        {"!kernel=openblas", "0 3 5 7"},
        {"!kernel!=openblas", "0 1 2 5 6"},
        {"rows=7", "0 3"},
        {"rows=1", "5 7"}, /* a number, not a letter of 12 */
        {"rows>=7", "0 2 3"},
        {"rows>7", "0 2"},
        {"rows<1e0", "5 6"},
        {"rows<=1", "5 6 7"},
        {"max_ulp>2", "0 1 5 7"},
        {"\"max ULP\">2", "0 1 5 7"},
        {"maxulp>2", "0 1 5 7"},
        {"max_ulp<1e9", "0 1 3 5 7"}, /* NaN and what is not known: neither above nor below */
        {"max_ulp=nan", "0 2"},
        {"max_ulp=-", "5 6"},
        {"rows>3 rows<10 proj", "0 1"},
        {"\"q_proj\"", "0 1 2"},
        {"site=\"L2 q\"", "0 1"},
        {"\"rows>3\"", ""}, /* quoted: these letters */
        {"=", ""},
        {"!", ""},
        {"nowhere", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tui_table t;
        struct ds_error err = {0};
        sample_open(&t);
        if (tui_table_filter(&t, cases[i].text, &err))
            fail_msg("'%s': %s", cases[i].text, err.msg);
        assert_shown(&t, cases[i].shown);
        tui_table_free(&t);
    }
}

static void test_filter_mistakes(void **state)
{
    static const struct {
        const char *text, *msg, *hint;
    } cases[] = {
        {"rws>3", "there is no column 'rws'", "did you mean 'rows'?"},
        {"MaxULB>3", "there is no column 'MaxULB'", "did you mean 'max ULP'?"},
        {"quantity=3", "there is no column 'quantity'", "columns: site, rows, max ULP, kernel"},
        {"rows>x", "filter: 'x' behind 'rows' is not a number",
         "\"...\" around a word that holds = < or >"},
        {"rows>", "filter: a value is missing behind 'rows'",
         "name=word, name>number; \"...\" around a word that holds = < or >"},
        {"a b c d e f g h i j k l m n o p q r s t u v w x y z 0 1 2 3 4 5 6", "at most 32 words",
         ""},
    };
    struct tui_table t;
    char longest[300];

    (void)state;
    sample_open(&t);
    assert_int_equal(tui_table_filter(&t, "proj", NULL), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_error err = {0};
        assert_int_equal(tui_table_filter(&t, cases[i].text, &err), -1);
        assert_string_equal(err.msg, cases[i].msg);
        assert_string_equal(err.hint, cases[i].hint);
        assert_string_equal(t.filter, "proj");
        assert_shown(&t, "0 1 2 5 6");
    }
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(tui_table_filter(&t, longest, NULL), -1);
    assert_int_equal(tui_table_sort(&t, 5, 0, NULL), -1);
    assert_int_equal(tui_table_sort(&t, -1, 0, NULL), -1);
    assert_shown(&t, "0 1 2 5 6");
    tui_table_free(&t);
}

static void test_sort(void **state)
{
    static const struct {
        int column, descending;
        const char *shown;
    } cases[] = {
        {0, 0, "0 1 2 3 4 5 6 7"}, {1, 0, "0 3 1 2 4 5 7 6"}, /* L1 L2 L10 */
        {1, 1, "0 2 1 3 4 5 6 7"}, {2, 0, "0 1 3 2 4 5 6 7"},
        {2, 1, "0 2 3 1 4 5 7 6"}, {3, 0, "0 3 1 2 4 5 7 6"}, /* NaN and unknown last */
        {3, 1, "0 1 3 2 4 5 7 6"}, {4, 0, "0 3 1 2 4 5 7 6"}, /* equal kernels: as they came */
        {4, 1, "0 1 2 3 4 5 6 7"},
    };
    struct tui_table t;

    (void)state;
    sample_open(&t);
    assert_int_equal(tui_table_go(&t, 3, 0), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(tui_table_sort(&t, cases[i].column, cases[i].descending, NULL), 0);
        assert_shown(&t, cases[i].shown);
        assert_int_equal(tui_table_row(&t), 3); /* stays on its row */
    }
    tui_table_free(&t);
}

static void test_jump(void **state)
{
    struct tui_table t;

    (void)state;
    sample_open(&t);
    tui_table_end(&t, 1);
    assert_int_equal(tui_table_jump(&t, TUI_IS_DRIFT, 0), 0);
    assert_int_equal(tui_table_row(&t), 1);
    assert_int_equal(tui_table_jump(&t, TUI_IS_DRIFT, 1), 0);
    assert_int_equal(tui_table_row(&t), 3);
    assert_int_equal(tui_table_jump(&t, TUI_IS_DRIFT, 1), -1);
    assert_int_equal(tui_table_row(&t), 3);
    assert_int_equal(tui_table_jump(&t, TUI_IS_DRIFT | TUI_IS_ORIGIN, 1), 0);
    assert_int_equal(tui_table_row(&t), 7);
    assert_int_equal(tui_table_jump(&t, TUI_IS_JUMP, -1), 0);
    assert_int_equal(tui_table_row(&t), 3);
    assert_int_equal(tui_table_filter(&t, "l2", NULL), 0);
    assert_int_equal(tui_table_jump(&t, TUI_IS_JUMP, 0), -1);
    tui_table_free(&t);
}

/* Cells: along the row, then the rows below; and back the same way. */
static int is_cell(void *ctx, size_t row, size_t column)
{
    (void)ctx;
    return row * 10 + column == 23 || row * 10 + column == 61 || row * 10 + column == 62 ||
                   row * 10 + column == 60
               ? TUI_IS_DRIFT
               : 0;
}

static void test_jump_cells(void **state)
{
    struct tui_source s = sample_source(sample_rows, SAMPLE_ROWS);
    struct tui_table t = {0};
    const size_t way[] = {23, 61, 62};

    (void)state;
    s.is = is_cell;
    s.cell_cursor = 1;
    s.first_cell = 1;
    assert_int_equal(tui_table_source(&t, &s, NULL), 0);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(tui_table_jump(&t, TUI_IS_DRIFT, 1), 0);
        assert_int_equal(tui_table_row(&t) * 10 + t.column, way[i]);
    }
    assert_int_equal(tui_table_jump(&t, TUI_IS_DRIFT, 1), -1);
    for (size_t i = 2; i-- > 0;) {
        assert_int_equal(tui_table_jump(&t, TUI_IS_DRIFT, -1), 0);
        assert_int_equal(tui_table_row(&t) * 10 + t.column, way[i]);
    }
    assert_int_equal(tui_table_jump(&t, TUI_IS_DRIFT, -1), -1);
    int wrapped;
    assert_int_equal(tui_table_search(&t, "embed", 1, &wrapped), 0);
    assert_int_equal(t.column, 3); /* "embed/rows": the first cell of the cursor's that holds it */
    tui_table_free(&t);
}

/* A new source: what can stay stays. */
static void test_source_again(void **state)
{
    struct tui_table t;
    struct tui_source s = sample_source(sample_rows, SAMPLE_ROWS);

    (void)state;
    sample_open(&t);
    assert_int_equal(tui_table_go(&t, 6, 0), 0);
    tui_table_mark(&t, 0);
    tui_table_move(&t, 1, 0);
    tui_table_mark(&t, 0);
    assert_int_equal(tui_table_marks(&t), 2);
    assert_int_equal(tui_table_filter(&t, "rows<4", NULL), 0);
    assert_int_equal(tui_table_sort(&t, 2, 1, NULL), 0);
    assert_shown(&t, "5 7 6");
    s.n_rows = 7;
    assert_int_equal(tui_table_source(&t, &s, NULL), 0);
    assert_shown(&t, "5 6");
    assert_int_equal(tui_table_marks(&t), 1);
    assert_int_equal(tui_table_row(&t), 6);
    s.n_rows = 8;
    assert_int_equal(tui_table_source(&t, &s, NULL), 0);
    assert_shown(&t, "5 7 6");
    assert_int_equal(tui_table_row(&t), 6);
    assert_int_equal(tui_table_marks(&t), 1);
    s.n_columns = 1; /* neither the filter's column nor the sort's is there */
    assert_int_equal(tui_table_source(&t, &s, NULL), 0);
    assert_shown(&t, "0 1 2 3 4 5 6 7");
    assert_string_equal(t.filter, "");
    assert_int_equal(t.sort, 0);
    tui_table_mark(&t, 1);
    assert_int_equal(tui_table_marks(&t), 0);
    tui_table_free(&t);
}

/* Rows that are numbered anew: the cursor stays on its row, marks on theirs. */
static void test_keep(void **state)
{
    const uint16_t before[] = {0, 1, 2, 3, 4, 5, 6, 7};
    const uint16_t now[] = {0, 1, 2, 30, 31, 32, 3, 4};
    struct tui_table t;

    (void)state;
    sample_open(&t);
    for (size_t row = 1; row < 4; row++) {
        assert_int_equal(tui_table_go(&t, row, 0), 0);
        tui_table_mark(&t, 0);
    }
    size_t row = tui_table_row(&t);
    tui_table_keep(&t, row, before, 8, now, 8, sizeof *now);
    assert_int_equal(tui_table_marks(&t), 3);
    assert_true(t.marked[1] && t.marked[2] && !t.marked[3] && t.marked[6]);
    assert_int_equal(tui_table_row(&t),
                     6); /* what was row 3 */
    tui_table_go(&t, 2, 0);
    tui_table_keep(&t, 2, before, 8, now, 8, sizeof *now);
    assert_int_equal(tui_table_row(&t), 2);
    tui_table_go(&t, 4, 0);
    tui_table_keep(&t, 4, before, 8, now, 8, sizeof *now);
    assert_int_equal(tui_table_row(&t), 7);
    tui_table_keep(&t, SIZE_MAX, NULL, 0, now, 8, sizeof *now);
    assert_int_equal(tui_table_marks(&t), 0);
    tui_table_free(&t);
}

/* No memory at any place: the table is as it was. */
static void test_no_memory(void **state)
{
    struct tui_table t;
    struct ds_error err;
    int failures = 0;

    (void)state;
    sample_open(&t);
    assert_int_equal(tui_table_filter(&t, "proj", NULL), 0);
    for (long n = 1; n < 40; n++) {
        struct tui_source s = sample_source(sample_rows, SAMPLE_ROWS - 1);
        ds_mem_fail_at(n);
        int rc = tui_table_source(&t, &s, &err) | tui_table_sort(&t, 1, 0, &err) |
                 tui_table_filter(&t, "l1", &err);
        ds_mem_fail_at(0);
        failures += rc != 0;
        assert_in_range(t.n_shown, 2, 6);
        s.n_rows++;
        assert_int_equal(tui_table_source(&t, &s, &err), 0);
        assert_int_equal(tui_table_sort(&t, 0, 0, &err), 0);
        assert_int_equal(tui_table_filter(&t, "proj", &err), 0);
        assert_shown(&t, "0 1 2 5 6");
    }
    assert_in_range(failures, 5, 30);
    tui_table_free(&t);
}

/* A million rows: a key ends what takes long, and then nothing has changed. */
static void million_cell(void *ctx, size_t row, size_t column, struct tui_value *out)
{
    (void)ctx;
    out->numeric = column == 0;
    out->key = (double)((row * 7919) % 1000003);
    snprintf(out->text, sizeof out->text, "%zu", (row * 7919) % 1000003);
}

static int no_is(void *ctx, size_t row, size_t column)
{
    (void)ctx;
    (void)column;
    return row == 999999 ? TUI_IS_DRIFT : 0;
}

static int stop_soon(void *ctx)
{
    return ++*(int *)ctx >= 3;
}

static void test_million_rows(void **state)
{
    static const struct tui_column columns[] = {{"number", TUI_RIGHT, 0, 0, 0},
                                                {"text", 0, 0, 0, 0}};
    struct tui_source s = {
        .columns = columns, .n_columns = 2, .n_rows = 1000000, .cell = million_cell, .is = no_is};
    struct tui_table t = {0};
    struct ds_error err;
    int asked = 0, wrapped;

    (void)state;
    assert_int_equal(tui_table_source(&t, &s, NULL), 0);
    for (int i = 1; i <= 2; i++) {
        assert_int_equal(tui_table_sort(&t, i, 1, NULL), 0);
        struct tui_value a, b;
        for (size_t k = 0; k + 1 < 1000; k++) {
            million_cell(NULL, t.shown[k], 0, &a);
            million_cell(NULL, t.shown[k + 1], 0, &b);
            assert_true(a.key > b.key);
        }
    }
    assert_int_equal(tui_table_sort(&t, 0, 0, NULL), 0);
    assert_int_equal(tui_table_filter(&t, "number<10", NULL), 0);
    assert_int_equal(t.n_shown, 10);
    assert_int_equal(tui_table_filter(&t, "", NULL), 0);
    t.stop = stop_soon;
    t.stop_ctx = &asked;
    assert_int_equal(tui_table_search(&t, "no such text", 1, &wrapped), -1);
    assert_true(t.stopped && asked == 3);
    assert_int_equal(tui_table_jump(&t, TUI_IS_DRIFT, 1), -1);
    assert_true(t.stopped);
    assert_int_equal(tui_table_filter(&t, "number<10", &err), -1);
    assert_string_equal(err.msg, "stopped");
    assert_int_equal(tui_table_sort(&t, 1, 0, &err), -1);
    assert_string_equal(err.msg, "stopped");
    assert_int_equal(t.n_shown, 1000000);
    assert_int_equal(t.shown[17], 17);
    assert_int_equal(t.sort, 0);
    t.stop = NULL;
    assert_int_equal(tui_table_jump(&t, TUI_IS_DRIFT, 1), 0);
    assert_int_equal(tui_table_row(&t), 999999);
    assert_int_equal(t.stopped, 0);
    tui_table_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moving),
        cmocka_unit_test(test_no_rows),
        cmocka_unit_test(test_search),
        cmocka_unit_test(test_filter),
        cmocka_unit_test(test_filter_mistakes),
        cmocka_unit_test(test_sort),
        cmocka_unit_test(test_jump),
        cmocka_unit_test(test_jump_cells),
        cmocka_unit_test(test_source_again),
        cmocka_unit_test(test_keep),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_million_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
