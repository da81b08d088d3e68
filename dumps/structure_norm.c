/* structure_norm.c: hypotheses about norms: what is normalised is of fewer bits; each group of channels is normalised
 * by itself. See structure.h. */
#include "dumps/structure_internal.h"

#include "base/dtype.h"

#include <math.h>
#include <stdlib.h>

static double kept(int dtype, double x)
{
    return dtype == DS_BF16 ? (double)ds_bf16_value(ds_bf16_round((float)x))
                            : (double)ds_f16_value(ds_f16_round((float)x));
}

/* The median of what a row's elements are off by, as a factor, from `from` to `to`. */
static double factor_of(const struct task *t, size_t r, uint32_t from, uint32_t to)
{
    size_t n = 0;
    for (uint32_t i = from; i < to; i++)
        if (isfinite(t->rows[r].mine[i]) && fabs((double)t->guess[i]) > 0.1 * t->rms[r])
            t->sorted[n++] = (double)t->rows[r].mine[i] / (double)t->guess[i];
    if (n < 4)
        return NAN;
    qsort(t->sorted, n, sizeof *t->sorted, structure_by_value);
    return t->sorted[n / 2];
}

static int predict_coarse_input(const struct task *t, size_t r, const void *how)
{
    const struct ds_structure_row *row = &t->rows[r];
    if (!row->input)
        return -1;
    for (uint32_t i = 0; i < t->s->width; i++) {
        const double x = (double)row->input[i];
        t->guess[i] = x != 0 ? (float)((double)row->ref[i] * kept(*(const int *)how, x) / x) : 0;
    }
    const double times = factor_of(t, r, 0, t->s->width); /* the root of other squares */
    if (!(fabs(times - 1) <= 0.01))
        return 0;
    for (uint32_t i = 0; i < t->s->width; i++)
        t->guess[i] = (float)(times * (double)t->guess[i]);
    return 1;
}

static int predict_groups(const struct task *t, size_t r, const void *how)
{
    const uint32_t unit = *(const uint32_t *)how;
    for (uint32_t i = 0; i < t->s->width; i++)
        t->guess[i] = t->rows[r].ref[i];
    for (uint32_t from = 0; from < t->s->width; from += unit) {
        const double times = factor_of(t, r, from, from + unit);
        for (uint32_t i = from; i < from + unit; i++)
            t->guess[i] = (float)(times * (double)t->rows[r].ref[i]);
    }
    return 1;
}

void try_norm(struct task *t)
{
    static const int dtypes[] = {DS_BF16, DS_F16};
    enum { LEAST_UNIT = 12, MOST_GROUPS = 64 };
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        t->best->precision |= claim(t, explains(t, predict_coarse_input, &dtypes[d]), 0,
                                    "its input is rounded to %s", ds_dtype_name(dtypes[d]));
    for (uint32_t groups = 2; groups <= MOST_GROUPS && !t->best->found; groups++) {
        const uint32_t unit = t->s->width / groups;
        if (unit >= LEAST_UNIT && t->s->width % groups == 0)
            claim(t, explains(t, predict_groups, &unit), 0,
                  "each %u channels are a constant times the reference's: normalised in %u groups",
                  unit, groups);
    }
}
