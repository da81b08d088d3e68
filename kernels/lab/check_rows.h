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
    struct ds_purse purse;
};

/* A call of the pool's rows first..first+rows-1. *seg is the caller's memory. */
struct ds_call ds_rows_call(const struct ds_check *c, struct ds_segment *seg, int64_t first,
                            int64_t rows);

static inline const uint32_t *ds_rows_row(const struct ds_output *o, int64_t r)
{
    return o->bits + r * o->width;
}
static inline int ds_rows_takes_bias(const struct ds_check *c)
{
    return ds_subject_kernel(c->subject)->op == DS_OP_MATMUL;
}
/* The largest number of threads asked for. */
static inline int ds_rows_last_threads(const struct ds_check *c)
{
    return c->opt->threads[c->opt->n_threads - 1];
}
/* Another order of addition may give the same bits by chance: small calls are made of several parts
 * of the pool, every other one with magnitudes that cancel. */
enum { DS_ROWS_SAMPLES = 6 };
static inline void ds_rows_take_sample(struct ds_segment *seg, int sample)
{
    seg->first = 1000 * sample;
    seg->content = sample % 2 ? DS_CONTENT_MIXED : DS_CONTENT_PLAIN;
}
/* Row p of the call launched last, in own->out, against the same row of another call, which `other`
 * names. 1: it differs and is the smallest pair so far. What differs may be wrong, too. */
int ds_rows_differs(struct ds_check *c, const struct ds_call *call, const uint32_t *ref, int64_t p,
                    double cost, const char *other);

/* Every row of the call launched last against the same row of own->ref; the pair is named by `what`. *at, if
 * not NULL: the row of the smallest pair so far, if it is one of these. */
int ds_rows_compare(struct ds_check *c, const struct ds_call *call, double cost, const char *what,
                    int64_t *at);

/* Rows held against the formula, with what roundings and the variant's own format may cost. */
struct ds_rows_judge {
    struct ds_check *c;
    double roundings, fewer_bits;
    int64_t bad; /* elements; the first of them: */
    int64_t row, column;
    double got, want;
};
/* Measures the variant's own error where sums are easy, once; launches at other sizes. */
int ds_rows_observe(struct ds_check *c);
/* One launch; 1 = its rows were judged. */
int ds_rows_judge_call(struct ds_check *c, const struct ds_call *call, struct ds_rows_judge *j);
/* Writes what is wrong as the smallest pair: "WHERE row 0 of 3, element 5 is 1 where 2 is exact"; without
 * "of 3" where rows is 0. */
void ds_rows_judge_pair(struct ds_check *c, const struct ds_rows_judge *j, int64_t rows,
                        const char *where);
/* Row p of the call that was launched last has other bits than the same row of another call. Is either
 * wrong, and not only different? Told of sizes, whatever is measured now. `got` is of this call, `ref`
 * of the other one, which `other` names. */
int ds_rows_right(struct ds_check *c, const struct ds_call *call, const uint32_t *got,
                  const uint32_t *ref, int64_t p, const char *other);

/* Where the launch choice changes along the number of rows, 1 to 512. */
int ds_rows_borders(struct ds_check *c, int threads, struct ds_borders *out);

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
