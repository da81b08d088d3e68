/* tolerance.h: when two rows of values count as equal although their bits differ. Pure functions.
 *
 * The rule. An element passes if its bits are equal, or if both values are finite and any of the
 * element tolerances that are given holds: at most `ulp` units of the last place apart in the rows'
 * own format; |a - b| <= atol; |a - b| <= rtol * |a|, where a is the reference (record A). A row
 * passes if all its elements do; or, where `nmse` is given, if the sum of (a - b)^2 is at most nmse
 * times the sum of a^2 and every value that is not finite has equal bits on both sides. Whole numbers
 * (positions, token and expert ids) have no tolerance. NaN is within no tolerance of anything. */
#ifndef DS_TOLERANCE_H
#define DS_TOLERANCE_H

#include <stddef.h>
#include <stdint.h>

struct ds_tolerance {
    uint64_t ulp;            /* 0: none */
    double atol, rtol, nmse; /* 0 (or not a number): none */
};

int ds_tolerance_given(const struct ds_tolerance *t);
/* 1 if the n elements of storage format dtype (enum ds_dtype) are within the tolerance of the
 * reference's. */
int ds_tolerance_row(const struct ds_tolerance *t, int dtype, const void *a, const void *ref,
                     size_t n);

#endif
