/* test_app.c: what the frame promises in all views: coming back restores where one was, questions, prompts, names. */
#include "tests/tui/app_fixture.h"

static void keys(struct tui_app *a, const char *text)
{
    char name[16];
    struct ds_error err;
    int rc;
    while ((rc = tui_command_next_key(&text, name, &err)) == 1) {
        tui_app_key(a, name);
        settle(a);
    }
    assert_int_equal(rc, 0);
}

static int view(const struct tui_app *a)
{
    return a->stack[a->depth - 1].view;
}

static struct tui_table *table(struct tui_app *a)
{
    return &tui_app_view(a)->table;
}

static void expect_screen(struct tui_app *a, const char *text, int there)
{
    struct ds_buf b = {0};
    tui_canvas_text(&a->canvas, &b);
    if ((strstr(b.data, text) != NULL) != there) {
        print_error("%s '%s'; message '%s'; in\n", there ? "no" : "there is", text, a->message);
        fputs(b.data, stderr);
        fail();
    }
    ds_buf_free(&b);
}

/* ---- views and the way back ------------------------------------------------------------------ */

static void test_way_back(void **state)
{
    (void)state;
    struct opened *x = open_app(record("drift"), NULL, "layers");
    struct tui_app *a = x->a;
    keys(a, "gj");
    size_t row = table(a)->cursor, column = table(a)->column;
    struct tui_place place = a->place;
    keys(a, "<Enter>");
    assert_int_equal(view(a), 2);
    keys(a, "]]}jj");
    assert_true(a->place.site != place.site);
    keys(a, "<Esc>");
    assert_int_equal(view(a), 1);
    assert_int_equal(a->place.site, place.site);
    assert_int_equal(table(a)->cursor, row);
    assert_int_equal(table(a)->column, column);
    keys(a, "<Esc>");
    assert_int_equal(view(a), 1);
    expect_screen(a, "this is the first view", 1);
    close_app(x);
}

/* Tab and digits change the view on top; q closes it, and the last one ends the program. */
static void test_views(void **state)
{
    (void)state;
    struct opened *x = open_app(record("drift"), NULL, NULL);
    struct tui_app *a = x->a;
    assert_int_equal(view(a), 0);
    for (int i = 1; i < TUI_VIEWS; i++) {
        keys(a, "<Tab>");
        assert_int_equal(view(a), i);
        assert_int_equal(a->depth, 2);
    }
    keys(a, "<Tab>");
    assert_int_equal(view(a), 0);
    assert_int_equal(a->depth, 1);
    keys(a, "<S-Tab>");
    assert_int_equal(view(a), TUI_VIEWS - 1);
    for (char key[2] = "7"; key[0] >= '1'; key[0]--) {
        keys(a, key);
        assert_int_equal(view(a), key[0] - '1');
    }
    keys(a, "3?");
    assert_int_equal(view(a), TUI_HELP_VIEW);
    keys(a, "?q");
    assert_int_equal(view(a), 2);
    keys(a, "q");
    assert_int_equal(view(a), 0);
    assert_int_equal(a->quit, 0);
    keys(a, "q");
    assert_int_equal(a->quit, 1);
    close_app(x);
}

/* A walk without end forgets its middle, not where it began. */
static void test_long_way(void **state)
{
    (void)state;
    struct opened *x = open_app(record("drift"), NULL, NULL);
    struct tui_app *a = x->a;
    for (int i = 0; i < 3 * TUI_STACK; i++) {
        tui_app_open(a, 1 + i % 4, 0, &a->place);
        assert_true(a->depth <= TUI_STACK);
    }
    for (int i = 0; i < 3 * TUI_STACK; i++)
        keys(a, "<Esc>");
    assert_int_equal(a->depth, 1);
    assert_int_equal(view(a), 0);
    close_app(x);
}

static void test_hints_are_requests(void **state)
{
    (void)state;
    for (int i = 0; i < TUI_ALL_VIEWS; i++) {
        const struct tui_view_ops *ops = i < TUI_VIEWS ? tui_views[i] : &tui_view_help;
        int n = 0;
        char name[40];
        for (const char *p = ops->hints; *p; n++) {
            size_t len = strcspn(p, " ");
            snprintf(name, sizeof name, "%.*s", (int)len, p);
            if (!tui_request_of_name(name))
                fail_msg("%s: '%s' is no request", ops->name, name);
            p += len + (p[len] == ' ');
        }
        assert_true(n >= 3);
        assert_non_null(ops->load);
    }
}

/* ---- questions and prompts ------------------------------------------------------------------- */

static int runs = 1, stopped;

static int running(void *ctx)
{
    (void)ctx;
    return runs;
}

static void stop(void *ctx)
{
    (void)ctx;
    stopped++;
}

static void test_asks_before_ending_a_sweep(void **state)
{
    (void)state;
    struct opened *x = open_app(record("drift"), NULL, NULL);
    struct tui_app *a = x->a;
    x->o.running = running;
    x->o.stop = stop;
    keys(a, "Q");
    assert_int_equal(a->quit, 0);
    expect_screen(a, "end the sweep?", 1);
    keys(a, "j");
    assert_int_equal(a->quit, 0);
    assert_int_equal(a->asking, 0);
    expect_screen(a, "end the sweep?", 0);
    keys(a, "qy");
    assert_int_equal(a->quit, 1);
    assert_int_equal(stopped, 1);
    a->quit = 0;
    keys(a, "Qn"); /* it goes on without this screen */
    assert_int_equal(a->quit, 1);
    assert_int_equal(stopped, 1);
    a->quit = 0;
    runs = 0;
    keys(a, "Q");
    assert_int_equal(a->quit, 1);
    assert_int_equal(stopped, 1);
    close_app(x);
}

static void test_search_while_typing(void **state)
{
    (void)state;
    struct opened *x = open_app(record("drift"), NULL, NULL);
    struct tui_app *a = x->a;
    keys(a, "?jjj");
    size_t before = table(a)->cursor;
    keys(a, "/next j");
    assert_true(table(a)->cursor != before);
    keys(a, "<Esc>");
    assert_int_equal(table(a)->cursor, before);
    assert_int_equal(a->prompt.kind, TUI_PROMPT_OFF);
    keys(a, "/next<Enter>");
    size_t first = table(a)->cursor;
    keys(a, "n");
    assert_true(table(a)->cursor > first);
    keys(a, "N");
    assert_int_equal(table(a)->cursor, first);
    keys(a, "/xyzzy<Enter>");
    expect_screen(a, "'xyzzy' is not in this view", 1);
    close_app(x);
}

static int key_is_there;

static int key_there(void)
{
    return key_is_there;
}

/* In 100,000 rows what was typed is seen first; then it is searched, unless the next key is there already. */
static void test_typing_does_not_wait(void **state)
{
    (void)state;
    struct opened *x = open_app(record("long"), NULL, "site");
    struct tui_app *a = x->a;
    const size_t all = table(a)->n_shown;
    keys(a, "g");
    a->input = key_there;
    key_is_there = 0;
    keys(a, "/0:99998");
    assert_int_equal(table(a)->cursor, 1); /* under the heading: patience is 0 */
    assert_int_equal(a->unfinished, 1);
    expect_screen(a, "/0:99998", 1);
    key_is_there = 1;
    tui_app_finish(a);
    assert_int_equal(table(a)->cursor, 1);
    assert_int_equal(a->unfinished, 1);
    key_is_there = 0;
    tui_app_finish(a);
    settle(a);
    assert_int_equal(table(a)->cursor, 99999);
    assert_int_equal(a->unfinished, 0);
    keys(a, "<Esc>\\label=origin");
    assert_int_equal(table(a)->n_shown, all);
    tui_app_finish(a);
    settle(a);
    assert_true(table(a)->n_shown < 200);
    keys(a, "<Esc>\\0:99998<Enter>"); /* all of it, at once */
    assert_int_equal(a->unfinished, 0);
    assert_true(table(a)->n_shown < 10);
    close_app(x);
}

static void test_filter_while_typing(void **state)
{
    (void)state;
    struct opened *x = open_app(record("drift"), NULL, NULL);
    struct tui_app *a = x->a;
    keys(a, "?");
    size_t all = table(a)->n_shown;
    keys(a, "\\next");
    size_t some = table(a)->n_shown;
    assert_true(some < all && some > 0);
    keys(a, "<Enter>\\");
    assert_string_equal(a->prompt.text, "next");
    keys(a, "<^U>nothing=5<Enter>"); /* no such column: as it was */
    assert_int_equal(table(a)->n_shown, some);
    keys(a, "\\<^U><Enter>");
    assert_int_equal(table(a)->n_shown, all);
    close_app(x);
}

static void test_sort_and_marks(void **state)
{
    (void)state;
    struct opened *x = open_app(record("drift"), NULL, "site");
    struct tui_app *a = x->a;
    keys(a, "gmm");
    assert_int_equal(tui_table_marks(table(a)), 2);
    keys(a, "ku");
    assert_int_equal(tui_table_marks(table(a)), 1);
    keys(a, "U");
    assert_int_equal(tui_table_marks(table(a)), 0);
    keys(a, "s");
    assert_int_equal(table(a)->sort, 1);
    keys(a, "S");
    assert_int_equal(table(a)->sort, -1);
    keys(a, "s");
    assert_int_equal(table(a)->sort, 2);
    for (size_t i = 2; i <= table(a)->source.n_columns; i++)
        keys(a, "s");
    assert_int_equal(table(a)->sort, 0);
    close_app(x);
}

static void test_metric_and_number(void **state)
{
    (void)state;
    struct opened *x = open_app(record("drift"), NULL, "site");
    struct tui_app *a = x->a;
    int metric = a->place.metric, number = a->place.number;
    for (int i = 1; i <= TUI_METRICS; i++) {
        keys(a, "d");
        assert_int_equal(a->place.metric, (metric + i) % TUI_METRICS);
    }
    for (int i = 1; i <= TUI_NUMBERS; i++) {
        keys(a, "x");
        assert_int_equal(a->place.number, (number + i) % TUI_NUMBERS);
    }
    /* They stay, whatever view one comes back to. */
    keys(a, "4dx3");
    keys(a, "<Enter>d<Esc>");
    assert_int_equal(a->place.metric, (metric + 2) % TUI_METRICS);
    close_app(x);
}

/* A line longer than the screen is shown whole. */
static void test_long_messages(void **state)
{
    (void)state;
    struct opened *x = open_app(record("drift"), NULL, NULL);
    struct tui_app *a = x->a;
    struct ds_error err;
    char text[400] = "";
    for (int i = 0; i < 30; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "word%d ", i);
    tui_app_size(a, 12, 60);
    tui_app_say(a, TUI_PLAIN, "%s\033[2J", text);
    assert_ok(tui_app_draw(a, &err), err);
    expect_screen(a, "word0 ", 1);
    expect_screen(a, "word29 \\x1b[2J", 1);
    keys(a, "j");
    expect_screen(a, "word0 ", 0);
    close_app(x);
}

/* Every view has a command that shows the same, for every record that can be shown. */
static void test_commands_of_views(void **state)
{
    (void)state;
    struct opened *x = open_app(record("drift"), NULL, NULL);
    struct tui_app *a = x->a;
    for (char key[3] = "1y"; key[0] <= '7'; key[0]++) {
        keys(a, key);
        if (!strstr(a->message, "driftscope ") || !strstr(a->message, "drift.h5"))
            fail_msg("view %c: '%s'", key[0], a->message);
    }
    close_app(x);
}

static void test_unknown_keys_and_wrong_commands(void **state)
{
    (void)state;
    struct opened *x = open_app(record("one"), NULL, NULL);
    struct tui_app *a = x->a;
    keys(a, "<^Y>");
    expect_screen(a, "^Y does nothing here", 1);
    keys(a, ":arm 7<Enter>");
    expect_screen(a, "there is no arm 7", 1);
    keys(a, ":goto 0,embd<Enter>");
    expect_screen(a, "did you mean -1,embed?", 1);
    keys(a, ":size 80x24<Enter>");
    expect_screen(a, "the terminal has the size that it has", 1);
    keys(a, ":<Esc>j");
    expect_screen(a, "the terminal", 0);
    keys(a, "aAr{}[]eEfwW");
    close_app(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_way_back),
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_long_way),
        cmocka_unit_test(test_hints_are_requests),
        cmocka_unit_test(test_asks_before_ending_a_sweep),
        cmocka_unit_test(test_search_while_typing),
        cmocka_unit_test(test_typing_does_not_wait),
        cmocka_unit_test(test_filter_while_typing),
        cmocka_unit_test(test_sort_and_marks),
        cmocka_unit_test(test_metric_and_number),
        cmocka_unit_test(test_long_messages),
        cmocka_unit_test(test_commands_of_views),
        cmocka_unit_test(test_unknown_keys_and_wrong_commands),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
