/* test_keys.c: every request can be reached and is explained; no key and no name is given twice. */
#include "tests/unit/testing.h"

#include "tui/keys.h"

#include <string.h>

static void test_every_request(void **state)
{
    (void)state;
    for (int request = TUI_NONE + 1; request < TUI_REQUESTS; request++) {
        const struct tui_binding *b = tui_binding_of(request);
        if (!b || !b->keys[0] || !b->name || !b->name[0] || !b->help || !b->help[0] || !b->group) {
            print_error("request %d lacks a key, a name, a help text or a group\n", request);
            fail();
        }
        assert_int_equal(tui_request_of_name(b->name), request);
        assert_null(strpbrk(b->name, " _:<>\t"));
        for (int k = 0; k < 3 && b->keys[k]; k++)
            assert_int_equal(tui_request_of_key(b->keys[k]), request);
    }
    assert_null(tui_binding_of(TUI_NONE));
    assert_null(tui_binding_of(TUI_REQUESTS));
    assert_int_equal(tui_request_of_key(""), TUI_NONE);
    assert_int_equal(tui_request_of_key("nothing"), TUI_NONE);
    assert_int_equal(tui_request_of_name(""), TUI_NONE);
    assert_int_equal(tui_request_of_name("dwon"), TUI_NONE);
}

static void test_nothing_twice(void **state)
{
    (void)state;
    size_t n;
    const struct tui_binding *b = tui_bindings(&n);
    assert_int_equal(n, TUI_REQUESTS - 1);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            for (int k = 0; k < 3 && b[i].keys[k]; k++)
                for (int m = 0; m < 3 && b[j].keys[m]; m++)
                    if ((i != j || k != m) && strcmp(b[i].keys[k], b[j].keys[m]) == 0) {
                        print_error("%s is a key of %s and of %s\n", b[i].keys[k], b[i].name,
                                    b[j].name);
                        fail();
                    }
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(b[i].request, b[j].request);
            assert_string_not_equal(b[i].name, b[j].name);
        }
}

/* The keys that people know from elsewhere. */
static void test_promised_keys(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        int request;
    } promised[] = {
        {"j", TUI_DOWN},
        {"k", TUI_UP},
        {"^D", TUI_HALF_DOWN},
        {"^U", TUI_HALF_UP},
        {"PgDn", TUI_PAGE_DOWN},
        {"PgUp", TUI_PAGE_UP},
        {"g", TUI_FIRST},
        {"G", TUI_LAST},
        {"h", TUI_LEFT_},
        {"l", TUI_RIGHT_},
        {"Enter", TUI_ENTER},
        {"Esc", TUI_BACK},
        {"Tab", TUI_NEXT_VIEW},
        {"1", TUI_VIEW_1},
        {"7", TUI_VIEW_7},
        {"e", TUI_NEXT_DRIFT},
        {"E", TUI_PREVIOUS_DRIFT},
        {"f", TUI_FIRST_ORIGIN},
        {"w", TUI_NEXT_JUMP},
        {"W", TUI_PREVIOUS_JUMP},
        {"[", TUI_PREVIOUS_ROW},
        {"]", TUI_NEXT_ROW},
        {"{", TUI_PREVIOUS_LAYER},
        {"}", TUI_NEXT_LAYER},
        {"/", TUI_SEARCH},
        {"n", TUI_SEARCH_NEXT},
        {"N", TUI_SEARCH_PREVIOUS},
        {"\\", TUI_FILTER},
        {"s", TUI_SORT},
        {"S", TUI_SORT_REVERSE},
        {"m", TUI_MARK_},
        {"u", TUI_UNMARK},
        {"U", TUI_UNMARK_ALL},
        {"d", TUI_METRIC},
        {"x", TUI_NUMBER},
        {"y", TUI_COMMAND},
        {":", TUI_PROMPT},
        {"R", TUI_RELOAD},
        {"^L", TUI_REDRAW},
        {"^Z", TUI_SUSPEND},
        {"?", TUI_HELP},
        {"q", TUI_CLOSE},
        {"Q", TUI_QUIT},
    };
    for (size_t i = 0; i < sizeof promised / sizeof promised[0]; i++)
        if (tui_request_of_key(promised[i].key) != promised[i].request) {
            print_error("key %s is not what it should be\n", promised[i].key);
            fail();
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_request),
        cmocka_unit_test(test_nothing_twice),
        cmocka_unit_test(test_promised_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
