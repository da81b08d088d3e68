/* subject_rows.h: inside the lab: how the ops whose rows stand alone are brought into a call. */
#ifndef DS_LAB_SUBJECT_ROWS_H
#define DS_LAB_SUBJECT_ROWS_H

#include "kernels/lab/subject.h"

/* Streams of content from this one on are those of ranks, experts and a custom kernel's tensors. */
enum { DS_STREAM_TENSORS = 5 };

extern const struct ds_subject_ops ds_subject_cache_ops, ds_subject_custom_ops;
extern const struct ds_subject_ops ds_subject_process_ops;

/* Of any op but attention. */
const struct ds_subject_ops *ds_subject_rows_ops(int op);

/* Content of one row of the pool, of stream `stream`: fills `rows` of the call one below the other,
 * `ld` apart. */
void ds_subject_fill(const struct ds_subject_parts *p, const struct ds_call *c, int stream,
                     float *at, int64_t cols, int64_t ld);

/* subject_store.c: the built call's arrays as the call wants activations stored; in which format an
 * output y is (F32 for ops without activations); f32 bits rounded to a format, as its bits. */
int ds_subject_store(struct ds_subject_parts *p, const struct ds_call *c, struct ds_error *err);
int ds_subject_stored(const struct ds_subject_parts *p, const struct ds_call *c);
uint32_t ds_subject_rounded(int element, uint32_t f32);

#endif
