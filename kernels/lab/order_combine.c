/* order_combine.c: combine and allreduce as grids of sums: rows of the call by columns of a row. The
 * terms of a combine are weight * value of its top_k experts, those of an allreduce the ranks' values
 * alone; every row of a call has the same values, and a combine weights of its own. */
#include "kernels/lab/order_ops.h"

#include "base/mem.h"

#include <stdlib.h>

struct gather {
    struct ds_order_call call;
    union {
        struct ds_combine_args combine;
        struct ds_allreduce_args allreduce;
    } a;
    float *x; /* combine: [rows][terms][columns]; allreduce: [terms][rows][columns] */
    const float **rank;
    int64_t row_step, term_step; /* in x */
};

static int launch(struct ds_grid *g, struct ds_error *err)
{
    struct gather *at = g->self;
    for (int64_t r = 0; g->w_changed && r < g->rows; r++)
        for (int64_t k = 0; k < g->terms; k++) {
            float *to = at->x + r * at->row_step + k * at->term_step;
            for (int64_t c = 0; c < g->columns; c++)
                to[c] = g->w[c * g->terms + k];
        }
    g->w_changed = 0;
    return ds_order_launch(&at->call, &at->a, err);
}

static int measure(struct gather *at, struct ds_grid *g, struct ds_order_library *lib,
                   struct ds_order *out, struct ds_error *err)
{
    int rc = at->x && g->y ? ds_grid_measure(g, lib, &out->sum[0], err) : -1;
    out->launches += g->launches;
    ds_order_call_free(&at->call);
    ds_grid_free(g);
    free(at->x);
    free(at->rank);
    return rc;
}

static struct gather gather_of(const struct ds_order_setting *s, struct ds_grid *g, int with_x,
                               struct ds_error *err)
{
    struct gather at = {.call = {.kernel = s->kernel, .threads = s->threads, .team = s->team}};
    if (ds_grid_alloc(g, with_x, err) == 0)
        at.x =
            ds_alloc_aligned((size_t)(g->rows * g->terms * g->columns), sizeof *at.x, "terms", err);
    return at;
}

int ds_order_combine(const struct ds_order_setting *s, struct ds_order_library *lib,
                     struct ds_order *out, struct ds_error *err)
{
    const int64_t width = s->shape.width;
    struct ds_grid g = {.rows = s->rows,
                        .columns = width,
                        .contents = width,
                        .terms = s->shape.top_k,
                        .launch = launch};
    struct gather at = gather_of(s, &g, 1, err);
    g.self = &at;
    at.row_step = g.terms * width;
    at.term_step = width;
    at.a.combine = (struct ds_combine_args){.rows = g.rows,
                                            .width = width,
                                            .top_k = g.terms,
                                            .x = at.x,
                                            .ldx = width,
                                            .weights = g.x,
                                            .y = g.y,
                                            .ldy = width};
    out->sum[0] = (struct ds_order_sum){.name = "experts", .unit = "experts", .note = ""};
    out->n_sums = 1;
    return measure(&at, &g, lib, out, err);
}

int ds_order_allreduce(const struct ds_order_setting *s, struct ds_order_library *lib,
                       struct ds_order *out, struct ds_error *err)
{
    const int64_t width = s->shape.width;
    struct ds_grid g = {.rows = s->rows,
                        .columns = width,
                        .contents = width,
                        .terms = s->shape.ranks,
                        .launch = launch};
    struct gather at = gather_of(s, &g, 0, err);
    g.self = &at;
    at.row_step = width;
    at.term_step = g.rows * width;
    at.rank = ds_calloc((size_t)g.terms, sizeof *at.rank, "ranks", err);
    for (int64_t k = 0; k < g.terms && at.rank && at.x; k++)
        at.rank[k] = at.x + k * at.term_step;
    at.a.allreduce = (struct ds_allreduce_args){.rows = g.rows,
                                                .width = width,
                                                .ranks = g.terms,
                                                .x = at.rank,
                                                .ldx = width,
                                                .y = g.y,
                                                .ldy = width};
    out->sum[0] = (struct ds_order_sum){.name = "ranks", .unit = "ranks", .note = ""};
    out->n_sums = 1;
    if (!at.rank) {
        free(at.x);
        at.x = NULL;
    }
    return measure(&at, &g, lib, out, err);
}
