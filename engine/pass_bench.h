/* pass_bench.h: one shape of the forward pass, made ready to be run over and over and timed: what
 * `bench` measures of a whole model. Holds no clock but the probes' own account; prints nothing. */
#ifndef DS_PASS_BENCH_H
#define DS_PASS_BENCH_H

#include "base/error.h"
#include "engine/model.h"
#include "kernels/registry.h"

/* Which sites are digested in a probed pass, and whether rows are searched for NaN and Inf too. */
enum ds_pass_sites { DS_PASS_ALL, DS_PASS_ALL_WATCHED, DS_PASS_RESIDUALS };

struct ds_pass_config {
    struct ds_kernel_set kernels;
    int device_number; /* of the device of `kernels`: N of cuda:N */
    int graph;         /* calls are captured and launched as graphs */
    int threads;
    int32_t prefill; /* tokens of one prompt in one call; 0: decode */
    int32_t batch;   /* decode: requests, one token each */
    int sites;       /* enum ds_pass_sites */
};

enum { DS_PASS_DECODE_STEPS = 4 }; /* of one decode pass, from an empty cache */

struct ds_pass_bench;

/* Opens the BLAS library when the set needs it and packs the model's weights: a later bench of a set
 * with another packing makes this one useless. On success the caller frees *out. */
int ds_pass_bench_new(struct ds_model *m, const struct ds_pass_config *c,
                      struct ds_pass_bench **out, struct ds_error *err);
void ds_pass_bench_free(struct ds_pass_bench *b);

/* A prompt of `prefill` tokens, or DS_PASS_DECODE_STEPS decode steps, from an empty cache; with the
 * probe if `probed`. */
int ds_pass_bench_run(struct ds_pass_bench *b, int probed, struct ds_error *err);
/* Each thread of its team, the caller left out, to a CPU of its own: see ds_team_bind. */
int ds_pass_bench_bind(struct ds_pass_bench *b, const int *cpus, int n);
/* Tokens that one run computes. */
double ds_pass_bench_tokens(const struct ds_pass_bench *b);
/* CPU seconds that the probe has spent since the bench was made, by its own account. */
double ds_pass_bench_probe_seconds(const struct ds_pass_bench *b);

#endif
