/* test_gguf.c: the GGUF container: what good files give. Bad ones: test_gguf_bad.c. */
#include "tests/unit/testing.h"

#include "engine/gguf.h"
#include "tests/unit/engine/gguf_builder.h"

#include <string.h>

#define DATA     "tests/data/gguf/"
#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        print_error("\"%s\" does not contain \"%s\"\n", text, part);
        fail();
    }
}

static struct ds_gguf *open_good(const char *path)
{
    struct ds_gguf *g = NULL;
    struct ds_error err = {0};
    assert_ok(ds_gguf_open(path, &g, &err), err);
    return g;
}

/* ---- good files ------------------------------------------------------------------------------ */

static void test_whole_numbers_of_every_width_convert(void **state)
{
    (void)state;
    struct ds_gguf *g = open_good(DATA "meta.gguf");
    static const struct {
        const char *key;
        uint64_t want;
    } good[] = {{"t.u8", 200},         {"t.u16", 60000}, {"t.u32", 4000000000u},
                {"t.u64", UINT64_MAX}, {"t.yes", 1},     {"t.no", 0}};
    for (size_t i = 0; i < COUNT(good); i++) {
        uint64_t v = 99;
        assert_int_equal(ds_gguf_get_u64(g, good[i].key, &v, NULL), 1);
        assert_true(v == good[i].want);
    }
    static const struct {
        const char *key, *message;
    } bad[] = {{"t.i8", "t.i8 is -100; it cannot be negative"},
               {"t.i64", "-9223372036854775808"},
               {"t.f32", "t.f32 has type f32; one whole number is wanted"},
               {"t.text", "type string"},
               {"t.numbers", "t.numbers is an array of 3 i32 values; one whole number is wanted"}};
    for (size_t i = 0; i < COUNT(bad); i++) {
        uint64_t v = 99;
        struct ds_error err = {0};
        assert_int_equal(ds_gguf_get_u64(g, bad[i].key, &v, &err), -1);
        assert_has(err.msg, bad[i].message);
        assert_has(err.msg, DATA "meta.gguf: ");
        assert_true(v == 99);
    }
    uint64_t v = 99;
    assert_int_equal(ds_gguf_get_u64(g, "t.absent", &v, NULL), 0);
    ds_gguf_close(g);
}

static void test_real_numbers_convert(void **state)
{
    (void)state;
    struct ds_gguf *g = open_good(DATA "meta.gguf");
    static const struct {
        const char *key;
        double want;
    } good[] = {{"t.f32", (double)0.1f},
                {"t.f64", 0.1},
                {"t.i8", -100},
                {"t.i32", -2000000000},
                {"t.u32", 4000000000.0}};
    for (size_t i = 0; i < COUNT(good); i++) {
        double v = 0;
        assert_int_equal(ds_gguf_get_f64(g, good[i].key, &v, NULL), 1);
        assert_true(v == good[i].want);
    }
    static const char *const bad[] = {"t.u64", "t.i64", "t.yes", "t.text", "t.reals"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        double v;
        struct ds_error err = {0};
        assert_int_equal(ds_gguf_get_f64(g, bad[i], &v, &err), -1);
        assert_has(err.msg, bad[i]);
    }
    ds_gguf_close(g);
}

static void test_strings_and_arrays(void **state)
{
    (void)state;
    struct ds_gguf *g = open_good(DATA "meta.gguf");
    struct ds_error err = {0};
    struct ds_gguf_str s;
    assert_int_equal(ds_gguf_get_str(g, "t.text", &s, &err), 1);
    assert_int_equal(s.len, 11);
    assert_memory_equal(s.data, "a\n\x1b[31m\xc3\xa9", 9);
    int type;
    size_t count;
    assert_int_equal(ds_gguf_get_array(g, "t.words", &type, &count, &err), 1);
    assert_int_equal(type, DS_GGUF_STRING);
    assert_int_equal(count, 4);
    static const char *const words[] = {"", "one", "zwei\xc3\xa9"};
    for (size_t i = 3; i-- > 0;) {
        assert_int_equal(ds_gguf_array_str(g, "t.words", i, &s, &err), 1);
        assert_int_equal(s.len, strlen(words[i]));
        assert_memory_equal(s.data, words[i], s.len);
    }
    assert_int_equal(ds_gguf_array_str(g, "t.words", 3, &s, &err), 1);
    assert_int_equal(s.len, 300);
    assert_int_equal(ds_gguf_array_str(g, "t.words", 4, &s, &err), -1);
    assert_has(err.msg, "t.words has 4 elements; element 4");
    assert_int_equal(ds_gguf_array_str(g, "t.numbers", 0, &s, &err), -1);
    assert_int_equal(ds_gguf_get_array(g, "t.text", &type, &count, &err), -1);
    int64_t *values;
    assert_int_equal(ds_gguf_array_i64(g, "t.numbers", &values, &count, &err), 1);
    assert_int_equal(count, 3);
    assert_true(values[0] == 3 && values[1] == -1 && values[2] == 2147483647);
    free(values);
    assert_int_equal(ds_gguf_array_i64(g, "t.flags", &values, &count, &err), 1);
    assert_true(count == 3 && values[0] == 1 && values[1] == 0 && values[2] == 1);
    free(values);
    assert_int_equal(ds_gguf_array_i64(g, "t.reals", &values, &count, &err), -1);
    assert_has(err.msg, "an array of whole numbers is wanted");
    assert_int_equal(ds_gguf_array_i64(g, "t.none", &values, &count, &err), 0);
    ds_gguf_close(g);
}

static void test_metadata_as_text(void **state)
{
    (void)state;
    struct ds_gguf *g = open_good(DATA "meta.gguf");
    static const struct {
        const char *key, *text;
    } want[] = {{"t.u8", "200"},
                {"t.i8", "-100"},
                {"t.u64", "18446744073709551615"},
                {"t.i64", "-9223372036854775808"},
                {"t.f32", "0.100000001"},
                {"t.f64", "0.10000000000000001"},
                {"t.yes", "true"},
                {"t.no", "false"},
                {"t.text", "a\\n\\x1b[31m\xc3\xa9 b"},
                {"t.words", "string[4]"},
                {"t.numbers", "i32[3]"}};
    size_t seen = 0, i = 0;
    const char *key;
    char text[64];
    for (; ds_gguf_meta_text(g, i, &key, text, sizeof text) == 0; i++)
        for (size_t w = 0; w < COUNT(want); w++)
            if (strcmp(key, want[w].key) == 0) {
                assert_string_equal(text, want[w].text);
                seen++;
            }
    assert_int_equal(seen, COUNT(want));
    /* Cut at every size: always terminated, never half a character. */
    for (size_t at = 0; at < i; at++)
        for (size_t size = 1; size < 40; size++) {
            memset(text, 'z', sizeof text);
            assert_int_equal(ds_gguf_meta_text(g, at, &key, text, size), 0);
            assert_true(strnlen(text, sizeof text) < size);
            for (size_t p = 0; text[p]; p += (size_t)ds_utf8_len(text + p, strlen(text + p)))
                assert_true(ds_utf8_len(text + p, strlen(text + p)) > 0);
        }
    ds_gguf_close(g);
}

static void test_version_2_and_3_read_the_same(void **state)
{
    (void)state;
    size_t size = 0;
    unsigned char *bytes = read_file(DATA "tiny.gguf", &size);
    assert_non_null(bytes);
    assert_int_equal(bytes[4], 3);
    struct ds_error err = {0};
    for (int version = 2; version <= 3; version++) {
        bytes[4] = (unsigned char)version;
        struct ds_gguf *g;
        assert_ok(ds_gguf_open_bytes(bytes, size, "tiny", &g, &err), err);
        assert_int_equal(ds_gguf_tensor_count(g), 20);
        const struct ds_gguf_tensor *t = ds_gguf_tensor_find(g, "blk.1.ffn_gate.weight");
        assert_non_null(t);
        assert_int_equal(t->type, 2);
        assert_int_equal(t->n_dims, 2);
        assert_true(t->dims[0] == 32 && t->dims[1] == 64 && t->dims[2] == 1 && t->dims[3] == 1);
        assert_int_equal(t->bytes, 64 * 18);
        assert_int_equal(((const unsigned char *)t->data - bytes) % 64, 0);
        assert_null(ds_gguf_tensor_find(g, "blk.2.ffn_gate.weight"));
        assert_null(ds_gguf_tensor_at(g, 20));
        for (size_t i = 0; i < 20; i++)
            assert_ptr_equal(ds_gguf_tensor_find(g, ds_gguf_tensor_at(g, i)->name),
                             ds_gguf_tensor_at(g, i));
        ds_gguf_close(g);
    }
    free(bytes);
}

static void test_bytes_at_any_address(void **state)
{
    (void)state;
    size_t size = 0;
    unsigned char *bytes = read_file(DATA "meta.gguf", &size), *moved = malloc(size + 8);
    assert_non_null(bytes);
    assert_non_null(moved);
    for (size_t shift = 0; shift < 8; shift++) {
        memcpy(moved + shift, bytes, size);
        struct ds_gguf *g;
        struct ds_error err = {0};
        assert_ok(ds_gguf_open_bytes(moved + shift, size, "moved", &g, &err), err);
        double v;
        assert_int_equal(ds_gguf_get_f64(g, "t.f64", &v, &err), 1);
        assert_true(v == 0.1);
        ds_gguf_close(g);
    }
    free(bytes);
    free(moved);
}

static void test_overlapping_tensors_are_allowed(void **state)
{
    (void)state;
    struct builder b = {0};
    uint64_t dims[1] = {8};
    add_info(&b, "a", 0, 1, dims, 0);
    add_info(&b, "b", 0, 1, dims, 0);
    for (int i = 0; i < 32; i++)
        put(&b.data, 1, 1);
    size_t size = 0;
    unsigned char *bytes = finish(&b, &size);
    struct ds_gguf *g;
    struct ds_error err = {0};
    assert_ok(ds_gguf_open_bytes(bytes, size, "overlap", &g, &err), err);
    assert_ptr_equal(ds_gguf_tensor_find(g, "a")->data, ds_gguf_tensor_find(g, "b")->data);
    ds_gguf_close(g);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_numbers_of_every_width_convert),
        cmocka_unit_test(test_real_numbers_convert),
        cmocka_unit_test(test_strings_and_arrays),
        cmocka_unit_test(test_metadata_as_text),
        cmocka_unit_test(test_version_2_and_3_read_the_same),
        cmocka_unit_test(test_bytes_at_any_address),
        cmocka_unit_test(test_overlapping_tensors_are_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
