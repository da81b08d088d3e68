/* test_layout.c: every size from 20x5 to 400x150 with many wishes: what is placed is on the screen and apart. */
#include "tests/unit/testing.h"

#include "tui/layout.h"

static int on_screen(const struct tui_rect *r, int lines, int columns)
{
    return r->h == 0 || (r->h > 0 && r->w > 0 && r->y >= 0 && r->x >= 0 && r->y + r->h <= lines &&
                         r->x + r->w <= columns);
}

static int overlap(const struct tui_rect *a, const struct tui_rect *b)
{
    return a->h && b->h && a->y < b->y + b->h && b->y < a->y + a->h && a->x < b->x + b->w &&
           b->x < a->x + a->w;
}

static void check(int lines, int columns, const struct tui_want *want)
{
    struct tui_layout l;
    tui_layout(lines, columns, want, &l);
    const struct tui_rect *r[] = {&l.title, &l.head, &l.table, &l.panel, &l.status, &l.keys};
    enum { N = sizeof r / sizeof r[0] };
    int bad = 0;
    if (l.too_small) {
        for (int i = 0; i < N; i++)
            bad |= r[i]->h != 0;
        bad |= lines >= TUI_MIN_LINES && columns >= TUI_MIN_COLUMNS;
    } else {
        bad |= lines < TUI_MIN_LINES || columns < TUI_MIN_COLUMNS;
        for (int i = 0; i < N; i++) {
            bad |= !on_screen(r[i], lines, columns);
            for (int j = 0; j < i; j++)
                bad |= overlap(r[i], r[j]);
        }
        bad |= l.table.h < 4 || l.title.h != 1 || l.status.h != 1 || l.keys.h != 1;
        bad |= l.panel.h && want->panel_columns <= 0 && want->panel_lines <= 0;
        if (l.panel_beside)
            bad |= l.table.w < want->table_columns || l.panel.w < want->panel_columns;
        else
            bad |= l.panel.h && l.panel.h > want->panel_lines;
    }
    if (bad) {
        print_error("%dx%d, head %d, panel %d columns %d lines, table %d\n", columns, lines,
                    want->head_lines, want->panel_columns, want->panel_lines, want->table_columns);
        fail();
    }
}

static void test_all_sizes(void **state)
{
    (void)state;
    static const int head[] = {-1, 0, 1, 6, 200}, wide[] = {0, 1, 40, 500},
                     high[] = {-1, 0, 1, 8, 300}, table[] = {-1, 0, 30, 80, 500};
    for (int lines = 5; lines <= 150; lines++)
        for (int columns = 20; columns <= 400; columns++)
            for (int i = 0; i < 5 * 4 * 5 * 5; i++) {
                struct tui_want w = {head[i % 5], wide[i / 5 % 4], high[i / 20 % 5],
                                     table[i / 100]};
                check(lines, columns, &w);
            }
}

static void test_what_goes_where(void **state)
{
    (void)state;
    struct tui_want want = {3, 40, 8, 60};
    struct tui_layout l;
    tui_layout(24, 80, &want, &l);
    assert_int_equal(l.panel_beside, 0);
    assert_int_equal(l.panel.h, 8);
    assert_int_equal(l.table.y, 4);
    tui_layout(40, 120, &want, &l);
    assert_int_equal(l.panel_beside, 1);
    assert_true(l.panel.w >= 40 && l.table.w >= 60);
    tui_layout(12, 60, &want, &l);
    assert_int_equal(l.too_small, 0);
    assert_true(l.table.h >= 4);
    tui_layout(12, 59, &want, &l);
    assert_int_equal(l.too_small, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_sizes),
        cmocka_unit_test(test_what_goes_where),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
