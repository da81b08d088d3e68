/* gguf.h: reads GGUF files (v2, v3; little-endian) by memory map. Knows the container, not the
 * models in it.
 *
 * Format source: the GGUF specification of the ggml project (docs/gguf.md). The file is hostile:
 * every count, length, offset and type is checked against the file size before use, and nothing is
 * allocated in proportion to a number that the file size does not back. */
#ifndef DS_GGUF_H
#define DS_GGUF_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* Values of a metadata entry's type field, as in the specification. */
enum ds_gguf_type {
    DS_GGUF_U8,
    DS_GGUF_I8,
    DS_GGUF_U16,
    DS_GGUF_I16,
    DS_GGUF_U32,
    DS_GGUF_I32,
    DS_GGUF_F32,
    DS_GGUF_BOOL,
    DS_GGUF_STRING,
    DS_GGUF_ARRAY,
    DS_GGUF_U64,
    DS_GGUF_I64,
    DS_GGUF_F64
};

struct ds_gguf;

/* A string inside the map: not NUL-terminated, may hold any byte. */
struct ds_gguf_str {
    const char *data;
    size_t len;
};

/* A tensor as the file describes it. dims[0] is the fastest (the row length); n_dims 1..4; unused
 * dims are 1. */
struct ds_gguf_tensor {
    const char *name; /* NUL-terminated copy, at most 63 bytes, printable */
    uint32_t type;    /* ggml type number */
    uint32_t n_dims;
    uint64_t dims[4];
    const void *data; /* in the map */
    size_t bytes;
};

/* Opens and checks the whole container. -1: message names the file and the field. */
int ds_gguf_open(const char *path, struct ds_gguf **out, struct ds_error *err);
/* The same on bytes in memory (fuzzing, tests); `name` appears in messages; the bytes must outlive
 * the result. */
int ds_gguf_open_bytes(const void *bytes, size_t size, const char *name, struct ds_gguf **out,
                       struct ds_error *err);
void ds_gguf_close(struct ds_gguf *g);
/* Gives the pages of some bytes of the map back to the system; what is read later comes from the
 * file again. */
void ds_gguf_release(const struct ds_gguf *g, const void *bytes, size_t n);

/* The file's name for messages: the path, escaped, its front cut if long. */
const char *ds_gguf_name(const struct ds_gguf *g);
/* Bytes of the whole file. */
size_t ds_gguf_size(const struct ds_gguf *g);

/* Metadata by key. Return 1 when found, 0 when the key is absent, -1 (err set, names file and key)
 * when it has another type or does not fit. Integers of any width and sign convert if the value
 * fits; BOOL counts as 0 or 1. */
int ds_gguf_get_u64(const struct ds_gguf *g, const char *key, uint64_t *out, struct ds_error *err);
int ds_gguf_get_f64(const struct ds_gguf *g, const char *key, double *out, struct ds_error *err);
int ds_gguf_get_str(const struct ds_gguf *g, const char *key, struct ds_gguf_str *out,
                    struct ds_error *err);
/* Arrays: number of elements and element type; then single elements. Element access is O(1). */
int ds_gguf_get_array(const struct ds_gguf *g, const char *key, int *elem_type, size_t *count,
                      struct ds_error *err);
int ds_gguf_array_str(const struct ds_gguf *g, const char *key, size_t i, struct ds_gguf_str *out,
                      struct ds_error *err);
/* Copies a whole numeric array (converted as above); *out is malloc'ed, the caller frees it. */
int ds_gguf_array_i64(const struct ds_gguf *g, const char *key, int64_t **out, size_t *count,
                      struct ds_error *err);

/* Iterates all metadata keys: the i-th key's name (NUL-terminated), its type and, for scalars and
 * strings, its value as short text (escaped, cut). 0, or -1 past the end. */
int ds_gguf_meta_text(const struct ds_gguf *g, size_t i, const char **key, char *text,
                      size_t text_size);

size_t ds_gguf_tensor_count(const struct ds_gguf *g);
const struct ds_gguf_tensor *ds_gguf_tensor_at(const struct ds_gguf *g, size_t i);
const struct ds_gguf_tensor *ds_gguf_tensor_find(const struct ds_gguf *g, const char *name);

/* ---- tensor types: a table row each (quant.c) ------------------------------------------------ */

struct ds_quant_type {
    uint32_t ggml;    /* number in the file */
    const char *name; /* "q4_1" */
    uint32_t block;   /* elements per block */
    uint32_t bytes;   /* bytes per block */
    /* Dequantises n elements (a multiple of block), exactly as the gguf Python package does. */
    void (*to_f32)(const void *src, float *dst, size_t n);
};

/* NULL for a type this build does not load. */
const struct ds_quant_type *ds_quant_find(uint32_t ggml);
/* Elements and bytes of a block of any known ggml type, loadable or not; -1 for an unknown number.
 */
int ds_quant_layout(uint32_t ggml, uint32_t *block, uint32_t *bytes);
/* Name of any known ggml type number, loadable or not, for messages; "type N" text otherwise. */
const char *ds_quant_name(uint32_t ggml, char *space, size_t size);

#endif
