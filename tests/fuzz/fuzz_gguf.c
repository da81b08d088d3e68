/* fuzz_gguf.c: fuzz target for the GGUF parser and for building a model from what it accepts.
 * libFuzzer's interface; standalone_main.c runs it without clang. */
#include "engine/model.h"
#include "engine/model_priv.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Asks for one key in every way there is, and for elements at the ends of an array. */
static void ask(const struct ds_gguf *g, const char *key)
{
    struct ds_error err = {0};
    uint64_t whole;
    double real;
    struct ds_gguf_str text;
    int type;
    size_t count = 0;
    int64_t *values;
    volatile char sink = 0;
    (void)ds_gguf_get_u64(g, key, &whole, &err);
    (void)ds_gguf_get_f64(g, key, &real, &err);
    if (ds_gguf_get_str(g, key, &text, &err) == 1 && text.len)
        sink = (char)(text.data[0] ^ text.data[text.len - 1]);
    if (ds_gguf_get_array(g, key, &type, &count, &err) == 1)
        for (size_t i = 0; i<count; i += count> 8 ? count / 4 : 1)
            if (ds_gguf_array_str(g, key, i, &text, &err) == 1 && text.len)
                sink = (char)(text.data[0] ^ text.data[text.len - 1]);
    if (ds_gguf_array_str(g, key, count, &text, &err) == 1)
        abort(); /* one past the end */
    if (ds_gguf_array_i64(g, key, &values, &count, &err) == 1)
        free(values);
    (void)sink;
}

static void visit(const struct ds_gguf *g)
{
    const char *key;
    char text[48];
    for (size_t i = 0; ds_gguf_meta_text(g, i, &key, text, sizeof text) == 0; i++)
        ask(g, key);
    for (size_t i = 0; i < ds_gguf_tensor_count(g); i++) {
        const struct ds_gguf_tensor *t = ds_gguf_tensor_at(g, i);
        const struct ds_quant_type *type = ds_quant_find(t->type);
        const unsigned char *bytes = t->data;
        float block[32];
        if (ds_gguf_tensor_find(g, t->name) != t || t->bytes == 0)
            abort();
        if (!type)
            continue;
        type->to_f32(bytes, block, type->block);
        type->to_f32(bytes + t->bytes - type->bytes, block, type->block);
    }
}

/* The model's digest with its weights kept so, or 0 when the file holds none. */
static uint64_t open_model(const uint8_t *data, size_t size, int keep)
{
    struct ds_gguf *g = NULL;
    struct ds_model *m = NULL;
    struct ds_error err = {0};
    float row[4096];
    if (ds_gguf_open_bytes(data, size, "fuzz", &g, &err))
        abort();
    if (ds_model_from_gguf(g, keep, 1, &m, &err)) {
        if (!err.msg[0])
            abort();
        return 0;
    }
    if (ds_model_rope_table(m, 3, &err))
        abort();
    if (m->hp.d_model <= 4096)
        ds_model_embed_rows(m, (const int32_t[]){m->hp.vocab - 1}, 1, row);
    uint64_t digest = m->digest;
    ds_model_close(m);
    return digest;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ds_gguf *g = NULL;
    struct ds_error err = {0};
    if (ds_gguf_open_bytes(data, size, "fuzz", &g, &err)) {
        if (!err.msg[0] || g)
            abort();
        return 0;
    }
    visit(g);
    ds_gguf_close(g);
    if (open_model(data, size, DS_WEIGHTS_F32) != open_model(data, size, DS_WEIGHTS_FILE))
        abort();
    return 0;
}
