/* subject_attention.c: how attention is brought into a call: sequences, pages, keys and values. */
#include "kernels/lab/subject.h"

static int build(struct ds_subject_parts *p, const struct ds_call *c, struct ds_error *err)
{
    (void)p, (void)c;
    return ds_fail(err, "attention cannot be built into a call yet");
}

const struct ds_subject_ops ds_subject_attention_ops = {.build = build};
