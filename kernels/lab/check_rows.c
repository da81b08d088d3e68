/* check_rows.c: the properties of ops whose rows stand alone: the same row must come out with the
 * same bits from other calls. What a right result is is judged in check_truth.c. */
#include "kernels/lab/check_rows.h"

#include "base/mem.h"
#include "kernels/lab/truth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LISTED = 64 };

static int open_plan(struct ds_check *c)
{
    struct ds_rows_own *o = ds_calloc(1, sizeof *o, "check", c->err);
    if (!o)
        return -1;
    c->own = o;
    return 0;
}

static void close_plan(struct ds_check *c)
{
    struct ds_rows_own *o = c->own;
    if (!o)
        return;
    ds_output_free(&o->ref);
    ds_output_free(&o->out);
    free(o);
    c->own = NULL;
}

struct ds_call ds_rows_call(const struct ds_check *c, struct ds_segment *seg, int64_t first,
                            int64_t rows)
{
    *seg = (struct ds_segment){.first = (int32_t)first, .length = (int32_t)rows};
    return ds_check_call(c, seg, 1);
}

int ds_rows_differs(struct ds_check *c, const struct ds_call *call, const uint32_t *ref, int64_t p,
                    double cost, const char *other)
{
    struct ds_rows_own *o = c->own;
    const int64_t before = c->property->differ;
    const int smallest = ds_check_differs(c, ref, ds_rows_row(&o->out, p), o->out.width, cost);
    if (c->property->differ > before &&
        ds_rows_right(c, call, ds_rows_row(&o->out, p), ref, p, other) != 0)
        return -1;
    return smallest;
}

int ds_rows_compare(struct ds_check *c, const struct ds_call *call, double cost, const char *what,
                    int64_t *at)
{
    struct ds_rows_own *o = c->own;
    for (int64_t r = 0; r < o->ref.rows && r < o->out.rows; r++) {
        const int rc = ds_rows_differs(c, call, ds_rows_row(&o->ref, r), r, cost + 1e-6 * (double)r,
                                       "the call before");
        if (rc < 0)
            return -1;
        if (rc) {
            ds_check_pair(c, "row %lld of %lld row%s %s", (long long)r, (long long)o->ref.rows,
                          o->ref.rows == 1 ? "" : "s", what);
            ds_check_choices(c, &o->ref.launch, &o->out.launch);
            if (at)
                *at = r;
        }
    }
    return 0;
}

/* ---- repeat ------------------------------------------------------------------------------------------ */

/* Again after other calls: more rows, then other rows at the same addresses. What a kernel keeps from
 * one call to the next shows. */
static int repeat_after_others(struct ds_check *c, const struct ds_call *first)
{
    enum { OTHER = 1000 };
    struct ds_rows_own *o = c->own;
    const int64_t rows = ds_call_rows(first);
    for (int i = 0; i < 2; i++) {
        struct ds_segment seg;
        struct ds_call more = ds_rows_call(c, &seg, OTHER, 2 * rows + 1), call;
        more.threads = first->threads;
        int rc = ds_check_launch(c, &more, &o->out);
        if (rc == 1 && i) {
            call = ds_rows_call(c, &seg, OTHER, rows);
            call.threads = first->threads;
            rc = ds_check_launch(c, &call, &o->out);
        }
        if (rc == 1)
            rc = ds_check_launch(c, first, &o->out);
        if (rc < 0)
            return -1;
        if (rc == 1 && ds_rows_compare(c, first, (double)rows * 10 + first->threads + 0.5,
                                       i ? "again, after a call with other rows in its place"
                                         : "again, after a call with more rows",
                                       NULL) != 0)
            return -1;
    }
    return 0;
}

/* Other seeds, then disturbed schedules. */
static int repeat_one(struct ds_check *c, int64_t rows, int threads)
{
    enum { PLAIN_REPEATS = 3, REPEATS = 9 };
    struct ds_rows_own *o = c->own;
    struct ds_segment seg;
    struct ds_call call = ds_rows_call(c, &seg, 0, rows);
    char what[64];
    call.threads = threads;
    int rc = ds_check_launch(c, &call, &o->ref);
    if (rc == 1 && repeat_after_others(c, &call) != 0)
        return -1;
    for (int i = 1; rc == 1 && i <= REPEATS; i++) {
        call.seed = 1 + (uint64_t)i;
        call.disturb = i <= PLAIN_REPEATS ? 0 : (uint64_t)i;
        if ((rc = ds_check_launch(c, &call, &o->out)) < 0)
            return -1;
        snprintf(what, sizeof what, "with %d thread%s%s, again", threads, threads == 1 ? "" : "s",
                 call.disturb ? " and a disturbed schedule" : "");
        if (rc == 1 && ds_rows_compare(c, &call, (double)rows * 10 + threads, what, NULL) != 0)
            return -1;
        rc = 1;
    }
    return rc < 0 ? -1 : 0;
}

int ds_rows_repeat(struct ds_check *c)
{
    static const int64_t rows[] = {1, 2, 4, 17, 64};
    /* Here, so that what comes after a difference does not depend on there being one. */
    if (ds_truth_known(ds_subject_kernel(c->subject)->op) && ds_rows_observe(c) != 0)
        return -1;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (repeat_one(c, rows[i], ds_rows_last_threads(c)) != 0)
            return -1;
        if (c->opt->n_threads > 1 && repeat_one(c, rows[i], c->opt->threads[0]) != 0)
            return -1;
    }
    return 0;
}

/* ---- slot ---------------------------------------------------------------------------------------------- */

/* Classes of positions are those of the largest call that has the smallest pair among its own: the two rows
 * differ there, too. */
struct slot_pair {
    int64_t row; /* row 0 against it; -1: the pair is of rows that were moved */
};

/* The same row at every position of one call. */
static int slot_copies(struct ds_check *c, int64_t rows, struct slot_pair *pair)
{
    struct ds_rows_own *o = c->own;
    struct ds_segment seg[LISTED + 1] = {{0}};
    struct ds_classes classes = {.n = 0};
    for (int64_t i = 0; i < rows; i++)
        seg[i] = (struct ds_segment){.length = 1};
    struct ds_call call = ds_check_call(c, seg, rows);
    int rc = ds_check_launch(c, &call, &o->out);
    for (int64_t p = 0; rc == 1 && p < rows; p++) {
        ds_classes_add(&classes, p, ds_rows_row(&o->out, p), o->out.width);
        if (p == 0)
            continue;
        const int smallest = ds_rows_differs(c, &call, ds_rows_row(&o->out, 0), p,
                                             (double)rows + 1e-3 * (double)p, "row 0 of them");
        if (smallest < 0)
            return -1;
        if (smallest) {
            ds_check_pair(c, "row 0 of %lld equal rows against row %lld", (long long)rows,
                          (long long)p);
            pair->row = p;
        }
    }
    snprintf(classes.at, sizeof classes.at, "of %lld equal rows", (long long)rows);
    if (rc == 1 && pair->row > 0 && pair->row < rows &&
        memcmp(ds_rows_row(&o->out, 0), ds_rows_row(&o->out, pair->row),
               (size_t)o->out.width * sizeof *o->out.bits) != 0)
        ds_classes_print(c, &classes, "position");
    return rc < 0 ? -1 : 0;
}

/* Different rows, moved by one position: each against itself. */
static int slot_rotated(struct ds_check *c, int64_t rows, struct slot_pair *pair)
{
    struct ds_rows_own *o = c->own;
    struct ds_segment seg, moved[2] = {{.first = 1, .length = (int32_t)rows - 1}, {.length = 1}};
    struct ds_call plain = ds_rows_call(c, &seg, 0, rows), call = ds_check_call(c, moved, 2);
    int rc = ds_check_launch(c, &plain, &o->ref);
    if (rc == 1)
        rc = ds_check_launch(c, &call, &o->out);
    for (int64_t r = 0; rc == 1 && r < rows; r++) {
        const int64_t p = r ? r - 1 : rows - 1;
        const int smallest =
            ds_rows_differs(c, &call, ds_rows_row(&o->ref, r), p,
                            (double)rows + 0.5 + 1e-3 * (double)r, "the same rows, moved by one");
        if (smallest < 0)
            return -1;
        if (smallest) {
            ds_check_pair(c, "row %lld of %lld rows against the same row as row %lld", (long long)r,
                          (long long)rows, (long long)p);
            ds_check_choices(c, &o->ref.launch, &o->out.launch);
            ds_classes_drop(c);
            pair->row = -1;
        }
    }
    return rc < 0 ? -1 : 0;
}

int ds_rows_slot(struct ds_check *c)
{
    static const int64_t rows[] = {2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 24, 31, 33, 48, 64};
    struct slot_pair pair = {-1};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (slot_copies(c, rows[i], &pair) != 0 ||
            (i % 3 == 0 && slot_rotated(c, rows[i], &pair) != 0))
            return -1;
    return 0;
}

/* ---- neighbours ---------------------------------------------------------------------------------------- */

/* The subject, row 0 of the pool, at position p among rows of one content. */
static struct ds_call among(struct ds_check *c, struct ds_segment seg[3], int64_t rows, int64_t p,
                            int content)
{
    int n = 0;
    if (p > 0)
        seg[n++] = (struct ds_segment){.first = 1, .length = (int32_t)p, .content = content};
    seg[n++] = (struct ds_segment){.length = 1};
    if (p + 1 < rows)
        seg[n++] = (struct ds_segment){
            .first = (int32_t)p + 1, .length = (int32_t)(rows - p - 1), .content = content};
    return ds_check_call(c, seg, n);
}

static int neighbours_at(struct ds_check *c, int64_t rows, int64_t p, int threads)
{
    struct ds_rows_own *o = c->own;
    struct ds_segment seg[3];
    struct ds_call call = among(c, seg, rows, p, DS_CONTENT_PLAIN);
    call.threads = threads;
    int rc = ds_check_launch(c, &call, &o->ref);
    if (rc != 1)
        return rc;
    for (int content = DS_CONTENT_OTHER; content < DS_CONTENT_TIED; content++) {
        call = among(c, seg, rows, p, content);
        call.threads = threads;
        rc = ds_check_launch(c, &call, &o->out);
        if (rc < 0)
            return -1;
        if (rc == 1)
            rc = ds_rows_differs(c, &call, ds_rows_row(&o->ref, p), p,
                                 (double)rows + 1e-3 * (double)p, "beside plain rows");
        if (rc < 0)
            return -1;
        if (rc) {
            ds_check_pair(c, "row %lld of %lld beside plain rows against beside %s rows",
                          (long long)p, (long long)rows, ds_content_name(content));
            ds_check_choices(c, &o->ref.launch, &o->out.launch);
        }
    }
    return 0;
}

int ds_rows_neighbours(struct ds_check *c)
{
    static const int64_t rows[] = {2, 3, 4, 5, 8, 13, 16, 17, 33, 64};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const int64_t at[] = {0, rows[i] - 1, rows[i] / 2};
        for (int j = 0; j < (rows[i] > 2 ? 3 : 2); j++)
            if (neighbours_at(c, rows[i], at[j],
                              j == 2 ? ds_rows_last_threads(c) : c->opt->threads[0]) < 0)
                return -1;
    }
    return 0;
}

/* ---- threads ------------------------------------------------------------------------------------------- */

/* One call at every thread count. Where it has the smallest pair, classes of that pair's row: on fewer threads
 * than the pair's no row was other than it is on the base ones, else that had been the pair. */
static int threads_call(struct ds_check *c, int64_t rows, int sample)
{
    struct ds_rows_own *o = c->own;
    struct ds_segment seg;
    struct ds_call call = ds_rows_call(c, &seg, 0, rows);
    struct ds_classes classes = {.n = 0};
    int64_t row = -1;
    int t = 1, as_base[DS_CLASS_VALUES], n_as_base = 0;
    ds_rows_take_sample(&seg, sample);
    call.bias = ds_rows_takes_bias(c) && (sample % 2 || rows > 4);
    int rc = ds_check_launch(c, &call, &o->ref);
    for (; rc == 1 && t < c->opt->n_threads; t++) {
        char what[64];
        call.threads = c->opt->threads[t];
        if ((rc = ds_check_launch(c, &call, &o->out)) < 0)
            return -1;
        snprintf(what, sizeof what, "with %d thread%s against %d", c->opt->threads[0],
                 c->opt->threads[0] == 1 ? "" : "s", call.threads);
        if (rc == 1 && ds_rows_compare(c, &call, (double)rows + 1e-2 * call.threads + 1e-3 * sample,
                                       what, &row) != 0)
            return -1;
        if (rc == 1 && row < 0 && n_as_base < DS_CLASS_VALUES)
            as_base[n_as_base++] = call.threads;
        else if (rc == 1 && row >= 0)
            ds_classes_add(&classes, call.threads, ds_rows_row(&o->out, row), o->out.width);
        rc = 1;
    }
    if (rc < 0 || row < 0)
        return rc < 0 ? -1 : 0;
    ds_classes_add(&classes, c->opt->threads[0], ds_rows_row(&o->ref, row), o->ref.width);
    for (int i = 0; i < n_as_base; i++)
        ds_classes_add(&classes, as_base[i], ds_rows_row(&o->ref, row), o->ref.width);
    snprintf(classes.at, sizeof classes.at, "row %lld of %lld", (long long)row, (long long)rows);
    ds_classes_print(c, &classes, "threads");
    return 0;
}

enum { MOST_COUNTS = 96, MOST_BORDERS = 8 };

/* Keeps the list ascending. */
static int insert(int64_t *rows, int n, int64_t x)
{
    int at = n;
    while (at > 0 && rows[at - 1] > x)
        at--;
    if ((at > 0 && rows[at - 1] == x) || n == MOST_COUNTS)
        return n;
    memmove(rows + at + 1, rows + at, (size_t)(n - at) * sizeof *rows);
    rows[at] = x;
    return n + 1;
}

/* A few borders of the launch choice of every thread count, both sides: there is no end to what all of
 * them would cost, and batch tries those of the first and the last. */
static int add_borders(struct ds_check *c, int64_t *rows, int n)
{
    for (int t = 0; t < c->opt->n_threads; t++) {
        struct ds_borders borders;
        int32_t at[MOST_BORDERS];
        if (ds_rows_borders(c, c->opt->threads[t], &borders) != 0) {
            ds_borders_free(&borders);
            return -1;
        }
        const size_t picked = ds_borders_pick(&borders, 0, INT32_MAX, MOST_BORDERS, at);
        c->property->not_tried += 2 * (int64_t)(borders.n - picked);
        for (size_t i = 0; i < picked; i++) {
            n = insert(rows, n, at[i] - 1);
            n = insert(rows, n, at[i]);
        }
        ds_borders_free(&borders);
    }
    return n;
}

int ds_rows_threads(struct ds_check *c)
{
    static const int64_t fixed[] = {1, 2, 3, 4, 7, 8, 16, 17, 33, 64, 128, 257};
    int64_t rows[MOST_COUNTS];
    int n = 0;
    if (c->opt->n_threads < 2) {
        snprintf(c->property->note, sizeof c->property->note,
                 "only one thread count was asked for");
        return 0;
    }
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
        n = insert(rows, n, fixed[i]);
    n = add_borders(c, rows, n);
    for (int i = 0; i < n; i++)
        for (int sample = 0; sample < (rows[i] <= 4 ? DS_ROWS_SAMPLES : 1); sample++)
            if (threads_call(c, rows[i], sample) != 0)
                return -1;
    return n < 0 ? -1 : 0;
}

const struct ds_check_plan ds_check_rows_plan = {
    .open = open_plan,
    .close = close_plan,
    .property = {[DS_PROPERTY_REPEAT] = ds_rows_repeat,
                 [DS_PROPERTY_BATCH] = ds_rows_batch,
                 [DS_PROPERTY_SLOT] = ds_rows_slot,
                 [DS_PROPERTY_NEIGHBOURS] = ds_rows_neighbours,
                 [DS_PROPERTY_THREADS] = ds_rows_threads,
                 [DS_PROPERTY_ALIGNMENT] = ds_rows_alignment,
                 [DS_PROPERTY_SIZES] = ds_rows_sizes,
                 [DS_PROPERTY_MEMORY] = ds_rows_memory,
                 [DS_PROPERTY_SPECIAL] = ds_rows_special,
                 [DS_PROPERTY_FORMATS] = ds_rows_formats},
    .accuracy = ds_rows_accuracy,
    .speed = ds_rows_speed};
