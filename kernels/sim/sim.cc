/* sim.cc: which thread of a block comes next, and running it. See sim.h and run.h. */
#include "kernels/sim/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct ds_sim_place ds_sim_here;
struct ds_sim_run_state ds_sim_now;

/* ---- order ------------------------------------------------------------------------------------- */

unsigned ds_sim_random(unsigned below)
{
    uint64_t x = ds_sim_now.random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    ds_sim_now.random = x;
    return (unsigned)(((x >> 32) * below) >> 32);
}

namespace
{

/* order[0..n-1]: in which order n things come to run. */
void make_order(unsigned short *order, int n)
{
    for (int i = 0; i < n; i++)
        order[i] =
            (unsigned short)(ds_sim_now.launch->schedule.order == DS_SIM_REVERSED ? n - 1 - i : i);
    for (int i = n - 1; ds_sim_now.launch->schedule.order == DS_SIM_RANDOM && i > 0; i--) {
        const unsigned j = ds_sim_random((unsigned)i + 1);
        const unsigned short keep = order[i];
        order[i] = order[j];
        order[j] = keep;
    }
}

} /* namespace */

/* ---- what went wrong, in words ------------------------------------------------------------------- */

__attribute__((format(printf, 1, 2))) void ds_sim_trouble(const char *fmt, ...)
{
    char text[400];
    const struct ds_sim_dim *b = &ds_sim_here.block;
    if (*ds_sim_now.trouble)
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    snprintf(ds_sim_now.trouble, sizeof ds_sim_now.trouble, "kernel %s, block (%u,%u,%u): %s",
             ds_sim_now.launch->kernel, b->x, b->y, b->z, text);
}

/* ---- who comes next ------------------------------------------------------------------------------ */

namespace
{

void begin_turn(void)
{
    ds_sim_now.lane_at = ds_sim_now.at_one = 0;
    make_order(ds_sim_now.lane_order, ds_sim_now.lanes);
}

/* To the warp whose turn it is. */
void begin_warp(void)
{
    ds_sim_now.warp = ds_sim_now.warp_order[ds_sim_now.warp_at];
    ds_sim_now.lanes = ds_sim_lanes_of(ds_sim_now.warp);
    begin_turn();
}

} /* namespace */

void ds_sim_begin_round(void)
{
    make_order(ds_sim_now.warp_order, ds_sim_now.warps);
    ds_sim_now.warp_at = 0;
    begin_warp();
}

namespace
{

/* Every thread has ended or waits for other warps, or for lanes that do not come: whether they go on. */
int leave_barrier(void)
{
    if (!ds_sim_all_at_barrier())
        return 0;
    memset(ds_sim_now.state, DS_SIM_READY, (size_t)ds_sim_now.threads * sizeof *ds_sim_now.state);
    ds_sim_begin_round();
    return 1;
}

/* The thread that runs now; -1: the block is over, or the launch. Warp after warp: each thread of it until it waits or ends,
 * again as long as meetings of the warp are held. */
int next_thread(void)
{
    while (!*ds_sim_now.trouble) {
        while (ds_sim_now.lane_at < ds_sim_now.lanes) {
            const int t =
                ds_sim_now.warp * DS_SIM_WARP + ds_sim_now.lane_order[ds_sim_now.lane_at++];
            if (ds_sim_now.state[t] <= DS_SIM_READY)
                return t;
        }
        if (ds_sim_hold_meetings(ds_sim_now.warp)) {
            begin_turn();
        } else if (++ds_sim_now.warp_at < ds_sim_now.warps) {
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
    ds_sim_now.thread[t].fiber = fiber;
    ds_sim_now.state[t] = DS_SIM_READY;
}

/* Makes t the one that runs; on which fiber. */
struct ds_fiber *fiber_of(int t)
{
    if (t < 0)
        return ds_fiber_home();
    ds_sim_now.current = t;
    ds_sim_here.thread = ds_sim_now.thread[t].index;
    if (ds_sim_now.state[t] == DS_SIM_FRESH) {
        if (ds_sim_now.n_free == 0) {
            ds_sim_now.free_fiber[ds_sim_now.n_free++] = ds_sim_now.started;
            ds_fiber_start(ds_fiber_at(ds_sim_now.started++), run_threads);
        }
        begin(t, ds_sim_now.free_fiber[--ds_sim_now.n_free]);
    }
    return ds_fiber_at(ds_sim_now.thread[t].fiber);
}

/* What a fiber does: a thread from its beginning to its end, and the next one that has not begun, as long as it is such a
 * one's turn; so threads that meet nobody run one after the other as in a loop. */
void run_threads(void)
{
    ds_fiber_entered();
    const int own = ds_sim_now.thread[ds_sim_now.current].fiber;
    for (;;) {
        ds_sim_now.launch->body(ds_sim_now.launch->arg);
        ds_sim_now.state[ds_sim_now.current] = DS_SIM_ENDED;
        const int t = next_thread();
        ds_sim_now.free_fiber[ds_sim_now.n_free++] = own;
        struct ds_fiber *to = fiber_of(t);
        if (to != ds_fiber_at(own))
            ds_fiber_go(ds_fiber_at(own), to);
    }
}

} /* namespace */

struct ds_fiber *ds_sim_next_fiber(void)
{
    return fiber_of(next_thread());
}

void ds_sim_give_way(void)
{
    struct ds_fiber *own = ds_fiber_at(ds_sim_now.thread[ds_sim_now.current].fiber),
                    *to = fiber_of(next_thread());
    if (to != own)
        ds_fiber_go(own, to);
}

/* ---- for threads ----------------------------------------------------------------------------------- */

void *ds_sim_dynamic_shared(void)
{
    return ds_sim_now.dynamic;
}

int ds_sim_lane(void)
{
    return ds_sim_now.current % DS_SIM_WARP;
}

void ds_sim_syncthreads(const char *file, int line)
{
    struct ds_sim_thread *t = &ds_sim_now.thread[ds_sim_now.current];
    ds_sim_now.state[ds_sim_now.current] = DS_SIM_AT_BARRIER;
    t->file = file;
    t->line = line;
    ds_sim_give_way();
}

uint64_t ds_sim_meet(int meeting, unsigned mask, uint64_t value, int source, const char *file,
                     int line)
{
    const int lane = ds_sim_now.current % DS_SIM_WARP;
    struct ds_sim_thread *t = &ds_sim_now.thread[ds_sim_now.current];
    if (!(mask >> lane & 1)) {
        ds_sim_trouble("%s at %s:%d with mask %08x is called by lane %d, which is not in the mask",
                       ds_sim_meeting_name(meeting), file, line, mask, lane);
        ds_sim_give_way();
    }
    ds_sim_now.state[ds_sim_now.current] = DS_SIM_AT_MEETING;
    t->meeting = meeting;
    t->mask = mask;
    t->value = value;
    t->source = source;
    t->file = file;
    t->line = line;
    ds_sim_now.at_one +=
        ds_sim_is_at(&ds_sim_now.thread[ds_sim_now.warp * DS_SIM_WARP + ds_sim_now.lane_order[0]],
                     mask, meeting, line);
    ds_sim_give_way();
    return t->result;
}

void ds_sim_trap(const char *what, const char *file, int line)
{
    ds_sim_trouble("%s at %s:%d", what, file, line);
    ds_sim_give_way();
}
