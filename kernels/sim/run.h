/* run.h: the launch that runs: what the parts of sim share. Private to kernels/sim.
 *
 * launch.cc starts it and goes through its blocks, sim.cc says which thread comes next and runs it, meetings.cc is what
 * threads wait for, fault.cc what happens when one touches what it must not. */
#ifndef DS_SIM_RUN_H
#define DS_SIM_RUN_H

#include "kernels/sim/fiber.h"
#include "kernels/sim/sim.h"

#pragma GCC visibility push(hidden)

enum ds_sim_state : unsigned char {
    DS_SIM_FRESH,
    DS_SIM_READY,
    DS_SIM_AT_BARRIER,
    DS_SIM_AT_MEETING,
    DS_SIM_ENDED
};
enum { DS_SIM_MOST_WARPS = DS_SIM_MOST_THREADS / DS_SIM_WARP };

struct ds_sim_thread {
    int fiber; /* on whose stack it runs, from its beginning to its end */
    struct ds_sim_dim index;
    int meeting;
    unsigned mask;
    uint64_t value, result;
    int source;
    const char *file; /* where it waits */
    int line;
};

/* One at a time: static shared memory is there once. */
struct ds_sim_run_state {
    const struct ds_sim_launch *launch;
    int threads, warps, current;
    uint64_t random;
    char *dynamic;
    char trouble[768]; /* not empty: the launch ends */
    enum ds_sim_state state[DS_SIM_MOST_THREADS];
    struct ds_sim_thread thread[DS_SIM_MOST_THREADS];
    /* Where the block is: the warps in their order, and the lanes of the one at work in theirs. */
    unsigned short warp_order[DS_SIM_MOST_WARPS], lane_order[DS_SIM_WARP];
    int warp_at, warp, lanes, lane_at;
    int at_one; /* lanes that came to the same meeting of all lanes in this turn */
    /* Fibers that run no thread, the last used on top; those from `started` on were never entered. */
    int free_fiber[DS_SIM_MOST_THREADS], n_free, started;
    uint64_t gathered[DS_SIM_MOST_WARPS][DS_SIM_WARP];
};
extern struct ds_sim_run_state ds_sim_now;

/* sim.cc. */
unsigned ds_sim_random(unsigned below);
/* The first thing that goes wrong is told, with kernel and block. */
__attribute__((format(printf, 1, 2))) void ds_sim_trouble(const char *fmt, ...);
void ds_sim_begin_round(void);
/* The thread that runs next, and the fiber to enter for it: home when the block is over, or the launch. */
struct ds_fiber *ds_sim_next_fiber(void);
/* The thread that runs waits, or is never to go on. */
void ds_sim_give_way(void);

/* meetings.cc. */
static inline int ds_sim_lanes_of(int warp)
{
    const int left = ds_sim_now.threads - warp * DS_SIM_WARP;
    return left < DS_SIM_WARP ? left : DS_SIM_WARP;
}
static inline int ds_sim_is_at(const struct ds_sim_thread *t, unsigned mask, int meeting, int line)
{
    return t->mask == mask && t->meeting == meeting && t->line == line;
}
const char *ds_sim_meeting_name(int meeting);
/* Holds the meetings of the warp for which all lanes have come; how many. */
int ds_sim_hold_meetings(int warp);
/* Every thread has ended or waits for other warps, or for lanes that do not come: whether all wait at one barrier.
 * 0: all have ended, or somebody waits for what does not come, which is told. */
int ds_sim_all_at_barrier(void);

/* fault.cc: in between, a touch of what no thread may touch ends the launch with a reason, where this system and CPU
 * allow it. */
void ds_sim_watch_faults(void);
void ds_sim_unwatch_faults(void);

#pragma GCC visibility pop

#endif
