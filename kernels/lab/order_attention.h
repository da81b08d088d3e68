/* order_attention.h: one attention call whose scores are chosen: what the measurements of its three
 * sums share. Private to kernels/lab. */
#ifndef DS_LAB_ORDER_ATTENTION_H
#define DS_LAB_ORDER_ATTENTION_H

#include "kernels/lab/order_ops.h"

/* All requests share one page of keys and values. Of their query rows one is looked at. */
struct ds_order_attention {
    struct ds_order_call call;
    struct ds_attention_args a;
    struct ds_sequence *sequences;
    int32_t page;
    float *q, *k, *v, *y;
    int64_t slots, queries,
        each; /* of a request: seen by the row that is measured; up to it; all */
    uint64_t launches;
};
/* `rows` requests. */
int ds_order_attention_open(const struct ds_order_setting *s, int64_t rows, int64_t slots,
                            struct ds_order_attention *out, struct ds_error *err);
void ds_order_attention_close(struct ds_order_attention *at);
int ds_order_attention_launch(struct ds_order_attention *at, struct ds_error *err);
/* The output of a request's query row that is measured, heads side by side. */
const float *ds_order_attention_seen(const struct ds_order_attention *at, int64_t request);
/* The score of a slot for every row and head, exact. */
void ds_order_attention_score(struct ds_order_attention *at, int64_t slot, float score);

/* order_softmax.c: the order in which exp(score - max) is added. */
int ds_order_denominator(const struct ds_order_setting *s, struct ds_order_library *lib,
                         struct ds_order *out, struct ds_error *err);
/* order_scores.c: the order of q.k. */
int ds_order_scores(const struct ds_order_setting *s, struct ds_order_library *lib,
                    struct ds_order *out, struct ds_error *err);
/* order_whole.c: fills out->whole from what the three found. */
int ds_order_whole(const struct ds_order_setting *s, const struct ds_order_library *lib,
                   struct ds_order *out, struct ds_error *err);

#endif
