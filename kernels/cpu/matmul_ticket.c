/* matmul_ticket.c: the parts of matmul/atomic, but the threads take turns by their number.
 *
 * K is cut into 8 contiguous parts (3 to 7 when K is below 64); a part's sum as in matmul_atomic.c.
 * Thread t of T has the parts from 8*t/T on: it adds them in ascending order, the first assigned.
 * Then the threads' sums are added in ascending t, each thread waiting for its turn at a group of
 * 64 columns; the first with a part assigns. bias last; NaN as 7fc00000.
 *
 * The order follows from K and T alone: the same bits again for one number of threads, whatever the
 * rows and whoever is late. T is the number asked for, also where a small call runs on one. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul_parts.h"
#include "kernels/cpu/pinned.h"

#include <sched.h>
#include <stdatomic.h>

enum { TURN_BYTES = 64 };

struct ticket_call {
    const struct ds_matmul_args *a;
    const struct ds_exec *exec;
    int64_t parts;
    char *turns; /* per group of columns: the thread whose turn it is */
};

/* A thread's sum, and the part that is added to it next. */
static int64_t thread_floats(const struct ds_matmul_args *a)
{
    return 2 * a->rows * DS_PARTS_COLUMNS;
}

static size_t ticket_scratch(const void *args, int threads)
{
    const struct ds_matmul_args *a = args;
    const size_t sums = ds_cpu_scratch(thread_floats(a), threads),
                 turns = (size_t)ds_parts_groups(a) * TURN_BYTES;
    return sums > SIZE_MAX - turns ? SIZE_MAX : sums + turns;
}

static atomic_int *turn_of(const struct ticket_call *c, int64_t g)
{
    return (atomic_int *)(void *)(c->turns + g * TURN_BYTES);
}

/* The sum of thread t's parts of group g; begin < end. */
static void sum_parts(const struct ticket_call *c, int64_t g, int64_t begin, int64_t end, float *y,
                      int64_t ldy, float *part)
{
    const struct ds_matmul_args *a = c->a;
    for (int64_t p = begin; p < end; p++) {
        ds_parts_sum(a, 0, a->rows, g, ds_parts_border(a->k, c->parts, p),
                     ds_parts_border(a->k, c->parts, p + 1), p == begin ? y : part,
                     p == begin ? ldy : DS_PARTS_COLUMNS);
        if (p > begin)
            ds_parts_add(y, ldy, part, DS_PARTS_COLUMNS, a->rows, ds_parts_width(a, g));
    }
}

static void wait_turn(const struct ticket_call *c, int64_t g, int thread)
{
    if (c->exec->pause)
        c->exec->pause(c->exec->pause_arg, thread);
    for (int spins = 0; atomic_load_explicit(turn_of(c, g), memory_order_acquire) != thread;
         spins++)
        if (spins > 100) /* who is awaited may want this core */
            sched_yield();
}

/* Member `thread` of `threads`; `worker` is the thread that does it, for scratch. */
static void ticket_member(const struct ticket_call *c, int thread, int threads, int worker)
{
    const struct ds_matmul_args *a = c->a;
    const int64_t begin = ds_parts_border(c->parts, threads, thread),
                  end = ds_parts_border(c->parts, threads, thread + 1);
    float *sum = ds_cpu_scratch_of(c->exec, thread_floats(a), worker),
          *part = sum + a->rows * DS_PARTS_COLUMNS;
    for (int64_t g = 0; g < ds_parts_groups(a); g++) {
        float *y = a->y + g * DS_PARTS_COLUMNS;
        if (begin < end && begin > 0)
            sum_parts(c, g, begin, end, sum, DS_PARTS_COLUMNS, part);
        wait_turn(c, g, thread);
        if (begin < end && begin == 0)
            sum_parts(c, g, begin, end, y, a->ldy, part);
        else if (begin < end)
            ds_parts_add(y, a->ldy, sum, DS_PARTS_COLUMNS, a->rows, ds_parts_width(a, g));
        if (thread == threads - 1)
            ds_parts_bias(a, 0, a->rows, g);
        atomic_store_explicit(turn_of(c, g), thread + 1, memory_order_release);
    }
}

static void ticket_thread(void *arg, int thread, int threads)
{
    ticket_member(arg, thread, threads, thread);
}

static int ticket_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_matmul_args *a = args;
    struct ticket_call c = {.a = a, .exec = exec, .parts = ds_parts_race(a)};
    if (ds_parts_check(a, why, why_size) != 0 ||
        ds_cpu_check_scratch(exec, ticket_scratch(a, exec->threads), why, why_size) != 0)
        return -1;
    if (a->rows < 1)
        return 0;
    c.turns = (char *)exec->scratch + ds_cpu_scratch(thread_floats(a), exec->threads);
    for (int64_t g = 0; g < ds_parts_groups(a); g++)
        atomic_init(turn_of(&c, g), 0);
    if (ds_cpu_threads(exec, c.parts, ds_parts_work(a)) > 1)
        exec->run(exec->team, ticket_thread, &c);
    else
        for (int t = 0; t < exec->threads; t++)
            ticket_member(&c, t, exec->threads, 0);
    return 0;
}

static int ticket_describe(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    const struct ds_matmul_args *a = args;
    const int64_t parts = ds_parts_race(a);
    *out = (struct ds_launch_info){.tile_cols = DS_PARTS_COLUMNS,
                                   .tile_k = DS_PINNED_BLOCK,
                                   .split = (int32_t)parts,
                                   .threads = ds_cpu_threads(exec, parts, ds_parts_work(a))};
    return 0;
}

const struct ds_kernel ds_matmul_ticket = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_MATMUL,
    .name = "ticket",
    .claims = DS_CLAIM_ALL & ~DS_CLAIM_THREADS,
    .features = DS_FEATURE_PACKED,
    .prepare = ds_pinned_prepare,
    .scratch_bytes = ticket_scratch,
    .launch = ticket_launch,
    .describe = ticket_describe,
    .summary = "8 parts of K shared out to the threads, which add their sums in turn, by number"};
