/* explain_factors.c: a matmul whose factors were changed one by one before they were multiplied: cut to a range, whose
 * limit is found, or without their sign; and a bias that goes by the row. Every guess is made of one element and must
 * hold for all. */
#include "kernels/lab/explain.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_COLUMNS = 64 };
enum way { CUT, CUT_ABOVE, CUT_BELOW, SIZES, POSITIVE, WAYS };

struct factors {
    const struct ds_explain *e;
    int side, of_w; /* of_w: weights are changed, else what is read */
    double noise;
    const struct ds_explain_guess *g;
};

static double changed(int way, double at, double v)
{
    switch (way) {
    case CUT:
        return fmax(-at, fmin(at, v));
    case CUT_ABOVE:
        return fmin(at, v);
    case CUT_BELOW:
        return fmax(at, v);
    case SIZES:
        return fabs(v);
    default:
        return fmax(v, 0);
    }
}

static double factor(const struct factors *f, size_t row, int64_t j, int64_t k, int of_w)
{
    const struct ds_matmul_args *a = &f->e->shared.matmul;
    return of_w ? (double)a->w.data[j * a->k + k]
                : (double)f->e->rows[row].input[DS_SIDE_A].in[0][k];
}

static double product(const struct factors *f, size_t row, int64_t j, int way, double at)
{
    const struct ds_matmul_args *a = &f->e->shared.matmul;
    double sum = a->bias ? (double)a->bias[j] : 0;
    for (int64_t k = 0; k < a->k; k++)
        sum += changed(way, at, factor(f, row, j, k, f->of_w)) * factor(f, row, j, k, !f->of_w);
    return sum;
}

static int gives(const struct factors *f, int way, double at)
{
    const int64_t n = f->e->shared.matmul.n, step = n > MOST_COLUMNS ? n / MOST_COLUMNS : 1;
    for (size_t r = 0; r < f->e->n_rows; r++)
        for (int64_t j = 0; j < n && ds_guess_has(f->g, r); j += step) {
            const double got = (double)f->e->rows[r].y[f->side][j],
                         want = product(f, r, j, way, at);
            if (!(fabs(got - want) <= f->noise + fabs(want) * 0x1p-21))
                return 0;
        }
    return 1;
}

/* A term as the limit rises past its key: it is added as it is from there on; before, the limit times its slope is. */
struct step {
    double key, whole, slope;
};

static int by_key(const void *a, const void *b)
{
    const struct step *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

/* Limits from below are those from above of what has the other sign. */
static void step_of(const struct factors *f, size_t row, int64_t j, int64_t k, int way,
                    struct step *s)
{
    const double v = factor(f, row, j, k, f->of_w), o = factor(f, row, j, k, !f->of_w);
    s->whole = v * o;
    s->key = way == CUT ? fabs(v) : way == CUT_ABOVE ? v : -v;
    s->slope = way == CUT_BELOW || (way == CUT && v < 0) ? -o : o;
}

/* The element that is off by most, of those rows that the guess is about. */
static void most_off(const struct factors *f, size_t *row, int64_t *column)
{
    double most = -1;
    for (size_t r = 0; r < f->e->n_rows; r++)
        for (int64_t j = 0; j < f->e->shared.matmul.n && ds_guess_has(f->g, r); j++) {
            const double off = fabs((double)f->e->rows[r].y[f->side][j] -
                                    (double)f->e->rows[r].y[DS_SIDE_B - f->side][j]);
            if (off > most) {
                most = off;
                *row = r;
                *column = j;
            }
        }
}

static const char *format_of(double at)
{
    return fabs(at - 448) < 0.01  ? ", the end of fp8-e4m3"
           : fabs(at - 57344) < 1 ? ", the end of fp8-e5m2"
           : fabs(at - 65504) < 1 ? ", the end of f16"
           : fabs(at - 6) < 1e-4  ? ", the end of fp4"
                                  : "";
}

static int told(const struct factors *f, int way, double at, struct ds_explain_guess *guess)
{
    const char *what = f->of_w ? "weights" : "inputs";
    guess->kind = DS_GUESS_FACTORS;
    guess->a = way;
    guess->b = f->of_w;
    guess->value = at;
    switch (way) {
    case CUT:
        snprintf(guess->text, sizeof guess->text,
                 "%s are cut to +-%.5g%s before they are multiplied", what, at, format_of(at));
        break;
    case CUT_ABOVE:
    case CUT_BELOW:
        snprintf(guess->text, sizeof guess->text,
                 "%s %s %.5g are cut to it before they are multiplied", what,
                 way == CUT_ABOVE ? "above" : "below", at);
        break;
    case SIZES:
        snprintf(guess->text, sizeof guess->text, "%s have lost their sign", what);
        break;
    default:
        snprintf(guess->text, sizeof guess->text, "%s below 0 are taken for 0", what);
    }
    return 1;
}

/* Between two neighbouring keys the element is a straight line of the limit, so that every such pair tells one limit, if
 * that lies between them. A limit that cuts nothing is none. */
static int try_cuts(const struct factors *f, struct step *s, struct ds_explain_guess *guess)
{
    const struct ds_matmul_args *a = &f->e->shared.matmul;
    size_t row = 0;
    int64_t j = 0;
    most_off(f, &row, &j);
    const double got = (double)f->e->rows[row].y[f->side][j] - (a->bias ? (double)a->bias[j] : 0);
    for (int way = CUT; way <= CUT_BELOW; way++) {
        double whole = 0, slope = 0;
        for (int64_t k = 0; k < a->k; k++) {
            step_of(f, row, j, k, way, &s[k]);
            slope += s[k].slope;
        }
        qsort(s, (size_t)a->k, sizeof *s, by_key);
        for (int64_t k = 0; k < a->k; k++) {
            const double at = (got - whole) / slope, low = k ? s[k - 1].key : (double)-INFINITY,
                         slack = 1e-3 * fabs(s[k].key);
            if (at >= low - slack && at <= s[k].key + slack && (way != CUT || at > 0) &&
                gives(f, way, way == CUT_BELOW ? -at : at))
                return told(f, way, way == CUT_BELOW ? -at : at, guess);
            whole += s[k].whole;
            slope -= s[k].slope;
        }
    }
    return 0;
}

/* Rows have numbers in their call: the bias of column r is added to row r. */
static int bias_by_row(const struct ds_explain *e, int side, double noise, const double *exact,
                       struct ds_explain_guess *guess)
{
    const struct ds_matmul_args *a = &e->shared.matmul;
    size_t rows = 0;
    for (size_t r = 0; r < e->n_rows && a->bias; r++) {
        const int64_t number = e->rows[r].at[side].row;
        if (!ds_guess_has(guess, r))
            continue;
        if (number < 0 || number >= a->n)
            return 0;
        for (int64_t j = 0; j < a->n; j++) {
            const double want =
                exact[(int64_t)r * a->n + j] - (double)a->bias[j] + (double)a->bias[number];
            if (!(fabs((double)e->rows[r].y[side][j] - want) <= noise + fabs(want) * 0x1p-21))
                return 0;
        }
        rows++;
    }
    if (rows < 2)
        return 0;
    guess->kind = DS_GUESS_FACTORS;
    snprintf(guess->text, sizeof guess->text,
             "row r of the call has the bias of column r in every column");
    return 1;
}

int ds_explain_factors(const struct ds_explain *e, const double *exact, int side, double noise,
                       struct ds_explain_guess *guess, struct ds_error *err)
{
    const struct ds_matmul_args *a = &e->shared.matmul;
    struct factors f = {.e = e, .side = side, .noise = noise, .g = guess};
    struct ds_explain_guess found = *guess;
    if (e->op != DS_OP_MATMUL || !a->w.data)
        return 0;
    if (bias_by_row(e, side, noise, exact, guess))
        return 1;
    struct step *steps = ds_calloc((size_t)a->k, sizeof *steps, "factors", err);
    if (!steps)
        return -1;
    for (f.of_w = 0; f.of_w < 2 && !found.text[0]; f.of_w++) {
        for (int way = SIZES; way < WAYS && !found.text[0]; way++)
            if (gives(&f, way, 0))
                told(&f, way, 0, &found);
        if (!found.text[0])
            try_cuts(&f, steps, &found);
    }
    free(steps);
    *guess = found;
    return found.text[0] != '\0';
}
