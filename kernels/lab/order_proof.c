/* order_proof.c: the trees of a grid evaluated on random inputs and held against the kernel, every
 * output by the tree of its class. */
#include "kernels/lab/order_grid.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A small grid is proven on more data. */
enum { WANTED = 4096, MOST_DATA = 8 };

struct proof {
    struct ds_grid *g;
    struct ds_order_sum *out;
    struct ds_grid_output *output; /* of each class */
    float *ones, *w;               /* w: [terms][16] */
};

static void transpose(struct proof *p, int64_t column, int64_t n)
{
    const struct ds_grid *g = p->g;
    for (int64_t j = 0; j < DS_REPLAY_LANES; j++) {
        const float *from = g->w + ds_grid_content(g, column + (j < n ? j : 0)) * g->terms;
        for (int64_t k = 0; k < g->terms; k++)
            p->w[k * DS_REPLAY_LANES + j] = from[k];
    }
}

/* One row of a block of columns: every class among them is evaluated once. */
static void prove_block(struct proof *p, int64_t row, int64_t column, int64_t n)
{
    const struct ds_grid *g = p->g;
    const int32_t *cls = p->out->class_of + row * g->columns + column;
    const float *y = g->y + row * g->columns + column;
    for (int64_t j = 0; j < n; j++) {
        struct ds_order_class *c = &p->out->classes[cls[j]];
        float got[DS_REPLAY_LANES];
        int done = 0;
        for (int64_t i = 0; i < j; i++)
            done |= cls[i] == cls[j];
        if (done)
            continue;
        if (c->tree >= 0)
            ds_grid_output_block(&p->output[cls[j]], g->x ? g->x + row * g->terms : p->ones, p->w,
                                 got);
        for (int64_t i = j; i < n; i++) {
            if (cls[i] != cls[j])
                continue;
            c->compared++;
            c->reproduced += c->tree >= 0 && ds_f32_bits(got[i]) == ds_f32_bits(y[i]);
        }
    }
}

static int prepare(struct proof *p, const struct ds_order_library *lib, struct ds_error *err)
{
    struct ds_order_sum *out = p->out;
    p->output = ds_calloc(out->n_classes, sizeof *p->output, "the replay", err);
    if (!p->output)
        return -1;
    for (size_t c = 0; c < out->n_classes; c++)
        if (out->classes[c].tree >= 0 &&
            ds_grid_output(p->g, lib->tree[out->classes[c].tree], &p->output[c], err) != 0)
            return -1;
    p->w = ds_alloc_aligned((size_t)p->g->terms * DS_REPLAY_LANES, sizeof *p->w, "the replay", err);
    p->ones = ds_alloc_aligned((size_t)p->g->terms, sizeof *p->ones, "the replay", err);
    if (!p->w || !p->ones)
        return -1;
    for (int64_t k = 0; k < p->g->terms; k++)
        p->ones[k] = 1.0f;
    return 0;
}

static void release(struct proof *p)
{
    for (size_t c = 0; p->output && c < p->out->n_classes; c++)
        ds_grid_output_free(&p->output[c]);
    free(p->output);
    free(p->w);
    free(p->ones);
}

/* An order that follows the size of the terms would pass for a fixed one on data of one size. */
void ds_grid_spread_magnitudes(struct ds_grid *g, uint64_t seed)
{
    enum { LEAST = -12, MANY = 25 };
    for (int64_t c = 1; g->x && c < g->contents; c += 2)
        for (int64_t k = 0; k < g->terms; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            g->w[c * g->terms + k] =
                ldexpf(g->w[c * g->terms + k], LEAST + (int)((seed >> 40) % MANY));
        }
}

/* A few terms are zero in every other row, and in some columns: a kernel that leaves out zeros adds the
 * rest in another order. */
static void strew_zeros(struct ds_grid *g, uint64_t draw)
{
    enum { ONE_IN = 16 };
    uint64_t seed = draw + 1;
    for (int64_t r = (int64_t)(draw % 2); g->x && r < g->rows; r += 2)
        for (int64_t k = 0; k < g->terms; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            if ((seed >> 40) % ONE_IN == 0)
                g->x[r * g->terms + k] = 0;
        }
    for (int64_t c = 2; c < g->contents; c += 4)
        for (int64_t k = 0; k < g->terms; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            if ((seed >> 40) % ONE_IN == 0)
                g->w[c * g->terms + k] = 0;
        }
}

int ds_grid_proof(struct ds_grid *g, const struct ds_order_library *lib, struct ds_order_sum *out,
                  struct ds_error *err)
{
    struct proof p = {.g = g, .out = out};
    int rc = prepare(&p, lib, err);
    int64_t outputs = g->rows * g->columns;
    for (int d = 0; d < MOST_DATA && rc == 0 && (d == 0 || d * outputs < WANTED); d++) {
        ds_grid_random_data(g, (uint64_t)d + 50);
        ds_grid_spread_magnitudes(g, (uint64_t)d);
        strew_zeros(g, (uint64_t)d);
        rc = ds_grid_launch(g, err);
        for (int64_t c = 0; c < g->columns && rc == 0; c += DS_REPLAY_LANES) {
            int64_t n = g->columns - c < DS_REPLAY_LANES ? g->columns - c : DS_REPLAY_LANES;
            transpose(&p, c, n);
            for (int64_t r = 0; r < g->rows; r++)
                prove_block(&p, r, c, n);
        }
    }
    for (size_t c = 0; c < out->n_classes; c++) {
        out->compared += out->classes[c].compared;
        out->reproduced += out->classes[c].reproduced;
    }
    release(&p);
    return rc;
}
