/* gguf_priv.h: the parsed form of a GGUF file, shared by the gguf_*.c files only. */
#ifndef DS_GGUF_PRIV_H
#define DS_GGUF_PRIV_H

#include "engine/gguf.h"

enum { GGUF_MAX_KEY = 65535, GGUF_MAX_NAME = 63, GGUF_MAX_DEPTH = 8, GGUF_LABEL = 512 };

/* One metadata entry. `value` is the byte offset of a scalar, of a string's characters, or of an
 * array's first element. */
struct gguf_entry {
    char *key;           /* NUL-terminated copy */
    uint32_t type, elem; /* enum ds_gguf_type; elem of arrays */
    uint64_t value;
    uint64_t count;    /* length of a string, number of elements of an array */
    uint64_t *offsets; /* arrays of strings: where each one's length field is */
};

struct ds_gguf {
    const unsigned char *bytes;
    size_t size;
    int mapped;             /* bytes are a map of our own */
    char label[GGUF_LABEL]; /* the name for messages: cut at the front if long, escaped */
    uint32_t version;
    uint64_t alignment;
    struct gguf_entry *entries;
    size_t n_entries, cap_entries;
    uint32_t *entry_order; /* indices in ascending key order */
    struct ds_gguf_tensor *tensors;
    char (*names)[GGUF_MAX_NAME + 1];
    size_t n_tensors, cap_tensors, cap_names;
    uint32_t *tensor_order; /* indices in ascending name order */
};

/* "u32", "string", ...; NULL for a number that is no type. */
const char *ds_gguf_type_name(uint32_t type);
/* Bytes of a scalar type; 0 for strings, arrays and numbers that are no type. */
size_t ds_gguf_type_size(uint32_t type);

/* Little-endian reads at an offset that the caller has checked. */
static inline uint64_t gguf_le(const unsigned char *p, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

/* Parses everything behind g->bytes and g->size (gguf_parse.c). */
int ds_gguf_parse(struct ds_gguf *g, struct ds_error *err);

/* NULL when absent. */
const struct gguf_entry *ds_gguf_entry(const struct ds_gguf *g, const char *key);

#endif
