/* explain_call.h: one call of given rows while it is laid out: what the files explain_call.c,
 * explain_bind.c and explain_sequences.c share. Private to kernels/lab. */
#ifndef DS_LAB_EXPLAIN_CALL_H
#define DS_LAB_EXPLAIN_CALL_H

#include "kernels/lab/explain.h"

struct ds_explain_call {
    const struct ds_explain *e;
    int side;
    const struct ds_kernel *kernel;
    const struct ds_explain_row *first; /* of this call */
    int64_t rows, in_width[2], width;
    float *in[2], *y, *k, *v;
    int32_t *numbers;
    int32_t *ids, *facts;   /* router, sample: [rows][..]; process: requests, positions, ... */
    float *weights;         /* router */
    const int32_t **tokens; /* process */
    const float **ranks;
    struct ds_sequence *sequences;
    int32_t *pages;
    void *prepared, *scratch;
    size_t prepared_bytes;
    struct ds_far *far; /* what it keeps on a device */
    union ds_any_args args;
};

/* Whether a given row stood in this call. */
static inline int ds_explain_in_call(const struct ds_explain_call *c,
                                     const struct ds_explain_row *r)
{
    return r->at[c->side].call == c->first->at[c->side].call;
}

/* explain_bind.c: fills c->numbers and c->in: each given row in its place, others beside it; then the
 * arguments of every op whose rows stand alone. */
int ds_explain_fill_inputs(struct ds_explain_call *c, struct ds_error *err);
int ds_explain_bind_rows(struct ds_explain_call *c, struct ds_error *err);
/* explain_sequences.c: ops that read or write cached rows. */
int ds_explain_bind_attention(struct ds_explain_call *c, struct ds_error *err);
int ds_explain_bind_cache(struct ds_explain_call *c, struct ds_error *err);
void ds_explain_read_cache(struct ds_explain_call *c);

#endif
