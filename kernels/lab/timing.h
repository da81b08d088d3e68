/* timing.h: how long several ways of doing the same thing take on a machine that is shared.
 *
 * Absolute times move with everything else that runs; ratios taken side by side move less. So all
 * contenders run in every round, in an order that is shuffled anew, and what counts is the ratio
 * within a round. Contender 0 runs twice a round: what its own two runs differ by is the noise, and
 * a ratio is worth no more than that. */
#ifndef DS_LAB_TIMING_H
#define DS_LAB_TIMING_H

#include "base/error.h"
#include "kernels/lab/placement.h"

#include <stddef.h>
#include <time.h>

/* Does the thing once. Returns 0, or -1 with err set: the measurement ends. */
struct ds_contender {
    int (*run)(void *arg, struct ds_error *err);
    void *arg;
    /* Binds thread i of the team that run uses, the caller left out, to cpus[i % n]; returns how
     * many it bound. NULL: it has no team. */
    int (*bind)(void *arg, const int *cpus, int n);
    /* The time of so many runs by another clock than the plan's, as that of a device. NULL: none. */
    int (*timed)(void *arg, long calls, double *seconds, struct ds_error *err);
};

struct ds_timing_plan {
    clockid_t clock;     /* CPU time of the process for one thread, else the monotonic clock */
    double seconds;      /* rounds end after this, but not before min_rounds */
    int min_rounds;      /* at least 3 */
    double sample;       /* a sample repeats the thing until it lasts about so long, seconds */
    double longest_call; /* a contender whose first call takes longer is left out */
    /* 0, or: contenders are left out, the slowest first, until min_rounds fit. */
    double most_seconds;
    int threads; /* of the contenders: each gets a CPU of its own (placement.h); 0: nobody is
                            told where to run */
};

/* Seconds of one call and ratios of contender 0's time to this one's, taken round by round: above 1
 * is faster than contender 0. low, high: quartiles. */
struct ds_timing {
    int rounds; /* 0: left out, too slow */
    int waits;  /* it spends time that is no CPU time: its times and ratios are of the monotonic
                   clock, whatever the plan says */
    double median, min, max;
    double ratio, ratio_low, ratio_high;
};

enum { DS_TIMING_MAX_ROUNDS = 200, DS_TIMING_MAX_CONTENDERS = 32 };

/* Times contenders 0..n-1 (at most DS_TIMING_MAX_CONTENDERS). 1: not even contender 0 alone fits
 * into most_seconds, and nothing was measured. *placed, which may be NULL: where threads ran. *noise: how far the two runs of
 * contender 0 in a round lie apart, as a share of its time: the larger of the median's distance
 * from 1 and half the distance of the quartiles; 0.1 and more is too much to judge by. Contender 0
 * is never left out alone. */
int ds_time_side_by_side(const struct ds_contender *contenders, size_t n,
                         const struct ds_timing_plan *plan, struct ds_timing *out, double *noise,
                         struct ds_placed *placed, struct ds_error *err);

/* Median and quartiles of v[0..n-1], n >= 1, which is sorted in place. */
struct ds_spread {
    double low, median, high, min, max;
};
struct ds_spread ds_spread_of(double *v, int n);

#endif
