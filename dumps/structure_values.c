/* structure_values.c: hypotheses about every value by itself: cut off at a limit, bent to stay below one, or zero
 * where they are small.
 * See structure.h. */
#include "dumps/structure_internal.h"

#include <math.h>

enum way { CUT, CUT_ABOVE, CUT_BELOW, BENT, SIZE, FLUSHED, WAYS };

struct limit {
    int way;
    double at;
};

static double limited(const struct limit *l, double x)
{
    switch (l->way) {
    case CUT:
        return fmax(-l->at, fmin(l->at, x));
    case CUT_ABOVE:
        return fmin(l->at, x);
    case CUT_BELOW:
        return fmax(l->at, x);
    case FLUSHED:
        return fabs(x) <= l->at ? 0 : x;
    case BENT:
        return l->at * tanh(x / l->at);
    default:
        return fabs(x);
    }
}

static int predict_limited(const struct task *t, size_t r, const void *how)
{
    for (uint32_t i = 0; i < t->s->width; i++)
        t->guess[i] = (float)limited(how, (double)t->rows[r].ref[i]);
    return 1;
}

/* There are values beside those that are off. Else rows that hold nothing would be cut at zero. */
static int lets_through(const struct task *t, const struct limit *l)
{
    enum { ENOUGH = 8 };
    uint64_t n = 0;
    for (size_t r = 0; r < t->n_rows; r++)
        for (uint32_t i = 0; i < t->s->width; i++) {
            const double x = (double)t->rows[r].ref[i];
            n += !is_off(t, r, i) && fabs(x) > 0.1 * t->rms[r] && fits(t, r, i, limited(l, x));
        }
    return n >= ENOUGH;
}

/* The limit as the values that are off show it: they stand at it. */
static int find_cut(const struct task *t, struct limit *l)
{
    double least = INFINITY, most = -INFINITY;
    for (size_t r = 0; r < t->n_rows; r++)
        for (uint32_t i = 0; i < t->s->width; i++) {
            if (!is_off(t, r, i))
                continue;
            const double x = (double)t->rows[r].mine[i];
            least = fmin(least, l->way == CUT ? fabs(x) : x);
            most = fmax(most, l->way == CUT ? fabs(x) : x);
        }
    l->at = 0.5 * (least + most);
    return most - least <= 1e-2 * fabs(most) && (l->way != CUT || l->at > 0);
}

/* The values that are off are zero, and they are the smallest of their rows. */
static int find_flushed(const struct task *t, struct limit *l)
{
    double most = 0, least = INFINITY;
    for (size_t r = 0; r < t->n_rows; r++)
        for (uint32_t i = 0; t->off_in_row[r] && i < t->s->width; i++) {
            const double x = fabs((double)t->rows[r].ref[i]);
            if (is_off(t, r, i) && (t->rows[r].mine[i] != 0 || !(x > 0)))
                return 0;
            if (is_off(t, r, i))
                most = fmax(most, x);
            else if (x > 0)
                least = fmin(least, x);
        }
    l->at = most;
    return most < least;
}

/* Where the largest value of the reference went; the limit that sends it there, by halving. */
static int find_bent(const struct task *t, struct limit *l)
{
    double x = 0, y = 0;
    for (size_t r = 0; r < t->n_rows; r++)
        for (uint32_t i = 0; i < t->s->width; i++)
            if (isfinite(t->rows[r].ref[i]) && fabs((double)t->rows[r].ref[i]) > x) {
                x = fabs((double)t->rows[r].ref[i]);
                y = fabs((double)t->rows[r].mine[i]);
            }
    double low = y, high = 1e4 * x;
    if (!(y > 0) || !(y < x))
        return 0;
    for (int step = 0; step < 200; step++) {
        l->at = sqrt(low * high);
        *(limited(l, x) < y ? &low : &high) = l->at;
    }
    return 1;
}

static double share_of(const struct task *t, const struct limit *l)
{
    const double share = explains(t, predict_limited, l);
    return share > 0 && holds_beside(t, predict_limited, l, t->s->width) ? share : 0;
}

void try_values(struct task *t)
{
    static const char *const text[WAYS] = {
        [CUT] = "values are clamped to +-%.6g",
        [CUT_ABOVE] = "values above %.6g are clamped to it",
        [CUT_BELOW] = "values below %.6g are clamped to it",
        [BENT] = "values are capped at %.6g, by a tanh",
        [FLUSHED] = "values up to %.3g are zero, all larger ones are not: small ones are flushed",
    };
    for (int way = CUT; way <= CUT_BELOW; way++) {
        struct limit l = {.way = way};
        if (find_cut(t, &l) && lets_through(t, &l))
            claim(t, share_of(t, &l), 0, text[way], l.at);
    }
    struct limit flushed = {.way = FLUSHED};
    if (find_flushed(t, &flushed) && lets_through(t, &flushed))
        claim(t, share_of(t, &flushed), 0, text[FLUSHED], flushed.at);
    struct limit bent = {.way = BENT}, size = {.way = SIZE};
    if (find_bent(t, &bent))
        claim(t, share_of(t, &bent), 0, text[BENT], bent.at);
    if (lets_through(t, &size))
        claim(t, share_of(t, &size), 0, "values have lost their sign");
}
