/* bench_pass.c: whole passes side by side, and passes with and without probes. Owns which shapes
 * are measured; must not know how figures are shown. */
#include "cli/bench.h"
#include "cli/lab_kernels.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/pass_bench.h"
#include "engine/sweep.h"
#include "kernels/device_open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct shape {
    int32_t prefill, batch;
} pass_shapes[] = {{128, 1}, {512, 1}, {0, 1}, {0, 8}, {0, 32}},
  probe_shapes[] = {{128, 1}, {0, 1}, {0, 8}};
enum {
    N_PASS_SHAPES = sizeof pass_shapes / sizeof pass_shapes[0],
    N_PROBE_SHAPES = sizeof probe_shapes / sizeof probe_shapes[0]
};

static void name_shape(char *out, size_t size, const struct shape *s)
{
    if (s->prefill)
        snprintf(out, size, "prefill %d", (int)s->prefill);
    else
        snprintf(out, size, "decode, batch %d", (int)s->batch);
}

static int pass_config(const struct ds_options *o, const char *set, int threads,
                       const struct shape *s, int sites, struct ds_pass_config *c,
                       struct ds_error *err)
{
    int kind, number = 0;
    if (ds_device_parse_name(ds_opt_text(o, "device"), &kind, &number, err) != 0)
        return -1;
    *c = (struct ds_pass_config){.device_number = number,
                                 .threads = threads,
                                 .prefill = s->prefill,
                                 .batch = s->batch,
                                 .sites = sites};
    return ds_kernel_set_parse_on(ds_lab_device(o), set, &c->kernels, err) != 0 ||
                   ds_kernel_set_available(&c->kernels, err) != 0
               ? -1
               : 0;
}

static int fits(const struct ds_model *m, const struct shape *s)
{
    return s->prefill <= m->hp.context;
}

static int sets_of(const struct ds_options *o, struct ds_factor_values *v, struct ds_error *err)
{
    return ds_factor_parse(DS_FACTOR_KERNELS, ds_bench_sets(o), v, err);
}

static const double PASS_SECONDS = 3.0, PROBE_SECONDS = 4.0;

/* ---- sets against the vendor's --------------------------------------------------------------- */

static int run_unprobed(void *arg, struct ds_error *err)
{
    return ds_pass_bench_run(arg, 0, err);
}

static int bind_team(void *arg, const int *cpus, int n)
{
    return ds_pass_bench_bind(arg, cpus, n);
}

static int add_pass(struct ds_bench_result *r, const struct ds_model *m, const char *set,
                    const struct shape *s, int threads, const struct ds_timing *t, double noise,
                    const struct ds_placed *placed, double tokens, struct ds_error *err)
{
    struct ds_bench_row *row = ds_bench_add(r, err);
    if (!row)
        return -1;
    snprintf(row->op, sizeof row->op, "pass");
    snprintf(row->variant, sizeof row->variant, "%s", set);
    name_shape(row->shape, sizeof row->shape, s);
    snprintf(row->where, sizeof row->where, "%.63s", m->name);
    row->rows = s->prefill ? s->prefill : s->batch;
    row->threads = threads;
    row->time = *t;
    row->noise = noise;
    row->placed = *placed;
    row->work = tokens;
    row->unit = "tok/s";
    row->is_vendor = strcmp(set, "vendor") == 0;
    return 0;
}

/* One set beside the vendor's, in the same rounds. The vendor's own row is kept from its race
 * against itself. */
static int one_race(const struct ds_options *o, struct ds_model *m, struct ds_model *f32,
                    const char *set, const struct shape *s, int threads, int graph,
                    struct ds_bench_result *r, struct ds_error *err)
{
    const int here = ds_lab_device(o) == DS_DEVICE_CPU;
    const struct ds_timing_plan plan = {.clock = here && threads == 1 ? CLOCK_PROCESS_CPUTIME_ID
                                                                      : CLOCK_MONOTONIC,
                                        .seconds = ds_bench_seconds(o, PASS_SECONDS),
                                        .min_rounds = 5,
                                        .sample = 0.02,
                                        .longest_call = 30,
                                        .threads = ds_bench_anywhere(o) ? 0 : threads};
    struct ds_pass_config c;
    struct ds_pass_bench *bench[2] = {NULL, NULL};
    struct ds_contender both[2];
    struct ds_timing t[2];
    struct ds_placed placed;
    double noise = 0;
    const size_t n = strcmp(set, "vendor") == 0 ? 1 : 2;
    const char *names[2] = {"vendor", set};
    struct ds_model *models[2] = {f32, m};
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = pass_config(o, names[i], threads, s, DS_PASS_ALL, &c, err);
        c.graph = graph;
        rc = rc != 0 || ds_pass_bench_new(models[i], &c, &bench[i], err) != 0 ? -1 : 0;
        both[i] = (struct ds_contender){.run = run_unprobed, .arg = bench[i], .bind = bind_team};
    }
    if (rc == 0)
        rc = ds_time_side_by_side(both, n, &plan, t, &noise, &placed, err);
    if (rc == 0)
        rc = add_pass(r, m, set, s, threads, &t[n - 1], noise, &placed,
                      ds_pass_bench_tokens(bench[0]), err);
    if (rc == 0) {
        r->rows[r->n_rows - 1].on_device = !here;
        r->rows[r->n_rows - 1].graph = graph;
    }
    ds_pass_bench_free(bench[0]);
    ds_pass_bench_free(bench[1]);
    return rc;
}

int ds_bench_passes(const struct ds_options *o, struct ds_model *m, struct ds_model *f32,
                    struct ds_bench_result *r, struct ds_error *err)
{
    struct ds_factor_values v;
    int *threads = NULL;
    size_t n_threads;
    if (sets_of(o, &v, err) != 0)
        return -1;
    int rc = ds_bench_threads(o, &threads, &n_threads, err);
    const char *graphs = ds_opt_text(o, "graph");
    const size_t n_graphs = strchr(graphs, ',') ? 2 : 1; /* "off", "on" or both: checked before */
    size_t done = 0, total = v.n * n_graphs * N_PASS_SHAPES * n_threads;
    for (size_t t = 0; t < n_threads && rc == 0; t++)
        for (size_t i = 0; i < N_PASS_SHAPES && rc == 0; i++)
            for (size_t k = 0; k < v.n * n_graphs && rc == 0; k++) {
                const char *set = v.value[k / n_graphs];
                const int graph = n_graphs == 2 ? (int)(k % 2) : strcmp(graphs, "on") == 0;
                ds_cli_progress(o, set, (double)done++, (double)total);
                if (fits(m, &pass_shapes[i]))
                    rc = one_race(o, m, f32, set, &pass_shapes[i], threads[t], graph, r, err);
                else
                    r->too_big++;
                if (rc != 0)
                    ds_prefix(err, "pass, %s", set);
            }
    free(threads);
    ds_factor_free(&v);
    return rc;
}

/* ---- probes ---------------------------------------------------------------------------------- */

enum { MAX_ROUNDS = 400, MIN_ROUNDS = 8 };

struct cost {
    double cpu, wall, probe;
};

static int one_pass(struct ds_pass_bench *b, int probed, struct cost *out, struct ds_error *err)
{
    double probe = ds_pass_bench_probe_seconds(b), cpu = ds_seconds(CLOCK_PROCESS_CPUTIME_ID),
           wall = ds_seconds(CLOCK_MONOTONIC);
    if (ds_pass_bench_run(b, probed, err) != 0)
        return -1;
    out->cpu = ds_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    out->wall = ds_seconds(CLOCK_MONOTONIC) - wall;
    out->probe = ds_pass_bench_probe_seconds(b) - probe;
    return 0;
}

/* Passes with and without probes alternate, the order changing from round to round, so that a trend
 * of the machine favours neither side. `here`: the kernels run on these CPUs, and their time is what a probe costs; a device's
 * work is not in it, so there it is the time until the pass is done. */
static int measure(struct ds_pass_bench *b, double seconds, int here,
                   struct ds_placement *placement, struct ds_bench_probe *out, struct ds_error *err)
{
    static double rate[MAX_ROUNDS], account[MAX_ROUNDS], paired[MAX_ROUNDS];
    struct cost off, on;
    int n = 0, rc = one_pass(b, 1, &on, err); /* warm-up */
    const double start = ds_seconds(CLOCK_MONOTONIC), tokens = ds_pass_bench_tokens(b);
    ds_placement_sweep(placement);
    for (; rc == 0 && n < MAX_ROUNDS &&
           (n < MIN_ROUNDS || ds_seconds(CLOCK_MONOTONIC) - start < seconds);
         n++) {
        if (n % 2 == 0)
            rc = one_pass(b, 0, &off, err) != 0 || one_pass(b, 1, &on, err) != 0 ? -1 : 0;
        else
            rc = one_pass(b, 1, &on, err) != 0 || one_pass(b, 0, &off, err) != 0 ? -1 : 0;
        if (rc != 0)
            return -1;
        rate[n] = tokens / off.wall;
        account[n] = on.probe / on.cpu;
        paired[n] = (here ? on.cpu / off.cpu : on.wall / off.wall) - 1;
    }
    if (rc != 0)
        return -1;
    out->rounds = n;
    out->rate = ds_spread_of(rate, n);
    out->account = ds_spread_of(account, n);
    out->paired = ds_spread_of(paired, n);
    return 0;
}

/* The same with the threads where --cpus wants them. */
static int measure_placed(const struct ds_options *o, struct ds_pass_bench *b, int threads,
                          struct ds_bench_probe *out, struct ds_error *err)
{
    struct ds_placement *placement = NULL;
    int n;
    if (ds_bench_anywhere(o))
        out->placed = (struct ds_placed){.why = "left to the system"};
    else
        placement = ds_placement_take(threads, &out->placed);
    const int *cpus = ds_placement_cpus(placement, &n);
    const int bound = n ? ds_pass_bench_bind(b, cpus, n) : 0;
    out->placed.own += bound;
    out->placed.others -= bound;
    int rc = measure(b, ds_bench_seconds(o, PROBE_SECONDS), ds_lab_device(o) == DS_DEVICE_CPU,
                     placement, out, err);
    ds_placement_give_back(placement);
    return rc;
}

static int probe_cost(const struct ds_options *o, struct ds_model *m, const char *set,
                      const struct shape *s, int threads, int sites, struct ds_bench_result *r,
                      struct ds_error *err)
{
    static const char *const site_names[] = {"all sites", "all, NaN watch", "resid_ffn"};
    struct ds_pass_config c;
    struct ds_pass_bench *b = NULL;
    if (ds_grow_by_one(&r->probes, r->n_probes, sizeof *r->probes, "probe figures", err) != 0)
        return -1;
    struct ds_bench_probe *p = &r->probes[r->n_probes];
    memset(p, 0, sizeof *p);
    int rc = pass_config(o, set, threads, s, sites, &c, err) != 0 ||
                     ds_pass_bench_new(m, &c, &b, err) != 0 ||
                     measure_placed(o, b, threads, p, err) != 0
                 ? -1
                 : 0;
    ds_pass_bench_free(b);
    if (rc != 0)
        return ds_prefix(err, "probes, %s", set);
    snprintf(p->set, sizeof p->set, "%s", set);
    name_shape(p->shape, sizeof p->shape, s);
    p->sites = site_names[sites];
    p->threads = threads;
    r->n_probes++;
    return 0;
}

int ds_bench_probes(const struct ds_options *o, struct ds_model *m, struct ds_bench_result *r,
                    struct ds_error *err)
{
    struct ds_factor_values v;
    int *threads = NULL;
    size_t n_threads;
    if (sets_of(o, &v, err) != 0)
        return -1;
    int rc = ds_bench_threads(o, &threads, &n_threads, err);
    size_t done = 0, total = v.n * n_threads * N_PROBE_SHAPES * 3;
    for (size_t k = 0; k < v.n && rc == 0; k++)
        for (size_t t = 0; t < n_threads && rc == 0; t++)
            for (int i = 0; i < 3 * N_PROBE_SHAPES && rc == 0; i++) {
                const struct shape *s = &probe_shapes[i % N_PROBE_SHAPES];
                ds_cli_progress(o, "probes", (double)done++, (double)total);
                if (fits(m, s))
                    rc = probe_cost(o, m, v.value[k], s, threads[t], i / N_PROBE_SHAPES, r, err);
                else
                    r->too_big++;
            }
    free(threads);
    ds_factor_free(&v);
    return rc;
}
