/* verb_bench.c: `driftscope bench`: how fast kernels and whole passes are beside the vendor's, and
 * what the probes cost. Figures, and only what they allow to say. */
#include "cli/bench.h"
#include "cli/lab_kernels.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/plural.h"
#include "base/team.h"
#include "engine/sweep.h"
#include "kernels/device_open.h"
#include "kernels/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

struct ds_bench_row *ds_bench_add(struct ds_bench_result *r, struct ds_error *err)
{
    if (ds_grow_by_one(&r->rows, r->n_rows, sizeof *r->rows, "bench figures", err) != 0)
        return NULL;
    struct ds_bench_row *row = &r->rows[r->n_rows++];
    memset(row, 0, sizeof *row);
    return row;
}

int ds_bench_threads(const struct ds_options *o, int **out, size_t *n, struct ds_error *err)
{
    struct ds_factor_values v;
    const char *text = ds_opt_given(o, "threads") ? ds_opt_text(o, "threads") : "1,all";
    *out = NULL;
    if (ds_factor_parse(DS_FACTOR_THREADS, text, &v, err) != 0)
        return -1;
    /* A device's launches have one. */
    const int given = ds_opt_given(o, "threads") || ds_lab_device(o) == DS_DEVICE_CPU;
    *n = given ? v.n : 1;
    *out = ds_calloc(v.n, sizeof **out, "thread counts", err);
    for (size_t i = 0; *out && i < *n; i++)
        (*out)[i] = atoi(v.value[i]); /* checked by the parse */
    ds_factor_free(&v);
    return *out ? 0 : -1;
}

int ds_bench_conditions(const struct ds_options *o,
                        struct ds_bench_condition c[DS_BENCH_CONDITIONS], size_t *n,
                        struct ds_error *err)
{
    const char *l2 = ds_opt_text(o, "l2"), *graph = ds_opt_text(o, "graph");
    const int here = ds_lab_device(o) == DS_DEVICE_CPU;
    *n = 0;
    if (here && (ds_opt_given(o, "l2") || strcmp(graph, "off") != 0)) {
        ds_fail(err, "--%s is for a device: the CPU's caches and launches are as they are",
                ds_opt_given(o, "l2") ? "l2" : "graph");
        return ds_hint(err, "--device cuda and --device sim");
    }
    for (int flushed = 0; flushed < 2; flushed++)
        for (int g = 0; g < 2; g++)
            if (strstr(l2, flushed ? "flushed" : "warm") && strstr(graph, g ? "on" : "off"))
                c[(*n)++] = (struct ds_bench_condition){flushed, g};
    return 0;
}

int ds_bench_formats(const struct ds_options *o, int format[DS_BENCH_FORMATS], size_t *n,
                     struct ds_error *err)
{
    static const struct {
        const char *name;
        int element;
    } formats[DS_BENCH_FORMATS] = {
        {"f32", DS_ELEMENT_F32}, {"bf16", DS_ELEMENT_BF16}, {"f16", DS_ELEMENT_F16}};
    struct ds_factor_values v;
    if (ds_factor_parse(DS_FACTOR_DTYPE, ds_opt_text(o, "dtype"), &v, err) != 0)
        return -1;
    *n = 0;
    for (size_t i = 0; i < v.n; i++)
        for (size_t f = 0; f < DS_BENCH_FORMATS && *n < DS_BENCH_FORMATS; f++)
            if (strcmp(v.value[i], formats[f].name) == 0)
                format[(*n)++] = formats[f].element;
    ds_factor_free(&v);
    if (ds_lab_device(o) != DS_DEVICE_CPU || (*n == 1 && format[0] == DS_ELEMENT_F32))
        return 0;
    ds_fail(err, "--dtype is for a device: kernels of the CPU have f32 rows");
    return ds_hint(err, "--device cuda and --device sim");
}

/* What is timed on, and that it is there. */
static int look_at_device(const struct ds_options *o, struct ds_bench_result *r,
                          struct ds_error *err)
{
    int kind, number;
    if (ds_lab_choose_device(o, err) != 0 ||
        ds_device_parse_name(ds_opt_text(o, "device"), &kind, &number, err) != 0)
        return -1;
    r->device_name = ds_opt_text(o, "device");
    return kind == DS_DEVICE_CPU ? 0 : ds_device_describe(kind, number, &r->device, err);
}

double ds_bench_seconds(const struct ds_options *o, double otherwise)
{
    int64_t n;
    struct ds_error err; /* checked by the parse */
    return ds_opt_given(o, "seconds") && ds_opt_int(o, "seconds", 0, 3600, &n, &err) == 0
               ? (double)n
               : otherwise;
}

int ds_bench_anywhere(const struct ds_options *o)
{
    return strcmp(ds_opt_text(o, "cpus"), "any") == 0;
}

static int has_operand(const struct ds_options *o, const char *word)
{
    for (size_t i = 0; i < ds_opt_operands(o); i++)
        if (strcmp(ds_opt_operand(o, i), word) == 0)
            return 1;
    return ds_opt_operands(o) == 0;
}

static void weigh(const struct ds_model *m, struct ds_bench_result *r)
{
    struct rusage ru;
    getrusage(RUSAGE_SELF, &ru);
    r->peak_bytes = (double)ru.ru_maxrss * 1024;
    for (size_t i = 0; i < m->n_weights; i++)
        r->weight_bytes += 4.0 * (double)m->weights[i].rows * (double)m->weights[i].cols;
}

static int keep_of(const struct ds_options *o)
{
    return strcmp(ds_opt_text(o, "weights"), "file") == 0 ? DS_WEIGHTS_FILE : DS_WEIGHTS_F32;
}

const char *ds_bench_sets(const struct ds_options *o)
{
    if (ds_opt_given(o, "kernels"))
        return ds_opt_text(o, "kernels");
    return keep_of(o) == DS_WEIGHTS_FILE ? "pinned" : "vendor,pinned";
}

/* Sets that could not read the weights are refused before anything is measured. */
static int check_sets(const struct ds_options *o, struct ds_error *err)
{
    if (!has_operand(o, "pass") && !has_operand(o, "probes"))
        return 0;
    struct ds_factor_values v;
    struct ds_kernel_set set;
    if (ds_factor_parse(DS_FACTOR_KERNELS, ds_bench_sets(o), &v, err) != 0)
        return -1;
    int rc = 0;
    for (size_t k = 0; k < v.n && rc == 0; k++)
        rc = ds_kernel_set_parse_on(ds_lab_device(o), v.value[k], &set, err) ||
             ds_model_check_kernel(keep_of(o), set.op[DS_OP_MATMUL], err);
    ds_factor_free(&v);
    return -rc;
}

static int whole_passes(const struct ds_options *o, struct ds_bench_result *r, struct ds_error *err)
{
    struct ds_model *m = NULL, *f32 = NULL;
    const char *spec = ds_opt_text(o, "model");
    const int cpus = ds_team_cpus();
    if (!has_operand(o, "pass") && !has_operand(o, "probes"))
        return 0;
    double start = ds_seconds(CLOCK_MONOTONIC);
    if (ds_model_open_as(spec, keep_of(o), cpus, &m, err) != 0)
        return -1;
    r->load = ds_seconds(CLOCK_MONOTONIC) - start;
    snprintf(r->model, sizeof r->model, "%s", m->name);
    int rc = has_operand(o, "probes") ? ds_bench_probes(o, m, r, err) : 0;
    weigh(m, r); /* before a second model is opened */
    if (rc == 0 && has_operand(o, "pass") && keep_of(o) == DS_WEIGHTS_FILE)
        rc = ds_model_open(spec, cpus, &f32, err);
    if (rc == 0 && has_operand(o, "pass"))
        rc = ds_bench_passes(o, m, f32 ? f32 : m, r, err);
    ds_model_close(f32);
    ds_model_close(m);
    return rc;
}

static int nothing_measured(const struct ds_bench_result *r, struct ds_error *err)
{
    ds_fail(err, "nothing was measured");
    const size_t n = r->too_big + r->too_long;
    return n ? ds_hint(err,
                       "one call is too much work, takes too long, or is longer than the model's "
                       "context, in all %zu setting%s; --rows asks for more",
                       n, ds_plural(n))
             : ds_hint(err, "no variant of it can run here; see driftscope kernels");
}

int ds_verb_bench(const struct ds_options *o)
{
    struct ds_error err;
    struct ds_bench_result r = {0};
    struct ds_buf out = {0};
    int rc = look_at_device(o, &r, &err);
    if (rc == 0 && ds_opt_given(o, "blas-core"))
        rc = ds_blas_open(ds_opt_text(o, "blas-core"), &err);
    if (rc == 0)
        rc = ds_bench_check_operands(o, &err) != 0 || check_sets(o, &err) != 0 ? -1 : 0;
    if (rc == 0)
        rc = ds_bench_kernels(o, &r, &err);
    if (rc == 0 && ds_opt_operands(o) && has_operand(o, "digest"))
        rc = ds_bench_digests(o, &r, &err);
    if (rc == 0)
        rc = whole_passes(o, &r, &err);
    ds_cli_progress(o, "", -1, 0);
    if (rc == 0 && r.n_rows + r.n_probes == 0)
        rc = nothing_measured(&r, &err);
    if (rc == 0 && ds_opt_flag(o, "json"))
        rc = ds_bench_json(&out, &r, &err);
    else if (rc == 0)
        ds_bench_text(&out, o, &r);
    if (rc == 0)
        rc = out.failed ? ds_fail(&err, "out of memory") : ds_cli_emit(o, &out, &err);
    ds_buf_free(&out);
    free(r.rows);
    free(r.probes);
    return rc == 0 ? DS_EXIT_SAME : ds_cli_error(o, &err);
}
