/* view_tensor.h: what the files of the view Tensor share. */
#ifndef DS_TUI_VIEW_TENSOR_H
#define DS_TUI_VIEW_TENSOR_H

#include "tui/view.h"

enum { TENSOR_REF = 0, TENSOR_MINE = 1 };
/* Bins of the histogram: equal bits; other bits of equal values; 1, 2-3, 4-7 ... ULP; NaN on a
 * side. */
enum { TENSOR_EQUAL = 0, TENSOR_ZERO, TENSOR_ONE, TENSOR_NAN = TENSOR_ONE + 64, TENSOR_BINS };

struct tensor_own {
    /* Asked anew before each use; NULL: not there (yet). */
    const struct tui_site *site;
    const struct tui_values *values;
    const struct ds_header *h;
    const struct tui_whole *whole;

    struct tui_place at; /* what the rest is made for */
    int ascii;
    int dtype[2]; /* -1: that side has no values */
    size_t n[2];  /* elements of each side */
    int comparable;
    uint32_t heads, head_dim;
    struct tui_column columns[10];
    size_t n_columns;
    size_t bins[TENSOR_BINS];
    size_t first;   /* that differs; SIZE_MAX: none */
    double largest; /* size that `w` goes to, in the metric of the place */
    uint64_t max_ulp;
    double max_abs;
    size_t differ;
};

size_t tensor_elements(const struct tensor_own *o);
/* The stored bits of an element: 1, or 0 where the side has none. */
int tensor_bits(const struct tensor_own *o, int side, size_t i, uint32_t *bits);
/* Which bin of the histogram an element is in; -1: a side is missing. */
int tensor_bin(const struct tensor_own *o, size_t i);
/* Difference of this side from the reference, or over the reference's size; NaN where a side is
 * NaN. */
double tensor_difference(const struct tensor_own *o, size_t i, int relative);

void tensor_source(struct tensor_own *o, struct tui_source *out);
void tensor_count(struct tensor_own *o);
void tensor_panel(struct tui_view *v, const struct tui_context *c, struct tui_canvas *canvas,
                  struct tui_rect r);

#endif
