/* render_bench.c: the figures of `bench` as text and as JSON. Owns how they are shown and what may
 * be said of them; measures nothing. */
#include "cli/bench.h"

#include "base/plural.h"

#include "cli/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int noisy(const struct ds_bench_row *row)
{
    return !(row->noise < DS_BENCH_NOISY);
}

/* "2 threads on CPUs 0, 1", "1 thread anywhere (left to the system)". */
static void where_text(struct ds_buf *b, int threads, const struct ds_placed *p)
{
    const char *before = " ";
    ds_buf_printf(b, "%d thread%s", threads, threads == 1 ? "" : "s");
    if (!p->n_cpus) {
        ds_buf_printf(b, " anywhere (%s)", p->why);
        return;
    }
    ds_buf_printf(b, " on CPU%s", p->n_cpus == 1 ? "" : "s");
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &p->cpus)) {
            ds_buf_printf(b, "%s%d", before, cpu);
            before = ", ";
        }
}

static const char *format_of(const struct ds_bench_row *row)
{
    return row->stored == DS_ELEMENT_BF16 ? "bf16" : row->stored == DS_ELEMENT_F16 ? "f16" : "f32";
}

/* "on cuda, L2 flushed, in a graph, bf16 rows and weights" */
static void device_text(struct ds_buf *b, const struct ds_bench_result *r,
                        const struct ds_bench_row *row)
{
    ds_buf_printf(b, "on %s", r->device_name);
    if (strcmp(row->op, "pass") != 0)
        ds_buf_printf(b, ", L2 %s", row->flushed ? "flushed" : "warm");
    if (row->graph)
        ds_buf_puts(b, ", in a graph");
    if (row->stored != DS_ELEMENT_F32)
        ds_buf_printf(b, ", %s rows and weights", format_of(row));
}

/* What a kernel chose for the call. */
static void launch_text(struct ds_buf *b, const struct ds_launch_info *l)
{
    if (l->tile_rows || l->tile_cols || l->tile_k)
        ds_buf_printf(b, "  tile %dx%dx%d", l->tile_rows, l->tile_cols, l->tile_k);
    if (l->split > 1)
        ds_buf_printf(b, "  split %d", l->split);
    if (l->algo[0]) {
        ds_buf_puts(b, "  ");
        ds_buf_escape(b, l->algo, strnlen(l->algo, sizeof l->algo));
    }
}

/* ---- text ------------------------------------------------------------------------------------ */

static int same_group(const struct ds_bench_row *a, const struct ds_bench_row *b)
{
    return strcmp(a->op, b->op) == 0 && strcmp(a->shape, b->shape) == 0 &&
           strcmp(a->where, b->where) == 0 && a->threads == b->threads &&
           a->flushed == b->flushed && a->graph == b->graph && a->stored == b->stored &&
           a->placed.n_cpus == b->placed.n_cpus && CPU_EQUAL(&a->placed.cpus, &b->placed.cpus);
}

static void text_row(struct ds_buf *b, const struct ds_bench_row *row)
{
    char name[80];
    snprintf(name, sizeof name, "%s/%s", row->op, row->variant);
    ds_buf_printf(b, "  %-24s %5d %-4s  ", name, row->rows, row->rows == 1 ? "row" : "rows");
    if (!row->time.rounds) {
        ds_buf_puts(b, "left out: one call takes too long\n");
        return;
    }
    if (row->wrong[0]) {
        ds_buf_printf(b, "wrong: %s\n", row->wrong);
        return;
    }
    ds_buf_printf(b, "%9.2f %s (%.2f..%.2f)", row->work / row->time.median, row->unit,
                  row->work / row->time.max, row->work / row->time.min);
    if (!row->is_vendor)
        ds_buf_printf(b, "  %5.2fx%s (%.2f..%.2f)", row->time.ratio, noisy(row) ? "~" : "",
                      row->time.ratio_low, row->time.ratio_high);
    else
        ds_buf_printf(b, "  noise %.1f %%", 100 * row->noise);
    if (row->time.waits)
        ds_buf_puts(b, "  waits: wall time");
    if (row->on_device)
        launch_text(b, &row->launch);
    if (row->prepare > 0)
        ds_buf_printf(b, "  packed ahead in %.2f ms", 1e3 * row->prepare);
    ds_buf_puts(b, "\n");
}

static void text_rows(struct ds_buf *b, const struct ds_options *o, const struct ds_bench_result *r)
{
    for (size_t i = 0; i < r->n_rows; i++) {
        const struct ds_bench_row *row = &r->rows[i];
        if (i == 0 || !same_group(row, &r->rows[i - 1])) {
            ds_buf_printf(b, "%s%s%s %s, %s, ", i ? "\n" : "", ds_cli_color(o, DS_ROLE_HEAD),
                          row->op, row->shape, row->where);
            if (row->on_device)
                device_text(b, r, row);
            else
                where_text(b, row->threads, &row->placed);
            ds_buf_printf(b, "%s\n", ds_cli_color(o, DS_ROLE_PLAIN));
        }
        text_row(b, row);
    }
}

static void text_probes(struct ds_buf *b, const struct ds_bench_result *r)
{
    if (r->n_probes)
        ds_buf_puts(b,
                    "\nprobes: their own account of their CPU time as a share of the pass's, and "
                    "the paired difference of passes with and without (median, quartiles)\n");
    for (size_t i = 0; i < r->n_probes; i++) {
        const struct ds_bench_probe *p = &r->probes[i];
        ds_buf_printf(b, "  %-9s %-16s ", p->set, p->shape);
        where_text(b, p->threads, &p->placed);
        ds_buf_printf(b,
                      "  %-14s %8.1f tok/s  probes %6.3f %% (%.3f..%.3f)  paired %+6.2f %% "
                      "(%+.2f..%+.2f)\n",
                      p->sites, p->rate.median, 100 * p->account.median, 100 * p->account.low,
                      100 * p->account.high, 100 * p->paired.median, 100 * p->paired.low,
                      100 * p->paired.high);
    }
}

/* What a variant comes to over all its settings, noisy ones left out of every figure. */
struct summary {
    size_t judged, as_fast, noisy, left_out, wrong;
    double log_sum;
    const struct ds_bench_row *worst;
};

static int same_variant(const struct ds_bench_row *a, const struct ds_bench_row *b)
{
    return strcmp(a->op, b->op) == 0 && strcmp(a->variant, b->variant) == 0;
}

static struct summary sum_up(const struct ds_bench_result *r, size_t first)
{
    struct summary s = {0};
    for (size_t i = first; i < r->n_rows; i++) {
        const struct ds_bench_row *row = &r->rows[i];
        if (!same_variant(row, &r->rows[first]))
            continue;
        if (!row->time.rounds)
            s.left_out++;
        else if (row->wrong[0])
            s.wrong++;
        else if (noisy(row))
            s.noisy++;
        else {
            s.judged++;
            s.as_fast += row->time.ratio >= 1;
            s.log_sum += log(row->time.ratio);
            if (!s.worst || row->time.ratio < s.worst->time.ratio)
                s.worst = row;
        }
    }
    return s;
}

static int seen_before(const struct ds_bench_result *r, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (same_variant(&r->rows[j], &r->rows[i]))
            return 1;
    return 0;
}

static void text_summary(struct ds_buf *b, const struct ds_bench_result *r)
{
    if (r->n_rows)
        ds_buf_puts(b, "\n");
    for (size_t i = 0; i < r->n_rows; i++) {
        const struct ds_bench_row *row = &r->rows[i];
        if (row->is_vendor || seen_before(r, i))
            continue;
        struct summary s = sum_up(r, i);
        ds_buf_printf(b, "%s/%s: ", row->op, row->variant);
        if (s.judged)
            ds_buf_printf(b,
                          "at least the vendor's speed in %zu of %zu setting%s, geometric mean "
                          "%.2fx, slowest %.2fx (%s, %d row%s, %d thread%s)",
                          s.as_fast, s.judged, ds_plural(s.judged),
                          exp(s.log_sum / (double)s.judged), s.worst->time.ratio, s.worst->shape,
                          s.worst->rows, ds_plural(s.worst->rows), s.worst->threads,
                          ds_plural(s.worst->threads));
        else
            ds_buf_puts(b, "not judged");
        if (s.noisy)
            ds_buf_printf(b, "; %zu too noisy to judge (~)", s.noisy);
        if (s.left_out)
            ds_buf_printf(b, "; %zu left out", s.left_out);
        if (s.wrong)
            ds_buf_printf(b, "; its results are wrong in %zu", s.wrong);
        ds_buf_puts(b, "\n");
    }
    if (r->too_big)
        ds_buf_printf(b,
                      "%zu setting%s not run: too much work for one call, or longer than the "
                      "model's context; --rows asks for more\n",
                      r->too_big, ds_plural(r->too_big));
    if (r->too_long)
        ds_buf_printf(b,
                      "%zu setting%s not run: one would have taken longer than all variants of a "
                      "setting may; --rows asks for more\n",
                      r->too_long, ds_plural(r->too_long));
}

/* Counts over all figures: threads are confined for as long as one setting is timed. */
static void text_placement(struct ds_buf *b, const struct ds_bench_result *r)
{
    size_t pinned = 0, anywhere = 0;
    int others = 0;
    for (size_t i = 0; i < r->n_rows + r->n_probes; i++) {
        const struct ds_placed *p =
            i < r->n_rows ? &r->rows[i].placed : &r->probes[i - r->n_rows].placed;
        pinned += p->n_cpus > 0;
        anywhere += p->n_cpus == 0;
        others = p->others > others ? p->others : others;
    }
    if (pinned)
        ds_buf_printf(b, "pinned while timed: every thread of a team to a CPU of its own");
    if (pinned && others)
        ds_buf_printf(b, ", other threads of the process (up to %d) to the same CPUs but the first",
                      others);
    if (pinned && anywhere)
        ds_buf_printf(b, "; not in %zu of %zu figures (\"anywhere\")", anywhere, pinned + anywhere);
    if (pinned)
        ds_buf_puts(b, "\n\n");
}

/* What was timed on. Clocks move: the lowest and the highest that were seen. */
static void text_device(struct ds_buf *b, const struct ds_bench_result *r)
{
    const struct ds_device_info *d = &r->device;
    int low = 0, high = 0;
    if (!d->name[0])
        return;
    ds_buf_puts(b, "device ");
    ds_buf_escape(b, d->name, (size_t)-1);
    ds_buf_printf(b, "%s%s, %d multiprocessors, L2 %.1f MiB", d->arch[0] ? ", " : "", d->arch,
                  d->multiprocessors, (double)d->l2_bytes / 0x1p20);
    if (d->driver[0])
        ds_buf_printf(b, ", driver CUDA %s, runtime %s", d->driver, d->runtime);
    if (d->library[0])
        ds_buf_printf(b, ", %s", d->library);
    for (size_t i = 0; i < r->n_rows; i++) {
        const int mhz = r->rows[i].clock_khz / 1000;
        low = mhz && (!low || mhz < low) ? mhz : low;
        high = mhz > high ? mhz : high;
    }
    if (high)
        ds_buf_printf(b, "; clock %d to %d MHz, memory %d MHz", low, high,
                      r->rows[0].memory_clock_khz / 1000);
    ds_buf_puts(b, "\nkernels by the device's events, passes by the wall\n\n");
}

void ds_bench_text(struct ds_buf *b, const struct ds_options *o, const struct ds_bench_result *r)
{
    if (r->n_rows)
        ds_buf_puts(b, "medians (min..max); a ratio is taken within each round to the vendor's "
                       "variant, above 1x is faster (quartiles)\n\n");
    text_device(b, r);
    text_placement(b, r);
    text_rows(b, o, r);
    text_probes(b, r);
    if (r->weight_bytes > 0)
        ds_buf_printf(b,
                      "\nload %.2f s, peak memory %.2f GB for %.2f GB of f32 weights (%.2f copies, "
                      "the file's pages and this bench's own buffers included)\n",
                      r->load, r->peak_bytes / 1e9, r->weight_bytes / 1e9,
                      r->peak_bytes / r->weight_bytes);
    text_summary(b, r);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *spread_json(struct ds_spread s)
{
    return json_pack("{s:f,s:f,s:f}", "median", s.median, "low", s.low, "high", s.high);
}

/* {"cpus":[0,1],"own":2,"others":1}, or null where nothing was pinned. */
static json_t *placed_json(const struct ds_placed *p)
{
    json_t *cpus = json_array();
    for (int cpu = 0; p->n_cpus && cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &p->cpus))
            json_array_append_new(cpus, json_integer(cpu));
    if (p->n_cpus)
        return json_pack("{s:o,s:i,s:i}", "cpus", cpus, "own", p->own, "others", p->others);
    json_decref(cpus);
    return json_null();
}

static json_t *row_json(const struct ds_bench_row *row)
{
    const struct ds_timing *t = &row->time;
    json_t *j = json_pack("{s:s,s:s,s:s,s:s,s:i,s:i,s:i,s:b,s:f,s:b,s:s}", "op", row->op, "variant",
                          row->variant, "shape", row->shape, "where", row->where, "rows", row->rows,
                          "threads", row->threads, "rounds", t->rounds, "vendor", row->is_vendor,
                          "noise", row->noise, "noisy", noisy(row), "unit", row->unit);
    if (j)
        json_object_set_new(j, "pinned", placed_json(&row->placed));
    if (j && row->on_device) {
        json_object_set_new(j, "l2", json_string(row->flushed ? "flushed" : "warm"));
        json_object_set_new(j, "graph", json_boolean(row->graph));
        json_object_set_new(j, "dtype", json_string(format_of(row)));
        json_object_set_new(j, "launch",
                            json_pack("{s:i,s:i,s:i,s:i,s:s%}", "tile_rows", row->launch.tile_rows,
                                      "tile_cols", row->launch.tile_cols, "tile_k",
                                      row->launch.tile_k, "split", row->launch.split, "algorithm",
                                      row->launch.algo,
                                      strnlen(row->launch.algo, sizeof row->launch.algo)));
        json_object_set_new(j, "clock_mhz", json_integer(row->clock_khz / 1000));
        json_object_set_new(j, "memory_clock_mhz", json_integer(row->memory_clock_khz / 1000));
    }
    if (j)
        json_object_set_new(j, "wrong", row->wrong[0] ? json_string(row->wrong) : json_null());
    if (!j || !t->rounds) /* left out: no figures rather than zeros */
        return j;
    const int by_events = row->on_device && strcmp(row->op, "pass") != 0;
    json_object_set_new(j, "clock",
                        json_string(by_events                                        ? "device"
                                    : row->threads > 1 || t->waits || row->on_device ? "wall"
                                                                                     : "cpu"));
    json_object_set_new(j, "median", json_real(t->median));
    json_object_set_new(j, "min", json_real(t->min));
    json_object_set_new(j, "max", json_real(t->max));
    json_object_set_new(j, "ratio_to_vendor", json_real(t->ratio));
    json_object_set_new(j, "ratio_low", json_real(t->ratio_low));
    json_object_set_new(j, "ratio_high", json_real(t->ratio_high));
    json_object_set_new(j, "rate", json_real(row->work / t->median));
    json_object_set_new(j, "prepare_s", json_real(row->prepare));
    return j;
}

static json_t *probe_json(const struct ds_bench_probe *p)
{
    return json_pack("{s:s,s:s,s:i,s:s,s:i,s:o,s:o,s:o,s:o}", "set", p->set, "shape", p->shape,
                     "threads", p->threads, "sites", p->sites, "rounds", p->rounds, "tokens_per_s",
                     spread_json(p->rate), "probe_share", spread_json(p->account), "probe_paired",
                     spread_json(p->paired), "pinned", placed_json(&p->placed));
}

int ds_bench_json(struct ds_buf *b, const struct ds_bench_result *r, struct ds_error *err)
{
    ds_json_begin();
    json_t *rows = json_array(), *probes = json_array();
    for (size_t i = 0; i < r->n_rows; i++)
        json_array_append_new(rows, row_json(&r->rows[i]));
    for (size_t i = 0; i < r->n_probes; i++)
        json_array_append_new(probes, probe_json(&r->probes[i]));
    json_t *top = json_pack("{s:s,s:s,s:o,s:o,s:I}", "schema", "driftscope.bench/1", "model",
                            r->model, "rows", rows, "probes", probes, "not_run",
                            (json_int_t)(r->too_big + r->too_long));
    const struct ds_device_info *d = &r->device;
    if (top && d->name[0])
        json_object_set_new(
            top, "device",
            json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:i,s:I,s:I}", "device", r->device_name, "name",
                      d->name, "architecture", d->arch, "driver", d->driver, "runtime", d->runtime,
                      "library", d->library, "multiprocessors", d->multiprocessors, "l2_bytes",
                      (json_int_t)d->l2_bytes, "memory_bytes", (json_int_t)d->memory_bytes));
    if (top && r->weight_bytes > 0) {
        json_object_set_new(top, "load_s", json_real(r->load));
        json_object_set_new(top, "peak_bytes", json_real(r->peak_bytes));
        json_object_set_new(top, "weight_bytes", json_real(r->weight_bytes));
    }
    return ds_json_print(top, b, err);
}
