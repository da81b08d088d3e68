/* test_canvas.c: text in cells: nothing that a terminal would obey gets in, and nothing is half a character. */
#include "tests/unit/testing.h"

#include "base/buf.h"
#include "tui/canvas.h"

#include <stdlib.h>
#include <string.h>

/* A line of w cells after `text` was put at x with `limit` cells. */
static void expect_line(int ascii, int w, int x, int limit, const char *text, const char *want)
{
    struct tui_canvas c;
    struct ds_error err;
    struct ds_buf out = {0};
    assert_ok(tui_canvas_new(&c, 1, w, ascii, &err), err);
    tui_put(&c, 0, x, limit, TUI_PLAIN, 0, text);
    tui_canvas_text(&c, &out);
    assert_int_equal(out.data[out.len - 1], '\n');
    out.data[out.len - 1] = '\0';
    if (strcmp(out.data, want) != 0) {
        print_error("'%s' in %d cells at %d: got '%s', want '%s'\n", text, limit, x, out.data,
                    want);
        fail();
    }
    ds_buf_free(&out);
    tui_canvas_free(&c);
}

static void test_text(void **state)
{
    (void)state;
    expect_line(0, 10, 0, 10, "plain", "plain");
    expect_line(0, 10, 2, 10, "plain", "  plain");
    expect_line(0, 10, 0, 4, "plain", "pla›");
    expect_line(1, 10, 0, 4, "plain", "pla>");
    expect_line(0, 10, 0, 5, "plain", "plain");
    expect_line(0, 4, 2, 100, "plain", "  p›");
    expect_line(0, 10, 0, 1, "plain", "›");
    expect_line(0, 10, 10, 5, "plain", "");
    expect_line(0, 10, -1, 5, "plain", "");
    expect_line(0, 10, 0, 0, "plain", "");
    expect_line(0, 10, 0, -5, "plain", "");
    expect_line(0, 10, 0, 10, "", "");
}

static void test_untrusted(void **state)
{
    (void)state;
    expect_line(0, 40, 0, 40, "a\033[2Jb", "a\\x1b[2Jb");
    expect_line(0, 40, 0, 40, "a\nb\tc\rd\177", "a\\nb\\tc\\rd\\x7f");
    expect_line(0, 40, 0, 40, "back\\slash", "back\\slash");
    expect_line(0, 40, 0, 40, "\302\233m", "\\xc2\\x9bm");          /* C1: CSI */
    expect_line(0, 40, 0, 40, "\377\300\200.", "\\xff\\xc0\\x80."); /* ill-formed */
    expect_line(0, 40, 0, 40, "e\314\201", "e\\xcc\\x81");          /* combining acute */
    expect_line(0, 40, 0, 40, "\342\200\256x", "\\xe2\\x80\\xaex"); /* right-to-left override */
    expect_line(0, 40, 0, 40, "\342\200\213x", "\\xe2\\x80\\x8bx"); /* zero width space */
    expect_line(0, 40, 0, 40, "\355\240\200", "\\xed\\xa0\\x80");   /* surrogate */
    expect_line(1, 40, 0, 40, "\303\251", "\\xc3\\xa9");            /* ASCII: bytes */
    expect_line(1, 40, 0, 40, "▁▃█─│░↑", ".-#-|.^");
}

static void test_wide(void **state)
{
    (void)state;
    expect_line(0, 10, 0, 10, "日本", "日本");
    expect_line(0, 10, 0, 4, "日本", "日本");
    expect_line(0, 10, 0, 3, "日本", "日›");
    expect_line(0, 10, 0, 2, "日本", " ›");
    expect_line(0, 10, 0, 4, "日本語", "日 ›");
    expect_line(0, 3, 0, 9, "日本", "日›");
    assert_int_equal(tui_text_width("日本", 0), 4);
    assert_int_equal(tui_text_width("日", 1), 12);
    assert_int_equal(tui_text_width("\n", 0), 2);

    /* What is written over half of a wide character leaves no half behind. */
    struct tui_canvas c;
    struct ds_error err;
    struct ds_buf out = {0};
    assert_ok(tui_canvas_new(&c, 1, 6, 0, &err), err);
    tui_put(&c, 0, 0, 6, TUI_PLAIN, 0, "日本語");
    tui_put(&c, 0, 1, 2, TUI_PLAIN, 0, "ab");
    tui_put(&c, 0, 5, 1, TUI_PLAIN, 0, "c");
    tui_canvas_text(&c, &out);
    assert_string_equal(out.data, " ab  c\n");
    ds_buf_free(&out);
    tui_canvas_free(&c);
}

static void expect_right(int w, const char *text, const char *want)
{
    struct tui_canvas c;
    struct ds_error err;
    struct ds_buf out = {0};
    assert_ok(tui_canvas_new(&c, 1, 20, 0, &err), err);
    tui_put_right(&c, 0, 0, w, TUI_PLAIN, 0, text);
    tui_canvas_text(&c, &out);
    assert_string_equal(out.data, want);
    ds_buf_free(&out);
    tui_canvas_free(&c);
}

static void test_right(void **state)
{
    (void)state;
    expect_right(6, "abc", "   abc\n");
    expect_right(3, "abc", "abc\n");
    expect_right(3, "abcdef", "‹ef\n");
    expect_right(1, "abcdef", "‹\n");
    expect_right(4, "日本語", "‹ 語\n");
}

static void test_cells(void **state)
{
    (void)state;
    struct tui_canvas c;
    struct ds_error err;
    assert_ok(tui_canvas_new(&c, 3, 8, 0, &err), err);
    tui_put(&c, 1, 1, 3, TUI_ORIGIN, TUI_BOLD, "日x");
    assert_int_equal(c.cells[9].ch, 0x65e5);
    assert_int_equal(c.cells[10].ch, 0);
    assert_int_equal(c.cells[10].role, TUI_ORIGIN);
    assert_int_equal(c.cells[11].ch, 'x');
    assert_int_equal(c.cells[11].attr, TUI_BOLD);
    tui_mark_cells(&c, (struct tui_rect){1, -3, 9, 100}, TUI_CURSOR);
    assert_int_equal(c.cells[8].attr, TUI_CURSOR);
    assert_int_equal(c.cells[11].attr, TUI_BOLD | TUI_CURSOR);
    assert_int_equal(c.cells[0].attr, 0);
    tui_fill(&c, (struct tui_rect){-1, -1, 100, 100}, TUI_G_HLINE, TUI_DIM);
    assert_int_equal(c.cells[23].ch, 0x2500);
    tui_put_glyph(&c, 9, 9, TUI_G_UP, 0, 0);
    tui_put_glyph(&c, 0, 0, 12345, 0, 0);
    assert_int_equal(c.cells[0].ch, ' ');
    tui_canvas_free(&c);
    assert_int_equal(tui_canvas_new(&c, 0, 8, 0, &err), -1);
    assert_int_equal(tui_canvas_new(&c, 8, 1001, 0, &err), -1);
}

/* Any bytes: what comes out is printable, well-formed and as wide as was said. */
static void test_any_bytes(void **state)
{
    (void)state;
    uint32_t seed = 1;
    struct tui_canvas c;
    struct ds_error err;
    assert_ok(tui_canvas_new(&c, 1, 30, 0, &err), err);
    for (int round = 0; round < 50000; round++) {
        char text[24];
        struct ds_buf out = {0};
        size_t n = 0;
        for (size_t len = round % 20; n < len; n++) {
            seed = seed * 1664525u + 1013904223u;
            text[n] = (char)(seed >> 24 | 1);
            if (seed & 256)
                text[n] = (char)("\343\201\202\314\342\200"[seed >> 10 & 3] | 1);
        }
        text[n] = '\0';
        tui_canvas_clear(&c);
        int used = tui_put(&c, 0, 3, 20, 0, 0, text), width = tui_text_width(text, 0);
        assert_int_equal(used, width > 20 ? 20 : width);
        tui_canvas_text(&c, &out);
        for (size_t i = 0; i < out.len - 1;) {
            int len = ds_utf8_len(out.data + i, out.len - i);
            assert_true(len > 0 && (unsigned char)out.data[i] >= 0x20 && out.data[i] != 0x7f);
            i += (size_t)len;
        }
        ds_buf_free(&out);
    }
    tui_canvas_free(&c);
}

static void test_breaking_text(void **state)
{
    (void)state;
    assert_int_equal(tui_text_break("one two", 20, 0), 7);
    assert_int_equal(tui_text_break("one two", 5, 0), 4);    /* behind the space */
    assert_int_equal(tui_text_break("a abcdefgh", 6, 0), 6); /* no space is near */
    assert_int_equal(tui_text_break("", 5, 0), 0);
    assert_int_equal(tui_text_break("\303\251\303\251\303\251", 2, 0),
                     4);                                        /* e acute, three times */
    assert_int_equal(tui_text_break("\346\227\245x", 1, 0), 3); /* wider than there is room */
    /* Every part goes on until the text is done. */
    const char *text = "\346\227\245\346\234\254 a\377b \303\251";
    for (int w = 1; w < 12; w++)
        for (int ascii = 0; ascii < 2; ascii++)
            for (size_t at = 0, n; at < strlen(text); at += n) {
                n = tui_text_break(text + at, w, ascii);
                assert_true(n >= 1 && at + n <= strlen(text));
                assert_int_not_equal(text[at + n] & 0xc0, 0x80);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),          cmocka_unit_test(test_untrusted),
        cmocka_unit_test(test_wide),          cmocka_unit_test(test_right),
        cmocka_unit_test(test_cells),         cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_breaking_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
