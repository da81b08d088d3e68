/* bench.c: variants of one op timed side by side on the subjects of the lab. Must not know which
 * settings are worth timing. */
#include "kernels/lab/bench.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "kernels/device_open.h"
#include "kernels/lab/subject.h"

#include <stdio.h>
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

/* A contender on a device. */
struct on_device {
    struct ds_subject *subject;
    int flushed;
};

static int timed(void *arg, long calls, double *seconds, struct ds_error *err)
{
    const struct on_device *c = arg;
    return ds_subject_time(c->subject, calls, c->flushed, seconds, err);
}

static int bind_team(void *subject, const int *cpus, int n)
{
    return ds_subject_bind(subject, cpus, n);
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
    *c = (struct ds_call){
        .segment = segment, .n_segments = n, .threads = b->threads, .stored = b->stored};
    return 0;
}

struct ds_lab_bench {
    const struct ds_shape *shape;
    size_t n;
    struct ds_subject *subject[DS_TIMING_MAX_CONTENDERS];
};

void ds_lab_bench_close(struct ds_lab_bench *b)
{
    for (size_t i = 0; b && i < b->n; i++)
        ds_subject_free(b->subject[i]);
    free(b);
}

/* Weights of 16 bits as a file has them, where the kernel reads such. */
static struct ds_subject *open_subject(const struct ds_kernel *k, const struct ds_shape *shape,
                                       int stored, struct ds_error *err)
{
    enum { F16 = 1, BF16 = 30 }; /* as GGUF numbers them */
    if (stored != DS_ELEMENT_F32 && shape->op == DS_OP_MATMUL &&
        (k->features & DS_FEATURE_FILE_WEIGHTS))
        return ds_subject_new_file(k, shape, 1, DS_CONTENT_PLAIN,
                                   stored == DS_ELEMENT_F16 ? F16 : BF16, 1, err);
    return ds_subject_new(k, shape, 1, err);
}

struct ds_lab_bench *ds_lab_bench_open(const struct ds_kernel *const *kernels, size_t n,
                                       const struct ds_shape *shape, int stored,
                                       struct ds_error *err)
{
    if (n < 1 || n > DS_TIMING_MAX_CONTENDERS) {
        ds_fail(err, "bench: %zu variants of one op; 1..%d can be timed side by side", n,
                DS_TIMING_MAX_CONTENDERS);
        return NULL;
    }
    struct ds_lab_bench *b = ds_calloc(1, sizeof *b, "bench", err);
    if (!b)
        return NULL;
    b->shape = shape;
    for (; b->n < n; b->n++) {
        b->subject[b->n] = open_subject(kernels[b->n], shape, stored, err);
        if (b->subject[b->n])
            continue;
        ds_prefix(err, "%s", kernels[b->n]->name);
        ds_lab_bench_close(b);
        return NULL;
    }
    return b;
}

/* Fills the arrays of the call for all variants; 1 when the first one's took so long that all would
 * take longer than `most`. */
static int fill(struct ds_lab_bench *b, const struct ds_call *call, int graph, double most,
                struct ds_error *err)
{
    const double start = ds_seconds(CLOCK_MONOTONIC);
    for (size_t i = 0; i < b->n; i++) {
        if (i == 1 && most > 0 && (ds_seconds(CLOCK_MONOTONIC) - start) * (double)b->n > most)
            return 1;
        if (ds_subject_ready(b->subject[i], call, err) != 0 ||
            (graph && ds_subject_capture(b->subject[i], err) != 0))
            return ds_prefix(err, "%s", ds_subject_kernel(b->subject[i])->name);
    }
    return 0;
}

static int race(struct ds_lab_bench *b, const struct ds_bench_setting *setting,
                const struct ds_bench_limits *limits, struct ds_bench_figures *out,
                struct ds_error *err)
{
    const struct ds_timing_plan plan = {.clock = setting->threads == 1 ? CLOCK_PROCESS_CPUTIME_ID
                                                                       : CLOCK_MONOTONIC,
                                        .seconds = limits->seconds,
                                        .min_rounds = 5,
                                        .sample = 2e-4,
                                        .longest_call = 1.0,
                                        .most_seconds = limits->most,
                                        .threads = limits->anywhere ? 0 : setting->threads};
    struct ds_contender contender[DS_TIMING_MAX_CONTENDERS];
    struct on_device there[DS_TIMING_MAX_CONTENDERS];
    struct ds_device *dev = ds_subject_arena(b->subject[0])->device;
    for (size_t i = 0; i < b->n; i++) {
        there[i] = (struct on_device){b->subject[i], setting->flushed};
        contender[i] =
            dev ? (struct ds_contender){.arg = &there[i], .timed = timed}
                : (struct ds_contender){.run = launch, .arg = b->subject[i], .bind = bind_team};
        out->prepare[i] = ds_subject_prepare_seconds(b->subject[i]);
        if (dev)
            (void)ds_subject_ready_launch(b->subject[i], &out->launch[i]);
    }
    struct ds_device_info info = {.clock_khz = 0};
    if (ds_time_side_by_side(contender, b->n, &plan, out->time, &out->noise, &out->placed, err) !=
            0 ||
        (dev && ds_device_check(dev, dev->info(dev, &info), err) != 0))
        return -1;
    out->clock_khz = info.clock_khz;
    out->memory_clock_khz = info.memory_clock_khz;
    return 0;
}

/* Whether two results are the same but for roundings, of whatever format: an eighth of their size. Ids
 * are equal or not. */
static int alike(const struct ds_subject *s, const struct ds_call *call, const struct ds_output *a,
                 const struct ds_output *b)
{
    struct ds_output_part part[DS_MOST_PARTS];
    const int n = ds_subject_parts(s, call, part);
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0, at = r * a->width; i < n; at += part[i++].cols) {
            double off = 0, size = 0;
            if (part[i].dtype != DS_ELEMENT_F32) {
                if (memcmp(a->bits + at, b->bits + at, (size_t)part[i].cols * 4) != 0)
                    return 0;
                continue;
            }
            for (int64_t j = at; j < at + part[i].cols; j++) {
                const double x = (double)ds_f32_from_bits(a->bits[j]),
                             y = (double)ds_f32_from_bits(b->bits[j]);
                off += (x - y) * (x - y);
                size += x * x;
            }
            if (!(off <= size / 64))
                return 0;
        }
    return 1;
}

/* Who does nothing is fastest: what each makes of one more call, on outputs that hold nothing. */
static int prove(struct ds_lab_bench *b, const struct ds_call *call, struct ds_bench_figures *out,
                 struct ds_error *err)
{
    static const double MOST_BYTES = 64e6;
    struct ds_output ref = {0}, got = {0};
    int rc = 0;
    if (ds_subject_bytes(b->subject[0], call) > MOST_BYTES)
        return 0;
    for (size_t i = 0; i < b->n && rc == 0; i++) {
        struct ds_output *mine = i ? &got : &ref;
        struct ds_buf text = {0};
        if (!out->time[i].rounds)
            continue;
        rc = ds_subject_run(b->subject[i], call, mine, err);
        if (rc == 0 && mine->fault.kind != DS_FAULT_NONE)
            ds_fault_print(&text, &mine->fault);
        else if (rc == 0 && i && ref.fault.kind == DS_FAULT_NONE &&
                 !alike(b->subject[0], call, &ref, &got))
            ds_buf_printf(&text, "gives other results than %s",
                          ds_subject_kernel(b->subject[0])->name);
        snprintf(out->wrong[i], sizeof out->wrong[i], "%.63s", text.data ? text.data : "");
        ds_buf_free(&text);
    }
    ds_output_free(&ref);
    ds_output_free(&got);
    return rc;
}

int ds_lab_bench(struct ds_lab_bench *b, const struct ds_bench_setting *setting,
                 const struct ds_bench_limits *limits, struct ds_bench_figures *out,
                 struct ds_error *err)
{
    const int op = b->shape->op, flops = multiplies_matrices(op);
    struct ds_call call;
    memset(out, 0, sizeof *out);
    if (make_call(setting, op == DS_OP_ATTENTION || op == DS_OP_CACHE, &call, err) != 0)
        return -1;
    int rc = fill(b, &call, setting->graph, limits->most, err);
    out->unit = flops ? "GF/s" : "GB/s";
    if (rc == 0)
        out->work = 1e-9 * (flops ? 2 * ds_lab_bench_work(b->shape, setting)
                                  : ds_subject_bytes(b->subject[0], &call));
    if (rc == 0)
        rc = race(b, setting, limits, out, err);
    if (rc == 0 && op != DS_OP_CUSTOM)
        rc = prove(b, &call, out, err);
    free((void *)call.segment);
    return rc;
}
