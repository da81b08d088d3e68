/* tokenizer_testing.h: what the tokenizer's tests share: encode and decode with asserts, and a
 * vocabulary as a GGUF file made in memory. Fixtures: tests/data/tokenizer, made by
 * tests/tools/make_tokenizer_fixtures.py. */
#ifndef DS_TOKENIZER_TESTING_H
#define DS_TOKENIZER_TESTING_H

#include "tests/unit/testing.h"

#include "engine/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DATA "tests/data/tokenizer/"

static inline struct ds_tokenizer *open_tokenizer(const char *path)
{
    struct ds_error err;
    struct ds_gguf *g = NULL;
    struct ds_tokenizer *t = NULL;
    assert_ok(ds_gguf_open(path, &g, &err), err);
    assert_ok(ds_tokenizer_new(g, &t, &err), err);
    ds_gguf_close(g); /* the tokenizer keeps nothing of the file */
    return t;
}

/* Encodes a copy of exactly n bytes, so that a read beyond the end is seen. */
static inline size_t encode(const struct ds_tokenizer *t, const char *text, size_t n, int add,
                            int parse, int32_t **ids, size_t *unknown)
{
    struct ds_error err;
    size_t count = 0;
    char *exact = malloc(n == 0 ? 1 : n);
    assert_non_null(exact);
    if (n != 0)
        memcpy(exact, text, n);
    assert_ok(ds_tokenizer_encode(t, exact, n, add, parse, ids, &count, unknown, &err), err);
    assert_non_null(*ids);
    free(exact);
    return count;
}

static inline void decode(const struct ds_tokenizer *t, const int32_t *ids, size_t n, int special,
                          struct ds_buf *out)
{
    struct ds_error err;
    out->len = 0;
    ds_buf_add(out, "", 0);
    for (size_t i = 0; i < n; i++)
        assert_ok(ds_tokenizer_decode(t, ids[i], special, out, &err), err);
}

static inline void assert_ids(const struct ds_tokenizer *t, const char *text, int add, int parse,
                              const char *want)
{
    int32_t *ids = NULL;
    struct ds_buf got = {0};
    size_t n = encode(t, text, strlen(text), add, parse, &ids, NULL);
    ds_buf_puts(&got, "");
    for (size_t i = 0; i < n; i++)
        ds_buf_printf(&got, "%s%d", i == 0 ? "" : ",", ids[i]);
    if (strcmp(got.data, want) != 0)
        print_error("'%s' (add %d, parse %d)\n", text, add, parse);
    assert_string_equal(got.data, want);
    ds_buf_free(&got);
    free(ids);
}

static inline size_t from_hex(const char *hex, char *out)
{
    size_t n = 0;
    if (strcmp(hex, "-") == 0)
        return 0;
    for (; hex[0] != '\0' && hex[1] != '\0'; hex += 2) {
        unsigned byte;
        assert_int_equal(sscanf(hex, "%2x", &byte), 1);
        out[n++] = (char)byte;
    }
    return n;
}

static inline int valid_utf8(const char *text, size_t n)
{
    int len = 1;
    for (size_t i = 0; i < n && len > 0; i += (size_t)len)
        len = ds_utf8_len(text + i, n - i);
    return len > 0;
}

/* ---- a GGUF file made in memory -------------------------------------------------------------- */

static inline void put(struct ds_buf *b, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        char c = (char)(value >> 8 * i);
        ds_buf_add(b, &c, 1);
    }
}

static inline void put_str(struct ds_buf *b, const char *text, size_t n)
{
    put(b, n, 8);
    ds_buf_add(b, text, n);
}

/* What a test changes in an otherwise sound vocabulary; NULL and 0 leave things as they are,
 * LEAVE_OUT drops the key. */
struct vocabulary {
    const char *model, *pre, *template_text;
    const char *tokens[16];
    size_t token_len[16]; /* 0: strlen */
    const char *merges[8];
    size_t n_tokens, n_merges;
    int32_t types[16];
    size_t n_types;
    int64_t bos, eos; /* -1: no key */
    int add_bos, add_eos;
    int tokens_as_numbers, merges_as_text, no_tokens, no_merges, types_as_text;
};

#define LEAVE_OUT ""

static const struct vocabulary sound = {
    .model = "gpt2",
    .pre = "gpt-2",
    .tokens = {"a", "b", "c", "ab", "abc", "<s>", "</s>", "x<s>", "Ġ", "!"},
    .n_tokens = 10,
    .merges = {"a b", "ab c"},
    .n_merges = 2,
    .types = {1, 1, 1, 1, 1, 3, 3, 4, 1, 1},
    .n_types = 10,
    .bos = 5,
    .eos = 6,
};

static inline void put_text_key(struct ds_buf *b, const char *key, const char *value)
{
    put_str(b, key, strlen(key));
    put(b, DS_GGUF_STRING, 4);
    put_str(b, value, strlen(value));
}

static inline void put_number_key(struct ds_buf *b, const char *key, int type, uint64_t value,
                                  size_t bytes)
{
    put_str(b, key, strlen(key));
    put(b, (uint64_t)type, 4);
    put(b, value, bytes);
}

static inline void put_array(struct ds_buf *b, const char *key, int type, size_t n)
{
    put_str(b, key, strlen(key));
    put(b, DS_GGUF_ARRAY, 4);
    put(b, (uint64_t)type, 4);
    put(b, n, 8);
}

static inline uint64_t put_lists(struct ds_buf *b, const struct vocabulary *v)
{
    uint64_t keys = 0;
    if (!v->no_tokens) {
        put_array(b, "tokenizer.ggml.tokens", v->tokens_as_numbers ? DS_GGUF_U32 : DS_GGUF_STRING,
                  v->n_tokens);
        for (size_t i = 0; i < v->n_tokens; i++) {
            if (v->tokens_as_numbers)
                put(b, i, 4);
            else
                put_str(b, v->tokens[i],
                        v->token_len[i] != 0 ? v->token_len[i] : strlen(v->tokens[i]));
        }
        keys++;
    }
    if (v->merges_as_text) {
        put_text_key(b, "tokenizer.ggml.merges", "a b");
        keys++;
    } else if (!v->no_merges) {
        put_array(b, "tokenizer.ggml.merges", DS_GGUF_STRING, v->n_merges);
        for (size_t i = 0; i < v->n_merges; i++)
            put_str(b, v->merges[i], strlen(v->merges[i]));
        keys++;
    }
    if (v->n_types != 0) {
        put_array(b, "tokenizer.ggml.token_type", v->types_as_text ? DS_GGUF_STRING : DS_GGUF_I32,
                  v->n_types);
        for (size_t i = 0; i < v->n_types; i++) {
            if (v->types_as_text)
                put_str(b, "1", 1);
            else
                put(b, (uint32_t)v->types[i], 4);
        }
        keys++;
    }
    return keys;
}

/* The bytes of a file with this vocabulary and no tensors. */
static inline void build(const struct vocabulary *v, struct ds_buf *out)
{
    struct ds_buf b = {0};
    uint64_t keys = 0;
    static const char *const names[] = {"tokenizer.ggml.model", "tokenizer.ggml.pre",
                                        "tokenizer.chat_template"};
    const char *const texts[] = {v->model, v->pre, v->template_text};
    for (int i = 0; i < 3; i++)
        if (texts[i] != NULL && strcmp(texts[i], LEAVE_OUT) != 0) {
            put_text_key(&b, names[i], texts[i]);
            keys++;
        }
    keys += put_lists(&b, v);
    if (v->bos != -1) {
        put_number_key(&b, "tokenizer.ggml.bos_token_id", DS_GGUF_U32, (uint64_t)v->bos, 4);
        keys++;
    }
    if (v->eos != -1) {
        put_number_key(&b, "tokenizer.ggml.eos_token_id", DS_GGUF_U32, (uint64_t)v->eos, 4);
        keys++;
    }
    put_number_key(&b, "tokenizer.ggml.add_bos_token", DS_GGUF_BOOL, (uint64_t)v->add_bos, 1);
    put_number_key(&b, "tokenizer.ggml.add_eos_token", DS_GGUF_BOOL, (uint64_t)v->add_eos, 1);
    out->len = 0;
    ds_buf_add(out, "GGUF", 4);
    put(out, 3, 4);
    put(out, 0, 8);
    put(out, keys + 2, 8);
    ds_buf_add(out, b.data, b.len);
    assert_false(b.failed || out->failed);
    ds_buf_free(&b);
}

static inline int make(const struct vocabulary *v, struct ds_tokenizer **t, struct ds_error *err)
{
    struct ds_buf file = {0};
    struct ds_gguf *g = NULL;
    build(v, &file);
    assert_ok(ds_gguf_open_bytes(file.data, file.len, "tiny.gguf", &g, err), *err);
    int rc = ds_tokenizer_new(g, t, err);
    ds_gguf_close(g);
    ds_buf_free(&file);
    return rc;
}

#endif
