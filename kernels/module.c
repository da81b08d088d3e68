/* module.c: see module.h. Owns the words of a description and the members of the ops' structs. */
#include "kernels/module.h"

#include "kernels/registry.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- members ------------------------------------------------------------------------------------- */

struct member {
    int op;
    const char *name;
    int type;
    size_t at;
};
#define IN(OP, STRUCT, MEMBER, TYPE)                                                               \
    {                                                                                              \
        DS_OP_##OP, #MEMBER, DS_MODULE_##TYPE, offsetof(struct ds_##STRUCT##_args, MEMBER)         \
    }
static const struct member members[] = {
    IN(EMBED, embed, table, POINTER),
    IN(EMBED, embed, vocab, I64),
    IN(EMBED, embed, width, I64),
    IN(EMBED, embed, rows, I64),
    IN(EMBED, embed, ids, POINTER),
    IN(EMBED, embed, y, POINTER),
    IN(EMBED, embed, ldy, I64),
    IN(RMSNORM, rmsnorm, rows, I64),
    IN(RMSNORM, rmsnorm, width, I64),
    IN(RMSNORM, rmsnorm, x, POINTER),
    IN(RMSNORM, rmsnorm, ldx, I64),
    IN(RMSNORM, rmsnorm, weight, POINTER),
    IN(RMSNORM, rmsnorm, eps, F32),
    IN(RMSNORM, rmsnorm, y, POINTER),
    IN(RMSNORM, rmsnorm, ldy, I64),
    IN(MATMUL, matmul, rows, I64),
    IN(MATMUL, matmul, n, I64),
    IN(MATMUL, matmul, k, I64),
    IN(MATMUL, matmul, x, POINTER),
    IN(MATMUL, matmul, ldx, I64),
    IN(MATMUL, matmul, w.data, POINTER),
    IN(MATMUL, matmul, bias, POINTER),
    IN(MATMUL, matmul, y, POINTER),
    IN(MATMUL, matmul, ldy, I64),
    IN(ROPE, rope, rows, I64),
    IN(ROPE, rope, heads, I64),
    IN(ROPE, rope, head_dim, I64),
    IN(ROPE, rope, rope_dim, I64),
    IN(ROPE, rope, neox, I32),
    IN(ROPE, rope, positions, POINTER),
    IN(ROPE, rope, cos_sin, POINTER),
    IN(ROPE, rope, x, POINTER),
    IN(ROPE, rope, ldx, I64),
    IN(ROPE, rope, y, POINTER),
    IN(ROPE, rope, ldy, I64),
    IN(SOFTMAX, softmax, rows, I64),
    IN(SOFTMAX, softmax, width, I64),
    IN(SOFTMAX, softmax, x, POINTER),
    IN(SOFTMAX, softmax, ldx, I64),
    IN(SOFTMAX, softmax, y, POINTER),
    IN(SOFTMAX, softmax, ldy, I64),
    IN(SILU_MUL, silu_mul, rows, I64),
    IN(SILU_MUL, silu_mul, width, I64),
    IN(SILU_MUL, silu_mul, gate, POINTER),
    IN(SILU_MUL, silu_mul, up, POINTER),
    IN(SILU_MUL, silu_mul, ldx, I64),
    IN(SILU_MUL, silu_mul, y, POINTER),
    IN(SILU_MUL, silu_mul, ldy, I64),
    IN(ADD, add, rows, I64),
    IN(ADD, add, width, I64),
    IN(ADD, add, a, POINTER),
    IN(ADD, add, b, POINTER),
    IN(ADD, add, lda, I64),
    IN(ADD, add, ldb, I64),
    IN(ADD, add, y, POINTER),
    IN(ADD, add, ldy, I64),
    IN(COMBINE, combine, rows, I64),
    IN(COMBINE, combine, width, I64),
    IN(COMBINE, combine, top_k, I64),
    IN(COMBINE, combine, x, POINTER),
    IN(COMBINE, combine, ldx, I64),
    IN(COMBINE, combine, weights, POINTER),
    IN(COMBINE, combine, y, POINTER),
    IN(COMBINE, combine, ldy, I64),
};
enum { N_MEMBERS = sizeof members / sizeof members[0] };

static int find_member(int op, const char *name)
{
    for (int i = 0; i < N_MEMBERS; i++)
        if (members[i].op == op && strcmp(members[i].name, name) == 0)
            return i;
    return -1;
}

static int has_members(int op)
{
    for (int i = 0; i < N_MEMBERS; i++)
        if (members[i].op == op)
            return 1;
    return 0;
}

/* ---- parsing ------------------------------------------------------------------------------------- */

struct reader {
    const char *name;
    struct ds_module *m;
    struct ds_error *err;
};

/* A text of the object, printable and short enough for its place. */
static int read_text(const struct reader *r, const json_t *o, const char *key, int needed, char *to,
                     size_t size)
{
    const json_t *v = json_object_get(o, key);
    const char *s = json_string_value(v);
    if (!v && !needed)
        return 0;
    if (!s)
        return ds_fail(r->err, "module %s: %s is not a text", r->name, key);
    const size_t n = strlen(s);
    for (size_t i = 0; i < n; i++)
        if (s[i] < ' ' || s[i] > '~')
            return ds_fail(r->err, "module %s: %s has characters that are not printable ASCII",
                           r->name, key);
    if (n >= size || (needed && n == 0))
        return ds_fail(r->err, "module %s: %s has %zu characters, 1 to %zu are possible", r->name,
                       key, n, size - 1);
    memcpy(to, s, n + 1);
    return 0;
}

/* Bits of an array of words, by a table. */
static int read_words(const struct reader *r, const json_t *o, const char *key,
                      const char *const *words, int n, uint32_t *bits)
{
    const json_t *v = json_object_get(o, key);
    if (!v)
        return 0;
    if (!json_is_array(v))
        return ds_fail(r->err, "module %s: %s is not a list", r->name, key);
    *bits = 0;
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *s = json_string_value(json_array_get(v, i));
        int at = 0;
        while (s && at < n && strcmp(s, words[at]) != 0)
            at++;
        if (!s || at == n)
            return ds_fail(r->err, "module %s: %s: element %zu is not a word that is known",
                           r->name, key, i);
        *bits |= 1u << at;
    }
    return 0;
}

static int whole_number(const json_t *v, int64_t least, int64_t most, int64_t *out)
{
    if (!json_is_integer(v) || json_integer_value(v) < least || json_integer_value(v) > most)
        return -1;
    *out = json_integer_value(v);
    return 0;
}

/* Keys of an object that nobody asks for are mistakes that would else go unseen. */
static int only_keys(const struct reader *r, json_t *o, const char *what, const char *const *keys)
{
    const char *key;
    json_t *v;
    json_object_foreach(o, key, v)
    {
        int i = 0;
        while (keys[i] && strcmp(keys[i], key) != 0)
            i++;
        if (!keys[i])
            return ds_fail(r->err, "module %s: %s has a key that is not known, after %d known ones",
                           r->name, what, i);
    }
    return 0;
}

static int read_grid(const struct reader *r, const json_t *o)
{
    static const char *const keys[] = {"of", "per", NULL};
    const json_t *v = json_object_get(o, "grid");
    for (int i = 0; i < 3; i++)
        r->m->grid[i] = (struct ds_module_value){.member = -1, .whole = 1};
    if (!v)
        return 0;
    if (!json_is_array(v) || json_array_size(v) < 1 || json_array_size(v) > 3)
        return ds_fail(r->err, "module %s: grid is not a list of 1 to 3 elements", r->name);
    for (size_t i = 0; i < json_array_size(v); i++) {
        struct ds_module_value *g = &r->m->grid[i];
        json_t *e = json_array_get(v, i);
        const char *of = json_string_value(json_object_get(e, "of"));
        if (whole_number(e, 1, INT32_MAX, &g->whole) == 0)
            continue;
        g->member = of ? find_member(r->m->op, of) : -1;
        if (g->member < 0 || members[g->member].type != DS_MODULE_I64)
            return ds_fail(r->err,
                           "module %s: grid: element %zu is neither a number from 1 on nor a size "
                           "of %s",
                           r->name, i, ds_op_name(r->m->op));
        if (only_keys(r, e, "grid", keys) != 0)
            return -1;
        if (json_object_get(e, "per") &&
            whole_number(json_object_get(e, "per"), 1, INT32_MAX, &g->whole) != 0)
            return ds_fail(r->err, "module %s: grid: per of element %zu is no number from 1 on",
                           r->name, i);
    }
    return 0;
}

static int read_block(const struct reader *r, const json_t *o)
{
    const json_t *v = json_object_get(o, "block"), *s = json_object_get(o, "shared");
    int64_t n = 1, threads = 1;
    r->m->block[0] = r->m->block[1] = r->m->block[2] = 1;
    if (v && (!json_is_array(v) || json_array_size(v) < 1 || json_array_size(v) > 3))
        return ds_fail(r->err, "module %s: block is not a list of 1 to 3 numbers", r->name);
    for (size_t i = 0; v && i < json_array_size(v); i++) {
        if (whole_number(json_array_get(v, i), 1, 1024, &n) != 0 || threads * n > 1024)
            return ds_fail(r->err, "module %s: block: 1 to 1024 threads are possible", r->name);
        threads *= n;
        r->m->block[i] = (uint32_t)n;
    }
    n = 0;
    if (s && whole_number(s, 0, 1 << 20, &n) != 0)
        return ds_fail(r->err, "module %s: shared is not a number of bytes up to %d", r->name,
                       1 << 20);
    r->m->shared_bytes = (uint32_t)n;
    return 0;
}

static int type_named(const json_t *v)
{
    const char *s = json_string_value(v);
    return !s                      ? -1
           : strcmp(s, "i32") == 0 ? DS_MODULE_I32
           : strcmp(s, "i64") == 0 ? DS_MODULE_I64
           : strcmp(s, "f32") == 0 ? DS_MODULE_F32
                                   : -1;
}

/* Whether a member of one type can be handed over as another. */
static int converts(int from, int to)
{
    return from == to || (from == DS_MODULE_I64 && to == DS_MODULE_I32) ||
           (from == DS_MODULE_I32 && to == DS_MODULE_I64);
}

static int read_argument(const struct reader *r, json_t *e, size_t i, struct ds_module_value *a)
{
    static const char *const keys[] = {"of", "as", "value", NULL};
    json_t *of = json_is_string(e) ? e : json_object_get(e, "of");
    const json_t *value = json_object_get(e, "value"), *as = json_object_get(e, "as");
    *a = (struct ds_module_value){.member = -1, .type = type_named(as)};
    if (as && a->type < 0)
        return ds_fail(r->err, "module %s: argument %zu: as is none of i32, i64, f32", r->name, i);
    if (json_is_object(e) && only_keys(r, e, "an argument", keys) != 0)
        return -1;
    if (of && !value) {
        a->member = json_is_string(of) ? find_member(r->m->op, json_string_value(of)) : -1;
        if (a->member < 0)
            return ds_fail(r->err, "module %s: argument %zu is no member of %s", r->name, i,
                           ds_op_name(r->m->op));
        a->type = as ? a->type : members[a->member].type;
        if (!converts(members[a->member].type, a->type))
            return ds_fail(r->err, "module %s: argument %zu: %s is of another kind", r->name, i,
                           members[a->member].name);
        return 0;
    }
    if (!value || of || a->type < 0)
        return ds_fail(r->err,
                       "module %s: argument %zu is neither a member's name nor a value with its "
                       "type",
                       r->name, i);
    if (a->type == DS_MODULE_F32 && json_is_number(value)) {
        a->real = json_number_value(value);
        return 0;
    }
    const int wide = a->type == DS_MODULE_I64;
    if (a->type == DS_MODULE_F32 || whole_number(value, wide ? INT64_MIN : INT32_MIN,
                                                 wide ? INT64_MAX : INT32_MAX, &a->whole) != 0)
        return ds_fail(r->err, "module %s: argument %zu: the value does not fit its type", r->name,
                       i);
    return 0;
}

static int read_arguments(const struct reader *r, const json_t *o)
{
    const json_t *v = json_object_get(o, "arguments");
    if (!json_is_array(v) || json_array_size(v) < 1 ||
        json_array_size(v) > DS_MODULE_MOST_ARGUMENTS)
        return ds_fail(r->err, "module %s: arguments is not a list of 1 to %d", r->name,
                       DS_MODULE_MOST_ARGUMENTS);
    r->m->n_arguments = (int32_t)json_array_size(v);
    for (size_t i = 0; i < json_array_size(v); i++)
        if (read_argument(r, json_array_get(v, i), i, &r->m->argument[i]) != 0)
            return -1;
    return 0;
}

static int read_all(const struct reader *r, json_t *o)
{
    static const char *const keys[] = {"schema", "op",     "variant",   "summary",
                                       "claims", "stored", "entry",     "grid",
                                       "block",  "shared", "arguments", NULL};
    static const char *const claims[] = {"repeat", "batch", "slot", "threads", "chunk"};
    static const char *const stored[] = {"f32", "f16", "bf16"};
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
    char schema[32] = "", op[32] = "";
    if (!json_is_object(o))
        return ds_fail(r->err, "module %s: not a JSON object", r->name);
    if (only_keys(r, o, "the description", keys) != 0 ||
        read_text(r, o, "schema", 1, schema, sizeof schema) != 0)
        return -1;
    if (strcmp(schema, "driftscope.module/1") != 0)
        return ds_fail(r->err, "module %s: schema is '%s', not driftscope.module/1", r->name,
                       schema);
    if (read_text(r, o, "op", 1, op, sizeof op) != 0)
        return -1;
    r->m->op = ds_op_parse(op);
    if (r->m->op < 0 || !has_members(r->m->op))
        return ds_fail(r->err, "module %s: op '%s' is none that a module can be", r->name, op);
    r->m->stored = 1u << DS_ELEMENT_F32;
    if (read_text(r, o, "variant", 1, r->m->variant, sizeof r->m->variant) != 0 ||
        read_text(r, o, "summary", 0, r->m->summary, sizeof r->m->summary) != 0 ||
        read_text(r, o, "entry", 1, r->m->entry, sizeof r->m->entry) != 0 ||
        read_words(r, o, "claims", claims, 5, &r->m->claims) != 0 ||
        read_words(r, o, "stored", stored, 3, &r->m->stored) != 0)
        return -1;
    if (strspn(r->m->variant, allowed) != strlen(r->m->variant))
        return ds_fail(r->err, "module %s: variant '%s' is not one that an option can hold",
                       r->name, r->m->variant);
    if (!r->m->stored)
        return ds_fail(r->err, "module %s: stored is empty", r->name);
    return read_grid(r, o) == 0 && read_block(r, o) == 0 ? read_arguments(r, o) : -1;
}

int ds_module_parse(const char *name, const char *text, size_t bytes, struct ds_module *out,
                    struct ds_error *err)
{
    json_error_t at;
    const struct reader r = {name, out, err};
    memset(out, 0, sizeof *out);
    if (bytes > DS_MODULE_MOST_TEXT)
        return ds_fail(err, "module %s: longer than %d bytes", name, DS_MODULE_MOST_TEXT);
    json_t *o = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &at);
    if (!o)
        return ds_fail(err, "module %s: not JSON: line %d, column %d", name, at.line, at.column);
    const int rc = read_all(&r, o);
    json_decref(o);
    return rc;
}

/* ---- files ----------------------------------------------------------------------------------------- */

static const char *extension(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && !strchr(dot, '/') ? dot : "";
}

int ds_module_is_named(const char *path)
{
    return strcmp(extension(path), ".cubin") == 0 || strcmp(extension(path), ".ptx") == 0;
}

int ds_module_read(const char *path, struct ds_module *out, struct ds_error *err)
{
    static char text[DS_MODULE_MOST_TEXT + 1];
    char beside[4096];
    struct stat st;
    const int stem = (int)(strlen(path) - strlen(extension(path)));
    if (snprintf(beside, sizeof beside, "%.*s.json", stem, path) >= (int)sizeof beside)
        return ds_fail(err, "module: a name of more than %zu characters", sizeof beside - 1);
    const int fd = open(beside, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        ds_fail(err, "module %s: cannot be opened: %s", beside, strerror(errno));
        return ds_hint(err, "it says what the kernel in %.200s is: see examples/device", path);
    }
    size_t have = 0;
    ssize_t got = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? 1 : -1;
    while (got > 0 && have < sizeof text) {
        got = read(fd, text + have, sizeof text - have);
        have += got > 0 ? (size_t)got : 0;
    }
    close(fd);
    if (got < 0)
        return ds_fail(err, "module %s: cannot be read", beside);
    return ds_module_parse(beside, text, have, out, err);
}

/* ---- launching --------------------------------------------------------------------------------------- */

static int64_t size_at(int member, const void *args)
{
    int64_t wide;
    int32_t narrow;
    if (members[member].type == DS_MODULE_I64) {
        memcpy(&wide, (const char *)args + members[member].at, sizeof wide);
        return wide;
    }
    memcpy(&narrow, (const char *)args + members[member].at, sizeof narrow);
    return narrow;
}

static int fill(const struct ds_module *m, int i, const void *args, union ds_module_slot *s,
                struct ds_error *err)
{
    const struct ds_module_value *a = &m->argument[i];
    const char *at = a->member < 0 ? NULL : (const char *)args + members[a->member].at;
    memset(s, 0, sizeof *s);
    if (a->type == DS_MODULE_POINTER || (a->type == DS_MODULE_F32 && at)) {
        memcpy(s, at, a->type == DS_MODULE_POINTER ? sizeof s->pointer : sizeof s->f32);
        return 0;
    }
    if (a->type == DS_MODULE_F32) {
        s->f32 = (float)a->real;
        return 0;
    }
    const int64_t v = at ? size_at(a->member, args) : a->whole;
    if (a->type == DS_MODULE_I64)
        s->i64 = v;
    else if (v < INT32_MIN || v > INT32_MAX)
        return ds_fail(err, "%s/%s: argument %d: %lld is no i32", ds_op_name(m->op), m->variant, i,
                       (long long)v);
    else
        s->i32 = (int32_t)v;
    return 0;
}

int ds_module_launch(const struct ds_module *m, const void *args, uint32_t grid[3],
                     union ds_module_slot slot[DS_MODULE_MOST_ARGUMENTS], struct ds_error *err)
{
    for (int i = 0; i < 3; i++) {
        const struct ds_module_value *g = &m->grid[i];
        const int64_t v = g->member < 0 ? g->whole : size_at(g->member, args), per = g->whole;
        const int64_t blocks = g->member < 0 ? v : v / per + (v % per > 0);
        if (blocks < 1 || blocks > (i ? 65535 : INT32_MAX))
            return ds_fail(err, "%s/%s: %lld blocks in dimension %d of the grid", ds_op_name(m->op),
                           m->variant, (long long)blocks, i);
        grid[i] = (uint32_t)blocks;
    }
    for (int i = 0; i < m->n_arguments; i++)
        if (fill(m, i, args, &slot[i], err) != 0)
            return -1;
    return 0;
}
