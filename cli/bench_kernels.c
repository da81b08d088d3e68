/* bench_kernels.c: which ops, shapes, row counts and threads `bench` times, variants side by side.
 * Owns the choice of settings; must not know how figures are shown. */
#include "cli/bench.h"

#include "base/mem.h"
#include "base/names.h"
#include "base/plural.h"
#include "cli/lab_kernels.h"
#include "cli/lab_shapes.h"
#include "kernels/lab/bench.h"
#include "kernels/lab/subject.h"
#include "kernels/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Multiply-adds of one call above which a setting is run only when --rows asks for it: the
 * reference variants need seconds there. */
static const double MOST_WORK = 1.2e9;
static const double SECONDS_A_VARIANT = 0.06;
/* What all variants together may take at one setting before the slow ones are left out, or the
 * setting; only --rows asks for more. */
static const double MOST_SECONDS = 6;

static const int32_t default_rows[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
/* Slots that a decode row of attention sees; 0: prefill. */
static const int32_t attention_kv[] = {0, 64, 4096};

struct plan {
    const struct ds_options *o;
    struct ds_bench_result *r;
    const struct ds_kernel *kernels[DS_TIMING_MAX_CONTENDERS]; /* [0]: the vendor's */
    size_t n_kernels;
    int format[DS_BENCH_FORMATS]; /* enum ds_element */
    size_t n_formats;
    int32_t *rows;
    size_t n_rows;
    int *threads;
    size_t n_threads;
    struct ds_bench_condition condition[DS_BENCH_CONDITIONS];
    size_t n_conditions;
    int rows_given;
    double done, total; /* settings of all ops */
};

/* ---- which variants -------------------------------------------------------------------------- */

/* "OP" or "OP/VARIANT". */
static int parse_operand(const struct ds_options *o, const char *text, int *op,
                         const struct ds_kernel **only, struct ds_error *err)
{
    char name[32];
    const char *slash = strchr(text, '/');
    size_t len = slash ? (size_t)(slash - text) : strlen(text);
    snprintf(name, sizeof name, "%.*s", (int)(len < 31 ? len : 31), text);
    *only = NULL;
    *op = ds_op_parse(name);
    if (*op < 0) {
        const char *known[DS_OP_COUNT + 3];
        for (int i = 0; i < DS_OP_COUNT; i++)
            known[i] = ds_op_name(i);
        known[DS_OP_COUNT] = "pass";
        known[DS_OP_COUNT + 1] = "probes";
        known[DS_OP_COUNT + 2] = "digest";
        int near = ds_nearest(name, known, DS_OP_COUNT + 3);
        ds_fail(err, "bench: unknown op '%.60s'", text);
        return near < 0
                   ? ds_hint(err, "driftscope kernels lists all ops; also pass, probes, digest")
                   : ds_hint(err, "did you mean '%s'?", known[near]);
    }
    if (!ds_subject_known(*op)) {
        ds_fail(err, "bench: op %s has no rows of its own to time", ds_op_name(*op));
        return ds_hint(err, "it shows in a run: driftscope run --kernels vendor+%s=VARIANT",
                       ds_op_name(*op));
    }
    if (!slash)
        return 0;
    if ((*only = ds_kernel_find_on(ds_lab_device(o), *op, slash + 1)))
        return 0;
    ds_fail(err, "bench: %s has no variant '%.60s'", ds_op_name(*op), slash + 1);
    return ds_hint(err, "driftscope kernels %s lists them", ds_op_name(*op));
}

static int runs_here(const struct ds_options *o, const struct ds_kernel *k)
{
    char why[256] = "";
    if (ds_kernel_available(k, why, sizeof why) == 0)
        return 1;
    ds_cli_note(o, "%s/%s is left out: %s", ds_op_name(k->op), k->name, why);
    return 0;
}

/* The vendor's variant first, then the one asked for or all of the op. */
static int choose_kernels(struct plan *p, int op, const struct ds_kernel *only,
                          struct ds_error *err)
{
    struct ds_kernel_set vendor;
    p->n_kernels = 0;
    const int device = ds_lab_device(p->o);
    const struct ds_kernel *k;
    if (ds_kernel_set_parse_on(device, "vendor", &vendor, err) != 0)
        return -1;
    if (vendor.op[op] && runs_here(p->o, vendor.op[op]))
        p->kernels[p->n_kernels++] = vendor.op[op];
    for (size_t i = 0; (k = ds_kernel_at_on(device, i)); i++) {
        if (k->op != op || k == vendor.op[op] || (only && k != only) || !runs_here(p->o, k))
            continue;
        if (p->n_kernels == DS_TIMING_MAX_CONTENDERS)
            return ds_fail(err, "bench: %s has more than %d variants; name one", ds_op_name(op),
                           DS_TIMING_MAX_CONTENDERS);
        p->kernels[p->n_kernels++] = k;
    }
    return 0;
}

/* ---- which settings -------------------------------------------------------------------------- */

static int choose_rows(struct plan *p, struct ds_error *err)
{
    p->rows_given = ds_opt_given(p->o, "rows");
    p->n_rows = sizeof default_rows / sizeof default_rows[0];
    if (!p->rows_given) {
        p->rows = ds_calloc(p->n_rows, sizeof *p->rows, "row counts", err);
        if (p->rows)
            memcpy(p->rows, default_rows, sizeof default_rows);
        return p->rows ? 0 : -1;
    }
    const char *text = ds_opt_text(p->o, "rows"); /* a list of numbers, checked by the parse */
    p->n_rows = 1;
    for (const char *c = text; *c; c++)
        p->n_rows += *c == ',';
    p->rows = ds_calloc(p->n_rows, sizeof *p->rows, "row counts", err);
    for (size_t i = 0; p->rows && i < p->n_rows; i++) {
        p->rows[i] = (int32_t)strtol(text, NULL, 10);
        text += strcspn(text, ",") + 1;
    }
    return p->rows ? 0 : -1;
}

static int keep(struct plan *p, const struct ds_shape *shape, const struct ds_bench_setting *s,
                const struct ds_bench_figures *f, struct ds_error *err)
{
    struct ds_buf text = {0};
    ds_shape_print(&text, shape);
    for (size_t i = 0; i < p->n_kernels; i++) {
        struct ds_bench_row *row = ds_bench_add(p->r, err);
        if (!row) {
            ds_buf_free(&text);
            return -1;
        }
        snprintf(row->op, sizeof row->op, "%s", ds_op_name(shape->op));
        snprintf(row->variant, sizeof row->variant, "%s", p->kernels[i]->name);
        snprintf(row->shape, sizeof row->shape, "%.60s", text.data ? text.data : "");
        if (s->kv)
            snprintf(row->where, sizeof row->where, "%s, decode at KV %d", shape->name, (int)s->kv);
        else
            snprintf(row->where, sizeof row->where, "%s%s", shape->name,
                     shape->op == DS_OP_ATTENTION ? ", prefill" : "");
        row->rows = s->rows;
        row->threads = s->threads;
        row->time = f->time[i];
        row->noise = f->noise;
        row->placed = f->placed;
        row->work = f->work;
        row->unit = f->unit;
        row->prepare = f->prepare[i];
        row->is_vendor = i == 0;
        row->on_device = p->kernels[i]->device != DS_DEVICE_CPU;
        row->launch = f->launch[i];
        row->flushed = s->flushed;
        row->stored = s->stored;
        row->graph = s->graph;
        row->clock_khz = f->clock_khz;
        row->memory_clock_khz = f->memory_clock_khz;
        memcpy(row->wrong, f->wrong[i], sizeof row->wrong);
    }
    ds_buf_free(&text);
    return 0;
}

static int one_setting(struct plan *p, struct ds_lab_bench *b, const struct ds_shape *shape,
                       const struct ds_bench_setting *s, struct ds_error *err)
{
    const struct ds_bench_limits limits = {
        .seconds = ds_bench_seconds(p->o, SECONDS_A_VARIANT * (double)p->n_kernels),
        .most = p->rows_given ? 0 : MOST_SECONDS,
        .anywhere = ds_bench_anywhere(p->o)};
    struct ds_bench_figures f;
    ds_cli_progress(p->o, ds_op_name(shape->op), p->done++, p->total);
    if (!p->rows_given && ds_lab_bench_work(shape, s) > MOST_WORK) {
        p->r->too_big++;
        return 0;
    }
    int rc = ds_lab_bench(b, s, &limits, &f, err);
    if (rc < 0)
        return ds_prefix(err, "%s, %d row%s", ds_op_name(shape->op), (int)s->rows,
                         ds_plural(s->rows));
    p->r->too_long += rc == 1;
    return rc == 1 ? 0 : keep(p, shape, s, &f, err);
}

static int one_open(struct plan *p, struct ds_lab_bench *b, const struct ds_shape *shape,
                    int stored, struct ds_error *err)
{
    const size_t n_kv =
        shape->op == DS_OP_ATTENTION ? sizeof attention_kv / sizeof attention_kv[0] : 1;
    int rc = 0;
    for (size_t t = 0; t < p->n_threads; t++)
        for (size_t k = 0; k < n_kv; k++)
            for (size_t i = 0; i < p->n_rows && rc == 0; i++) {
                struct ds_bench_setting s = {.rows = p->rows[i],
                                             .threads = p->threads[t],
                                             .kv = attention_kv[k],
                                             .stored = stored};
                for (size_t c = 0; c < p->n_conditions && rc == 0; c++) {
                    s.flushed = p->condition[c].flushed;
                    s.graph = p->condition[c].graph;
                    rc = one_setting(p, b, shape, &s, err);
                }
            }
    return rc;
}

/* In one format. The first variant is what the others are held against: without it there is nothing to time. */
static int one_format(struct plan *p, const struct ds_shape *shape, int stored,
                      struct ds_error *err)
{
    struct plan some = *p;
    some.n_kernels = 0;
    for (size_t i = 0; i < p->n_kernels; i++)
        if (stored == DS_ELEMENT_F32 || (p->kernels[i]->features & DS_FEATURE_STORED))
            some.kernels[some.n_kernels++] = p->kernels[i];
    if (some.n_kernels == 0)
        return 0;
    struct ds_lab_bench *b = ds_lab_bench_open(some.kernels, some.n_kernels, shape, stored, err);
    const int rc =
        b ? one_open(&some, b, shape, stored, err) : ds_prefix(err, "%s", ds_op_name(shape->op));
    ds_lab_bench_close(b);
    p->done = some.done;
    return rc;
}

static int one_shape(struct plan *p, const struct ds_shape *shape, struct ds_error *err)
{
    int rc = 0;
    for (size_t i = 0; i < p->n_formats && rc == 0; i++)
        rc = one_format(p, shape, p->format[i], err);
    return rc;
}

static int one_op(struct plan *p, int op, const struct ds_kernel *only, struct ds_error *err)
{
    struct ds_shape *shapes;
    size_t n;
    if (choose_kernels(p, op, only, err) != 0)
        return -1;
    if (p->n_kernels == 0)
        return 0;
    if (ds_lab_shapes(p->o, op, &shapes, &n, p->r->model, sizeof p->r->model, err) != 0)
        return -1;
    int rc = 0;
    p->done = 0;
    p->total = (double)(n * p->n_threads * p->n_rows * p->n_conditions * p->n_formats) *
               (op == DS_OP_ATTENTION ? sizeof attention_kv / sizeof attention_kv[0] : 1);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = one_shape(p, &shapes[i], err);
    free(shapes);
    return rc;
}

static int is_pass(const char *operand)
{
    return strcmp(operand, "pass") == 0 || strcmp(operand, "probes") == 0 ||
           strcmp(operand, "digest") == 0;
}

int ds_bench_check_operands(const struct ds_options *o, struct ds_error *err)
{
    for (size_t i = 0; i < ds_opt_operands(o); i++) {
        const struct ds_kernel *only;
        int op;
        if (!is_pass(ds_opt_operand(o, i)) &&
            parse_operand(o, ds_opt_operand(o, i), &op, &only, err))
            return -1;
    }
    return 0;
}

int ds_bench_kernels(const struct ds_options *o, struct ds_bench_result *r, struct ds_error *err)
{
    struct plan p = {.o = o, .r = r};
    int rc = choose_rows(&p, err) != 0 || ds_bench_threads(o, &p.threads, &p.n_threads, err) != 0 ||
                     ds_bench_conditions(o, p.condition, &p.n_conditions, err) != 0 ||
                     ds_bench_formats(o, p.format, &p.n_formats, err) != 0
                 ? -1
                 : 0;
    for (int op = 0; rc == 0 && ds_opt_operands(o) == 0 && op < DS_OP_COUNT; op++) {
        if (op == DS_OP_CUSTOM || !ds_subject_known(op))
            continue;
        rc = one_op(&p, op, NULL, err);
    }
    for (size_t i = 0; rc == 0 && i < ds_opt_operands(o); i++) {
        const char *text = ds_opt_operand(o, i);
        const struct ds_kernel *only;
        int op;
        if (is_pass(text))
            continue;
        rc =
            parse_operand(o, text, &op, &only, err) != 0 || one_op(&p, op, only, err) != 0 ? -1 : 0;
    }
    free(p.rows);
    free(p.threads);
    return rc;
}
