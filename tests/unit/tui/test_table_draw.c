/* What a table looks like: pictures at a few sizes, and at every size that nothing is drawn beside the rectangle. */
#include "tests/unit/tui/table_sample.h"

static void test_pictures(void **state)
{
    struct tui_table t;

    (void)state;
    sample_open(&t);
    assert_drawn(&t, 10, 60, 0,
                 " site        rows max ULP kernel\n"
                 "─prefill ───────────────────────────────────────────────────\n"
                 ">L2 q_proj      4      17 matmul/openblas\n"
                 " L10 q_proj    12     nan matmul/openblas\n"
                 " L1 attn_out    7       2 attention/Vendor\n"
                 " not all rows of L1 are in the record\n"
                 "─decode ────────────────────────────────────────────────────\n"
                 " L1 o_proj      0       - matmul/openblas\n"
                 " L0 embed       1       3 embed/rows\n"
                 "\n");
    tui_table_end(&t, 1);
    tui_table_mark(&t, 0);
    tui_table_move(&t, -1, 0);
    assert_drawn(&t, 6, 30, 1,
                 " site        rows max ULP ke>\n"
                 " L1 attn_out    7       2 at>^\n"
                 " not all rows of L1 are in t>#\n"
                 "-decode ---------------------#\n"
                 ">L1 o_proj      0       - ma>#\n"
                 "*L0 embed       1       3 em>#\n");
    tui_table_pan(&t, 5);
    assert_drawn(&t, 6, 30, 1,
                 " site       <max ULP kernel >\n"
                 " L1 attn_out       2 attenti>^\n"
                 " <l rows of L1 are in the re>#\n"
                 "-decode ---------------------#\n"
                 ">L1 o_proj         - matmul/>#\n"
                 "*L0 embed          3 embed/r>#\n");
    assert_int_equal(tui_table_sort(&t, 2, 1, NULL), 0);
    assert_drawn(&t, 3, 30, 1,
                 " site       < max ULP kernel>\n" /* the mark made its column wider */
                 "*L0 embed           3 embed/>^\n"
                 ">L1 o_proj          - matmul>#\n");
    tui_table_pan(&t, -99);
    assert_drawn(&t, 3, 30, 0,
                 " site        rows↓ max ULP k›\n"
                 "•L0 embed        1       3 e›↑\n"
                 ">L1 o_proj       0       - m›█\n");
    assert_drawn(&t, 1, 30, 1, ">L1 o_proj       0       - m>^\n");
    assert_int_equal(tui_table_filter(&t, "nowhere", NULL), 0);
    assert_drawn(&t, 3, 60, 1,
                 " site rowsv max ULP kernel\n"
                 " no row fits the filter nowhere; :filter shows all\n\n");
    tui_table_free(&t);
}

static const struct tui_cell *drawn_cell(struct tui_table *t, struct tui_canvas *c, int y, int x)
{
    tui_canvas_clear(c);
    tui_table_draw(t, c, (struct tui_rect){0, 0, c->h, c->w});
    return &c->cells[y * c->w + x];
}

static void test_cursor_and_matches(void **state)
{
    struct tui_table t;
    struct tui_canvas c;
    int wrapped;

    (void)state;
    sample_open(&t);
    assert_int_equal(tui_canvas_new(&c, 10, 60, 1, NULL), 0);
    for (int x = 0; x < 60; x++) {
        assert_int_equal(drawn_cell(&t, &c, 2, x)->attr & TUI_CURSOR, TUI_CURSOR);
        assert_int_equal(drawn_cell(&t, &c, 3, x)->attr & TUI_CURSOR, 0);
    }
    assert_int_equal(tui_table_search(&t, "PROJ", 1, &wrapped), -1);
    assert_int_equal(tui_table_search(&t, "proj", 1, &wrapped), 0);
    for (int x = 0; x < 13; x++) /* "L10 q_proj": p is its seventh letter, behind the mark's cell */
        assert_int_equal(drawn_cell(&t, &c, 3, x)->role, x >= 7 && x < 11 ? TUI_MATCH : TUI_PLAIN);
    assert_int_equal(tui_table_search(&t, "", 1, &wrapped), -1);
    assert_int_equal(drawn_cell(&t, &c, 3, 8)->role, TUI_PLAIN);
    tui_canvas_free(&c);
    tui_table_free(&t);
}

/* Bytes of a text that differ, in a text with characters of several bytes, and escaped. */
static void span_cell(void *ctx, size_t row, size_t column, struct tui_value *out)
{
    const char *text = ctx;

    (void)row;
    (void)column;
    snprintf(out->text, sizeof out->text, "%s", text);
    out->n_spans = 2;
    out->span_role = TUI_DIFFERS;
    out->span[0].begin = 3;
    out->span[0].end = 5;
    out->span[1].begin = 6;
    out->span[1].end = 60000;
}

static void test_spans(void **state)
{
    static const struct tui_column columns[] = {{"", TUI_LEFT, 0, 0, 0}, {"", TUI_RIGHT, 0, 8, 8}};
    /* a, e with accent (2 bytes), then "\x01" (drawn as 4 cells), b, c, d */
    char text[] = "a\xc3\xa9\x01"
                  "bcd";
    struct tui_source s = {
        .ctx = text, .columns = columns, .n_columns = 2, .n_rows = 1, .cell = span_cell};
    struct tui_table t = {0};
    struct tui_canvas c;
    const int left[] = {0, 0, 1, 1, 1, 1, 1, 0, 1}; /* a e [\x01 b] c [d] */

    (void)state;
    assert_int_equal(tui_table_source(&t, &s, NULL), 0);
    assert_int_equal(tui_canvas_new(&c, 1, 40, 0, NULL), 0);
    for (int i = 0; i < 9; i++)
        assert_int_equal(drawn_cell(&t, &c, 0, 1 + i)->role == TUI_DIFFERS, left[i]);
    for (int i = 1; i < 8; i++) /* nine cells right-aligned in eight: the first is cut */
        assert_int_equal(drawn_cell(&t, &c, 0, 11 + i)->role == TUI_DIFFERS, left[i + 1]);
    tui_canvas_free(&c);
    tui_table_free(&t);
}

/* Sections with columns of their own: the heading line is that of the section at the top. */
static void test_own_columns(void **state)
{
    static const struct tui_column columns[SAMPLE_COLUMNS] = {{"", TUI_LEFT, 0, 0, 0},
                                                              {"", TUI_RIGHT, 0, 0, 0},
                                                              {"", TUI_RIGHT, 0, 0, 0},
                                                              {"", 0, 0, 0, 0}};
    static const struct sample_row rows[] = {
        {TUI_ROW_HEADS, 0, {T("trials"), T("wall"), T("cpu")}},
        {TUI_ROW, 0, {T("base"), N("1.5", 1.5), N("2", 2)}},
        {TUI_ROW, 0, {T("batch 4"), N("2.5", 2.5), N("3", 3)}},
        {TUI_ROW_HEADS, 0, {T("pairs"), T("rows"), T(""), T("site")}},
        {TUI_ROW, 0, {T("base"), N("7", 7), T(""), T("L0 q_proj")}},
        {TUI_ROW, 0, {T("batch 4"), N("8", 8), T(""), T("L1 up")}},
    };
    struct tui_source s = sample_source(rows, 6);
    struct tui_table t = {0};
    struct ds_error err;

    (void)state;
    s.columns = columns;
    assert_int_equal(tui_table_source(&t, &s, NULL), 0);
    assert_drawn(
        &t, 7, 40, 1,
        " trials  wall cpu\n>base     1.5   2\n batch 4  2.5   3\n"
        "-pairs   rows     site\n base       7     L0 q_proj\n batch 4    8     L1 up\n\n");
    tui_table_end(&t, 1);
    assert_drawn(&t, 3, 40, 1,
                 " pairs   rows     site\n base       7     L0 q_proj            ^\n>batch 4    "
                 "8     L1 up                #\n");
    assert_int_equal(tui_table_filter(&t, "rows>7", NULL), 0);
    assert_shown(&t, "3 5");
    assert_int_equal(tui_table_filter(&t, "wall<2", NULL), 0);
    assert_shown(&t, "0 1");
    assert_int_equal(tui_table_filter(&t, "walk<2", &err), -1);
    assert_string_equal(err.hint, "did you mean 'wall'?");
    char name[64];
    tui_table_column_name(&t, 1, name, sizeof name);
    assert_string_equal(name, "wall");
    tui_table_free(&t);
}

/* Columns as wide as the widest cell seen: scrolling back must not move them. */
static void number_cell(void *ctx, size_t row, size_t column, struct tui_value *out)
{
    (void)ctx;
    snprintf(out->text, sizeof out->text, "%zu", column ? row : row * row * row);
    out->numeric = 1;
    out->key = (double)row;
}

static void test_widths_stay(void **state)
{
    static const struct tui_column columns[] = {{"cube", TUI_RIGHT, 0, 0, 0}, {"n", 0, 0, 0, 0}};
    struct tui_source s = {.columns = columns, .n_columns = 2, .n_rows = 1000, .cell = number_cell};
    struct tui_table t = {0};
    struct tui_canvas c;

    (void)state;
    assert_int_equal(tui_table_source(&t, &s, NULL), 0);
    assert_int_equal(tui_canvas_new(&c, 5, 40, 1, NULL), 0);
    tui_table_draw(&t, &c, (struct tui_rect){0, 0, 5, 40});
    assert_int_equal(t.widths[0], 4);
    tui_table_end(&t, 1);
    tui_table_draw(&t, &c, (struct tui_rect){0, 0, 5, 40});
    assert_int_equal(t.widths[0], 9);
    tui_table_end(&t, 0);
    assert_int_equal(tui_table_source(&t, &s, NULL), 0);
    tui_table_draw(&t, &c, (struct tui_rect){0, 0, 5, 40});
    assert_int_equal(t.widths[0], 9);
    tui_canvas_free(&c);
    tui_table_free(&t);
}

/* A cell cursor: the cell alone is reversed, and the columns move so that it is seen. */
static void test_cell_cursor(void **state)
{
    struct tui_table t;
    struct tui_canvas c;

    (void)state;
    struct tui_source s = sample_source(sample_rows, SAMPLE_ROWS);
    memset(&t, 0, sizeof t);
    s.cell_cursor = 1;
    s.first_cell = 1;
    assert_int_equal(tui_table_source(&t, &s, NULL), 0);
    assert_int_equal(t.column, 1);
    assert_int_equal(tui_canvas_new(&c, 6, 22, 1, NULL), 0);
    for (size_t column = 1; column < 4; column++) {
        int reversed = 0;
        for (int x = 0; x < 22; x++)
            reversed += drawn_cell(&t, &c, 2, x)->attr & TUI_CURSOR;
        assert_in_range(reversed, 1, 16);
        assert_int_equal(t.column, column);
        tui_table_move(&t, 0, 1);
    }
    assert_int_equal(t.column, 3);
    int at = t.pan;
    assert_true(at > 0);
    tui_table_pan(&t, -at);
    drawn_cell(&t, &c, 0, 0);
    assert_int_equal(t.pan, 0); /* who pans may look elsewhere */
    tui_table_move(&t, 0, 0);
    drawn_cell(&t, &c, 0, 0);
    assert_int_equal(t.pan, at);
    tui_table_move(&t, 0, -99);
    drawn_cell(&t, &c, 0, 0);
    assert_int_equal(t.column, 1);
    assert_int_equal(t.pan, 0);
    tui_canvas_free(&c);
    tui_table_free(&t);
}

/* Every size, at an odd place and partly beside the canvas: nothing beside the rectangle changes, and the cursor's
 * row is in it. */
static void draw_in(struct tui_table *t, struct tui_canvas *c, struct tui_rect r)
{
    int marked = 0;

    for (int i = 0; i < c->h * c->w; i++)
        c->cells[i] = (struct tui_cell){'#', TUI_ERROR, 0};
    tui_table_draw(t, c, r);
    for (int y = 0; y < c->h; y++)
        for (int x = 0; x < c->w; x++) {
            const struct tui_cell *cell = &c->cells[y * c->w + x];
            if (y >= r.y && y < r.y + r.h && x >= r.x && x < r.x + r.w)
                marked += cell->attr & TUI_CURSOR;
            else if (cell->ch != '#' || cell->role != TUI_ERROR || cell->attr)
                fail_msg("%d,%d is drawn, beside %d,%d %dx%d", y, x, r.y, r.x, r.h, r.w);
        }
    if (r.w > 1)
        assert_true(marked > 0);
}

static void test_every_size(void **state)
{
    struct tui_table t;
    struct tui_canvas c;
    int h = 1;

    (void)state;
    sample_open(&t);
    assert_int_equal(tui_canvas_new(&c, 153, 404, 0, NULL), 0);
    for (int w = 1; w <= 400; w++) {
        draw_in(&t, &c, (struct tui_rect){1, 2, h, w});
        tui_table_move(&t, w % 3 - 1, 0);
        tui_table_pan(&t, w % 7 - 3);
        h = h % 150 + 1;
    }
    for (h = 1; h <= 150; h++)
        draw_in(&t, &c, (struct tui_rect){1, 2, h, h % 12 + 1});
    tui_canvas_free(&c);
    assert_int_equal(tui_canvas_new(&c, 12, 30, 1, NULL), 0);
    for (int w = 1; w <= 30; w++)
        for (h = 1; h <= 12; h++)
            draw_in(&t, &c, (struct tui_rect){12 - h, 30 - w, h, w});
    tui_table_draw(&t, &c, (struct tui_rect){-3, -4, 100, 100});
    tui_table_draw(&t, &c, (struct tui_rect){20, 40, 5, 5});
    tui_table_draw(&t, &c, (struct tui_rect){2, 2, 0, -5});
    tui_canvas_free(&c);
    tui_table_free(&t);
}

/* Only the rows in sight are asked for, whatever the size of the table. */
static size_t asked;
static void counted_cell(void *ctx, size_t row, size_t column, struct tui_value *out)
{
    asked++;
    number_cell(ctx, row, column, out);
}

static void test_asks_for_little(void **state)
{
    static const struct tui_column columns[] = {{"cube", TUI_RIGHT, 0, 0, 0}, {"n", 0, 0, 0, 0}};
    struct tui_source s = {
        .columns = columns, .n_columns = 2, .n_rows = 1000000, .cell = counted_cell};
    struct tui_table t = {0};
    struct tui_canvas c;

    (void)state;
    assert_int_equal(tui_canvas_new(&c, 24, 80, 1, NULL), 0);
    asked = 0;
    assert_int_equal(tui_table_source(&t, &s, NULL), 0);
    tui_table_end(&t, 1);
    tui_table_draw(&t, &c, (struct tui_rect){0, 0, 24, 80});
    assert_int_equal(tui_table_row(&t), 999999);
    assert_in_range(asked, 46, 4 * 46);
    tui_canvas_free(&c);
    tui_table_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pictures),    cmocka_unit_test(test_cursor_and_matches),
        cmocka_unit_test(test_spans),       cmocka_unit_test(test_own_columns),
        cmocka_unit_test(test_widths_stay), cmocka_unit_test(test_cell_cursor),
        cmocka_unit_test(test_every_size),  cmocka_unit_test(test_asks_for_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
