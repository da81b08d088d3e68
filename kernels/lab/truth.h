/* truth.h: what the formula of an op gives for one row, with no rounding that matters: exact sums, or
 * long double. Reads the arguments of a call that was launched; judges nothing. */
#ifndef DS_LAB_TRUTH_H
#define DS_LAB_TRUTH_H

#include "kernels/driftscope_kernel.h"

#include <stdint.h>

/* One output element: its value (whole numbers for ids; NaN and infinities where the formula has
 * them), and the size that roundings of an f32 kernel are relative to (sum of |terms|); infinity: the
 * contract leaves it open. */
struct ds_truth {
    double value, scale;
    double reach; /* the size that a format of fewer bits is relative to, at least scale: what is
                     lost of a small factor in a block of large ones meets the other side's */
    int any_zero; /* -0 and +0 are both right: all terms of a sum are -0, and the start may be +0 */
};

/* Whether the op has one: all but custom and attention. */
int ds_truth_known(int op);

/* Roundings that an honest f32 kernel may make on the way to one output (Higham's gamma_n). */
double ds_truth_roundings(int op, const void *args);

/* Row r of the call: out[j] for element j, elements in the order of subject.h. `step`: only every
 * step-th element is filled, where each costs much (matmul); the others are left alone. */
void ds_truth_row(int op, const void *args, int64_t r, int64_t step, struct ds_truth *out);

/* Units in the last place of f32 at v: the distance of the f32 next to it (2^-149 at least). */
double ds_truth_ulp(double v);

#endif
