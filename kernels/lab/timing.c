/* timing.c: contenders timed side by side, round by round. Must not know what they do. */
#include "kernels/lab/timing.h"

#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct ds_spread ds_spread_of(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return (struct ds_spread){.low = v[n / 4],
                              .median = v[n / 2],
                              .high = v[n - 1 - n / 4],
                              .min = v[0],
                              .max = v[n - 1]};
}

/* Slot 0 and slot n both belong to contender 0: its second run of a round is the measure of noise. */
struct race {
    const struct ds_contender *contenders;
    const struct ds_timing_plan *plan;
    size_t n;
    long calls[DS_TIMING_MAX_CONTENDERS];  /* calls that make a sample; 0: left out */
    double took[DS_TIMING_MAX_CONTENDERS]; /* one call, by the monotonic clock */
    struct ds_placement *placement;
    struct ds_placed *placed;
    double *seconds; /* [n + 1][DS_TIMING_MAX_ROUNDS], of one call */
    double *wall;    /* the same by the monotonic clock */
    int asleep[DS_TIMING_MAX_CONTENDERS +
               1]; /* samples in which the caller gave up its CPU itself */
    int rounds;
    uint64_t shuffle;
};

static const struct ds_contender *of_slot(const struct race *r, size_t slot)
{
    return &r->contenders[slot == r->n ? 0 : slot];
}

static long calls_of_slot(const struct race *r, size_t slot)
{
    return r->calls[slot == r->n ? 0 : slot];
}

static void place(struct race *r, const struct ds_contender *c)
{
    int n_cpus;
    const int *cpus = ds_placement_cpus(r->placement, &n_cpus);
    ds_placement_sweep(r->placement);
    if (!n_cpus || !c->bind)
        return;
    const int bound = c->bind(c->arg, cpus, n_cpus);
    r->placed->own += bound;
    r->placed->others -= bound;
}

/* So many runs, by the contender's own clock or the plan's, and by the monotonic one. */
static int run_calls(const struct race *r, const struct ds_contender *c, long calls,
                     double *seconds, double *wall, struct ds_error *err)
{
    const double begin = ds_seconds(CLOCK_MONOTONIC), start = ds_seconds(r->plan->clock);
    int rc = c->timed ? c->timed(c->arg, calls, seconds, err) : 0;
    for (long i = 0; i < calls && !c->timed && rc == 0; i++)
        rc = c->run(c->arg, err);
    if (!c->timed)
        *seconds = ds_seconds(r->plan->clock) - start;
    *wall = c->timed ? *seconds : ds_seconds(CLOCK_MONOTONIC) - begin;
    return rc;
}

/* The first call warms caches and pages up; the second says how many make a sample. */
static int size_up(struct race *r, size_t i, struct ds_error *err)
{
    const struct ds_contender *c = &r->contenders[i];
    double took = 0;
    for (int again = 0; again < 2; again++) {
        double ignored;
        if (run_calls(r, c, 1, &ignored, &took, err) != 0)
            return -1;
        if (!again)
            place(r, c); /* a library has started its threads by now */
        if (i > 0 && took > r->plan->longest_call) {
            r->calls[i] = 0;
            return 0;
        }
    }
    r->took[i] = took;
    double calls = took > 0 ? ceil(r->plan->sample / took) : 1000;
    r->calls[i] = calls < 1 ? 1 : calls > 100000 ? 100000 : (long)calls;
    return 0;
}

/* How often the caller went to sleep; being preempted is not counted. 0 where the system does not
 * tell. */
static long times_asleep(void)
{
    struct rusage u;
    return getrusage(RUSAGE_THREAD, &u) == 0 ? u.ru_nvcsw : 0;
}

static int sample(struct race *r, size_t slot, struct ds_error *err)
{
    const struct ds_contender *c = of_slot(r, slot);
    const long calls = calls_of_slot(r, slot);
    if (!calls)
        return 0;
    const size_t at = slot * DS_TIMING_MAX_ROUNDS + (size_t)r->rounds;
    const long asleep = times_asleep();
    if (run_calls(r, c, calls, &r->seconds[at], &r->wall[at], err) != 0)
        return -1;
    r->seconds[at] /= (double)calls;
    r->wall[at] /= (double)calls;
    r->asleep[slot] += !c->timed && times_asleep() > asleep;
    return 0;
}

static int one_round(struct race *r, struct ds_error *err)
{
    size_t order[DS_TIMING_MAX_CONTENDERS + 1];
    for (size_t i = 0; i <= r->n; i++) {
        r->shuffle = r->shuffle * 6364136223846793005u + 1442695040888963407u;
        size_t j = (size_t)(r->shuffle >> 33) % (i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (size_t i = 0; i <= r->n; i++)
        if (sample(r, order[i], err) != 0)
            return -1;
    r->rounds++;
    return 0;
}

/* Leaves out the slowest until the rounds that have to be fit; 1: not even contender 0 does. */
static int leave_out(struct race *r)
{
    const double most = r->plan->most_seconds / r->plan->min_rounds;
    for (;;) {
        double round = r->took[0] * (double)r->calls[0];
        size_t slowest = 0;
        for (size_t i = 0; i < r->n; i++) {
            round += r->took[i] * (double)r->calls[i];
            if (i > 0 && r->calls[i] && (!slowest || r->took[i] > r->took[slowest]))
                slowest = i;
        }
        if (round <= most || !(most > 0))
            return 0;
        if (!slowest)
            return 1;
        r->calls[slowest] = 0;
    }
}

static int all_rounds(struct race *r, struct ds_error *err)
{
    int rc = 0;
    for (size_t i = 0; i < r->n && rc == 0; i++)
        rc = size_up(r, i, err);
    if (rc == 0)
        rc = leave_out(r);
    const double start = ds_seconds(CLOCK_MONOTONIC);
    while (
        rc == 0 && r->rounds < DS_TIMING_MAX_ROUNDS &&
        (r->rounds < r->plan->min_rounds || ds_seconds(CLOCK_MONOTONIC) - start < r->plan->seconds))
        rc = one_round(r, err);
    return rc;
}

static double least(const double *v, int n)
{
    double x = v[0];
    for (int i = 1; i < n; i++)
        x = v[i] < x ? v[i] : x;
    return x;
}

/* Whether CPU time leaves out what the contender spends waiting (for a device, asleep): it gives up its
 * CPU in most samples, and its wall time is a larger multiple of its CPU time than contender 0's. The
 * multiple alone says nothing on a busy machine: who runs for longer is preempted more. */
static int waits(const struct race *r, size_t slot)
{
    const double FAR = 2;
    const size_t at = slot * DS_TIMING_MAX_ROUNDS;
    return r->plan->clock != CLOCK_MONOTONIC && 2 * r->asleep[slot] > r->rounds &&
           least(r->wall + at, r->rounds) * least(r->seconds, r->rounds) >
               FAR * least(r->wall, r->rounds) * least(r->seconds + at, r->rounds);
}

static void judge(const struct race *r, size_t slot, struct ds_timing *out)
{
    double ratio[DS_TIMING_MAX_ROUNDS], time[DS_TIMING_MAX_ROUNDS];
    *out = (struct ds_timing){0};
    if (!calls_of_slot(r, slot))
        return;
    const int by_wall = waits(r, slot);
    const double *base = by_wall ? r->wall : r->seconds, *mine = base + slot * DS_TIMING_MAX_ROUNDS;
    for (int i = 0; i < r->rounds; i++) {
        time[i] = mine[i];
        ratio[i] = mine[i] > 0 ? base[i] / mine[i] : 1;
    }
    struct ds_spread t = ds_spread_of(time, r->rounds), q = ds_spread_of(ratio, r->rounds);
    *out = (struct ds_timing){.rounds = r->rounds,
                              .waits = by_wall,
                              .median = t.median,
                              .min = t.min,
                              .max = t.max,
                              .ratio = q.median,
                              .ratio_low = q.low,
                              .ratio_high = q.high};
}

int ds_time_side_by_side(const struct ds_contender *contenders, size_t n,
                         const struct ds_timing_plan *plan, struct ds_timing *out, double *noise,
                         struct ds_placed *placed, struct ds_error *err)
{
    struct ds_placed unseen;
    struct race r = {.contenders = contenders,
                     .plan = plan,
                     .n = n,
                     .shuffle = 1,
                     .placed = placed ? placed : &unseen};
    *r.placed = (struct ds_placed){.why = "left to the system"};
    if (n < 1 || n > DS_TIMING_MAX_CONTENDERS || plan->min_rounds < 1 ||
        plan->min_rounds > DS_TIMING_MAX_ROUNDS)
        return ds_fail(err, "timing: %zu contenders, %d rounds", n, plan->min_rounds);
    r.seconds = ds_calloc((n + 1) * DS_TIMING_MAX_ROUNDS, sizeof *r.seconds, "timings", err);
    r.wall = ds_calloc((n + 1) * DS_TIMING_MAX_ROUNDS, sizeof *r.wall, "timings", err);
    int rc = r.seconds && r.wall ? 0 : -1;
    if (rc == 0 && plan->threads)
        r.placement = ds_placement_take(plan->threads, r.placed);
    if (rc == 0)
        rc = all_rounds(&r, err);
    ds_placement_give_back(r.placement);
    if (rc == 0) {
        struct ds_timing again;
        for (size_t i = 0; i < n; i++)
            judge(&r, i, &out[i]);
        judge(&r, n, &again);
        double off = fabs(again.ratio - 1), wide = (again.ratio_high - again.ratio_low) / 2;
        *noise = off > wide ? off : wide;
    }
    free(r.seconds);
    free(r.wall);
    return rc;
}
