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

enum state : unsigned char { FRESH, READY, AT_BARRIER, AT_MEETING, ENDED };
enum { CANARY = 64, MOST_WARPS = DS_SIM_MOST_THREADS / DS_SIM_WARP };
const uint32_t POISON =
    0x7fc05eedu; /* a NaN that no kernel writes, nor the lab's: it would call an output
                                        made of it unwritten */

struct thread {
    int fiber; /* on whose stack it runs, from its beginning to its end */
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
    enum state state[DS_SIM_MOST_THREADS];
    struct thread thread[DS_SIM_MOST_THREADS];
    /* Where the block is: the warps in their order, and the lanes of the one at work in theirs. */
    unsigned short warp_order[MOST_WARPS], lane_order[DS_SIM_WARP];
    int warp_at, warp, lanes, lane_at;
    int at_one; /* lanes that came to the same meeting of all lanes in this turn */
    /* Fibers that run no thread, the last used on top; those from `started` on were never entered. */
    int free_fiber[DS_SIM_MOST_THREADS], n_free, started;
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

/* ---- what went wrong, in words ------------------------------------------------------------------- */

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

int is_at(const struct thread *t, unsigned mask, int meeting, int line)
{
    return t->mask == mask && t->meeting == meeting && t->line == line;
}

/* Whether lane l of the warp has come to the meeting at which `first` waits. */
int has_come(int warp, int l, const struct thread *first)
{
    const int i = warp * DS_SIM_WARP + l;
    return l < lanes_of(warp) && run.state[i] == AT_MEETING &&
           is_at(&run.thread[i], first->mask, first->meeting, first->line);
}

void shuffle(struct thread *t, unsigned mask)
{
    for (int l = 0; l < DS_SIM_WARP; l++) {
        if (!(mask >> l & 1))
            continue;
        if (mask >> t[l].source & 1)
            t[l].result = t[t[l].source].value;
        else
            trouble("a shuffle at %s:%d with mask %08x: lane %d reads lane %d, which is not in "
                    "the mask",
                    t[l].file, t[l].line, mask, l, t[l].source);
    }
}

void vote(struct thread *t, unsigned mask, int meeting)
{
    uint64_t votes = 0;
    for (int l = 0; l < DS_SIM_WARP; l++)
        if (mask >> l & 1)
            votes |= (uint64_t)(t[l].value != 0) << l;
    if (meeting == DS_SIM_ANY)
        votes = votes != 0;
    else if (meeting == DS_SIM_ALL)
        votes = votes == mask;
    for (int l = 0; l < DS_SIM_WARP; l++)
        if (mask >> l & 1)
            t[l].result = votes;
}

void gather(struct thread *t, unsigned mask, uint64_t *all)
{
    for (int l = 0; l < DS_SIM_WARP; l++)
        if (mask >> l & 1) {
            all[l] = t[l].value;
            t[l].result = reinterpret_cast<uintptr_t>(all);
        }
}

/* All lanes of the mask are at the same one. */
void hold_meeting(int warp, unsigned mask, int meeting)
{
    struct thread *t = &run.thread[warp * DS_SIM_WARP];
    for (int l = 0; l < DS_SIM_WARP; l++)
        if (mask >> l & 1)
            run.state[warp * DS_SIM_WARP + l] = READY;
    if (meeting == DS_SIM_SHUFFLE)
        shuffle(t, mask);
    else if (meeting == DS_SIM_GATHER)
        gather(t, mask, run.gathered[warp]);
    else if (meeting != DS_SIM_SYNCWARP)
        vote(t, mask, meeting);
}

/* Holds the meetings for which all lanes have come; how many. */
int hold_meetings(int warp)
{
    int held = 0;
    const int lanes = lanes_of(warp);
    const struct thread *one = &run.thread[warp * DS_SIM_WARP];
    /* Mostly all came to one, in this turn: the first of them was compared with itself. */
    if (run.at_one == lanes && one->mask == 0xffffffffu >> (DS_SIM_WARP - lanes)) {
        hold_meeting(warp, one->mask, one->meeting);
        return 1;
    }
    for (int l = 0; l < lanes; l++) {
        const struct thread *first = &run.thread[warp * DS_SIM_WARP + l];
        if (run.state[warp * DS_SIM_WARP + l] != AT_MEETING)
            continue;
        const unsigned mask = first->mask;
        int all = 1;
        for (int m = 0; m < DS_SIM_WARP && all; m++)
            all = !(mask >> m & 1) || has_come(warp, m, first);
        if (all) {
            hold_meeting(warp, mask, first->meeting);
            held++;
        }
    }
    return held;
}

/* ---- who does not come --------------------------------------------------------------------------- */

void describe_missing(int i, char *out, size_t size)
{
    const struct thread *t = &run.thread[i];
    if (i >= run.threads)
        snprintf(out, size, "does not exist");
    else if (run.state[i] == ENDED)
        snprintf(out, size, "has ended");
    else if (run.state[i] == AT_BARRIER)
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
        if (run.state[i] != AT_MEETING)
            continue;
        for (int m = 0; m < DS_SIM_WARP; m++) {
            if (!(t->mask >> m & 1) || has_come(warp, m, t))
                continue;
            describe_missing(warp * DS_SIM_WARP + m, missing, sizeof missing);
            trouble("%s at %s:%d with mask %08x, warp %d: lane %d %s", meeting_name(t->meeting),
                    t->file, t->line, t->mask, warp, m, missing);
            return 1;
        }
    }
    return 0;
}

int at_barrier_of(int i, const struct thread *first)
{
    const struct thread *t = &run.thread[i];
    return run.state[i] == AT_BARRIER && t->line == first->line &&
           (t->file == first->file || strcmp(t->file, first->file) == 0);
}

/* All that have not ended wait at barriers: whether it is one barrier for the whole block. */
int at_one_barrier(void)
{
    char missing[160];
    const struct thread *first = nullptr;
    int came = 0, other = -1;
    for (int i = 0; i < run.threads && !first; i++)
        if (run.state[i] == AT_BARRIER)
            first = &run.thread[i];
    for (int i = 0; i < run.threads; i++) {
        const int is_there = at_barrier_of(i, first);
        came += is_there;
        other = !is_there && other < 0 ? i : other;
    }
    if (other < 0)
        return 1;
    const struct ds_sim_dim *at = &run.thread[other].index;
    describe_missing(other, missing, sizeof missing);
    trouble("divergent __syncthreads: %d of %d threads wait at %s:%d, thread (%u,%u,%u) %s", came,
            run.threads, first->file, first->line, at->x, at->y, at->z, missing);
    return 0;
}

int count_in(enum state s)
{
    int n = 0;
    for (int i = 0; i < run.threads; i++)
        n += run.state[i] == s;
    return n;
}

/* ---- who comes next ------------------------------------------------------------------------------ */

void begin_turn(void)
{
    run.lane_at = run.at_one = 0;
    make_order(run.lane_order, run.lanes);
}

/* To the warp whose turn it is. */
void begin_warp(void)
{
    run.warp = run.warp_order[run.warp_at];
    run.lanes = lanes_of(run.warp);
    begin_turn();
}

void begin_round(void)
{
    make_order(run.warp_order, run.warps);
    run.warp_at = 0;
    begin_warp();
}

/* Every thread has ended or waits for other warps, or for lanes that do not come: whether they go on. */
int leave_barrier(void)
{
    if (count_in(ENDED) == run.threads || tell_missing_lane() || !at_one_barrier())
        return 0;
    memset(run.state, READY, (size_t)run.threads * sizeof *run.state);
    begin_round();
    return 1;
}

/* The thread that runs now; -1: the block is over, or the launch. Warp after warp: each thread of it until it waits or ends,
 * again as long as meetings of the warp are held. */
int next_thread(void)
{
    while (!*run.trouble) {
        while (run.lane_at < run.lanes) {
            const int t = run.warp * DS_SIM_WARP + run.lane_order[run.lane_at++];
            if (run.state[t] <= READY)
                return t;
        }
        if (hold_meetings(run.warp)) {
            begin_turn();
        } else if (++run.warp_at < run.warps) {
            begin_warp();
        } else if (!leave_barrier()) {
            break;
        }
    }
    return -1;
}

/* ---- threads ----------------------------------------------------------------------------------- */

void run_threads(void);

/* Thread t on that fiber's stack. */
void begin(int t, int fiber)
{
    run.thread[t].fiber = fiber;
    run.state[t] = READY;
}

/* Makes t the one that runs; on which fiber. */
struct ds_fiber *fiber_of(int t)
{
    if (t < 0)
        return ds_fiber_home();
    run.current = t;
    ds_sim_here.thread = run.thread[t].index;
    if (run.state[t] == FRESH) {
        if (run.n_free == 0) {
            run.free_fiber[run.n_free++] = run.started;
            ds_fiber_start(ds_fiber_at(run.started++), run_threads);
        }
        begin(t, run.free_fiber[--run.n_free]);
    }
    return ds_fiber_at(run.thread[t].fiber);
}

/* What a fiber does: a thread from its beginning to its end, and the next one that has not begun, as long as it is such a
 * one's turn; so threads that meet nobody run one after the other as in a loop. */
void run_threads(void)
{
    ds_fiber_entered();
    const int own = run.thread[run.current].fiber;
    for (;;) {
        run.launch->body(run.launch->arg);
        run.state[run.current] = ENDED;
        const int t = next_thread();
        run.free_fiber[run.n_free++] = own;
        struct ds_fiber *to = fiber_of(t);
        if (to != ds_fiber_at(own))
            ds_fiber_go(ds_fiber_at(own), to);
    }
}

/* The thread that runs waits, or is never to go on. */
void give_way(void)
{
    struct ds_fiber *own = ds_fiber_at(run.thread[run.current].fiber),
                    *to = fiber_of(next_thread());
    if (to != own)
        ds_fiber_go(own, to);
}

/* ---- blocks -------------------------------------------------------------------------------------- */

__attribute__((no_sanitize("address"))) void poison(char *begin, const char *end)
{
    const uint64_t two = (uint64_t)POISON << 32 | POISON;
    for (; begin + 4 * sizeof two <= end; begin += 4 * sizeof two) {
        memcpy(begin, &two, sizeof two);
        memcpy(begin + sizeof two, &two, sizeof two);
        memcpy(begin + 2 * sizeof two, &two, sizeof two);
        memcpy(begin + 3 * sizeof two, &two, sizeof two);
    }
    for (; begin + sizeof POISON <= end; begin += sizeof POISON)
        memcpy(begin, &POISON, sizeof POISON);
}

void start_launch(const struct ds_sim_launch *l)
{
    const struct ds_sim_dim *d = &l->block;
    run.launch = l;
    run.threads = (int)(d->x * d->y * d->z);
    run.warps = (run.threads + DS_SIM_WARP - 1) / DS_SIM_WARP;
    run.random = (l->schedule.seed + 1) * 0x9e3779b97f4a7c15u;
    run.random += !run.random;
    run.trouble[0] = '\0';
    for (unsigned i = 0; i < (unsigned)run.threads; i++)
        run.thread[i].index = {i % d->x, i / d->x % d->y, i / d->x / d->y};
    ds_sim_here.block_dim = l->block;
    ds_sim_here.grid_dim = l->grid;
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
    memset(run.state, FRESH, (size_t)run.threads * sizeof *run.state);
    poison(run.launch->static_shared, run.launch->static_end);
    poison(run.dynamic, run.dynamic + run.launch->shared_bytes);
    begin_round();
    ds_fiber_go(ds_fiber_home(), fiber_of(next_thread()));
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
    pthread_mutex_lock(&one_at_a_time);
    start_launch(l);
#if defined(__SANITIZE_ADDRESS__)
    run.dynamic = static_cast<char *>(malloc(l->shared_bytes ? l->shared_bytes : 1));
#else
    run.dynamic = static_cast<char *>(malloc(l->shared_bytes + CANARY));
    if (run.dynamic)
        memset(run.dynamic + l->shared_bytes, 0xa5, CANARY);
#endif
    if (!run.dynamic || ds_fibers_have(run.threads) != 0)
        snprintf(run.trouble, sizeof run.trouble, "kernel %s: out of memory for %d threads",
                 l->kernel, run.threads);
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
        ds_fibers_forget(run.started);
        run.started = run.n_free = 0; /* all begin anew */
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
    run.state[run.current] = AT_BARRIER;
    t->file = file;
    t->line = line;
    give_way();
}

uint64_t ds_sim_meet(int meeting, unsigned mask, uint64_t value, int source, const char *file,
                     int line)
{
    const int lane = run.current % DS_SIM_WARP;
    struct thread *t = &run.thread[run.current];
    if (!(mask >> lane & 1)) {
        trouble("%s at %s:%d with mask %08x is called by lane %d, which is not in the mask",
                meeting_name(meeting), file, line, mask, lane);
        give_way();
    }
    run.state[run.current] = AT_MEETING;
    t->meeting = meeting;
    t->mask = mask;
    t->value = value;
    t->source = source;
    t->file = file;
    t->line = line;
    run.at_one +=
        is_at(&run.thread[run.warp * DS_SIM_WARP + run.lane_order[0]], mask, meeting, line);
    give_way();
    return t->result;
}

void ds_sim_trap(const char *what, const char *file, int line)
{
    trouble("%s at %s:%d", what, file, line);
    give_way();
}
