/* exact.c: see exact.h. A mantissa product of 48 bits is shifted to a limb's border and added in
 * three pieces of 32 bits (Kulisch's long accumulator, with carries kept for later). */
#include "kernels/lab/exact.h"

#include "base/dtype.h"

#include <math.h>
#include <string.h>

enum { BASE = 320, CARRY_EVERY = 1 << 30 };

void ds_exact_zero(struct ds_exact *e)
{
    memset(e, 0, sizeof *e);
}

/* Passes carries on: afterwards limbs are 0 .. 2^32-1, the last keeps the sign. */
static void carry(struct ds_exact *e)
{
    for (int i = 0; i + 1 < DS_EXACT_LIMBS; i++) {
        int64_t high = e->limb[i] >> 32;
        e->limb[i] -= high * ((int64_t)1 << 32);
        e->limb[i + 1] += high;
    }
    e->pending = 0;
}

/* sign * m * 2^e2, m < 2^48 */
static void add_scaled(struct ds_exact *e, int negative, uint64_t m, int e2)
{
    const int at = e2 + BASE, i = at / 32, shift = at % 32;
    const uint64_t low = (m & 0xffffffffu) << shift, high = (m >> 32) << shift;
    const int64_t piece[3] = {(int64_t)(low & 0xffffffffu),
                              (int64_t)((low >> 32) + (high & 0xffffffffu)), (int64_t)(high >> 32)};
    for (int j = 0; j < 3; j++)
        e->limb[i + j] += negative ? -piece[j] : piece[j];
    if (++e->pending == CARRY_EVERY)
        carry(e);
}

/* |x| = m * 2^*e2 of a finite f32. */
static uint32_t split(uint32_t bits, int *e2)
{
    int e = (int)(bits >> 23 & 255u);
    *e2 = (e ? e : 1) - 150;
    return (bits & 0x7fffffu) | (e ? 0x800000u : 0);
}

/* A term that is not finite. */
static void add_special(struct ds_exact *e, float term)
{
    if (isnan(term))
        e->nan++;
    else if (term > 0)
        e->inf_plus++;
    else
        e->inf_minus++;
}

void ds_exact_add_product(struct ds_exact *e, float x, float w)
{
    const uint32_t a = ds_f32_bits(x), b = ds_f32_bits(w);
    int ea, eb;
    if (!isfinite(x) || !isfinite(w)) {
        add_special(e, x * w);
        return;
    }
    uint32_t ma = split(a, &ea), mb = split(b, &eb);
    add_scaled(e, (int)((a ^ b) >> 31), (uint64_t)ma * mb, ea + eb);
}

void ds_exact_add(struct ds_exact *e, float x)
{
    int e2;
    if (!isfinite(x)) {
        add_special(e, x);
        return;
    }
    uint32_t m = split(ds_f32_bits(x), &e2);
    add_scaled(e, (int)(ds_f32_bits(x) >> 31), m, e2);
}

void ds_exact_subtract(struct ds_exact *e, float x)
{
    ds_exact_add(e, ds_f32_from_bits(ds_f32_bits(x) ^ 0x80000000u));
}

/* The limbs of |value|, all 0 .. 2^32-1; 1 = it is negative. */
static int magnitude(struct ds_exact *e, uint32_t out[DS_EXACT_LIMBS + 1])
{
    carry(e);
    const int negative = e->limb[DS_EXACT_LIMBS - 1] < 0;
    int64_t borrow = 0;
    for (int i = 0; i < DS_EXACT_LIMBS; i++) {
        int64_t v = (negative ? -e->limb[i] : e->limb[i]) + borrow;
        out[i] = (uint32_t)v;
        borrow = v >> 32;
    }
    out[DS_EXACT_LIMBS] = (uint32_t)borrow;
    return negative;
}

double ds_exact_value(struct ds_exact *e)
{
    uint32_t m[DS_EXACT_LIMBS + 1];
    if (e->nan || (e->inf_plus && e->inf_minus))
        return (double)NAN;
    if (e->inf_plus || e->inf_minus)
        return e->inf_plus ? (double)INFINITY : -(double)INFINITY;
    const int negative = magnitude(e, m);
    int top = DS_EXACT_LIMBS;
    while (top >= 0 && !m[top])
        top--;
    if (top < 0)
        return 0.0;
    /* 96 bits from the highest limb on, what lies below as one sticky bit; then one rounding to the
     * 53 bits of a double, half to even. */
    unsigned __int128 v = 0;
    for (int i = 0; i < 3; i++)
        v = v << 32 | (top - i >= 0 ? m[top - i] : 0);
    int sticky = 0, drop = 0;
    for (int i = top - 3; i >= 0; i--)
        sticky |= m[i] != 0;
    while (v >> (drop + 53))
        drop++;
    uint64_t kept = (uint64_t)(v >> drop);
    unsigned __int128 rest = v - ((unsigned __int128)kept << drop), half = 0;
    if (drop)
        half = (unsigned __int128)1 << (drop - 1);
    if (drop && (rest > half || (rest == half && (sticky || (kept & 1)))))
        kept++;
    double value = ldexp((double)kept, 32 * (top - 2) - BASE + drop);
    return negative ? -value : value;
}

/* ---- sums of products, the fast way -------------------------------------------------------------- */

enum { LANES = 4 };

/* a + b = *sum + error, without rounding (D. E. Knuth). */
static double two_sum(double a, double b, double *sum)
{
    const double s = a + b, t = s - a;
    *sum = s;
    return (a - (s - t)) + (b - t);
}

static double slow_dot(const float *x, const float *w, int64_t n, float more)
{
    struct ds_exact e;
    ds_exact_zero(&e);
    for (int64_t k = 0; k < n; k++)
        ds_exact_add_product(&e, x[k], w[k]);
    ds_exact_add(&e, more);
    return ds_exact_value(&e);
}

/* A product of two f32 is a double without rounding, and so is the error of an addition. The errors are
 * added up with rounding: by no more than n^2 * 2^-106 of the magnitudes (T. Ogita, S. M. Rump, S. Oishi:
 * Accurate sum and dot product). If the sum rounds to one double from either end of that, it is the
 * nearest one; NaN, infinities and a sum of nothing but zeros fail that and go the slow way. */
double ds_exact_dot(const float *x, const float *w, int64_t n, float more, double *scale)
{
    double sum[LANES] = {(double)more}, error[LANES] = {0}, size[LANES] = {fabs((double)more)};
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int i = 0; i < LANES; i++) {
            const double p = (double)x[k + i] * (double)w[k + i];
            error[i] += two_sum(sum[i], p, &sum[i]);
            size[i] += fabs(p);
        }
    for (; k < n; k++) {
        const double p = (double)x[k] * (double)w[k];
        error[0] += two_sum(sum[0], p, &sum[0]);
        size[0] += fabs(p);
    }
    for (int i = 1; i < LANES; i++) {
        error[0] += two_sum(sum[0], sum[i], &sum[0]) + error[i];
        size[0] += size[i];
    }
    double value;
    const double left = two_sum(sum[0], error[0], &value),
                 off = (double)(n + LANES) * (double)(n + LANES) * 0x1p-104 * size[0];
    *scale = size[0];
    return value != 0 && value + (left - off) == value && value + (left + off) == value
               ? value
               : slow_dot(x, w, n, more);
}
