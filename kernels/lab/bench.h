/* bench.h: how fast the variants of one op are beside each other. Knows no model; says nothing of
 * what the figures mean. */
#ifndef DS_LAB_BENCH_H
#define DS_LAB_BENCH_H

#include "kernels/lab/shape.h"
#include "kernels/lab/timing.h"

/* What is run: `rows` rows in one call. kv: attention and cache only: 0 = one sequence of `rows`
 * new slots (prefill); else `rows` sequences of one new row each that sees kv slots (decode). */
struct ds_bench_setting {
    int32_t rows, threads, kv;
    /* On a device only: its L2 cache is flushed before each call; a captured call. */
    int flushed, graph;
    int stored; /* enum ds_element: how activations lie in memory; what the bench was opened with */
};

struct ds_bench_figures {
    struct ds_timing time[DS_TIMING_MAX_CONTENDERS];
    double prepare[DS_TIMING_MAX_CONTENDERS]; /* seconds to pack the weights; 0: no prepare */
    struct ds_launch_info launch[DS_TIMING_MAX_CONTENDERS]; /* on a device; zero without one */
    /* "": its results in one more call are those of kernels[0], within roundings, or the call is too large
     * for a look; else what is wrong: its figures say nothing. */
    char wrong[DS_TIMING_MAX_CONTENDERS][64];
    double noise;
    struct ds_placed placed; /* where the threads ran */
    double work; /* of one call, in 1e9 units: FLOP where the op multiplies matrices, else bytes */
    const char *unit; /* "GF/s" or "GB/s" */
    /* Of the device when it was timed; 0: unknown, or the CPU. */
    int32_t clock_khz, memory_clock_khz;
};

/* What bounds the measurement of one setting. */
struct ds_bench_limits {
    double seconds; /* at least so long, for all variants together */
    double most;    /* at most about so long: variants whose calls take too long are left out; 0: no
                       bound but one second a call */
    int anywhere;   /* the system places the threads; 0: each has a CPU of its own */
};

/* Kernels[0..n-1], all of shape->op, with equal weights and inputs; what they are given is borrowed
 * for its life. stored: how activations lie in memory (enum ds_element), and the weights of a matmul whose kernel takes
 * those of files: 16 bits for who has DS_FEATURE_STORED only. Weights and inputs are the same in every call, so they are
 * as warm as their size allows. NULL and err on failure. */
struct ds_lab_bench;
struct ds_lab_bench *ds_lab_bench_open(const struct ds_kernel *const *kernels, size_t n,
                                       const struct ds_shape *shape, int stored,
                                       struct ds_error *err);
void ds_lab_bench_close(struct ds_lab_bench *b);

/* Times them; ratios refer to kernels[0]. 1: nothing was measured, as filling the arrays or kernels[0]
 * alone takes longer than limits->most. */
int ds_lab_bench(struct ds_lab_bench *b, const struct ds_bench_setting *setting,
                 const struct ds_bench_limits *limits, struct ds_bench_figures *out,
                 struct ds_error *err);

/* Multiply-adds of one call, for deciding what is too much. */
double ds_lab_bench_work(const struct ds_shape *shape, const struct ds_bench_setting *setting);

#endif
