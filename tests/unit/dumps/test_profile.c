/* test_profile.c: sets told in ranges; heads and channels of element counts; percentiles. */
#include "tests/unit/testing.h"

#include "dumps/profile.h"

#include <string.h>

/* One character a member: '.' equal, 'x' differs, ' ' not compared. */
static void check_set(const char *drawn, int open, const char *want)
{
    uint8_t state[256];
    char text[DS_PROFILE_TEXT];
    size_t n = strlen(drawn);
    for (size_t i = 0; i < n; i++)
        state[i] = drawn[i] == 'x'   ? DS_MEMBER_DIFFERS
                   : drawn[i] == '.' ? DS_MEMBER_SAME
                                     : DS_MEMBER_UNKNOWN;
    ds_profile_set(state, NULL, n, open, text);
    if (strcmp(text, want) != 0)
        fail_msg("'%s' is told as '%s', not '%s'", drawn, text, want);
}

static void test_sets(void **state)
{
    (void)state;
    check_set("", 1, "none");
    check_set("....", 1, "none");
    check_set("xxxx", 1, "all");
    check_set("x x ", 1, "all");
    check_set(".xxx", 0, "1-3");
    check_set(".xxx", 1, "1-");
    check_set(".xxx  ", 1, "1-");
    check_set(".xx.", 1, "1-2");
    check_set(".x x.", 1, "1-3");
    check_set("...x", 1, "3");
    check_set(".........xxxxxxx.........xxxxxxx.", 1, "9-15, 25-31");
    check_set(".x.x.x.x", 0, "every 2nd from 1");
    check_set("x..x..x..", 0, "every 3rd from 0");
    check_set("x..x..x...", 0, "0, 3, 6");
    check_set("x.xx.x.x.xx.x.x...", 0, "9 of 18, 0 to 14");
}

static void test_names(void **state)
{
    (void)state;
    const uint8_t s[] = {DS_MEMBER_SAME, DS_MEMBER_DIFFERS, DS_MEMBER_DIFFERS};
    const int32_t names[] = {-1, 7, 9};
    char text[DS_PROFILE_TEXT];
    ds_profile_set(s, names, 3, 0, text);
    assert_string_equal(text, "7-9");
    /* Rows of padding stand before position 0. */
    const int32_t pads[] = {-3, -2, -1, 0};
    const uint8_t before[] = {DS_MEMBER_DIFFERS, DS_MEMBER_DIFFERS, DS_MEMBER_DIFFERS,
                              DS_MEMBER_SAME};
    ds_profile_set(before, pads, 4, 0, text);
    assert_string_equal(text, "-3 to -1");
}

static void test_heads_and_channels(void **state)
{
    (void)state;
    uint32_t counts[32] = {0};
    char heads[DS_PROFILE_TEXT], channels[DS_PROFILE_TEXT];
    for (int h = 1; h < 4; h++)
        counts[h * 8 + 2] = counts[h * 8 + 3] = 1;
    ds_profile_elements(counts, 32, 8, heads, channels);
    assert_string_equal(heads, "1-3");
    assert_string_equal(channels, "2-3");
    ds_profile_elements(counts, 32, 0, heads, channels);
    assert_string_equal(heads, "");
    assert_string_equal(channels, "10-11, 18-19, 26-27");
    ds_profile_elements(counts, 32, 5, heads, channels);
    assert_string_equal(heads, "");
    assert_string_equal(channels, "");
}

static void test_percentiles(void **state)
{
    (void)state;
    uint64_t v[200];
    for (uint64_t i = 0; i < 200; i++)
        v[i] = i + 1;
    assert_int_equal(ds_profile_percentile(v, 200, 0.99), 198);
    assert_int_equal(ds_profile_percentile(v, 1, 0.99), 1);
    assert_int_equal(ds_profile_percentile(v, 200, 0), 1);
    assert_int_equal(ds_profile_percentile(v, 200, 1), 200);
    assert_int_equal(ds_profile_percentile(v, 0, 0.5), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sets),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_heads_and_channels),
        cmocka_unit_test(test_percentiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
