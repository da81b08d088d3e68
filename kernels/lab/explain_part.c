/* explain_part.c: a matmul of whose terms only some have factors that are rounded to fewer bits: a stretch of k, as
 * where the first part of a sum goes through one unit and what is left through another. The stretch is the one that
 * leaves least of the sampled elements over; then every element must come out. Rounding of all terms is not of here
 * (explain_model.c). */
#include "kernels/lab/explain_formula.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_SAMPLES = 96, MOST_EDGES = 128 };

struct part {
    const struct ds_explain *e;
    const double *exact;
    int side;
    double noise;
    const struct ds_explain_guess *g;
    int64_t k;
    float *x, *w;   /* [k] rounded */
    double *before; /* [samples][k + 1] what rounding has added up to each term */
    double *off;    /* [samples] what the element is off */
    size_t samples;
};

static const int formats[] = {DS_FORMAT_TF32, DS_FORMAT_TF32_CUT, DS_FORMAT_BF16, DS_FORMAT_F16};

/* What rounding a term's factors adds; which: 1 x, 2 w, 3 both. */
static void round_factors(struct part *p, int format, int which, size_t row, int64_t j)
{
    const struct ds_matmul_args *a = &p->e->shared.matmul;
    const float *x = p->e->rows[row].input[DS_SIDE_A].in[0], *w = a->w.data + j * a->k;
    ds_format_factors(format, 0, p->x, x, a->k);
    ds_format_factors(format, 0, p->w, w, a->k);
    for (int64_t k = 0; k < a->k; k++) {
        p->x[k] = which & 1 ? p->x[k] : x[k];
        p->w[k] = which & 2 ? p->w[k] : w[k];
    }
}

static double added(const struct part *p, size_t row, int64_t j, int64_t k)
{
    const struct ds_matmul_args *a = &p->e->shared.matmul;
    return (double)p->x[k] * (double)p->w[k] -
           (double)p->e->rows[row].input[DS_SIDE_A].in[0][k] * (double)a->w.data[j * a->k + k];
}

static double off_of(const struct part *p, size_t row, int64_t j)
{
    const int64_t n = p->e->shared.matmul.n;
    return (double)p->e->rows[row].y[p->side][j] - p->exact[(int64_t)row * n + j];
}

static void sample(struct part *p, int format, int which)
{
    const int64_t n = p->e->shared.matmul.n;
    const int64_t all = n * (int64_t)p->e->n_rows, step = all / MOST_SAMPLES + 1;
    p->samples = 0;
    for (int64_t i = 0; i < all && p->samples < MOST_SAMPLES; i += step) {
        const size_t row = (size_t)(i / n);
        const int64_t j = i % n;
        if (!ds_guess_has(p->g, row))
            continue;
        double *b = p->before + p->samples * (size_t)(p->k + 1);
        round_factors(p, format, which, row, j);
        b[0] = 0;
        for (int64_t k = 0; k < p->k; k++)
            b[k + 1] = b[k] + added(p, row, j, k);
        p->off[p->samples++] = off_of(p, row, j);
    }
}

/* Sum of squares that the stretch leaves over; gives up above `most`. */
static double left_over(const struct part *p, int64_t low, int64_t high, double most)
{
    double sum = 0;
    for (size_t s = 0; s < p->samples && sum < most; s++) {
        const double *b = p->before + s * (size_t)(p->k + 1), d = p->off[s] - (b[high] - b[low]);
        sum += d * d;
    }
    return sum;
}

static void best_stretch(const struct part *p, int64_t *low, int64_t *high)
{
    const int64_t step = p->k / MOST_EDGES + 1;
    double least = INFINITY, left;
    for (int64_t a = 0; a < p->k; a += step)
        for (int64_t b = a + step; b < p->k + step; b += step) {
            const int64_t end = b < p->k ? b : p->k;
            if ((left = left_over(p, a, end, least)) < least) {
                least = left;
                *low = a;
                *high = end;
            }
        }
    /* the ends to the term */
    for (int turn = 0; turn < 2; turn++) {
        const int64_t a0 = *low, b0 = *high;
        for (int64_t a = a0 - step < 0 ? 0 : a0 - step; a <= a0 + step && a < *high; a++)
            if ((left = left_over(p, a, *high, least)) < least) {
                least = left;
                *low = a;
            }
        for (int64_t b = b0 - step; b <= b0 + step && b <= p->k; b++)
            if (b > *low && (left = left_over(p, *low, b, least)) < least) {
                least = left;
                *high = b;
            }
    }
}

static int gives(struct part *p, int format, int which, int64_t low, int64_t high)
{
    const int64_t n = p->e->shared.matmul.n, step = n > MOST_SAMPLES ? n / MOST_SAMPLES : 1;
    for (size_t r = 0; r < p->e->n_rows; r++)
        for (int64_t j = 0; j < n && ds_guess_has(p->g, r); j += step) {
            double sum = 0;
            round_factors(p, format, which, r, j);
            for (int64_t k = low; k < high; k++)
                sum += added(p, r, j, k);
            const double want = p->exact[(int64_t)r * n + j];
            if (!(fabs(off_of(p, r, j) - sum) <= p->noise + fabs(want) * 0x1p-21))
                return 0;
        }
    return 1;
}

int ds_explain_part(const struct ds_explain *e, const double *exact, int side, double noise,
                    struct ds_explain_guess *guess, struct ds_error *err)
{
    static const char *const what[] = {"", "inputs", "weights", "inputs and weights"};
    const struct ds_matmul_args *a = &e->shared.matmul;
    if (e->op != DS_OP_MATMUL || !a->w.data || a->k < 2 || a->k > 1 << 20)
        return 0;
    struct part p = {.e = e, .exact = exact, .side = side, .noise = noise, .g = guess, .k = a->k};
    int found = 0;
    p.x = ds_calloc((size_t)a->k, sizeof *p.x, "rounded factors", err);
    p.w = ds_calloc((size_t)a->k, sizeof *p.w, "rounded factors", err);
    p.before = ds_calloc(MOST_SAMPLES * ((size_t)a->k + 1), sizeof *p.before, "sums", err);
    p.off = ds_calloc(MOST_SAMPLES, sizeof *p.off, "sums", err);
    const int ready = p.x && p.w && p.before && p.off;
    for (size_t f = 0; ready && !found && f < sizeof formats / sizeof *formats; f++)
        for (int which = 3; !found && which >= 1; which--) {
            int64_t low = 0, high = a->k;
            sample(&p, formats[f], which);
            best_stretch(&p, &low, &high);
            if ((low == 0 && high == a->k) || p.samples < 8 ||
                !gives(&p, formats[f], which, low, high))
                continue;
            found = 1;
            guess->kind = DS_GUESS_PART;
            guess->a = low;
            guess->b = high;
            guess->value = formats[f];
            guess->precision = 1;
            snprintf(guess->text, sizeof guess->text,
                     "of the terms k = %lld..%lld alone %s are rounded to %s", (long long)low,
                     (long long)high - 1, what[which], ds_explain_format_name(formats[f]));
        }
    free(p.x);
    free(p.w);
    free(p.before);
    free(p.off);
    return ready ? found : -1;
}
