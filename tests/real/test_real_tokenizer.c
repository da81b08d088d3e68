/* test_real_tokenizer.c: the tokenizer of the real model, against the ids llama.cpp gives and its
 * template under jinja2. Skipped, visibly, where the model is not there. Fixtures:
 * tests/data/tokenizer. */
#include "tests/unit/testing.h"

#include "engine/model.h"
#include "engine/tokenizer.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DATA "tests/data/tokenizer/"

static struct ds_tokenizer *real; /* NULL: no model here */

static int open_real(void **state)
{
    (void)state;
    char path[4096];
    const char *file = getenv("DRIFTSCOPE_MODEL");
    if (file == NULL || *file == '\0')
        file = ds_model_cache_path("smollm2", path, sizeof path) == 0 ? path : NULL;
    if (file == NULL)
        return 0;
    struct ds_error err;
    struct ds_gguf *g = NULL;
    int rc = ds_gguf_open(file, &g, &err);
    if (rc == 0)
        rc = ds_tokenizer_new(g, &real, &err);
    if (rc != 0)
        print_error("%s\n", err.msg);
    ds_gguf_close(g);
    return rc;
}

static int close_real(void **state)
{
    (void)state;
    ds_tokenizer_free(real);
    return 0;
}

static void need_model(void)
{
    if (real == NULL) {
        print_message("skipped: no real model in the cache (make model)\n");
        skip();
    }
}

static size_t from_hex(const char *hex, char *out)
{
    size_t n = 0;
    for (; hex[0] != '\0' && hex[1] != '\0'; hex += 2) {
        unsigned byte;
        assert_int_equal(sscanf(hex, "%2x", &byte), 1);
        out[n++] = (char)byte;
    }
    return n;
}

static void check_ids(const json_t *row, const char *key, const char *text, size_t n, int parse)
{
    struct ds_error err;
    const json_t *want = json_object_get(row, key);
    const char *hex = json_string_value(json_object_get(row, "hex"));
    int32_t *ids = NULL;
    size_t count = 0, unknown = 0;
    assert_true(json_is_array(want));
    assert_ok(ds_tokenizer_encode(real, text, n, 1, parse, &ids, &count, &unknown, &err), err);
    int same = count == json_array_size(want);
    for (size_t i = 0; i < count && same; i++)
        same = ids[i] == json_integer_value(json_array_get(want, i));
    if (!same)
        print_error("%s of text %s: other ids (%zu, expected %zu)\n", key, hex, count,
                    json_array_size(want));
    assert_true(same);
    if (json_is_true(json_object_get(row, "roundtrips"))) {
        struct ds_buf back = {0};
        ds_buf_add(&back, "", 0);
        for (size_t i = 0; i < count; i++)
            assert_ok(ds_tokenizer_decode(real, ids[i], 1, &back, &err), err);
        if (back.len != n || memcmp(back.data, text, n) != 0 || unknown != 0)
            print_error("text %s does not come back\n", hex);
        assert_int_equal(unknown, 0);
        assert_int_equal(back.len, n);
        assert_memory_equal(back.data, text, n);
        ds_buf_free(&back);
    }
    free(ids);
}

static void check_file(const char *path, size_t least)
{
    json_error_t why;
    json_t *file = json_load_file(path, JSON_ALLOW_NUL, &why);
    if (file == NULL)
        print_error("%s: %s\n", path, why.text);
    assert_non_null(file);
    const json_t *rows = json_object_get(file, "rows");
    assert_true(json_array_size(rows) >= least);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *hex = json_string_value(json_object_get(row, "hex"));
        assert_non_null(hex);
        char *text = malloc(strlen(hex) / 2 + 1);
        assert_non_null(text);
        size_t n = from_hex(hex, text);
        check_ids(row, "ids", text, n, 0);
        check_ids(row, "ids_parse_special", text, n, 1);
        free(text);
    }
    json_decref(file);
}

static void test_real_ids_of_the_oracle(void **state)
{
    (void)state;
    need_model();
    check_file(DATA "tokenizer_open.json", 156);
}

static void test_real_ids_of_generated_strings(void **state)
{
    (void)state;
    need_model();
    check_file(DATA "tokenizer_generated.json", 400);
}

static void test_real_vocabulary(void **state)
{
    (void)state;
    need_model();
    struct ds_error err;
    assert_int_equal(ds_tokenizer_vocab(real), 49152);
    assert_int_equal(ds_tokenizer_bos(real), 1);
    assert_int_equal(ds_tokenizer_eos(real), 2);
    assert_int_equal(ds_tokenizer_adds_bos(real), 0);
    struct ds_buf out = {0};
    for (int32_t id = 0; id < 49152; id++)
        assert_ok(ds_tokenizer_decode(real, id, 1, &out, &err), err);
    assert_int_equal(ds_tokenizer_decode(real, 49152, 1, &out, &err), -1);
    ds_buf_free(&out);
}

/* The first template of the fixture is the real model's; its rendering begins with the model's own
 * system message. */
static void test_real_chat_form(void **state)
{
    (void)state;
    need_model();
    FILE *f = fopen(DATA "chat_cases.txt", "r");
    assert_non_null(f);
    static char line[65536], hex[3][20000], first[20000], user[10000], want[10000];
    int rows = 0;
    while (fgets(line, sizeof line, f) != NULL) {
        if (line[0] == '#')
            continue;
        assert_int_equal(sscanf(line, "%19999s %19999s %19999s", hex[0], hex[1], hex[2]), 3);
        if (rows == 0)
            strcpy(first, hex[0]);
        if (strcmp(first, hex[0]) != 0)
            break;
        struct ds_error err;
        struct ds_buf out = {0};
        user[from_hex(strcmp(hex[1], "-") == 0 ? "" : hex[1], user)] = '\0';
        want[from_hex(hex[2], want)] = '\0';
        assert_ok(ds_tokenizer_chat(real, user, &out, &err), err);
        assert_string_equal(out.data, want);
        ds_buf_free(&out);
        rows++;
    }
    fclose(f);
    assert_true(rows >= 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_real_ids_of_the_oracle),
        cmocka_unit_test(test_real_ids_of_generated_strings),
        cmocka_unit_test(test_real_vocabulary),
        cmocka_unit_test(test_real_chat_form),
    };
    return cmocka_run_group_tests(tests, open_real, close_real);
}
