/* order_softmax_exp.c: the terms of a softmax, exp(x - max), read from its outputs.
 *
 * The replay needs the terms' bits, and exp is the kernel's own. In a row of 0, one d and otherwise terms of
 * 0 the sum is 1 + e, whatever the order, and the outputs are 1/(1 + e) and e/(1 + e) rounded. Only a d
 * whose two outputs belong to one single float e is used. Most kernels have one exp: some d are read at one
 * place and used at all of them. Where that does not give every output, e is read in the row and at the
 * place where it is used, since lanes and tails may have an exp each: a launch or two for every place. */
#include "kernels/lab/order_softmax_rows.h"

#include "base/dtype.h"

#include <math.h>
#include <string.h>

enum { TRIES = 16, NEAR = 64 };

/* How many floats e near exp(d) explain both outputs; *e: one of them. */
static int explain(int form, float d, float y_most, float y, float *e)
{
    uint32_t bits = ds_f32_bits((float)exp((double)d));
    int found = 0;
    for (uint32_t b = bits - NEAR; b <= bits + NEAR; b++) {
        float f = ds_f32_from_bits(b), sum = 1.0f + f;
        if (ds_f32_bits(ds_soft_finish(form, 1.0f, sum)) == ds_f32_bits(y_most) &&
            ds_f32_bits(ds_soft_finish(form, f, sum)) == ds_f32_bits(y)) {
            *e = f;
            found++;
        }
    }
    return found;
}

/* What row r shows of the term at i. 1: known under every formula that is left. */
static int read_term(struct ds_soft *s, int64_t r, int64_t i)
{
    const float *y = s->y + r * s->width;
    int known = 1;
    for (int f = 0; f < DS_SOFT_FORMS; f++) {
        int n = s->alive[f] ? explain(f, s->d[r * s->width + i], y[s->most[r]], y[i],
                                      &s->e[f][r * s->width + i])
                            : 1;
        s->alive[f] &= n > 0;
        known &= n <= 1;
    }
    return known;
}

/* Terms of one size are added to a large sum as if they were whole numbers, in whatever order. */
static float some_d(struct ds_soft *s)
{
    return -2.1f - 10.0f * ds_soft_unit(s);
}

/* The terms at place i of all rows. One that stays unknown is left out: DS_SOFT_LOW, and 0. */
static int read_place(struct ds_soft *s, int64_t i, struct ds_error *err)
{
    int64_t left = 0;
    for (int64_t r = 0; r < s->rows; r++) {
        s->d[r * s->width + i] = s->most[r] == i ? 0.0f : DS_SOFT_LOW;
        for (int f = 0; f < DS_SOFT_FORMS; f++)
            s->e[f][r * s->width + i] = s->most[r] == i ? 1.0f : 0.0f;
        left += s->most[r] != i;
    }
    for (int t = 0; t < TRIES && left > 0; t++) {
        for (int64_t r = 0; r < s->rows; r++)
            if (s->d[r * s->width + i] == DS_SOFT_LOW)
                s->x[r * s->width + i] = some_d(s);
        if (ds_soft_launch(s, err) != 0)
            return -1;
        for (int64_t r = 0; r < s->rows; r++) {
            int64_t at = r * s->width + i;
            if (s->d[at] != DS_SOFT_LOW)
                continue;
            s->d[at] = s->x[at];
            if (read_term(s, r, i)) {
                s->x[at] = DS_SOFT_LOW;
                left--;
                continue;
            }
            s->d[at] = DS_SOFT_LOW;
            for (int f = 0; f < DS_SOFT_FORMS; f++)
                s->e[f][at] = 0.0f;
        }
    }
    for (int64_t r = 0; r < s->rows; r++)
        s->x[r * s->width + i] = s->most[r] == i ? 0.0f : DS_SOFT_LOW;
    return 0;
}

/* A row of inputs for every row of the call, with their terms. */
int ds_soft_read_places(struct ds_soft *s, uint64_t seed, struct ds_error *err)
{
    int rc = 0;
    s->rng = seed * 0x9e3779b97f4a7c15u + 7;
    ds_soft_clear(s);
    for (int64_t r = 0; r < s->rows; r++) {
        s->most[r] = (int64_t)(ds_soft_draw(s) % (uint64_t)s->width);
        s->x[r * s->width + s->most[r]] = 0.0f;
    }
    for (int64_t i = 0; i < s->width && rc == 0 && (s->alive[0] || s->alive[1]); i++)
        rc = read_place(s, i, err);
    return rc;
}

/* Each d is read in the first row that is free, at one place. */
static int read_some(struct ds_soft *s, int64_t at, int64_t most, struct ds_soft_exps *x,
                     struct ds_error *err)
{
    ds_soft_clear(s);
    for (int64_t r = 0; r < s->rows; r++) {
        s->most[r] = most;
        s->x[r * s->width + most] = 0.0f;
    }
    for (int t = 0; t < 2 * DS_SOFT_SHARED && x->n < DS_SOFT_SHARED && (s->alive[0] || s->alive[1]);
         t++) {
        for (int64_t r = 0; r < s->rows; r++)
            s->x[r * s->width + at] = some_d(s);
        if (ds_soft_launch(s, err) != 0)
            return -1;
        for (int64_t r = 0; r < s->rows && x->n < DS_SOFT_SHARED; r++) {
            const int64_t place = r * s->width + at;
            s->d[place] = s->x[place];
            if (!read_term(s, r, at))
                continue;
            x->d[x->n] = s->d[place];
            for (int f = 0; f < DS_SOFT_FORMS; f++)
                x->e[f][x->n] = s->e[f][place];
            x->n++;
        }
    }
    return 0;
}

int ds_soft_read(struct ds_soft *s, uint64_t seed, struct ds_soft_exps *x, struct ds_error *err)
{
    const int alive[DS_SOFT_FORMS] = {s->alive[0], s->alive[1]};
    s->rng = seed * 0x9e3779b97f4a7c15u + 7;
    x->n = 0;
    /* A sum that takes its errors off is 1 + e only where the 1 is there first. */
    for (int first = 0; first < 2 && s->width > 1 && x->n < DS_SOFT_SHARED / 2; first++) {
        memcpy(s->alive, alive, sizeof alive);
        x->n = 0;
        if (read_some(s, !first, first, x, err) != 0)
            return -1;
    }
    return x->n >= DS_SOFT_SHARED / 2;
}

void ds_soft_deal(struct ds_soft *s, const struct ds_soft_exps *x, int few)
{
    enum { FEW = 8 };
    for (int64_t r = 0; r < s->rows; r++) {
        s->most[r] = (int64_t)(ds_soft_draw(s) % (uint64_t)s->width);
        for (int64_t i = 0; i < s->width; i++) {
            const uint32_t which = ds_soft_draw(s) % (uint32_t)x->n;
            const int is_most = i == s->most[r],
                      low = few && ds_soft_draw(s) % (uint32_t)s->width >= FEW;
            s->d[r * s->width + i] = is_most ? 0.0f : low ? DS_SOFT_LOW : x->d[which];
            for (int f = 0; f < DS_SOFT_FORMS; f++)
                s->e[f][r * s->width + i] = is_most ? 1.0f : low ? 0.0f : x->e[f][which];
        }
    }
}
