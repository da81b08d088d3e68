/* gguf_parse.c: walks a GGUF file once, checks every count, length, type and offset against the
 * file's size, and lists what lies where. Owns the byte layout; knows no keys but
 * general.alignment. The file is hostile: what is allocated follows what has been read, never a
 * number in a header. */
#include "engine/gguf_priv.h"

#include "base/buf.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The smallest things there can be: a key of one byte with a one-byte value; a tensor of one
 * dimension. */
enum { MIN_ENTRY = 8 + 1 + 4 + 1, MIN_TENSOR = 8 + 1 + 4 + 8 + 4 + 8 };
/* Real files have some dozens. A key takes more room here than in the file: hence a limit. */
enum { MAX_ENTRIES = 100000 };

struct cursor {
    struct ds_gguf *g;
    size_t pos;
    struct ds_error *err;
};

static size_t left(const struct cursor *c)
{
    return c->g->size - c->pos;
}

static int truncated(struct cursor *c, const char *what)
{
    return ds_fail(c->err, "%s: the file ends inside %s (at byte %zu of %zu)", c->g->label, what,
                   c->pos, c->g->size);
}

static int read_le(struct cursor *c, size_t n, uint64_t *out, const char *what)
{
    if (left(c) < n)
        return truncated(c, what);
    *out = gguf_le(c->g->bytes + c->pos, n);
    c->pos += n;
    return 0;
}

static int read_u32(struct cursor *c, uint32_t *out, const char *what)
{
    uint64_t v = 0;
    if (read_le(c, 4, &v, what))
        return -1;
    *out = (uint32_t)v;
    return 0;
}

/* A length field and that many bytes. */
static int read_string(struct cursor *c, uint64_t *at, uint64_t *len, const char *what)
{
    if (read_le(c, 8, len, what))
        return -1;
    if (*len > left(c))
        return ds_fail(
            c->err, "%s: %s has a length of %" PRIu64 " bytes, but only %zu are left in the file",
            c->g->label, what, *len, left(c));
    *at = c->pos;
    c->pos += (size_t)*len;
    return 0;
}

/* A key or a tensor name: 1..most bytes of printable ASCII. */
static int read_name(struct cursor *c, size_t most, const char **name, size_t *len,
                     const char *what)
{
    uint64_t at, n;
    if (read_string(c, &at, &n, what))
        return -1;
    if (n == 0 || n > most)
        return ds_fail(c->err, "%s: %s is %" PRIu64 " bytes long; 1 to %zu are possible",
                       c->g->label, what, n, most);
    const char *p = (const char *)c->g->bytes + at;
    for (uint64_t i = 0; i < n; i++)
        if (p[i] < 0x20 || p[i] > 0x7e) {
            struct ds_buf shown = {0};
            ds_buf_escape(&shown, p, n < 80 ? (size_t)n : 80);
            ds_fail(c->err, "%s: %s is not printable ASCII: \"%s\"", c->g->label, what,
                    shown.data ? shown.data : "");
            ds_buf_free(&shown);
            return -1;
        }
    *name = p;
    *len = (size_t)n;
    return 0;
}

/* ---- metadata -------------------------------------------------------------------------------- */

/* Checks `count` elements of an array and steps over them. */
static int skip_elements(struct cursor *c, uint32_t elem, uint64_t count, int depth,
                         uint64_t *offsets, const char *what);

/* Reads an array's element type and count and checks that so many can be there. */
static int read_array_head(struct cursor *c, uint32_t *elem, uint64_t *count, const char *what)
{
    if (read_u32(c, elem, what) || read_le(c, 8, count, what))
        return -1;
    if (!ds_gguf_type_name(*elem))
        return ds_fail(c->err, "%s: %s is an array of unknown type %" PRIu32, c->g->label, what,
                       *elem);
    size_t least = *elem == DS_GGUF_STRING  ? 8
                   : *elem == DS_GGUF_ARRAY ? 12
                                            : ds_gguf_type_size(*elem);
    if (*count > left(c) / least)
        return ds_fail(c->err,
                       "%s: %s is an array of %" PRIu64
                       " elements, but only %zu bytes are left in the file",
                       c->g->label, what, *count, left(c));
    return 0;
}

static int skip_elements(struct cursor *c, uint32_t elem, uint64_t count, int depth,
                         uint64_t *offsets, const char *what)
{
    if (elem == DS_GGUF_ARRAY && depth >= GGUF_MAX_DEPTH)
        return ds_fail(c->err, "%s: %s holds arrays nested more than %d deep", c->g->label, what,
                       GGUF_MAX_DEPTH);
    if (elem != DS_GGUF_STRING && elem != DS_GGUF_ARRAY) {
        c->pos += (size_t)count *
                  ds_gguf_type_size(elem); /* read_array_head checked that they are there */
        return 0;
    }
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at, len;
        uint32_t inner;
        if (offsets)
            offsets[i] = c->pos;
        if (elem == DS_GGUF_STRING) {
            if (read_string(c, &at, &len, what))
                return -1;
        } else if (read_array_head(c, &inner, &len, what) ||
                   skip_elements(c, inner, len, depth + 1, NULL, what)) {
            return -1;
        }
    }
    return 0;
}

static int read_array(struct cursor *c, struct gguf_entry *e, const char *what)
{
    if (read_array_head(c, &e->elem, &e->count, what))
        return -1;
    e->value = c->pos;
    if (e->elem == DS_GGUF_STRING) {
        /* 8 bytes for each string; each takes at least 8 in the file. */
        e->offsets = ds_calloc((size_t)e->count, sizeof *e->offsets, "string offsets", c->err);
        if (!e->offsets)
            return ds_prefix(c->err, "%s", c->g->label);
    }
    return skip_elements(c, e->elem, e->count, 1, e->offsets, what);
}

static int read_entry(struct cursor *c, size_t i)
{
    struct ds_gguf *g = c->g;
    char what[192];
    snprintf(what, sizeof what, "the key of metadata entry %zu", i);
    const char *key;
    size_t len;
    if (read_name(c, GGUF_MAX_KEY, &key, &len, what))
        return -1;
    if (ds_grow(&g->entries, &g->cap_entries, i + 1, sizeof *g->entries, "metadata", c->err))
        return ds_prefix(c->err, "%s", g->label);
    struct gguf_entry *e = &g->entries[i];
    e->key = ds_calloc(len + 1, 1, "metadata key", c->err);
    if (!e->key)
        return ds_prefix(c->err, "%s", g->label);
    memcpy(e->key, key, len);
    g->n_entries = i + 1;
    snprintf(what, sizeof what, "metadata key \"%.120s\"", e->key);
    if (read_u32(c, &e->type, what))
        return -1;
    if (!ds_gguf_type_name(e->type))
        return ds_fail(c->err, "%s: %s has unknown type %" PRIu32, g->label, what, e->type);
    if (e->type == DS_GGUF_STRING)
        return read_string(c, &e->value, &e->count, what);
    if (e->type == DS_GGUF_ARRAY)
        return read_array(c, e, what);
    uint64_t bits = 0;
    e->value = c->pos;
    if (read_le(c, ds_gguf_type_size(e->type), &bits, what))
        return -1;
    if (e->type == DS_GGUF_BOOL && bits > 1)
        return ds_fail(c->err, "%s: %s is a truth value of %" PRIu64 "; 0 and 1 are possible",
                       g->label, what, bits);
    return 0;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Sizes of one tensor: every dimension at least 1, whole blocks, no overflow. */
static int check_dims(struct cursor *c, struct ds_gguf_tensor *t, const char *name)
{
    uint64_t elements = 1;
    for (uint32_t d = 0; d < t->n_dims; d++) {
        if (t->dims[d] == 0)
            return ds_fail(c->err, "%s: tensor %s: dimension %" PRIu32 " is 0", c->g->label, name,
                           d);
        if (__builtin_mul_overflow(elements, t->dims[d], &elements) || elements > INT64_MAX)
            return ds_fail(c->err,
                           "%s: tensor %s: dimension %" PRIu32 " of %" PRIu64 " makes it overflow",
                           c->g->label, name, d, t->dims[d]);
    }
    uint32_t block, bytes;
    char space[32];
    const char *type = ds_quant_name(t->type, space, sizeof space);
    if (ds_quant_layout(t->type, &block, &bytes))
        return ds_fail(c->err, "%s: tensor %s has unknown type %" PRIu32, c->g->label, name,
                       t->type);
    if (t->dims[0] % block)
        return ds_fail(c->err,
                       "%s: tensor %s: rows of %" PRIu64 " are not whole %s blocks of %" PRIu32,
                       c->g->label, name, t->dims[0], type, block);
    uint64_t size;
    if (__builtin_mul_overflow(elements / block, (uint64_t)bytes, &size) || size > SIZE_MAX)
        return ds_fail(c->err, "%s: tensor %s: %" PRIu64 " elements of type %s overflow",
                       c->g->label, name, elements, type);
    t->bytes = (size_t)size;
    return 0;
}

/* `offset` is kept in t->data until the data section's start is known. */
static int read_tensor(struct cursor *c, size_t i, uint64_t *offset)
{
    struct ds_gguf *g = c->g;
    char what[128];
    snprintf(what, sizeof what, "the name of tensor %zu", i);
    const char *name;
    size_t len;
    if (read_name(c, GGUF_MAX_NAME, &name, &len, what))
        return -1;
    if (ds_grow(&g->tensors, &g->cap_tensors, i + 1, sizeof *g->tensors, "tensor list", c->err) ||
        ds_grow(&g->names, &g->cap_names, i + 1, sizeof *g->names, "tensor names", c->err))
        return ds_prefix(c->err, "%s", g->label);
    struct ds_gguf_tensor *t = &g->tensors[i];
    memcpy(g->names[i], name, len);
    g->n_tensors = i + 1;
    snprintf(what, sizeof what, "the description of tensor %s", g->names[i]);
    if (read_u32(c, &t->n_dims, what))
        return -1;
    if (t->n_dims < 1 || t->n_dims > 4)
        return ds_fail(c->err, "%s: tensor %s has %" PRIu32 " dimensions; 1 to 4 are possible",
                       g->label, g->names[i], t->n_dims);
    for (uint32_t d = 0; d < 4; d++) {
        t->dims[d] = 1;
        if (d < t->n_dims && read_le(c, 8, &t->dims[d], what))
            return -1;
    }
    if (read_u32(c, &t->type, what) || read_le(c, 8, offset, what))
        return -1;
    return check_dims(c, t, g->names[i]);
}

/* Puts the tensor's data where its offset says, if that is inside the file. */
static int place(struct cursor *c, size_t i, uint64_t start, uint64_t offset)
{
    struct ds_gguf *g = c->g;
    struct ds_gguf_tensor *t = &g->tensors[i];
    if (offset % g->alignment)
        return ds_fail(c->err,
                       "%s: tensor %s: offset %" PRIu64
                       " is not a multiple of general.alignment %" PRIu64,
                       g->label, g->names[i], offset, g->alignment);
    uint64_t begin, end;
    if (__builtin_add_overflow(start, offset, &begin) ||
        __builtin_add_overflow(begin, (uint64_t)t->bytes, &end) || end > g->size) {
        ds_fail(c->err,
                "%s: tensor %s: its %zu bytes at offset %" PRIu64
                " of the data section end outside the file "
                "(%zu bytes)",
                g->label, g->names[i], t->bytes, offset, g->size);
        return ds_hint(c->err, "the file may be cut off: compare its size with the original's");
    }
    t->data = g->bytes + begin;
    return 0;
}

static int read_tensors(struct cursor *c, uint64_t count)
{
    struct ds_gguf *g = c->g;
    uint64_t *offsets = NULL;
    size_t cap = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = ds_grow(&offsets, &cap, i + 1, sizeof *offsets, "tensor offsets", c->err);
        if (rc == 0)
            rc = read_tensor(c, i, &offsets[i]);
    }
    uint64_t start = (c->pos + g->alignment - 1) & ~(g->alignment - 1);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        g->tensors[i].name = g->names[i];
        rc = place(c, i, start, offsets[i]);
    }
    free(offsets);
    return rc;
}

/* ---- order for look-ups, and duplicates ------------------------------------------------------ */

struct named {
    const char *name;
    uint32_t index;
};

static int by_name(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

/* Sorts list[0..n-1] and gives the indices in ascending order; a name that is there twice is an
 * error. */
static int sort_names(struct cursor *c, struct named *list, size_t n, uint32_t **order,
                      const char *what)
{
    *order = ds_calloc(n, sizeof **order, what, c->err);
    if (!*order)
        return ds_prefix(c->err, "%s", c->g->label);
    if (n)
        qsort(list, n, sizeof *list, by_name);
    for (size_t i = 0; i < n; i++) {
        (*order)[i] = list[i].index;
        if (i && strcmp(list[i - 1].name, list[i].name) == 0)
            return ds_fail(c->err, "%s: %s %.200s is there twice", c->g->label, what, list[i].name);
    }
    return 0;
}

static int sort_all(struct cursor *c, int tensors)
{
    struct ds_gguf *g = c->g;
    size_t n = tensors ? g->n_tensors : g->n_entries;
    struct named *list = ds_calloc(n, sizeof *list, "names", c->err);
    if (!list)
        return ds_prefix(c->err, "%s", g->label);
    for (size_t i = 0; i < n; i++) {
        list[i].name = tensors ? g->names[i] : g->entries[i].key;
        list[i].index = (uint32_t)i;
    }
    int rc = sort_names(c, list, n, tensors ? &g->tensor_order : &g->entry_order,
                        tensors ? "tensor" : "metadata key");
    free(list);
    return rc;
}

/* ---- the whole file -------------------------------------------------------------------------- */

/* What was meant, by the first bytes of a file that is no GGUF file. */
static int no_gguf(const struct ds_gguf *g, struct ds_error *err)
{
    static const unsigned char hdf5[] = {0x89, 'H', 'D', 'F'};
    const unsigned char *b = g->bytes;
    ds_fail(err, "%s: not a GGUF file (it does not begin with \"GGUF\")", g->label);
    if (g->size >= 4 && memcmp(b, hdf5, sizeof hdf5) == 0)
        return ds_hint(err, "if it is a record: driftscope show %.300s", g->label);
    /* Eight bytes of length, then JSON. */
    if (g->size >= 10 && b[8] == '{' && b[6] == 0 && b[7] == 0)
        return ds_hint(err, "it looks like safetensors: llama.cpp's convert_hf_to_gguf.py makes a "
                            ".gguf of the folder that it lies in");
    return ds_hint(err, "models in other formats: llama.cpp's convert_hf_to_gguf.py makes a .gguf "
                        "of a folder as Hugging Face has them");
}

static int read_version(struct cursor *c)
{
    struct ds_gguf *g = c->g;
    if (g->size == 0)
        return ds_fail(c->err, "%s: the file is empty", g->label);
    if (g->size < 4 || memcmp(g->bytes, "GGUF", 4) != 0)
        return no_gguf(g, c->err);
    c->pos = 4;
    if (read_u32(c, &g->version, "the version"))
        return -1;
    if (g->version == 2 || g->version == 3)
        return 0;
    uint32_t swapped = __builtin_bswap32(g->version);
    if (swapped >= 1 && swapped <= 3)
        return ds_fail(c->err,
                       "%s: version: a big-endian file (version %" PRIu32
                       "); only little-endian ones are supported",
                       g->label, swapped);
    return ds_fail(c->err, "%s: version %" PRIu32 " is not supported; 2 and 3 are", g->label,
                   g->version);
}

static int read_header_count(struct cursor *c, const char *what, size_t least, uint64_t *count)
{
    if (read_le(c, 8, count, what))
        return -1;
    if (*count > left(c) / least || *count > UINT32_MAX)
        return ds_fail(c->err, "%s: %s is %" PRIu64 ", but only %zu bytes are left in the file",
                       c->g->label, what, *count, left(c));
    return 0;
}

static int read_alignment(struct cursor *c)
{
    struct ds_gguf *g = c->g;
    g->alignment = 32;
    if (ds_gguf_get_u64(g, "general.alignment", &g->alignment, c->err) < 0)
        return -1;
    if (g->alignment < 8 || g->alignment > (uint64_t)1 << 30 || (g->alignment & (g->alignment - 1)))
        return ds_fail(c->err,
                       "%s: general.alignment is %" PRIu64 "; a power of two from 8 on is possible",
                       g->label, g->alignment);
    return 0;
}

int ds_gguf_parse(struct ds_gguf *g, struct ds_error *err)
{
    struct cursor c = {.g = g, .err = err};
    uint64_t n_tensors, n_entries;
    if (read_version(&c) || read_header_count(&c, "tensor_count", MIN_TENSOR, &n_tensors) ||
        read_header_count(&c, "metadata_kv_count", MIN_ENTRY, &n_entries))
        return -1;
    if (n_entries > MAX_ENTRIES)
        return ds_fail(err, "%s: metadata_kv_count is %" PRIu64 "; at most %d keys are possible",
                       g->label, n_entries, MAX_ENTRIES);
    for (size_t i = 0; i < n_entries; i++)
        if (read_entry(&c, i))
            return -1;
    if (sort_all(&c, 0) || read_alignment(&c) || read_tensors(&c, n_tensors))
        return -1;
    return sort_all(&c, 1);
}
