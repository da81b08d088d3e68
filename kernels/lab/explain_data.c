/* explain_data.c: simple wrong data that would give the values of a side. Each guess is made on few
 * elements and must then hold, within f32's noise, for all of them; one that holds for less is not
 * told. */
#include "kernels/lab/explain.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SHIFT = 64, MOST_CHECKED = 64, MOST_GUESSES = 4096 };

struct look {
    const struct ds_explain *e;
    const double *exact;
    int side;
    int64_t width;
    double noise; /* allowed beside the guess */
    struct ds_explain_guess *guess;
    size_t n_off;          /* rows that are not what they should be: the guess is about those */
    const uint8_t *column; /* [width] 1: off in one of them */
    int64_t columns;       /* so many are */
};

static int guessed(const struct look *l, int kind, int64_t a, int64_t b, double value,
                   const char *fmt, ...) __attribute__((format(printf, 6, 7)));
static int guessed(const struct look *l, int kind, int64_t a, int64_t b, double value,
                   const char *fmt, ...)
{
    va_list args;
    l->guess->kind = kind;
    l->guess->a = a;
    l->guess->b = b;
    l->guess->value = value;
    va_start(args, fmt);
    vsnprintf(l->guess->text, sizeof l->guess->text, fmt, args);
    va_end(args);
    return 1;
}

int ds_guess_has(const struct ds_explain_guess *g, size_t row)
{
    return row < DS_GUESS_MOST_ROWS && (g->rows[row / 64] >> row % 64 & 1);
}

static double got(const struct look *l, size_t row, int64_t c)
{
    return (double)l->e->rows[row].y[l->side][c];
}

static double want(const struct look *l, size_t row, int64_t c)
{
    return l->exact[(int64_t)row * l->width + c];
}

static int near(const struct look *l, double a, double b)
{
    return fabs(a - b) <= l->noise + fabs(b) * 0x1p-22;
}

static int is_off(const struct look *l, size_t row)
{
    return ds_guess_has(l->guess, row);
}

/* There is one. */
static size_t first_off(const struct look *l)
{
    size_t r = 0;
    while (!is_off(l, r))
        r++;
    return r;
}

/* ---- other rows, other columns --------------------------------------------------------------- */

static int row_is(const struct look *l, size_t row, size_t other)
{
    for (int64_t c = 0; c < l->width; c++)
        if (!near(l, got(l, row, c), want(l, other, c)))
            return 0;
    return 1;
}

static int other_rows(const struct look *l)
{
    size_t held = 0, first = 0, of_first = 0;
    for (size_t r = 0; r < l->e->n_rows; r++)
        for (size_t o = 0; o < l->e->n_rows && is_off(l, r); o++)
            if (o != r && row_is(l, r, o)) {
                first = held ? first : r;
                of_first = held++ ? of_first : o;
                break;
            }
    /* That one of many rows happens to be another's explains nothing of the others. */
    if (!held || 2 * held < l->n_off)
        return 0;
    return guessed(l, DS_GUESS_ROW, (int64_t)first, (int64_t)of_first, 0,
                   "row %zu of those dumped is what row %zu should be", first, of_first);
}

static int shifted_by(const struct look *l, int64_t by)
{
    for (size_t r = 0; r < l->e->n_rows; r++)
        for (int64_t c = 0; c < l->width && is_off(l, r); c++)
            if (c + by >= 0 && c + by < l->width && !near(l, got(l, r, c), want(l, r, c + by)))
                return 0;
    return 1;
}

static int other_columns(const struct look *l)
{
    for (int64_t by = 1; by <= MOST_SHIFT && by < l->width / 2; by++)
        for (int sign = -1; sign <= 1; sign += 2)
            if (shifted_by(l, sign * by))
                return guessed(l, DS_GUESS_COLUMNS, sign * by, 0, 0,
                               "element i is what element i %c %lld should be",
                               sign < 0 ? '-' : '+', (long long)by);
    return 0;
}

/* ---- the bias of a matmul -------------------------------------------------------------------- */

/* Every element is `times` its own bias and the bias of the column `by` further on. */
static int bias_is(const struct look *l, double times, int64_t by)
{
    const float *bias = l->e->shared.matmul.bias;
    for (size_t r = 0; r < l->e->n_rows; r++)
        for (int64_t c = 0; c < l->width && is_off(l, r); c++) {
            const int64_t from = ((c + by) % l->width + l->width) % l->width;
            if (!near(l, got(l, r, c),
                      want(l, r, c) - (double)bias[c] + times * (double)bias[from]))
                return 0;
        }
    return 1;
}

/* The bias is kept in fewer bits. */
static int bias_is_rounded(const struct look *l)
{
    static const int dtypes[] = {DS_BF16, DS_F16};
    const float *bias = l->e->shared.matmul.bias;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        int holds = 1;
        for (size_t r = 0; r < l->e->n_rows && holds; r++)
            for (int64_t c = 0; c < l->width && is_off(l, r) && holds; c++) {
                const float kept = dtypes[d] == DS_BF16 ? ds_bf16_value(ds_bf16_round(bias[c]))
                                                        : ds_f16_value(ds_f16_round(bias[c]));
                holds = near(l, got(l, r, c), want(l, r, c) - (double)bias[c] + (double)kept);
            }
        if (!holds)
            continue;
        l->guess->precision = 1;
        return guessed(l, DS_GUESS_FEW_BITS, dtypes[d], 0, 0, "the bias is rounded to %s",
                       ds_dtype_name(dtypes[d]));
    }
    return 0;
}

static int other_bias(const struct look *l)
{
    if (!l->e->shared.matmul.bias)
        return 0;
    if (bias_is(l, 0, 0))
        return guessed(l, DS_GUESS_BIAS, 0, 0, 0, "the bias is left out");
    if (bias_is(l, 2, 0))
        return guessed(l, DS_GUESS_BIAS, 0, 0, 2, "the bias is added twice");
    for (int64_t i = 2; i / 2 <= MOST_SHIFT && i < l->width; i++) {
        const int64_t by = i % 2 ? -(i / 2) : i / 2;
        if (bias_is(l, 1, by))
            return guessed(l, DS_GUESS_BIAS, by, 0, 1, "column j has the bias of column j %+lld",
                           (long long)by);
    }
    return bias_is_rounded(l);
}

/* ---- terms of a matmul ----------------------------------------------------------------------- */

static double product(const struct look *l, size_t row, int64_t c, int64_t k)
{
    const struct ds_matmul_args *a = &l->e->shared.matmul;
    return (double)l->e->rows[row].input[DS_SIDE_A].in[0][k] * (double)a->w.data[c * a->k + k];
}

/* The element is off by the terms begin..end-1, `times` over. */
static int off_by(const struct look *l, size_t row, int64_t c, int64_t begin, int64_t end,
                  double times)
{
    double sum = 0;
    for (int64_t k = begin; k < end; k++)
        sum += product(l, row, c, k);
    return near(l, got(l, row, c), want(l, row, c) + times * sum);
}

static int terms_explain(const struct look *l, int64_t begin, int64_t end, double times)
{
    const int64_t step = l->columns > MOST_CHECKED ? l->columns / MOST_CHECKED : 1;
    for (size_t r = 0; r < l->e->n_rows; r++)
        for (int64_t c = 0, seen = 0; c < l->width && is_off(l, r); c++)
            if (l->column[c] && seen++ % step == 0 && !off_by(l, r, c, begin, end, times))
                return 0;
    return 1;
}

/* Ranges from `step` to `step`, and every one that begins or ends with K. */
static int is_guess(int64_t begin, int64_t end, int64_t k, int64_t step)
{
    return begin == 0 || end == k || (begin % step == 0 && end % step == 0);
}

static int64_t most_off(const struct look *l, size_t row)
{
    int64_t at = 0;
    for (int64_t c = 1; c < l->width; c++)
        if (fabs(got(l, row, c) - want(l, row, c)) > fabs(got(l, row, at) - want(l, row, at)))
            at = c;
    return at;
}

static int try_range(const struct look *l, const double *before, int64_t begin, int64_t end,
                     double off, int *guesses)
{
    const double sum = before[end] - before[begin];
    for (int times = -1; times <= 1; times += 2) {
        if (!near(l, off, times * sum) || ++*guesses > MOST_GUESSES ||
            !terms_explain(l, begin, end, times))
            continue;
        char where[64] = "";
        if (l->columns < l->width)
            snprintf(where, sizeof where, " in %lld of %lld columns", (long long)l->columns,
                     (long long)l->width);
        return guessed(l, DS_GUESS_TERMS, begin, end, times, "the terms k = %lld..%lld are %s%s",
                       (long long)begin, (long long)end - 1, times < 0 ? "missing" : "added twice",
                       where);
    }
    return 0;
}

/* The element is off by the terms first, first + step, ... */
static int off_by_strided(const struct look *l, size_t row, int64_t c, int64_t first, int64_t step)
{
    double sum = 0;
    for (int64_t k = first; k < l->e->shared.matmul.k; k += step)
        sum += product(l, row, c, k);
    return near(l, got(l, row, c), want(l, row, c) - sum);
}

/* Every so many-th term is missing: a lane of a vector, a row of a tile. */
static int other_strided(const struct look *l, size_t row, int64_t c, double off)
{
    const int64_t k = l->e->shared.matmul.k;
    for (int64_t step = 2; step <= 64 && 2 * step <= k; step *= 2)
        for (int64_t first = 0; first < step; first++) {
            int holds = off_by_strided(l, row, c, first, step);
            for (size_t r = 0; r < l->e->n_rows && holds; r++)
                for (int64_t j = 0; j < l->width && is_off(l, r) && holds; j++)
                    holds = !l->column[j] || off_by_strided(l, r, j, first, step);
            if (holds && off != 0)
                return guessed(l, DS_GUESS_STRIDED, first, step, -1,
                               "the terms k = %lld, %lld, .. (every %lldth) are missing",
                               (long long)first, (long long)(first + step), (long long)step);
        }
    return 0;
}

static int other_terms(const struct look *l, struct ds_error *err)
{
    const size_t row = first_off(l);
    const int64_t k = l->e->shared.matmul.k, c = most_off(l, row), step = k > 2048 ? 16 : 8;
    const double off = got(l, row, c) - want(l, row, c);
    double *before = ds_calloc((size_t)k + 1, sizeof *before, "sums", err);
    int guesses = 0, found = other_strided(l, row, c, off);
    if (!before)
        return -1;
    for (int64_t i = 0; i < k; i++)
        before[i + 1] = before[i] + product(l, row, c, i);
    for (int64_t begin = 0; begin < k && !found; begin++)
        for (int64_t end = begin + 1; end <= k && !found; end++)
            if (end - begin < k && is_guess(begin, end, k, step))
                found = try_range(l, before, begin, end, off, &guesses);
            else if (begin % step) /* only to the end */
                end = end < k - 1 ? k - 1 : end;
    free(before);
    return found;
}

/* ---- one weight ------------------------------------------------------------------------------ */

/* Every row is off in column c as if one factor of w were another: off / x[k] is alike. */
static int one_weight_at(const struct look *l, int64_t c, int64_t k, double *change)
{
    double size = 0;
    for (size_t r = 0; r < l->e->n_rows; r++) {
        const double x = is_off(l, r) * (double)l->e->rows[r].input[DS_SIDE_A].in[0][k];
        if (fabs(x) > size) {
            size = fabs(x);
            *change = (got(l, r, c) - want(l, r, c)) / x;
        }
    }
    for (size_t r = 0; r < l->e->n_rows && size > 0; r++)
        if (is_off(l, r) &&
            !near(l, got(l, r, c),
                  want(l, r, c) + *change * (double)l->e->rows[r].input[DS_SIDE_A].in[0][k]))
            return 0;
    return size > 0;
}

/* Told only where one k of them all fits, and rows enough to tell. */
static int one_weight(const struct look *l)
{
    const struct ds_matmul_args *a = &l->e->shared.matmul;
    const int64_t c = most_off(l, first_off(l));
    int64_t at = -1;
    double change = 0, d;
    for (int64_t k = 0; k < a->k && l->n_off >= 3; k++)
        if (one_weight_at(l, c, k, &d)) {
            if (at >= 0)
                return 0;
            at = k;
            change = d;
        }
    for (size_t r = 0; r < l->e->n_rows && at >= 0; r++)
        for (int64_t j = 0; j < l->width; j++)
            if (j != c && !near(l, got(l, r, j), want(l, r, j)))
                return 0;
    if (at < 0)
        return 0;
    const double own = (double)a->w.data[c * a->k + at];
    return guessed(l, DS_GUESS_WEIGHT, c, at, own + change,
                   "the weight of column %lld, k = %lld is %.6g, not %.6g", (long long)c,
                   (long long)at, own + change, own);
}

static void find_off(struct look *l, uint8_t *column)
{
    for (size_t r = 0; r < l->e->n_rows; r++) {
        if (row_is(l, r, r))
            continue;
        l->guess->rows[r / 64] |= (uint64_t)1 << r % 64;
        l->n_off++;
        for (int64_t c = 0; c < l->width; c++) {
            const int off = !near(l, got(l, r, c), want(l, r, c));
            l->columns += off && !column[c];
            column[c] |= (uint8_t)off;
        }
    }
    l->column = column;
}

/* Of some rows only: it is said. */
static void add_share(const struct look *l)
{
    struct ds_explain_guess *g = l->guess;
    const size_t n = strlen(g->text);
    if (g->kind && g->kind != DS_GUESS_ROW && l->n_off < l->e->n_rows)
        snprintf(g->text + n, sizeof g->text - n, " in %zu of %zu rows", l->n_off, l->e->n_rows);
}

static int find(struct look *l, struct ds_error *err)
{
    const int matmul = l->e->op == DS_OP_MATMUL;
    if (!l->n_off || ds_explain_tables(l->e, l->exact, l->side, l->noise, l->guess) ||
        other_rows(l) || other_columns(l) || !matmul)
        return 0;
    if (other_bias(l) || one_weight(l))
        return 0;
    int rc = ds_explain_weights(l->e, l->side, l->noise, l->guess, err);
    rc = rc ? rc : other_terms(l, err);
    rc = rc ? rc : ds_explain_factors(l->e, l->exact, l->side, l->noise, l->guess, err);
    rc = rc ? rc : ds_explain_part(l->e, l->exact, l->side, l->noise, l->guess, err);
    rc = rc ? rc : ds_explain_scales(l->e, l->side, l->noise, l->guess, err);
    return rc < 0 ? -1 : 0;
}

int ds_explain_data(const struct ds_explain *e, const double *exact, int side, double noise,
                    struct ds_explain_guess *guess, struct ds_error *err)
{
    struct look l = {.e = e,
                     .exact = exact,
                     .side = side,
                     .width = ds_explain_width(e->op, &e->shared),
                     .noise = 8 * noise,
                     .guess = guess};
    memset(guess, 0, sizeof *guess);
    if (e->n_rows > DS_GUESS_MOST_ROWS)
        return 0;
    uint8_t *column = ds_calloc((size_t)l.width, 1, "sums", err);
    if (!column)
        return -1;
    find_off(&l, column);
    const int rc = find(&l, err);
    add_share(&l);
    free(column);
    return rc;
}

/* ---- blocks of few bits ---------------------------------------------------------------------- */

/* Scales by which the largest value, or the range, of a block may be cut into steps. */
static const struct cut {
    int bits, steps,
        from_least; /* from_least: steps of (largest - least), counted from the least */
} cuts[] = {{4, 7, 0}, {4, 8, 0}, {4, 15, 1}, {8, 127, 0}, {8, 128, 0}, {8, 255, 1}};

/* Whether the block's values are whole steps, and within one step of x. */
static int is_cut(const struct cut *c, const float *x, const float *y, int64_t n)
{
    double least = INFINITY, most = -INFINITY, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(y[i]))
            return 0;
        least = fmin(least, (double)y[i]);
        most = fmax(most, (double)y[i]);
        largest = fmax(largest, fabs((double)y[i]));
    }
    const double base = c->from_least ? least : 0,
                 step = (c->from_least ? most - least : largest) / c->steps;
    if (!(step > 0)) /* all alike: whole steps of nothing, unless that is what was read */
        return memcmp(x, y, (size_t)n * sizeof *x) == 0;
    for (int64_t i = 0; i < n; i++) {
        const double at = ((double)y[i] - base) / step;
        if (!(fabs(at - rint(at)) <= 1e-3) || !(fabs((double)y[i] - (double)x[i]) <= 1.001 * step))
            return 0;
    }
    return 1;
}

/* Blocks of `size` values, none over the end of a head: what is left of one is a shorter block. */
static int all_cut(const struct ds_explain *e, int side, const struct cut *c, int64_t head,
                   int64_t size)
{
    const int64_t width = ds_explain_width(e->op, &e->shared);
    int differs = 0;
    for (size_t r = 0; r < e->n_rows; r++)
        for (int64_t i = 0, n; i < width; i += n) {
            const float *x = e->rows[r].input[side].in[0] + i, *y = e->rows[r].y[side] + i;
            n = head - i % head < size ? head - i % head : size;
            if (!is_cut(c, x, y, n))
                return 0;
            differs |= memcmp(x, y, (size_t)n * sizeof *x) != 0;
        }
    return differs;
}

/* Fewer values are whole steps of their largest too easily. */
enum { LEAST_BLOCK = 4 };

/* The largest blocks that explain the values, within heads of so many channels. */
static void find_blocks(const struct ds_explain *e, int side, int64_t head, int *bits, int *size)
{
    for (size_t c = 0; c < sizeof cuts / sizeof cuts[0] && *bits == 0; c++)
        for (int64_t n = 256; n >= 8 && *bits == 0; n /= 2) {
            const int64_t block = n < head ? n : head;
            if (block >= LEAST_BLOCK && all_cut(e, side, &cuts[c], head, block)) {
                *bits = cuts[c].bits;
                *size = (int)block;
            }
        }
}

void ds_explain_blocks(const struct ds_explain *e, int side, int *bits, int *size)
{
    const int64_t width = ds_explain_width(e->op, &e->shared), head = e->shared.cache.head_dim;
    *bits = *size = 0;
    if (e->op != DS_OP_CACHE || width < 1)
        return;
    if (head > 0 && width % head == 0)
        find_blocks(e, side, head, bits, size);
    if (*bits == 0) /* over the borders of heads */
        find_blocks(e, side, width, bits, size);
}
