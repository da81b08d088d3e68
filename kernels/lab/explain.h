/* explain.h: why two calls of a kernel gave a row other bits. Given arrays: what the kernel read for
 * the row, what it wrote in both calls, and where the row stood in them. Knows no record and no
 * model, and prints nothing. Start at ds_explain_run. */
#ifndef DS_LAB_EXPLAIN_H
#define DS_LAB_EXPLAIN_H

#include "base/error.h"
#include "kernels/lab/any_args.h"

#include <stddef.h>
#include <stdint.h>

/* A is the reference, B the side that differs from it. */
enum { DS_SIDE_A = 0, DS_SIDE_B, DS_SIDES };

/* What a kernel reads for one row, beside what all rows share. Borrowed. */
struct ds_explain_input {
    const float *in[2]; /* x; or gate and up, a and b, q; combine: x and weights */
    int32_t number;     /* rope: position in the table; embed: token id */
    const float *k,
        *v;           /* attention: visible slots kv_first .. slot, [slots][kv_heads * head_dim] */
    int32_t slot;     /* attention: of the row, pads counted */
    int32_t kv_first; /* attention: its pads */
};

/* Where the row stood in one side's call. */
struct ds_explain_at {
    uint32_t call;                  /* rows with the same number were in one call */
    int64_t rows;                   /* of the call, as the kernel saw it */
    int64_t row;                    /* the row's own */
    int32_t n_sequences;            /* attention, cache: of the call */
    int32_t q_first, q_len, kv_len; /* of the row's own sequence */
};

struct ds_explain_row {
    struct ds_explain_input input[DS_SIDES];
    struct ds_explain_at at[DS_SIDES];
    const float *y[DS_SIDES]; /* as stored, made f32; ids as bits */
};

struct ds_explain_side {
    const struct ds_kernel *kernel; /* NULL: not here */
    int threads;
    int dtype;     /* enum ds_dtype to which outputs are rounded */
    char core[24]; /* OpenBLAS core; "" = the library's choice */
};

struct ds_explain {
    int op;
    union ds_any_args shared; /* sizes, weights, tables; no rows */
    int64_t page_size;        /* attention, cache; 0 = one page a request */
    struct ds_explain_side side[DS_SIDES];
    struct ds_explain_row *rows;
    size_t n_rows;
};

/* Whether a row of this op can be brought into a call again. */
int ds_explain_knows(int op);
/* Elements of input i of a row (0: the op has no such input), and of the output. */
int64_t ds_explain_width_in(int op, const union ds_any_args *shared, int i);
int64_t ds_explain_width(int op, const union ds_any_args *shared);

/* Launches `kernel` as one side's calls were: as many rows, the given ones in their places with that
 * side's inputs, others beside them, `threads` threads. y: [n_rows][width], rounded to the side's
 * dtype. `seed`: of kernels that imitate races. -1: the kernel refused, or no memory. */
int ds_explain_run(const struct ds_explain *e, int side, const struct ds_kernel *kernel,
                   uint64_t seed, float *y, struct ds_error *err);

/* The same in a child process with that side's OpenBLAS core: a crash or a hang has a text. 0: y is
 * filled; 1: it could not be run, `why` says why; -1: the lab failed. The caller has no other
 * thread. */
int ds_explain_replay(const struct ds_explain *e, int side, const struct ds_kernel *kernel,
                      uint64_t seed, float *y, char *why, size_t why_size, struct ds_error *err);

/* How many elements of all rows a replay gives bit for bit. */
struct ds_explain_match {
    uint64_t elements, drifting;   /* in all; where A and B differ */
    uint64_t same[DS_SIDES];       /* of all elements: those with A's bits, with B's bits */
    uint64_t drift_same[DS_SIDES]; /* of the drifting ones */
};
void ds_explain_match(const struct ds_explain *e, const float *y, struct ds_explain_match *out);

#endif
