/* explain_reproduce.h: inside cli/ only: what a reproducer shows, before it is written. */
#ifndef DS_EXPLAIN_REPRODUCE_H
#define DS_EXPLAIN_REPRODUCE_H

#include "cli/render_explain.h"

enum { DS_SHOWN_ELEMENTS = 64, DS_SHOWN_ROWS = 4 };

struct ds_shown {
    const struct ds_explanation *x;
    int64_t width, terms;
    size_t n;
    size_t from_row[DS_SHOWN_ELEMENTS]; /* of the rows explained */
    int32_t row[DS_SHOWN_ELEMENTS], column[DS_SHOWN_ELEMENTS], weight[DS_SHOWN_ELEMENTS];
    float a[DS_SHOWN_ELEMENTS], b[DS_SHOWN_ELEMENTS], bias[DS_SHOWN_ELEMENTS],
        scale[DS_SHOWN_ELEMENTS], at[DS_SHOWN_ELEMENTS];
    size_t rows[DS_SHOWN_ROWS], n_rows, n_weights;
    float *factors_x, *factors_w; /* [n_rows][terms], [n_weights][terms] */
};

/* The trees of a side, as the program goes through them. */
struct ds_shown_steps {
    int32_t tree[DS_SHOWN_ELEMENTS], place[DS_SHOWN_ROWS];
    int32_t *first, *zero_start, *inputs, *term;
    uint8_t *kind, *flags;
    size_t n_trees, n;
};

int ds_reproduce_compile(const struct ds_shown *s, int side, struct ds_shown_steps *t,
                         struct ds_error *err);
void ds_reproduce_free(struct ds_shown_steps *t);

/* Goes through the steps as the program does, on what is written for it: -1 unless every element of
 * the side comes out bit for bit. */
int ds_reproduce_shows(const struct ds_shown *s, int side, const struct ds_shown_steps *t,
                       struct ds_error *err);

#endif
