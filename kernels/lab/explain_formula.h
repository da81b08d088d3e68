/* explain_formula.h: the formula of each op with a chosen order of addition and chosen roundings, on given
 * rows. Private to kernels/lab; knows no kernel.
 *
 * An order: K in 1 to 8 parts, each in 1 to 32 interleaved lanes added up in pairs or one after
 * another; FMA or product and sum; the terms as they come or shuffled. That is what matmuls, split
 * sums and reductions of warps do. */
#ifndef DS_LAB_EXPLAIN_FORMULA_H
#define DS_LAB_EXPLAIN_FORMULA_H

#include "kernels/lab/explain.h"

struct ds_formula_spec {
    int in_double; /* no rounding at all: what rounded inputs alone do */
    int format, which;
    float largest; /* of all weights: formats with one scale for them */
    int sums;      /* -1, or the format of partial sums */
    int parts, lanes, fma, pairs, shuffled;
    uint64_t seed;
};

/* What an evaluation works in; all arrays have room for the longest row or sum. */
struct ds_formula {
    const struct ds_explain *e;
    int64_t width, terms;
    float *x, *w, *p, *one; /* rounded factors; attention: weights of the slots; ones */
    float *column;          /* of values, or of experts */
    double *pd;
    int32_t *turn; /* the shuffle: place -> term */
    int64_t n_turn;
    size_t room;
};

/* Order `number` of DS_EXPLAIN_ORDERS: every number of parts with every number of lanes, then those that
 * shuffle. sums: -1, or the format of partial sums. */
struct ds_formula_spec ds_formula_order(int number, int sums);
/* Elements step * i of one row. */
void ds_formula_row(struct ds_formula *m, const struct ds_formula_spec *s,
                    const struct ds_explain_input *in, int64_t step, double *y);

/* The weights of a router's choices, in one of several ways; `way` matters only where not in_double. */
void ds_formula_weights(const struct ds_explain *e, const struct ds_explain_input *in,
                        int in_double, uint64_t way, double *y);

/* explain_formats.c: a row of factors, rounded; a partial sum. largest: of the whole tensor; 0: the
 * row's own is taken. */
void ds_format_factors(int format, float largest, float *to, const float *from, int64_t n);
int ds_format_by_tensor(int format);
float ds_format_sum(int format, float v);

#endif
