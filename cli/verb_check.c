/* verb_check.c: `driftscope check`: whether kernels are what they claim, at the shapes of a model or of
 * --shape. Owns the choice of variants, shapes and thread counts; the measuring is kernels/lab/check.
 */
#include "cli/cli.h"
#include "cli/lab_kernels.h"
#include "cli/lab_shapes.h"
#include "cli/render_check.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/team.h"
#include "engine/sweep.h"
#include "kernels/registry.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_COUNTS = 16 };

struct job {
    const struct ds_options *o;
    int threads[MOST_COUNTS];
    struct ds_check_options check;
    struct ds_kernel_set vendor;
    const struct ds_kernel **kernel;
    size_t n;
    struct ds_checked *done; /* [n] */
    struct ds_shape *shape[DS_OP_COUNT];
    size_t n_shapes[DS_OP_COUNT];
};

/* ---- thread counts ------------------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static void add_count(struct job *j, int threads)
{
    for (int i = 0; i < j->check.n_threads; i++)
        if (j->threads[i] == threads)
            return;
    if (j->check.n_threads < MOST_COUNTS)
        j->threads[j->check.n_threads++] = threads;
}

/* Three and four even on two cores: sums of two parts are the same in either order. */
static int thread_counts(struct job *j, struct ds_error *err)
{
    j->check.threads = j->threads;
    if (ds_opt_given(j->o, "threads")) {
        struct ds_factor_values v;
        if (ds_factor_parse(DS_FACTOR_THREADS, ds_opt_text(j->o, "threads"), &v, err) != 0)
            return -1;
        for (size_t i = 0; i < v.n; i++)
            add_count(j, atoi(v.value[i]));
        ds_factor_free(&v);
    } else {
        const int cpus = ds_team_cpus();
        for (int t = 1; t <= 4; t++)
            add_count(j, t);
        for (int t = 8; t < cpus && t <= 256; t *= 2)
            add_count(j, t);
        add_count(j, cpus);
    }
    qsort(j->threads, (size_t)j->check.n_threads, sizeof j->threads[0], by_value);
    return 0;
}

/* ---- measuring -------------------------------------------------------------------------------------------- */

/* Shapes of every op asked about, and a place for each result. */
static int lay_out(struct job *j, size_t *jobs, struct ds_error *err)
{
    char model[256];
    *jobs = 0;
    j->done = ds_calloc(j->n, sizeof *j->done, "results", err);
    if (!j->done)
        return -1;
    for (size_t i = 0; i < j->n; i++) {
        const struct ds_kernel *k = j->kernel[i];
        if (!j->shape[k->op] && ds_lab_shapes(j->o, k->op, &j->shape[k->op], &j->n_shapes[k->op],
                                              model, sizeof model, err) != 0)
            return -1;
        struct ds_check_result *r = ds_calloc(j->n_shapes[k->op], sizeof *r, "results", err);
        if (!r)
            return -1;
        j->done[i] = (struct ds_checked){k, j->shape[k->op], r, j->n_shapes[k->op]};
        *jobs += j->done[i].n;
    }
    return 0;
}

static void progress(void *arg, double done)
{
    ds_cli_progress(arg, "checking", done, 1);
}

/* Processes at a time: each holds the largest weights three times while they are packed. */
static int workers_of(const struct job *j)
{
    double most = 0;
    for (size_t i = 0; i < j->n; i++)
        for (size_t s = 0; s < j->done[i].n; s++) {
            const struct ds_shape *x = &j->done[i].shape[s];
            const double bytes =
                12 * (double)x->n * (double)x->k + 4 * (double)x->vocab * (double)x->width;
            most = bytes > most ? bytes : most;
        }
    const double fit = most > 0 ? (double)ds_memory_available() / most : 1e9;
    const int cpus = ds_team_cpus();
    return fit < 1 ? 1 : fit < cpus ? (int)fit : cpus;
}

static int check_all(struct job *j, struct ds_error *err)
{
    size_t jobs, at = 0;
    if (lay_out(j, &jobs, err) != 0)
        return -1;
    struct ds_check_job *list = ds_calloc(jobs, sizeof *list, "results", err);
    if (!list)
        return -1;
    for (size_t i = 0; i < j->n; i++)
        for (size_t s = 0; s < j->done[i].n; s++)
            list[at++] = (struct ds_check_job){
                j->kernel[i], &j->done[i].shape[s], j->vendor.op[j->kernel[i]->op],
                (struct ds_check_result *)(uintptr_t)&j->done[i].result[s]};
    int rc =
        ds_check_many(list, jobs, &j->check, workers_of(j), progress, (void *)(uintptr_t)j->o, err);
    free(list);
    return rc;
}

/* ---- the verb -------------------------------------------------------------------------------------------- */

static int exit_code(const struct job *j)
{
    size_t at;
    int ran = 0;
    for (size_t i = 0; i < j->n; i++) {
        if (ds_checked_failure(&j->done[i], &at) >= 0)
            return DS_EXIT_DRIFT;
        ran |= ds_checked_ran(&j->done[i]);
    }
    return ran ? DS_EXIT_SAME : DS_EXIT_ERROR;
}

static void free_all(struct job *j)
{
    for (size_t i = 0; j->done && i < j->n; i++)
        free((void *)(uintptr_t)j->done[i].result);
    for (int op = 0; op < DS_OP_COUNT; op++)
        free(j->shape[op]);
    free(j->done);
    free(j->kernel);
}

static int emit(const struct job *j, struct ds_error *err)
{
    struct ds_buf b = {0};
    int rc = 0;
    if (ds_opt_flag(j->o, "json"))
        rc = ds_render_check_json(&b, j->done, j->n, err);
    else
        ds_render_check_text(j->o, &b, j->done, j->n);
    if (rc == 0)
        rc = b.failed ? ds_fail(err, "out of memory for the result") : ds_cli_emit(j->o, &b, err);
    ds_buf_free(&b);
    return rc;
}

/* Of the lab's units, a property and shape: what a CPU that plays a GPU does in the time that a CPU takes for the lab's own. */
static const double BUDGET_ON_SIM = 1.5e8;

int ds_verb_check(const struct ds_options *o)
{
    struct ds_error err;
    struct job j = {.o = o};
    const double start = ds_seconds(CLOCK_MONOTONIC);
    j.check.full = ds_opt_flag(o, "full");
    j.check.seed = 1;
    int64_t seconds = 0;
    int rc = ds_lab_choose_device(o, &err) != 0 || ds_lab_choose_graphs(o, &err) != 0 ? -1 : 0;
    if (rc == 0 && ds_opt_given(o, "plugin-timeout"))
        rc = ds_opt_int(o, "plugin-timeout", 1, 86400, &seconds, &err);
    j.check.launch_seconds = (double)seconds;
    if (rc == 0 && ds_lab_device(o) == DS_DEVICE_SIM)
        j.check.budget = BUDGET_ON_SIM;
    if (rc == 0)
        rc = ds_kernel_set_parse_on(ds_lab_device(o), "vendor", &j.vendor, &err);
    if (rc == 0)
        rc = thread_counts(&j, &err);
    if (rc == 0)
        rc = ds_lab_kernels(o, &j.kernel, &j.n, &err);
    if (rc == 0)
        rc = check_all(&j, &err);
    ds_cli_progress(o, "", -1, 0);
    if (rc == 0)
        rc = emit(&j, &err);
    int code = rc == 0 ? exit_code(&j) : ds_cli_error(o, &err);
    if (rc == 0 && code == DS_EXIT_ERROR) {
        ds_fail(&err, "nothing could be compared");
        code = ds_cli_error(o, &err);
    } else if (rc == 0)
        ds_cli_note(o, "checked in %.1f s", ds_seconds(CLOCK_MONOTONIC) - start);
    free_all(&j);
    return code;
}
