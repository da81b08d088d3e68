/* structure_frequencies.c: hypotheses about the frequencies of a rotation, where the reference's follow from its base:
 * they stand in another order, begin at another pair, follow from another base (which is fitted), or are those of fewer
 * channels. See structure_rope.c. */
#include "dumps/structure_rope.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct spectrum {
    int pairing;
    uint32_t dim; /* channels of a head that are rotated */
    double of[MOST_PAIRS];
};

static void by_base(struct spectrum *s, double base, uint32_t exponents)
{
    for (uint32_t p = 0; p < s->dim / 2; p++)
        s->of[p] = pow(base, -2.0 * p / exponents);
}

static void turn_by(const struct task *t, size_t r, const struct spectrum *s)
{
    const struct ds_structure_row *row = &t->rows[r];
    const uint32_t half = s->dim / 2;
    memcpy(t->guess, row->input, t->s->width * sizeof *t->guess);
    for (uint32_t p = 0; p < half; p++) {
        const double angle = row->position * s->of[p], c = cos(angle), n = sin(angle);
        for (uint32_t head = 0; head < t->s->width; head += t->s->head_dim) {
            const uint32_t a = head + (s->pairing == BY_HALVES ? p : 2 * p),
                           b = s->pairing == BY_HALVES ? a + half : a + 1;
            const double x = (double)row->input[a], y = (double)row->input[b];
            t->guess[a] = (float)(x * c - y * n);
            t->guess[b] = (float)(x * n + y * c);
        }
    }
}

static int predict_spectrum(const struct task *t, size_t r, const void *how)
{
    if (!t->rows[r].input)
        return -1;
    turn_by(t, r, how);
    return 1;
}

/* Whether the reference's angles follow from its base: else nothing is known of another one. */
static int is_reference(const struct task *t, const struct spectrum *s)
{
    uint64_t n = 0, good = 0;
    for (size_t r = 0; r < t->n_rows; r++) {
        const struct ds_structure_row *row = &t->rows[r];
        if (!row->input || !t->off_in_row[r])
            continue;
        turn_by(t, r, s);
        for (uint32_t i = 0; i < t->s->width; i++)
            good += fabs((double)t->guess[i] - (double)row->ref[i]) <=
                    2 * ds_structure_slack(t->s, row->ref[i], row->ref[i], t->rms[r]);
        n += t->s->width;
    }
    return n && good * 100 >= n * 97;
}

static double share_of(const struct task *t, const struct spectrum *s)
{
    const double share = explains(t, predict_spectrum, s);
    return share > 0 && holds_beside(t, predict_spectrum, s, t->s->head_dim) ? share : 0;
}

/* ---- another base ------------------------------------------------------------------------------ */

static double wrapped(double angle)
{
    return remainder(angle, 2 * acos(-1.0));
}

static double angle_of(const struct task *t, size_t r, int pairing, uint32_t pair)
{
    struct turn turn;
    structure_read_turn(t->s, pairing, t->rows[r].input, t->rows[r].mine, &turn);
    return atan2(turn.sine[pair], turn.cosine[pair]);
}

static int can_tell(const struct task *t, size_t r)
{
    return t->off_in_row[r] && t->rows[r].input && t->rows[r].position > 0;
}

/* By how much a pair is turned on from one position to the next: from two rows that are as near to each other as any,
 * or from the first position. NaN: they are too far apart to tell how often it went round. */
static double step_of(const struct task *t, int pairing, uint32_t pair)
{
    int32_t apart = INT32_MAX;
    double step = NAN;
    for (size_t r = 0; r < t->n_rows; r++) {
        if (!can_tell(t, r))
            continue;
        if (t->rows[r].position < apart) {
            apart = t->rows[r].position;
            step = angle_of(t, r, pairing, pair) / apart;
        }
        for (size_t o = 0; o < t->n_rows; o++) {
            const int32_t away = t->rows[o].position - t->rows[r].position;
            if (!can_tell(t, o) || away < 1 || away >= apart)
                continue;
            apart = away;
            step = wrapped(angle_of(t, o, pairing, pair) - angle_of(t, r, pairing, pair)) / away;
        }
    }
    return apart <= 3 ? step : (double)NAN;
}

/* Brings the base nearer to all angles of all rows that do not go round once too often for it. */
static void refine(const struct task *t, int pairing, struct spectrum *s, double *base)
{
    enum { ROUNDS = 6 };
    for (int round = 0; round < ROUNDS; round++) {
        double both = 0, square = 0;
        by_base(s, *base, s->dim);
        for (size_t r = 0; r < t->n_rows; r++) {
            struct turn turn;
            if (!can_tell(t, r))
                continue;
            structure_read_turn(t->s, pairing, t->rows[r].input, t->rows[r].mine, &turn);
            for (uint32_t p = 1; p < s->dim / 2; p++) {
                const double angle = t->rows[r].position * s->of[p],
                             slope = -angle * 2.0 * p / s->dim,
                             off = wrapped(atan2(turn.sine[p], turn.cosine[p]) - angle);
                if (fabs(off) > 0.5)
                    continue;
                both += off * slope;
                square += slope * slope;
            }
        }
        if (!(square > 0))
            return;
        *base *= exp(both / square);
    }
}

/* A chosen number has few digits. */
static double few_digits(double x)
{
    const double unit = pow(10, floor(log10(x)) - 2), near = rint(x / unit) * unit;
    return fabs(near - x) <= 3e-4 * x ? near : x;
}

static void try_base(struct task *t, struct spectrum *s)
{
    const double step = step_of(t, s->pairing, 1), dim = s->dim;
    double base = step > 0 ? pow(step, -dim / 2) : 0;
    char scaled[64] = "";
    if (!(base > 1) || !(base < 1e15))
        return;
    refine(t, s->pairing, s, &base);
    by_base(s, few_digits(base), s->dim);
    double share = share_of(t, s);
    if (share < 0.95) {
        by_base(s, base, s->dim);
        share = share_of(t, s);
    } else {
        base = few_digits(base);
    }
    /* NTK: the slowest frequency is a number of times as slow */
    const double times = pow(base / t->s->rope_base, (dim - 2) / dim);
    if (times > 1.2 && fabs(times - 0.5 * rint(2 * times)) <= 2e-3 * times)
        snprintf(scaled, sizeof scaled, " (as NTK scaling by %.4g has it)", 0.5 * rint(2 * times));
    claim(t, share, 0, "rotated with a base of %.6g instead of %.6g%s", base, t->s->rope_base,
          scaled);
}

/* ---- all --------------------------------------------------------------------------------------- */

void try_frequencies(struct task *t, int pairing)
{
    enum { MOST_SHIFT = 2 };
    const uint32_t dim = structure_rotated(t->s), n = dim / 2;
    const double base = t->s->rope_base;
    struct spectrum s = {.pairing = pairing, .dim = dim};
    if (!(base > 1))
        return;
    by_base(&s, base, dim);
    if (!is_reference(t, &s))
        return;
    for (uint32_t p = 0; p < n; p++)
        s.of[p] = pow(base, -2.0 * (n - 1 - p) / dim);
    claim(t, share_of(t, &s), 0, "the frequencies stand in reverse order: the slowest first");
    for (int shift = -MOST_SHIFT; shift <= MOST_SHIFT; shift++) {
        for (uint32_t p = 0; p < n; p++) {
            const int from = (int)p + shift;
            s.of[p] = pow(base, -2.0 * (from < 0 ? 0 : from >= (int)n ? (int)n - 1 : from) / dim);
        }
        if (shift)
            claim(t, share_of(t, &s), 0, "pairs have the frequency of the pair %d %s", abs(shift),
                  shift < 0 ? "before" : "behind");
    }
    for (uint32_t parts = 2; parts <= 4; parts *= 2) {
        s.dim = dim / parts;
        if (dim % parts || s.dim % 2 || s.dim < 2)
            continue;
        by_base(&s, base, s.dim);
        claim(t, share_of(t, &s), 0, "only the first %u of %u channels of a head are rotated",
              s.dim, t->s->head_dim);
        by_base(&s, base, dim);
        claim(t, share_of(t, &s), 0,
              "only the first %u of %u channels of a head are rotated, by the frequencies of all",
              s.dim, t->s->head_dim);
    }
    s.dim = dim;
    if (!t->best->found)
        try_base(t, &s);
}
