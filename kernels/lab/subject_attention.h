/* subject_attention.h: what the lab knows of the paged cache of an attention call: which
 * parts nobody wrote, and the streams of its contents. Private to the lab. */
#ifndef DS_LAB_SUBJECT_ATTENTION_H
#define DS_LAB_SUBJECT_ATTENTION_H

#include "kernels/lab/subject.h"

/* Parts of the cache that hold nothing. A kernel that reads one lets it into its results; which one
 * it was shows when its poison is exchanged (ds_call.spoil, a mask of 1 << area). */
enum ds_area {
    DS_AREA_BEHIND = 0, /* slots at kv_len and beyond */
    DS_AREA_PADDING,    /* slots below kv_first */
    DS_AREA_PASSED,     /* visible slots once, before the window of every row of the call */
    DS_AREA_NOBODY,     /* pages of no sequence */
    DS_AREA_COUNT
};

enum { DS_STREAM_Q = 1, DS_STREAM_K, DS_STREAM_V, DS_STREAM_SINKS };

/* Scores get a deviation of about 1.3, so that weights are neither all alike nor one alone. */
float ds_attention_scale(int64_t head_dim);

/* Slots of a segment's sequence in use after the call. */
static inline int64_t ds_segment_kv_len(const struct ds_segment *s)
{
    return (int64_t)s->padding + s->first + s->length;
}

#endif
