/* order_samples.c: outputs of one class of a grid on random data, kept with what they were made of, so that
 * many trees can be held against them without a launch for each. */
#include "kernels/lab/order_grid.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "kernels/lab/order_recover.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_SAMPLES = 192, MOST_LAUNCHES = 16, FIRST_SEED = 300 };
static const int64_t MOST_FLOATS = 1 << 23;

struct samples {
    struct ds_grid *g;
    int64_t n, most;
    float *x, *w, *y; /* [most][terms] twice, [most] */
};

static int reserve(struct samples *s, struct ds_error *err)
{
    const int64_t terms = s->g->terms, fit = MOST_FLOATS / terms;
    s->most = fit < 1 ? 1 : fit < MOST_SAMPLES ? fit : MOST_SAMPLES;
    s->x = ds_calloc((size_t)(s->most * terms), sizeof *s->x, "samples", err);
    s->w = ds_calloc((size_t)(s->most * terms), sizeof *s->w, "samples", err);
    s->y = ds_calloc((size_t)s->most, sizeof *s->y, "samples", err);
    return s->x && s->w && s->y ? 0 : -1;
}

static void take(struct samples *s, int64_t row, int64_t column)
{
    const struct ds_grid *g = s->g;
    const size_t bytes = (size_t)g->terms * sizeof *s->x;
    float *x = s->x + s->n * g->terms;
    for (int64_t k = 0; k < g->terms && !g->x; k++)
        x[k] = 1.0f;
    if (g->x)
        memcpy(x, g->x + row * g->terms, bytes);
    memcpy(s->w + s->n * g->terms, g->w + ds_grid_content(g, column) * g->terms, bytes);
    s->y[s->n++] = g->y[row * g->columns + column];
}

/* Spread over the outputs of the class. */
static int take_samples(struct samples *s, const struct ds_order_sum *sum, int32_t cls,
                        struct ds_error *err)
{
    struct ds_grid *g = s->g;
    const int64_t outputs = g->rows * g->columns, step = 1 + sum->classes[cls].positions / s->most;
    for (int l = 0; l < MOST_LAUNCHES && s->n < s->most; l++) {
        int64_t of_class = 0;
        ds_grid_random_data(g, FIRST_SEED + (uint64_t)l);
        ds_grid_spread_magnitudes(g, (uint64_t)l);
        if (ds_grid_launch(g, err) != 0)
            return -1;
        for (int64_t i = 0; i < outputs && s->n < s->most; i++)
            if (sum->class_of[i] == cls && of_class++ % step == 0)
                take(s, i / g->columns, i % g->columns);
    }
    return 0;
}

static int fits(void *self, const struct ds_tree *t, struct ds_error *err)
{
    const struct samples *s = self;
    struct ds_grid_output o;
    int64_t i = 0;
    if (ds_grid_output(s->g, t, &o, err) != 0) {
        ds_grid_output_free(&o);
        return -1;
    }
    while (i < s->n &&
           ds_f32_bits(ds_grid_output_one(&o, s->x + i * s->g->terms, s->w + i * s->g->terms)) ==
               ds_f32_bits(s->y[i]))
        i++;
    ds_grid_output_free(&o);
    return i == s->n;
}

int ds_grid_compensated(struct ds_grid *g, const struct ds_order_sum *sum, int32_t cls,
                        struct ds_tree *t, struct ds_error *err)
{
    struct samples s = {.g = g};
    const struct ds_sum_samples samples = {&s, g->terms, g->x != NULL, fits};
    int rc = reserve(&s, err);
    if (rc == 0)
        rc = take_samples(&s, sum, cls, err);
    if (rc == 0)
        rc = ds_recover_compensated(&samples, t, err);
    if (rc == 1 && ds_grid_details(g, sum, cls, t, DS_ASK_START, err) != 0) {
        ds_tree_free(t);
        rc = -1;
    }
    free(s.x);
    free(s.w);
    free(s.y);
    return rc;
}
