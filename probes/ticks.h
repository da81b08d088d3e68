/* ticks.h: a clock cheap enough to be read twice at every site. Inside probes/ only.
 *
 * A decode token passes some 500 sites; the budget is 0.5 % of about 25 ms, or 250 ns a site with
 * the hashing. Reading CLOCK_THREAD_CPUTIME_ID is a system call (200 to 300 ns). So time in probes
 * is taken with the CPU's time stamp counter where it is invariant (about 10 ns), else with
 * CLOCK_MONOTONIC. That is wall time, and it is CPU time as long as the thread is not preempted;
 * ds_usage tells, once per call, whether it was. */
#ifndef DS_TICKS_H
#define DS_TICKS_H

#include <stdint.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

struct ds_ticks {
    int tsc;        /* ticks are time stamp counts; else nanoseconds */
    uint64_t start; /* both clocks when it was set up: their later distance gives the rate */
    uint64_t start_ns;
};

/* Nanoseconds of CLOCK_MONOTONIC. */
static inline uint64_t ds_ticks_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline uint64_t ds_ticks_now(const struct ds_ticks *t)
{
#if defined(__x86_64__)
    if (t->tsc)
        return __rdtsc();
#endif
    (void)t;
    return ds_ticks_ns();
}

void ds_ticks_init(struct ds_ticks *t);
/* Seconds that `ticks` last, by the rate seen since init. */
double ds_ticks_seconds(const struct ds_ticks *t, double ticks);

/* What the calling thread used so far. Two system calls. */
struct ds_usage {
    double cpu_s;
    long preempted; /* involuntary switches */
    uint64_t ns;    /* CLOCK_MONOTONIC */
};
void ds_usage_read(struct ds_usage *u);
/* The share of the wall time from a to b in which the thread ran: 1 if it was never preempted. */
double ds_usage_share(const struct ds_usage *a, const struct ds_usage *b);

#endif
