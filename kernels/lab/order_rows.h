/* order_rows.h: ops that add every row up into one sum: is the order fixed, and which rows are added
 * alike. Shared by rmsnorm and softmax; private to kernels/lab. */
#ifndef DS_LAB_ORDER_ROWS_H
#define DS_LAB_ORDER_ROWS_H

#include "kernels/lab/order.h"

/* Data sets, of the seeds DS_ORDER_ROW_SEED and up, by which rows are told apart. */
enum { DS_ORDER_ROW_SETS = 12, DS_ORDER_ROW_SEED = 100 };

struct ds_order_rows {
    int64_t rows, width;
    const float *y; /* [rows][width] */
    void *self;
    /* The inputs of a call, the same for the same seed; `same_rows`: in every row. */
    void (*fill)(void *self, uint64_t seed, int same_rows);
    int (*launch)(void *self, struct ds_error *err);
};

/* Calls repeated on the same data: fills in repeats, agreeing and fixed. */
int ds_order_rows_repeat(const struct ds_order_rows *o, struct ds_order_sum *s,
                         struct ds_error *err);
/* Fills in the classes, none with a tree yet, and which row is of which. */
int ds_order_rows_classify(const struct ds_order_rows *o, struct ds_order_sum *s,
                           struct ds_error *err);

#endif
