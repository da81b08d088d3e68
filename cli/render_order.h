/* render_order.h: inside cli/ only: measured orders as text and as JSON. */
#ifndef DS_CLI_RENDER_ORDER_H
#define DS_CLI_RENDER_ORDER_H

#include "cli/cli.h"
#include "kernels/lab/order.h"

#include <jansson.h>

/* One variant at one shape, at every row count asked for. */
struct ds_order_table {
    const struct ds_kernel *kernel;
    struct ds_shape shape;
    int threads;
    int stored;       /* matmul: how rows lie in memory, enum ds_element: f32, bf16 */
    int64_t visible;  /* attention: KV slots; else 0 */
    int64_t queries;  /* attention: new tokens of each request; else 0 */
    const char *core; /* of the BLAS library, "" when it is not used */
    const int64_t *rows;
    struct ds_order *at; /* [n_rows] */
    size_t n_rows;
    struct ds_order_library lib;
};

/* What became of all sums of a table, or of several. */
struct ds_order_total {
    int n_sums, unfixed, unmeasured;
    int unproven; /* tables with trees of which no output could be replayed */
    uint64_t compared, reproduced;
    size_t n_trees;
};
void ds_order_count(const struct ds_order_table *t, struct ds_order_total *sum);

/* A tree's letter(s): A, B, ..., Z, AA, ... */
void ds_order_letter(size_t i, char out[8]);
/* "all", "99.99 %", never rounded up to 100. */
void ds_order_share(char *out, size_t size, uint64_t part, uint64_t of);

void ds_order_text(struct ds_buf *b, const struct ds_options *o, const struct ds_order_table *t);
/* NULL when memory ran out. */
json_t *ds_order_json(const struct ds_order_table *t);

#endif
