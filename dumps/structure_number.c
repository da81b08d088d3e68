/* structure_number.c: hypotheses about one number: a ratio, a constant, of rows, heads or channels; the epsilon behind
 * it. See structure.h. */
#include "dumps/structure_internal.h"

#include "base/dtype.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CHANNELS = 16384 };

enum { RATIO, CONSTANT };

/* The median of mine / ref, or mine - ref, over elements from..to that are large enough to tell. NaN
 * when fewer than four are. */
static double typical(const struct task *t, size_t r, uint32_t from, uint32_t to, int what)
{
    const struct ds_structure_row *row = &t->rows[r];
    size_t n = 0;
    for (uint32_t i = from; i < to; i++) {
        double ref = (double)row->ref[i], mine = (double)row->mine[i];
        if (!isfinite(ref) || !isfinite(mine) || (what == RATIO && !(fabs(ref) > 0.2 * t->rms[r])))
            continue;
        t->sorted[n++] = what == RATIO ? mine / ref : mine - ref;
    }
    if (n < 4)
        return NAN;
    qsort(t->sorted, n, sizeof *t->sorted, structure_by_value);
    return t->sorted[n / 2];
}

struct number {
    int what;
    uint32_t unit; /* elements that share one number */
};

/* The median of mine / ref, or mine - ref, over all elements that are off; NaN when all are, or when they are too small
 * to tell. */
static double typical_off(const struct task *t, int what)
{
    size_t n = 0;
    uint64_t of = 0;
    for (size_t r = 0; r < t->n_rows; r++)
        of += t->off_in_row[r] ? t->s->width : 0;
    for (size_t r = 0; r < t->n_rows; r++)
        for (uint32_t i = 0; i < t->s->width && n < 2 * (size_t)t->s->width; i++) {
            const double ref = (double)t->rows[r].ref[i], mine = (double)t->rows[r].mine[i];
            if (is_off(t, r, i) && isfinite(mine) &&
                (what == CONSTANT || fabs(ref) > 0.2 * t->rms[r]))
                t->sorted[n++] = what == CONSTANT ? mine - ref : mine / ref;
        }
    if (n < 4 || 4 * t->off > 3 * of)
        return NAN;
    qsort(t->sorted, n, sizeof *t->sorted, structure_by_value);
    return t->sorted[n / 2];
}

static int predict_factor(const struct task *t, size_t r, const void *how)
{
    for (uint32_t i = 0; i < t->s->width; i++)
        t->guess[i] = (float)(*(const double *)how * (double)t->rows[r].ref[i]);
    return 1;
}

static int predict_added(const struct task *t, size_t r, const void *how)
{
    for (uint32_t i = 0; i < t->s->width; i++)
        t->guess[i] = (float)(*(const double *)how + (double)t->rows[r].ref[i]);
    return 1;
}

static int predict_number(const struct task *t, size_t r, const void *how)
{
    const struct number *h = how;
    for (uint32_t from = 0; from < t->s->width; from += h->unit) {
        double x = typical(t, r, from, from + h->unit, h->what);
        for (uint32_t i = from; i < from + h->unit; i++) {
            double ref = (double)t->rows[r].ref[i];
            t->guess[i] = (float)(h->what == RATIO ? x * ref : x + ref);
        }
    }
    return 1;
}

/* One number a channel, the same in every row: a bias, or a weight. The median over the rows. */
static int predict_channels(const struct task *t, size_t r, const void *how)
{
    int what = *(const int *)how;
    for (uint32_t i = 0; i < t->s->width; i++) {
        size_t n = 0;
        for (size_t o = 0; o < t->n_rows && o < t->s->width; o++) {
            double ref = (double)t->rows[o].ref[i], mine = (double)t->rows[o].mine[i];
            if (t->off_in_row[o] && isfinite(ref) && isfinite(mine) &&
                (what == CONSTANT || ref != 0))
                t->sorted[n++] = what == RATIO ? mine / ref : mine - ref;
        }
        qsort(t->sorted, n, sizeof *t->sorted, structure_by_value);
        double x = n ? t->sorted[n / 2] : 0, ref = (double)t->rows[r].ref[i];
        t->guess[i] = n ? (float)(what == RATIO ? x * ref : x + ref) : 0.0f;
    }
    return 1;
}

/* How a row's ratios compare with those of row `to`, in the middle; NaN: nothing to compare. */
static double ratio_of_rows(const struct task *t, size_t r, size_t to)
{
    const struct ds_structure_row *x = &t->rows[r], *y = &t->rows[to];
    size_t n = 0;
    for (uint32_t i = 0; i < t->s->width; i++) {
        const double ratio = (double)x->mine[i] / (double)x->ref[i],
                     other = (double)y->mine[i] / (double)y->ref[i];
        if (fabs((double)x->ref[i]) > 0.1 * t->rms[r] &&
            fabs((double)y->ref[i]) > 0.1 * t->rms[to] && isfinite(ratio / other))
            t->sorted[n++] = ratio / other;
    }
    if (n < 4)
        return NAN;
    qsort(t->sorted, n, sizeof *t->sorted, structure_by_value);
    return t->sorted[n / 2];
}

/* A factor for each channel, the same in every row, and one for each row. */
static int predict_rows_and_channels(const struct task *t, size_t r, const void *how)
{
    double *of_row = t->sorted + t->s->width;
    size_t first = 0;
    (void)how;
    while (first < t->n_rows && !t->off_in_row[first])
        first++;
    for (size_t o = 0; o < t->n_rows; o++) {
        const double x = t->off_in_row[o] ? ratio_of_rows(t, o, first) : (double)NAN;
        of_row[o] = x;
    }
    for (uint32_t i = 0; i < t->s->width; i++) {
        size_t n = 0;
        for (size_t o = 0; o < t->n_rows && n < t->s->width; o++) {
            const double ref = (double)t->rows[o].ref[i], mine = (double)t->rows[o].mine[i];
            if (ref != 0 && isfinite(of_row[o]) && of_row[o] != 0 && isfinite(mine))
                t->sorted[n++] = mine / ref / of_row[o];
        }
        qsort(t->sorted, n, sizeof *t->sorted, structure_by_value);
        t->guess[i] = n ? (float)(t->sorted[n / 2] * of_row[r] * (double)t->rows[r].ref[i]) : 0.0f;
    }
    return 1;
}

static size_t rows_off(const struct task *t)
{
    size_t n = 0;
    for (size_t r = 0; r < t->n_rows; r++)
        n += t->off_in_row[r] >= STRUCTURE_LEAST_OFF;
    return n;
}

struct range {
    double low, high;
};

static struct range numbers_of(const struct task *t, int what)
{
    struct range x = {INFINITY, -INFINITY};
    for (size_t r = 0; r < t->n_rows; r++) {
        double v = t->off_in_row[r] ? typical(t, r, 0, t->s->width, what) : (double)NAN;
        if (isnan(v))
            continue;
        x.low = fmin(x.low, v);
        x.high = fmax(x.high, v);
    }
    return x;
}

/* The epsilon that gives these ratios, or NaN: ratio^2 = (ms + eps) / (ms + eps'), where ms is the
 * input's mean square. The smallest row tells it best; all must agree. */
struct epsilon {
    double value, slack;
};

static struct epsilon fitted_epsilon(const struct task *t)
{
    double eps = NAN, least = INFINITY;
    for (int pass = 0; pass < 2; pass++)
        for (size_t r = 0; r < t->n_rows; r++) {
            double ratio = t->off_in_row[r] ? typical(t, r, 0, t->s->width, RATIO) : (double)NAN,
                   ms = 0;
            if (isnan(ratio) || !t->rows[r].input)
                continue;
            for (uint32_t i = 0; i < t->s->width; i++)
                ms += (double)t->rows[r].input[i] * (double)t->rows[r].input[i];
            ms /= t->s->width;
            double other = (ms + t->s->eps) / (ratio * ratio) - ms;
            if (pass == 0 && ms < least) {
                least = ms;
                eps = other;
            }
            double want = sqrt((ms + t->s->eps) / (ms + eps));
            if (pass == 1 && !(fabs(want - ratio) <= t->s->order + 1e-6 + 0.02 * fabs(ratio - 1)))
                return (struct epsilon){NAN, 0};
        }
    return (struct epsilon){eps, least * 0x1p-21};
}

/* A chosen number is round: a power of ten before anything else, 1e-6 and not 1.01e-6. */
static double rounded(double x, double slack)
{
    double power = pow(10, round(log10(x))), unit = pow(10, floor(log10(x))),
           near = round(x / unit) * unit;
    if (fabs(power - x) <= 0.02 * x + slack)
        return power;
    return fabs(near - x) <= 0.02 * x ? near : x;
}

/* "epsilon 1e-06 instead of 1e-05 fits"; where it is the model's own in another format, which. */
static void tell_epsilon(const struct task *t, const struct epsilon *fit, char *text, size_t size)
{
    static const int dtypes[] = {DS_F16, DS_BF16};
    const double own = t->s->eps, round = rounded(fit->value, fit->slack);
    char as[24] = "";
    for (size_t i = 0; i < 2; i++) {
        const double kept = dtypes[i] == DS_F16 ? (double)ds_f16_value(ds_f16_round((float)own))
                                                : (double)ds_bf16_value(ds_bf16_round((float)own));
        const size_t n = strlen(as);
        if (fabs(kept - own) > 4 * fit->slack && fabs(fit->value - kept) <= 0.1 * fabs(kept - own))
            snprintf(as + n, sizeof as - n, "%s%s", n ? " or " : "", ds_dtype_name(dtypes[i]));
    }
    if (as[0] || fabs(round - own) <= 1e-3 * own)
        snprintf(text, size, "epsilon %.6g instead of %.3g fits%s%s%s", fit->value, own,
                 as[0] ? ": that, as " : "", as, as[0] ? " has it" : "");
    else
        snprintf(text, size, "epsilon %.3g instead of %.3g fits", round, own);
}

static int claim_ratio(struct task *t, double explained, const struct range *x)
{
    double spread = x->high - x->low, middle = 0.5 * (x->low + x->high);
    if (x->low == 0 && x->high == 0)
        return 0; /* zeros: try_orders says so */
    if (spread <= 0.02 * fabs(middle - 1) + 4 * t->s->order)
        return claim(t, explained, middle, "every value is %.6g times the reference's", middle);
    return claim(t, explained, 0, "each row is a constant times the reference's, %.6g to %.6g",
                 x->low, x->high);
}

static void tell_ratio(struct task *t, double explained)
{
    struct range x = numbers_of(t, RATIO);
    struct epsilon eps = {NAN, 0};
    char text[80];
    if (t->s->op == DS_STRUCTURE_NORM && t->s->eps > 0)
        eps = fitted_epsilon(t);
    double middle = 0.5 * (x.low + x.high), spread = x.high - x.low;
    if (fabs(eps.value) <= fmax(eps.slack, 1e-2 * t->s->eps))
        claim(t, explained, spread <= 0.01 * fabs(middle - 1) ? middle : 0,
              "each row by one ratio, %.9g to %.9g: no epsilon instead of %.3g fits", x.low, x.high,
              t->s->eps);
    else if (eps.value > 0) {
        tell_epsilon(t, &eps, text, sizeof text);
        claim(t, explained, spread <= 0.01 * fabs(middle - 1) ? middle : 0,
              "each row by one ratio, %.9g to %.9g: %s", x.low, x.high, text);
    } else if (claim_ratio(t, explained, &x))
        t->best->scale = fmax(fabs(x.low - 1), fabs(x.high - 1));
}

/* A number for each head of each row. That heads of attention are off by little, and each row's otherwise, is what a
 * denominator of few bits does; other data would be off by more, or by the same in every row. */
static void tell_heads(struct task *t, double explained)
{
    static const double little = 0x1p-6, alike = 1e-5;
    const uint32_t d = t->s->head_dim;
    struct range all = {INFINITY, -INFINITY};
    int varies = 0;
    for (uint32_t from = 0; from < t->s->width; from += d) {
        struct range own = {INFINITY, -INFINITY};
        for (size_t r = 0; r < t->n_rows; r++) {
            const double x = t->off_in_row[r] ? typical(t, r, from, from + d, RATIO) : (double)NAN;
            own.low = isnan(x) ? own.low : fmin(own.low, x);
            own.high = isnan(x) ? own.high : fmax(own.high, x);
        }
        varies |= own.high - own.low > alike;
        all.low = fmin(all.low, own.low);
        all.high = fmax(all.high, own.high);
    }
    if (t->s->op != DS_STRUCTURE_ATTENTION || !varies || !(all.low > 1 - little) ||
        !(all.high < 1 + little)) {
        claim(t, explained, 0, "each head is a constant times the reference's");
        return;
    }
    if (claim(t, explained, 0,
              "each head is a constant times the reference's, %.6g to %.6g: the sum of its weights "
              "has fewer bits, or is another",
              all.low, all.high))
        t->best->precision = 1;
}

void try_numbers(struct task *t)
{
    struct number ratio = {RATIO, t->s->width}, constant = {CONSTANT, t->s->width},
                  by_head = {RATIO, t->s->head_dim};
    double share = explains(t, predict_number, &ratio);
    tell_ratio(t, share);
    const double some = typical_off(t, RATIO), more = typical_off(t, CONSTANT);
    if (fabs(some) > 0 && some != -1) /* zeros and signs: try_orders says so */
        claim(t, explains(t, predict_factor, &some), 0,
              "the values that differ are %.6g times the reference's", some);
    if (isfinite(more))
        claim(t, explains(t, predict_added, &more), 0, "the values that differ have %.6g added",
              more);
    struct range c = numbers_of(t, CONSTANT);
    share = explains(t, predict_number, &constant);
    if (c.high - c.low <= 0.02 * fabs(c.low))
        claim(t, share, 0, "every value has %.6g added", 0.5 * (c.low + c.high));
    else
        claim(t, share, 0, "each row has a constant added, %.6g to %.6g", c.low, c.high);
    if (t->s->head_dim >= 8 && t->s->head_dim < t->s->width)
        tell_heads(t, explains(t, predict_number, &by_head));
    int per_channel[] = {CONSTANT, RATIO};
    if (rows_off(t) >= 3 && t->s->width >= 3 && t->s->width <= MOST_CHANNELS) {
        claim(t, explains(t, predict_channels, &per_channel[0]), 0,
              "each channel has a constant added, the same in every row (a bias)");
        claim(t, explains(t, predict_channels, &per_channel[1]), 0,
              "each channel has a factor, the same in every row (a weight)");
        if (!t->best->found && t->s->op == DS_STRUCTURE_NORM)
            claim(t, explains(t, predict_rows_and_channels, NULL), 0,
                  "each channel has a factor, and each row another: normalised once more, or "
                  "otherwise, with a weight");
    }
}
