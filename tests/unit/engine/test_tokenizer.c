/* test_tokenizer.c: text to ids and back on tiny vocabularies: ids equal to llama.cpp's, special
 * tokens, odd bytes, long words. */
#include "tests/unit/engine/tokenizer_testing.h"

/* ---- ids ------------------------------------------------------------------------------------- */

static void check_case(const struct ds_tokenizer *t, const char *line, const char *text, size_t n,
                       int parse, const char *want)
{
    int32_t *ids = NULL;
    size_t unknown = 0, count = encode(t, text, n, 1, parse, &ids, &unknown);
    struct ds_buf got = {0}, back = {0};
    ds_buf_puts(&got, "");
    for (size_t i = 0; i < count; i++)
        ds_buf_printf(&got, "%s%d", i == 0 ? "" : ",", ids[i]);
    if (strcmp(got.data, want) != 0)
        print_error("case %s\n", line);
    assert_string_equal(got.data, want);
    if (unknown == 0 && valid_utf8(text, n)) {
        decode(t, ids + 1, count - 1, 1, &back);
        assert_int_equal(back.len, n);
        assert_memory_equal(back.data, text, n);
    }
    ds_buf_free(&got);
    ds_buf_free(&back);
    free(ids);
}

/* Every row: the same ids as llama.cpp, without and with special tokens parsed, for each
 * pre-tokenizer. */
static void test_ids_equal_llama_cpp(void **state)
{
    (void)state;
    static const char *const pres[] = {"smollm", "gpt-2", "default"};
    struct ds_tokenizer *t[3];
    int seen[3] = {0};
    for (int i = 0; i < 3; i++) {
        char path[64];
        snprintf(path, sizeof path, DATA "tiny_%s.gguf", pres[i]);
        t[i] = open_tokenizer(path);
    }
    FILE *f = fopen(DATA "tiny_cases.txt", "r");
    assert_non_null(f);
    static char line[65536], hex[32768], ids[32768], text[16384];
    while (fgets(line, sizeof line, f) != NULL) {
        char pre[16];
        int parse, k = 0;
        if (line[0] == '#')
            continue;
        ids[0] = '\0';
        assert_true(sscanf(line, "%15s %d %32767s %32767s", pre, &parse, hex, ids) >= 3);
        while (k < 3 && strcmp(pres[k], pre) != 0)
            k++;
        assert_true(k < 3);
        seen[k]++;
        check_case(t[k], line, text, from_hex(hex, text), parse, ids);
    }
    fclose(f);
    for (int i = 0; i < 3; i++) {
        assert_true(seen[i] > 300);
        ds_tokenizer_free(t[i]);
    }
}

/* ---- special tokens, flags ------------------------------------------------------------------- */

static void test_special_tokens(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_tokenizer *t = NULL;
    assert_ok(make(&sound, &t, &err), err);
    assert_int_equal(ds_tokenizer_vocab(t), 10);
    assert_int_equal(ds_tokenizer_bos(t), 5);
    assert_int_equal(ds_tokenizer_eos(t), 6);
    assert_int_equal(ds_tokenizer_adds_bos(t), 0);
    assert_ids(t, "", 1, 1, "");
    assert_ids(t, "abcab", 1, 0, "4,3");
    assert_ids(t, "a<s>b</s>c", 0, 1, "0,5,1,6,2");
    /* user-defined tokens always, and the longest first */
    assert_ids(t, "ax<s>b", 0, 1, "0,7,1");
    assert_ids(t, "ax<s>b", 0, 0, "0,7,1");
    /* a word does not reach over a special token */
    assert_ids(t, "a<s>bc", 0, 1, "0,5,1,2");
    struct ds_buf out = {0};
    const int32_t ids[] = {4, 5, 8, 7, 6};
    decode(t, ids, 5, 0, &out);
    assert_string_equal(out.data, "abc x<s>");
    decode(t, ids, 5, 1, &out);
    assert_string_equal(out.data, "abc<s> x<s></s>");
    assert_int_equal(ds_tokenizer_decode(t, 10, 1, &out, &err), -1);
    assert_non_null(strstr(err.msg, "10"));
    assert_int_equal(ds_tokenizer_decode(t, -1, 1, &out, &err), -1);
    ds_buf_free(&out);
    ds_tokenizer_free(t);
}

static void test_begin_and_end_tokens(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_tokenizer *t = NULL;
    struct vocabulary v = sound;
    v.add_bos = 1;
    assert_ok(make(&v, &t, &err), err);
    assert_int_equal(ds_tokenizer_adds_bos(t), 1);
    assert_ids(t, "ab", 1, 0, "5,3");
    assert_ids(t, "ab", 0, 0, "3");
    assert_ids(t, "", 1, 0, "5");
    ds_tokenizer_free(t);
    v.add_eos = 1;
    assert_ok(make(&v, &t, &err), err);
    assert_ids(t, "ab", 1, 0, "5,3,6");
    ds_tokenizer_free(t);
    v.bos = v.eos = -1;
    v.add_bos = v.add_eos = 0;
    assert_ok(make(&v, &t, &err), err);
    assert_int_equal(ds_tokenizer_bos(t), -1);
    assert_int_equal(ds_tokenizer_eos(t), -1);
    ds_tokenizer_free(t);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Tokens 0..253 of the fixture are the single bytes in order, but for the two that it lacks. */
static void test_every_byte_has_its_token(void **state)
{
    (void)state;
    struct ds_tokenizer *t = open_tokenizer(DATA "tiny_gpt-2.gguf");
    struct ds_buf out = {0};
    int32_t id = 0;
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        if (byte == 0x0c || byte == 0xe1)
            continue;
        decode(t, &id, 1, 0, &out);
        assert_int_equal(out.len, 1);
        assert_memory_equal(out.data, &c, 1);
        if (byte < 0x80) {
            int32_t *ids = NULL;
            assert_int_equal(encode(t, &c, 1, 0, 0, &ids, NULL), 1);
            assert_int_equal(ids[0], id);
            free(ids);
        }
        id++;
    }
    ds_buf_free(&out);
    ds_tokenizer_free(t);
}

static void test_invalid_utf8_becomes_replacement_characters(void **state)
{
    (void)state;
    static const struct {
        const char *name, *in, *out;
    } cases[] = {
        {"stray continuation",
         "a\x80"
         "b",
         "a\xef\xbf\xbd"
         "b"},
        {"never a byte of UTF-8", "\xff\xfe", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"cut at the end", "a\xe2\x82", "a\xef\xbf\xbd\xef\xbf\xbd"},
        {"cut by a letter",
         "\xf0\x9f\x99"
         "a",
         "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
         "a"},
        {"overlong", "\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"beyond U+10FFFF", "\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"surrogates pass, as in llama.cpp", "\xed\xa0\x80", "\xed\xa0\x80"},
    };
    struct ds_tokenizer *t = open_tokenizer(DATA "tiny_smollm.gguf");
    struct ds_buf out = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int32_t *ids = NULL;
        size_t unknown = 0, n = encode(t, cases[i].in, strlen(cases[i].in), 0, 1, &ids, &unknown);
        decode(t, ids, n, 1, &out);
        if (strcmp(out.data, cases[i].out) != 0)
            print_error("%s\n", cases[i].name);
        assert_string_equal(out.data, cases[i].out);
        assert_int_equal(unknown, 0);
        free(ids);
    }
    ds_buf_free(&out);
    ds_tokenizer_free(t);
}

static void test_bytes_without_a_token_are_counted(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_tokenizer *t = NULL;
    int32_t *ids = NULL;
    size_t unknown = 0;
    assert_ok(make(&sound, &t, &err), err);
    assert_int_equal(encode(t, "abzc\0\xc3\xa9!", 8, 0, 0, &ids, &unknown), 3);
    assert_int_equal(ids[0], 3);
    assert_int_equal(ids[1], 2);
    assert_int_equal(ids[2], 9);
    assert_int_equal(unknown, 4);
    free(ids);
    ds_tokenizer_free(t);
}

/* A quadratic encoder would need hours here, a backtracking pattern would fail. */
static void test_long_words_are_encoded(void **state)
{
    (void)state;
    static const char *const units[] = {"a",           "the",          " ",    "\t",  "7", "!", "'",
                                        "<|im_start|", "\xe6\x97\xa5", "\r\n", "\xff"};
    enum { LENGTH = 300000 };
    struct ds_tokenizer *t = open_tokenizer(DATA "tiny_default.gguf");
    char *text = malloc(LENGTH + 16);
    assert_non_null(text);
    for (size_t k = 0; k < sizeof units / sizeof units[0]; k++) {
        size_t unit = strlen(units[k]), n = 0;
        for (; n < LENGTH; n += unit)
            memcpy(text + n, units[k], unit);
        int32_t *ids = NULL;
        size_t count = encode(t, text, n, 0, 1, &ids, NULL);
        assert_true(count > 0);
        struct ds_buf out = {0};
        decode(t, ids, count, 1, &out);
        assert_int_equal(out.len, units[k][0] == '\xff' ? n * 3 : n);
        if (units[k][0] != '\xff')
            assert_memory_equal(out.data, text, n);
        ds_buf_free(&out);
        free(ids);
    }
    free(text);
    ds_tokenizer_free(t);
}

static void test_too_long_a_text_is_refused(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_tokenizer *t = NULL;
    int32_t *ids = NULL;
    size_t count = 1;
    assert_ok(make(&sound, &t, &err), err);
    assert_int_equal(ds_tokenizer_encode(t, "", (size_t)INT32_MAX, 0, 0, &ids, &count, NULL, &err),
                     -1);
    assert_non_null(strstr(err.msg, "too long"));
    assert_null(ids);
    ds_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_equal_llama_cpp),
        cmocka_unit_test(test_special_tokens),
        cmocka_unit_test(test_begin_and_end_tokens),
        cmocka_unit_test(test_every_byte_has_its_token),
        cmocka_unit_test(test_invalid_utf8_becomes_replacement_characters),
        cmocka_unit_test(test_bytes_without_a_token_are_counted),
        cmocka_unit_test(test_long_words_are_encoded),
        cmocka_unit_test(test_too_long_a_text_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
