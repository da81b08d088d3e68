/* sim.cc: see sim.h. */
#include "kernels/sim/sim.h"
#include "kernels/sim/fiber.h"
#include "kernels/sim/graph.h"
#include "kernels/sim/memory.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct ds_sim_place ds_sim_here;

namespace
{

enum state { READY, AT_BARRIER, AT_MEETING, ENDED };
enum { CANARY = 64, MOST_WARPS = DS_SIM_MOST_THREADS / DS_SIM_WARP };
const uint32_t POISON =
    0x7fc05eedu; /* a NaN that no kernel writes, nor the lab's: it would call an output
                                        made of it unwritten */

struct thread {
    enum state state;
    struct ds_sim_dim index;
    int meeting;
    unsigned mask;
    uint64_t value, result;
    int source;
    const char *file; /* where it waits */
    int line;
};

/* The launch that runs. One at a time: static shared memory is there once. */
pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
struct run {
    const struct ds_sim_launch *launch;
    int threads, warps, current;
    uint64_t random;
    char *dynamic;
    char trouble[512]; /* not empty: the launch ends */
    struct thread thread[DS_SIM_MOST_THREADS];
    uint64_t gathered[MOST_WARPS][DS_SIM_WARP];
} run;

/* ---- order ------------------------------------------------------------------------------------- */

unsigned next_random(unsigned below)
{
    uint64_t x = run.random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    run.random = x;
    return (unsigned)(((x >> 32) * below) >> 32);
}

/* order[0..n-1]: in which order n things come to run. */
void make_order(unsigned short *order, int n)
{
    for (int i = 0; i < n; i++)
        order[i] = (unsigned short)(run.launch->schedule.order == DS_SIM_REVERSED ? n - 1 - i : i);
    for (int i = n - 1; run.launch->schedule.order == DS_SIM_RANDOM && i > 0; i--) {
        const unsigned j = next_random((unsigned)i + 1);
        const unsigned short keep = order[i];
        order[i] = order[j];
        order[j] = keep;
    }
}

/* ---- threads ----------------------------------------------------------------------------------- */

void thread_begins(void)
{
    ds_fiber_entered();
    run.launch->body(run.launch->arg);
    run.thread[run.current].state = ENDED;
    ds_fiber_back(ds_fiber_at(run.current), 1);
    abort(); /* an ended fiber is never entered */
}

void run_thread(int t)
{
    run.current = t;
    ds_sim_here.thread = run.thread[t].index;
    ds_fiber_enter(ds_fiber_at(t));
}

void give_way(void)
{
    ds_fiber_back(ds_fiber_at(run.current), 0);
}

__attribute__((format(printf, 1, 2))) void trouble(const char *fmt, ...)
{
    char text[400];
    const struct ds_sim_dim *b = &ds_sim_here.block;
    if (*run.trouble)
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    snprintf(run.trouble, sizeof run.trouble, "kernel %s, block (%u,%u,%u): %s", run.launch->kernel,
             b->x, b->y, b->z, text);
}

const char *meeting_name(int meeting)
{
    static const char *const names[] = {"__syncwarp", "a shuffle",  "__ballot_sync",
                                        "__any_sync", "__all_sync", "mma.sync"};
    return names[meeting];
}

/* ---- meetings of a warp ------------------------------------------------------------------------ */

int lanes_of(int warp)
{
    const int left = run.threads - warp * DS_SIM_WARP;
    return left < DS_SIM_WARP ? left : DS_SIM_WARP;
}

/* Whether lane l of the warp has come to the meeting at which `first` waits. */
int has_come(int warp, int l, const struct thread *first)
{
    const struct thread *t = &run.thread[warp * DS_SIM_WARP + l];
    return l < lanes_of(warp) && t->state == AT_MEETING && t->mask == first->mask &&
           t->meeting == first->meeting && t->line == first->line;
}

void hold_meeting(int warp, unsigned mask)
{
    struct thread *t = &run.thread[warp * DS_SIM_WARP];
    uint64_t votes = 0;
    for (int l = 0; l < DS_SIM_WARP; l++)
        if (mask >> l & 1)
            votes |= (uint64_t)(t[l].value != 0) << l;
    for (int l = 0; l < DS_SIM_WARP; l++) {
        if (!(mask >> l & 1))
            continue;
        t[l].state = READY;
        switch (t[l].meeting) {
        case DS_SIM_SHUFFLE:
            if (!(mask >> t[l].source & 1))
                trouble("a shuffle at %s:%d with mask %08x: lane %d reads lane %d, which is not in "
                        "the mask",
                        t[l].file, t[l].line, mask, l, t[l].source);
            else
                t[l].result = t[t[l].source].value;
            break;
        case DS_SIM_BALLOT:
            t[l].result = votes;
            break;
        case DS_SIM_ANY:
            t[l].result = votes != 0;
            break;
        case DS_SIM_ALL:
            t[l].result = votes == mask;
            break;
        case DS_SIM_GATHER:
            run.gathered[warp][l] = t[l].value;
            t[l].result = reinterpret_cast<uintptr_t>(run.gathered[warp]);
            break;
        default:
            break;
        }
    }
}

/* Holds the meetings for which all lanes have come; how many. */
int hold_meetings(int warp)
{
    int held = 0;
    const int lanes = lanes_of(warp);
    for (int l = 0; l < lanes; l++) {
        const struct thread *first = &run.thread[warp * DS_SIM_WARP + l];
        if (first->state != AT_MEETING)
            continue;
        const unsigned mask = first->mask;
        int all = 1;
        for (int m = 0; m < DS_SIM_WARP && all; m++)
            all = !(mask >> m & 1) || has_come(warp, m, first);
        if (all) {
            hold_meeting(warp, mask);
            held++;
        }
    }
    return held;
}

/* Until every lane has ended or waits for other warps, or for lanes that do not come. */
void run_warp(int warp)
{
    unsigned short order[DS_SIM_WARP];
    const int lanes = lanes_of(warp);
    do {
        make_order(order, lanes);
        for (int i = 0; i < lanes && !*run.trouble; i++) {
            const int t = warp * DS_SIM_WARP + order[i];
            if (run.thread[t].state == READY)
                run_thread(t);
        }
    } while (!*run.trouble && hold_meetings(warp));
}

/* ---- what went wrong ----------------------------------------------------------------------------- */

void describe_missing(const struct thread *t, int there, char *out, size_t size)
{
    if (!there)
        snprintf(out, size, "does not exist");
    else if (t->state == ENDED)
        snprintf(out, size, "has ended");
    else if (t->state == AT_BARRIER)
        snprintf(out, size, "waits at __syncthreads at %s:%d", t->file, t->line);
    else
        snprintf(out, size, "waits at %s at %s:%d with mask %08x", meeting_name(t->meeting),
                 t->file, t->line, t->mask);
}

/* A lane waits for others of its warp that do not come. */
int tell_missing_lane(void)
{
    char missing[160];
    for (int i = 0; i < run.threads; i++) {
        const struct thread *t = &run.thread[i];
        const int warp = i / DS_SIM_WARP;
        if (t->state != AT_MEETING)
            continue;
        for (int m = 0; m < DS_SIM_WARP; m++) {
            if (!(t->mask >> m & 1) || has_come(warp, m, t))
                continue;
            const int other = warp * DS_SIM_WARP + m;
            describe_missing(&run.thread[other < run.threads ? other : 0], other < run.threads,
                             missing, sizeof missing);
            trouble("%s at %s:%d with mask %08x, warp %d: lane %d %s", meeting_name(t->meeting),
                    t->file, t->line, t->mask, warp, m, missing);
            return 1;
        }
    }
    return 0;
}

/* All that have not ended wait at barriers: whether it is one barrier for the whole block. */
int at_one_barrier(void)
{
    char missing[160];
    const struct thread *first = nullptr, *other = nullptr;
    int came = 0;
    for (int i = 0; i < run.threads && !first; i++)
        if (run.thread[i].state == AT_BARRIER)
            first = &run.thread[i];
    for (int i = 0; i < run.threads; i++) {
        const struct thread *t = &run.thread[i];
        if (t->state == AT_BARRIER && t->line == first->line &&
            (t->file == first->file || strcmp(t->file, first->file) == 0))
            came++;
        else if (!other)
            other = t;
    }
    if (!other)
        return 1;
    describe_missing(other, 1, missing, sizeof missing);
    trouble("divergent __syncthreads: %d of %d threads wait at %s:%d, thread (%u,%u,%u) %s", came,
            run.threads, first->file, first->line, other->index.x, other->index.y, other->index.z,
            missing);
    return 0;
}

/* ---- blocks -------------------------------------------------------------------------------------- */

__attribute__((no_sanitize("address"))) void poison(char *begin, const char *end)
{
    for (; begin + sizeof POISON <= end; begin += sizeof POISON)
        memcpy(begin, &POISON, sizeof POISON);
}

int count_in(enum state s)
{
    int n = 0;
    for (int i = 0; i < run.threads; i++)
        n += run.thread[i].state == s;
    return n;
}

void start_block(void)
{
    const struct ds_sim_dim *d = &run.launch->block;
    for (int i = 0; i < run.threads; i++) {
        const unsigned u = (unsigned)i;
        run.thread[i].state = READY;
        run.thread[i].index = {u % d->x, u / d->x % d->y, u / d->x / d->y};
        ds_fiber_start(ds_fiber_at(i), thread_begins);
    }
    poison(run.launch->static_shared, run.launch->static_end);
    poison(run.dynamic, run.dynamic + run.launch->shared_bytes);
}

void check_canary(void)
{
#if !defined(__SANITIZE_ADDRESS__)
    for (int i = 0; i < CANARY; i++)
        if ((unsigned char)run.dynamic[run.launch->shared_bytes + (size_t)i] != 0xa5)
            return trouble("wrote behind its %zu bytes of dynamic shared memory",
                           run.launch->shared_bytes);
#endif
}

void run_block(void)
{
    unsigned short order[MOST_WARPS];
    start_block();
    while (!*run.trouble) {
        make_order(order, run.warps);
        for (int i = 0; i < run.warps && !*run.trouble; i++)
            run_warp(order[i]);
        if (*run.trouble || count_in(ENDED) == run.threads)
            break;
        if (tell_missing_lane() || !at_one_barrier())
            break;
        for (int i = 0; i < run.threads; i++)
            run.thread[i].state = READY;
    }
    if (!*run.trouble)
        check_canary();
}

/* Block number i of a random order without a table: steps of a size that shares no factor with n. */
uint64_t coprime_step(uint64_t n)
{
    for (;;) {
        const uint64_t step = 1 + next_random(n > 0xffffffffu ? 0xffffffffu : (unsigned)n);
        uint64_t a = step, b = n;
        while (b) {
            const uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1)
            return step % n;
    }
}

void run_grid(void)
{
    const struct ds_sim_dim *g = &run.launch->grid;
    const uint64_t n = (uint64_t)g->x * g->y * g->z;
    const int order = run.launch->schedule.order;
    uint64_t at = order == DS_SIM_REVERSED ? n - 1 : 0, step = order == DS_SIM_REVERSED ? n - 1 : 1;
    if (order == DS_SIM_RANDOM) {
        at = next_random(n > 0xffffffffu ? 0xffffffffu : (unsigned)n);
        step = coprime_step(n);
    }
    for (uint64_t i = 0; i < n && !*run.trouble; i++) {
        ds_sim_here.block = {(unsigned)(at % g->x), (unsigned)(at / g->x % g->y),
                             (unsigned)(at / g->x / g->y)};
        run_block();
        at = (uint64_t)(((unsigned __int128)at + step) % n);
    }
}

/* ---- launching ------------------------------------------------------------------------------------- */

int refuse(const struct ds_sim_launch *l, char *why, size_t size, const char *what)
{
    snprintf(why, size,
             "kernel %s: %s: grid (%u,%u,%u), block (%u,%u,%u), %zu bytes of dynamic "
             "shared memory",
             l->kernel, what, l->grid.x, l->grid.y, l->grid.z, l->block.x, l->block.y, l->block.z,
             l->shared_bytes);
    return -1;
}

int check_launch(const struct ds_sim_launch *l, char *why, size_t size)
{
    const struct ds_sim_dim *g = &l->grid, *b = &l->block;
    if (!g->x || !g->y || !g->z || g->x > 0x7fffffffu || g->y > 65535 || g->z > 65535)
        return refuse(l, why, size, "no device takes this grid");
    if (!b->x || !b->y || !b->z || b->x > 1024 || b->y > 1024 || b->z > 64 ||
        (uint64_t)b->x * b->y * b->z > DS_SIM_MOST_THREADS)
        return refuse(l, why, size, "no device takes this block");
    if (l->shared_bytes > DS_SIM_MOST_SHARED)
        return refuse(l, why, size, "more shared memory than a block may have");
    return 0;
}

/* Whether a word of the arguments is an address that this process can read and that is not the device's.
 * A small number beside padding is none; ds_sim_launch_body clears the padding. */
int points_to_host(uint64_t word)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    unsigned char there;
    if (word >> 32 == 0 || (word & 0xffffffffu) < 1u << 24 || word >> 47 ||
        ds_sim_memory_is(reinterpret_cast<const void *>(word)))
        return 0;
    return mincore(reinterpret_cast<void *>(word / page * page), 1, &there) == 0;
}

int check_arguments(const struct ds_sim_launch *l, char *why, size_t size)
{
    uint64_t word;
    for (size_t i = 0; l->on_device && i + sizeof word <= l->arg_bytes; i += sizeof word) {
        memcpy(&word, static_cast<const char *>(l->arg) + i, sizeof word);
        if (points_to_host(word)) {
            snprintf(why, size,
                     "kernel %s: an argument points to the host's memory, and its arrays are the "
                     "device's",
                     l->kernel);
            return -1;
        }
    }
    return 0;
}

} /* namespace */

int ds_sim_run(const struct ds_sim_launch *l, char *why, size_t why_size)
{
    if (check_launch(l, why, why_size) != 0 || check_arguments(l, why, why_size) != 0)
        return -1;
    if (ds_sim_recording()) {
        ds_sim_record_launch(l);
        return 0;
    }
    const int threads = (int)(l->block.x * l->block.y * l->block.z);
    pthread_mutex_lock(&one_at_a_time);
    run.launch = l;
    run.threads = threads;
    run.warps = (threads + DS_SIM_WARP - 1) / DS_SIM_WARP;
    run.random = (l->schedule.seed + 1) * 0x9e3779b97f4a7c15u;
    run.random += !run.random;
    run.trouble[0] = '\0';
#if defined(__SANITIZE_ADDRESS__)
    run.dynamic = static_cast<char *>(malloc(l->shared_bytes ? l->shared_bytes : 1));
#else
    run.dynamic = static_cast<char *>(malloc(l->shared_bytes + CANARY));
    if (run.dynamic)
        memset(run.dynamic + l->shared_bytes, 0xa5, CANARY);
#endif
    ds_sim_here.block_dim = l->block;
    ds_sim_here.grid_dim = l->grid;
    if (!run.dynamic || ds_fibers_have(threads) != 0)
        snprintf(run.trouble, sizeof run.trouble, "kernel %s: out of memory for %d threads",
                 l->kernel, threads);
    else {
        ds_sim_memory_open_guarded();
        run_grid();
        ds_sim_memory_close();
    }
    free(run.dynamic);
    run.dynamic = nullptr;
    const int rc = *run.trouble ? -1 : 0;
    if (rc != 0) {
        snprintf(why, why_size, "%s", run.trouble);
        ds_fibers_forget(threads);
    }
    pthread_mutex_unlock(&one_at_a_time);
    return rc;
}

struct ds_sim_schedule ds_sim_schedule_of(const struct ds_exec *exec)
{
    const uint64_t seed = exec ? exec->seed : 0;
    if (exec && exec->pause)
        return {seed % 3 == 0 ? DS_SIM_REVERSED : DS_SIM_RANDOM, seed};
    return {seed > 1 ? DS_SIM_RANDOM : DS_SIM_IN_ORDER, seed};
}

/* ---- for threads ----------------------------------------------------------------------------------- */

void *ds_sim_dynamic_shared(void)
{
    return run.dynamic;
}

int ds_sim_lane(void)
{
    return run.current % DS_SIM_WARP;
}

void ds_sim_syncthreads(const char *file, int line)
{
    struct thread *t = &run.thread[run.current];
    t->state = AT_BARRIER;
    t->file = file;
    t->line = line;
    give_way();
}

uint64_t ds_sim_meet(int meeting, unsigned mask, uint64_t value, int source, const char *file,
                     int line)
{
    struct thread *t = &run.thread[run.current];
    if (!(mask >> ds_sim_lane() & 1)) {
        trouble("%s at %s:%d with mask %08x is called by lane %d, which is not in the mask",
                meeting_name(meeting), file, line, mask, ds_sim_lane());
        give_way();
    }
    t->state = AT_MEETING;
    t->meeting = meeting;
    t->mask = mask;
    t->value = value;
    t->source = source;
    t->file = file;
    t->line = line;
    give_way();
    return t->result;
}

void ds_sim_trap(const char *what, const char *file, int line)
{
    trouble("%s at %s:%d", what, file, line);
    give_way();
}
