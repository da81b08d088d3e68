/* structure_scale.c: hypotheses about what a norm divides a row by: other than the root of its mean square, of fewer
 * channels, of another row; and an input that is cut to a range first. See structure.h. */
#include "dumps/structure_internal.h"

#include "base/dtype.h"

#include <math.h>
#include <stdlib.h>

enum divisor {
    ROOT,
    EPSILON_OUTSIDE,
    MEAN_SIZE,
    LARGEST,
    SQUARE,
    SUM,
    LESS_ONE,
    FIRST_OF_ALL, /* squares of the first m channels, divided by the width */
    FIRST_ALONE,  /* divided by m */
    BESIDE,       /* of the row m positions away */
    DIVISORS
};

struct scale {
    int by;
    int64_t m;
};

static const float *input_at(const struct task *t, int32_t position)
{
    for (size_t r = 0; r < t->n_rows; r++)
        if (t->rows[r].position == position)
            return t->rows[r].input;
    return NULL;
}

/* What row r is divided by. NaN: that is not at hand. */
static double divisor_of(const struct task *t, size_t r, const struct scale *h)
{
    const double n = t->s->width, eps = t->s->eps;
    const float *x =
        h->by == BESIDE ? input_at(t, t->rows[r].position + (int32_t)h->m) : t->rows[r].input;
    double squares = 0, sizes = 0, most = 0;
    if (!x)
        return NAN;
    for (uint32_t i = 0; i < t->s->width; i++) {
        const double v = (double)x[i];
        if (!((h->by == FIRST_OF_ALL || h->by == FIRST_ALONE) && i >= h->m))
            squares += v * v;
        sizes += fabs(v);
        most = fmax(most, fabs(v));
    }
    switch (h->by) {
    case EPSILON_OUTSIDE:
        return sqrt(squares / n) + eps;
    case MEAN_SIZE:
        return sizes / n + eps;
    case LARGEST:
        return most + eps;
    case SQUARE:
        return squares / n + eps;
    case SUM:
        return sqrt(squares + eps);
    case LESS_ONE:
        return sqrt(squares / (n - 1) + eps);
    case FIRST_ALONE:
        return sqrt(squares / (double)h->m + eps);
    default:
        return sqrt(squares / n + eps);
    }
}

static int predict_scale(const struct task *t, size_t r, const void *how)
{
    const struct scale root = {ROOT, 0};
    const double times = divisor_of(t, r, &root) / divisor_of(t, r, how);
    if (isnan(times))
        return -1;
    for (uint32_t i = 0; i < t->s->width; i++)
        t->guess[i] = (float)(times * (double)t->rows[r].ref[i]);
    return 1;
}

/* What rounding results to the storage format leaves of the squares, at most. */
static double spread_of(int dtype)
{
    return dtype == DS_BF16 ? 2e-5 : dtype == DS_F16 ? 1e-6 : 1e-8;
}

/* The ratio of a row whose elements all have one; NaN: they do not. */
static double ratio_of(const struct task *t, size_t r)
{
    double both = 0, square = 0, off = 0;
    for (uint32_t i = 0; i < t->s->width; i++) {
        const double ref = (double)t->rows[r].ref[i], mine = (double)t->rows[r].mine[i];
        both += ref * mine;
        square += ref * ref;
    }
    for (uint32_t i = 0; i < t->s->width; i++) {
        const double d = (double)t->rows[r].mine[i] - both / square * (double)t->rows[r].ref[i];
        off += d * d;
    }
    return off <= spread_of(t->s->dtype) * square ? both / square : (double)NAN;
}

/* How many channels the squares are of, as the first row shows it. */
static void try_fewer(struct task *t, size_t first, double ratio)
{
    const struct scale root = {ROOT, 0};
    const double right = divisor_of(t, first, &root);
    for (int by = FIRST_OF_ALL; by <= FIRST_ALONE; by++)
        for (int64_t m = 1; m < (int64_t)t->s->width && !t->best->found; m++) {
            const struct scale h = {by, m};
            if (!(fabs(right / divisor_of(t, first, &h) - ratio) <= 1e-5 * fabs(ratio)))
                continue;
            claim(t, explains(t, predict_scale, &h), 0,
                  "divided by the root of the squares of the first %lld of %u channels, over %lld",
                  (long long)m, t->s->width, (long long)(by == FIRST_ALONE ? m : t->s->width));
        }
}

void try_scale(struct task *t)
{
    static const char *const text[FIRST_OF_ALL] = {
        [EPSILON_OUTSIDE] = "epsilon is added to the root, not to the mean square under it",
        [MEAN_SIZE] = "divided by the mean of absolute values, not by the root of the mean square",
        [LARGEST] = "divided by the largest absolute value, not by the root of the mean square",
        [SQUARE] = "divided by the mean square, without its root",
        [SUM] = "divided by the root of the sum of squares, not of their mean",
        [LESS_ONE] = "the sum of squares is divided by the width less one"};
    size_t first = 0, rows = 0;
    for (size_t r = t->n_rows; r-- > 0;)
        if (t->off_in_row[r] && t->rows[r].input) {
            first = r;
            rows++;
        }
    if (rows < 2 || !(t->s->eps > 0))
        return; /* one row has one number, which many things give */
    const double ratio = ratio_of(t, first);
    if (isnan(ratio))
        return;
    for (int by = EPSILON_OUTSIDE; by < FIRST_OF_ALL; by++) {
        const struct scale h = {by, 0};
        claim(t, explains(t, predict_scale, &h), 0, "%s", text[by]);
    }
    for (int64_t m = -1; m <= 1 && !t->best->found; m += 2) {
        const struct scale h = {BESIDE, m};
        claim(t, explains(t, predict_scale, &h), 0,
              "divided by the root of the mean square of the position %s it",
              m < 0 ? "before" : "behind");
    }
    if (!t->best->found && t->s->dtype == DS_F32) /* 16 bits hold too few digits of a ratio */
        try_fewer(t, first, ratio);
}

/* ---- an input that is cut ---------------------------------------------------------------------- */

static int predict_cut(const struct task *t, size_t r, const void *how)
{
    const struct ds_structure_row *row = &t->rows[r];
    const double at = *(const double *)how, n = t->s->width;
    double squares = 0, kept = 0;
    if (!row->input)
        return -1;
    for (uint32_t i = 0; i < t->s->width; i++) {
        const double x = (double)row->input[i], y = fmax(-at, fmin(at, x));
        squares += x * x;
        kept += y * y;
    }
    const double times = sqrt((squares / n + t->s->eps) / (kept / n + t->s->eps));
    for (uint32_t i = 0; i < t->s->width; i++) {
        const double x = (double)row->input[i], y = fmax(-at, fmin(at, x));
        t->guess[i] = x != 0 ? (float)(times * y / x * (double)row->ref[i]) : 0.0f;
    }
    return 1;
}

/* In a row a few of whose values are cut, the others have one ratio, and what was cut lies at one limit. */
static double find_cut(const struct task *t, size_t r)
{
    const struct ds_structure_row *row = &t->rows[r];
    size_t n = 0, cut = 0;
    for (uint32_t i = 0; i < t->s->width; i++)
        if (row->input[i] != 0 && row->ref[i] != 0 && isfinite(row->mine[i]))
            t->sorted[n++] = (double)row->mine[i] / (double)row->ref[i];
    if (n < 16)
        return NAN;
    qsort(t->sorted, n, sizeof *t->sorted, structure_by_value);
    const double times = t->sorted[n - 1 - n / 16]; /* values that are cut have a smaller ratio */
    for (uint32_t i = 0; i < t->s->width; i++) {
        const double x = (double)row->input[i],
                     left = (double)row->mine[i] / (double)row->ref[i] / times * fabs(x);
        if (x != 0 && isfinite(left) && left < 0.999 * fabs(x))
            t->sorted[cut++] = left;
    }
    qsort(t->sorted, cut, sizeof *t->sorted, structure_by_value);
    return cut ? t->sorted[cut / 2] : (double)NAN;
}

void try_cut_input(struct task *t)
{
    size_t r = 0;
    while (r < t->n_rows && (!t->off_in_row[r] || !t->rows[r].input))
        r++;
    if (r == t->n_rows || !(t->s->eps > 0))
        return;
    const double at = find_cut(t, r);
    if (at > 0)
        claim(t, explains(t, predict_cut, &at), 0, "its input is cut to +-%.5g", at);
}
