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
};

struct ds_bench_figures {
    struct ds_timing time[DS_TIMING_MAX_CONTENDERS];
    double prepare[DS_TIMING_MAX_CONTENDERS]; /* seconds to pack the weights; 0: no prepare */
    double noise;
    double work; /* of one call, in 1e9 units: FLOP where the op multiplies matrices, else bytes */
    const char *unit; /* "GF/s" or "GB/s" */
};

/* Times kernels[0..n-1], all of shape->op, on equal inputs; ratios refer to kernels[0]. Weights and
 * inputs are the same in every call, so they are as warm as their size allows. */
int ds_lab_bench(const struct ds_kernel *const *kernels, size_t n, const struct ds_shape *shape,
                 const struct ds_bench_setting *setting, double seconds,
                 struct ds_bench_figures *out, struct ds_error *err);

/* Multiply-adds of one call, for deciding what is too much. */
double ds_lab_bench_work(const struct ds_shape *shape, const struct ds_bench_setting *setting);

#endif
