/* verb_kernels.c: `driftscope kernels`: every variant by op, what it claims and can do, which sets
 * use it, which plugin it comes from, whether it can run here. Owns that list's two forms; runs no
 * kernel. */
#include "cli/options.h"

#include "base/names.h"
#include "cli/json.h"
#include "cli/lab_kernels.h"
#include "kernels/cblas.h"
#include "kernels/plugin.h"
#include "kernels/registry.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct flag {
    uint32_t flag;
    const char *name;
};

static const struct flag claims[] = {{DS_CLAIM_REPEAT, "repeat"},
                                     {DS_CLAIM_BATCH, "batch"},
                                     {DS_CLAIM_SLOT, "slot"},
                                     {DS_CLAIM_THREADS, "threads"},
                                     {DS_CLAIM_CHUNK, "chunk"}};
enum { N_CLAIMS = sizeof claims / sizeof claims[0] };

static const struct flag features[] = {
    {DS_FEATURE_WINDOW, "window"},       {DS_FEATURE_SOFT_CAP, "soft-cap"},
    {DS_FEATURE_SINKS, "sinks"},         {DS_FEATURE_LSE, "lse"},
    {DS_FEATURE_UNROUNDED, "unrounded"}, {DS_FEATURE_FILE_WEIGHTS, "file-weights"},
    {DS_FEATURE_STORED, "stored"},       {DS_FEATURE_SAMPLER, "sampler"},
    {DS_FEATURE_PACKED, "packed"},       {DS_FEATURE_OWN_FORMATS, "own-formats"}};
enum { N_FEATURES = sizeof features / sizeof features[0] };

struct entry {
    const struct ds_kernel *kernel;
    uint64_t sets; /* 1 << index of the set */
    int available;
    char why[256];
};

static void inspect(const struct ds_kernel *k, struct entry *e)
{
    const int device = k->device;
    memset(e, 0, sizeof *e);
    e->kernel = k;
    e->available = ds_kernel_available(k, e->why, sizeof e->why) == 0;
    for (size_t s = 0; s < ds_kernel_set_count_on(device); s++) {
        struct ds_kernel_set set;
        if (ds_kernel_set_parse_on(device, ds_kernel_set_name_on(device, s), &set, NULL) == 0 &&
            set.op[k->op] == k)
            e->sets |= (uint64_t)1 << s;
    }
}

/* "vendor,reference"; "-" for none. */
static void text_sets(char *out, size_t size, const struct entry *e)
{
    size_t n = 0;
    const int device = e->kernel->device;
    for (size_t s = 0; s < ds_kernel_set_count_on(device) && n < size; s++)
        if (e->sets >> s & 1)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n ? "," : "",
                                  ds_kernel_set_name_on(device, s));
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

/* The width of the column of sets. */
static int sets_width(int device, int only_op)
{
    char sets[128];
    size_t width = strlen("in sets");
    const struct ds_kernel *k;
    for (size_t i = 0; (k = ds_kernel_at_on(device, i)); i++) {
        struct entry e;
        if (only_op >= 0 && k->op != only_op)
            continue;
        inspect(k, &e);
        text_sets(sets, sizeof sets, &e);
        width = strlen(sets) > width ? strlen(sets) : width;
    }
    return (int)width + 2;
}

/* The second line: what the variant is, what it can do beyond its op's plain form, and where it
 * comes from. */
static void text_about(struct ds_buf *b, const struct ds_options *o, const struct ds_kernel *k)
{
    const struct ds_plugin *p = ds_plugin_of(k);
    const char *between = "; can: ";
    ds_buf_printf(b, "    %s", ds_cli_color(o, DS_ROLE_DIM));
    ds_buf_escape(b, k->summary ? k->summary : "", (size_t)-1);
    for (int i = 0; i < N_FEATURES; i++)
        if (k->features & features[i].flag) {
            ds_buf_printf(b, "%s%s", between, features[i].name);
            between = ", ";
        }
    if (p) {
        ds_buf_puts(b, k->summary ? "; from " : "from ");
        ds_buf_escape(b, p->file, (size_t)-1);
    }
    ds_buf_printf(b, "%s\n", ds_cli_color(o, DS_ROLE_PLAIN));
}

static void text_entry(struct ds_buf *b, const struct ds_options *o, const struct entry *e,
                       int width)
{
    const char *plain = ds_cli_color(o, DS_ROLE_PLAIN);
    char name[80], sets[128];
    snprintf(name, sizeof name, "%s/%s", ds_op_name(e->kernel->op), e->kernel->name);
    text_sets(sets, sizeof sets, e);
    ds_buf_printf(b, "%s%-22s%s ", ds_cli_color(o, DS_ROLE_HEAD), name, plain);
    for (int i = 0; i < N_CLAIMS; i++) {
        int holds = (e->kernel->claims & claims[i].flag) != 0;
        ds_buf_printf(b, "%s%-8s%s", ds_cli_color(o, holds ? DS_ROLE_SAME : DS_ROLE_DIM),
                      holds ? "yes" : "-", plain);
    }
    ds_buf_printf(b, "%-*s", width, sets);
    if (e->available)
        ds_buf_puts(b, "yes");
    else {
        ds_buf_printf(b, "%sno:%s ", ds_cli_color(o, DS_ROLE_DRIFT), plain);
        ds_buf_escape(b, e->why[0] ? e->why : "no reason given", (size_t)-1);
    }
    ds_buf_puts(b, "\n");
    text_about(b, o, e->kernel);
}

static void text_plugins(struct ds_buf *b)
{
    for (size_t i = 0; i < ds_plugin_count(); i++) {
        const struct ds_plugin *p = ds_plugin_at(i);
        ds_buf_puts(b, "plugin ");
        ds_buf_escape(b, p->file, (size_t)-1);
        ds_buf_printf(b, ": %zu variant%s, XXH3 %016" PRIx64, p->n_kernels,
                      p->n_kernels == 1 ? "" : "s", p->digest);
        if (p->fp_after != p->fp_before)
            ds_buf_printf(b, "; loading it set mxcsr 0x%04x", (unsigned)p->fp_after);
        ds_buf_puts(b, "\n");
    }
}

static void text_list(struct ds_buf *b, const struct ds_options *o, int only_op)
{
    size_t listed = 0, missing = 0;
    const int device = ds_lab_device(o), width = sets_width(device, only_op);
    const struct ds_kernel *k;
    ds_buf_printf(b, "%s%-22s ", ds_cli_color(o, DS_ROLE_HEAD), "variant");
    for (int i = 0; i < N_CLAIMS; i++)
        ds_buf_printf(b, "%-8s", claims[i].name);
    ds_buf_printf(b, "%-*s%s%s\n", width, "in sets", "runs here", ds_cli_color(o, DS_ROLE_PLAIN));
    for (int op = 0; op < DS_OP_COUNT; op++)
        for (size_t i = 0; (k = ds_kernel_at_on(device, i)); i++) {
            struct entry e;
            if (k->op != op || (only_op >= 0 && op != only_op))
                continue;
            inspect(k, &e);
            text_entry(b, o, &e, width);
            listed++;
            missing += !e.available;
        }
    ds_buf_puts(b, "\nA column says whether the variant claims that its bits do not depend on that "
                   "condition.\n");
    if (device == DS_DEVICE_SIM)
        ds_buf_puts(
            b, "sim: the text of the CUDA kernels, run on this machine's CPU thread by thread\n");
    else
        ds_buf_printf(b, "pinned variants use %s code here; %s\n", ds_isa_name(),
                      ds_blas_is_open() ? ds_blas_config() : "OpenBLAS cannot be opened");
    if (device == DS_DEVICE_CPU && *ds_cblas_path()) {
        ds_buf_puts(b, "matmul/cblas uses ");
        add_cblas(b);
        ds_buf_puts(b, "\n");
    }
    text_plugins(b);
    ds_buf_printf(b, "%zu variants, %zu of them cannot run here\n", listed, missing);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *json_flags(uint32_t set, const struct flag *flags, int n)
{
    json_t *out = json_array();
    for (int i = 0; i < n; i++)
        if (set & flags[i].flag)
            json_array_append_new(out, json_string(flags[i].name));
    return out;
}

static json_t *json_entry(const struct entry *e)
{
    const struct ds_kernel *k = e->kernel;
    const struct ds_plugin *p = ds_plugin_of(k);
    json_t *sets = json_array();
    for (size_t s = 0; s < ds_kernel_set_count_on(k->device); s++)
        if (e->sets >> s & 1)
            json_array_append_new(sets, json_string(ds_kernel_set_name_on(k->device, s)));
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:b, s:o}", "op", ds_op_name(k->op),
                     "device", ds_device_name(k->device), "variant", k->name, "summary",
                     ds_json_text(k->summary), "claims", json_flags(k->claims, claims, N_CLAIMS),
                     "features", json_flags(k->features, features, N_FEATURES), "sets", sets,
                     "plugin", p ? ds_json_text(p->file) : json_null(), "available", e->available,
                     "reason", ds_json_text(e->available ? "" : e->why));
}

static json_t *json_plugins(void)
{
    json_t *out = json_array();
    for (size_t i = 0; i < ds_plugin_count(); i++) {
        const struct ds_plugin *p = ds_plugin_at(i);
        char control[16];
        snprintf(control, sizeof control, "0x%04x", (unsigned)p->fp_after);
        json_array_append_new(
            out, json_pack("{s:o, s:o, s:I, s:o}", "file", ds_json_text(p->file), "digest",
                           ds_json_digest(p->digest), "variants", (json_int_t)p->n_kernels,
                           "loading_set_mxcsr",
                           p->fp_after != p->fp_before ? json_string(control) : json_null()));
    }
    return out;
}

static int json_list(struct ds_buf *b, int device, int only_op, struct ds_error *err)
{
    const struct ds_kernel *k;
    ds_json_begin();
    json_t *kernels = json_array();
    for (int op = 0; op < DS_OP_COUNT; op++)
        for (size_t i = 0; (k = ds_kernel_at_on(device, i)); i++) {
            struct entry e;
            if (k->op != op || (only_op >= 0 && op != only_op))
                continue;
            inspect(k, &e);
            json_array_append_new(kernels, json_entry(&e));
        }
    struct ds_buf cblas = {0};
    add_cblas(&cblas);
    json_t *root = json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "schema", "driftscope.kernels/1",
                             "pinned_isa", ds_isa_name(), "blas",
                             ds_blas_is_open() ? json_string(ds_blas_config()) : json_null(),
                             "cblas", cblas.data ? json_string(cblas.data) : json_null(), "plugins",
                             json_plugins(), "kernels", kernels);
    ds_buf_free(&cblas);
    return ds_json_print(root, b, err);
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
    if (rc == 0)
        rc = ds_lab_choose_device(o, &err);
    /* Which core the library takes by itself is worth knowing; that it is missing is told at its
     * variant. */
    if (rc == 0)
        ds_blas_open(NULL, NULL);
    if (rc == 0 && ds_opt_flag(o, "json"))
        rc = json_list(&b, ds_lab_device(o), op, &err);
    else if (rc == 0)
        text_list(&b, o, op);
    if (rc == 0)
        rc = ds_cli_emit(o, &b, &err);
    ds_buf_free(&b);
    return rc == 0 ? DS_EXIT_SAME : ds_cli_error(o, &err);
}
