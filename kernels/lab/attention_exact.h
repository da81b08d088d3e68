/* attention_exact.h: attention in double precision, one row and head at a time, with the most that
 * a float kernel of any order can be off. Judges nothing. */
#ifndef DS_LAB_ATTENTION_EXACT_H
#define DS_LAB_ATTENTION_EXACT_H

#include "kernels/driftscope_kernel.h"

struct ds_attention_exact {
    double *y;    /* [head_dim] */
    double *unit; /* [head_dim]: error bound of y, see below */
    double lse, lse_unit;
    int64_t slots; /* seen; 0: y is +0, lse -infinity */
    int open;      /* the formula leaves it to the kernel: a score of +infinity (the weight of that
                      slot is 1 in the limit, NaN as written), or a weight that vanishes beside a
                      value that is not finite (0 * infinity, or nothing) */
};

/* Fills *out for one head of one row. out->y and out->unit have room for head_dim numbers; weights:
 * room for 2 * max_kv_len numbers.
 *
 * The bound (u = 2^-24, g(n) = n u / (1 - n u), N slots, D channels): a score is off by at most
 * e_j = g(D + 1) * scale * sum |q k_j| (+ 4 u |s_j| with a soft cap), so a weight by the share r_j
 * = e_j + u |s_j - max| + 4 u; the two sums over slots add g(N) each:
 *     unit[d] = sum_j p_j |v_j[d] - y[d]| r_j + g(N) * sum_j p_j |v_j[d]| + (g(N) + 2 u) * |y[d]|
 *     lse_unit = sum_j p_j r_j + g(N) + u * (|max| + 2 |lse|) */
void ds_attention_exact(const struct ds_attention_args *a, int64_t row, int64_t head,
                        double *weights, struct ds_attention_exact *out);

/* The sequence that a row of the call belongs to. */
const struct ds_sequence *ds_attention_sequence(const struct ds_attention_args *a, int64_t row);

#endif
