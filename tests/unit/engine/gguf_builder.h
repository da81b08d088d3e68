/* gguf_builder.h: builds small GGUF files in memory, right or wrong in one place, for the tests of
 * engine/. */
#ifndef GGUF_BUILDER_H
#define GGUF_BUILDER_H

#include "base/buf.h"
#include "engine/gguf.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct builder {
    struct ds_buf meta, infos, data;
    uint64_t n_meta, n_tensors, alignment;
    uint32_t version;
};

static inline void put(struct ds_buf *b, uint64_t v, int bytes)
{
    unsigned char le[8];
    for (int i = 0; i < 8; i++)
        le[i] = (unsigned char)(v >> (8 * i));
    ds_buf_add(b, le, (size_t)bytes);
}

static inline void put_str(struct ds_buf *b, const char *s, size_t n)
{
    put(b, n, 8);
    ds_buf_add(b, s, n);
}

/* A key and its type; the caller adds the value. */
static inline void add_key(struct builder *b, const char *key, uint32_t type)
{
    put_str(&b->meta, key, strlen(key));
    put(&b->meta, type, 4);
    b->n_meta++;
}

static inline void add_u32(struct builder *b, const char *key, uint32_t v)
{
    add_key(b, key, DS_GGUF_U32);
    put(&b->meta, v, 4);
}

static inline void add_f32(struct builder *b, const char *key, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    add_key(b, key, DS_GGUF_F32);
    put(&b->meta, bits, 4);
}

static inline void add_text(struct builder *b, const char *key, const char *v)
{
    add_key(b, key, DS_GGUF_STRING);
    put_str(&b->meta, v, strlen(v));
}

static inline void add_info(struct builder *b, const char *name, uint32_t type, uint32_t n_dims,
                            const uint64_t *dims, uint64_t offset)
{
    put_str(&b->infos, name, strlen(name));
    put(&b->infos, n_dims, 4);
    for (uint32_t d = 0; d < n_dims && d < 8; d++)
        put(&b->infos, dims[d], 8);
    put(&b->infos, type, 4);
    put(&b->infos, offset, 8);
    b->n_tensors++;
}

/* A tensor with `bytes` bytes of small varied values at the next aligned offset. */
static inline void add_tensor(struct builder *b, const char *name, uint32_t type, uint64_t cols,
                              uint64_t rows, size_t bytes)
{
    uint64_t align = b->alignment ? b->alignment : 32, dims[2] = {cols, rows};
    while (b->data.len % align)
        put(&b->data, 0, 1);
    add_info(b, name, type, rows == 1 ? 1 : 2, dims, b->data.len);
    for (size_t i = 0; i < bytes; i++)
        put(&b->data, (i * 7 + b->n_tensors) & 0x3f, 1);
}

/* The file's bytes in memory of exactly their size, so that a sanitizer sees any read beyond. The
 * builder is emptied. */
static inline unsigned char *finish(struct builder *b, size_t *size)
{
    struct ds_buf out = {0};
    uint64_t align = b->alignment ? b->alignment : 32;
    ds_buf_puts(&out, "GGUF");
    put(&out, b->version ? b->version : 3, 4);
    put(&out, b->n_tensors, 8);
    put(&out, b->n_meta, 8);
    ds_buf_add(&out, b->meta.data, b->meta.len);
    ds_buf_add(&out, b->infos.data, b->infos.len);
    while (b->n_tensors && out.len % align)
        put(&out, 0, 1);
    ds_buf_add(&out, b->data.data, b->data.len);
    unsigned char *bytes = malloc(out.len);
    if (bytes)
        memcpy(bytes, out.data, out.len);
    *size = out.len;
    ds_buf_free(&b->meta);
    ds_buf_free(&b->infos);
    ds_buf_free(&b->data);
    ds_buf_free(&out);
    memset(b, 0, sizeof *b);
    return bytes;
}

/* A whole file of the repository. */
static inline unsigned char *read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    struct ds_buf b = {0};
    char chunk[4096];
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) > 0;)
        ds_buf_add(&b, chunk, n);
    fclose(f);
    unsigned char *bytes = malloc(b.len ? b.len : 1);
    if (bytes && b.len)
        memcpy(bytes, b.data, b.len);
    *size = b.len;
    ds_buf_free(&b);
    return bytes;
}

#endif
