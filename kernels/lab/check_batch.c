/* check_batch.c: the same row in calls of other sizes, for ops whose rows stand alone: which row counts are
 * tried, in which order, and what they gave. */
#include "kernels/lab/check_rows.h"

#include "base/mem.h"
#include "base/plural.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 512, LISTED = 64 };

/* Row counts in the order in which they are tried. */
struct counts {
    int64_t rows[MOST_ROWS];
    int n;
    int far
        [2]; /* first and behind the last of those above LISTED at which the launch choice changes */
};

static void add_count(struct counts *k, int64_t rows)
{
    for (int i = 0; i < k->n; i++)
        if (k->rows[i] == rows)
            return;
    k->rows[k->n++] = rows;
}

static const int64_t large_counts[] = {96, 128, 129, 256, 257, 512};
enum { N_LARGE = 6, N_COUNTS = LISTED + N_LARGE, EACH_UP_TO = 128 };

static int64_t count_at(int i)
{
    return i < LISTED ? i + 1 : large_counts[i - LISTED];
}

/* What describe says of so many rows. */
static int choice_of(struct ds_check *c, const struct ds_choice_of *of, int32_t rows,
                     struct ds_launch_info *info)
{
    struct ds_segment seg;
    struct ds_call call = ds_rows_call(c, &seg, 0, rows);
    call.threads = of->threads;
    return ds_check_describe(c, &call, info);
}

int ds_rows_borders(struct ds_check *c, int threads, struct ds_borders *out)
{
    const struct ds_choice_of of = {.threads = threads};
    return ds_borders_find(c, &of, choice_of, MOST_ROWS, out);
}

/* Both sides of each border in a stretch of row counts, new choices first. */
static void add_borders(struct counts *k, const struct ds_borders *b, int32_t above, int32_t up_to)
{
    int32_t at[MOST_ROWS];
    const size_t n = ds_borders_pick(b, above, up_to, MOST_ROWS, at);
    for (size_t i = 0; i < n; i++) {
        add_count(k, at[i] - 1);
        add_count(k, at[i]);
    }
}

/* The borders of each launch choice first, then powers of two, then the rest in ascending order: what
 * the budget leaves out is what is least likely to matter. */
static int order_counts(struct ds_check *c, int threads, struct counts *k)
{
    struct ds_borders borders;
    int rc = ds_rows_borders(c, threads, &borders);
    k->n = 0;
    add_count(k, 1);
    if (rc == 0)
        add_borders(k, &borders, 1, LISTED);
    for (int64_t rows = 1; rows <= MOST_ROWS; rows *= 2)
        add_count(k, rows);
    k->far[0] = k->n;
    if (rc == 0)
        add_borders(k, &borders, LISTED, MOST_ROWS);
    k->far[1] = k->n;
    for (int i = 0; i < N_COUNTS; i++)
        add_count(k, count_at(i));
    ds_borders_free(&borders);
    return rc;
}

/* Every count between those above, the largest first: each of its rows is a reference for the rest. */
static void counts_between(const struct ds_check *c, struct counts *k)
{
    *k = (struct counts){.n = 0};
    add_count(k, 3); /* small enough for its rows to be right */
    for (int64_t rows = c->opt->full ? MOST_ROWS : EACH_UP_TO; rows > LISTED; rows--)
        add_count(k, rows);
}

/* What position p gave in the first call that had it. */
struct seen {
    uint32_t *bits;
    int64_t rows; /* of that call */
    struct ds_launch_info launch;
};

static int see(struct ds_check *c, struct seen *s, const struct ds_output *out, int64_t p)
{
    s->bits = ds_calloc((size_t)out->width, sizeof *s->bits, "reference rows", c->err);
    if (!s->bits)
        return -1;
    memcpy(s->bits, ds_rows_row(out, p), (size_t)out->width * sizeof *s->bits);
    s->rows = out->rows;
    s->launch = out->launch;
    return 0;
}

static void batch_pair(struct ds_check *c, int64_t p, int64_t a, int64_t b, int threads)
{
    char with[32] = "";
    const int64_t low = a < b ? a : b, high = a < b ? b : a;
    if (threads != 1)
        snprintf(with, sizeof with, ", %d threads", threads);
    if (low == 1)
        ds_check_pair(c, "row 0 alone against row 0 of %lld rows%s", (long long)high, with);
    else
        ds_check_pair(c, "row %lld of %lld rows against row %lld of %lld rows%s", (long long)p,
                      (long long)low, (long long)p, (long long)high, with);
}

/* Beside DS_ROWS_SAMPLES, the sample of the counts between. */
enum { SAMPLED_ROWS = 16, BETWEEN = DS_ROWS_SAMPLES };

/* One call: each row against the same row at the same position of another call. Positions stay, so
 * only the number of rows can be to blame. */
static int batch_call(struct ds_check *c, int64_t rows, int threads, int sample, struct seen *seen,
                      struct ds_classes *classes, int64_t *at)
{
    struct ds_rows_own *o = c->own;
    struct ds_segment seg;
    struct ds_call call = ds_rows_call(c, &seg, 0, rows);
    ds_rows_take_sample(&seg, sample);
    call.threads = threads;
    call.bias = ds_rows_takes_bias(c) && (sample % 3 == 1 || sample == BETWEEN);
    int rc = ds_check_launch(c, &call, &o->out);
    for (int64_t p = 0; rc == 1 && p < rows; p++) {
        ds_classes_add(&classes[p], rows, ds_rows_row(&o->out, p), o->out.width);
        if (!seen[p].bits) {
            if (see(c, &seen[p], &o->out, p) != 0)
                return -1;
            continue;
        }
        const int64_t high = rows > seen[p].rows ? rows : seen[p].rows;
        const double cost =
            1e6 * (threads != c->opt->threads[0]) + (double)high + 1e-3 * (double)p + 1e-6 * sample;
        char other[32];
        snprintf(other, sizeof other, "%lld row%s", (long long)seen[p].rows,
                 ds_plural(seen[p].rows));
        const int smallest = ds_rows_differs(c, &call, seen[p].bits, p, cost, other);
        if (smallest < 0)
            return -1;
        if (smallest) {
            batch_pair(c, p, seen[p].rows, rows, threads);
            ds_check_choices(c, &seen[p].launch, &o->out.launch);
            *at = p;
        }
    }
    return rc < 0 ? -1 : 0;
}

/* The rows that only the largest call had, at the start of a call of as many rows: other positions, and
 * nothing else, since the number of rows is batch's. */
static int batch_moved(struct ds_check *c, int threads, const struct seen *seen)
{
    enum { FROM = 257 };
    struct ds_rows_own *o = c->own;
    struct ds_property_result *batch = c->property;
    const struct ds_segment seg[2] = {{.first = FROM, .length = MOST_ROWS - FROM},
                                      {.length = FROM}};
    struct ds_call call = ds_check_call(c, seg, 2);
    call.threads = threads;
    if (!seen[MOST_ROWS - 1].bits)
        return 0;
    int rc = ds_check_launch(c, &call, &o->out);
    if (!c->opt->only || c->opt->only >> DS_PROPERTY_SLOT & 1)
        c->property = &c->out->property[DS_PROPERTY_SLOT];
    for (int64_t p = 0; rc == 1 && p < MOST_ROWS - FROM; p++) {
        const int64_t from = FROM + p;
        const double cost = 1e6 * (threads != c->opt->threads[0]) + MOST_ROWS + 1e-3 * (double)from;
        const int smallest =
            seen[from].bits && seen[from].rows == MOST_ROWS
                ? ds_rows_differs(c, &call, seen[from].bits, p, cost, "512 rows, 257 places on")
                : 0;
        if (smallest < 0)
            rc = -1;
        if (smallest > 0) {
            ds_check_pair(c, "row %lld of %lld rows against the same row as row %lld of %lld",
                          (long long)p, (long long)ds_call_rows(&call), (long long)from,
                          (long long)seen[from].rows);
            ds_check_choices(c, &seen[from].launch, &o->out.launch);
            ds_classes_drop(c);
        }
    }
    c->property = batch;
    return rc < 0 ? -1 : 0;
}

/* Of the budget, for borders at large row counts: those behind it wait until the listed counts are done. */
static const double FAR_SHARE = 0.25;

/* Whether a count is one of those that have to wait. */
static int waits(struct ds_check *c, const struct counts *k, int i, int threads, double *purse)
{
    struct ds_segment seg;
    struct ds_call call = ds_rows_call(c, &seg, 0, k->rows[i]);
    if (i < k->far[0] || i >= k->far[1] || c->opt->full)
        return 0;
    call.threads = threads;
    const double cost = ds_check_cost(c, &call);
    if (cost > *purse)
        return 1;
    *purse -= cost;
    return 0;
}

static int batch_counts(struct ds_check *c, const struct counts *k, int threads, int sample,
                        struct seen *seen, struct ds_classes *classes, int64_t *at)
{
    double purse = c->budget * FAR_SHARE;
    char later[MOST_ROWS] = {0};
    int rc = 0;
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; rc == 0 && i < k->n; i++) {
            if (sample != 0 && sample != BETWEEN && k->rows[i] > SAMPLED_ROWS)
                continue;
            if (turn == 0)
                later[i] = (char)waits(c, k, i, threads, &purse);
            if (later[i] == turn)
                rc = batch_call(c, k->rows[i], threads, sample, seen, classes, at);
        }
    return rc;
}

/* Of the position at which the smallest pair was found, on the same rows. */
static void print_classes(struct ds_check *c, struct ds_classes *k, int64_t at, int threads,
                          int sample)
{
    size_t n = 0;
    if (at > 0 || threads != c->opt->threads[0])
        n = (size_t)snprintf(k->at, sizeof k->at, "row %lld", (long long)at);
    if (threads != c->opt->threads[0])
        snprintf(k->at + n, sizeof k->at - n, ", %d thread%s", threads, threads == 1 ? "" : "s");
    k->apart = sample == BETWEEN ? LISTED : 0;
    ds_classes_print(c, k, "rows");
}

static int batch_sample(struct ds_check *c, const struct counts *k, int threads, int sample)
{
    struct seen *seen = ds_calloc(MOST_ROWS, sizeof *seen, "reference rows", c->err);
    struct ds_classes *classes = ds_calloc(MOST_ROWS, sizeof *classes, "classes", c->err);
    int64_t at = -1;
    int rc = seen && classes ? batch_counts(c, k, threads, sample, seen, classes, &at) : -1;
    if (rc == 0 && sample == 0)
        rc = batch_moved(c, threads, seen);
    if (rc == 0 && at >= 0)
        print_classes(c, &classes[at], at, threads, sample);
    for (int p = 0; seen && p < MOST_ROWS; p++)
        free(seen[p].bits);
    free(seen);
    free(classes);
    return rc;
}

/* Of the budget, for the counts between: they cost little or are left out. */
static const double BETWEEN_SHARE = 0.1;

int ds_rows_batch(struct ds_check *c)
{
    const double budget = c->budget;
    for (int i = 0; i < (c->opt->n_threads > 1 ? 2 : 1); i++) {
        const int threads = i ? ds_rows_last_threads(c) : c->opt->threads[0];
        struct counts k;
        c->budget = i ? budget / 2 : budget;
        if (order_counts(c, threads, &k) != 0)
            return -1;
        for (int sample = 0; sample < DS_ROWS_SAMPLES; sample++)
            if (batch_sample(c, &k, threads, sample) != 0)
                return -1;
        counts_between(c, &k);
        if (c->budget > budget * BETWEEN_SHARE)
            c->budget = budget * BETWEEN_SHARE;
        if (batch_sample(c, &k, threads, BETWEEN) != 0)
            return -1;
    }
    return 0;
}
