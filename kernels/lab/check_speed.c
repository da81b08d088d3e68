/* check_speed.c: how fast a variant is beside the vendor's, in turns, so that a machine that is busy
 * slows both. Figures, no judgement. */
#include "kernels/lab/check_rows.h"

#include "base/clock.h"
#include "kernels/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 7 };
static const double ROUND_SECONDS = 2e-3, MOST_SECONDS = 0.15;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int times_for(double one)
{
    double n = one > 0 ? ROUND_SECONDS / one : 1;
    return n < 1 ? 1 : n > 200 ? 200 : (int)n;
}

/* One point: 1 = measured, 0 = too slow to be worth it. */
static int measure(struct ds_check *c, const struct ds_call *call, struct ds_subject *vendor,
                   struct ds_speed_point *p)
{
    double mine[ROUNDS], ratio[ROUNDS], first, theirs = 0;
    int rounds = ROUNDS;
    if (ds_subject_time(c->subject, call, 1, &first, c->err) != 0)
        return -1;
    if (first > MOST_SECONDS)
        return 0;
    if (vendor && ds_subject_time(vendor, call, 1, &theirs, c->err) != 0)
        return -1;
    if (first + theirs > MOST_SECONDS / 10)
        rounds = 3;
    const int times = times_for(first), their_times = times_for(theirs);
    for (int i = 0; i < rounds; i++) {
        if (ds_subject_time(c->subject, call, times, &mine[i], c->err) != 0 ||
            (vendor && ds_subject_time(vendor, call, their_times, &theirs, c->err) != 0))
            return -1;
        ratio[i] = mine[i] > 0 ? theirs / mine[i] : 0;
    }
    qsort(mine, (size_t)rounds, sizeof mine[0], by_value);
    qsort(ratio, (size_t)rounds, sizeof ratio[0], by_value);
    *p = (struct ds_speed_point){.rows = ds_call_rows(call),
                                 .threads = call->threads,
                                 .seconds = mine[rounds / 2],
                                 .work = ds_subject_work(c->subject, call),
                                 .bytes = ds_subject_bytes(c->subject, call)};
    if (vendor) {
        p->ratio = ratio[rounds / 2];
        p->low = ratio[0];
        p->high = ratio[rounds - 1];
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
