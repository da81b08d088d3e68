/* check_rows.c: the properties of ops whose rows stand alone: the same row must come out with the
 * same bits from other calls. What a right result is is judged in check_truth.c. */
#include "kernels/lab/check_rows.h"

#include "base/mem.h"
#include "kernels/lab/truth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 512, LISTED = 64 };

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

static const uint32_t *row(const struct ds_output *o, int64_t r)
{
    return o->bits + r * o->width;
}

/* Row p of the call launched last, in own->out, against the same row of another call, which `other`
 * names. 1: it differs and is the smallest pair so far. What differs may be wrong, too. */
static int differs(struct ds_check *c, const struct ds_call *call, const uint32_t *ref, int64_t p,
                   double cost, const char *other)
{
    struct ds_rows_own *o = c->own;
    const int64_t before = c->property->differ;
    const int smallest = ds_check_differs(c, ref, row(&o->out, p), o->out.width, cost);
    if (c->property->differ > before && ds_rows_right(c, call, row(&o->out, p), ref, p, other) != 0)
        return -1;
    return smallest;
}

/* Every row of the call launched last against the same row of own->ref; the pair is named by `what`. */
static int compare_all(struct ds_check *c, const struct ds_call *call, double cost,
                       const char *what)
{
    struct ds_rows_own *o = c->own;
    for (int64_t r = 0; r < o->ref.rows && r < o->out.rows; r++) {
        const int rc =
            differs(c, call, row(&o->ref, r), r, cost + 1e-4 * (double)r, "the call before");
        if (rc < 0)
            return -1;
        if (rc)
            ds_check_pair(c, "row %lld of %lld row%s %s", (long long)r, (long long)o->ref.rows,
                          o->ref.rows == 1 ? "" : "s", what);
    }
    return 0;
}

static int takes_bias(const struct ds_check *c)
{
    return ds_subject_kernel(c->subject)->op == DS_OP_MATMUL;
}

static int last_threads(const struct ds_check *c)
{
    return c->opt->threads[c->opt->n_threads - 1];
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
        if (rc == 1 && compare_all(c, first, (double)rows * 10 + first->threads + 0.5,
                                   i ? "again, after a call with other rows in its place"
                                     : "again, after a call with more rows") != 0)
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
        if (rc == 1 && compare_all(c, &call, (double)rows * 10 + threads, what) != 0)
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
        if (repeat_one(c, rows[i], last_threads(c)) != 0)
            return -1;
        if (c->opt->n_threads > 1 && repeat_one(c, rows[i], c->opt->threads[0]) != 0)
            return -1;
    }
    return 0;
}

/* ---- batch -------------------------------------------------------------------------------------------- */

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
    memcpy(s->bits, row(out, p), (size_t)out->width * sizeof *s->bits);
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

/* Another order of addition may give the same bits by chance: small calls are made of several parts
 * of the pool, every other one with magnitudes that cancel. */
enum { SAMPLES = 6, SAMPLED_ROWS = 16, BETWEEN = SAMPLES };

static void take_sample(struct ds_segment *seg, int sample)
{
    seg->first = 1000 * sample;
    seg->content = sample % 2 ? DS_CONTENT_MIXED : DS_CONTENT_PLAIN;
}

/* One call: each row against the same row at the same position of another call. Positions stay, so
 * only the number of rows can be to blame. */
static int batch_call(struct ds_check *c, int64_t rows, int threads, int sample, struct seen *seen,
                      struct ds_classes *classes, int64_t *at)
{
    struct ds_rows_own *o = c->own;
    struct ds_segment seg;
    struct ds_call call = ds_rows_call(c, &seg, 0, rows);
    take_sample(&seg, sample);
    call.threads = threads;
    call.bias = takes_bias(c) && (sample % 3 == 1 || sample == BETWEEN);
    int rc = ds_check_launch(c, &call, &o->out);
    for (int64_t p = 0; rc == 1 && p < rows; p++) {
        if (p < LISTED && (sample != BETWEEN || rows > LISTED))
            ds_classes_add(&classes[p], rows, row(&o->out, p), o->out.width);
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
        const int smallest = differs(c, &call, seen[p].bits, p, cost, other);
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
        const int smallest =
            seen[from].bits ? differs(c, &call, seen[from].bits, p, cost, "512 rows, 257 places on")
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
        const int threads = i ? last_threads(c) : c->opt->threads[0];
        struct counts k;
        c->budget = i ? budget / 2 : budget;
        if (order_counts(c, threads, &k) != 0)
            return -1;
        for (int sample = 0; sample < SAMPLES; sample++)
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

/* ---- slot ---------------------------------------------------------------------------------------------- */

/* The same row at every position of one call. */
static int slot_copies(struct ds_check *c, int64_t rows, int64_t *classes_rows)
{
    struct ds_rows_own *o = c->own;
    struct ds_segment seg[LISTED + 1] = {{0}};
    struct ds_classes classes = {.n = 0};
    for (int64_t i = 0; i < rows; i++)
        seg[i] = (struct ds_segment){.length = 1};
    struct ds_call call = ds_check_call(c, seg, rows);
    int rc = ds_check_launch(c, &call, &o->out), broken = 0;
    for (int64_t p = 0; rc == 1 && p < rows; p++) {
        ds_classes_add(&classes, p, row(&o->out, p), o->out.width);
        if (p == 0)
            continue;
        broken |= memcmp(row(&o->out, 0), row(&o->out, p), (size_t)o->out.width * 4) != 0;
        const int smallest =
            differs(c, &call, row(&o->out, 0), p, (double)rows + 1e-3 * (double)p, "row 0 of them");
        if (smallest < 0)
            return -1;
        if (smallest)
            ds_check_pair(c, "row 0 of %lld equal rows against row %lld", (long long)rows,
                          (long long)p);
    }
    if (broken && rows > *classes_rows) {
        *classes_rows = rows;
        ds_classes_print(c, &classes, "position");
    }
    return rc < 0 ? -1 : 0;
}

/* Different rows, moved by one position: each against itself. */
static int slot_rotated(struct ds_check *c, int64_t rows)
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
            differs(c, &call, row(&o->ref, r), p, (double)rows + 0.5 + 1e-3 * (double)r,
                    "the same rows, moved by one");
        if (smallest < 0)
            return -1;
        if (smallest)
            ds_check_pair(c, "row %lld of %lld rows against the same row as row %lld", (long long)r,
                          (long long)rows, (long long)p);
    }
    return rc < 0 ? -1 : 0;
}

int ds_rows_slot(struct ds_check *c)
{
    static const int64_t rows[] = {2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 24, 31, 33, 48, 64};
    int64_t classes_rows = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (slot_copies(c, rows[i], &classes_rows) != 0 ||
            (i % 3 == 0 && slot_rotated(c, rows[i]) != 0))
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
            rc = differs(c, &call, row(&o->ref, p), p, (double)rows + 1e-3 * (double)p,
                         "beside plain rows");
        if (rc < 0)
            return -1;
        if (rc)
            ds_check_pair(c, "row %lld of %lld beside plain rows against beside %s rows",
                          (long long)p, (long long)rows, ds_content_name(content));
    }
    return 0;
}

int ds_rows_neighbours(struct ds_check *c)
{
    static const int64_t rows[] = {2, 3, 4, 5, 8, 13, 16, 17, 33, 64};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const int64_t at[] = {0, rows[i] - 1, rows[i] / 2};
        for (int j = 0; j < (rows[i] > 2 ? 3 : 2); j++)
            if (neighbours_at(c, rows[i], at[j], j == 2 ? last_threads(c) : c->opt->threads[0]) < 0)
                return -1;
    }
    return 0;
}

/* ---- threads ------------------------------------------------------------------------------------------- */

/* One call at every thread count. */
static int threads_call(struct ds_check *c, int64_t rows, int sample, int64_t *classes_rows)
{
    struct ds_rows_own *o = c->own;
    struct ds_segment seg;
    struct ds_call call = ds_rows_call(c, &seg, 0, rows);
    struct ds_classes classes = {.n = 0};
    const int64_t before = c->property->differ;
    take_sample(&seg, sample);
    call.bias = takes_bias(c) && (sample % 2 || rows > 4);
    int rc = ds_check_launch(c, &call, &o->ref);
    if (rc == 1)
        ds_classes_add(&classes, call.threads, row(&o->ref, 0), o->ref.width);
    for (int t = 1; rc == 1 && t < c->opt->n_threads; t++) {
        char what[64];
        call.threads = c->opt->threads[t];
        if ((rc = ds_check_launch(c, &call, &o->out)) < 0)
            return -1;
        snprintf(what, sizeof what, "with %d thread%s against %d", c->opt->threads[0],
                 c->opt->threads[0] == 1 ? "" : "s", call.threads);
        if (rc == 1) {
            ds_classes_add(&classes, call.threads, row(&o->out, 0), o->out.width);
            if (compare_all(c, &call, (double)rows + 1e-2 * call.threads + 1e-3 * sample, what) !=
                0)
                return -1;
        }
        rc = 1;
    }
    if (c->property->differ > before && rows > *classes_rows) {
        *classes_rows = rows;
        ds_classes_print(c, &classes, "threads");
    }
    return rc < 0 ? -1 : 0;
}

int ds_rows_threads(struct ds_check *c)
{
    static const int64_t rows[] = {1, 2, 3, 4, 7, 8, 16, 17, 33, 64, 128, 257};
    int64_t classes_rows = 0;
    if (c->opt->n_threads < 2) {
        snprintf(c->property->note, sizeof c->property->note,
                 "only one thread count was asked for");
        return 0;
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int sample = 0; sample < (rows[i] <= 4 ? SAMPLES : 1); sample++)
            if (threads_call(c, rows[i], sample, &classes_rows) != 0)
                return -1;
    return 0;
}

/* ---- alignment ----------------------------------------------------------------------------------------- */

static int aligned(struct ds_check *c, struct ds_call *call, int64_t rows)
{
    struct ds_rows_own *o = c->own;
    char what[96];
    int rc = ds_check_launch(c, call, &o->out);
    if (call->place == DS_PLACE_END)
        snprintf(what, sizeof what, "at a 64-byte boundary against flush with a page's end");
    else
        snprintf(what, sizeof what, "packed at a 64-byte boundary against offset %d, gap %d",
                 call->place, call->gap);
    if (rc == 1)
        rc = compare_all(c, call, (double)rows + 1e-2 * (call->place + call->gap), what);
    return rc < 0 ? -1 : 0;
}

int ds_rows_alignment(struct ds_check *c)
{
    static const int64_t rows[] = {1, 3, 4, 8, 17};
    static const int gaps[] = {1, 3, 16, 29};
    struct ds_rows_own *o = c->own;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ds_segment seg;
        struct ds_call call = ds_rows_call(c, &seg, 0, rows[i]);
        int rc = ds_check_launch(c, &call, &o->ref);
        if (rc < 0)
            return -1;
        for (call.place = 1; rc == 1 && call.place <= DS_PLACE_END; call.place++)
            if (aligned(c, &call, rows[i]) != 0)
                return -1;
        for (size_t g = 0; rc == 1 && g < sizeof gaps / sizeof gaps[0]; g++) {
            call.gap = gaps[g];
            for (call.place = 0; call.place < 16; call.place += 5)
                if (aligned(c, &call, rows[i]) != 0)
                    return -1;
        }
    }
    return 0;
}

/* ---- memory -------------------------------------------------------------------------------------------- */

/* Whether an element is NaN on one side only: no order of arrival does that. */
static int nan_on_one_side(const struct ds_check *c, const struct ds_call *call,
                           const struct ds_output *a, const struct ds_output *b)
{
    struct ds_output_part part[DS_MOST_PARTS];
    ds_subject_parts(c->subject, call, part);
    for (int64_t i = 0; part[0].dtype == DS_ELEMENT_F32 && i < a->rows * a->width; i++)
        if (((a->bits[i] & 0x7fffffffu) > 0x7f800000u) !=
            ((b->bits[i] & 0x7fffffffu) > 0x7f800000u))
            return 1;
    return 0;
}

/* The same call with unwritten memory that holds NaN and that holds huge values: equal bits, or some
 * of it was used. Damage and crashes are noted by the launch itself. */
static int poisoned(struct ds_check *c, struct ds_call *call, int64_t rows)
{
    struct ds_rows_own *o = c->own;
    call->poison = DS_POISON_NAN;
    int rc = ds_check_launch(c, call, &o->ref);
    if (rc != 1)
        return rc;
    call->poison = DS_POISON_HUGE;
    rc = ds_check_launch(c, call, &o->out);
    /* A kernel that does not repeat gives other bits by itself. */
    if (rc == 1 && c->out->property[DS_PROPERTY_REPEAT].differ &&
        !nan_on_one_side(c, call, &o->ref, &o->out)) {
        c->property->compared += o->ref.rows;
        return 0;
    }
    if (rc == 1)
        rc = compare_all(c, call, (double)rows + 0.5 * call->gap,
                         "where unwritten memory holds NaN against where it holds 1e30");
    return rc < 0 ? -1 : 0;
}

int ds_rows_memory(struct ds_check *c)
{
    static const int64_t rows[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33, 64};
    static const int places[] = {DS_PLACE_END, DS_PLACE_START, 0, 3};
    const int op = ds_subject_kernel(c->subject)->op;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int j = 0; j < 4; j++) {
            struct ds_segment seg;
            struct ds_call call = ds_rows_call(c, &seg, 0, rows[i]);
            call.place = places[j];
            call.gap = j == 2 ? 5 : j == 1 ? 1 : 0;
            call.threads = i % 2 ? last_threads(c) : c->opt->threads[0];
            call.bias = op == DS_OP_MATMUL && j % 2;
            call.page_size = j == 0 ? 1 : j == 1 ? 64 : 0;
            call.permute = (uint64_t)j;
            call.spare_slots = 3 * j;
            seg.padding = op == DS_OP_CACHE ? 2 * j : 0;
            if (poisoned(c, &call, rows[i]) < 0)
                return -1;
        }
    return 0;
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
