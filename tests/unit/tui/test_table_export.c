/* Exports, read back: jansson takes the JSON, and numbers come back as the same doubles. */
#include "tests/unit/tui/table_sample.h"

#include <jansson.h>

static char *exported(const struct tui_table *t, int format)
{
    struct ds_buf out = {0};

    tui_table_export(t, format, &out);
    assert_false(out.failed);
    return out.data;
}

static void assert_exported(const struct tui_table *t, int format, const char *want)
{
    char *got = exported(t, format);

    assert_string_equal(got, want);
    free(got);
}

static void test_formats(void **state)
{
    struct tui_table t;

    (void)state;
    sample_open(&t);
    assert_int_equal(tui_table_filter(&t, "l1", NULL), 0);
    assert_exported(&t, TUI_TEXT,
                    "site        rows max ULP kernel\n"
                    "\nprefill\n"
                    "L10 q_proj    12     nan matmul/openblas\n"
                    "L1 attn_out    7       2 attention/Vendor\n"
                    "not all rows of L1 are in the record\n"
                    "\ndecode\n"
                    "L1 o_proj      0       - matmul/openblas\n");
    assert_exported(&t, TUI_TSV,
                    "section\tsite\trows\tmax ULP\tkernel\n"
                    "prefill\tL10 q_proj\t12\tNaN\tmatmul/openblas\n"
                    "prefill\tL1 attn_out\t7\t2\tattention/Vendor\n"
                    "prefill\tnot all rows of L1 are in the record\n"
                    "decode\tL1 o_proj\t0\t\tmatmul/openblas\n");
    assert_exported(
        &t, TUI_JSON,
        "{\"schema\": \"driftscope.table/1\", \"table\": \"sites\", \"rows\": [\n"
        "  {\"section\": \"prefill\", \"site\": \"L10 q_proj\", \"rows\": 12, \"max ULP\": "
        "\"NaN\", "
        "\"kernel\": \"matmul/openblas\"},\n"
        "  {\"section\": \"prefill\", \"site\": \"L1 attn_out\", \"rows\": 7, \"max ULP\": 2, "
        "\"kernel\": \"attention/Vendor\"},\n"
        "  {\"section\": \"prefill\", \"text\": \"not all rows of L1 are in the record\"},\n"
        "  {\"section\": \"decode\", \"site\": \"L1 o_proj\", \"rows\": 0, \"max ULP\": null, "
        "\"kernel\": \"matmul/openblas\"}\n]}\n");
    tui_table_free(&t);
}

/* Marked rows in the order shown; what a filter hides, behind. */
static void test_marked(void **state)
{
    struct tui_table t;

    (void)state;
    sample_open(&t);
    assert_int_equal(tui_table_go(&t, 6, 0), 0);
    tui_table_mark(&t, 0);
    assert_int_equal(tui_table_go(&t, 2, 0), 0);
    tui_table_mark(&t, 0);
    assert_int_equal(tui_table_go(&t, 3, 0), 0);
    tui_table_mark(&t, 0);
    assert_int_equal(tui_table_sort(&t, 1, 0, NULL), 0);
    assert_int_equal(tui_table_filter(&t, "kernel=openblas", NULL), 0);
    assert_exported(&t, TUI_TSV,
                    "section\tsite\trows\tmax ULP\tkernel\n"
                    "prefill\tL10 q_proj\t12\tNaN\tmatmul/openblas\n"
                    "decode\tL1 o_proj\t0\t\tmatmul/openblas\n"
                    "prefill\tL1 attn_out\t7\t2\tattention/Vendor\n");
    tui_table_free(&t);
}

/* Sections with columns of their own have objects, and heading lines, of their own. */
static void test_own_columns(void **state)
{
    static const struct tui_column columns[SAMPLE_COLUMNS] = {{"arm", TUI_LEFT, 0, 0, 0},
                                                              {"", TUI_RIGHT, 0, 0, 0},
                                                              {"", TUI_RIGHT, 0, 0, 0},
                                                              {"", 0, 0, 0, 0}};
    static const struct sample_row rows[] = {
        {TUI_ROW_HEADS, 0, {T("trials"), T("wall"), T("cpu")}},
        {TUI_ROW, 0, {T("base"), N("1.5", 1.5), N("2", 2)}},
        {TUI_ROW_HEADS, 0, {T("pairs"), T("rows"), T(""), T("rows")}},
        {TUI_ROW, 0, {T("batch 4"), N("8", 8), T(""), T("L1 up")}},
    };
    struct tui_source s = sample_source(rows, 4);
    struct tui_table t = {0};

    (void)state;
    s.columns = columns;
    assert_int_equal(tui_table_source(&t, &s, NULL), 0);
    assert_exported(&t, TUI_TSV,
                    "section\tarm\twall\tcpu\t\ntrials\tbase\t1.5\t2\t\n"
                    "section\tarm\trows\t\trows 2\npairs\tbatch 4\t8\t\tL1 up\n");
    const char *json =
        "{\"schema\": \"driftscope.table/1\", \"table\": \"sites\", \"rows\": [\n"
        "  {\"section\": \"trials\", \"arm\": \"base\", \"wall\": 1.5, \"cpu\": 2},\n"
        "  {\"section\": \"pairs\", \"arm\": \"batch 4\", \"rows\": 8, \"rows 2\": "
        "\"L1 up\"}\n]}\n";
    assert_exported(&t, TUI_JSON, json);
    assert_int_equal(tui_table_go(&t, 3, 0), 0);
    tui_table_mark(&t, 0);
    assert_exported(&t, TUI_TSV, "section\tarm\trows\t\trows 2\npairs\tbatch 4\t8\t\tL1 up\n");
    tui_table_free(&t);
}

/* Doubles of all kinds, and texts of any bytes. */
static double number_of(size_t row)
{
    static const double some[] = {0.1,       1.0 / 3, 1e300,    5e-324,   123456789012345.0,
                                  0.0,       -0.0,    1e-9,     INFINITY, NAN,
                                  -INFINITY, 3.5e-5f, 16777217, 1e16,     0x1p-149};

    return row < sizeof some / sizeof some[0] ? some[row] : ldexp((double)row, (int)row - 120);
}

static void any_cell(void *ctx, size_t row, size_t column, struct tui_value *out)
{
    (void)ctx;
    if (column == 0) {
        out->numeric = 1;
        out->key = number_of(row);
        snprintf(out->text, sizeof out->text, "%.3g", out->key);
        return;
    }
    uint32_t x = (uint32_t)row * 2654435761u + 12345;
    for (size_t i = 0; i < row % 80; i++) {
        x = x * 1664525u + 1013904223u;
        out->text[i] = (char)(x >> 24 ? x >> 24 : 1);
    }
}

static void test_any_bytes_and_numbers(void **state)
{
    static const struct tui_column columns[] = {{"n\"\\\xff\n", TUI_RIGHT, 0, 0, 0},
                                                {"text", 0, 0, 0, 0}};
    struct tui_source s = {
        .columns = columns, .n_columns = 2, .n_rows = 3000, .cell = any_cell, .name = "a\"\x80"};
    struct tui_table t = {0};
    json_error_t why;

    (void)state;
    assert_int_equal(tui_table_source(&t, &s, NULL), 0);
    char *text = exported(&t, TUI_JSON);
    json_t *j = json_loads(text, 0, &why);
    if (!j)
        fail_msg("%s at %d", why.text, why.position);
    json_t *rows = json_object_get(j, "rows");
    assert_int_equal(json_array_size(rows), 3000);
    for (size_t i = 0; i < 3000; i++) {
        json_t *n = json_object_iter_value(json_object_iter(json_array_get(rows, i)));
        double want = number_of(i), got = json_number_value(n);
        if (isfinite(want) ? memcmp(&want, &got, sizeof got) != 0 : !json_is_string(n))
            fail_msg("row %zu: %a came back as %a", i, want, got);
    }
    json_decref(j);
    free(text);
    text = exported(&t, TUI_TSV);
    size_t lines = 0, tabs = 0;
    for (const char *p = text; *p; p++) {
        lines += *p == '\n';
        tabs += *p == '\t';
        assert_true(*p == '\n' || *p == '\t' || (unsigned char)*p >= 0x20);
    }
    assert_int_equal(lines, 3001);
    assert_int_equal(tabs, 3001);
    free(text);
    tui_table_free(&t);
}

/* A whole number above 2^53 is exported as it is written; the double beside it is only near. */
static void big_cell(void *ctx, size_t row, size_t column, struct tui_value *out)
{
    (void)ctx;
    (void)row;
    (void)column;
    out->numeric = 1;
    out->key = 9007199254740993.0;
    snprintf(out->text, sizeof out->text, "9007199254740993");
}

static void test_whole_numbers(void **state)
{
    static const struct tui_column columns[] = {{"n", TUI_RIGHT, 0, 0, 0}};
    struct tui_source s = {.columns = columns, .n_columns = 1, .n_rows = 1, .cell = big_cell};
    struct tui_table t = {0};

    (void)state;
    assert_int_equal(tui_table_source(&t, &s, NULL), 0);
    assert_exported(&t, TUI_TSV, "n\n9007199254740993\n");
    tui_table_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats),       cmocka_unit_test(test_marked),
        cmocka_unit_test(test_own_columns),   cmocka_unit_test(test_any_bytes_and_numbers),
        cmocka_unit_test(test_whole_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
