/* order_softmax_rows.h: what the measurement of softmax and its reading of exp share. Private to kernels/lab. */
#ifndef DS_LAB_ORDER_SOFTMAX_ROWS_H
#define DS_LAB_ORDER_SOFTMAX_ROWS_H

#include "kernels/lab/order_ops.h"

enum { DS_SOFT_FORMS = 2, DS_SOFT_SHARED = 96 };

struct ds_soft {
    struct ds_order_call call;
    struct ds_softmax_args a;
    float *x, *y;
    int64_t rows, width;
    int64_t row; /* the one that is asked */
    uint64_t launches, rng;
    /* The replay: */
    float *e[DS_SOFT_FORMS]; /* [rows][width], by how the outputs follow from them */
    float *d;                /* [rows][width] */
    int64_t *most;           /* [rows]: where the 0 is */
    int alive[DS_SOFT_FORMS];
    int by_place; /* one exp for all places did not do */
};

/* A score whose term is 0. */
static const float DS_SOFT_LOW = -200.0f;

int ds_soft_launch(void *self, struct ds_error *err);
/* All scores DS_SOFT_LOW. */
void ds_soft_clear(struct ds_soft *s);
uint32_t ds_soft_draw(struct ds_soft *s);
/* 0..1, 24 bits */
float ds_soft_unit(struct ds_soft *s);
float ds_soft_finish(int form, float e, float sum);

/* order_softmax_exp.c: some d with their e = exp(d), which serve at every place if the kernel has one exp. */
struct ds_soft_exps {
    int n;
    float d[DS_SOFT_SHARED], e[DS_SOFT_FORMS][DS_SOFT_SHARED];
};
/* 1: enough could be read. */
int ds_soft_read(struct ds_soft *s, uint64_t seed, struct ds_soft_exps *x, struct ds_error *err);
/* Rows of these at random: fills in d, e, most. `few`: most terms are 0, so that the large ones meet small
 * sums, which is where ways to keep errors part. */
void ds_soft_deal(struct ds_soft *s, const struct ds_soft_exps *x, int few);
/* A row of inputs for every row of the call, with their terms, each read at its place. */
int ds_soft_read_places(struct ds_soft *s, uint64_t seed, struct ds_error *err);

#endif
