/* number.h: stored values and sizes of differences as text, so that what is unequal never looks
 * equal. Pure: knows no record and no screen. */
#ifndef DS_TUI_NUMBER_H
#define DS_TUI_NUMBER_H

#include "tui/table.h"

#include <stdint.h>

enum tui_value_kind {
    TUI_VALUE_NORMAL = 0, /* whole numbers too */
    TUI_VALUE_ZERO,
    TUI_VALUE_NEGATIVE_ZERO,
    TUI_VALUE_SUBNORMAL,
    TUI_VALUE_INF,
    TUI_VALUE_NAN
};

/* Element i of a row as it is stored (enum ds_dtype): its bits, what it is, and its number (a NaN
 * for NaN). */
uint32_t tui_value_bits(int dtype, const void *data, size_t i);
int tui_value_kind(int dtype, uint32_t bits);
double tui_value_number(int dtype, uint32_t bits);

enum { TUI_VALUE_TEXT = 32 };
/* In a number format (enum tui_number of view.h): decimal so that reading it gives the bits back,
 * "NaN 7fc00001", "-0"; %a; hex digits of the storage. */
void tui_value_text(int dtype, uint32_t bits, int number, char out[TUI_VALUE_TEXT]);
/* Marks what of the cell's text differs from `other`: digit by digit where places mean the same
 * (hex, and %a with equal exponents), else from the first that differs. Nothing where they are
 * equal. */
void tui_value_mark(struct tui_value *cell, const char *other, int number);
/* Sign, exponent and mantissa as 0 and 1, a space between them; whole numbers in groups of 8. */
void tui_value_binary(int dtype, uint32_t bits, char out[48]);
/* What one needs to know of a pair beyond its numbers: "values equal", "NaN bits", "NaN", "Inf",
 * "sign", "subnormal", "-0"; "" mostly. */
const char *tui_pair_note(int dtype, uint32_t mine, uint32_t ref);
/* Distance of two values: ds_ulp_distance, for whole numbers their difference; UINT64_MAX if either
 * is NaN. */
uint64_t tui_pair_ulp(int dtype, uint32_t mine, uint32_t ref);

/* Sizes: 0 is "0", what is not 0 never is. NaN: "NaN". */
void tui_size_text(double size, char *out, size_t n);

/* A bar of part / most of `width` cells, at least one for what is not 0, in glyphs of canvas.h. */
void tui_bar_text(double part, double most, int width, int ascii, char *out, size_t n);

#endif
