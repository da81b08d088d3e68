/* explain_scales.c: blocks of a matmul's weights whose scales or zero points are off, which no single number tells: a
 * number of steps that is added to all, or a factor, or an offset, of each block's own, by least squares. Told where
 * there are rows enough to contradict it. */
#include "kernels/lab/explain.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BLOCKS = 128, MORE_ROWS = 3, MOST_COLUMNS = 64, STEPS = 6 };

struct blocks {
    const struct ds_explain *e;
    int side;
    double noise;
    const struct ds_explain_guess *g;
    int64_t size, n;
    double *part; /* [rows][n] what each block would add for one unit of what is fitted */
    double *off;  /* [rows] what is to be explained of a column */
};

static int64_t column_step(const struct ds_matmul_args *a)
{
    return a->n > MOST_COLUMNS ? a->n / MOST_COLUMNS : 1;
}

/* What the rows are off by in a column; the exact results are made again from the weights. */
static void look_at(const struct blocks *x, int64_t j)
{
    const struct ds_matmul_args *a = &x->e->shared.matmul;
    for (size_t r = 0; r < x->e->n_rows; r++) {
        const float *in = x->e->rows[r].input[DS_SIDE_A].in[0];
        double sum = a->bias ? (double)a->bias[j] : 0;
        for (int64_t k = 0; k < a->k; k++)
            sum += (double)in[k] * (double)a->w.data[j * a->k + k];
        x->off[r] = (double)x->e->rows[r].y[x->side][j] - sum;
    }
}

/* ---- a number of steps ------------------------------------------------------------------------- */

/* The step of a block, as formats of 4 and 8 bits cut it: its range, its largest weight. The first: 1, so that one
 * number is added to all weights. */
static double step_of(int which, const float *w, int64_t n)
{
    double low = INFINITY, high = -INFINITY, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const double v = (double)w[i];
        low = fmin(low, v);
        high = fmax(high, v);
        largest = fabs(v) > fabs(largest) ? v : largest;
    }
    const double steps[STEPS] = {1,
                                 (high - low) / 15,
                                 -largest / 8,
                                 fabs(largest) / 7,
                                 (high - low) / 255,
                                 fabs(largest) / 127};
    return steps[which];
}

/* What one step more in every block would add to row r's element of column j. */
static double of_steps(const struct blocks *x, int which, size_t r, int64_t j)
{
    const struct ds_matmul_args *a = &x->e->shared.matmul;
    const float *in = x->e->rows[r].input[DS_SIDE_A].in[0], *w = a->w.data + j * a->k;
    double sum = 0;
    for (int64_t b = 0; b < x->n; b++) {
        double inputs = 0;
        for (int64_t k = b * x->size; k < (b + 1) * x->size; k++)
            inputs += (double)in[k];
        sum += inputs * step_of(which, w + b * x->size, x->size);
    }
    return sum;
}

/* One number for all blocks: 1 if it gives all values but a hundredth of their squares, since a step is known only
 * as far as its block reaches its ends; one that is added to all weights gives all. Zero points are off by whole
 * steps. */
static int try_steps(const struct blocks *x, int which, struct ds_explain_guess *guess)
{
    const int64_t step = column_step(&x->e->shared.matmul);
    double both = 0, square = 0, off = 0;
    for (int64_t j = 0; j < x->e->shared.matmul.n; j += step) {
        look_at(x, j);
        for (size_t r = 0; r < x->e->n_rows; r++) {
            if (!ds_guess_has(x->g, r))
                continue;
            const double one = of_steps(x, which, r, j);
            both += one * x->off[r];
            square += one * one;
            off += x->off[r] * x->off[r];
        }
    }
    const double steps = square > 0 ? both / square : 0, left = off - steps * both;
    if (!(off > 0) || !((which ? 100 : 1e6) * left <= off) || steps == 0 ||
        (which && (fabs(steps) < 0.5 || fabs(steps - rint(steps)) > 0.03 * fabs(steps))))
        return 0;
    guess->kind = DS_GUESS_SCALES;
    guess->a = DS_SCALES_STEPS;
    guess->b = x->size;
    guess->value = steps;
    if (which == 0)
        snprintf(guess->text, sizeof guess->text, "every weight has %.4g added", steps);
    else
        snprintf(guess->text, sizeof guess->text,
                 "every weight is %.3g step%s of its block of %lld off, of %d bits (a zero point)",
                 steps, fabs(fabs(steps) - 1) < 1e-3 ? "" : "s", (long long)x->size,
                 which < 4 ? 4 : 8);
    return 1;
}

/* ---- a number of each block's own ---------------------------------------------------------------- */

/* What block b adds to row r's element of column j, or, of offsets, its inputs alone. */
static double part_of(const struct blocks *x, int offsets, size_t r, int64_t j, int64_t b)
{
    const struct ds_matmul_args *a = &x->e->shared.matmul;
    const float *in = x->e->rows[r].input[DS_SIDE_A].in[0], *w = a->w.data + j * a->k;
    double sum = 0;
    for (int64_t k = b * x->size; k < (b + 1) * x->size; k++)
        sum += (double)in[k] * (offsets ? 1 : (double)w[k]);
    return sum;
}

/* Solves for the blocks of a column. 0: the rows do not tell them apart. */
static int solve(const struct blocks *x, double *out)
{
    double a[MOST_BLOCKS][MOST_BLOCKS + 1];
    const int64_t n = x->n;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= n; j++) {
            a[i][j] = 0;
            for (size_t r = 0; r < x->e->n_rows; r++)
                if (ds_guess_has(x->g, r))
                    a[i][j] += x->part[r * (size_t)n + (size_t)i] *
                               (j < n ? x->part[r * (size_t)n + (size_t)j] : x->off[r]);
        }
    for (int64_t i = 0; i < n; i++) {
        const double own = a[i][i];
        for (int64_t j = 0; j < i; j++) {
            const double by = a[i][j] / a[j][j];
            for (int64_t k = j; k <= n; k++)
                a[i][k] -= by * a[j][k];
        }
        if (!(a[i][i] > 1e-9 * own))
            return 0;
    }
    for (int64_t i = n; i-- > 0;) {
        out[i] = a[i][n];
        for (int64_t j = i + 1; j < n; j++)
            out[i] -= a[i][j] * out[j];
        out[i] /= a[i][i];
    }
    return 1;
}

struct range {
    double low, high;
    int apart; /* blocks of one column differ: else the column has a factor, and no block */
};

/* Whether each block of the column has a number that explains every row, and what they are. */
static int column_holds(const struct blocks *x, int offsets, int64_t j, struct range *seen)
{
    double own[MOST_BLOCKS];
    look_at(x, j);
    for (size_t r = 0; r < x->e->n_rows; r++)
        for (int64_t b = 0; b < x->n; b++)
            x->part[r * (size_t)x->n + (size_t)b] = part_of(x, offsets, r, j, b);
    if (!solve(x, own))
        return 0;
    for (size_t r = 0; r < x->e->n_rows; r++) {
        double left = x->off[r];
        for (int64_t b = 0; b < x->n; b++)
            left -= own[b] * x->part[r * (size_t)x->n + (size_t)b];
        if (ds_guess_has(x->g, r) &&
            !(fabs(left) <= x->noise + fabs((double)x->e->rows[r].y[x->side][j]) * 0x1p-22))
            return 0;
    }
    for (int64_t b = 0; b < x->n; b++) {
        seen->apart |= fabs(own[b] - own[0]) > 1e-3 * fabs(own[0]) + 1e-4;
        seen->low = fmin(seen->low, own[b]);
        seen->high = fmax(seen->high, own[b]);
    }
    return 1;
}

static int try_own(const struct blocks *x, int offsets, struct ds_explain_guess *guess)
{
    /* half a step of three mantissa bits, as scales of fp8 have */
    static const double few_bits = 0.0626;
    const int64_t step = column_step(&x->e->shared.matmul);
    struct range seen = {INFINITY, -INFINITY, 0};
    for (int64_t j = 0; j < x->e->shared.matmul.n; j += step)
        if (!column_holds(x, offsets, j, &seen))
            return 0;
    if (!seen.apart)
        return 0;
    guess->kind = DS_GUESS_SCALES;
    guess->a = offsets ? DS_SCALES_OFFSETS : DS_SCALES_FACTORS;
    guess->b = x->size;
    guess->value = 0;
    guess->precision = !offsets && seen.low >= -few_bits && seen.high <= few_bits;
    if (offsets)
        snprintf(guess->text, sizeof guess->text,
                 "every block of %lld weights has a number added, %.3g to %.3g (its zero point)",
                 (long long)x->size, seen.low, seen.high);
    else
        snprintf(guess->text, sizeof guess->text,
                 "every block of %lld weights has another scale, %.4g to %.4g of its own%s",
                 (long long)x->size, 1 + seen.low, 1 + seen.high,
                 guess->precision ? ", as scales of few bits have" : "");
    return 1;
}

/* ---- all --------------------------------------------------------------------------------------- */

static size_t rows_off(const struct blocks *x)
{
    size_t n = 0;
    for (size_t r = 0; r < x->e->n_rows; r++)
        n += ds_guess_has(x->g, r) != 0;
    return n;
}

/* How many rows it would take to tell blocks of the usual size, or 0: there are enough, or no number is. */
static int64_t rows_wanted(int64_t k, size_t rows)
{
    enum { USUAL = 32 };
    const int64_t n = k / USUAL, wanted = n + MORE_ROWS;
    return k % USUAL == 0 && n > 1 && n <= MOST_BLOCKS && (int64_t)rows < wanted ? wanted : 0;
}

int ds_explain_scales(const struct ds_explain *e, int side, double noise,
                      struct ds_explain_guess *guess, struct ds_error *err)
{
    static const int sizes[] = {32, 64, 16, 128, 256};
    const struct ds_matmul_args *a = &e->shared.matmul;
    const struct ds_explain_guess before = *guess;
    struct blocks x = {.e = e, .side = side, .noise = noise, .g = &before};
    int found = 0;
    if (e->op != DS_OP_MATMUL || !a->w.data)
        return 0;
    x.part = ds_calloc(e->n_rows * MOST_BLOCKS, sizeof *x.part, "blocks", err);
    x.off = ds_calloc(e->n_rows, sizeof *x.off, "blocks", err);
    const int failed = !x.part || !x.off;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !failed && !found; i++) {
        x.size = sizes[i];
        x.n = a->k / x.size;
        if (a->k % x.size != 0 || x.n < 1)
            continue;
        const int enough = x.n <= MOST_BLOCKS && rows_off(&x) >= (size_t)x.n + MORE_ROWS;
        for (int which = 0; which < STEPS && !found; which++)
            found = try_steps(&x, which, guess);
        for (int offsets = 0; offsets < 2 && enough && !found; offsets++)
            found = try_own(&x, offsets, guess);
    }
    free(x.part);
    free(x.off);
    if (!failed && !found)
        guess->rows_wanted = rows_wanted(a->k, rows_off(&x));
    return failed ? -1 : found;
}
