/* verb_kernels.c: `driftscope kernels`: every variant by op, what it claims, which sets use it,
 * whether it can run here. Owns that list's two forms; runs no kernel. */
#include "cli/options.h"

#include "base/names.h"
#include "kernels/cblas.h"
#include "kernels/registry.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static const struct {
    uint32_t flag;
    const char *name;
} claims[] = {{DS_CLAIM_REPEAT, "repeat"},
              {DS_CLAIM_BATCH, "batch"},
              {DS_CLAIM_SLOT, "slot"},
              {DS_CLAIM_THREADS, "threads"},
              {DS_CLAIM_CHUNK, "chunk"}};
enum { N_CLAIMS = sizeof claims / sizeof claims[0] };

struct entry {
    const struct ds_kernel *kernel;
    unsigned sets; /* 1 << number of the set */
    int available;
    char why[256];
};

static void inspect(const struct ds_kernel *k, struct entry *e)
{
    memset(e, 0, sizeof *e);
    e->kernel = k;
    e->available = !k->available || k->available(e->why, sizeof e->why) == 0;
    for (size_t s = 0; s < ds_kernel_set_count(); s++) {
        struct ds_kernel_set set;
        if (ds_kernel_set_parse(ds_kernel_set_name(s), &set, NULL) == 0 && k->op >= 0 &&
            k->op < DS_OP_COUNT && set.op[k->op] == k)
            e->sets |= 1u << s;
    }
}

static void text_sets(char *out, size_t size, unsigned sets)
{
    size_t n = 0;
    out[0] = '\0';
    for (size_t s = 0; s < ds_kernel_set_count() && n < size; s++)
        if (sets >> s & 1)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n ? "," : "", ds_kernel_set_name(s));
    if (n == 0)
        snprintf(out, size, "-");
}

/* The library of --blas, if there is one: "libblis.so.4: BLIS 0.9.0 zen3". */
static void add_cblas(struct ds_buf *b)
{
    if (!*ds_cblas_path())
        return;
    ds_buf_escape(b, ds_cblas_file(), (size_t)-1);
    ds_buf_puts(b, ": ");
    ds_buf_escape(b, ds_cblas_config(), (size_t)-1);
}

/* ---- text ------------------------------------------------------------------------------------ */

static void text_entry(struct ds_buf *b, const struct ds_options *o, const struct entry *e)
{
    const char *op = ds_op_name(e->kernel->op), *plain = ds_cli_color(o, DS_ROLE_PLAIN);
    char name[80], sets[64];
    snprintf(name, sizeof name, "%s/%s", op ? op : "?", e->kernel->name);
    text_sets(sets, sizeof sets, e->sets);
    ds_buf_printf(b, "%s%-22s%s ", ds_cli_color(o, DS_ROLE_HEAD), name, plain);
    for (int i = 0; i < N_CLAIMS; i++) {
        int holds = (e->kernel->claims & claims[i].flag) != 0;
        ds_buf_printf(b, "%s%-8s%s", ds_cli_color(o, holds ? DS_ROLE_SAME : DS_ROLE_DIM),
                      holds ? "yes" : "-", plain);
    }
    ds_buf_printf(b, "%-18s", sets);
    if (e->available)
        ds_buf_puts(b, "yes");
    else {
        ds_buf_printf(b, "%sno:%s ", ds_cli_color(o, DS_ROLE_DRIFT), plain);
        ds_buf_escape(b, e->why[0] ? e->why : "no reason given", (size_t)-1);
    }
    ds_buf_printf(b, "\n    %s%s%s\n", ds_cli_color(o, DS_ROLE_DIM),
                  e->kernel->summary ? e->kernel->summary : "", plain);
}

static void text_list(struct ds_buf *b, const struct ds_options *o, int only_op)
{
    size_t listed = 0, missing = 0;
    ds_buf_printf(b, "%s%-22s ", ds_cli_color(o, DS_ROLE_HEAD), "variant");
    for (int i = 0; i < N_CLAIMS; i++)
        ds_buf_printf(b, "%-8s", claims[i].name);
    ds_buf_printf(b, "%-18s%s%s\n", "in sets", "runs here", ds_cli_color(o, DS_ROLE_PLAIN));
    for (int op = 0; op < DS_OP_COUNT; op++)
        for (size_t i = 0; i < ds_kernel_count(); i++) {
            struct entry e;
            if (ds_kernel_at(i)->op != op || (only_op >= 0 && op != only_op))
                continue;
            inspect(ds_kernel_at(i), &e);
            text_entry(b, o, &e);
            listed++;
            missing += !e.available;
        }
    ds_buf_puts(b, "\nA column says whether the variant claims that its bits do not depend on that "
                   "condition.\n");
    ds_buf_printf(b, "pinned variants use %s code here; %s\n", ds_isa_name(),
                  ds_blas_is_open() ? ds_blas_config() : "OpenBLAS cannot be opened");
    if (*ds_cblas_path()) {
        ds_buf_puts(b, "matmul/cblas uses ");
        add_cblas(b);
        ds_buf_puts(b, "\n");
    }
    ds_buf_printf(b, "%zu variants, %zu of them cannot run here\n", listed, missing);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *json_entry(const struct entry *e)
{
    const char *op = ds_op_name(e->kernel->op);
    json_t *claimed = json_array(), *sets = json_array();
    for (int i = 0; i < N_CLAIMS; i++)
        if (e->kernel->claims & claims[i].flag)
            json_array_append_new(claimed, json_string(claims[i].name));
    for (size_t s = 0; s < ds_kernel_set_count(); s++)
        if (e->sets >> s & 1)
            json_array_append_new(sets, json_string(ds_kernel_set_name(s)));
    struct ds_buf why = {0};
    ds_buf_escape(&why, e->why, (size_t)-1);
    json_t *out = json_pack(
        "{s:s, s:s, s:s, s:o, s:o, s:b, s:s}", "op", op ? op : "", "variant", e->kernel->name,
        "summary", e->kernel->summary ? e->kernel->summary : "", "claims", claimed, "sets", sets,
        "available", e->available, "reason", why.data && !e->available ? why.data : "");
    ds_buf_free(&why);
    return out;
}

static int json_list(struct ds_buf *b, int only_op)
{
    json_t *kernels = json_array();
    for (int op = 0; op < DS_OP_COUNT; op++)
        for (size_t i = 0; i < ds_kernel_count(); i++) {
            struct entry e;
            if (ds_kernel_at(i)->op != op || (only_op >= 0 && op != only_op))
                continue;
            inspect(ds_kernel_at(i), &e);
            json_array_append_new(kernels, json_entry(&e));
        }
    struct ds_buf cblas = {0};
    add_cblas(&cblas);
    json_t *root = json_pack(
        "{s:s, s:s, s:o, s:o, s:o}", "schema", "driftscope.kernels/1", "pinned_isa", ds_isa_name(),
        "blas", ds_blas_is_open() ? json_string(ds_blas_config()) : json_null(), "cblas",
        cblas.data ? json_string(cblas.data) : json_null(), "kernels", kernels);
    ds_buf_free(&cblas);
    char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    if (text)
        ds_buf_printf(b, "%s\n", text);
    json_decref(root);
    free(text);
    return text ? 0 : -1;
}

/* ---- the verb -------------------------------------------------------------------------------- */

static int parse_op(const char *name, int *op, struct ds_error *err)
{
    const char *names[DS_OP_COUNT];
    *op = -1;
    if (!name)
        return 0;
    if ((*op = ds_op_parse(name)) >= 0)
        return 0;
    for (int i = 0; i < DS_OP_COUNT; i++)
        names[i] = ds_op_name(i);
    int near = ds_nearest(name, names, DS_OP_COUNT);
    ds_fail(err, "unknown op '%.80s'", name);
    return near < 0 ? ds_hint(err, "driftscope kernels lists all ops")
                    : ds_hint(err, "did you mean '%s'?", names[near]);
}

int ds_verb_kernels(const struct ds_options *o)
{
    struct ds_buf b = {0};
    struct ds_error err;
    int op, rc = parse_op(ds_opt_operand(o, 0), &op, &err);
    /* Which core the library takes by itself is worth knowing; that it is missing is told at its
     * variant. */
    if (rc == 0)
        ds_blas_open(NULL, NULL);
    if (rc == 0 && ds_opt_flag(o, "json")) {
        rc = json_list(&b, op);
        if (rc != 0)
            ds_fail(&err, "out of memory for the list of kernels");
    } else if (rc == 0)
        text_list(&b, o, op);
    if (rc == 0)
        rc = ds_cli_emit(o, &b, &err);
    ds_buf_free(&b);
    return rc == 0 ? DS_EXIT_SAME : ds_cli_error(o, &err);
}
