/* verdict.c: how the verbs make and print a verdict; what a report is told of the command line. */
#include "cli/verdict.h"

#include "cli/render_json.h"
#include "kernels/cblas.h"
#include "kernels/lab/explain.h"
#include "kernels/plugin.h"
#include "kernels/registry.h"

#include <string.h>

/* ---- what a report is told ------------------------------------------------------------------- */

static const char *color(const void *o, enum ds_role role)
{
    return ds_cli_color(o, role);
}

static int is_default_model(const char *model)
{
    return strcmp(model, "smollm2") == 0 || strcmp(model, "SmolLM2-135M-Instruct.Q4_1.gguf") == 0;
}

static void add_option(struct ds_buf *out, const char *name, const char *value)
{
    ds_buf_printf(out, "%s ", name);
    ds_buf_quote(out, value);
    ds_buf_puts(out, " ");
}

/* A record names its model, but never makes the program open a file: the command must say it, and the
 * plugins that are loaded now. */
static void begin(struct ds_buf *out, const char *verb, const char *model)
{
    ds_cli_program(out);
    ds_buf_printf(out, " %s ", verb);
    if (!model)
        return;
    if (model[0] && !is_default_model(model))
        add_option(out, "-m", model);
    for (size_t i = 0; i < ds_plugin_count(); i++)
        add_option(out, "--plugin", ds_plugin_at(i)->path);
    if (*ds_cblas_path())
        add_option(out, "--blas", ds_cblas_path());
}

static int explains(const char *op)
{
    return ds_explain_knows(ds_op_parse(op));
}

static const char *kernel(const char *device, const char *op, const char *variant)
{
    const int number = ds_op_parse(op);
    for (int kind = 0; number >= 0 && kind < DS_DEVICE_KINDS; kind++) {
        const size_t n = strlen(ds_device_name(kind)); /* "cuda:1" is a cuda */
        if (strncmp(device, ds_device_name(kind), n) != 0 || (device[n] && device[n] != ':'))
            continue;
        const struct ds_kernel *k = ds_kernel_find_on(kind, number, variant);
        return k ? k->summary : NULL;
    }
    return NULL;
}

const struct ds_report_caller ds_cli_caller = {
    .begin = begin, .explains = explains, .kernel = kernel, .build = ds_cli_build};

void ds_cli_report(const struct ds_options *o, struct ds_report *r)
{
    r->color = color;
    r->color_ctx = o;
    r->caller = &ds_cli_caller;
}

/* ---- the verdict ----------------------------------------------------------------------------- */

int ds_cli_verdict(const struct ds_options *o, const struct ds_source *s, struct ds_record *record,
                   const char *path, int *exit_code, struct ds_error *err)
{
    struct ds_verdict v;
    struct ds_buf out = {0};
    if (ds_verdict_make(s, &v, err) != 0)
        return path ? ds_prefix(err, "%s", path) : -1;
    struct ds_report r = {.header = s->header,
                          .v = &v,
                          .path = path,
                          .incomplete = record ? ds_record_incomplete(record) : 0,
                          .damaged = record ? ds_record_damaged(record) : 0};
    int rc = 0;
    ds_report_damage_judge(&r, &v);
    ds_cli_report(o, &r);
    if (ds_opt_flag(o, "json"))
        rc = ds_render_verdict_json(&r, &out, err);
    else
        ds_report_verdict(&r, &out);
    if (rc == 0)
        rc = ds_cli_emit(o, &out, err);
    *exit_code = ds_cli_exit(o, ds_verdict_exit(&v));
    if (v.n_failed > 0 && *exit_code == DS_EXIT_SAME) /* nor is an arm that was lost */
        *exit_code = ds_cli_exit(o, DS_EXIT_ERROR);
    ds_buf_free(&out);
    ds_verdict_free(&v);
    return rc;
}
