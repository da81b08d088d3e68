/* matmul_atomic.c: y = x * w^T (+ bias) whose partial sums are added in the order in which they
 * arrive, as atomicAdd on a GPU does it.
 *
 * K is cut into 8 contiguous parts (3 to 7 when K is below 64). A part's sum: blocks of 256 counted
 * from its first term, one chain s = fmaf(x, w, s) a block in ascending k from +0, block sums added
 * in ascending order. The parts of a group of 64 columns are handed to the threads in an order
 * shuffled by the launch's seed, and each is added to the output under that group's spin lock when
 * it is ready: the first to arrive is assigned. bias is added by the last; NaN as 7fc00000.
 *
 * No order is promised, not even for the same call again. The seed makes it differ on one thread,
 * too, where nobody can overtake. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul_parts.h"
#include "kernels/cpu/pinned.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

/* One per group of columns, in a cache line of its own. */
struct gate {
    atomic_int busy;
    int arrived; /* parts added so far; under the lock */
};
enum { GATE_BYTES = 64, MOST_PARTS = 8 };

struct atomic_call {
    const struct ds_matmul_args *a;
    const struct ds_exec *exec;
    int64_t parts;
    char *gates;
    atomic_int_fast64_t next; /* the next (group, place in its shuffled order) */
};

static int64_t part_floats(const struct ds_matmul_args *a)
{
    return a->rows * DS_PARTS_COLUMNS;
}

static size_t atomic_scratch(const void *args, int threads)
{
    const struct ds_matmul_args *a = args;
    const size_t parts = ds_cpu_scratch(part_floats(a), threads),
                 gates = (size_t)ds_parts_groups(a) * GATE_BYTES;
    return parts > SIZE_MAX - gates ? SIZE_MAX : parts + gates;
}

/* The part at `place` of group g's order: a Fisher-Yates shuffle drawn from the seed. */
static int64_t shuffled_part(uint64_t seed, int64_t g, int64_t parts, int64_t place)
{
    uint8_t order[MOST_PARTS];
    uint64_t z = seed + ((uint64_t)g + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    for (int64_t i = 0; i < parts; i++)
        order[i] = (uint8_t)i;
    for (int64_t i = parts - 1; i > 0; i--) {
        const int64_t j = (int64_t)(z % (uint64_t)(i + 1));
        const uint8_t other = order[j];
        z /= (uint64_t)(i + 1); /* 8! outcomes out of 2^64 */
        order[j] = order[i];
        order[i] = other;
    }
    return order[place];
}

static void take(struct gate *gate)
{
    for (int spins = 0;; spins++) {
        int free_now = 0;
        if (atomic_compare_exchange_weak_explicit(&gate->busy, &free_now, 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return;
        if (spins > 100) /* its holder may want this core */
            sched_yield();
    }
}

static void arrive(struct atomic_call *c, int64_t g, const float *part)
{
    const struct ds_matmul_args *a = c->a;
    const int64_t width = ds_parts_width(a, g);
    struct gate *gate = (struct gate *)(void *)(c->gates + g * GATE_BYTES);
    float *y = a->y + g * DS_PARTS_COLUMNS;
    take(gate);
    if (gate->arrived == 0)
        for (int64_t r = 0; r < a->rows; r++)
            memcpy(y + r * a->ldy, part + r * DS_PARTS_COLUMNS, (size_t)width * sizeof *y);
    else
        ds_parts_add(y, a->ldy, part, DS_PARTS_COLUMNS, a->rows, width);
    if (++gate->arrived == c->parts)
        ds_parts_bias(a, 0, a->rows, g);
    atomic_store_explicit(&gate->busy, 0, memory_order_release);
}

static void atomic_thread(void *arg, int thread, int threads)
{
    struct atomic_call *c = arg;
    const struct ds_matmul_args *a = c->a;
    const int64_t items = ds_parts_groups(a) * c->parts;
    float *part = ds_cpu_scratch_of(c->exec, part_floats(a), thread);
    (void)threads;
    for (int64_t i; (i = atomic_fetch_add(&c->next, 1)) < items;) {
        const int64_t g = i / c->parts, p = shuffled_part(c->exec->seed, g, c->parts, i % c->parts);
        ds_parts_sum(a, 0, a->rows, g, ds_parts_border(a->k, c->parts, p),
                     ds_parts_border(a->k, c->parts, p + 1), part, DS_PARTS_COLUMNS);
        if (c->exec->pause)
            c->exec->pause(c->exec->pause_arg, thread);
        arrive(c, g, part);
    }
}

static int atomic_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_matmul_args *a = args;
    struct atomic_call c = {.a = a, .exec = exec, .parts = ds_parts_race(a)};
    if (ds_parts_check(a, why, why_size) != 0 ||
        ds_cpu_check_scratch(exec, atomic_scratch(a, exec->threads), why, why_size) != 0)
        return -1;
    if (a->rows < 1 || a->n < 1)
        return 0;
    c.gates = (char *)exec->scratch + ds_cpu_scratch(part_floats(a), exec->threads);
    memset(c.gates, 0, (size_t)ds_parts_groups(a) * GATE_BYTES);
    if (ds_cpu_threads(exec, ds_parts_groups(a) * c.parts, ds_parts_work(a)) == 1)
        atomic_thread(&c, 0, 1);
    else
        exec->run(exec->team, atomic_thread, &c);
    return 0;
}

static int atomic_describe(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    const struct ds_matmul_args *a = args;
    const int64_t parts = ds_parts_race(a);
    *out = (struct ds_launch_info){
        .tile_cols = DS_PARTS_COLUMNS,
        .tile_k = DS_PINNED_BLOCK,
        .split = (int32_t)parts,
        .threads = ds_cpu_threads(exec, ds_parts_groups(a) * parts, ds_parts_work(a))};
    return 0;
}

const struct ds_kernel ds_matmul_atomic = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_MATMUL,
    .name = "atomic",
    .claims = 0,
    .features = DS_FEATURE_PACKED,
    .prepare = ds_pinned_prepare,
    .scratch_bytes = atomic_scratch,
    .launch = atomic_launch,
    .describe = atomic_describe,
    .summary = "8 parts of K, added under a spin lock in the order in which they arrive"};
