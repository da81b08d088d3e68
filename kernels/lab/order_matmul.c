/* order_matmul.c: a matmul as a grid of sums: rows of the call by columns of the weights. */
#include "kernels/lab/order_ops.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "kernels/call.h"

#include <stdlib.h>

struct matmul {
    struct ds_order_call call;
    struct ds_matmul_args a;
    void *prepared;
    uint16_t *half; /* the rows as bf16 */
};

/* The numbers that are asked with have bf16's precision; those of a replay on random inputs take it. */
static void round_rows(struct ds_grid *g, uint16_t *half)
{
    const size_t n = (size_t)(g->rows * g->terms);
    ds_round_row(DS_BF16, half, g->x, n);
    ds_widen_row(DS_BF16, g->x, half, n);
}

static int launch(struct ds_grid *g, struct ds_error *err)
{
    struct matmul *m = g->self;
    char why[256] = "";
    if (m->call.kernel->prepare && (g->w_changed || !m->prepared)) {
        size_t bytes;
        free(m->prepared);
        m->prepared = NULL;
        if (ds_call_prepare(m->call.kernel, &m->a.w, &m->prepared, &bytes, why, sizeof why) != 0)
            return ds_fail(err, "matmul/%s refused the weights: %s", m->call.kernel->name, why);
        m->a.prepared = m->prepared;
        m->call.prepared_bytes = bytes;
    }
    g->w_changed = 0;
    if (m->half)
        round_rows(g, m->half);
    return ds_order_launch(&m->call, &m->a, err);
}

int ds_order_matmul(const struct ds_order_setting *s, struct ds_order_library *lib,
                    struct ds_order *out, struct ds_error *err)
{
    struct matmul m = {.call = {.kernel = s->kernel, .threads = s->threads, .team = s->team}};
    struct ds_grid g = {.rows = s->rows,
                        .columns = s->shape.n,
                        .contents = s->shape.n,
                        .terms = s->shape.k,
                        .self = &m,
                        .launch = launch};
    int rc = ds_grid_alloc(&g, 1, err);
    m.a = (struct ds_matmul_args){.rows = g.rows,
                                  .n = g.columns,
                                  .k = g.terms,
                                  .x = g.x,
                                  .ldx = g.terms,
                                  .w = {.data = g.w, .n = g.columns, .k = g.terms},
                                  .y = g.y,
                                  .ldy = g.columns};
    if (rc == 0 && s->stored == DS_ELEMENT_BF16) {
        m.half = ds_alloc((size_t)(g.rows * g.terms) * sizeof *m.half, "rows of 16 bits", err);
        rc = m.half ? 0 : -1;
        m.a.x = (const float *)(const void *)m.half;
        m.a.stored = DS_ELEMENT_BF16;
        m.a.y_stored = DS_ELEMENT_F32;
    }
    out->sum[0].name = "products";
    out->sum[0].unit = "k";
    out->sum[0].note = "";
    out->n_sums = 1;
    if (rc == 0)
        rc = ds_grid_measure(&g, lib, &out->sum[0], err);
    out->launches += g.launches;
    ds_order_call_free(&m.call);
    ds_grid_free(&g);
    free(m.prepared);
    free(m.half);
    return rc;
}
