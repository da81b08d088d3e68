/* verb_bench.c: `driftscope bench`: what the probes cost and how fast the model runs on this
 * machine. Figures, no verdicts.
 *
 * Machines are shared and noisy: passes with and without probes alternate, times are CPU time of
 * the whole process, and each figure is shown with its spread. The probes' own account of their
 * time is printed beside the paired difference; they must agree. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "engine/forward.h"
#include "engine/sweep.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { PREFILL = 128, MAX_ROUNDS = 400 };

/* Which sites are digested, and whether rows are searched for NaN and Inf too. */
enum { ALL_SITES, ALL_SITES_WATCHED, RESIDUALS };
static const char *const site_names[] = {"all sites", "all, NaN watch", "resid_ffn"};

/* One thing measured: a pass shape with a kernel set and a choice of sites. */
struct subject {
    const char *set;
    int threads, batch, prefill, sites;
};

struct spread {
    double median, low, high; /* low, high: quartiles */
};

struct figure {
    struct spread tokens_per_s; /* wall clock, probes off */
    struct spread account;      /* the probes' own time over the pass's CPU time */
    struct spread paired;       /* CPU time with probes over without, minus 1 */
    int rounds;
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct spread spread_of(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return (struct spread){v[n / 2], v[n / 4], v[n - 1 - n / 4]};
}

/* ---- one pass -------------------------------------------------------------------------------- */

struct bench {
    struct ds_model *model;
    struct ds_forward *forward;
    struct ds_probe *probe;
    struct ds_site *sites;
    struct ds_edge *edges;
    uint8_t *site_on;
    struct ds_batch_seq *seqs;
    int32_t *tokens;
    const struct subject *s;
};

static void bench_free(struct bench *b)
{
    ds_probe_free(b->probe);
    ds_forward_free(b->forward);
    free(b->sites);
    free(b->edges);
    free(b->site_on);
    free(b->seqs);
    free(b->tokens);
}

static int bench_setup(struct bench *b, struct ds_model *m, const struct subject *s,
                       struct ds_error *err)
{
    memset(b, 0, sizeof *b);
    b->model = m;
    b->s = s;
    uint32_t n_sites, n_edges;
    struct ds_forward_config fc = {.dtype = DS_F32,
                                   .threads = s->threads,
                                   .n_requests = s->batch,
                                   .max_rows = s->prefill > s->batch ? s->prefill : s->batch,
                                   .capacity = s->prefill ? s->prefill : MAX_ROUNDS * 4};
    int32_t context = m->hp.context;
    fc.capacity = fc.capacity > context ? context : fc.capacity;
    if (ds_kernel_set_parse(s->set, &fc.kernels, err) != 0)
        return -1;
    if (strcmp(fc.kernels.op[DS_OP_MATMUL]->name, "openblas") == 0 && ds_blas_open(NULL, err) != 0)
        return -1;
    if (ds_model_prepare(m, fc.kernels.op[DS_OP_MATMUL], s->threads, err) != 0 ||
        ds_forward_new(m, &fc, &b->forward, err) != 0 ||
        ds_forward_sites(m, DS_F32, &b->sites, &n_sites, &b->edges, &n_edges, err) != 0)
        return -1;
    b->site_on = ds_calloc(n_sites, 1, "sites", err);
    b->seqs = ds_calloc((size_t)s->batch, sizeof *b->seqs, "batch", err);
    b->tokens = ds_calloc((size_t)fc.max_rows, sizeof *b->tokens, "tokens", err);
    if (!b->site_on || !b->seqs || !b->tokens)
        return -1;
    for (uint32_t i = 0; i < n_sites; i++)
        b->site_on[i] = s->sites != RESIDUALS || strcmp(b->sites[i].stage, "resid_ffn") == 0;
    for (int32_t i = 0; i < fc.max_rows; i++)
        b->tokens[i] = (int32_t)((uint32_t)i * 2654435761u % (uint32_t)m->hp.vocab);
    struct ds_probe_config pc = {.sites = b->sites,
                                 .n_sites = n_sites,
                                 .edges = b->edges,
                                 .n_edges = n_edges,
                                 .site_on = b->site_on,
                                 .no_watch = s->sites == ALL_SITES,
                                 .team = ds_forward_team(b->forward)};
    return ds_probe_new(&pc, &b->probe, err);
}

/* One call of the forward pass: a whole prompt, or one token of every request. */
static int one_call(struct bench *b, int probed, int32_t first_step, struct ds_error *err)
{
    const struct subject *s = b->s;
    for (int32_t i = 0; i < s->batch; i++)
        b->seqs[i] = (struct ds_batch_seq){.request = i,
                                           .tokens = b->tokens + i,
                                           .record = 1,
                                           .step = first_step,
                                           .n_tokens = s->prefill ? s->prefill : 1,
                                           .logits_from = s->prefill ? s->prefill - 1 : 0};
    struct ds_batch batch = {b->seqs, s->batch, s->prefill ? DS_PHASE_PREFILL : DS_PHASE_DECODE};
    const float *logits;
    const int32_t *tokens;
    int32_t n;
    if (ds_forward_run(b->forward, &batch, probed ? b->probe : NULL, &logits, &tokens, &n, err) !=
        0)
        return -1;
    return probed ? ds_probe_end_call(b->probe, err) : 0;
}

struct pass {
    double cpu, wall, probe;
};

/* A prompt pass of PREFILL tokens, or a few decode steps; starts from an empty cache. */
static int one_pass(struct bench *b, int probed, struct pass *out, struct ds_error *err)
{
    int calls = b->s->prefill ? 1 : 4;
    struct ds_trial info = {0};
    struct ds_trial_data data = {0};
    ds_forward_reset(b->forward);
    double probe = ds_probe_cpu_seconds(b->probe);
    if (probed && ds_probe_begin_trial(b->probe, &info, NULL, 0, err) != 0)
        return -1;
    double cpu = ds_seconds(CLOCK_PROCESS_CPUTIME_ID), wall = ds_seconds(CLOCK_MONOTONIC);
    for (int i = 0; i < calls; i++)
        if (one_call(b, probed, i, err) != 0)
            return -1;
    out->cpu = ds_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    out->wall = ds_seconds(CLOCK_MONOTONIC) - wall;
    out->probe = ds_probe_cpu_seconds(b->probe) - probe;
    if (probed) {
        int rc = ds_probe_end_trial(b->probe, &data, err);
        ds_trial_data_free(&data);
        return rc;
    }
    return 0;
}

static int measure(struct ds_model *m, const struct subject *s, double seconds, struct figure *f,
                   struct ds_error *err)
{
    static double rate[MAX_ROUNDS], account[MAX_ROUNDS], paired[MAX_ROUNDS];
    struct bench b;
    struct pass off, on;
    int rc = bench_setup(&b, m, s, err);
    double tokens = s->prefill ? s->prefill : 4.0 * s->batch, start = ds_seconds(CLOCK_MONOTONIC);
    int n = 0;
    if (rc == 0)
        rc = one_pass(&b, 1, &on, err); /* warm-up */
    for (; rc == 0 && n < MAX_ROUNDS && (n < 8 || ds_seconds(CLOCK_MONOTONIC) - start < seconds);
         n++) {
        /* The order changes from round to round, so that a trend of the machine favours neither
         * side. */
        if (n % 2 == 0)
            rc = one_pass(&b, 0, &off, err) != 0 || one_pass(&b, 1, &on, err) != 0 ? -1 : 0;
        else
            rc = one_pass(&b, 1, &on, err) != 0 || one_pass(&b, 0, &off, err) != 0 ? -1 : 0;
        rate[n] = tokens / off.wall;
        account[n] = on.probe / on.cpu;
        paired[n] = on.cpu / off.cpu - 1;
    }
    bench_free(&b);
    if (rc != 0)
        return -1;
    *f = (struct figure){spread_of(rate, n), spread_of(account, n), spread_of(paired, n), n};
    return 0;
}

/* ---- output ---------------------------------------------------------------------------------- */

static json_t *spread_json(struct spread s)
{
    return json_pack("{s:f,s:f,s:f}", "median", s.median, "low", s.low, "high", s.high);
}

static void add_row(json_t *rows, struct ds_buf *text, const struct subject *s,
                    const struct figure *f)
{
    char shape[64];
    if (s->prefill)
        snprintf(shape, sizeof shape, "prefill %d", s->prefill);
    else
        snprintf(shape, sizeof shape, "decode, batch %d", s->batch);
    ds_buf_printf(text,
                  "%-9s %-16s %d thread%s  %-14s %8.1f tok/s  probes %6.3f %% (%.3f..%.3f)  paired "
                  "%+6.2f %% (%+.2f..%+.2f)\n",
                  s->set, shape, s->threads, s->threads == 1 ? " " : "s", site_names[s->sites],
                  f->tokens_per_s.median, 100 * f->account.median, 100 * f->account.low,
                  100 * f->account.high, 100 * f->paired.median, 100 * f->paired.low,
                  100 * f->paired.high);
    json_array_append_new(
        rows,
        json_pack("{s:s,s:s,s:i,s:i,s:i,s:s,s:i,s:o,s:o,s:o}", "set", s->set, "phase",
                  s->prefill ? "prefill" : "decode", "rows", s->prefill ? s->prefill : s->batch,
                  "batch", s->batch, "threads", s->threads, "sites", site_names[s->sites], "rounds",
                  f->rounds, "tokens_per_s", spread_json(f->tokens_per_s), "probe_share",
                  spread_json(f->account), "probe_paired", spread_json(f->paired)));
}

static void add_model(json_t *top, struct ds_buf *text, const struct ds_model *m, double load)
{
    struct rusage ru;
    getrusage(RUSAGE_SELF, &ru);
    double weights = 0, peak = (double)ru.ru_maxrss * 1024;
    for (size_t i = 0; i < m->n_weights; i++)
        weights += 4.0 * (double)m->weights[i].rows * (double)m->weights[i].cols;
    ds_buf_printf(text,
                  "load %.2f s, peak memory %.2f GB for %.2f GB of f32 weights (%.2f copies and "
                  "the file's pages)\n",
                  load, peak / 1e9, weights / 1e9, peak / weights);
    json_object_set_new(top, "load_s", json_real(load));
    json_object_set_new(top, "peak_bytes", json_real(peak));
    json_object_set_new(top, "weight_bytes", json_real(weights));
}

/* Every set at one and two threads, every choice of sites, every shape. */
static int measure_set(const struct ds_options *o, struct ds_model *m, const char *set,
                       int n_threads, json_t *rows, struct ds_buf *text, struct ds_error *err)
{
    static const struct {
        int batch, prefill;
    } shapes[] = {{1, PREFILL}, {1, 0}, {8, 0}};
    for (int threads = 1; threads <= n_threads; threads++)
        for (int i = 0; i < 9; i++) {
            struct subject s = {set, threads, shapes[i % 3].batch, shapes[i % 3].prefill, i / 3};
            struct figure f;
            ds_cli_progress(o, set, i + 9 * (threads - 1), 9 * n_threads);
            if (measure(m, &s, 4.0, &f, err) != 0)
                return ds_prefix(err, "%s", set);
            add_row(rows, text, &s, &f);
        }
    return 0;
}

/* Few kernels read weights as a file has them. */
static const char *kernel_sets(const struct ds_options *o)
{
    if (ds_opt_given(o, "kernels"))
        return ds_opt_text(o, "kernels");
    return strcmp(ds_opt_text(o, "weights"), "file") == 0 ? "pinned" : "pinned,vendor";
}

/* Sets that could not read the weights are refused before anything is loaded. */
static int check_sets(const struct ds_options *o, int keep, struct ds_error *err)
{
    struct ds_factor_values v;
    struct ds_kernel_set set;
    if (ds_factor_parse(DS_FACTOR_KERNELS, kernel_sets(o), &v, err) != 0)
        return -1;
    int rc = 0;
    for (size_t k = 0; k < v.n && rc == 0; k++)
        rc = ds_kernel_set_parse(v.value[k], &set, err) ||
             ds_model_check_kernel(keep, set.op[DS_OP_MATMUL], err);
    ds_factor_free(&v);
    return -rc;
}

static int all_subjects(const struct ds_options *o, struct ds_model *m, json_t *rows,
                        struct ds_buf *text, struct ds_error *err)
{
    struct ds_factor_values v;
    if (ds_factor_parse(DS_FACTOR_KERNELS, kernel_sets(o), &v, err) != 0)
        return -1;
    int rc = 0, n_threads = sysconf(_SC_NPROCESSORS_ONLN) > 1 ? 2 : 1;
    for (size_t k = 0; k < v.n && rc == 0; k++)
        rc = measure_set(o, m, v.value[k], n_threads, rows, text, err);
    ds_factor_free(&v);
    return rc;
}

int ds_verb_bench(const struct ds_options *o)
{
    struct ds_error err;
    struct ds_model *m = NULL;
    struct ds_buf text = {0};
    json_t *top = json_object(), *rows = json_array();
    double start = ds_seconds(CLOCK_MONOTONIC);
    int keep = strcmp(ds_opt_text(o, "weights"), "file") == 0 ? DS_WEIGHTS_FILE : DS_WEIGHTS_F32;
    int rc = check_sets(o, keep, &err);
    if (rc == 0)
        rc = ds_model_open_as(ds_opt_text(o, "model"), keep, (int)sysconf(_SC_NPROCESSORS_ONLN), &m,
                              &err);
    double load = ds_seconds(CLOCK_MONOTONIC) - start;
    if (rc == 0)
        rc = all_subjects(o, m, rows, &text, &err);
    ds_cli_progress(o, "", -1, 0);
    if (rc == 0) {
        json_object_set_new(top, "schema", json_string("driftscope.bench-pass/1"));
        json_object_set_new(top, "model", json_string(m->name));
        json_object_set(top, "rows", rows);
        add_model(top, &text, m, load);
        if (ds_opt_flag(o, "json")) {
            char *dump = json_dumps(top, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
            ds_buf_free(&text);
            ds_buf_printf(&text, "%s\n", dump ? dump : "");
            free(dump);
        }
        rc = text.failed ? ds_fail(&err, "out of memory") : ds_cli_emit(o, &text, &err);
    }
    json_decref(rows);
    json_decref(top);
    ds_buf_free(&text);
    if (m)
        ds_model_close(m);
    return rc == 0 ? DS_EXIT_SAME : ds_cli_error(o, &err);
}
