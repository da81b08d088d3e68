/* check_batch.c: the same row in calls of other sizes, for ops whose rows stand alone: which row counts are
 * tried, in which order, and what they gave. */
#include "kernels/lab/check_rows.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 512, LISTED = 64 };

/* Row counts in the order in which they are tried. */
struct counts {
    int64_t rows[MOST_ROWS];
    int n;
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

/* Whether a launch choice says anything: one without tile and split is only a name. */
static int says_something(const struct ds_launch_info *i)
{
    return i->tile_rows || i->tile_cols || i->tile_k || i->split;
}

static int same_choice(const struct ds_launch_info *a, const struct ds_launch_info *b)
{
    return a->tile_rows == b->tile_rows && a->tile_cols == b->tile_cols && a->tile_k == b->tile_k &&
           a->split == b->split && a->threads == b->threads &&
           strncmp(a->algo, b->algo, sizeof a->algo) == 0;
}

/* The launch choice for so many rows: 1; 0 when there is none that says anything. */
static int choice_of(struct ds_check *c, int64_t rows, int threads, struct ds_launch_info *info)
{
    struct ds_segment seg;
    struct ds_call call = ds_rows_call(c, &seg, 0, rows);
    call.threads = threads;
    int rc = ds_subject_describe(c->subject, &call, info, c->err);
    return rc == 1 ? says_something(info) : rc;
}

/* The row counts between LISTED and MOST_ROWS where the choice changes: looked for in steps, then by
 * halves, without launching. A change that is taken back within a step is not found. */
static int add_far_boundaries(struct ds_check *c, int threads, struct counts *k)
{
    enum { STEP = 16, MOST = 12 };
    struct ds_launch_info at[2], middle;
    int rc = choice_of(c, LISTED, threads, &at[0]), found = 0;
    for (int64_t low = LISTED; rc == 1 && low < MOST_ROWS && found < MOST; low += STEP) {
        int64_t below = low, above = low + STEP;
        rc = choice_of(c, above, threads, &at[1]);
        if (rc != 1 || same_choice(&at[0], &at[1]))
            continue;
        while (above - below > 1 && rc == 1) {
            const int64_t half = (below + above) / 2;
            rc = choice_of(c, half, threads, &middle);
            if (same_choice(&at[0], &middle))
                below = half;
            else
                above = half;
        }
        add_count(k, below);
        add_count(k, above);
        found++;
        at[0] = at[1];
    }
    return rc < 0 ? -1 : 0;
}

/* The boundaries of each launch choice first, then powers of two, then the rest in ascending order:
 * what the budget leaves out is what is least likely to matter. */
static int order_counts(struct ds_check *c, int threads, struct counts *k)
{
    struct ds_launch_info last, info;
    const int describes = ds_subject_kernel(c->subject)->describe != NULL;
    k->n = 0;
    add_count(k, 1);
    for (int i = 0; describes && i < N_COUNTS; i++) {
        int rc = choice_of(c, count_at(i), threads, &info);
        if (rc < 0)
            return -1;
        if (rc == 0)
            break;
        if (i && !same_choice(&last, &info)) {
            add_count(k, count_at(i - 1));
            add_count(k, count_at(i));
        }
        last = info;
    }
    for (int64_t rows = 1; rows <= MOST_ROWS; rows *= 2)
        add_count(k, rows);
    if (describes && add_far_boundaries(c, threads, k) != 0)
        return -1;
    for (int i = 0; i < N_COUNTS; i++)
        add_count(k, count_at(i));
    return 0;
}

/* Every count between those above, the largest first: each of its rows is a reference for the rest. */
static void counts_between(const struct ds_check *c, struct counts *k)
{
    k->n = 0;
    add_count(k, 3); /* small enough for its rows to be right */
    for (int64_t rows = c->opt->full ? MOST_ROWS : EACH_UP_TO; rows > LISTED; rows--)
        add_count(k, rows);
}

/* What position p gave in the first call that had it. */
struct seen {
    uint32_t *bits;
    int64_t rows; /* of that call */
};

static int see(struct ds_check *c, struct seen *s, const struct ds_output *out, int64_t p)
{
    s->bits = ds_calloc((size_t)out->width, sizeof *s->bits, "reference rows", c->err);
    if (!s->bits)
        return -1;
    memcpy(s->bits, ds_rows_row(out, p), (size_t)out->width * sizeof *s->bits);
    s->rows = out->rows;
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
        if (p < LISTED && (sample != BETWEEN || rows > LISTED))
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
        snprintf(other, sizeof other, "%lld rows", (long long)seen[p].rows);
        const int smallest = ds_rows_differs(c, &call, seen[p].bits, p, cost, other);
        if (smallest < 0)
            return -1;
        if (smallest) {
            batch_pair(c, p, seen[p].rows, rows, threads);
            *at = p;
        }
    }
    return rc < 0 ? -1 : 0;
}

/* The rows that only the largest call had, at the start of a call of their own: other positions. */
static int batch_moved(struct ds_check *c, int threads, const struct seen *seen)
{
    enum { FROM = 257 };
    struct ds_rows_own *o = c->own;
    struct ds_property_result *batch = c->property;
    struct ds_segment seg;
    struct ds_call call = ds_rows_call(c, &seg, FROM, MOST_ROWS - FROM);
    call.threads = threads;
    if (!seen[MOST_ROWS - 1].bits)
        return 0;
    int rc = ds_check_launch(c, &call, &o->out);
    if (!c->opt->only || c->opt->only >> DS_PROPERTY_SLOT & 1)
        c->property = &c->out->property[DS_PROPERTY_SLOT];
    for (int64_t p = 0; rc == 1 && p < MOST_ROWS - FROM; p++) {
        const int64_t from = FROM + p;
        const double cost = 1e6 * (threads != c->opt->threads[0]) + MOST_ROWS + 1e-3 * (double)from;
        const int smallest = seen[from].bits ? ds_rows_differs(c, &call, seen[from].bits, p, cost,
                                                               "512 rows, 257 places on")
                                             : 0;
        if (smallest < 0)
            rc = -1;
        if (smallest > 0)
            ds_check_pair(c, "row %lld of %lld rows against the same row as row %lld of %lld",
                          (long long)p, (long long)ds_call_rows(&call), (long long)from,
                          (long long)seen[from].rows);
    }
    c->property = batch;
    return rc < 0 ? -1 : 0;
}

static int batch_sample(struct ds_check *c, const struct counts *k, int threads, int sample)
{
    struct seen *seen = ds_calloc(MOST_ROWS, sizeof *seen, "reference rows", c->err);
    struct ds_classes *classes = ds_calloc(LISTED, sizeof *classes, "classes", c->err);
    int64_t at = -1;
    int rc = seen && classes ? 0 : -1;
    for (int i = 0; rc == 0 && i < k->n; i++)
        if (sample == 0 || sample == BETWEEN || k->rows[i] <= SAMPLED_ROWS)
            rc = batch_call(c, k->rows[i], threads, sample, seen, classes, &at);
    if (rc == 0 && sample == 0)
        rc = batch_moved(c, threads, seen);
    if (rc == 0 && at >= 0 && at < LISTED && !c->property->classes[0])
        ds_classes_print(c, &classes[at], "rows");
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
