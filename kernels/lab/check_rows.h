/* check_rows.h: inside the lab's check: what the files on ops whose rows stand alone share. */
#ifndef DS_LAB_CHECK_ROWS_H
#define DS_LAB_CHECK_ROWS_H

#include "kernels/lab/check_plan.h"

struct ds_rows_own {
    struct ds_output ref, out;
    /* The variant's own error at sizes that are easy for any kernel, of 2^-24 of the scale, and the
     * terms of a sum there. */
    double observed[2], terms[2];
    int n_observed; /* 0 = not yet measured */
};

/* A call of the pool's rows first..first+rows-1. *seg is the caller's memory. */
struct ds_call ds_rows_call(const struct ds_check *c, struct ds_segment *seg, int64_t first,
                            int64_t rows);

/* Properties, one function each. */
int ds_rows_repeat(struct ds_check *c);
int ds_rows_batch(struct ds_check *c);
int ds_rows_slot(struct ds_check *c);
int ds_rows_neighbours(struct ds_check *c);
int ds_rows_threads(struct ds_check *c);
int ds_rows_alignment(struct ds_check *c);
int ds_rows_memory(struct ds_check *c);
int ds_rows_sizes(struct ds_check *c);
int ds_rows_special(struct ds_check *c);
int ds_rows_formats(struct ds_check *c);
/* fn on weights of every type of a file that loads, at the given shape and at odd ones; nothing for
 * a kernel that takes f32 alone. */
int ds_rows_each_format(struct ds_check *c, int content,
                        int (*fn)(struct ds_check *c, const struct ds_shape *shape,
                                  const char *format));
int ds_rows_accuracy(struct ds_check *c);
int ds_rows_speed(struct ds_check *c);

#endif
