/* launch.cc: a launch: whether a device would take it, its blocks one after the other, what it leaves behind. See sim.h and
 * run.h. */
#include "kernels/sim/graph.h"
#include "kernels/sim/memory.h"
#include "kernels/sim/run.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

namespace
{

enum { CANARY = 64 };
/* A NaN that no kernel writes, nor the lab's: it would call an output made of it unwritten. */
const uint32_t POISON = 0x7fc05eedu;

pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
int failed;
char the_stream; /* its address is one that nobody else has */

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
    ds_sim_now.launch = l;
    ds_sim_now.threads = (int)(d->x * d->y * d->z);
    ds_sim_now.warps = (ds_sim_now.threads + DS_SIM_WARP - 1) / DS_SIM_WARP;
    ds_sim_now.random = (l->schedule.seed + 1) * 0x9e3779b97f4a7c15u;
    ds_sim_now.random += !ds_sim_now.random;
    ds_sim_now.trouble[0] = '\0';
    for (unsigned i = 0; i < (unsigned)ds_sim_now.threads; i++)
        ds_sim_now.thread[i].index = {i % d->x, i / d->x % d->y, i / d->x / d->y};
    ds_sim_here.block_dim = l->block;
    ds_sim_here.grid_dim = l->grid;
}

void check_canary(void)
{
#if !defined(__SANITIZE_ADDRESS__)
    for (int i = 0; i < CANARY; i++)
        if ((unsigned char)ds_sim_now.dynamic[ds_sim_now.launch->shared_bytes + (size_t)i] != 0xa5)
            return ds_sim_trouble("wrote behind its %zu bytes of dynamic shared memory",
                                  ds_sim_now.launch->shared_bytes);
#endif
}

void run_block(void)
{
    memset(ds_sim_now.state, DS_SIM_FRESH, (size_t)ds_sim_now.threads * sizeof *ds_sim_now.state);
    poison(ds_sim_now.launch->static_shared, ds_sim_now.launch->static_end);
    poison(ds_sim_now.dynamic, ds_sim_now.dynamic + ds_sim_now.launch->shared_bytes);
    ds_sim_begin_round();
    ds_fiber_go(ds_fiber_home(), ds_sim_next_fiber());
    if (!*ds_sim_now.trouble)
        check_canary();
}

/* Block number i of a random order without a table: steps of a size that shares no factor with n. */
uint64_t coprime_step(uint64_t n)
{
    for (;;) {
        const uint64_t step = 1 + ds_sim_random(n > 0xffffffffu ? 0xffffffffu : (unsigned)n);
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
    const struct ds_sim_dim *g = &ds_sim_now.launch->grid;
    const uint64_t n = (uint64_t)g->x * g->y * g->z;
    const int order = ds_sim_now.launch->schedule.order;
    uint64_t at = order == DS_SIM_REVERSED ? n - 1 : 0, step = order == DS_SIM_REVERSED ? n - 1 : 1;
    if (order == DS_SIM_RANDOM) {
        at = ds_sim_random(n > 0xffffffffu ? 0xffffffffu : (unsigned)n);
        step = coprime_step(n);
    }
    for (uint64_t i = 0; i < n && !*ds_sim_now.trouble; i++) {
        ds_sim_here.block = {(unsigned)(at % g->x), (unsigned)(at / g->x % g->y),
                             (unsigned)(at / g->x / g->y)};
        run_block();
        at = (uint64_t)(((unsigned __int128)at + step) % n);
    }
}

/* With its arrays open, and those that it reaches in other ways from then on. */
void run_in_its_memory(void)
{
    char beside[128];
    const struct ds_sim_launch *l = ds_sim_now.launch;
    ds_sim_memory_begin(l->arg, l->arg_bytes);
    ds_sim_watch_faults();
    run_grid();
    ds_sim_unwatch_faults();
    if (ds_sim_memory_end(beside, sizeof beside) != 0 && !*ds_sim_now.trouble)
        snprintf(ds_sim_now.trouble, sizeof ds_sim_now.trouble,
                 "kernel %s on (%u,%u,%u) blocks of (%u,%u,%u) threads %s", l->kernel, l->grid.x,
                 l->grid.y, l->grid.z, l->block.x, l->block.y, l->block.z, beside);
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
    if (l->most_threads && (int)(b->x * b->y * b->z) > l->most_threads) {
        char what[96];
        snprintf(what, sizeof what, "more threads than the %d of its __launch_bounds__",
                 l->most_threads);
        return refuse(l, why, size, what);
    }
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

/* Work on another stream than the one that the call's other work is on is waited for by nobody. */
int check_stream(const struct ds_sim_launch *l, char *why, size_t size)
{
    if (!l->on_device || l->stream == ds_sim_stream())
        return 0;
    snprintf(why, size,
             "kernel %s is launched on another stream than the call's: nothing waits for it, nor "
             "it for what it reads",
             l->kernel);
    failed = 1;
    return -1;
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
            failed = 1;
            return -1;
        }
    }
    return 0;
}

} /* namespace */

int ds_sim_run(const struct ds_sim_launch *l, char *why, size_t why_size)
{
    failed = 0;
    if (check_launch(l, why, why_size) != 0 || check_stream(l, why, why_size) != 0 ||
        check_arguments(l, why, why_size) != 0)
        return -1;
    if (ds_sim_recording()) {
        ds_sim_record_launch(l);
        return 0;
    }
    pthread_mutex_lock(&one_at_a_time);
    start_launch(l);
#if defined(__SANITIZE_ADDRESS__)
    ds_sim_now.dynamic = static_cast<char *>(malloc(l->shared_bytes ? l->shared_bytes : 1));
#else
    ds_sim_now.dynamic = static_cast<char *>(malloc(l->shared_bytes + CANARY));
    if (ds_sim_now.dynamic)
        memset(ds_sim_now.dynamic + l->shared_bytes, 0xa5, CANARY);
#endif
    if (!ds_sim_now.dynamic || ds_fibers_have(ds_sim_now.threads) != 0)
        snprintf(ds_sim_now.trouble, sizeof ds_sim_now.trouble,
                 "kernel %s: out of memory for %d threads", l->kernel, ds_sim_now.threads);
    else {
        run_in_its_memory();
        failed = *ds_sim_now.trouble != '\0';
    }
    free(ds_sim_now.dynamic);
    ds_sim_now.dynamic = nullptr;
    const int rc = *ds_sim_now.trouble ? -1 : 0;
    if (rc != 0) {
        snprintf(why, why_size, "%s", ds_sim_now.trouble);
        ds_fibers_forget(ds_sim_now.started);
        ds_sim_now.started = ds_sim_now.n_free = 0; /* all begin anew */
    }
    pthread_mutex_unlock(&one_at_a_time);
    return rc;
}

int ds_sim_failed(void)
{
    return failed;
}

void *ds_sim_stream(void)
{
    return &the_stream;
}

struct ds_sim_schedule ds_sim_schedule_of(const struct ds_exec *exec)
{
    const uint64_t seed = exec ? exec->seed : 0;
    if (exec && exec->pause)
        return {seed % 3 == 0 ? DS_SIM_REVERSED : DS_SIM_RANDOM, seed};
    return {seed > 1 ? DS_SIM_RANDOM : DS_SIM_IN_ORDER, seed};
}
