/* registry.c: the static table of built-in variants, those added at run time, their names, and sets
 * of them. Knows no formula and no model. */
#include "kernels/registry.h"

#include "kernels/device_open.h"

#include "base/buf.h"
#include "base/fp_control.h"
#include "base/mem.h"
#include "base/names.h"
#include "kernels/cpu/cpu.h"
#include "kernels/sim/kernels.h"

#include <stdlib.h>
#include <string.h>

static const char *const op_names[DS_OP_COUNT] = {
    [DS_OP_EMBED] = "embed",       [DS_OP_RMSNORM] = "rmsnorm",   [DS_OP_MATMUL] = "matmul",
    [DS_OP_ROPE] = "rope",         [DS_OP_CACHE] = "cache",       [DS_OP_ATTENTION] = "attention",
    [DS_OP_SOFTMAX] = "softmax",   [DS_OP_SILU_MUL] = "silu_mul", [DS_OP_ADD] = "add",
    [DS_OP_ROUTER] = "router",     [DS_OP_COMBINE] = "combine",   [DS_OP_ALLREDUCE] = "allreduce",
    [DS_OP_SAMPLE] = "sample",     [DS_OP_CUSTOM] = "custom",     [DS_OP_TRANSFER] = "transfer",
    [DS_OP_SCHEDULE] = "schedule", [DS_OP_PROCESS] = "process",
};

/* clang-format off */
/* By op; in an op the vendor's variant first, then those that drift on purpose, the cure, the plain
 * one. */
static const struct ds_kernel *const cpu_table[] = {
    &ds_embed_pinned, &ds_embed_reference,
    &ds_rmsnorm_rows, &ds_rmsnorm_split, &ds_rmsnorm_tail, &ds_rmsnorm_cast_first,
    &ds_rmsnorm_pinned, &ds_rmsnorm_fused, &ds_rmsnorm_reference,
    &ds_matmul_openblas, &ds_matmul_cblas, &ds_matmul_cblas_packed,
    &ds_matmul_split_k, &ds_matmul_stream_k, &ds_matmul_atomic, &ds_matmul_ticket, &ds_matmul_bf16_partials,
    &ds_matmul_tf32, &ds_matmul_q8, &ds_matmul_pinned, &ds_matmul_reference,
    &ds_rope_pinned, &ds_rope_fused, &ds_rope_reference,
    &ds_cache_f16, &ds_cache_bf16, &ds_cache_fp8_e4m3, &ds_cache_q8, &ds_cache_q4,
    &ds_cache_pinned, &ds_cache_reference,
    &ds_attention_vendor, &ds_attention_split_kv, &ds_attention_tile_by_qlen, &ds_attention_stock,
    &ds_attention_pinned, &ds_attention_reference,
    &ds_softmax_pinned, &ds_softmax_reference,
    &ds_silu_mul_pinned, &ds_silu_mul_fused, &ds_silu_mul_reference,
    &ds_add_pinned, &ds_add_reference,
    &ds_router_pinned, &ds_router_reference,
    &ds_combine_pinned, &ds_combine_reference,
    &ds_allreduce_pinned, &ds_allreduce_reference,
    &ds_sample_pinned, &ds_sample_reference,
    &ds_transfer_pinned, &ds_transfer_reference,
    &ds_schedule_pinned, &ds_schedule_reference,
    &ds_process_pinned, &ds_process_reference,
};
/* clang-format on */

/* Variants added at run time, in the order in which they came. */
static const struct ds_kernel **added;
static size_t n_added, cap_added;

/* The named sets. A set gives every op its variant of the set's name, except those listed. */
struct set_row {
    const char *name, *fallback;
    const char *variant[DS_OP_COUNT];
};
static const struct set_row cpu_sets[] = {
    {"vendor",
     "reference",
     {[DS_OP_MATMUL] = "openblas", [DS_OP_RMSNORM] = "rows", [DS_OP_ATTENTION] = "vendor"}},
    {"split",
     "pinned",
     {[DS_OP_MATMUL] = "split-k", [DS_OP_RMSNORM] = "split", [DS_OP_ATTENTION] = "split-kv"}},
    {"pinned", "pinned", {NULL}},
    {"fused",
     "pinned",
     {[DS_OP_RMSNORM] = "fused", [DS_OP_ROPE] = "fused", [DS_OP_SILU_MUL] = "fused"}},
    {"reference", "reference", {NULL}},
};
/* There is no vendor's library for sim: what an engine on such a device does is split. */
static const struct set_row sim_sets[] = {
    {"vendor",
     "pinned",
     {[DS_OP_MATMUL] = "split-k", [DS_OP_RMSNORM] = "split", [DS_OP_ATTENTION] = "split-kv"}},
    {"split",
     "pinned",
     {[DS_OP_MATMUL] = "split-k", [DS_OP_RMSNORM] = "split", [DS_OP_ATTENTION] = "split-kv"}},
    {"pinned", "pinned", {NULL}},
    {"pinned-tc", "pinned", {[DS_OP_MATMUL] = "pinned-tc"}},
    {"atomic", "pinned", {[DS_OP_MATMUL] = "atomic"}},
};

/* cublasLt's choice, a block or a warp a row, as many parts of the KV cache as multiprocessors are free. */
static const struct set_row cuda_sets[] = {
    {"vendor",
     "pinned",
     {[DS_OP_MATMUL] = "cublaslt", [DS_OP_RMSNORM] = "split", [DS_OP_ATTENTION] = "split-kv"}},
    {"split",
     "pinned",
     {[DS_OP_MATMUL] = "split-k", [DS_OP_RMSNORM] = "split", [DS_OP_ATTENTION] = "split-kv"}},
    {"pinned", "pinned", {NULL}},
    {"pinned-tc", "pinned", {[DS_OP_MATMUL] = "pinned-tc"}},
    {"atomic", "pinned", {[DS_OP_MATMUL] = "atomic"}},
};

static struct device_row {
    const char *name;
    const struct ds_kernel *const *table; /* sim: ds_sim_kernels() */
    size_t n_table;
    const struct set_row *sets;
    size_t n_sets;
} devices[DS_DEVICE_KINDS] = {
#define ROWS_OF(a) a, sizeof a / sizeof a[0]
    [DS_DEVICE_CPU] = {"cpu", ROWS_OF(cpu_table), ROWS_OF(cpu_sets)},
    [DS_DEVICE_SIM] = {"sim", NULL, DS_SIM_KERNEL_COUNT, ROWS_OF(sim_sets)},
    [DS_DEVICE_CUDA] = {"cuda", NULL, 0, NULL, 0}, /* once its library is open */
#undef ROWS_OF
};

static int is_device(int device)
{
    return device >= 0 && device < DS_DEVICE_KINDS;
}

const char *ds_device_name(int device)
{
    return is_device(device) ? devices[device].name : NULL;
}

/* The variants of the device cuda are those of its library. */
static int use_library(struct ds_error *err)
{
    struct device_row *row = &devices[DS_DEVICE_CUDA];
    const struct ds_device_library *l = row->table ? NULL : ds_device_cuda_library(err);
    if (row->table)
        return 0;
    if (!l)
        return -1;
    for (row->table = l->kernels; row->table[row->n_table]; row->n_table++)
        ;
    row->sets = cuda_sets;
    row->n_sets = sizeof cuda_sets / sizeof cuda_sets[0];
    return 0;
}

int ds_kernel_know_cuda(void)
{
    struct ds_error absent;
    return use_library(&absent) == 0;
}

int ds_device_parse(const char *name, struct ds_error *err)
{
    int kind, number;
    if (ds_device_parse_name(name, &kind, &number, err) != 0 ||
        (kind == DS_DEVICE_CUDA &&
         (use_library(err) != 0 || ds_device_probe(kind, number, err) != 0)))
        return -1;
    return kind;
}

const char *ds_op_name(int op)
{
    return op >= 0 && op < DS_OP_COUNT ? op_names[op] : NULL;
}

int ds_op_parse(const char *name)
{
    for (int op = 0; op < DS_OP_COUNT; op++)
        if (strcmp(name, op_names[op]) == 0)
            return op;
    return strcmp(name, "argmax") == 0 ? DS_OP_SAMPLE : -1;
}

size_t ds_kernel_count_on(int device)
{
    size_t n = is_device(device) ? devices[device].n_table : 0;
    for (size_t i = 0; i < n_added; i++)
        n += added[i]->device == device;
    return n;
}

const struct ds_kernel *ds_kernel_at_on(int device, size_t i)
{
    if (!is_device(device))
        return NULL;
    if (i < devices[device].n_table)
        return device == DS_DEVICE_SIM ? ds_sim_kernels()[i] : devices[device].table[i];
    i -= devices[device].n_table;
    for (size_t a = 0; a < n_added; a++)
        if (added[a]->device == device && i-- == 0)
            return added[a];
    return NULL;
}

int ds_kernel_built_in(const struct ds_kernel *k)
{
    if (!is_device(k->device))
        return 0;
    for (size_t i = 0; i < devices[k->device].n_table; i++)
        if (ds_kernel_at_on(k->device, i) == k)
            return 1;
    return 0;
}

const struct ds_kernel *ds_kernel_find_on(int device, int op, const char *variant)
{
    const struct ds_kernel *k;
    for (size_t i = 0; (k = ds_kernel_at_on(device, i)); i++)
        if (k->op == op && strcmp(k->name, variant) == 0)
            return k;
    return NULL;
}

size_t ds_kernel_count(void)
{
    return ds_kernel_count_on(DS_DEVICE_CPU);
}

const struct ds_kernel *ds_kernel_at(size_t i)
{
    return ds_kernel_at_on(DS_DEVICE_CPU, i);
}

const struct ds_kernel *ds_kernel_find(int op, const char *variant)
{
    return ds_kernel_find_on(DS_DEVICE_CPU, op, variant);
}

/* ---- adding variants ------------------------------------------------------------------------- */

/* What stands between the commas of --kernels and behind the '=' of an override, and fits a
 * record's launch. */
enum { MOST_NAME = 31 };

static int check_name(const char *name, struct ds_error *err)
{
    static const char first[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    static const char rest[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t len = name ? strlen(name) : 0;
    if (len == 0)
        return ds_fail(err, "kernel: name is missing");
    if (len <= MOST_NAME && strchr(first, name[0]) && strspn(name, rest) == len)
        return 0;
    struct ds_buf text = {0};
    ds_buf_escape(&text, name, len < 60 ? len : 60);
    ds_fail(err, "kernel '%s': name is not one that an option can hold",
            text.data ? text.data : "");
    ds_buf_free(&text);
    return ds_hint(err, "1 to %d of a-z 0-9 . _ -, a letter or a digit first", MOST_NAME);
}

/* Features and members that belong to one op mean nothing in another: a mistake that would else go
 * unseen, since nobody asks there. */
static int check_features(const struct ds_kernel *k, struct ds_error *err)
{
    const uint32_t of_attention =
        DS_FEATURE_WINDOW | DS_FEATURE_SOFT_CAP | DS_FEATURE_SINKS | DS_FEATURE_LSE;
    const uint32_t all = of_attention | DS_FEATURE_UNROUNDED | DS_FEATURE_FILE_WEIGHTS |
                         DS_FEATURE_STORED | DS_FEATURE_SAMPLER | DS_FEATURE_PACKED |
                         DS_FEATURE_OWN_FORMATS;
    const int chooses = k->op == DS_OP_PROCESS || k->op == DS_OP_SAMPLE;
    uint32_t foreign =
        (k->op == DS_OP_ATTENTION ? 0 : of_attention) |
        (k->op == DS_OP_MATMUL ? 0
                               : (uint32_t)DS_FEATURE_FILE_WEIGHTS | (uint32_t)DS_FEATURE_PACKED) |
        (chooses ? 0 : (uint32_t)DS_FEATURE_SAMPLER);
    if (k->features & ~all)
        return ds_fail(err, "kernel %s/%s: features %#x has bits that mean nothing",
                       op_names[k->op], k->name, (unsigned)k->features);
    if (k->features & foreign)
        return ds_fail(err, "kernel %s/%s: features %#x belong to another op", op_names[k->op],
                       k->name, (unsigned)(k->features & foreign));
    if (k->prepare && k->op != DS_OP_MATMUL)
        return ds_fail(err, "kernel %s/%s: prepare is for matmul only", op_names[k->op], k->name);
    if (k->declare && k->op != DS_OP_CUSTOM)
        return ds_fail(err, "kernel %s/%s: declare is for custom only", op_names[k->op], k->name);
    return 0;
}

int ds_kernel_add(const struct ds_kernel *k, struct ds_error *err)
{
    if (k->abi != DS_KERNEL_ABI) /* first: another abi may have other members */
        return ds_fail(err, "kernel: abi is %u, this version has %d", (unsigned)k->abi,
                       DS_KERNEL_ABI);
    if (check_name(k->name, err) != 0)
        return -1;
    if (!ds_op_name(k->op))
        return ds_fail(err, "kernel '%s': op %d does not exist", k->name, k->op);
    if (!k->launch)
        return ds_fail(err, "kernel %s/%s: launch is missing", op_names[k->op], k->name);
    if (!is_device(k->device))
        return ds_fail(err, "kernel %s/%s: device %d does not exist", op_names[k->op], k->name,
                       k->device);
    if (k->op == DS_OP_CUSTOM && !k->declare)
        return ds_fail(err, "kernel custom/%s: declare is missing", k->name);
    if (k->claims & ~(uint32_t)DS_CLAIM_ALL)
        return ds_fail(err, "kernel %s/%s: claims %#x has bits that mean nothing", op_names[k->op],
                       k->name, (unsigned)k->claims);
    if (check_features(k, err) != 0)
        return -1;
    if (ds_kernel_find_on(k->device, k->op, k->name)) {
        ds_fail(err, "kernel %s/%s: there is a variant of that name already", op_names[k->op],
                k->name);
        return ds_hint(err, "driftscope kernels lists them");
    }
    if (ds_grow(&added, &cap_added, n_added + 1, sizeof *added, "added kernels", err) != 0)
        return -1;
    added[n_added++] = k;
    return 0;
}

/* ---- sets ------------------------------------------------------------------------------------ */

/* One name of the spec, cut at the first of '+', '=' and the end. Longer names than any known one
 * are cut off; they are unknown either way. */
struct word {
    char text[64];
    size_t len;
};

static const char *take_word(const char *p, const char *stop, struct word *w)
{
    w->len = strcspn(p, stop);
    size_t n = w->len < sizeof w->text - 1 ? w->len : sizeof w->text - 1;
    memcpy(w->text, p, n);
    w->text[n] = '\0';
    return p + w->len;
}

/* The error for a name that is none of `known`: the nearest one as the hint, or all of them and where else
 * there are some. */
static int unknown(struct ds_error *err, const char *spec, const char *what, const struct word *w,
                   const char *const *known, size_t n, const char *else_where)
{
    struct ds_buf text = {0}, list = {0};
    ds_buf_escape(&text, w->text, (size_t)-1);
    for (size_t i = 0; i < n; i++)
        ds_buf_printf(&list, "%s%s", i ? ", " : "", known[i]);
    struct ds_buf whole = {0};
    ds_buf_escape(&whole, spec, strlen(spec) < 200 ? strlen(spec) : 200);
    if (w->len == 0)
        ds_fail(err, "kernel set '%s': %s is missing", whole.data ? whole.data : "", what);
    else
        ds_fail(err, "kernel set '%s': unknown %s '%s'", whole.data ? whole.data : "", what,
                text.data ? text.data : "");
    int near = w->len ? ds_nearest(w->text, known, n) : -1;
    if (near >= 0)
        ds_hint(err, "did you mean %s? known: %s", known[near], list.data ? list.data : "");
    else
        ds_hint(err, "known: %s%s", list.data ? list.data : "", else_where);
    ds_buf_free(&text);
    ds_buf_free(&list);
    ds_buf_free(&whole);
    return -1;
}

const char *ds_kernel_set_name_on(int device, size_t i)
{
    return is_device(device) && i < devices[device].n_sets ? devices[device].sets[i].name : NULL;
}

const char *ds_kernel_set_name(size_t i)
{
    return ds_kernel_set_name_on(DS_DEVICE_CPU, i);
}

static int start_set(const char *spec, const struct word *w, struct ds_kernel_set *out,
                     struct ds_error *err)
{
    enum { MOST_SETS = 16 };
    const struct set_row *sets = devices[out->device].sets;
    const size_t n_sets = devices[out->device].n_sets;
    const char *names[MOST_SETS];
    for (size_t i = 0; i < n_sets && i < MOST_SETS; i++) {
        names[i] = sets[i].name;
        if (strcmp(w->text, sets[i].name) != 0)
            continue;
        for (int op = 0; op < DS_OP_COUNT; op++) {
            const char *variant = sets[i].variant[op] ? sets[i].variant[op] : sets[i].fallback;
            out->op[op] = ds_kernel_find_on(out->device, op, variant);
        }
        return 0;
    }
    return unknown(err, spec, "set", w, names, n_sets, "");
}

static void unknown_variant(const char *spec, int device, int op, const struct word *w,
                            struct ds_error *err)
{
    size_t n = 0;
    const struct ds_kernel *k;
    const char **known = ds_calloc(ds_kernel_count_on(device), sizeof *known, "kernel names", err);
    if (!known)
        return;
    for (size_t i = 0; (k = ds_kernel_at_on(device, i)); i++)
        if (k->op == op)
            known[n++] = k->name;
    char what[48] = "variant of ";
    strncat(what, op_names[op], sizeof what - strlen(what) - 1);
    unknown(err, spec, what, w, known, n, "; one of your own comes with --plugin FILE.so");
    free(known);
}

/* Ops of which a pass runs one in all, outside the layers. */
static int is_outside_layers(int op)
{
    return op == DS_OP_EMBED || op == DS_OP_SAMPLE || op == DS_OP_CUSTOM || op == DS_OP_SCHEDULE ||
           op == DS_OP_PROCESS;
}

static int layer_number(const struct word *w, size_t at, size_t n)
{
    int v = 0;
    for (size_t i = at; i < at + n; i++) {
        if (w->text[i] < '0' || w->text[i] > '9' || v > DS_KERNEL_SET_MOST_LAYER)
            return -1;
        v = 10 * v + (w->text[i] - '0');
    }
    return n == 0 || v > DS_KERNEL_SET_MOST_LAYER ? -1 : v;
}

/* "3" or "0-3" behind an '@'. */
static int add_layers(int op, const struct ds_kernel *k, const struct word *layers,
                      struct ds_kernel_set *out, struct ds_error *err)
{
    size_t dash = strcspn(layers->text, "-");
    int first = layer_number(layers, 0, dash), last = first;
    if (layers->len >= sizeof layers->text)
        first = -1;
    else if (dash < layers->len)
        last = layer_number(layers, dash + 1, layers->len - dash - 1);
    if (first < 0 || last < first) {
        struct ds_buf text = {0};
        ds_buf_escape(&text, layers->text, (size_t)-1);
        ds_fail(err, "kernel set: '%s' names no layers", text.data ? text.data : "");
        ds_buf_free(&text);
        return ds_hint(err, "write +%s=%s@0-3, or @5 for one layer", op_names[op], k->name);
    }
    if (is_outside_layers(op))
        return ds_fail(err, "kernel set: op %s is not part of a layer", op_names[op]);
    if (out->n_at >= DS_KERNEL_SET_LAYERS)
        return ds_fail(err, "kernel set: more than %d layers or ranges of layers",
                       DS_KERNEL_SET_LAYERS);
    out->at[out->n_at].kernel = k;
    out->at[out->n_at].first = (int16_t)first;
    out->at[out->n_at++].last = (int16_t)last;
    return 0;
}

/* "op=variant", "op=variant@layers" */
static const char * override(const char *spec, const char *p, unsigned *seen,
                             struct ds_kernel_set *out, struct ds_error *err)
{
    struct word op_word, variant;
    p = take_word(p, "+=", &op_word);
    int op = ds_op_parse(op_word.text);
    if (op < 0) {
        unknown(err, spec, "op", &op_word, op_names, DS_OP_COUNT, "");
        return NULL;
    }
    if (*p != '=') {
        ds_fail(err, "kernel set: op %s is given no variant", op_names[op]);
        ds_hint(err, "write +%s=pinned", op_names[op]);
        return NULL;
    }
    p = take_word(p + 1, "+@", &variant);
    if (*p != '@' && *seen & (1u << op)) {
        ds_fail(err, "kernel set: op %s is given a variant twice", op_names[op]);
        return NULL;
    }
    const struct ds_kernel *k = ds_kernel_find_on(out->device, op, variant.text);
    if (!k) {
        unknown_variant(spec, out->device, op, &variant, err);
        return NULL;
    }
    if (*p == '@') {
        struct word layers;
        p = take_word(p + 1, "+", &layers);
        return add_layers(op, k, &layers, out, err) == 0 ? p : NULL;
    }
    *seen |= 1u << op;
    out->op[op] = k;
    return p;
}

size_t ds_kernel_set_count_on(int device)
{
    return is_device(device) ? devices[device].n_sets : 0;
}

size_t ds_kernel_set_count(void)
{
    return ds_kernel_set_count_on(DS_DEVICE_CPU);
}

int ds_kernel_set_parse(const char *spec, struct ds_kernel_set *out, struct ds_error *err)
{
    return ds_kernel_set_parse_on(DS_DEVICE_CPU, spec, out, err);
}

int ds_kernel_set_parse_on(int device, const char *spec, struct ds_kernel_set *out,
                           struct ds_error *err)
{
    struct ds_kernel_set set = {.device = is_device(device) ? device : DS_DEVICE_CPU};
    struct word w;
    unsigned seen = 0;
    const char *p = take_word(spec, "+", &w);
    if (start_set(spec, &w, &set, err) != 0)
        return -1;
    while (*p == '+')
        if (!(p = override(spec, p + 1, &seen, &set, err)))
            return -1;
    *out = set;
    return 0;
}

const struct ds_kernel *ds_kernel_set_in(const struct ds_kernel_set *set, int op, int32_t layer)
{
    for (int32_t i = set->n_at; i-- > 0;)
        if (set->at[i].kernel->op == op && layer >= set->at[i].first && layer <= set->at[i].last)
            return set->at[i].kernel;
    return set->op[op];
}

const struct ds_kernel *ds_kernel_set_used(const struct ds_kernel_set *set, int op, int32_t i)
{
    if (i == 0)
        return set->op[op];
    for (int32_t k = 0; k < set->n_at; k++)
        if (set->at[k].kernel->op == op && --i == 0)
            return set->at[k].kernel;
    return NULL;
}

int ds_kernel_set_uses(const struct ds_kernel_set *set, int op, const char *variant)
{
    const struct ds_kernel *k;
    for (int32_t i = 0; (k = ds_kernel_set_used(set, op, i)); i++)
        if (strcmp(k->name, variant) == 0)
            return 1;
    return 0;
}

int ds_kernel_set_uses_cblas(const struct ds_kernel_set *set)
{
    return ds_kernel_set_uses(set, DS_OP_MATMUL, ds_matmul_cblas.name) ||
           ds_kernel_set_uses(set, DS_OP_MATMUL, ds_matmul_cblas_packed.name);
}

int ds_kernel_available(const struct ds_kernel *k, char *why, size_t why_size)
{
    const uint32_t fp = ds_fp_control();
    why[0] = '\0';
    int rc = k->available ? k->available(why, why_size) : 0;
    ds_fp_restore(fp);
    why[why_size - 1] = '\0'; /* a plugin may have filled all of it */
    return rc;
}

int ds_kernel_set_changes(const struct ds_kernel_set *set, int op)
{
    const struct ds_kernel *k = set->op[op], *plain = ds_kernel_find_on(set->device, op, "pinned");
    return k && plain && k->launch != plain->launch;
}

int ds_kernel_set_added(const struct ds_kernel_set *set, int op)
{
    const struct ds_kernel *k;
    for (int32_t i = 0; (k = ds_kernel_set_used(set, op, i)); i++)
        for (size_t a = 0; a < n_added; a++)
            if (added[a] == k)
                return 1;
    return 0;
}

int ds_kernel_set_available(const struct ds_kernel_set *set, struct ds_error *err)
{
    char why[512];
    for (int op = 0; op < DS_OP_COUNT; op++) {
        const struct ds_kernel *k;
        for (int32_t i = 0; (k = ds_kernel_set_used(set, op, i)); i++) {
            if (ds_kernel_available(k, why, sizeof why) == 0)
                continue;
            ds_fail(err, "%s/%s cannot run here: %s", op_names[op], k->name, why);
            return ds_hint(err, "use the set pinned or reference, or +%s=pinned", op_names[op]);
        }
    }
    return 0;
}
