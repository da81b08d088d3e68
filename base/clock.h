/* clock.h: seconds of one of the system's clocks. */
#ifndef DS_CLOCK_H
#define DS_CLOCK_H

#include <time.h>

/* CLOCK_MONOTONIC for time that passed, CLOCK_PROCESS_CPUTIME_ID for CPU time of all threads, or
 * the CPU clock of one thread. 0 if the system does not have the clock. */
static inline double ds_seconds(clockid_t clock)
{
    struct timespec ts;
    return clock_gettime(clock, &ts) == 0 ? (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec : 0.0;
}

#endif
