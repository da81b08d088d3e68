/* fuzz_tokenizer_file.c: damaged vocabularies. The input is a list of edits (two bytes of place,
 * one of value) of a tiny GGUF file; it must be refused with a message, or give a tokenizer that
 * encodes, decodes and fills a chat form without a crash. */
#include "engine/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char sound[65536];
static size_t sound_size;

static void load(void)
{
    FILE *f = fopen("tests/data/tokenizer/tiny_smollm.gguf", "rb");
    if (f == NULL)
        abort();
    sound_size = fread(sound, 1, sizeof sound, f);
    fclose(f);
    if (sound_size < 1000 || sound_size == sizeof sound)
        abort();
}

static void use(const struct ds_tokenizer *t)
{
    static const char text[] = "the quick <|im_start|>UxU\t 123 \xe6\x97\xa5\xff it's";
    struct ds_error err;
    struct ds_buf out = {0};
    int32_t *ids = NULL;
    size_t count = 0, unknown = 0;
    if (ds_tokenizer_encode(t, text, strlen(text), 1, 1, &ids, &count, &unknown, &err) != 0)
        abort();
    for (size_t i = 0; i < count; i++)
        if (ds_tokenizer_decode(t, ids[i], 1, &out, &err) != 0)
            abort();
    for (int32_t id = 0; id < ds_tokenizer_vocab(t); id++)
        if (ds_tokenizer_decode(t, id, 1, &out, &err) != 0)
            abort();
    (void)ds_tokenizer_chat(t, "hello", &out, &err);
    ds_buf_free(&out);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (sound_size == 0)
        load();
    char *file = malloc(sound_size);
    if (file == NULL)
        return 0;
    memcpy(file, sound, sound_size);
    for (size_t i = 0; i + 3 <= size; i += 3)
        file[((size_t)data[i] << 8 | data[i + 1]) % sound_size] = (char)data[i + 2];
    struct ds_error err = {0};
    struct ds_gguf *g = NULL;
    struct ds_tokenizer *t = NULL;
    if (ds_gguf_open_bytes(file, sound_size, "tiny", &g, &err) == 0) {
        err.msg[0] = '\0';
        if (ds_tokenizer_new(g, &t, &err) == 0)
            use(t);
        else if (err.msg[0] == '\0')
            abort();
        ds_tokenizer_free(t);
        ds_gguf_close(g);
    }
    free(file);
    return 0;
}
