/* logprob_cause.c: see logprob_cause.h. Owns what counts as evidence. Two systems that differ by rounding alone
 * must not be blamed: every rule asks for a pattern that noise of any size gives with a chance far below 1 %,
 * and for enough places to show it. */
#include "dumps/logprob_cause_internal.h"

#include "base/ascending.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FEW_POSITIONS = 5 };
static const double MASKED = DS_LP_MASKED;

void ds_lp_pairs_free(struct ds_lp_pairs *p)
{
    free(p->positions);
    free(p->alternatives);
    memset(p, 0, sizeof *p);
}

const char *ds_lp_cause_name(int kind)
{
    static const char *const names[DS_LP_CAUSES] = {
        "masked-padding",     "temperature", "filtered",   "penalty",
        "top-k-renormalised", "bf16-head",   "fewer-bits", "weights"};
    return names[kind];
}

/* ---- padding that is masked ---------------------------------------------------------------------- */

static int is_zero(double x)
{
    return fabs(x) <= 0;
}

/* Positions from `at` on, in steps of `by`, at which one side is exactly 0, to the end of the sequence. A run
 * in which the other side is never clearly below 0 is certainty, no padding. */
static size_t zero_run(const struct ds_lp_pairs *p, size_t at, int by, int side,
                       unsigned char *padding)
{
    size_t n = 0, i = at;
    int other = 0;
    while (i < p->n && p->positions[i].sequence == p->positions[at].sequence &&
           is_zero(side ? p->positions[i].b : p->positions[i].a)) {
        const double x = side ? p->positions[i].a : p->positions[i].b;
        other |= x < -0.01;
        n++;
        i += (size_t)by; /* below 0: beyond n */
    }
    for (size_t k = 0; other && k < n; k++)
        padding[at + (size_t)by * k] = 1;
    return other ? n : 0;
}

static void find_padding(const struct ds_lp_pairs *p, unsigned char *padding,
                         struct ds_lp_cause *out, size_t *n)
{
    size_t found[2] = {0, 0};
    for (size_t i = 0; i < p->n; i++) {
        const int first = i == 0 || p->positions[i - 1].sequence != p->positions[i].sequence;
        const int last = i + 1 == p->n || p->positions[i + 1].sequence != p->positions[i].sequence;
        for (int side = 0; side < 2; side++) {
            found[side] += first && !padding[i] ? zero_run(p, i, 1, side, padding) : 0;
            found[side] += last && !padding[i] ? zero_run(p, i, -1, side, padding) : 0;
        }
    }
    const int side = found[1] >= found[0];
    if (found[side] >= 3)
        ds_lp_add(out, n, (struct ds_lp_cause){DS_LP_PADDING, side, 0, 0, found[side], p->n});
}

/* ---- one ratio among the alternatives ------------------------------------------------------------- */

struct ratio {
    double xx, xy, yy; /* of differences to the best one: x on A, y on B */
    size_t pairs, positions;
};

/* unseen: only of tokens that did not come before, which no penalty moves. */
static struct ratio find_ratio(const struct ds_lp_pairs *p, const unsigned char *padding,
                               int unseen)
{
    struct ratio r = {0, 0, 0, 0, 0};
    for (size_t k = 0; k < p->n; k++) {
        const struct ds_lp_position *q = &p->positions[k];
        const struct ds_lp_alternative *best = padding[k] ? NULL : ds_lp_best(p, q, unseen);
        const size_t before = r.pairs;
        for (size_t i = q->first; best && i < q->first + q->n; i++) {
            const struct ds_lp_alternative *x = &p->alternatives[i];
            if (x == best || !ds_lp_usable(x) || (unseen && x->seen))
                continue;
            const double dx = x->a - best->a, dy = x->b - best->b;
            r.xx += dx * dx;
            r.xy += dx * dy;
            r.yy += dy * dy;
            r.pairs++;
        }
        r.positions += r.pairs > before;
    }
    return r;
}

static int is_enough(const struct ratio *r)
{
    return r->positions >= FEW_POSITIONS && r->pairs >= 2 * FEW_POSITIONS && r->xx > 0 && r->xy > 0;
}

/* What B's differences are A's times; 1: no such ratio. */
static double find_temperature(const struct ds_lp_pairs *p, const unsigned char *padding,
                               struct ds_lp_cause *out, size_t *n)
{
    struct ratio r = find_ratio(p, padding, 1);
    if (!is_enough(&r))
        r = find_ratio(p, padding, 0);
    if (!is_enough(&r))
        return 1;
    const double slope = r.xy / r.xx, before = r.yy - 2 * r.xy + r.xx, after = r.yy - slope * r.xy;
    if (!(fabs(slope - 1) > 0.005) || !(after <= 0.1 * before))
        return 1;
    struct ds_lp_cause c = {DS_LP_TEMPERATURE, 1, 1 / slope, 0, r.pairs, r.pairs};
    ds_lp_add(out, n, c);
    out[*n - 1].share = 1 - after / before; /* of the squared differences */
    return slope;
}

/* ---- processed: filters and penalties ------------------------------------------------------------- */

/* Whether a side's lists are as long everywhere, so that a number k was listed, not a share of probability. */
static int same_length(const struct ds_lp_pairs *p, int side)
{
    size_t least = (size_t)-1, most = 0;
    for (size_t k = 0; k < p->n; k++) {
        const size_t n = side ? p->positions[k].listed_b : p->positions[k].listed_a;
        least = n && n < least ? n : least;
        most = n > most ? n : most;
    }
    return least == most;
}

/* Positions at which the other side's list leaves something over, and those of them where this side's does not. */
static void count_sums(const struct ds_lp_pairs *p, int side, size_t *open, size_t *closed)
{
    *open = *closed = 0;
    for (size_t k = 0; k < p->n; k++) {
        const struct ds_lp_position *q = &p->positions[k];
        const double here = side ? q->sum_b : q->sum_a, there = side ? q->sum_a : q->sum_b;
        if (!q->listed_a || !q->listed_b || !(1 - there > 0.01))
            continue;
        ++*open;
        *closed += fabs(1 - here) < 1e-3;
    }
}

/* Positions at which a side lists fewer than the other, and those of them where what it lists is all there is. */
static void count_short(const struct ds_lp_pairs *p, int side, size_t *fewer, size_t *closed)
{
    *fewer = *closed = 0;
    for (size_t k = 0; k < p->n; k++) {
        const struct ds_lp_position *q = &p->positions[k];
        const size_t here = side ? q->listed_b : q->listed_a,
                     there = side ? q->listed_a : q->listed_b;
        if (!here || here >= there)
            continue;
        ++*fewer;
        *closed += fabs(1 - (side ? q->sum_b : q->sum_a)) < 1e-3;
    }
}

struct masks {
    size_t listed[2], chosen[2], of; /* by side */
    double most[2];                  /* largest probability that the other side gives to one */
};

static void count_mask(double a, double b, size_t *masked, double *most)
{
    for (int side = 0; side < 2; side++) {
        const double here = side ? b : a, there = side ? a : b;
        if (!(here <= MASKED) || !(there > -50))
            continue;
        masked[side]++;
        most[side] = fmax(most[side], exp(there));
    }
}

static struct masks find_masks(const struct ds_lp_pairs *p)
{
    struct masks m = {{0, 0}, {0, 0}, 0, {0, 0}};
    for (size_t i = 0; i < p->n_alternatives; i++) {
        const struct ds_lp_alternative *x = &p->alternatives[i];
        m.of += !isnan(x->a) && !isnan(x->b);
        count_mask(x->a, x->b, m.listed, m.most);
    }
    for (size_t k = 0; k < p->n; k++) {
        const struct ds_lp_position *q = &p->positions[k];
        m.of += !isnan(q->a) && !isnan(q->b);
        count_mask(q->a, q->b, m.chosen, m.most);
    }
    return m;
}

/* Whether the k listed ones sum to 1 where the other side's leave something over. */
static int is_top_k(const struct ds_lp_pairs *p, int side, size_t *closed, size_t *open)
{
    count_sums(p, side, open, closed);
    return *open >= FEW_POSITIONS && *closed * 100 >= *open * 99 && same_length(p, side);
}

static void find_filter(const struct ds_lp_pairs *p, struct ds_lp_cause *out, size_t *n)
{
    const struct masks m = find_masks(p);
    for (int side = 1; side >= 0; side--) {
        const size_t masked = m.listed[side] + m.chosen[side];
        size_t open, closed, fewer, all;
        if (!m.listed[side] && is_top_k(p, side, &closed, &open))
            continue; /* it is told as that, also where a chosen token is not among the k */
        count_short(p, side, &fewer, &all);
        count_sums(p, side, &open, &closed);
        if (masked)
            ds_lp_add(out, n,
                      (struct ds_lp_cause){DS_LP_FILTER, side, m.most[side], 0, masked, m.of});
        else if (fewer >= FEW_POSITIONS && all * 100 >= fewer * 99)
            ds_lp_add(out, n, (struct ds_lp_cause){DS_LP_FILTER, side, 0, 0, all, fewer});
        else if (open >= FEW_POSITIONS && closed * 100 >= open * 99 && !same_length(p, side))
            ds_lp_add(out, n, (struct ds_lp_cause){DS_LP_FILTER, side, 0, 0, closed, open});
        else
            continue;
        return;
    }
}

/* Where a side is filtered, that its list sums to 1 says nothing more. */
static void find_top_k(const struct ds_lp_pairs *p, struct ds_lp_cause *out, size_t *n)
{
    for (size_t i = 0; i < *n; i++)
        if (out[i].kind == DS_LP_FILTER)
            return;
    for (int side = 1; side >= 0; side--) {
        size_t open, closed;
        if (!is_top_k(p, side, &closed, &open))
            continue;
        ds_lp_add(out, n, (struct ds_lp_cause){DS_LP_TOP_K, side, 0, 0, closed, open});
        return;
    }
}

/* The median of b - a over what did not come before: what a constant moves all by. NaN: fewer than three. */
static double middle_unseen(const struct ds_lp_pairs *p, const struct ds_lp_position *q,
                            double *space)
{
    size_t n = 0;
    for (size_t i = q->first; i < q->first + q->n; i++)
        if (ds_lp_usable(&p->alternatives[i]) && !p->alternatives[i].seen)
            space[n++] = p->alternatives[i].b - p->alternatives[i].a;
    if (n < 3)
        return (double)NAN;
    qsort(space, n, sizeof *space, ds_ascending);
    return space[n / 2];
}

struct penalty {
    size_t down, up, seen, stirred, unseen;
    double moved; /* sum over the seen ones */
};

static void count_moved(const struct ds_lp_pairs *p, const double *middle, double tol,
                        struct penalty *out)
{
    for (size_t k = 0; k < p->n; k++)
        for (size_t i = p->positions[k].first;
             !isnan(middle[k]) && i < p->positions[k].first + p->positions[k].n; i++) {
            const struct ds_lp_alternative *x = &p->alternatives[i];
            if (!ds_lp_usable(x))
                continue;
            const double e = x->b - x->a - middle[k];
            if (!x->seen) {
                out->unseen++;
                out->stirred += fabs(e) > tol;
                continue;
            }
            out->seen++;
            out->down += e < -tol;
            out->up += e > tol;
            out->moved += e;
        }
}

static int find_penalty(const struct ds_lp_pairs *p, struct ds_lp_cause *out, size_t *n,
                        struct ds_error *err)
{
    double *middle = ds_calloc(p->n + 1, sizeof *middle, "positions", err),
           *space = ds_calloc(p->n_alternatives + 1, sizeof *space, "alternatives", err);
    size_t n_errors = 0;
    if (!middle || !space) {
        free(middle);
        free(space);
        return -1;
    }
    for (size_t k = 0; k < p->n; k++)
        middle[k] = middle_unseen(p, &p->positions[k], space);
    for (size_t k = 0; k < p->n; k++)
        for (size_t i = p->positions[k].first;
             !isnan(middle[k]) && i < p->positions[k].first + p->positions[k].n; i++)
            if (ds_lp_usable(&p->alternatives[i]) && !p->alternatives[i].seen)
                space[n_errors++] = fabs(p->alternatives[i].b - p->alternatives[i].a - middle[k]);
    qsort(space, n_errors, sizeof *space, ds_ascending);
    struct penalty c = {0, 0, 0, 0, 0, 0};
    const double noise = n_errors ? space[n_errors / 2] : 0;
    count_moved(p, middle, fmax(5 * noise, 1e-3), &c);
    const size_t moved = c.down > c.up ? c.down : c.up;
    if (c.seen >= 8 && moved * 10 >= c.seen * 8 && c.stirred * 5 <= c.unseen)
        ds_lp_add(out, n,
                  (struct ds_lp_cause){DS_LP_PENALTY, c.down >= c.up,
                                       fabs(c.moved) / (double)c.seen, 0, moved, c.seen});
    free(middle);
    free(space);
    return 0;
}

/* ---- all --------------------------------------------------------------------------------------------- */

/* B's log-probabilities as they would be at A's temperature, but for a constant at every position: the rules that
 * follow look at differences. */
static int at_one_temperature(const struct ds_lp_pairs *p, double slope, struct ds_lp_pairs *out,
                              struct ds_error *err)
{
    *out = *p;
    out->alternatives = ds_calloc(p->n_alternatives, sizeof *p->alternatives, "alternatives", err);
    if (!out->alternatives)
        return -1;
    for (size_t i = 0; i < p->n_alternatives; i++) {
        struct ds_lp_alternative *x = &out->alternatives[i];
        *x = p->alternatives[i];
        x->b = ds_lp_usable(x) ? x->b / slope : x->b;
    }
    return 0;
}

int ds_lp_causes(const struct ds_lp_pairs *p, struct ds_lp_cause *out, size_t *n,
                 struct ds_error *err)
{
    unsigned char *padding = ds_calloc(p->n + 1, 1, "positions", err);
    struct ds_lp_pairs even;
    *n = 0;
    if (!padding)
        return -1;
    find_padding(p, padding, out, n);
    const double slope = find_temperature(p, padding, out, n);
    if (at_one_temperature(p, slope, &even, err) != 0) {
        free(padding);
        return -1;
    }
    find_filter(p, out, n);
    const size_t before = *n;
    int rc = find_penalty(&even, out, n, err);
    const int penalty = *n > before;
    find_top_k(p, out, n);
    ds_lp_find_coarse_head(p, slope, penalty, out, n);
    if (rc == 0)
        rc = ds_lp_find_weights(&even, padding, penalty, out, n, err);
    free(even.alternatives);
    free(padding);
    return rc;
}
