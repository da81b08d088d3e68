/* bench.c: variants of one op timed side by side on the subjects of the lab. Must not know which
 * settings are worth timing. */
#include "kernels/lab/bench.h"

#include "base/mem.h"
#include "kernels/lab/subject.h"

#include <stdlib.h>
#include <string.h>

double ds_lab_bench_work(const struct ds_shape *s, const struct ds_bench_setting *b)
{
    const double rows = b->rows;
    switch (s->op) {
    case DS_OP_MATMUL:
        return rows * (double)s->n * (double)s->k;
    case DS_OP_ATTENTION: /* scores and values; prefill sees half the square */
        return 2 * rows * (double)s->heads * (double)s->head_dim *
               (b->kv ? (double)b->kv : rows / 2);
    case DS_OP_ROPE:
        return rows * (double)s->heads * (double)s->head_dim;
    case DS_OP_SAMPLE:
    case DS_OP_PROCESS:
        return rows * (double)s->vocab;
    case DS_OP_ROUTER:
        return rows * (double)s->experts;
    case DS_OP_COMBINE:
        return rows * (double)s->width * (double)s->top_k;
    case DS_OP_ALLREDUCE:
        return rows * (double)s->width * (double)s->ranks;
    default:
        return rows * (double)s->width;
    }
}

static int multiplies_matrices(int op)
{
    return op == DS_OP_MATMUL || op == DS_OP_ATTENTION;
}

static int launch(void *subject, struct ds_error *err)
{
    return ds_subject_again(subject, err);
}

/* The call as the lab's subjects take it. One page for each sequence, arrays on 64-byte
 * boundaries. */
static int make_call(const struct ds_bench_setting *b, int per_sequence, struct ds_call *c,
                     struct ds_error *err)
{
    const int64_t n = per_sequence && b->kv ? b->rows : 1;
    struct ds_segment *segment = ds_calloc((size_t)n, sizeof *segment, "segments", err);
    if (!segment)
        return -1;
    for (int64_t i = 0; i < n; i++)
        segment[i] =
            n > 1 || (per_sequence && b->kv)
                ? (struct ds_segment){.sequence = (int32_t)i, .first = b->kv - 1, .length = 1}
                : (struct ds_segment){.length = b->rows};
    *c = (struct ds_call){.segment = segment, .n_segments = n, .threads = b->threads};
    return 0;
}

static int make_subjects(const struct ds_kernel *const *kernels, size_t n,
                         const struct ds_shape *shape, const struct ds_call *call,
                         struct ds_subject **subject, struct ds_bench_figures *out,
                         struct ds_error *err)
{
    for (size_t i = 0; i < n; i++) {
        subject[i] = ds_subject_new(kernels[i], shape, 1, err);
        if (!subject[i] || ds_subject_ready(subject[i], call, err) != 0)
            return ds_prefix(err, "%s", kernels[i]->name);
        out->prepare[i] = ds_subject_prepare_seconds(subject[i]);
    }
    return 0;
}

int ds_lab_bench(const struct ds_kernel *const *kernels, size_t n, const struct ds_shape *shape,
                 const struct ds_bench_setting *setting, double seconds,
                 struct ds_bench_figures *out, struct ds_error *err)
{
    const struct ds_timing_plan plan = {.clock = setting->threads == 1 ? CLOCK_PROCESS_CPUTIME_ID
                                                                       : CLOCK_MONOTONIC,
                                        .seconds = seconds,
                                        .min_rounds = 5,
                                        .sample = 2e-4,
                                        .longest_call = 1.0};
    struct ds_subject *subject[DS_TIMING_MAX_CONTENDERS] = {NULL};
    struct ds_contender contender[DS_TIMING_MAX_CONTENDERS];
    struct ds_call call;
    const int sequences = shape->op == DS_OP_ATTENTION || shape->op == DS_OP_CACHE;
    memset(out, 0, sizeof *out);
    if (n < 1 || n > DS_TIMING_MAX_CONTENDERS)
        return ds_fail(err, "bench: %zu variants of one op; 1..%d can be timed side by side", n,
                       DS_TIMING_MAX_CONTENDERS);
    if (make_call(setting, sequences, &call, err) != 0)
        return -1;
    int rc = make_subjects(kernels, n, shape, &call, subject, out, err);
    for (size_t i = 0; i < n; i++)
        contender[i] = (struct ds_contender){launch, subject[i]};
    if (rc == 0) {
        int flops = multiplies_matrices(shape->op);
        out->unit = flops ? "GF/s" : "GB/s";
        out->work = 1e-9 * (flops ? 2 * ds_lab_bench_work(shape, setting)
                                  : ds_subject_bytes(subject[0], &call));
        rc = ds_time_side_by_side(contender, n, &plan, out->time, &out->noise, err);
    }
    for (size_t i = 0; i < n; i++)
        ds_subject_free(subject[i]);
    free((void *)call.segment);
    return rc;
}
