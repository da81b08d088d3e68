/* structure_sum.c: hypotheses about sums of a few rows (a residual, shares of ranks, outputs of
 * experts): a term is left out, counted twice, has a factor, is that of another row or of fewer bits. About sums of
 * products: one term lacks. About norms: the mean is subtracted. And how many mantissa bits hold the values of a
 * side. See structure.h. */
#include "dumps/structure_internal.h"

#include "base/dtype.h"

#include <math.h>

struct term {
    uint32_t which;
    double times; /* -1: mine lacks it; 1: mine has it once more */
};

static int predict_term(const struct task *t, size_t r, const void *how)
{
    const struct term *h = how;
    const struct ds_structure_row *row = &t->rows[r];
    if (!row->term[h->which])
        return -1;
    for (uint32_t i = 0; i < t->s->width; i++)
        t->guess[i] = (float)((double)row->ref[i] + h->times * (double)row->term_weight[h->which] *
                                                        (double)row->term[h->which][i]);
    return 1;
}

/* How many times a term is added beside what the reference adds, by least squares over all rows. */
static double fitted_times(const struct task *t, uint32_t which)
{
    double both = 0, square = 0;
    for (size_t r = 0; r < t->n_rows; r++)
        for (uint32_t i = 0; t->rows[r].term[which] && i < t->s->width; i++) {
            double x = (double)t->rows[r].term_weight[which] * (double)t->rows[r].term[which][i],
                   d = (double)t->rows[r].mine[i] - (double)t->rows[r].ref[i];
            both += isfinite(d) ? d * x : 0;
            square += isfinite(d) ? x * x : 0;
        }
    return square > 0 ? both / square : 0;
}

struct beside {
    uint32_t which;
    int behind;
};

/* One term is the row's before or behind. */
static int predict_beside(const struct task *t, size_t r, const void *how)
{
    const struct beside *h = how;
    const struct ds_structure_row *row = &t->rows[r];
    const float *own = row->term[h->which], *other = row->term_beside[h->behind][h->which];
    if (!own || !other)
        return -1;
    for (uint32_t i = 0; i < t->s->width; i++)
        t->guess[i] = (float)((double)row->ref[i] + (double)row->term_weight[h->which] *
                                                        ((double)other[i] - (double)own[i]));
    return 1;
}

/* Terms of fewer bits. */
struct coarse {
    uint32_t which;
    int dtype, all; /* all: every term is */
};

static int predict_coarse(const struct task *t, size_t r, const void *how)
{
    const struct coarse *h = how;
    const struct ds_structure_row *row = &t->rows[r];
    const uint32_t first = h->all ? 0 : h->which, last = h->all ? t->s->n_terms : h->which + 1;
    for (uint32_t i = 0; i < t->s->width; i++) {
        double off = 0;
        for (uint32_t k = first; k < last; k++) {
            if (!row->term[k])
                return -1;
            const float own = row->term[k][i];
            const double kept = h->dtype == DS_BF16 ? (double)ds_bf16_value(ds_bf16_round(own))
                                                    : (double)ds_f16_value(ds_f16_round(own));
            off += (double)row->term_weight[k] * (kept - (double)own);
        }
        t->guess[i] = (float)((double)row->ref[i] + off);
    }
    return 1;
}

static void try_coarse(struct task *t)
{
    static const int dtypes[] = {DS_BF16, DS_F16};
    for (uint32_t k = 0; k < t->s->n_terms && k < DS_STRUCTURE_TERMS; k++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            const struct coarse h = {k, dtypes[d], 0};
            t->best->precision |=
                claim(t, explains(t, predict_coarse, &h), 0, "the sum has %s rounded to %s",
                      t->s->term_name[k], ds_dtype_name(dtypes[d]));
        }
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes && t->s->n_terms > 1; d++) {
        const struct coarse h = {0, dtypes[d], 1};
        t->best->precision |=
            claim(t, explains(t, predict_coarse, &h), 0, "every term of the sum is rounded to %s",
                  ds_dtype_name(dtypes[d]));
    }
}

void try_terms(struct task *t)
{
    for (uint32_t k = 0; k < t->s->n_terms && k < DS_STRUCTURE_TERMS; k++) {
        struct term lacks = {k, -1}, more = {k, 1};
        claim(t, explains(t, predict_term, &lacks), 0, "the sum lacks %s", t->s->term_name[k]);
        claim(t, explains(t, predict_term, &more), 0,
              "the sum has %s once more than the reference's", t->s->term_name[k]);
        struct term other = {k, fitted_times(t, k)};
        if (fabs(other.times + 2) <= 1e-3)
            claim(t, explains(t, predict_term, &other), 0, "the sum has %s with the other sign",
                  t->s->term_name[k]);
        else if (fabs(other.times) > 1e-4)
            claim(t, explains(t, predict_term, &other), 0, "the sum has %s times %.4g",
                  t->s->term_name[k], 1 + other.times);
        for (int behind = 0; behind < 2; behind++) {
            const struct beside h = {k, behind};
            claim(t, explains(t, predict_beside, &h), 0, "the sum has %s of the position 1 %s",
                  t->s->term_name[k], behind ? "after" : "before");
        }
    }
    try_factors(t);
    try_coarse(t);
}

/* ---- a vector that all rows have in common ---------------------------------------------------- */

static double off_by(const struct task *t, size_t r, uint32_t i)
{
    double d = (double)t->rows[r].mine[i] - (double)t->rows[r].ref[i];
    return isfinite(d) ? d : 0;
}

static double along(const struct task *t, size_t r, const double *vector)
{
    double sum = 0;
    for (uint32_t i = 0; i < t->s->width; i++)
        sum += off_by(t, r, i) * vector[i];
    return sum;
}

static int predict_vector(const struct task *t, size_t r, const void *how)
{
    const double *vector = how, times = along(t, r, vector);
    for (uint32_t i = 0; i < t->s->width; i++)
        t->guess[i] = (float)((double)t->rows[r].ref[i] + times * vector[i]);
    return 1;
}

/* The direction in which the rows' differences lie, by the power method; 0: there is none. */
static int common_direction(const struct task *t, double *vector, double *next)
{
    enum { STEPS = 30 };
    size_t first = 0;
    for (size_t r = 1; r < t->n_rows; r++)
        first = t->off_in_row[r] > t->off_in_row[first] ? r : first;
    for (uint32_t i = 0; i < t->s->width; i++)
        vector[i] = off_by(t, first, i);
    for (int step = 0; step < STEPS; step++) {
        double size = 0;
        for (uint32_t i = 0; i < t->s->width; i++)
            next[i] = 0;
        for (size_t r = 0; r < t->n_rows; r++) {
            const double times = t->off_in_row[r] ? along(t, r, vector) : 0;
            for (uint32_t i = 0; i < t->s->width && t->off_in_row[r]; i++)
                next[i] += times * off_by(t, r, i);
        }
        for (uint32_t i = 0; i < t->s->width; i++)
            size += next[i] * next[i];
        if (!(size > 0) || !isfinite(size))
            return 0;
        for (uint32_t i = 0; i < t->s->width; i++)
            vector[i] = next[i] / sqrt(size);
    }
    return 1;
}

/* A sum of products that lacks one term, or has one twice: each row is off by its input there, times the
 * weights of that term. In single channels that says nothing. */
void try_one_vector(struct task *t)
{
    enum { LEAST_ROWS = 3, LEAST_WIDTH = 16 };
    size_t rows = 0;
    uint32_t wide = 0;
    double *vector = t->sorted, *next = t->sorted + t->s->width, most = 0;
    for (size_t r = 0; r < t->n_rows; r++)
        rows += t->off_in_row[r] != 0;
    if (rows < LEAST_ROWS || t->s->width < LEAST_WIDTH || !common_direction(t, vector, next))
        return;
    for (uint32_t i = 0; i < t->s->width; i++)
        most = fmax(most, fabs(vector[i]));
    for (uint32_t i = 0; i < t->s->width; i++)
        wide += fabs(vector[i]) > 0.01 * most;
    if (2 * wide >= t->s->width)
        claim(
            t, explains(t, predict_vector, vector), 0,
            "rows are off by multiples of one vector: a term of the sum lacks, or is one too many");
}

/* ---- a norm that subtracts the mean ------------------------------------------------------------ */

/* mine = a * ref + b * ref / input, by least squares, where b / a is the mean turned. */
static int predict_mean(const struct task *t, size_t r, const void *how)
{
    const struct ds_structure_row *row = &t->rows[r];
    double xx = 0, xy = 0, yy = 0, xm = 0, ym = 0, mean = 0, square = 0;
    (void)how;
    if (!row->input)
        return -1;
    for (uint32_t i = 0; i < t->s->width; i++) {
        mean += (double)row->input[i];
        square += (double)row->input[i] * (double)row->input[i];
    }
    mean /= t->s->width;
    const double small = 1e-3 * sqrt(square / t->s->width);
    for (uint32_t i = 0; i < t->s->width; i++) {
        if (!(fabs((double)row->input[i]) > small))
            continue;
        double x = (double)row->ref[i], y = x / (double)row->input[i], m = (double)row->mine[i];
        xx += x * x;
        xy += x * y;
        yy += y * y;
        xm += x * m;
        ym += y * m;
    }
    const double det = xx * yy - xy * xy, a = (xm * yy - ym * xy) / det,
                 b = (ym * xx - xm * xy) / det;
    if (!(det > 0) || !(fabs(b / a + mean) <= 0.01 * fabs(mean)))
        return 0;
    for (uint32_t i = 0; i < t->s->width; i++) {
        double in = (double)row->input[i], x = (double)row->ref[i];
        t->guess[i] = fabs(in) > small ? (float)(a * x + b * x / in) : NAN;
    }
    return 1;
}

void try_mean(struct task *t)
{
    claim(t, explains(t, predict_mean, NULL), 0,
          "each row has its mean subtracted (LayerNorm, not RMSNorm)");
}

/* Mantissa bits behind the point that this f32 number uses. */
static int bits_of(float x)
{
    uint32_t mantissa = ds_f32_bits(x) & 0x7fffff;
    return mantissa ? 23 - __builtin_ctz(mantissa) : 0;
}

void measure_bits(const struct ds_structure_site *s, const struct ds_structure_row *rows,
                  size_t n_rows, struct ds_structure *out)
{
    if (s->dtype != DS_F32)
        return;
    for (size_t r = 0; r < n_rows; r++)
        for (uint32_t i = 0; i < s->width; i++) {
            int mine = bits_of(rows[r].mine[i]), ref = bits_of(rows[r].ref[i]);
            if (!isfinite(rows[r].mine[i]) || !isfinite(rows[r].ref[i]))
                continue;
            out->mine_bits = mine > out->mine_bits ? mine : out->mine_bits;
            out->ref_bits = ref > out->ref_bits ? ref : out->ref_bits;
        }
}
