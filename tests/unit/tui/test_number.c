/* test_number.c: stored values as text: what is unequal never looks equal, what is special says so.
 * */
#include "tests/unit/testing.h"

#include "tui/number.h"
#include "tui/view.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state ^ *state >> 13;
}

/* Bits whose neighbours, and themselves with one bit turned, are other bits: of every text that
 * they have, no two may be equal. */
static void test_unequal_bits_never_look_equal(void **state)
{
    (void)state;
    static const uint32_t special[] = {0,           0x80000000u, 0x7f800000u, 0xff800000u,
                                       0x7fc00000u, 0x7fc00001u, 0x7f800001u, 0xffc00000u,
                                       1,           0x80000001u, 0x007fffffu, 0x00800000u,
                                       0x3f800000u, 0x4b7fffffu, 0x7f7fffffu, 0xffffffffu};
    uint32_t seed = 7;
    for (int dtype = 0; dtype < DS_DTYPE_COUNT; dtype++) {
        uint32_t mask = ds_dtype_size(dtype) == 2 ? 0xffffu : 0xffffffffu;
        int shift = mask == 0xffffu ? 16 : 0;
        for (int i = 0; i < 20000; i++) {
            uint32_t a = i < 16 ? special[i] >> shift : next_random(&seed) & mask;
            uint32_t b =
                i % 2 ? (a + 1) & mask : a ^ 1u << next_random(&seed) % (32u - (uint32_t)shift);
            for (int number = 0; number < TUI_NUMBERS; number++) {
                char x[DS_VALUE_TEXT], y[DS_VALUE_TEXT];
                ds_value_text(dtype, a, number, x);
                ds_value_text(dtype, b & mask, number, y);
                if (strcmp(x, y) == 0)
                    fail_msg("%s %08x and %08x are both %s", ds_dtype_name(dtype), a, b, x);
            }
        }
    }
}

static void test_special_values_say_what_they_are(void **state)
{
    (void)state;
    static const struct {
        int dtype, number;
        uint32_t bits;
        const char *text;
        int kind;
    } cases[] = {
        {DS_F32, TUI_NUMBER_DECIMAL, 0x80000000u, "-0", DS_VALUE_NEGATIVE_ZERO},
        {DS_F32, TUI_NUMBER_DECIMAL, 0, "0", DS_VALUE_ZERO},
        {DS_F32, TUI_NUMBER_A, 0x80000000u, "-0x0p+0", DS_VALUE_NEGATIVE_ZERO},
        {DS_F32, TUI_NUMBER_DECIMAL, 0x7fc00001u, "NaN 7fc00001", DS_VALUE_NAN},
        {DS_F32, TUI_NUMBER_A, 0xffc00000u, "NaN ffc00000", DS_VALUE_NAN},
        {DS_F32, TUI_NUMBER_DECIMAL, 0xff800000u, "-Inf", DS_VALUE_INF},
        {DS_F32, TUI_NUMBER_DECIMAL, 1, "1.40129846e-45", DS_VALUE_SUBNORMAL},
        {DS_F32, TUI_NUMBER_HEX, 1, "00000001", DS_VALUE_SUBNORMAL},
        {DS_BF16, TUI_NUMBER_DECIMAL, 0x3f81u, "1.0078125", DS_VALUE_NORMAL},
        {DS_BF16, TUI_NUMBER_HEX, 0x3f81u, "3f81", DS_VALUE_NORMAL},
        {DS_BF16, TUI_NUMBER_DECIMAL, 0x7fc1u, "NaN 7fc1", DS_VALUE_NAN},
        {DS_BF16, TUI_NUMBER_DECIMAL, 1, "9.18354962e-41", DS_VALUE_SUBNORMAL},
        {DS_F16, TUI_NUMBER_DECIMAL, 0x7c00u, "Inf", DS_VALUE_INF},
        {DS_F16, TUI_NUMBER_DECIMAL, 0x8000u, "-0", DS_VALUE_NEGATIVE_ZERO},
        {DS_F16, TUI_NUMBER_DECIMAL, 1, "5.96046448e-08", DS_VALUE_SUBNORMAL},
        {DS_F16, TUI_NUMBER_DECIMAL, 0x7e01u, "NaN 7e01", DS_VALUE_NAN},
        {DS_I32, TUI_NUMBER_DECIMAL, 0xffffffffu, "-1", DS_VALUE_NORMAL},
        {DS_I32, TUI_NUMBER_A, 0x80000000u, "-2147483648", DS_VALUE_NORMAL},
        {DS_I32, TUI_NUMBER_HEX, 0xffffffffu, "ffffffff", DS_VALUE_NORMAL},
        {DS_I32, TUI_NUMBER_DECIMAL, 0, "0", DS_VALUE_ZERO},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[DS_VALUE_TEXT];
        ds_value_text(cases[i].dtype, cases[i].bits, cases[i].number, text);
        assert_string_equal(text, cases[i].text);
        assert_int_equal(ds_value_kind(cases[i].dtype, cases[i].bits), cases[i].kind);
    }
}

/* The text with [ ] around what is marked. */
static void marked(const char *text, const char *other, int number, char out[64])
{
    struct tui_value v = {.text = ""};
    size_t n = 0;
    snprintf(v.text, sizeof v.text, "%s", text);
    tui_value_mark(&v, other, number);
    for (size_t i = 0; i <= strlen(text); i++) {
        for (int k = 0; k < v.n_spans; k++)
            if (v.span[k].end == i)
                out[n++] = ']';
        for (int k = 0; k < v.n_spans; k++)
            if (v.span[k].begin == i)
                out[n++] = '[';
        if (text[i])
            out[n++] = text[i];
    }
    out[n] = '\0';
}

static void test_marks_what_differs(void **state)
{
    (void)state;
    static const struct {
        const char *text, *other;
        int number;
        const char *want;
    } cases[] = {
        {"3f800000", "3f800000", TUI_NUMBER_HEX, "3f800000"},
        {"3f800001", "3f900000", TUI_NUMBER_HEX, "3f[8]0000[1]"},
        {"12345678", "87654321", TUI_NUMBER_HEX, "[12345678]"},
        {"1a2a3a4a", "1b2b3b4b", TUI_NUMBER_HEX, "1[a]2[a]3[a]4[a]"},
        {"-1.38834417", "-1.38834441", TUI_NUMBER_DECIMAL, "-1.388344[17]"},
        {"1.25", "1.2", TUI_NUMBER_DECIMAL, "1.2[5]"},
        {"1.2", "1.25", TUI_NUMBER_DECIMAL, "1.[2]"},
        {"-0", "0", TUI_NUMBER_DECIMAL, "[-0]"},
        {"0", "-0", TUI_NUMBER_DECIMAL, "[0]"},
        {"NaN 7fc00000", "NaN 7fc00001", TUI_NUMBER_DECIMAL, "NaN 7fc0000[0]"},
        {"0x1.ecb09p-6", "0x1.ecb08p-6", TUI_NUMBER_A, "0x1.ecb0[9]p-6"},
        {"0x1.8p-6", "0x1.8p-5", TUI_NUMBER_A, "0x1.8p-[6]"},
        {"0x1.a8p-6", "0x1.8p-6", TUI_NUMBER_A, "0x1.[a8p-6]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[64];
        marked(cases[i].text, cases[i].other, cases[i].number, out);
        assert_string_equal(out, cases[i].want);
    }
}

static void test_pairs(void **state)
{
    (void)state;
    static const struct {
        int dtype;
        uint32_t mine, ref;
        uint64_t ulp;
        const char *note;
    } cases[] = {
        {DS_F32, 0x3f800000u, 0x3f800001u, 1, ""},
        {DS_F32, 0x80000000u, 0, 0, "values equal"},
        {DS_F32, 0x80000000u, 0x80000000u, 0, "-0"},
        {DS_F32, 0x7fc00000u, 0x7fc00001u, UINT64_MAX, "NaN bits"},
        {DS_F32, 0x7fc00000u, 0x3f800000u, UINT64_MAX, "NaN"},
        {DS_F32, 0x7f800000u, 0x7f7fffffu, 1, "Inf"},
        {DS_F32, 0x80000001u, 0x00000001u, 2, "sign"},
        {DS_F32, 1, 2, 1, "subnormal"},
        {DS_BF16, 0x3f80u, 0x3f82u, 2, ""},
        {DS_F16, 0x7c01u, 0x7c00u, UINT64_MAX, "NaN"},
        {DS_I32, 0x80000000u, 0x7fffffffu, UINT32_MAX, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(ds_value_ulp(cases[i].dtype, cases[i].mine, cases[i].ref), cases[i].ulp);
        assert_string_equal(ds_value_note(cases[i].dtype, cases[i].mine, cases[i].ref),
                            cases[i].note);
    }
}

static void test_bits_as_digits(void **state)
{
    (void)state;
    char text[48];
    ds_value_binary(DS_F32, 0xbf800001u, text);
    assert_string_equal(text, "1 01111111 00000000000000000000001");
    ds_value_binary(DS_BF16, 0x3f81u, text);
    assert_string_equal(text, "0 01111111 0000001");
    ds_value_binary(DS_F16, 0xfc01u, text);
    assert_string_equal(text, "1 11111 0000000001");
    ds_value_binary(DS_I32, 0xff00aa55u, text);
    assert_string_equal(text, "11111111 00000000 10101010 01010101");
}

static void test_sizes_and_bars(void **state)
{
    (void)state;
    char text[64];
    ds_size_text(4.9e-324, text, sizeof text);
    assert_string_not_equal(text, "0");
    ds_size_text(0, text, sizeof text);
    assert_string_equal(text, "0");
    ds_size_text((double)-INFINITY, text, sizeof text);
    assert_string_equal(text, "-Inf");
    ds_size_text((double)NAN, text, sizeof text);
    assert_string_equal(text, "NaN");
    static const struct {
        double part, most;
        const char *want;
    } bars[] = {{1, 2, "#####"},      {0, 2, ""},
                {1e-30, 2, "#"},      {3, 2, "##########"},
                {(double)NAN, 2, ""}, {(double)INFINITY, 2, "##########"},
                {1, 0, "#"},          {1, (double)INFINITY, "#"}};
    for (size_t i = 0; i < sizeof bars / sizeof *bars; i++) {
        tui_bar_text(bars[i].part, bars[i].most, 10, 1, text, sizeof text);
        assert_string_equal(text, bars[i].want);
    }
    tui_bar_text(1, 1, 10, 0, text, 8); /* whole glyphs only */
    assert_int_equal(strlen(text), 6);
}

static void test_numbers_as_printf_has_them(void **state)
{
    (void)state;
    static const int64_t whole[] = {0, 7, -1, 10, 100000, -2147483648, INT64_MAX, INT64_MIN};
    static const uint64_t digests[] = {0, 1, UINT64_MAX, UINT64_C(0x0123456789abcdef)};
    char text[TUI_WHOLE_TEXT], want[TUI_WHOLE_TEXT];
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        snprintf(want, sizeof want, "%" PRId64, whole[i]);
        assert_int_equal(tui_whole_text(whole[i], text), strlen(want));
        assert_string_equal(text, want);
    }
    for (size_t i = 0; i < sizeof digests / sizeof *digests; i++) {
        snprintf(want, sizeof want, "%016" PRIx64, digests[i]);
        tui_digest_text(digests[i], text);
        assert_string_equal(text, want);
    }
    static struct tui_value v;
    char longest[sizeof v.text + 9];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    tui_value_put(&v, longest);
    assert_int_equal(strlen(v.text), sizeof v.text - 1);
    tui_value_put(&v, "=");
    assert_string_equal(v.text, "=");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unequal_bits_never_look_equal),
        cmocka_unit_test(test_special_values_say_what_they_are),
        cmocka_unit_test(test_marks_what_differs),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_bits_as_digits),
        cmocka_unit_test(test_sizes_and_bars),
        cmocka_unit_test(test_numbers_as_printf_has_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
