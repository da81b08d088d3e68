/* exact.h: sums of f32 products without any rounding: a fixed-point number wide enough for all of
 * them, and a faster way to the same double. Knows no op. */
#ifndef DS_LAB_EXACT_H
#define DS_LAB_EXACT_H

#include <stdint.h>

/* A product of two f32 is a multiple of 2^-298 below 2^256; 2^40 of them fit. */
enum { DS_EXACT_LIMBS = 21 };
struct ds_exact {
    int64_t limb[DS_EXACT_LIMBS]; /* limb i counts 2^(32 i - 320); signed, carries pending */
    uint32_t pending;             /* additions since carries were last passed on */
    int nan, inf_plus, inf_minus; /* how many terms were that */
};

void ds_exact_zero(struct ds_exact *e);
void ds_exact_add_product(struct ds_exact *e, float x, float w);
void ds_exact_add(struct ds_exact *e, float x);
void ds_exact_subtract(struct ds_exact *e, float x);
/* Nearest double, ties to even; NaN and infinities as a sum of them has. Exact sums of terms that
 * are all -0 give +0. */
double ds_exact_value(struct ds_exact *e);

/* The exact sum of n products and `more`, as ds_exact_value gives it, and some ten times as fast: the
 * nearest double, found with the errors of additions in double, and with the above where these leave a
 * doubt. *scale: the sum of magnitudes, rounded. */
double ds_exact_dot(const float *x, const float *w, int64_t n, float more, double *scale);

#endif
