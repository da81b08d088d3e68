/* explain_reproduce.h: inside cli/ only: what a reproducer shows, before it is written. */
#ifndef DS_EXPLAIN_REPRODUCE_H
#define DS_EXPLAIN_REPRODUCE_H

#include "cli/render_explain.h"
#include "dumps/arrays.h"

enum { DS_SHOWN_ELEMENTS = 64, DS_SHOWN_ROWS = 4, DS_SHOWN_NAMES = 128 };
/* Beside the sides: what both should have read. */
enum { DS_SHOWN_TRUE = DS_SIDES, DS_SHOWN_DATA };

/* Orders of one side as steps, as the program goes through them. */
struct ds_shown_steps {
    int32_t *first, *zero_start, *inputs, *term;
    uint8_t *kind, *flags;
    size_t n_trees, n;
    /* Of the order's trees, plain and fused: 0 not used, else 1 + its place here. */
    int32_t *number;
};

struct ds_shown {
    const struct ds_explanation *x;
    const char *program;
    int64_t width;
    size_t n;
    size_t from_row[DS_SHOWN_ELEMENTS]; /* of the rows explained */
    int32_t row[DS_SHOWN_ELEMENTS], column[DS_SHOWN_ELEMENTS];
    float y[DS_SIDES][DS_SHOWN_ELEMENTS];
    size_t rows[DS_SHOWN_ROWS], n_rows;
    int known[DS_SIDES]; /* its arithmetic is, and gives its bits */
    int form[DS_SIDES];
    char unknown[DS_SIDES][256]; /* why not */
    char guess[DS_SIDES][160];   /* "the terms k = 568..575 are missing"; "" */
    double near[DS_SIDES];       /* how far off that may leave it */
    struct ds_shown_steps steps[DS_SIDES];
    /* What the data file holds; arrays are owned. */
    struct ds_named_array array[DS_SHOWN_NAMES];
    struct ds_named_value value[DS_SHOWN_NAMES];
    size_t n_arrays, n_values, n_names, n_owned;
    char names[2 * DS_SHOWN_NAMES][24];
    void *owned[DS_SHOWN_NAMES];
};

/* explain_reproduce_steps.c */
/* Room that goes with the reproducer; NULL without memory. */
void *ds_shown_room(struct ds_shown *s, size_t n, size_t size, struct ds_error *err);
/* side: DS_SIDE_A, DS_SIDE_B and DS_SHOWN_TRUE add _a, _b, _t to the name; -1 nothing. */
void ds_shown_array(struct ds_shown *s, const char *name, int side, int type, size_t rows,
                    size_t cols, const void *data);
void ds_shown_text(struct ds_shown *s, const char *name, int side, const char *text);
void ds_shown_number(struct ds_shown *s, const char *name, int side, double number);
/* The number of a tree of `o` among the steps of a side. */
int ds_shown_tree(struct ds_shown *s, int side, const struct ds_explain_order *o, int32_t tree,
                  int fused, int32_t *number, struct ds_error *err);
/* The sum over x[k] * w[k] by the steps of a tree. */
int ds_shown_add(const struct ds_shown *s, int side, int32_t tree, int64_t terms, const float *x,
                 const float *w, float *sum, struct ds_error *err);
void ds_shown_add_steps(struct ds_shown *s);
void ds_shown_free(struct ds_shown *s);
float ds_shown_stored(const struct ds_shown *s, float v);

/* explain_reproduce_choose.c */
/* An element that differs, and which every known side's arithmetic gives. */
int ds_shown_usable(const struct ds_shown *s, size_t row, int64_t column);
/* Whose arithmetic is known: fills s->known and s->unknown. */
void ds_shown_know(struct ds_shown *s);
/* Fills rows and elements. */
int ds_shown_choose(struct ds_shown *s, struct ds_error *err);
void ds_shown_take(struct ds_shown *s, size_t row, int64_t column);
/* Rows of one call on both sides, the one with the most to show first. */
void ds_shown_rows(struct ds_shown *s);

/* The families: fill in what their programs read. */
int ds_shown_sums(struct ds_shown *s, struct ds_error *err);
int ds_shown_weigh(struct ds_shown *s, struct ds_error *err);
int ds_shown_each(struct ds_shown *s, struct ds_error *err);

#endif
