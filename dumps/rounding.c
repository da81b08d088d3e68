/* rounding.c: what rounding may do to an element: one step of its storage format, another order of a
 * sum; and which elements of a row differ by more (mask.h). Pure functions. */
#include "dumps/mask.h"

#include "base/dtype.h"

#include <math.h>
#include <string.h>

int ds_structure_op(const char *op)
{
    return strcmp(op, "rmsnorm") == 0     ? DS_STRUCTURE_NORM
           : strcmp(op, "rope") == 0      ? DS_STRUCTURE_ROPE
           : strcmp(op, "attention") == 0 ? DS_STRUCTURE_ATTENTION
                                          : DS_STRUCTURE_OTHER;
}

double ds_structure_order(int op, double terms, int32_t last)
{
    double unit = 0x1p-24, reorder = 3 * unit * sqrt(terms);
    switch (op) {
    case DS_STRUCTURE_NORM: /* all terms have one sign, and the root halves it */
        return unit * (0.5 * sqrt(terms) + 8);
    case DS_STRUCTURE_ROPE:
        return 16 * unit + 2 * unit * last;
    case DS_STRUCTURE_ATTENTION:
        return fmax(1e-5, 4 * reorder);
    default:
        return fmax(16 * unit, reorder);
    }
}

/* Half the distance between two stored numbers near x >= 0: what rounding one result costs. */
static double half_step(int dtype, float x)
{
    int bits = dtype == DS_BF16 ? 8 : dtype == DS_F16 ? 11 : 24;
    int lowest = dtype == DS_F16 ? -14 : -126, e = (int)(ds_f32_bits(x) >> 23) - 127;
    uint64_t u = (uint64_t)(1023 + (e < lowest ? lowest : e) - bits) << 52;
    double step;
    memcpy(&step, &u, sizeof step);
    return step;
}

double ds_structure_slack(const struct ds_structure_site *s, float ref, float mine, double rms)
{
    float larger = fabsf(mine) > fabsf(ref) ? fabsf(mine) : fabsf(ref);
    int scales = s->op == DS_STRUCTURE_NORM;
    /* One step from rounding, one more because both sides may lie near a border, and a third of f32
     * for operations that round their parts first. */
    return (s->dtype == DS_F32 ? 6 : 3) * half_step(s->dtype, larger) +
           s->order * (scales ? (double)larger : rms);
}

/* ---- masks ----------------------------------------------------------------------------------- */

/* Bit i: element i of at most 64 differs. */
static uint64_t differing(const char *a, const char *b, size_t size, uint32_t n)
{
    uint64_t bits = 0;
    if (memcmp(a, b, n * size) == 0)
        return 0;
    for (uint32_t i = 0; size == 4 && i < n; i++)
        bits |= (uint64_t)(memcmp(a + 4 * i, b + 4 * i, 4) != 0) << i;
    for (uint32_t i = 0; size == 2 && i < n; i++)
        bits |= (uint64_t)(memcmp(a + 2 * i, b + 2 * i, 2) != 0) << i;
    return bits;
}

static int is_beyond(const struct ds_structure_site *s, const char *mine, const char *ref,
                     double rms)
{
    float x, y;
    ds_widen_row(s->dtype, &x, mine, 1);
    ds_widen_row(s->dtype, &y, ref, 1);
    return !(fabs((double)x - (double)y) <= ds_structure_slack(s, y, x, rms));
}

void ds_mask_row(const struct ds_structure_site *s, const void *mine, const void *ref,
                 const struct ds_drift *d, uint64_t *differ, uint64_t *beyond)
{
    const char *a = mine, *b = ref;
    const size_t size = ds_dtype_size(s->dtype);
    const double rms = s->width ? sqrt(d->ref_sq / s->width) : 0;
    /* Most rows are within what the row's own size allows, and then no element is looked at. */
    const int loud =
        s->dtype != DS_I32 && (d->nonfinite || d->ref_nonfinite || s->op == DS_STRUCTURE_NORM ||
                               !(d->max_abs <= s->order * rms));
    for (uint32_t at = 0; at < s->width; at += 64) {
        uint32_t n = s->width - at < 64 ? s->width - at : 64;
        uint64_t bits = differing(a + at * size, b + at * size, size, n);
        differ[at / 64] |= bits;
        for (; loud && bits; bits &= bits - 1) {
            size_t i = at + (size_t)__builtin_ctzll(bits);
            if (is_beyond(s, a + i * size, b + i * size, rms))
                beyond[at / 64] |= bits & -bits;
        }
    }
}
