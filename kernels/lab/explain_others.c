/* explain_others.c: whether a row's bits follow from what stands in the other rows of its call, and from which.
 * The side's own kernel is launched again and again, each time with other rows changed, in one child process.
 * Owns the search; explain_bind.c changes the rows, explain_call.c launches. */
#include "kernels/lab/explain.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "kernels/lab/contain.h"
#include "kernels/registry.h"

#include <stdlib.h>
#include <string.h>

enum { HANG_SECONDS = 60, MOST_TARGETS = 8, MOST_LAUNCHES = 256 };

struct search {
    struct ds_contained contained;
    struct ds_explain_others out;
};

struct job {
    const struct ds_explain *e;
    int side;
    struct search *found; /* shared */
};

/* The call of one row, with that row first. */
struct asking {
    struct ds_explain e;
    int side;
    const struct ds_kernel *kernel;
    struct ds_explain_row *rows;
    uint8_t *vary;
    float *y, *changed;
    int64_t call_rows, row, width;
    struct ds_contained *beat;
};

static int asking_new(struct asking *a, const struct ds_explain *e, int side, size_t target,
                      struct ds_error *err)
{
    const struct ds_explain_at *at = &e->rows[target].at[side];
    *a = (struct asking){.e = *e,
                         .side = side,
                         .kernel = e->side[side].kernel,
                         .call_rows = at->rows,
                         .row = at->row,
                         .width = ds_explain_width(e->op, &e->shared)};
    a->rows = ds_calloc(e->n_rows, sizeof *a->rows, "rows of a call", err);
    a->vary = ds_calloc((size_t)at->rows, 1, "rows of a call", err);
    a->y = ds_alloc_aligned(2 * e->n_rows * (size_t)a->width, sizeof *a->y, "rows again", err);
    if (!a->rows || !a->vary || !a->y)
        return -1;
    a->changed = a->y + (int64_t)e->n_rows * a->width;
    a->e.rows = a->rows;
    a->e.n_rows = 0;
    a->rows[a->e.n_rows++] = e->rows[target];
    for (size_t i = 0; i < e->n_rows; i++)
        if (i != target && e->rows[i].at[side].call == at->call)
            a->rows[a->e.n_rows++] = e->rows[i];
    return 0;
}

static void asking_free(struct asking *a)
{
    free(a->rows);
    free(a->vary);
    free(a->y);
}

/* Whether the row comes out otherwise with the rows of `vary` changed: *moved elements. */
static int ask(struct asking *a, uint64_t *moved, struct ds_error *err)
{
    a->beat->beats++;
    a->e.vary = a->vary;
    if (ds_explain_run(&a->e, a->side, a->kernel, 1, a->changed, err) != 0)
        return -1;
    *moved = 0;
    for (int64_t i = 0; i < a->width; i++)
        *moved += ds_f32_bits(a->y[i]) != ds_f32_bits(a->changed[i]);
    return 0;
}

/* Whether the kernel gives the row's bits again when nothing is changed, twice over: one that counts its launches, or is
 * unstable, moves the row by itself. */
static int is_steady(struct asking *a, struct ds_error *err)
{
    uint64_t moved = 0;
    memset(a->vary, 0, (size_t)a->call_rows);
    for (int again = 0; again < 2 && !moved; again++)
        if (ask(a, &moved, err) != 0)
            return -1;
    return !moved;
}

static void vary(struct asking *a, int64_t begin, int64_t end, int value)
{
    for (int64_t r = begin; r < end; r++)
        a->vary[r] = (uint8_t)(value && r != a->row);
}

/* Rows begin..end-1 in groups of `size`, each alone: how many rows are in groups that move the row, and the
 * first such group. */
static int each_alone(struct asking *a, int64_t begin, int64_t end, int64_t size, int64_t *first,
                      int64_t *count, struct ds_error *err)
{
    *first = -1;
    *count = 0;
    for (int64_t r = begin; r < end; r += size) {
        const int64_t last = r + size < end ? r + size : end;
        uint64_t moved;
        vary(a, 0, a->call_rows, 0);
        vary(a, r, last, 1);
        if ((size == 1 && r == a->row) || ask(a, &moved, err) != 0) {
            if (r == a->row && size == 1)
                continue;
            return -1;
        }
        if (moved && *first < 0)
            *first = r;
        *count += moved ? last - r : 0;
    }
    return 0;
}

/* No row alone moves it: rows are put back one after the other for as long as the others still do. What is
 * left are all needed. */
static int needed_together(struct asking *a, struct ds_explain_others *o, struct ds_error *err)
{
    const int64_t step = (a->call_rows + MOST_LAUNCHES - 1) / MOST_LAUNCHES;
    vary(a, 0, a->call_rows, 1);
    for (int64_t r = 0; r < a->call_rows; r += step) {
        const int64_t last = r + step < a->call_rows ? r + step : a->call_rows;
        uint64_t moved;
        vary(a, r, last, 0);
        if (ask(a, &moved, err) != 0)
            return -1;
        if (!moved)
            vary(a, r, last, 1);
    }
    o->needed = 0;
    for (int64_t r = 0; r < a->call_rows; r++) {
        if (a->vary[r] && o->needed++ == 0)
            o->guilty = r;
    }
    return 0;
}

static int find_guilty(struct asking *a, struct ds_explain_others *o, struct ds_error *err)
{
    const int64_t n = a->call_rows, size = (n + MOST_LAUNCHES - 1) / MOST_LAUNCHES;
    int64_t first, count;
    if (each_alone(a, 0, n, size, &first, &count, err) != 0)
        return -1;
    o->alone = count;
    if (first >= 0 && size > 1) { /* which of the group */
        int64_t in_group;
        if (each_alone(a, first, first + size < n ? first + size : n, 1, &first, &in_group, err) !=
            0)
            return -1;
        o->alone = first < 0 ? 0 : in_group == size || in_group == size - 1 ? count : in_group;
    }
    if (first < 0)
        return needed_together(a, o, err);
    o->needed = 1;
    o->guilty = first;
    return 0;
}

static int ask_target(const struct job *j, size_t target, struct ds_error *err)
{
    struct ds_explain_others *o = &j->found->out;
    struct asking a;
    uint64_t moved = 0;
    int rc = asking_new(&a, j->e, j->side, target, err);
    a.beat = &j->found->contained;
    if (rc == 0)
        rc = ds_explain_run(&a.e, j->side, a.kernel, 1, a.y, err);
    if (rc == 0) {
        vary(&a, 0, a.call_rows, 1);
        rc = ask(&a, &moved, err);
    }
    if (rc == 0 && moved) {
        const int steady = is_steady(&a, err);
        rc = steady < 0 ? -1 : 0;
        moved = steady == 1 ? moved : 0;
    }
    o->elements += (uint64_t)a.width;
    o->moved += moved;
    if (rc == 0 && moved && o->guilty < 0) {
        o->target = target;
        rc = find_guilty(&a, o, err);
    }
    asking_free(&a);
    return rc;
}

static int child(void *arg, struct ds_contained *c, struct ds_error *err)
{
    const struct job *j = arg;
    const struct ds_explain_side *s = &j->e->side[j->side];
    const size_t n = j->e->n_rows, targets = n < MOST_TARGETS ? n : MOST_TARGETS;
    (void)c;
    ds_explain_take_device(s);
    j->found->out.guilty = -1;
    if (s->kernel->op == DS_OP_MATMUL && strcmp(s->kernel->name, "openblas") == 0 &&
        ds_blas_open(s->core, err) != 0)
        return -1;
    for (size_t t = 0; t < targets; t++)
        if (ask_target(j, t * n / targets, err) != 0)
            return -1;
    return 0;
}

int ds_explain_others(const struct ds_explain *e, int side, struct ds_explain_others *out,
                      struct ds_error *err)
{
    memset(out, 0, sizeof *out);
    out->guilty = -1;
    struct search *s = ds_contain_map(sizeof *s, err);
    if (!s)
        return -1;
    struct job j = {e, side, s};
    int rc = ds_contain(&s->contained, child, &j, HANG_SECONDS, err);
    if (rc == 0 && ds_contained_lacks_memory(&s->contained))
        rc = ds_fail(err, "%.900s", s->contained.error.msg);
    /* A kernel that crashes or refuses was told by its replay. */
    if (rc == 0 && s->contained.fault.kind == DS_FAULT_NONE && s->contained.rc == 0)
        *out = s->out;
    ds_contain_unmap(s, sizeof *s);
    return rc;
}
