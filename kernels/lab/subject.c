/* subject.c: see subject.h. Owns the order of things in a call: place arrays, describe, seal, launch,
 * look for damage, collect. What an op's arrays are is in subject_rows.c and subject_attention.c. */
#include "kernels/lab/subject.h"

#include "base/clock.h"
#include "base/mem.h"
#include "kernels/call.h"
#include "kernels/device_open.h"
#include "kernels/lab/contain.h"
#include "kernels/lab/content.h"
#include "kernels/lab/far.h"
#include "kernels/lab/schedule.h"
#include "kernels/lab/stopwatch.h"
#include "kernels/lab/subject_rows.h"
#include "kernels/registry.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_SCHEDULES = 4 };

struct ds_subject {
    struct ds_subject_parts p; /* first: what builders see */
    union ds_any_args exact;   /* p.args with the f32 weights */
    union ds_any_args far;     /* p.args on the arena's device, where it has one */
    const float **far_ranks;
    const struct ds_subject_ops *ops;
    struct {
        int threads;
        uint64_t used;
        struct ds_schedule *schedule;
    } schedules[MOST_SCHEDULES];
    uint64_t calls;
    struct ds_exec ready; /* of ds_subject_ready */
    struct ds_schedule *ready_schedule;
    double prepare_seconds;
    void *graph; /* of the ready call; NULL: it is launched as it is */
    struct ds_stopwatch *watch;
};

static void forget_graph(struct ds_subject *s);

static const struct ds_subject_ops *ops_of(int op)
{
    return op == DS_OP_ATTENTION ? &ds_subject_attention_ops : ds_subject_rows_ops(op);
}

int ds_subject_known(int op)
{
    return op != DS_OP_SCHEDULE;
}

/* ---- making one --------------------------------------------------------------------------------- */

/* matmul: prepare's result moves between guard pages, too. It depends on the weights alone, so it may
 * lie anywhere; 64-byte alignment is kept. */
static int prepare(struct ds_subject *s, struct ds_error *err)
{
    struct ds_matmul_args *a = &s->p.args.matmul;
    char why[256] = "";
    void *made = NULL;
    size_t bytes = 0;
    if (s->p.kernel->op != DS_OP_MATMUL || !s->p.kernel->prepare)
        return 0;
    const double start = ds_seconds(CLOCK_MONOTONIC);
    if (ds_call_prepare(s->p.kernel, &a->w, &made, &bytes, why, sizeof why) != 0)
        return ds_fail(err, "matmul/%s: prepare: %s", s->p.kernel->name, why);
    s->prepare_seconds = bytes ? ds_seconds(CLOCK_MONOTONIC) - start : 0;
    void *at = ds_arena_place(&s->p.arena, "prepared weights", DS_ARRAY_IN, 1, 1, (int64_t)bytes,
                              (int64_t)bytes, 0, err);
    if (at && bytes)
        memcpy(at, made, bytes);
    free(made);
    a->prepared = at;
    return at ? 0 : -1;
}

/* Of kernel, shape and what else *like says. */
static struct ds_subject *make(const struct ds_subject_parts *like, struct ds_error *err)
{
    struct ds_subject *s = ds_calloc(1, sizeof *s, "subject", err);
    if (!s)
        return NULL;
    s->p = *like;
    s->ops = ops_of(like->kernel->op);
    s->p.pool = ds_pool_new(like->seed);
    ds_arena_begin(&s->p.arena, DS_POISON_NAN);
    if (ds_lab_device_of(like->kernel->device, &s->p.arena.device, err) != 0 ||
        (s->ops->open && s->ops->open(&s->p, err) != 0) || prepare(s, err) != 0 ||
        ds_arena_hold(&s->p.arena, err) != 0 ||
        (s->p.arena.device && ds_arena_place_far(&s->p.arena, err) != 0)) {
        ds_subject_free(s);
        return NULL;
    }
    return s;
}

struct ds_subject *ds_subject_new(const struct ds_kernel *k, const struct ds_shape *shape,
                                  uint64_t seed, struct ds_error *err)
{
    return ds_subject_new_weights(k, shape, seed, DS_CONTENT_PLAIN, err);
}

struct ds_subject *ds_subject_new_weights(const struct ds_kernel *k, const struct ds_shape *shape,
                                          uint64_t seed, int weights, struct ds_error *err)
{
    return ds_subject_new_file(k, shape, seed, weights, 0, 0, err);
}

struct ds_subject *ds_subject_new_file(const struct ds_kernel *k, const struct ds_shape *shape,
                                       uint64_t seed, int weights, int32_t file_type, int from_file,
                                       struct ds_error *err)
{
    const struct ds_subject_parts like = {.kernel = k,
                                          .shape = shape,
                                          .seed = seed,
                                          .weights = weights,
                                          .file_type = file_type,
                                          .from_file = from_file};
    return make(&like, err);
}

struct ds_subject *ds_subject_new_moved(const struct ds_kernel *k, const struct ds_shape *shape,
                                        uint64_t seed, int offset, struct ds_error *err)
{
    const struct ds_subject_parts like = {
        .kernel = k, .shape = shape, .seed = seed, .weights = DS_CONTENT_PLAIN, .moved = offset};
    return make(&like, err);
}

void ds_subject_free(struct ds_subject *s)
{
    if (!s)
        return;
    for (int i = 0; i < MOST_SCHEDULES; i++)
        ds_schedule_free(s->schedules[i].schedule);
    if (s->ops->close)
        s->ops->close(&s->p);
    forget_graph(s);
    ds_stopwatch_free(s->watch);
    ds_arena_free(&s->p.arena);
    ds_pool_free(s->p.pool);
    free(s->far_ranks);
    free(s);
}

const struct ds_kernel *ds_subject_kernel(const struct ds_subject *s)
{
    return s->p.kernel;
}

const struct ds_shape *ds_subject_shape(const struct ds_subject *s)
{
    return s->p.shape;
}

const struct ds_arena *ds_subject_arena(const struct ds_subject *s)
{
    return &s->p.arena;
}

const void *ds_subject_args(const struct ds_subject *s)
{
    return s->p.from_file ? &s->exact : &s->p.args;
}

int ds_subject_parts(const struct ds_subject *s, const struct ds_call *c,
                     struct ds_output_part part[DS_MOST_PARTS])
{
    const int n = s->ops->parts(&s->p, c, part), stored = ds_subject_stored(&s->p, c);
    for (int i = 0; i < n; i++)
        if (strcmp(part[i].name, "y") == 0 && part[i].dtype == DS_ELEMENT_F32)
            part[i].dtype = stored;
    return n;
}

double ds_subject_work(const struct ds_subject *s, const struct ds_call *c)
{
    return s->ops->work(&s->p, c);
}

double ds_subject_bytes(const struct ds_subject *s, const struct ds_call *c)
{
    return s->ops->bytes(&s->p, c);
}

int64_t ds_call_rows(const struct ds_call *c)
{
    int64_t n = 0;
    for (int64_t i = 0; i < c->n_segments; i++)
        n += c->segment[i].length;
    return n;
}

/* ---- one call ----------------------------------------------------------------------------------- */

/* The team of so many threads; the one not used for longest makes room. */
static struct ds_schedule *schedule_of(struct ds_subject *s, int threads, struct ds_error *err)
{
    int at = 0;
    s->calls++;
    for (int i = 0; i < MOST_SCHEDULES; i++) {
        if (s->schedules[i].schedule && s->schedules[i].threads == threads) {
            s->schedules[i].used = s->calls;
            return s->schedules[i].schedule;
        }
        if (s->schedules[i].used < s->schedules[at].used)
            at = i;
    }
    ds_schedule_free(s->schedules[at].schedule);
    s->schedules[at].schedule = ds_schedule_new(threads, err);
    s->schedules[at].threads = threads;
    s->schedules[at].used = s->calls;
    return s->schedules[at].schedule;
}

/* What the kernel is given. */
static const void *given(const struct ds_subject *s)
{
    return s->p.arena.device ? &s->far : &s->p.args;
}

static void *where(void *arena, const void *host)
{
    return ds_arena_far(arena, host);
}

/* Places on the device for the arrays of a call, and its arguments and exec there. */
static int build_far(struct ds_subject *s, struct ds_exec *exec, struct ds_error *err)
{
    struct ds_arena *a = &s->p.arena;
    free(s->far_ranks);
    s->far_ranks = NULL;
    if (ds_arena_place_far(a, err) != 0 ||
        ds_far_args(s->p.kernel->op, &s->p.args, &s->far, &s->far_ranks, where, a, err) != 0)
        return -1;
    ds_lab_device_exec(a->device, exec);
    if (exec->scratch)
        exec->scratch = ds_arena_far(a, exec->scratch);
    return 0;
}

/* The sequences are sent as the device's kernels read them: with the pages that lie there. */
static int send_sequences(struct ds_subject *s, struct ds_error *err)
{
    struct ds_device *dev = s->p.arena.device;
    int64_t n, page_size;
    const struct ds_sequence *from = ds_far_sequences(s->p.kernel->op, &s->p.args, &n, &page_size);
    if (!from || n < 1)
        return 0;
    struct ds_sequence *there = ds_calloc((size_t)n, sizeof *there, "sequences", err);
    if (!there)
        return -1;
    memcpy(there, from, (size_t)n * sizeof *there);
    for (int64_t i = 0; i < n; i++)
        there[i].pages = ds_arena_far(&s->p.arena, from[i].pages);
    int rc = ds_device_check(
        dev, dev->copy_to(dev, ds_arena_far(&s->p.arena, from), there, (size_t)n * sizeof *there),
        err);
    free(there);
    return rc;
}

static int send(struct ds_subject *s, struct ds_error *err)
{
    if (!s->p.arena.device)
        return 0;
    return ds_arena_send(&s->p.arena, err) != 0 ? -1 : send_sequences(s, err);
}

/* Arrays, scratch and exec of a call; the arena is not sealed, nor are arrays sent to a device yet. */
static int build(struct ds_subject *s, const struct ds_call *c, struct ds_exec *exec,
                 struct ds_schedule **schedule, struct ds_error *err)
{
    const struct ds_kernel *k = s->p.kernel;
    *schedule = schedule_of(s, c->threads, err);
    forget_graph(s);
    if (!*schedule)
        return -1;
    memset(exec, 0, sizeof *exec);
    ds_schedule_exec(*schedule, c->disturb, exec);
    exec->seed = c->seed;
    exec->dtype = c->stored;
    ds_arena_begin(&s->p.arena, c->poison);
    if (s->ops->build(&s->p, c, err) != 0 || ds_subject_store(&s->p, c, err) != 0)
        return -1;
    if (s->p.from_file) {
        s->exact = s->p.args;
        s->exact.matmul.w.data = s->p.w;
    }
    exec->scratch_bytes = ds_call_scratch(k, &s->p.args, c->threads);
    if (!exec->scratch_bytes)
        return s->p.arena.device ? build_far(s, exec, err) : 0;
    if (exec->scratch_bytes > PTRDIFF_MAX / 8)
        return ds_fail(err, "%s/%s: scratch memory of %zu bytes", ds_op_name(k->op), k->name,
                       exec->scratch_bytes);
    /* 64-byte aligned as promised; what stands behind a size that is no multiple is a sentinel. */
    int64_t words = (int64_t)(exec->scratch_bytes + 3) / 4;
    if (c->place % 2) /* at a boundary of 64 bytes that is none of 128, too */
        words += 64 / 4;
    exec->scratch =
        ds_arena_place(&s->p.arena, "scratch", DS_ARRAY_SCRATCH, 4, 1, words, words, 0, err);
    return !exec->scratch ? -1 : s->p.arena.device ? build_far(s, exec, err) : 0;
}

static int describe(struct ds_subject *s, const struct ds_exec *exec, struct ds_launch_info *info)
{
    memset(info, 0, sizeof *info);
    return ds_call_describe(s->p.kernel, given(s), exec, info) == 0;
}

int ds_subject_describe(struct ds_subject *s, const struct ds_call *c, struct ds_launch_info *info,
                        struct ds_error *err)
{
    struct ds_exec exec;
    struct ds_schedule *schedule;
    memset(info, 0, sizeof *info);
    if (!s->p.kernel->describe)
        return 0;
    s->p.arena.bare = 1;
    const int rc = build(s, c, &exec, &schedule, err);
    s->p.arena.bare = 0;
    return rc != 0 ? -1 : describe(s, &exec, info);
}

static int collect(struct ds_subject *s, const struct ds_call *c, struct ds_output *out,
                   struct ds_error *err)
{
    struct ds_output_part part[DS_MOST_PARTS];
    const int n_parts = ds_subject_parts(s, c, part);
    int64_t at = 0;
    out->rows = ds_call_rows(c);
    out->width = 0;
    for (int i = 0; i < n_parts; i++)
        out->width += part[i].cols;
    if (ds_grow(&out->bits, &out->cap, (size_t)(out->rows * out->width), sizeof *out->bits,
                "outputs", err) != 0)
        return -1;
    for (int i = s->p.arena.held, n = 0; i < s->p.arena.n && n < n_parts; i++) {
        const struct ds_array *x = &s->p.arena.array[i];
        if ((x->role != DS_ARRAY_OUT && x->role != DS_ARRAY_IN_OUT) ||
            strcmp(x->name, part[n].name) != 0)
            continue;
        for (int64_t r = 0; r < out->rows; r++) {
            int64_t row = s->ops->row_of ? s->ops->row_of(&s->p, c, n, r) : r;
            uint32_t *to = out->bits + r * out->width + at;
            if (x->element == 4 &&
                (part[n].dtype == DS_ELEMENT_F16 || part[n].dtype == DS_ELEMENT_BF16))
                for (int64_t j = 0; j < part[n].cols; j++)
                    to[j] = ds_subject_rounded(part[n].dtype,
                                               ((const uint32_t *)x->data)[row * x->ld + j]);
            else if (x->element == 4)
                memcpy(to, (const uint32_t *)x->data + row * x->ld, (size_t)part[n].cols * 4);
            else
                for (int64_t j = 0; j < part[n].cols; j++)
                    to[j] = ((const uint16_t *)x->data)[row * x->ld + j];
        }
        at += part[n++].cols;
    }
    return 0;
}

static void refused(struct ds_fault *f, const char *why)
{
    memset(f, 0, sizeof *f);
    f->kind = DS_FAULT_REFUSED;
    size_t n = strlen(why);
    memcpy(f->text, why, n < sizeof f->text ? n : sizeof f->text - 1);
}

/* The launch is over, and what it wrote is on the host. A device that failed ends a child process: nothing more
 * can be had of it there. */
static int finish(struct ds_subject *s, struct ds_fault *f, struct ds_error *err)
{
    struct ds_device *dev = s->p.arena.device;
    if (!dev)
        return ds_arena_unseal(&s->p.arena, err);
    if (dev->wait(dev) == 0)
        return ds_arena_fetch(&s->p.arena, f, err);
    refused(f, dev->why);
    f->kind = DS_FAULT_DEVICE;
    ds_contain_die(f);
    return 0;
}

int ds_subject_run(struct ds_subject *s, const struct ds_call *c, struct ds_output *out,
                   struct ds_error *err)
{
    struct ds_exec exec;
    struct ds_schedule *schedule;
    char why[512] = "";
    memset(&out->fault, 0, sizeof out->fault);
    out->rows = 0;
    if (build(s, c, &exec, &schedule, err) != 0)
        return -1;
    memset(&out->launch, 0, sizeof out->launch);
    if (ds_arena_seal(&s->p.arena, err) != 0 || send(s, err) != 0)
        return -1;
    const uint32_t fp = ds_fp_now();
    const int rc =
        s->p.arena.device
            ? ds_lab_launch(s->p.arena.device, s->p.kernel, given(s), &exec, why, sizeof why)
            : ds_call_launch_alone(s->p.kernel, given(s), &exec, why, sizeof why);
    struct ds_device *dev = s->p.arena.device;
    const int began = rc != 0 && dev && dev->failed && dev->failed(dev);
    const int fp_changed = ds_fp_put_back(fp) | ds_schedule_fp_changed(schedule);
    if (finish(s, &out->fault, err) != 0)
        return -1;
    if (rc != 0) {
        refused(&out->fault, why);
        out->fault.kind = began ? DS_FAULT_DEVICE : DS_FAULT_REFUSED;
        return 0;
    }
    if (out->fault.kind == DS_FAULT_DEVICE)
        return 0;
    describe(s, &exec, &out->launch);
    if (out->fault.kind == DS_FAULT_NONE && !ds_arena_check(&s->p.arena, &out->fault) && fp_changed)
        out->fault.kind = DS_FAULT_FP_CONTROL;
    return collect(s, c, out, err);
}

void ds_output_free(struct ds_output *out)
{
    free(out->bits);
    memset(out, 0, sizeof *out);
}

double ds_subject_prepare_seconds(const struct ds_subject *s)
{
    return s->prepare_seconds;
}

int ds_subject_ready(struct ds_subject *s, const struct ds_call *c, struct ds_error *err)
{
    s->ready_schedule = NULL;
    return build(s, c, &s->ready, &s->ready_schedule, err) != 0 ? -1 : send(s, err);
}

int ds_subject_ready_launch(struct ds_subject *s, struct ds_launch_info *info)
{
    return describe(s, &s->ready, info);
}

int ds_subject_bind(struct ds_subject *s, const int *cpus, int n)
{
    return s->ready_schedule ? ds_schedule_bind(s->ready_schedule, cpus, n) : 0;
}

static int put(struct ds_subject *s, struct ds_error *err)
{
    struct ds_device *dev = s->p.arena.device;
    char why[256] = "";
    if (dev)
        ds_lab_tell(dev, s->p.kernel);
    if (s->graph)
        return ds_device_check(dev, dev->graph_launch(dev, s->graph), err);
    s->ready.seed++;
    if (ds_call_launch(s->p.kernel, given(s), &s->ready, why, sizeof why) == 0)
        return 0;
    return ds_fail(err, "%s/%s: %s", ds_op_name(s->p.kernel->op), s->p.kernel->name,
                   *why ? why : "no reason given");
}

int ds_subject_again(struct ds_subject *s, struct ds_error *err)
{
    struct ds_device *dev = s->p.arena.device;
    return put(s, err) != 0 ? -1 : dev ? ds_device_check(dev, dev->wait(dev), err) : 0;
}

int ds_subject_capture(struct ds_subject *s, struct ds_error *err)
{
    struct ds_device *dev = s->p.arena.device;
    void *graph = NULL;
    if (!dev || !dev->graph_begin)
        return ds_fail(err, "the CPU has no graphs");
    if (ds_device_check(dev, dev->graph_begin(dev), err) != 0)
        return -1;
    int rc = put(s, err);
    if (dev->graph_end(dev, &graph) != 0 && rc == 0)
        rc = ds_device_check(dev, -1, err);
    if (rc != 0 && graph)
        dev->graph_free(dev, graph);
    else
        s->graph = graph;
    return rc;
}

static int put_any(void *subject, struct ds_error *err)
{
    return put(subject, err);
}

int ds_subject_time(struct ds_subject *s, long calls, int flushed, double *seconds,
                    struct ds_error *err)
{
    if (!s->p.arena.device)
        return ds_fail(err, "the CPU has no clock of its own for launches");
    if (!s->watch && ds_stopwatch_new(s->p.arena.device, &s->watch, err) != 0)
        return -1;
    return ds_stopwatch_time(s->watch, calls, flushed, put_any, s, seconds, err);
}

static void forget_graph(struct ds_subject *s)
{
    if (s->graph)
        s->p.arena.device->graph_free(s->p.arena.device, s->graph);
    s->graph = NULL;
}
