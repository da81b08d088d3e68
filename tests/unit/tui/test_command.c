/* test_command.c: lines of commands taken apart, keys of scripts, completion; and the prompt that they are typed into. */
#include "tests/unit/testing.h"

#include "tui/command.h"
#include "tui/keys.h"
#include "tui/prompt.h"

#include <string.h>

/* ---- lines ----------------------------------------------------------------------------------- */

static void test_lines(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int id;
        const char *first, *second;
    } cases[] = {
        {"", TUI_CMD_NONE, "", ""},
        {"   ", TUI_CMD_NONE, "", ""},
        {"# goto x", TUI_CMD_NONE, "", ""},
        {":", TUI_CMD_NONE, "", ""},
        {"goto 0,q_proj", TUI_CMD_GOTO, "0,q_proj", ""},
        {" : goto  0,q_proj ", TUI_CMD_GOTO, "0,q_proj", ""},
        {"arm 3", TUI_CMD_ARM, "3", ""},
        {"ref 0", TUI_CMD_REF, "0", ""},
        {"view site", TUI_CMD_VIEW, "site", ""},
        {"set metric abs", TUI_CMD_SET, "metric", "abs"},
        {"sort", TUI_CMD_SORT, "", ""},
        {"sort max_ulp desc", TUI_CMD_SORT, "max_ulp", "desc"},
        {"sort 'max ulp'", TUI_CMD_SORT, "max ulp", ""},
        {"filter", TUI_CMD_FILTER, "", ""},
        {"filter label=drift  !a ", TUI_CMD_FILTER, "label=drift  !a", ""},
        {"search \"a b\"", TUI_CMD_SEARCH, "\"a b\"", ""},
        {"export a.tsv", TUI_CMD_EXPORT, "a.tsv", ""},
        {"export \"a b\" json", TUI_CMD_EXPORT, "a b", "json"},
        {"key ^D", TUI_CMD_KEY, "^D", ""},
        {"keys j k<Enter>", TUI_CMD_KEYS, "j k<Enter>", ""},
        {"size 80x24", TUI_CMD_SIZE, "80x24", ""},
        {"save-display f attributes", TUI_CMD_SAVE_DISPLAY, "f", "attributes"},
        {"wait", TUI_CMD_WAIT, "", ""},
        {"next-drift", TUI_CMD_REQUEST, "", ""},
        {":quit", TUI_CMD_REQUEST, "", ""},
    };
    struct tui_line l;
    struct ds_error err;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_ok(tui_command_parse(cases[i].text, &l, &err), err);
        if (l.id != cases[i].id || strcmp(l.word[0], cases[i].first) != 0 ||
            strcmp(l.word[1], cases[i].second) != 0)
            fail_msg("'%s': command %d, '%s', '%s'", cases[i].text, l.id, l.word[0], l.word[1]);
    }
    assert_ok(tui_command_parse("export! x", &l, &err), err);
    assert_int_equal(l.force, 1);
    assert_ok(tui_command_parse("next-drift", &l, &err), err);
    assert_int_equal(l.request, TUI_NEXT_DRIFT);
}

static void test_wrong_lines(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says, *hint;
    } cases[] = {
        {"gto 0,x", "unknown command 'gto'", "did you mean 'goto'?"},
        {"next-drfit", "unknown command 'next-drfit'", "did you mean 'next-drift'?"},
        {"xyzzyplugh", "unknown command 'xyzzyplugh'", "? lists keys and commands"},
        {"goto", "'goto' needs LAYER,STAGE[/PART]", ""},
        {"set metric", "'set' needs metric|number|ascii VALUE", ""},
        {"goto a b", "'goto' has no use for 'b'", ""},
        {"wait 3", "'wait' has no use for '3'", ""},
        {"quit now", "'quit' has no use for 'now'", ""},
        {"search", "'search' needs TEXT", ""},
        {"filter! x", "unknown command 'filter!'", "did you mean 'filter'?"},
    };
    struct tui_line l;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_error err = {{0}, {0}};
        assert_int_equal(tui_command_parse(cases[i].text, &l, &err), -1);
        assert_string_equal(err.msg, cases[i].says);
        assert_string_equal(err.hint, cases[i].hint);
    }
}

/* A part of a word would name another file; a part of a line would type fewer keys. */
static void test_no_word_is_cut(void **state)
{
    (void)state;
    static const struct {
        const char *before, *behind;
    } cases[] = {{"keys ", " \t"},      {"filter ", ""},
                 {"save-display ", ""}, {"export \"", "\" tsv"},
                 {"export a.tsv ", ""}, {"search ", "\r"},
                 {"goto '", "'"},       {"save-display f \"", "\""}};
    enum { MOST = 511 };
    char word[MOST + 2], text[MOST + 64];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int n = MOST; n <= MOST + 1; n++) {
            struct tui_line l;
            struct ds_error err = {{0}, {0}};
            memset(word, 'j', sizeof word);
            word[n] = '\0';
            snprintf(text, sizeof text, "%s%s%s", cases[i].before, word, cases[i].behind);
            const int rc = tui_command_parse(text, &l, &err);
            assert_int_equal(rc, n > MOST ? -1 : 0);
            if (rc == 0 && strcmp(l.word[0], word) != 0)
                assert_string_equal(l.word[1], word);
            else if (rc != 0)
                assert_non_null(strstr(err.msg, "...' is longer than 511 bytes"));
        }
}

/* No command hides a request of the same name, unless that is what its key asks the prompt for. */
static void test_names_are_apart(void **state)
{
    (void)state;
    size_t n;
    const struct tui_command_def *c = tui_commands(&n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(tui_request_of_name(c[i].name), TUI_NONE);
        assert_true(c[i].help[0] != '\0');
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(c[i].name, c[j].name);
    }
}

static void test_keys(void **state)
{
    (void)state;
    static const char *const want[] = {"j", "Enter", "^D", "<", "日", "Space", "PgDn", ">", "é"};
    const char *p = "j<Enter><^D><lt>日 <PgDn>>é";
    char name[16];
    struct ds_error err;
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        assert_int_equal(tui_command_next_key(&p, name, &err), 1);
        assert_string_equal(name, want[i]);
    }
    assert_int_equal(tui_command_next_key(&p, name, &err), 0);
    static const char *const wrong[] = {
        "<", "<Enter", "<Entr>", "<>", "\033", "\377", "<averyverylongname>"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        p = wrong[i];
        assert_int_equal(tui_command_next_key(&p, name, &err), -1);
    }
    size_t n;
    const struct tui_binding *b = tui_bindings(&n);
    for (size_t i = 0; i < n; i++) { /* every key of the table can be pressed by a script */
        char text[24];
        snprintf(text, sizeof text, "<%s>", b[i].keys[0]);
        p = text;
        assert_int_equal(tui_command_next_key(&p, name, &err), 1);
        assert_string_equal(name, b[i].keys[0]);
    }
}

/* ---- completion ------------------------------------------------------------------------------ */

static const char *name_of(void *ctx, int kind, const char *before, size_t i)
{
    static const char *const sites[] = {"0,q_proj", "0,q_rope", "1,q_proj", NULL},
                             *const metrics[] = {"bits", "ulp", NULL}, *const others[] = {NULL};
    (void)ctx;
    return (kind == TUI_WORD_SITE                                     ? sites
            : kind == TUI_WORD_VALUE && strcmp(before, "metric") == 0 ? metrics
                                                                      : others)[i];
}

static void expect_completion(const char *text, size_t begin, const char *want)
{
    struct ds_buf out = {0};
    struct tui_names names = {name_of, NULL};
    size_t at;
    tui_command_complete(text, strlen(text), &names, &at, &out);
    if (at != begin || strcmp(out.data ? out.data : "", want) != 0)
        fail_msg("'%s': at %zu: '%s'", text, at, out.data ? out.data : "");
    ds_buf_free(&out);
}

static void test_completion(void **state)
{
    (void)state;
    expect_completion("go", 0, "goto\n");
    expect_completion(
        "next-", 0,
        "next-view\nnext-drift\nnext-jump\nnext-row\nnext-layer\nnext-arm\nnext-reference\n");
    expect_completion("xyz", 0, "");
    expect_completion("goto ", 5, "0,q_proj\n0,q_rope\n1,q_proj\n");
    expect_completion("goto 0", 5, "0,q_proj\n0,q_rope\n");
    expect_completion("goto  0,q_p", 6, "0,q_proj\n");
    expect_completion("set ", 4, "metric\nnumber\nascii\n");
    expect_completion("set metric u", 11, "ulp\n");
    expect_completion("set number u", 11, "");
    expect_completion("export x j", 9, "json\n");
    expect_completion("export! x t", 10, "text\ntsv\n");
    expect_completion("sort x d", 7, "desc\n");
    expect_completion("filter a", 7, "");
    expect_completion("goto 0,q_proj x", 14, "");
    expect_completion("nothing x", 8, "");
}

/* ---- the prompt ------------------------------------------------------------------------------ */

static int type(struct tui_prompt *p, const char *keys)
{
    char name[16];
    struct ds_error err;
    int what = TUI_TYPING;
    while (tui_command_next_key(&keys, name, &err) == 1)
        what = tui_prompt_key(p, name);
    return what;
}

static void test_prompt_edits(void **state)
{
    (void)state;
    static const struct {
        const char *keys, *text;
        size_t at;
    } cases[] = {
        {"abc", "abc", 3},
        {"a日é", "a日é", 6},
        {"a日é<Backspace>", "a日", 4},
        {"a日<Left>x", "ax日", 2},
        {"abc<Home>x", "xabc", 1},
        {"abc<^A><^F>x<End>y", "axbcy", 5},
        {"ab<Left><Del>", "a", 1},
        {"ab<Del>", "ab", 2},
        {"a b c<^W>", "a b ", 4},
        {"a b  <^W>", "a ", 2},
        {"abc<Left><^U>", "c", 0},
        {"abc<Left><Left><^K>", "a", 1},
        {"<Left><Right><PgDn><F1>", "", 0},
        {"a b<lt>", "a b<", 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tui_prompt p = {0};
        tui_prompt_open(&p, TUI_PROMPT_COMMAND, "");
        type(&p, cases[i].keys);
        if (strcmp(p.text, cases[i].text) != 0 || p.at != cases[i].at)
            fail_msg("%s: '%s' at %zu", cases[i].keys, p.text, p.at);
        tui_prompt_free(&p);
    }
    struct tui_prompt p = {0};
    tui_prompt_open(&p, TUI_PROMPT_SEARCH, "x");
    assert_int_equal(type(&p, "<Enter>"), TUI_DONE);
    assert_int_equal(type(&p, "<Esc>"), TUI_GIVEN_UP);
    assert_int_equal(type(&p, "<Tab>"), TUI_COMPLETE);
    assert_int_equal(type(&p, "<Backspace>"), TUI_TYPED);
    assert_int_equal(type(&p, "<Backspace>"), TUI_GIVEN_UP);
    for (int i = 0; i < 2 * TUI_PROMPT_TEXT; i++)
        type(&p, "日");
    assert_true(strlen(p.text) < TUI_PROMPT_TEXT && strlen(p.text) % 3 == 0);
    tui_prompt_free(&p);
}

static void enter(struct tui_prompt *p, int kind, const char *text)
{
    tui_prompt_open(p, kind, "");
    type(p, text);
    tui_prompt_close(p, 1);
}

static void test_history(void **state)
{
    (void)state;
    struct tui_prompt p = {0};
    enter(&p, TUI_PROMPT_COMMAND, "one");
    enter(&p, TUI_PROMPT_COMMAND, "two");
    enter(&p, TUI_PROMPT_COMMAND, "two");
    enter(&p, TUI_PROMPT_SEARCH, "other");
    enter(&p, TUI_PROMPT_COMMAND, "");
    tui_prompt_open(&p, TUI_PROMPT_COMMAND, "");
    type(&p, "ha<Up>");
    assert_string_equal(p.text, "two");
    type(&p, "<Up>");
    assert_string_equal(p.text, "one");
    type(&p, "<Up>");
    assert_string_equal(p.text, "one");
    type(&p, "<Down><Down>");
    assert_string_equal(p.text, "ha");
    type(&p, "<Down>");
    assert_string_equal(p.text, "ha");
    tui_prompt_close(&p, 0);
    for (int i = 0; i < 3 * TUI_PROMPT_HISTORY; i++) {
        char text[16];
        snprintf(text, sizeof text, "n%d", i);
        enter(&p, TUI_PROMPT_COMMAND, text);
    }
    tui_prompt_open(&p, TUI_PROMPT_COMMAND, "");
    type(&p, "<Up>");
    assert_string_equal(p.text, "n149");
    tui_prompt_free(&p);
}

static void expect_offer(const char *typed, size_t begin, const char *candidates, const char *text,
                         const char *offers)
{
    struct tui_prompt p = {0};
    tui_prompt_open(&p, TUI_PROMPT_COMMAND, typed);
    tui_prompt_offer(&p, begin, candidates);
    assert_string_equal(p.text, text);
    assert_string_equal(p.offers, offers);
    tui_prompt_free(&p);
}

static void test_offers(void **state)
{
    (void)state;
    expect_offer("go", 0, "goto\n", "goto ", "");
    expect_offer("goto 0,q_", 5, "0,q_proj\n0,q_rope\n", "goto 0,q_", "0,q_proj  0,q_rope");
    expect_offer("goto 0", 5, "0,q_proj\n0,q_rope\n", "goto 0,q_", "0,q_proj  0,q_rope");
    expect_offer("xyz", 0, "", "xyz", "nothing fits");
    expect_offer("", 0, "a\nb\n", "", "a  b");
}

static void test_prompt_draws(void **state)
{
    (void)state;
    struct tui_prompt p = {0};
    struct tui_canvas c;
    struct ds_error err;
    struct ds_buf out = {0};
    struct tui_rect line = {0, 0, 1, 10};
    assert_ok(tui_canvas_new(&c, 1, 10, 0, &err), err);
    tui_prompt_open(&p, TUI_PROMPT_FILTER, "abc");
    assert_int_equal(tui_prompt_draw(&p, &c, line), 4);
    tui_prompt_open(&p, TUI_PROMPT_COMMAND, "0123456789abcdef");
    tui_canvas_clear(&c);
    assert_int_equal(tui_prompt_draw(&p, &c, line), 9);
    tui_canvas_text(&c, &out);
    assert_string_equal(out.data, ":‹9abcdef\n");
    ds_buf_free(&out);
    tui_canvas_free(&c);
    tui_prompt_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),          cmocka_unit_test(test_wrong_lines),
        cmocka_unit_test(test_no_word_is_cut), cmocka_unit_test(test_names_are_apart),
        cmocka_unit_test(test_keys),           cmocka_unit_test(test_completion),
        cmocka_unit_test(test_prompt_edits),   cmocka_unit_test(test_history),
        cmocka_unit_test(test_offers),         cmocka_unit_test(test_prompt_draws),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
