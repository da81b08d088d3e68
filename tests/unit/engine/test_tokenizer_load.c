/* test_tokenizer_load.c: what the tokenizer takes from a file: odd and hostile metadata, memory
 * that runs out, chat templates. */
#include "tests/unit/engine/tokenizer_testing.h"

#include "base/mem.h"

/* ---- what a file may and may not say --------------------------------------------------------- */

static void test_odd_but_sound_vocabularies(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_tokenizer *t = NULL;
    struct vocabulary v = sound;
    v.pre = LEAVE_OUT;  /* old files: the pre-tokenizer `default` */
    v.n_types = 0;      /* all normal */
    v.tokens[9] = "ab"; /* twice: the first counts */
    v.tokens[8] = "";
    v.tokens[7] = "bc";
    v.merges[1] = "b c";
    v.merges[2] = "a b"; /* twice: the first rank counts */
    v.merges[3] = "ab a";
    v.n_merges = 4;
    assert_ok(make(&v, &t, &err), err);
    assert_ids(t, "ab", 0, 1, "3");
    assert_ids(t, "abc", 0, 1, "3,2");
    assert_ids(t, "<s>a", 0, 1, "0"); /* no special tokens now; "<", "s", ">" have none */
    /* "ab a" makes a piece that is no token: its bytes are given instead */
    assert_ids(t, "aba", 0, 0, "0,1,0");
    struct ds_buf out = {0};
    const int32_t ids[] = {9, 8};
    decode(t, ids, 2, 0, &out);
    assert_string_equal(out.data, "ab");
    ds_buf_free(&out);
    ds_tokenizer_free(t);

    v = sound;
    v.types[0] = 6; /* byte tokens have a spelling of their own */
    v.tokens[0] = "<0x0A>";
    v.types[1] = 6;
    v.types[2] = 5;
    v.n_merges = 0;
    assert_ok(make(&v, &t, &err), err);
    const int32_t bytes[] = {0, 1, 2, 9};
    decode(t, bytes, 4, 1, &out);
    assert_string_equal(out.data, "\n!");
    ds_buf_free(&out);
    ds_tokenizer_free(t);
}

#define BAD(label, text, ...)                                                                      \
    {                                                                                              \
        struct vocabulary v = sound;                                                               \
        __VA_ARGS__;                                                                               \
        struct ds_error err = {0};                                                                 \
        struct ds_tokenizer *t = NULL;                                                             \
        int rc = make(&v, &t, &err);                                                               \
        if (rc != -1 || strstr(err.msg, text) == NULL || strstr(err.msg, "tiny.gguf") == NULL)     \
            print_error("%s: %d, '%s', expected '%s'\n", label, rc, err.msg, text);                \
        assert_int_equal(rc, -1);                                                                  \
        assert_null(t);                                                                            \
        assert_non_null(strstr(err.msg, text));                                                    \
        assert_non_null(strstr(err.msg, "tiny.gguf"));                                             \
    }

static void test_bad_metadata_is_named(void **state)
{
    (void)state;
    static char huge[70000];
    memset(huge, 'h', sizeof huge - 1);
    BAD("no model", "tokenizer.ggml.model: missing", v.model = LEAVE_OUT);
    BAD("other model", "unknown tokenizer model 'llama'", v.model = "llama");
    BAD("hostile model", "\\x1b[2J", v.model = "\033[2J");
    BAD("other pre", "tokenizer.ggml.pre: unknown pre-tokenizer 'smolm'", v.pre = "smolm";);
    BAD("no tokens", "tokenizer.ggml.tokens: missing", v.no_tokens = 1);
    BAD("zero tokens", "tokenizer.ggml.tokens: 0 tokens", v.n_tokens = 0; v.n_types = 0);
    BAD("numbers for tokens", "tokenizer.ggml.tokens", v.tokens_as_numbers = 1);
    BAD("token with NUL", "tokenizer.ggml.tokens[1]: holds a NUL", v.tokens[1] = "b\0b";
        v.token_len[1] = 3);
    BAD("huge token", "tokenizer.ggml.tokens[2]: 69999 bytes", v.tokens[2] = huge);
    BAD("fewer types", "tokenizer.ggml.token_type: 9 entries for 10 tokens", v.n_types = 9);
    BAD("more types", "tokenizer.ggml.token_type: 11 entries for 10 tokens", v.n_types = 11);
    BAD("no such type", "tokenizer.ggml.token_type[3]: 7", v.types[3] = 7);
    BAD("negative type", "tokenizer.ggml.token_type[3]: -1", v.types[3] = -1);
    BAD("texts for types", "tokenizer.ggml.token_type", v.types_as_text = 1);
    BAD("no merges", "tokenizer.ggml.merges: missing", v.no_merges = 1);
    BAD("text for merges", "tokenizer.ggml.merges", v.merges_as_text = 1);
    BAD("merge without space", "tokenizer.ggml.merges[1]: 'abc'", v.merges[1] = "abc");
    BAD("merge without left", "tokenizer.ggml.merges[0]: ' ab'", v.merges[0] = " ab");
    BAD("merge without right", "tokenizer.ggml.merges[0]: 'ab '", v.merges[0] = "ab ");
    BAD("empty merge", "tokenizer.ggml.merges[0]: ''", v.merges[0] = "");
    BAD("huge merge", "tokenizer.ggml.merges[0]: 69999 bytes", v.merges[0] = huge);
    BAD("bos outside", "tokenizer.ggml.bos_token_id: id 10", v.bos = 10);
    BAD("eos outside", "tokenizer.ggml.eos_token_id: id 4294967295", v.eos = 4294967295);
    BAD("bos wanted, not there", "tokenizer.ggml.bos_token_id is missing", v.bos = -1;
        v.add_bos = 1);
    BAD("eos wanted, not there", "tokenizer.ggml.eos_token_id is missing", v.eos = -1;
        v.add_eos = 1);
}

static void test_unknown_pre_tokenizer_hints_at_known_ones(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_tokenizer *t = NULL;
    struct vocabulary v = sound;
    v.pre = "smolm";
    assert_int_equal(make(&v, &t, &err), -1);
    assert_non_null(strstr(err.hint, "smollm, gpt-2, default"));
    assert_non_null(strstr(err.hint, "did you mean 'smollm'"));
}

/* ---- memory that runs out -------------------------------------------------------------------- */

static void test_every_failed_allocation_is_an_error(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_gguf *g = NULL;
    struct ds_tokenizer *t = NULL;
    assert_ok(ds_gguf_open(DATA "tiny_smollm.gguf", &g, &err), err);
    long n = 1;
    for (; n < 1000; n++) {
        err.msg[0] = '\0';
        ds_mem_fail_at(n);
        int rc = ds_tokenizer_new(g, &t, &err);
        ds_mem_fail_at(0);
        if (rc == 0)
            break;
        assert_null(t);
        assert_true(err.msg[0] != '\0');
    }
    assert_true(n > 10 && n < 1000);
    ds_gguf_close(g);
    static const char text[] = "the <|im_start|> quick\xff brown 123 words";
    for (n = 1; n < 1000; n++) {
        int32_t *ids = NULL;
        size_t count = 0;
        err.msg[0] = '\0';
        ds_mem_fail_at(n);
        int rc = ds_tokenizer_encode(t, text, strlen(text), 1, 1, &ids, &count, NULL, &err);
        ds_mem_fail_at(0);
        if (rc == 0) {
            free(ids);
            break;
        }
        assert_null(ids);
        assert_true(err.msg[0] != '\0');
    }
    assert_true(n > 5 && n < 1000);
    ds_tokenizer_free(t);
}

/* ---- chat ------------------------------------------------------------------------------------ */

/* Each row was rendered by jinja2. */
static void test_chat_form_equals_the_template(void **state)
{
    (void)state;
    FILE *f = fopen(DATA "chat_cases.txt", "r");
    assert_non_null(f);
    static char line[65536], hex[3][20000], text[3][10000];
    int rows = 0;
    while (fgets(line, sizeof line, f) != NULL) {
        if (line[0] == '#')
            continue;
        assert_int_equal(sscanf(line, "%19999s %19999s %19999s", hex[0], hex[1], hex[2]), 3);
        for (int i = 0; i < 3; i++)
            text[i][from_hex(hex[i], text[i])] = '\0';
        struct ds_error err;
        struct ds_tokenizer *t = NULL;
        struct vocabulary v = sound;
        v.template_text = text[0];
        assert_ok(make(&v, &t, &err), err);
        struct ds_buf out = {0};
        assert_ok(ds_tokenizer_chat(t, text[1], &out, &err), err);
        if (strcmp(out.data, text[2]) != 0)
            print_error("template: %s\n", text[0]);
        assert_string_equal(out.data, text[2]);
        ds_buf_free(&out);
        ds_tokenizer_free(t);
        rows++;
    }
    fclose(f);
    assert_true(rows >= 20);
}

static void test_chat_needs_a_chatml_template(void **state)
{
    (void)state;
    static const char *const templates[] = {LEAVE_OUT, "{{ messages }}", "<|im_start|>",
                                            "<|im_end|>",
                                            "<|start_header_id|>user<|end_header_id|>"};
    for (size_t i = 0; i < sizeof templates / sizeof templates[0]; i++) {
        struct ds_error err;
        struct ds_tokenizer *t = NULL;
        struct vocabulary v = sound;
        v.template_text = templates[i];
        assert_ok(make(&v, &t, &err), err);
        struct ds_buf out = {0};
        assert_int_equal(ds_tokenizer_chat(t, "hello", &out, &err), -1);
        assert_non_null(strstr(err.msg, "tokenizer.chat_template"));
        assert_non_null(strstr(err.msg, "tiny.gguf"));
        ds_buf_free(&out);
        ds_tokenizer_free(t);
    }
}

/* Many beginnings of a system message and one end: a search that starts over at each would take
 * minutes. */
static void test_chat_template_of_many_beginnings(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_tokenizer *t = NULL;
    struct ds_buf text = {0}, out = {0};
    for (int i = 0; i < 60000; i++)
        ds_buf_puts(&text, "<|im_start|>system\n");
    ds_buf_puts(&text, "last<|im_end|>\n");
    struct vocabulary v = sound;
    v.template_text = text.data;
    assert_ok(make(&v, &t, &err), err);
    assert_ok(ds_tokenizer_chat(t, "hi", &out, &err), err);
    assert_string_equal(out.data, "<|im_start|>system\nlast<|im_end|>\n<|im_start|>user\nhi<|im_"
                                  "end|>\n<|im_start|>assistant\n");
    ds_buf_free(&text);
    ds_buf_free(&out);
    ds_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_odd_but_sound_vocabularies),
        cmocka_unit_test(test_bad_metadata_is_named),
        cmocka_unit_test(test_unknown_pre_tokenizer_hints_at_known_ones),
        cmocka_unit_test(test_every_failed_allocation_is_an_error),
        cmocka_unit_test(test_chat_form_equals_the_template),
        cmocka_unit_test(test_chat_needs_a_chatml_template),
        cmocka_unit_test(test_chat_template_of_many_beginnings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
