/* structure_activation.c: the gated unit where none of the known activations holds: x * sigmoid(b x) with another b,
 * a number added to up, an exponential that is off by where its argument lies between powers of two, or any other
 * function of gate. See structure.h, and structure_gate.c, which is asked before. */
#include "dumps/structure_internal.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

enum { LEAST_SAMPLES = 64 };

static double silu(double b, double x)
{
    return x / (1 + exp(-b * x));
}

struct unit {
    double b, added; /* x * sigmoid(b x), times (up + added) */
};

static int predict_unit(const struct task *t, size_t r, const void *how)
{
    const struct unit *h = how;
    const float *gate = t->rows[r].term[0], *up = t->rows[r].term[1];
    if (!gate || !up)
        return -1;
    for (uint32_t i = 0; i < t->s->width; i++)
        t->guess[i] = (float)(silu(h->b, (double)gate[i]) * ((double)up[i] + h->added));
    return 1;
}

/* One element: of what its place is decided, and what is to be a function of it. */
struct sample {
    double at, value;
};

struct samples {
    struct sample *x;
    size_t n;
};

static int by_place(const void *a, const void *b)
{
    const struct sample *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static int by_value(const void *a, const void *b)
{
    const struct sample *x = a, *y = b;
    return (x->value > y->value) - (x->value < y->value);
}

enum what { SLOPE, ADDED, EXPONENT, FUNCTION };

/* What an element that is off says: b; what is added to up; by which factor its exponential is off, and where its
 * argument lies between powers of two; what the function of gate has beside SiLU. NaN: nothing. */
static struct sample sample_of(const struct task *t, size_t r, uint32_t i, int what, double added)
{
    const double g = (double)t->rows[r].term[0][i], u = (double)t->rows[r].term[1][i] + added,
                 y = (double)t->rows[r].mine[i], h = y / u, e = g / h - 1;
    if (!isfinite(y) || !is_off(t, r, i) || fabs(u) < 0.02 || fabs(g) < 0.02)
        return (struct sample){NAN, NAN};
    if (what == ADDED)
        return (struct sample){g, y / silu(1, g) - u};
    if (what == FUNCTION)
        return (struct sample){g, h - silu(1, g)};
    if (!(e > 0.02) || !(e < 50) || (what == SLOPE && fabs(g) < 0.1))
        return (struct sample){NAN, NAN};
    if (what == SLOPE)
        return (struct sample){g, -log(e) / g};
    const double power = -g / log(2);
    return (struct sample){power - floor(power), e / exp(-g) - 1};
}

static void gather(const struct task *t, int what, double added, struct samples *s)
{
    s->n = 0;
    for (size_t r = 0; r < t->n_rows; r++)
        for (uint32_t i = 0; t->rows[r].term[0] && t->rows[r].term[1] && i < t->s->width; i++) {
            const struct sample x = sample_of(t, r, i, what, added);
            if (isfinite(x.at) && isfinite(x.value))
                s->x[s->n++] = x;
        }
}

static double median(struct samples *s)
{
    qsort(s->x, s->n, sizeof *s->x, by_value);
    return s->n >= LEAST_SAMPLES ? s->x[s->n / 2].value : (double)NAN;
}

/* Share of the squares that neighbours have in common: of a smooth function nearly all, of noise none. */
static double smoothness(struct samples *s, double *least, double *most)
{
    double all = 0, steps = 0;
    qsort(s->x, s->n, sizeof *s->x, by_place);
    *least = INFINITY;
    *most = -INFINITY;
    for (size_t i = 0; i < s->n; i++) {
        const double step = i ? s->x[i].value - s->x[i - 1].value : 0;
        all += s->x[i].value * s->x[i].value;
        steps += step * step;
        *least = fmin(*least, s->x[i].value);
        *most = fmax(*most, s->x[i].value);
    }
    return s->n >= LEAST_SAMPLES && all > 0 ? 1 - steps / (2 * all) : 0;
}

static void try_known(struct task *t, struct samples *s)
{
    gather(t, ADDED, 0, s);
    const struct unit plain = {1, median(s)};
    if (isfinite(plain.added))
        claim(t, explains(t, predict_unit, &plain), 0, "up has %.4g added", plain.added);
    for (int one = 0; one < 2 && !t->best->found; one++) {
        gather(t, SLOPE, one, s);
        const struct unit h = {median(s), one};
        if (isfinite(h.b))
            claim(t, explains(t, predict_unit, &h), 0,
                  "the activation is x * sigmoid(%.4g x) instead of SiLU%s", h.b,
                  one ? ", and up has 1 added" : "");
    }
}

static void try_functions(struct task *t, struct samples *s)
{
    static const double enough = 0.98, small = 0.15;
    double least, most;
    gather(t, EXPONENT, 0, s);
    double share = smoothness(s, &least, &most);
    if (share >= enough && least > -small && most < small &&
        claim(t, share, 0,
              "another exponential: off by %.2g to %.2g %%, by where its argument lies between "
              "powers of two",
              100 * least, 100 * most)) {
        t->best->algorithm = 1;
        return;
    }
    gather(t, FUNCTION, 0, s);
    share = smoothness(s, &least, &most);
    if (share >= enough)
        claim(t, share, 0,
              "another activation: what up is multiplied with is SiLU and another function of "
              "gate, from %.3g to %.3g",
              least, most);
}

int try_activation(struct task *t, struct ds_error *err)
{
    if (!structure_is_gate(t))
        return 0;
    struct samples s = {ds_calloc(t->n_rows * t->s->width, sizeof *s.x, "structure", err), 0};
    if (!s.x)
        return -1;
    try_known(t, &s);
    if (!t->best->found)
        try_functions(t, &s);
    free(s.x);
    return 0;
}
