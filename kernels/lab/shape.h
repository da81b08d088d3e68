/* shape.h: the sizes at which one op is judged, as text and as numbers. Knows no model: whoever
 * has one turns its hyperparameters into shapes. */
#ifndef DS_LAB_SHAPE_H
#define DS_LAB_SHAPE_H

#include "base/buf.h"
#include "base/error.h"
#include "kernels/driftscope_kernel.h"

#include <stdint.h>

/* Sizes that an op has not are 0. Rows are no part of a shape: they are what is varied. */
struct ds_shape {
    char name[32]; /* the stages that have it ("q_proj o_proj"), or "given" */
    int op;        /* enum ds_op */
    int64_t n, k;  /* matmul */
    int64_t width; /* rmsnorm softmax silu_mul add combine allreduce transfer custom; embed: of a row;
                      cache: kv_heads * head_dim */
    int64_t heads, kv_heads, head_dim; /* attention; rope: heads and head_dim */
    int64_t rope_dim;                  /* rope */
    int64_t neox;                      /* rope: 0 or 1 */
    int64_t vocab;                     /* embed sample */
    int64_t experts, top_k;            /* router; combine: top_k */
    int64_t ranks;                     /* allreduce */
};

/* "n=576,k=1536", "width=576", "heads=9,kv_heads=3,head_dim=64": sizes of that op; those left out
 * take a small default. -1 for a name that the op has not (with the nearest as the hint), a
 * repetition, a number that is none or outside 1..2^24 (neox: 0..1), heads that kv_heads does not
 * divide, rope_dim that is odd or above head_dim, top_k above experts. */
int ds_shape_parse(int op, const char *text, struct ds_shape *out, struct ds_error *err);

/* The same text back, all sizes of the op named. */
void ds_shape_print(struct ds_buf *b, const struct ds_shape *s);

#endif
