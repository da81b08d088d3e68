/* shape.c: sizes of an op from text and to text, by one table. Must not know a model. */
#include "kernels/lab/shape.h"

#include "base/names.h"
#include "kernels/registry.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define BIT(op) (1u << DS_OP_##op)
enum { MOST = 1 << 24 };

/* Every size: its name, where it lies, the ops that have it, and what it is when left out. */
static const struct field {
    const char *name;
    size_t offset;
    uint32_t ops;
    int64_t dflt;
} fields[] = {
    {"n", offsetof(struct ds_shape, n), BIT(MATMUL), 192},
    {"k", offsetof(struct ds_shape, k), BIT(MATMUL), 576},
    {"width", offsetof(struct ds_shape, width),
     BIT(RMSNORM) | BIT(SOFTMAX) | BIT(SILU_MUL) | BIT(ADD) | BIT(COMBINE) | BIT(ALLREDUCE) |
         BIT(EMBED) | BIT(CACHE) | BIT(CUSTOM) | BIT(TRANSFER),
     576},
    {"heads", offsetof(struct ds_shape, heads), BIT(ATTENTION) | BIT(ROPE), 9},
    {"kv_heads", offsetof(struct ds_shape, kv_heads), BIT(ATTENTION), 3},
    {"head_dim", offsetof(struct ds_shape, head_dim), BIT(ATTENTION) | BIT(ROPE), 64},
    {"rope_dim", offsetof(struct ds_shape, rope_dim), BIT(ROPE), 64},
    {"neox", offsetof(struct ds_shape, neox), BIT(ROPE), 0},
    {"vocab", offsetof(struct ds_shape, vocab), BIT(EMBED) | BIT(SAMPLE) | BIT(PROCESS), 1000},
    {"experts", offsetof(struct ds_shape, experts), BIT(ROUTER), 8},
    {"top_k", offsetof(struct ds_shape, top_k), BIT(ROUTER) | BIT(COMBINE), 2},
    {"ranks", offsetof(struct ds_shape, ranks), BIT(ALLREDUCE), 4},
};
enum { N_FIELDS = sizeof fields / sizeof fields[0] };

static int64_t *at(struct ds_shape *s, const struct field *f)
{
    return (int64_t *)(void *)((char *)s + f->offset);
}

static int has(int op, const struct field *f)
{
    return (int)(f->ops >> op & 1);
}

static const struct field *find(int op, const char *name, size_t len, struct ds_error *err)
{
    const char *known[N_FIELDS];
    char word[32];
    size_t n = 0;
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (!has(op, &fields[i]))
            continue;
        if (strlen(fields[i].name) == len && memcmp(fields[i].name, name, len) == 0)
            return &fields[i];
        known[n++] = fields[i].name;
    }
    len = len < sizeof word - 1 ? len : sizeof word - 1;
    memcpy(word, name, len);
    word[len] = '\0';
    struct ds_buf list = {0};
    for (size_t i = 0; i < n; i++)
        ds_buf_printf(&list, "%s%s", i ? ", " : "", known[i]);
    ds_fail(err, "shape: %s has no size '%s'", ds_op_name(op), word);
    int near = ds_nearest(word, known, n);
    if (near >= 0)
        ds_hint(err, "did you mean %s? it has: %s", known[near], list.data ? list.data : "");
    else
        ds_hint(err, "it has: %s", list.data ? list.data : "");
    ds_buf_free(&list);
    return NULL;
}

static int check(const struct ds_shape *s, int op, struct ds_error *err)
{
    if (op == DS_OP_ATTENTION && s->heads % s->kv_heads)
        return ds_fail(err, "shape: kv_heads %lld does not divide heads %lld",
                       (long long)s->kv_heads, (long long)s->heads);
    if (op == DS_OP_ROPE && (s->rope_dim % 2 || s->rope_dim > s->head_dim))
        return ds_fail(err, "shape: rope_dim %lld must be even and at most head_dim %lld",
                       (long long)s->rope_dim, (long long)s->head_dim);
    if (op == DS_OP_ROUTER && s->top_k > s->experts)
        return ds_fail(err, "shape: top_k %lld of %lld experts", (long long)s->top_k,
                       (long long)s->experts);
    return 0;
}

/* "name=number" at p; returns what follows it, or NULL. */
static const char *take(const char *p, int op, struct ds_shape *out, uint32_t *seen,
                        struct ds_error *err)
{
    size_t len = strcspn(p, "=,");
    const struct field *f = find(op, p, len, err);
    if (!f)
        return NULL;
    const char *text = p + len + (p[len] == '=');
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    int boolean = f->offset == offsetof(struct ds_shape, neox);
    if (p[len] != '=' || text[0] < '0' || text[0] > '9' || (*end && *end != ',') || errno ||
        v < !boolean || v > (boolean ? 1 : MOST)) {
        ds_fail(err, "shape: %s must be a whole number %d..%d", f->name, !boolean,
                boolean ? 1 : MOST);
        ds_hint(err, "for example %s=%lld", f->name, (long long)f->dflt);
        return NULL;
    }
    if (*seen & (1u << (f - fields))) {
        ds_fail(err, "shape: %s is given twice", f->name);
        return NULL;
    }
    *seen |= 1u << (f - fields);
    *at(out, f) = v;
    if (*end == ',' && !end[1]) {
        ds_fail(err, "shape: nothing behind the last comma");
        return NULL;
    }
    return *end == ',' ? end + 1 : end;
}

int ds_shape_parse(int op, const char *text, struct ds_shape *out, struct ds_error *err)
{
    struct ds_shape s = {.op = op};
    uint32_t seen = 0;
    memcpy(s.name, "given", 6);
    for (size_t i = 0; i < N_FIELDS; i++)
        if (has(op, &fields[i]))
            *at(&s, &fields[i]) = fields[i].dflt;
    for (const char *p = text; *p;)
        if (!(p = take(p, op, &s, &seen, err)))
            return -1;
    /* A smaller head with no word about rope_dim rotates all of it. */
    for (size_t i = 0; i < N_FIELDS; i++)
        if (op == DS_OP_ROPE && fields[i].offset == offsetof(struct ds_shape, rope_dim) &&
            !(seen & (1u << i)))
            s.rope_dim = s.head_dim / 2 * 2;
    if (check(&s, op, err) != 0)
        return -1;
    *out = s;
    return 0;
}

void ds_shape_print(struct ds_buf *b, const struct ds_shape *s)
{
    const char *comma = "";
    struct ds_shape copy = *s;
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (!has(s->op, &fields[i]))
            continue;
        ds_buf_printf(b, "%s%s=%lld", comma, fields[i].name, (long long)*at(&copy, &fields[i]));
        comma = ",";
    }
}
