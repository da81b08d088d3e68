/* bench.h: inside cli/ only: what `bench` measures and how it is shown. */
#ifndef DS_CLI_BENCH_H
#define DS_CLI_BENCH_H

#include "cli/cli.h"
#include "engine/model.h"
#include "kernels/device.h"
#include "kernels/lab/timing.h"

/* One kernel variant, or one set over a whole pass, at one shape, row count and thread count. */
struct ds_bench_row {
    char op[16];      /* "matmul"; "pass" for a whole forward pass */
    char variant[64]; /* "pinned"; for a pass the kernel set */
    char shape[64];   /* "n=576,k=576"; "prefill 128", "decode" */
    char where[64];   /* stages that have the shape, or the model */
    int rows, threads;
    struct ds_timing time;   /* rounds 0: left out, a call took too long */
    double noise;            /* of its group: see timing.h */
    struct ds_placed placed; /* where the threads ran */
    double work;      /* of one call, in units of 1e9 of `unit` per second, tokens for a pass */
    const char *unit; /* "GF/s", "GB/s", "tok/s" */
    double prepare;   /* seconds to pack the weights ahead; 0: none */
    int is_vendor;    /* what the ratio refers to */
    int on_device;    /* timed by its events (a pass: by the wall), in one of its conditions */
    int flushed, graph;
    int stored; /* enum ds_element: of its activations */
    struct ds_launch_info launch;
    int32_t clock_khz, memory_clock_khz; /* of the device then; 0: unknown */
    char wrong[64];   /* "", or what is wrong with its results: the figures say nothing */
};

/* How a device is timed: --l2 and --graph, every pair. */
struct ds_bench_condition {
    int flushed, graph;
};
enum { DS_BENCH_CONDITIONS = 4 };
/* The CPU has one. -1: asked of the CPU. */
int ds_bench_conditions(const struct ds_options *o,
                        struct ds_bench_condition c[DS_BENCH_CONDITIONS], size_t *n,
                        struct ds_error *err);

/* --dtype: how activations lie in memory (enum ds_element). The CPU has one. -1: asked of the CPU. */
enum { DS_BENCH_FORMATS = 3 };
int ds_bench_formats(const struct ds_options *o, int format[DS_BENCH_FORMATS], size_t *n,
                     struct ds_error *err);

/* What the probes cost in one shape of a pass: shares of the pass's CPU time. */
struct ds_bench_probe {
    char set[64], shape[32];
    const char *sites;
    int threads, rounds;
    struct ds_spread rate, account, paired;
    struct ds_placed placed;
};

struct ds_bench_result {
    struct ds_bench_row *rows;
    size_t n_rows;
    struct ds_bench_probe *probes;
    size_t n_probes;
    size_t too_big;  /* settings left out because one call is too much work */
    size_t too_long; /* ... because they would have taken longer than a setting may */
    char model[256];
    struct ds_device_info device; /* name "": the CPU */
    const char *device_name;
    double load, peak_bytes, weight_bytes; /* 0: no model was loaded */
};

/* Above this share of noise a ratio says nothing. */
static const double DS_BENCH_NOISY = 0.1;

/* Adds a row; NULL and err when out of memory. */
struct ds_bench_row *ds_bench_add(struct ds_bench_result *r, struct ds_error *err);

/* bench_kernels.c: -1 for an operand that is no op, variant, "pass" or "probes". */
int ds_bench_check_operands(const struct ds_options *o, struct ds_error *err);
/* Every variant of the ops that the user named, side by side. */
int ds_bench_kernels(const struct ds_options *o, struct ds_bench_result *r, struct ds_error *err);
/* bench_digest.c: a device's digest kernel beside a copy. */
int ds_bench_digests(const struct ds_options *o, struct ds_bench_result *r, struct ds_error *err);
/* The sets that --kernels names; else those that can read the weights as --weights keeps them. */
const char *ds_bench_sets(const struct ds_options *o);
/* bench_pass.c: whole passes of kernel sets on model m beside set vendor on model f32, which is the
 * same one unless --weights file keeps m's in file format; then what the probes cost. */
int ds_bench_passes(const struct ds_options *o, struct ds_model *m, struct ds_model *f32,
                    struct ds_bench_result *r, struct ds_error *err);
int ds_bench_probes(const struct ds_options *o, struct ds_model *m, struct ds_bench_result *r,
                    struct ds_error *err);

/* Thread counts asked for: --threads, default 1 and all CPUs. *out: malloc'ed. */
int ds_bench_threads(const struct ds_options *o, int **out, size_t *n, struct ds_error *err);

/* --cpus: whether the system places the threads that are timed. */
int ds_bench_anywhere(const struct ds_options *o);
/* --seconds, or `otherwise`. */
double ds_bench_seconds(const struct ds_options *o, double otherwise);

/* render_bench.c. The text ends with what the figures allow to say. */
void ds_bench_text(struct ds_buf *b, const struct ds_options *o, const struct ds_bench_result *r);
int ds_bench_json(struct ds_buf *b, const struct ds_bench_result *r, struct ds_error *err);

#endif
