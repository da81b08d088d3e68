/* order_ops.h: how each op is asked for its order, and launching. Private to kernels/lab. */
#ifndef DS_LAB_ORDER_OPS_H
#define DS_LAB_ORDER_OPS_H

#include "kernels/lab/order_grid.h"
#include "kernels/lab/order_recover.h"

/* One kernel, launched again and again; every launch has another seed. */
struct ds_order_call {
    const struct ds_kernel *kernel;
    int threads;
    void *team;
    void *scratch;
    size_t scratch_bytes;
    uint64_t seed;
    size_t prepared_bytes; /* of a matmul's prepared weights */
    struct ds_far *far;    /* what it keeps on a device */
};
int ds_order_launch(struct ds_order_call *c, const void *args, struct ds_error *err);
void ds_order_call_free(struct ds_order_call *c);

int ds_order_matmul(const struct ds_order_setting *s, struct ds_order_library *lib,
                    struct ds_order *out, struct ds_error *err);
int ds_order_rmsnorm(const struct ds_order_setting *s, struct ds_order_library *lib,
                     struct ds_order *out, struct ds_error *err);
int ds_order_attention(const struct ds_order_setting *s, struct ds_order_library *lib,
                       struct ds_order *out, struct ds_error *err);
int ds_order_softmax(const struct ds_order_setting *s, struct ds_order_library *lib,
                     struct ds_order *out, struct ds_error *err);
int ds_order_combine(const struct ds_order_setting *s, struct ds_order_library *lib,
                     struct ds_order *out, struct ds_error *err);
int ds_order_allreduce(const struct ds_order_setting *s, struct ds_order_library *lib,
                       struct ds_order *out, struct ds_error *err);

/* 1 with *tree set when many triples are answered as a tree of the library says, 0 when none is;
 * -1 for an error. */
int ds_order_find_triples(const struct ds_triples *q, const struct ds_order_library *lib,
                          int32_t *tree, struct ds_error *err);

#endif
