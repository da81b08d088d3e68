/* check_speed.c: how fast a variant is beside the vendor's, in turns, so that a machine that is busy
 * slows both. Figures, no judgement. */
#include "kernels/lab/check_rows.h"

#include "kernels/lab/timing.h"
#include "kernels/registry.h"

#include <stdio.h>

static const double SAMPLE_SECONDS = 2e-3, LONGEST_CALL = 0.15, MOST_SECONDS = 1.5;
enum { ROUNDS = 5 };

static int launch(void *subject, struct ds_error *err)
{
    return ds_subject_again(subject, err);
}

static int timed(void *subject, long calls, double *seconds, struct ds_error *err)
{
    return ds_subject_time(subject, calls, 0, seconds, err);
}

static int bind_team(void *subject, const int *cpus, int n)
{
    return ds_subject_bind(subject, cpus, n);
}

/* One point: 1 = measured, 0 = too slow to be worth it. The vendor's is the contender that ratios
 * refer to. */
static int measure(struct ds_check *c, const struct ds_call *call, struct ds_subject *vendor,
                   struct ds_speed_point *p)
{
    const struct ds_timing_plan plan = {.clock = call->threads == 1 ? CLOCK_PROCESS_CPUTIME_ID
                                                                    : CLOCK_MONOTONIC,
                                        .min_rounds = ROUNDS,
                                        .sample = SAMPLE_SECONDS,
                                        .longest_call = LONGEST_CALL,
                                        .most_seconds = MOST_SECONDS,
                                        .threads = call->threads};
    struct ds_subject *subject[2] = {vendor, c->subject};
    struct ds_contender contender[2];
    struct ds_timing time[2];
    double noise;
    const size_t first = vendor ? 0 : 1, n = 2 - first;
    for (size_t i = 0; i < n; i++) {
        if (ds_subject_ready(subject[first + i], call, c->err) != 0)
            return -1;
        contender[i] =
            (struct ds_contender){.run = launch,
                                  .arg = subject[first + i],
                                  .bind = bind_team,
                                  .timed = ds_subject_arena(c->subject)->device ? timed : NULL};
    }
    int rc = ds_time_side_by_side(contender, n, &plan, time, &noise, NULL, c->err);
    const struct ds_timing *mine = &time[n - 1];
    if (rc != 0 || !mine->rounds)
        return rc < 0 ? -1 : 0;
    *p = (struct ds_speed_point){.rows = ds_call_rows(call),
                                 .threads = call->threads,
                                 .seconds = mine->median,
                                 .work = ds_subject_work(c->subject, call),
                                 .bytes = ds_subject_bytes(c->subject, call)};
    if (vendor) {
        p->ratio = mine->ratio;
        p->low = mine->ratio_low;
        p->high = mine->ratio_high;
        p->noise = noise;
    }
    return 1;
}

int ds_check_speed(struct ds_check *c, const struct ds_call *call, int n)
{
    const struct ds_kernel *v = c->opt->vendor;
    struct ds_subject *vendor = NULL;
    struct ds_error absent;
    char why[256];
    int rc = 0;
    if (v && ds_kernel_available(v, why, sizeof why) == 0) {
        snprintf(c->out->vendor, sizeof c->out->vendor, "%s", v->name);
        vendor = ds_subject_new(v, ds_subject_shape(c->subject), c->opt->seed, &absent);
    }
    for (int i = 0; i < n && rc >= 0 && c->out->n_speeds < DS_MOST_SPEEDS; i++) {
        rc = measure(c, &call[i], vendor, &c->out->speed[c->out->n_speeds]);
        c->out->n_speeds += rc == 1;
    }
    ds_subject_free(vendor);
    return rc < 0 ? -1 : 0;
}

int ds_rows_speed(struct ds_check *c)
{
    static const int64_t rows[] = {1, 16, 128};
    struct ds_segment seg[3];
    struct ds_call call[3];
    for (int i = 0; i < 3; i++)
        call[i] = ds_rows_call(c, &seg[i], 0, rows[i]);
    return ds_check_speed(c, call, 3);
}
