/* lab_kernels.c: see lab_kernels.h. */
#include "cli/lab_kernels.h"

#include "base/mem.h"
#include "base/names.h"
#include "kernels/device_open.h"
#include "kernels/lab/far.h"
#include "kernels/lab/subject.h"

#include <stdlib.h>
#include <string.h>

static int unknown(const char *what, const char *text, const char *const *known, size_t n,
                   struct ds_error *err)
{
    int near = ds_nearest(text, known, n);
    ds_fail(err, "unknown %s '%.80s'", what, text);
    return near < 0 ? ds_hint(err, "driftscope kernels lists them")
                    : ds_hint(err, "did you mean '%s'?", known[near]);
}

/* The op named before a '/', or by the whole operand. */
static int parse_op(const char *text, size_t len, struct ds_error *err)
{
    const char *names[DS_OP_COUNT + 1];
    char word[32] = "";
    memcpy(word, text, len < sizeof word ? len : sizeof word - 1);
    int op = len < sizeof word ? ds_op_parse(word) : -1;
    if (op >= 0)
        return op;
    for (int i = 0; i < DS_OP_COUNT; i++)
        names[i] = ds_op_name(i);
    names[DS_OP_COUNT] = "all";
    return unknown("op", word, names, DS_OP_COUNT + 1, err);
}

int ds_lab_choose_device(const struct ds_options *o, struct ds_error *err)
{
    const char *name = ds_opt_text(o, "device");
    int kind, n = 0;
    if (!name)
        return 0;
    if (ds_device_parse(name, err) < 0 || ds_device_parse_name(name, &kind, &n, err) != 0)
        return ds_prefix(err, "--device");
    ds_lab_use_device(kind, n);
    return 0;
}

int ds_lab_choose_graphs(const struct ds_options *o, struct ds_error *err)
{
    const int on = strcmp(ds_opt_text(o, "graph"), "on") == 0;
    ds_lab_use_graphs(on);
    if (!on || ds_lab_device(o) != DS_DEVICE_CPU)
        return 0;
    ds_fail(err, "--graph on: the CPU has no graphs");
    return ds_hint(err, "--device cuda and --device sim have");
}

int ds_lab_device(const struct ds_options *o)
{
    const char *name = ds_opt_text(o, "device");
    const int device = name ? ds_device_parse(name, NULL) : DS_DEVICE_CPU;
    return device < 0 ? DS_DEVICE_CPU : device;
}

static int no_such_variant(int device, int op, const char *variant, struct ds_error *err)
{
    size_t n = 0;
    const struct ds_kernel *k;
    const char **known = ds_calloc(ds_kernel_count_on(device), sizeof *known, "kernel names", err);
    char what[48] = "variant of ";
    if (!known)
        return -1;
    for (size_t i = 0; (k = ds_kernel_at_on(device, i)); i++)
        if (k->op == op)
            known[n++] = k->name;
    strncat(what, ds_op_name(op), sizeof what - strlen(what) - 1);
    unknown(what, variant, known, n, err);
    free(known);
    return -1;
}

/* Marks what one operand means in wanted[], one byte for each kernel of the device. */
static int mark(const char *text, int device, unsigned char *wanted, struct ds_error *err)
{
    const struct ds_kernel *k;
    const char *slash = strchr(text, '/');
    if (strcmp(text, "all") == 0) {
        for (size_t i = 0; (k = ds_kernel_at_on(device, i)); i++)
            wanted[i] |= ds_subject_known(k->op) != 0;
        return 0;
    }
    int op = parse_op(text, slash ? (size_t)(slash - text) : strlen(text), err), found = 0;
    if (op < 0)
        return -1;
    if (!ds_subject_known(op)) {
        ds_fail(err, "op %s has no rows of its own to be checked", ds_op_name(op));
        return ds_hint(err, "it shows in a run: driftscope run --kernels vendor+%s=VARIANT",
                       ds_op_name(op));
    }
    for (size_t i = 0; (k = ds_kernel_at_on(device, i)); i++)
        if (k->op == op && (!slash || strcmp(k->name, slash + 1) == 0))
            wanted[i] = 1, found = 1;
    if (found)
        return 0;
    if (slash)
        return no_such_variant(device, op, slash + 1, err);
    ds_fail(err, "op %s has no variant", ds_op_name(op));
    return ds_hint(err, "one may be added with --plugin FILE.so");
}

int ds_lab_kernels(const struct ds_options *o, const struct ds_kernel ***out, size_t *n,
                   struct ds_error *err)
{
    const int device = ds_lab_device(o);
    const size_t all = ds_kernel_count_on(device);
    unsigned char *wanted = ds_calloc(all, 1, "kernels", err);
    const struct ds_kernel **list = ds_calloc(all, sizeof(struct ds_kernel *), "kernels", err);
    int rc = wanted && list ? 0 : -1;
    *n = 0;
    if (rc == 0 && ds_opt_operands(o) == 0)
        rc = mark("all", device, wanted, err);
    for (size_t i = 0; rc == 0 && i < ds_opt_operands(o); i++)
        rc = mark(ds_opt_operand(o, i), device, wanted, err);
    for (int op = 0; rc == 0 && op < DS_OP_COUNT; op++)
        for (size_t i = 0; i < all; i++)
            if (wanted[i] && ds_kernel_at_on(device, i)->op == op)
                list[(*n)++] = ds_kernel_at_on(device, i);
    free(wanted);
    if (rc != 0) {
        free(list);
        list = NULL;
    }
    *out = list;
    return rc;
}
