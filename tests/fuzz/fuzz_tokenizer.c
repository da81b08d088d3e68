/* fuzz_tokenizer.c: any bytes -> ids -> bytes, on the tiny vocabularies. What must hold: no crash,
 * ids inside the vocabulary, and where every byte has a token and the text is UTF-8, the same bytes
 * again.
 *
 * First byte of the input: which vocabulary, whether special tokens are parsed, whether begin and
 * end tokens are added. */
#include "engine/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct ds_tokenizer *tokenizers[3];

static void load(void)
{
    static const char *const files[] = {"smollm", "gpt-2", "default"};
    for (int i = 0; i < 3; i++) {
        struct ds_error err;
        struct ds_gguf *g = NULL;
        char path[64];
        snprintf(path, sizeof path, "tests/data/tokenizer/tiny_%s.gguf", files[i]);
        if (ds_gguf_open(path, &g, &err) != 0 || ds_tokenizer_new(g, &tokenizers[i], &err) != 0) {
            fprintf(stderr, "%s\n", err.msg);
            abort();
        }
        ds_gguf_close(g);
    }
}

static int valid_utf8(const char *text, size_t n)
{
    int len = 1;
    for (size_t i = 0; i < n && len > 0; i += (size_t)len)
        len = ds_utf8_len(text + i, n - i);
    return len > 0;
}

static void check(const struct ds_tokenizer *t, const char *text, size_t n, int add, int parse)
{
    struct ds_error err;
    int32_t *ids = NULL;
    size_t count = 0, unknown = 0;
    if (ds_tokenizer_encode(t, text, n, add, parse, &ids, &count, &unknown, &err) != 0)
        abort();
    struct ds_buf out = {0};
    for (size_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= ds_tokenizer_vocab(t) ||
            ds_tokenizer_decode(t, ids[i], 1, &out, &err) != 0)
            abort();
    if (!add && unknown == 0 && valid_utf8(text, n) &&
        (out.len != n || (n != 0 && memcmp(out.data, text, n) != 0)))
        abort();
    ds_buf_free(&out);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (tokenizers[0] == NULL)
        load();
    if (size == 0)
        return 0;
    check(tokenizers[data[0] % 3], (const char *)data + 1, size - 1, data[0] >> 6 & 1,
          data[0] >> 7);
    return 0;
}
