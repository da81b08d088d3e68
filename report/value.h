/* value.h: stored values as text, so that what is unequal never looks equal; and two rows of values element by
 * element. Pure: reads bytes, knows no record. */
#ifndef DS_REPORT_VALUE_H
#define DS_REPORT_VALUE_H

#include "base/buf.h"
#include "dumps/record.h"

#include <stddef.h>
#include <stdint.h>

/* ---- one value ------------------------------------------------------------------------------- */

enum ds_value_kind {
    DS_VALUE_NORMAL = 0, /* whole numbers too */
    DS_VALUE_ZERO,
    DS_VALUE_NEGATIVE_ZERO,
    DS_VALUE_SUBNORMAL,
    DS_VALUE_INF,
    DS_VALUE_NAN
};

/* Element i of a row as it is stored (enum ds_dtype): its bits, what it is, and its number (a NaN
 * for NaN). */
uint32_t ds_value_bits(int dtype, const void *data, size_t i);
int ds_value_kind(int dtype, uint32_t bits);
double ds_value_number(int dtype, uint32_t bits);

enum ds_value_format { DS_VALUE_DECIMAL = 0, DS_VALUE_A, DS_VALUE_HEX, DS_VALUE_FORMATS };
enum { DS_VALUE_TEXT = 32 };
/* Decimal so that reading it gives the bits back, "NaN 7fc00001", "-0"; %a; hex digits of the
 * storage. */
void ds_value_text(int dtype, uint32_t bits, int format, char out[DS_VALUE_TEXT]);
/* Sign, exponent and mantissa as 0 and 1, a space between them; whole numbers in groups of 8. */
void ds_value_binary(int dtype, uint32_t bits, char out[48]);
/* What one needs to know of a pair beyond its numbers: "values equal", "NaN bits", "NaN", "Inf",
 * "sign", "subnormal", "-0"; "" mostly. */
const char *ds_value_note(int dtype, uint32_t mine, uint32_t ref);
/* Distance of two values: ds_ulp_distance, for whole numbers their difference; UINT64_MAX if either
 * is NaN. */
uint64_t ds_value_ulp(int dtype, uint32_t mine, uint32_t ref);

/* Sizes: 0 is "0", what is not 0 never is. NaN: "NaN". */
void ds_size_text(double size, char *out, size_t n);

/* ---- one row on both sides ------------------------------------------------------------------- */

enum { DS_VALUES_REF = 0, DS_VALUES_MINE = 1 };
/* Bins of the histogram: equal bits; other bits of equal values; 1, 2-3, 4-7 ... ULP; NaN on a
 * side. */
enum { DS_BIN_EQUAL = 0, DS_BIN_ZERO, DS_BIN_ONE, DS_BIN_NAN = DS_BIN_ONE + 64, DS_BINS };

struct ds_values {
    const void *data[2]; /* borrowed; NULL: not there (now) */
    int dtype[2];        /* -1: that side has no values */
    size_t n[2];         /* elements that it really has bytes for */
    int comparable;      /* both sides are there, in one format */
    /* Counted: */
    size_t bins[DS_BINS];
    size_t differ, first; /* first: SIZE_MAX: none differs */
    uint64_t max_ulp;     /* of those without NaN */
    double max_abs;
};

/* A blob without data: that side has none. Counts. */
void ds_values_look(struct ds_values *v, const struct ds_blob *ref, const struct ds_blob *mine);
size_t ds_values_elements(const struct ds_values *v); /* of the longer side */
/* The stored bits of an element: 1, or 0 where the side has none. */
int ds_values_bits(const struct ds_values *v, int side, size_t i, uint32_t *bits);
/* Which bin of the histogram an element is in; -1: a side is missing. */
int ds_values_bin(const struct ds_values *v, size_t i);
/* "=", "0 (-0, +0)", "NaN", "1", "2-3", "2^20-". */
void ds_values_bin_name(const struct ds_values *v, int bin, char *out, size_t n);
/* Difference of this side from the reference, or over the reference's size; NaN where a side is
 * NaN. */
double ds_values_difference(const struct ds_values *v, size_t i, int relative);
/* "229 of 576 elements (f32) differ, max 576 ULP, max abs 1.4e-06"; names: of the sides. */
void ds_values_words(const struct ds_values *v, const char *const names[2], struct ds_buf *out);

#endif
