/* structure.c: see structure.h. Owns the frame (what is off, what counts as explained) and the
 * hypotheses about whole rows: signs, permutations, shifts, other rows. */
#include "dumps/structure_internal.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENOUGH 0.95 /* share of the off elements that a claim must bring back */
enum { LEAST_OFF = STRUCTURE_LEAST_OFF, MOST_SHIFT = 8, MOST_HEADS = 256 };

/* ---- the frame ------------------------------------------------------------------------------- */

int fits(const struct task *t, size_t r, uint32_t i, double value)
{
    const struct ds_structure_row *row = &t->rows[r];
    return fabs(value - (double)row->mine[i]) <=
           ds_structure_slack(t->s, (float)value, row->mine[i], t->rms[r]);
}

int is_off(const struct task *t, size_t r, uint32_t i)
{
    return t->is_off[r * t->s->width + i];
}

uint32_t structure_heads_off(const struct task *t, char which[DS_PROFILE_TEXT])
{
    const uint32_t d = t->s->head_dim, heads = t->s->width / d;
    uint8_t state[MOST_HEADS];
    uint32_t off = 0;
    if (heads > MOST_HEADS)
        return UINT32_MAX;
    for (uint32_t h = 0; h < heads; h++) {
        uint32_t n = 0;
        for (size_t r = 0; r < t->n_rows; r++)
            for (uint32_t c = 0; c < d; c++)
                n += (uint32_t)is_off(t, r, h * d + c);
        state[h] = n ? DS_MEMBER_DIFFERS : DS_MEMBER_SAME;
        off += n != 0;
    }
    ds_profile_set(state, NULL, heads, 0, which);
    return off;
}

static int find_off(const struct task *t, size_t r, uint32_t i)
{
    const struct ds_structure_row *row = &t->rows[r];
    if (!isfinite(row->ref[i]))
        return 0;
    return !(fabs((double)row->mine[i] - (double)row->ref[i]) <=
             ds_structure_slack(t->s, row->ref[i], row->mine[i], t->rms[r]));
}

double explains(const struct task *t, predict_fn predict, const void *how)
{
    uint64_t said = 0, back = 0, unsaid = 0;
    for (size_t r = 0; r < t->n_rows; r++) {
        if (!t->off_in_row[r])
            continue;
        int known = predict(t, r, how);
        for (uint32_t i = 0; i < t->s->width; i++) {
            if (!is_off(t, r, i))
                continue;
            if (known < 0 || (known && isnan(t->guess[i]))) {
                unsaid++;
                continue;
            }
            said++;
            back += known && fits(t, r, i, (double)t->guess[i]);
        }
        if (2 * back < said)
            return 0; /* it will not come to anything */
    }
    return said >= 2 * unsaid && said ? (double)back / (double)said : 0;
}

int holds_beside(const struct task *t, predict_fn predict, const void *how, uint32_t unit)
{
    uint64_t said = 0, good = 0;
    for (size_t r = 0; r < t->n_rows; r++) {
        if (!t->off_in_row[r] || predict(t, r, how) <= 0)
            continue;
        for (uint32_t from = 0; from < t->s->width; from += unit) {
            uint32_t off = 0, fit = 0;
            for (uint32_t i = from; i < from + unit; i++) {
                off += (uint32_t)is_off(t, r, i);
                fit += !is_off(t, r, i) && fits(t, r, i, (double)t->guess[i]);
            }
            said += off ? unit - off : 0;
            good += off ? fit : 0;
        }
    }
    return good * 10 >= said * 9;
}

int claim(struct task *t, double explained, double ratio, const char *fmt, ...)
{
    if (explained < ENOUGH || t->off < t->least ||
        (t->best->found && explained <= t->best->explained + 0.01))
        return 0;
    va_list ap;
    t->best->found = 1;
    t->best->explained = explained;
    t->best->ratio = ratio;
    t->best->scale = 0;
    t->best->blank = 0;
    t->best->precision = t->best->algorithm = 0;
    va_start(ap, fmt);
    vsnprintf(t->best->text, sizeof t->best->text, fmt, ap);
    va_end(ap);
    return 1;
}

int structure_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- permutations ---------------------------------------------------------------------------- */

enum order {
    NEGATED,
    ZERO_TIMES,
    ZERO,
    ZERO_SOMEWHERE,
    UNIFORM,
    HALVES,
    FIRST_HALF,
    SECOND_HALF,
    HEAD_HALVES,
    TO_PAIRS,
    FROM_PAIRS,
    REVERSED,
    TURNED, /* heads and channels transposed */
    TURNED_BACK
};

static const struct {
    int order, heads;
    const char *text;
} orders[] = {
    {NEGATED, 0, "the sign is turned"},
    {ZERO_TIMES, 0,
     "values are zero and have the signs that they should: multiplied by 0 (a scale that "
     "underflowed, or 1 / "
     "infinity), not cleared"},
    {ZERO, 0, "values are zero: not written, or cleared"},
    {ZERO_SOMEWHERE, 0,
     "values are zero, now on this side, now on the reference's: not written, or cleared"},
    {UNIFORM, 0, "all elements of a row have one value"},
    {HALVES, 0, "the two halves of the row are swapped"},
    {FIRST_HALF, 0, "the second half of the row repeats the first"},
    {SECOND_HALF, 0, "the first half of the row repeats the second"},
    {HEAD_HALVES, 1, "the two halves of each head are swapped"},
    {TO_PAIRS, 1, "channels are interleaved where the reference has two halves of a head"},
    {FROM_PAIRS, 1, "channels are in two halves of a head where the reference interleaves them"},
    {REVERSED, 0, "the row is in reverse order"},
    {TURNED, 1, "heads and channels are transposed"},
    {TURNED_BACK, 1, "heads and channels are transposed"},
};

/* Which element of the reference stands at i. */
static uint32_t source_of(const struct ds_structure_site *s, int order, uint32_t i)
{
    uint32_t n = s->width, d = s->head_dim ? s->head_dim : n, c = i % d, head = i - c;
    switch (order) {
    case HALVES:
        return (i + n / 2) % n;
    case FIRST_HALF:
        return i % (n / 2);
    case SECOND_HALF:
        return n / 2 + i % (n / 2);
    case HEAD_HALVES:
        return head + (c + d / 2) % d;
    case TO_PAIRS:
        return head + c / 2 + c % 2 * (d / 2);
    case FROM_PAIRS:
        return c < d / 2 ? head + 2 * c : head + 2 * (c - d / 2) + 1;
    case REVERSED:
        return n - 1 - i;
    case TURNED:
        return c * (n / d) + i / d;
    case TURNED_BACK:
        return i % (n / d) * d + i / (n / d);
    default:
        return i;
    }
}

static int predict_order(const struct task *t, size_t r, const void *how)
{
    int order = *(const int *)how;
    for (uint32_t i = 0; i < t->s->width; i++) {
        float x = t->rows[r].ref[source_of(t->s, order, i)];
        t->guess[i] = order == NEGATED          ? -x
                      : order <= ZERO           ? 0.0f
                      : order == ZERO_SOMEWHERE ? (x == 0 ? t->rows[r].mine[i] : 0.0f)
                      : order == UNIFORM        ? t->rows[r].mine[0]
                                                : x;
    }
    return 1;
}

/* Those of halves and heads say where every element of a row, or of a head, comes from. */
static int moves_all(const struct task *t, int order)
{
    const int by_head = order == HEAD_HALVES || order == TO_PAIRS || order == FROM_PAIRS;
    return order < HALVES ||
           holds_beside(t, predict_order, &order, by_head ? t->s->head_dim : t->s->width);
}

/* Repeats that part have no right side: some values are missing here, some there. */
static int zero_on_both_sides(const struct task *t)
{
    int mine = 0, theirs = 0;
    for (size_t r = 0; r < t->n_rows; r++)
        for (uint32_t i = 0; i < t->s->width && !(mine && theirs); i++)
            if (is_off(t, r, i)) {
                mine |= t->rows[r].mine[i] == 0;
                theirs |= t->rows[r].ref[i] == 0;
            }
    return mine && theirs;
}

/* Zeros that keep a sign were made by a product: memory that is cleared, or was never written, has +0. */
static int zeros_have_signs(const struct task *t)
{
    uint64_t negative = 0;
    for (size_t r = 0; r < t->n_rows; r++)
        for (uint32_t i = 0; i < t->s->width; i++) {
            const float x = t->rows[r].mine[i], ref = t->rows[r].ref[i];
            if (!is_off(t, r, i) || x != 0)
                continue;
            if (!signbit(x) != !signbit(ref))
                return 0;
            negative += signbit(x) != 0;
        }
    return negative >= STRUCTURE_LEAST_OFF;
}

static int predict_shift(const struct task *t, size_t r, const void *how)
{
    int64_t shift = *(const int64_t *)how, n = t->s->width;
    for (int64_t i = 0; i < n; i++) /* what came in at the end is not known */
        t->guess[i] = i - shift < 0 || i - shift >= n ? NAN : t->rows[r].ref[i - shift];
    return 1;
}

static void try_orders(struct task *t)
{
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        int even = t->s->head_dim % 2 == 0 && t->s->width % 2 == 0;
        if ((orders[i].heads && !t->s->head_dim) || (!even && orders[i].order >= HALVES))
            continue;
        if (orders[i].order == ZERO_SOMEWHERE && !zero_on_both_sides(t))
            continue;
        if (orders[i].order == ZERO_TIMES && !zeros_have_signs(t))
            continue;
        const double share = explains(t, predict_order, &orders[i].order);
        if (share >= ENOUGH && !moves_all(t, orders[i].order))
            continue;
        if (claim(t, share, 0, "%s", orders[i].text))
            t->best->blank = orders[i].order == ZERO || orders[i].order == ZERO_TIMES ||
                             orders[i].order == ZERO_SOMEWHERE || orders[i].order == UNIFORM;
    }
    for (int64_t shift = -MOST_SHIFT; shift <= MOST_SHIFT; shift++)
        if (shift && t->s->width >= 8 * MOST_SHIFT)
            claim(t, explains(t, predict_shift, &shift), 0,
                  "values stand %lld channel%s %s their place", (long long)llabs(shift),
                  llabs(shift) == 1 ? "" : "s", shift > 0 ? "after" : "before");
}

/* ---- heads ----------------------------------------------------------------------------------- */

static int head_holds(const struct task *t, size_t r, uint32_t head, uint32_t other)
{
    uint32_t d = t->s->head_dim;
    for (uint32_t c = 0; c < d; c++)
        if (!fits(t, r, head * d + c, (double)t->rows[r].ref[other * d + c]))
            return 0;
    return 1;
}

static int predict_heads(const struct task *t, size_t r, const void *how)
{
    const uint32_t *map = how, d = t->s->head_dim;
    for (uint32_t i = 0; i < t->s->width; i++)
        t->guess[i] = t->rows[r].ref[map[i / d] * d + i % d];
    return 1;
}

static void try_heads(struct task *t)
{
    uint32_t d = t->s->head_dim, map[MOST_HEADS], moved = 0;
    uint32_t heads = d ? t->s->width / d : 0;
    if (heads < 2 || heads > MOST_HEADS || d < 4)
        return;
    size_t r = 0;
    while (r < t->n_rows && t->off_in_row[r] < LEAST_OFF)
        r++;
    if (r == t->n_rows)
        return;
    char text[64] = "";
    size_t at = 0;
    for (uint32_t h = 0; h < heads; h++) {
        map[h] = h;
        for (uint32_t o = 0; o < heads && !head_holds(t, r, h, map[h]); o++)
            map[h] = head_holds(t, r, h, o) ? o : map[h];
        if (map[h] == h)
            continue;
        moved++;
        if (at < sizeof text)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%u in %u", at ? ", " : "",
                                   map[h], h);
    }
    if (moved)
        claim(t, explains(t, predict_heads, map), 0, "heads are mixed up: %s", text);
}

/* ---- other rows ------------------------------------------------------------------------------ */

static int row_holds(const struct task *t, size_t r, size_t other)
{
    uint32_t miss = 0;
    for (uint32_t i = 0; i < t->s->width; i++)
        miss += !fits(t, r, i, (double)t->rows[other].ref[i]);
    return miss * 20 <= t->s->width;
}

/* Each row is the reference's row at another position, always as far away. */
static int predict_row(const struct task *t, size_t r, const void *how)
{
    int32_t distance = *(const int32_t *)how;
    for (size_t o = 0; o < t->n_rows; o++)
        if (t->rows[o].position == t->rows[r].position + distance) {
            memcpy(t->guess, t->rows[o].ref, t->s->width * sizeof *t->guess);
            return 1;
        }
    return -1;
}

static void try_rows(struct task *t)
{
    for (size_t r = 0; r < t->n_rows; r++) {
        if (t->off_in_row[r] < LEAST_OFF)
            continue;
        for (size_t o = 0; o < t->n_rows; o++) {
            if (o == r || t->rows[o].position == t->rows[r].position || !row_holds(t, r, o))
                continue;
            int32_t distance = t->rows[o].position - t->rows[r].position;
            claim(t, explains(t, predict_row, &distance), 0,
                  "rows hold the values of the position %d %s", abs(distance),
                  distance < 0 ? "before" : "after");
            return;
        }
        return;
    }
}

/* ---- any order ------------------------------------------------------------------------------- */

/* The same values, bit for bit, in some other order. */
static void try_shuffle(struct task *t)
{
    size_t rows = 0, same = 0;
    double *other = t->sorted + t->s->width;
    for (size_t r = 0; r < t->n_rows; r++) {
        if (t->off_in_row[r] < LEAST_OFF)
            continue;
        for (uint32_t i = 0; i < t->s->width; i++) {
            t->sorted[i] = (double)t->rows[r].mine[i];
            other[i] = (double)t->rows[r].ref[i];
        }
        qsort(t->sorted, t->s->width, sizeof *t->sorted, structure_by_value);
        qsort(other, t->s->width, sizeof *other, structure_by_value);
        rows++;
        same += memcmp(t->sorted, other, t->s->width * sizeof *other) == 0;
    }
    if (rows)
        claim(t, (double)same / (double)rows, 0, "the same values stand in another order");
}

static double worst_of(const struct task *t, size_t r)
{
    double worst = 0;
    for (uint32_t i = 0; i < t->s->width; i++) {
        double d = fabs((double)t->rows[r].mine[i] - (double)t->rows[r].ref[i]);
        worst = is_off(t, r, i) && d > worst ? d : worst;
    }
    return t->rms[r] > 0 ? worst / t->rms[r] : worst > 0 ? (double)INFINITY : 0;
}

void structure_look(struct task *t)
{
    t->off = 0;
    for (size_t r = 0; r < t->n_rows; r++) {
        const float *ref = t->rows[r].ref;
        double sum = 0;
        for (uint32_t i = 0; i < t->s->width; i++)
            sum += isfinite(ref[i]) ? (double)ref[i] * (double)ref[i] : 0;
        t->rms[r] = sqrt(sum / t->s->width);
        t->off_in_row[r] = 0;
        for (uint32_t i = 0; i < t->s->width; i++)
            t->off_in_row[r] += t->is_off[r * t->s->width + i] = (uint8_t)find_off(t, r, i);
        t->off += t->off_in_row[r];
    }
}

/* ---- all ------------------------------------------------------------------------------------- */

/* What may be so of a side, attention apart, which looks at both by itself. */
static int try_side(struct task *t, struct ds_error *err)
{
    const struct ds_structure_site *s = t->s;
    const struct ds_structure *out = t->best;
    int rc = 0;
    if (s->op == DS_STRUCTURE_ROPE)
        try_rope(t);
    if (s->op == DS_STRUCTURE_NORM) {
        try_mean(t);
        try_scale(t);
    }
    if (s->n_logits)
        try_router(t);
    if (s->gated)
        try_gate(t);
    else
        try_terms(t);
    if (!s->gated && !out->found)
        try_reductions(t);
    try_values(t);
    try_orders(t);
    try_numbers(t);
    try_heads(t);
    try_rows(t);
    if (!out->found && s->op == DS_STRUCTURE_NORM) {
        try_norm(t);
        try_cut_input(t);
    }
    if (!out->found)
        try_shifts(t);
    if (!out->found && s->gated)
        rc = try_activation(t, err);
    if (!out->found && !s->gated)
        try_other_factors(t);
    if (!out->found)
        rc = rc ? rc : try_moved(t, err);
    return rc;
}

/* Of this side; of the reference, where that is known to be at fault, or where nothing was found of this one. */
static int try_sides(struct task *t, struct ds_error *err)
{
    int right = 0, rc = 0;
    if (t->s->op == DS_STRUCTURE_ATTENTION)
        rc = try_attention(t, err);
    if (!t->best->found)
        rc = rc ? rc : structure_turned(t, 1, &right, try_side, err);
    if (right <= 0)
        rc = rc ? rc : try_side(t, err);
    if (!t->best->found && right == 0)
        rc = rc ? rc : structure_turned(t, 0, &right, try_side, err);
    if (!t->best->found)
        try_shuffle(t);
    if (!t->best->found && t->s->op == DS_STRUCTURE_ATTENTION)
        try_mixtures(t);
    if (!t->best->found)
        try_one_vector(t);
    return rc;
}

int ds_structure_find(const struct ds_structure_site *s, const struct ds_structure_row *rows,
                      size_t n_rows, struct ds_structure *out, struct ds_error *err)
{
    struct task t = {
        .s = s, .rows = rows, .n_rows = n_rows, .best = out, .least = STRUCTURE_LEAST_OFF};
    memset(out, 0, sizeof *out);
    t.rms = ds_calloc(n_rows, sizeof *t.rms, "structure", err);
    t.guess = ds_calloc(s->width, sizeof *t.guess, "structure", err);
    t.sorted = ds_calloc(2 * (size_t)s->width + n_rows, sizeof *t.sorted, "structure", err);
    t.off_in_row = ds_calloc(n_rows, sizeof *t.off_in_row, "structure", err);
    t.is_off = ds_calloc(n_rows, s->width, "structure", err);
    int rc = t.rms && t.guess && t.sorted && t.off_in_row && t.is_off ? 0 : -1;
    if (rc == 0)
        structure_look(&t);
    for (size_t r = 0; rc == 0 && r < n_rows; r++)
        out->worst = fmax(out->worst, worst_of(&t, r));
    out->of = (uint64_t)n_rows * s->width;
    out->off = t.off;
    measure_bits(s, rows, n_rows, out);
    if (rc == 0 && t.off >= LEAST_OFF)
        rc = try_sides(&t, err);
    if (rc == 0 && !out->found && t.off)
        try_few(&t);
    free(t.rms);
    free(t.guess);
    free(t.sorted);
    free(t.off_in_row);
    free(t.is_off);
    return rc;
}
