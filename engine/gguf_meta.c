/* gguf_meta.c: metadata values by key, converted with every loss found, and as short text. Knows
 * value types; knows no keys. */
#include "engine/gguf_priv.h"

#include "base/buf.h"
#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    unsigned char size, is_signed, is_real; /* size 0: not a scalar */
} types[] = {
    [DS_GGUF_U8] = {"u8", 1, 0, 0},         [DS_GGUF_I8] = {"i8", 1, 1, 0},
    [DS_GGUF_U16] = {"u16", 2, 0, 0},       [DS_GGUF_I16] = {"i16", 2, 1, 0},
    [DS_GGUF_U32] = {"u32", 4, 0, 0},       [DS_GGUF_I32] = {"i32", 4, 1, 0},
    [DS_GGUF_F32] = {"f32", 4, 1, 1},       [DS_GGUF_BOOL] = {"bool", 1, 0, 0},
    [DS_GGUF_STRING] = {"string", 0, 0, 0}, [DS_GGUF_ARRAY] = {"array", 0, 0, 0},
    [DS_GGUF_U64] = {"u64", 8, 0, 0},       [DS_GGUF_I64] = {"i64", 8, 1, 0},
    [DS_GGUF_F64] = {"f64", 8, 1, 1},
};

enum { N_TYPES = sizeof types / sizeof types[0] };

const char *ds_gguf_type_name(uint32_t type)
{
    return type < N_TYPES ? types[type].name : NULL;
}

size_t ds_gguf_type_size(uint32_t type)
{
    return type < N_TYPES ? types[type].size : 0;
}

static int wrong_type(const struct ds_gguf *g, const struct gguf_entry *e, const char *want,
                      struct ds_error *err)
{
    if (e->type == DS_GGUF_ARRAY)
        return ds_fail(err, "%s: %.200s is an array of %" PRIu64 " %s values; %s is wanted",
                       g->label, e->key, e->count, types[e->elem].name, want);
    return ds_fail(err, "%s: %.200s has type %s; %s is wanted", g->label, e->key,
                   types[e->type].name, want);
}

/* The whole number of a scalar type at p, as its 64-bit pattern; *negative tells how to read it. */
static uint64_t whole(const unsigned char *p, uint32_t type, int *negative)
{
    size_t size = types[type].size;
    uint64_t v = gguf_le(p, size);
    *negative = types[type].is_signed && (v >> (8 * size - 1)) & 1;
    if (*negative && size < 8)
        v |= ~(uint64_t)0 << (8 * size);
    return v;
}

static int is_whole(uint32_t type)
{
    return types[type].size && !types[type].is_real;
}

static double real(const unsigned char *p, uint32_t type)
{
    if (type == DS_GGUF_F32) {
        uint32_t bits = (uint32_t)gguf_le(p, 4);
        float v;
        memcpy(&v, &bits, sizeof v);
        return (double)v;
    }
    uint64_t bits = gguf_le(p, 8);
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

int ds_gguf_get_u64(const struct ds_gguf *g, const char *key, uint64_t *out, struct ds_error *err)
{
    const struct gguf_entry *e = ds_gguf_entry(g, key);
    if (!e)
        return 0;
    if (!is_whole(e->type))
        return wrong_type(g, e, "one whole number", err);
    int negative;
    uint64_t v = whole(g->bytes + e->value, e->type, &negative);
    if (negative)
        return ds_fail(err, "%s: %.200s is %" PRId64 "; it cannot be negative", g->label, key,
                       (int64_t)v);
    *out = v;
    return 1;
}

int ds_gguf_get_f64(const struct ds_gguf *g, const char *key, double *out, struct ds_error *err)
{
    const struct gguf_entry *e = ds_gguf_entry(g, key);
    if (!e)
        return 0;
    if (!types[e->type].size || e->type == DS_GGUF_BOOL)
        return wrong_type(g, e, "one number", err);
    if (types[e->type].is_real) {
        *out = real(g->bytes + e->value, e->type);
        return 1;
    }
    int negative;
    uint64_t v = whole(g->bytes + e->value, e->type, &negative);
    uint64_t size = negative ? 0 - v : v;
    if (size > (uint64_t)1 << 53)
        return ds_fail(err, "%s: %.200s is too large to be exact", g->label, key);
    *out = negative ? -(double)size : (double)size;
    return 1;
}

int ds_gguf_get_str(const struct ds_gguf *g, const char *key, struct ds_gguf_str *out,
                    struct ds_error *err)
{
    const struct gguf_entry *e = ds_gguf_entry(g, key);
    if (!e)
        return 0;
    if (e->type != DS_GGUF_STRING)
        return wrong_type(g, e, "a string", err);
    out->data = (const char *)g->bytes + e->value;
    out->len = (size_t)e->count;
    return 1;
}

/* ---- arrays ---------------------------------------------------------------------------------- */

int ds_gguf_get_array(const struct ds_gguf *g, const char *key, int *elem_type, size_t *count,
                      struct ds_error *err)
{
    const struct gguf_entry *e = ds_gguf_entry(g, key);
    if (!e)
        return 0;
    if (e->type != DS_GGUF_ARRAY)
        return wrong_type(g, e, "an array", err);
    *elem_type = (int)e->elem;
    *count = (size_t)e->count;
    return 1;
}

int ds_gguf_array_str(const struct ds_gguf *g, const char *key, size_t i, struct ds_gguf_str *out,
                      struct ds_error *err)
{
    const struct gguf_entry *e = ds_gguf_entry(g, key);
    if (!e)
        return 0;
    if (e->type != DS_GGUF_ARRAY || e->elem != DS_GGUF_STRING)
        return wrong_type(g, e, "an array of strings", err);
    if (i >= e->count)
        return ds_fail(err, "%s: %.200s has %" PRIu64 " elements; element %zu was asked for",
                       g->label, key, e->count, i);
    const unsigned char *p = g->bytes + e->offsets[i];
    out->len = (size_t)gguf_le(p, 8);
    out->data = (const char *)p + 8;
    return 1;
}

int ds_gguf_array_i64(const struct ds_gguf *g, const char *key, int64_t **out, size_t *count,
                      struct ds_error *err)
{
    const struct gguf_entry *e = ds_gguf_entry(g, key);
    if (!e)
        return 0;
    if (e->type != DS_GGUF_ARRAY || !is_whole(e->elem))
        return wrong_type(g, e, "an array of whole numbers", err);
    int64_t *values = ds_calloc((size_t)e->count, sizeof *values, "metadata array", err);
    if (!values)
        return ds_prefix(err, "%s: %.200s", g->label, key);
    const unsigned char *p = g->bytes + e->value;
    for (uint64_t i = 0; i < e->count; i++, p += types[e->elem].size) {
        int negative;
        uint64_t v = whole(p, e->elem, &negative);
        if ((!negative && v > INT64_MAX) || (e->elem == DS_GGUF_BOOL && v > 1)) {
            free(values);
            return ds_fail(err,
                           "%s: %.200s: element %" PRIu64 " is %" PRIu64 ", which does not fit",
                           g->label, key, i, v);
        }
        values[i] = (int64_t)v;
    }
    *out = values;
    *count = (size_t)e->count;
    return 1;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Escapes and cuts at a whole character so that it fits, with "..." where something was left out.
 */
static void string_text(const unsigned char *p, uint64_t len, char *text, size_t size)
{
    struct ds_buf b = {0};
    ds_buf_escape(&b, (const char *)p, len < size ? (size_t)len : size);
    if (!b.failed && b.len < size && len < size) {
        snprintf(text, size, "%s", b.data ? b.data : "");
    } else if (size > 4 && !b.failed) {
        size_t keep = b.len < size - 4 ? b.len : size - 4;
        while (keep && ((unsigned char)b.data[keep] & 0xc0) == 0x80)
            keep--;
        snprintf(text, size, "%.*s...", (int)keep, b.data);
    } else {
        snprintf(text, size, "...");
    }
    ds_buf_free(&b);
}

int ds_gguf_meta_text(const struct ds_gguf *g, size_t i, const char **key, char *text, size_t size)
{
    if (i >= g->n_entries)
        return -1;
    const struct gguf_entry *e = &g->entries[i];
    const unsigned char *p = g->bytes + e->value;
    *key = e->key;
    if (size == 0)
        return 0;
    int negative;
    if (e->type == DS_GGUF_STRING)
        string_text(p, e->count, text, size);
    else if (e->type == DS_GGUF_ARRAY)
        snprintf(text, size, "%s[%" PRIu64 "]", types[e->elem].name, e->count);
    else if (types[e->type].is_real && isnan(real(p, e->type)))
        snprintf(text, size, "nan");
    else if (types[e->type].is_real)
        snprintf(text, size, e->type == DS_GGUF_F32 ? "%.9g" : "%.17g", real(p, e->type));
    else if (e->type == DS_GGUF_BOOL)
        snprintf(text, size, "%s", p[0] ? "true" : "false");
    else if (types[e->type].is_signed)
        snprintf(text, size, "%" PRId64, (int64_t)whole(p, e->type, &negative));
    else
        snprintf(text, size, "%" PRIu64, whole(p, e->type, &negative));
    return 0;
}
