/* structure_rope.c: what a rotation did, read from its input and its output. No table is needed: the
 * angle of each pair follows from the two values before and after. Owns the hypotheses pairing,
 * direction, position and frequency. */
#include "dumps/structure_rope.h"
#include "dumps/profile.h"

#include "base/dtype.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_DISTANCE = 64 };

static const char *const pairing_names[PAIRINGS] = {"the two halves of a head",
                                                    "neighbouring channels"};

uint32_t structure_rotated(const struct ds_structure_site *s)
{
    return s->rope_dim && s->rope_dim <= s->head_dim ? s->rope_dim : s->head_dim;
}

static void pair_at(const struct ds_structure_site *s, int pairing, uint32_t head, uint32_t pair,
                    uint32_t *a, uint32_t *b)
{
    uint32_t half = structure_rotated(s) / 2, at = head * s->head_dim;
    *a = at + (pairing == BY_HALVES ? pair : 2 * pair);
    *b = at + (pairing == BY_HALVES ? pair + half : 2 * pair + 1);
}

/* The rotation that turns x into y, each pair's over all heads: the best in the sense of least
 * squares. */
void structure_read_turn(const struct ds_structure_site *s, int pairing, const float *x,
                         const float *y, struct turn *out)
{
    for (uint32_t p = 0; p < structure_rotated(s) / 2; p++) {
        double along = 0, across = 0;
        for (uint32_t h = 0; h < s->width / s->head_dim; h++) {
            uint32_t a, b;
            pair_at(s, pairing, h, p, &a, &b);
            along += (double)x[a] * (double)y[a] + (double)x[b] * (double)y[b];
            across += (double)x[a] * (double)y[b] - (double)x[b] * (double)y[a];
        }
        /* Sums of products of floats: their squares stay far inside a double's range. */
        double size = sqrt(along * along + across * across);
        out->cosine[p] = size > 0 ? along / size : 1;
        out->sine[p] = size > 0 ? across / size : 0;
    }
}

void structure_turn_row(const struct ds_structure_site *s, int pairing, const float *x,
                        const struct turn *turn, float *y)
{
    memcpy(y, x, s->width * sizeof *y);
    for (uint32_t h = 0; h < s->width / s->head_dim; h++)
        for (uint32_t p = 0; p < structure_rotated(s) / 2; p++) {
            uint32_t a, b;
            pair_at(s, pairing, h, p, &a, &b);
            y[a] = (float)((double)x[a] * turn->cosine[p] - (double)x[b] * turn->sine[p]);
            y[b] = (float)((double)x[a] * turn->sine[p] + (double)x[b] * turn->cosine[p]);
        }
}

/* Whether the reference is a rotation of its input with this pairing. */
static int reference_turns(const struct task *t, int pairing)
{
    struct turn turn;
    uint64_t n = 0, good = 0;
    for (size_t r = 0; r < t->n_rows; r++) {
        const struct ds_structure_row *row = &t->rows[r];
        if (!row->input || !t->off_in_row[r])
            continue;
        structure_read_turn(t->s, pairing, row->input, row->ref, &turn);
        structure_turn_row(t->s, pairing, row->input, &turn, t->guess);
        for (uint32_t i = 0; i < t->s->width; i++)
            good += fabs((double)t->guess[i] - (double)row->ref[i]) <=
                    2 * ds_structure_slack(t->s, row->ref[i], row->ref[i], t->rms[r]);
        n += t->s->width;
    }
    return n && good * 100 >= n * 97;
}

struct how {
    int from, to;    /* pairing of the reference, and of this side */
    int backwards;   /* the angle's sign is turned */
    int own;         /* angles as read from this side, not the reference's */
    int nothing;     /* not rotated at all */
    int exchanged;   /* sines stand for cosines, and cosines for sines */
    double distance; /* positions that this side is away; rows of another one by `round` */
    int round;       /* 0, or enum ds_dtype that positions are rounded to */
    int coarse;      /* the same of frequencies */
    int angle;       /* the same of angles */
    int bits;        /* positions are whole numbers of so many bits, with a sign; 0: they are not */
    int table;       /* the same of sines and cosines */
    int input;       /* the same of what is rotated */
    double base;
};

static double rounded_to(int dtype, double x)
{
    return dtype == DS_BF16 ? (double)ds_bf16_value(ds_bf16_round((float)x))
                            : (double)ds_f16_value(ds_f16_round((float)x));
}

/* A position that has so many bits, the highest a sign. */
static double kept_in(int bits, int32_t position)
{
    const int32_t half = INT32_C(1) << (bits - 1);
    return (double)((position + half) % (2 * half) - half);
}

/* By how much further this side turns a pair of a row at that position. */
static double turned_on(const struct how *h, int32_t position, double frequency)
{
    if (h->angle)
        return rounded_to(h->angle, position * frequency) - position * frequency;
    if (h->bits)
        return (kept_in(h->bits, position) - position) * frequency;
    if (h->coarse)
        return position * (rounded_to(h->coarse, frequency) - frequency);
    return (h->round ? rounded_to(h->round, position) - position : h->distance) * frequency;
}

/* The same of an input that was rounded. */
static void turn_rounded(const struct task *t, const struct ds_structure_row *row,
                         const struct turn *turn, const struct how *h)
{
    for (uint32_t i = 0; i < t->s->width; i++)
        t->sorted[i] = rounded_to(h->input, (double)row->input[i]);
    for (uint32_t head = 0; head < t->s->width / t->s->head_dim; head++)
        for (uint32_t p = 0; p < structure_rotated(t->s) / 2; p++) {
            uint32_t a, b;
            pair_at(t->s, h->to, head, p, &a, &b);
            t->guess[a] = (float)(t->sorted[a] * turn->cosine[p] - t->sorted[b] * turn->sine[p]);
            t->guess[b] = (float)(t->sorted[a] * turn->sine[p] + t->sorted[b] * turn->cosine[p]);
        }
}

static int predict_turn(const struct task *t, size_t r, const void *how)
{
    const struct how *h = how;
    const struct ds_structure_row *row = &t->rows[r];
    struct turn turn;
    if (!row->input)
        return -1;
    if (h->nothing) {
        memcpy(t->guess, row->input, t->s->width * sizeof *t->guess);
        return 1;
    }
    structure_read_turn(t->s, h->own ? h->to : h->from, row->input, h->own ? row->mine : row->ref,
                        &turn);
    uint32_t dim = structure_rotated(t->s);
    for (uint32_t p = 0; p < dim / 2; p++) {
        double angle = h->base > 0 ? turned_on(h, row->position, pow(h->base, -2.0 * p / dim)) : 0;
        if (h->exchanged) {
            const double was = turn.cosine[p];
            turn.cosine[p] = turn.sine[p];
            turn.sine[p] = was;
        }
        double c = turn.cosine[p], s = h->backwards ? -turn.sine[p] : turn.sine[p];
        turn.cosine[p] = c * cos(angle) - s * sin(angle);
        turn.sine[p] = s * cos(angle) + c * sin(angle);
        if (h->table) {
            turn.cosine[p] = rounded_to(h->table, turn.cosine[p]);
            turn.sine[p] = rounded_to(h->table, turn.sine[p]);
        }
    }
    structure_turn_row(t->s, h->to, row->input, &turn, t->guess);
    if (h->input)
        turn_rounded(t, row, &turn, h);
    return 1;
}

static void try_tables(struct task *t, int pairing)
{
    static const int dtypes[] = {DS_F16, DS_BF16};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        struct how how = {.from = pairing, .to = pairing, .table = dtypes[i]};
        t->best->precision |=
            claim(t, explains(t, predict_turn, &how), 0, "sines and cosines are rounded to %s",
                  ds_dtype_name(dtypes[i]));
    }
}

static void try_positions(struct task *t, int pairing)
{
    if (!(t->s->rope_base > 0))
        return;
    static const struct {
        int dtype;
        const char *text;
    } rounds[] = {{DS_F16, "f16"}, {DS_BF16, "bf16"}};
    for (int d = -MOST_DISTANCE; d <= MOST_DISTANCE; d++) {
        struct how how = {.from = pairing, .to = pairing, .distance = d, .base = t->s->rope_base};
        double share = d ? explains(t, predict_turn, &how) : 0;
        if (share > 0 && !holds_beside(t, predict_turn, &how, t->s->head_dim))
            continue;
        claim(t, share, 0, "rotated as if %d position%s %s", d < 0 ? -d : d,
              d == 1 || d == -1 ? "" : "s", d < 0 ? "earlier" : "later");
    }
    for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++) {
        struct how how = {
            .from = pairing, .to = pairing, .round = rounds[i].dtype, .base = t->s->rope_base};
        claim(t, explains(t, predict_turn, &how), 0, "positions were rounded to %s",
              rounds[i].text);
        how.round = 0;
        how.coarse = rounds[i].dtype;
        claim(t, explains(t, predict_turn, &how), 0,
              "frequencies were rounded to %s: the angle's error grows with the position",
              rounds[i].text);
        how.coarse = 0;
        how.angle = rounds[i].dtype;
        t->best->precision |=
            claim(t, explains(t, predict_turn, &how), 0,
                  "angles (position times frequency) are rounded to %s", rounds[i].text);
    }
    for (int bits = 8; bits <= 16; bits *= 2) {
        const struct how how = {
            .from = pairing, .to = pairing, .bits = bits, .base = t->s->rope_base};
        claim(t, explains(t, predict_turn, &how), 0,
              "positions have %d bits and a sign: from %d on they are negative", bits - 1,
              1 << (bits - 1));
    }
}

/* Of how many rows the errors of the angles were seen, and, pair by pair, between what they lie when
 * divided by the position. */
struct growth {
    uint32_t rows[MOST_PAIRS];
    double low[MOST_PAIRS], high[MOST_PAIRS];
};

static void add_growth(struct growth *g, uint32_t pair, double error, int32_t position)
{
    double x = remainder(error, 2 * acos(-1.0)) / position;
    g->low[pair] = g->rows[pair] ? fmin(g->low[pair], x) : x;
    g->high[pair] = g->rows[pair] ? fmax(g->high[pair], x) : x;
    g->rows[pair]++;
}

/* Whether every pair's error grows with the position: another frequency. */
static int grows(const struct growth *g, uint32_t n)
{
    uint32_t seen = 0;
    for (uint32_t p = 0; p < n; p++) {
        double most = fmax(fabs(g->low[p]), fabs(g->high[p]));
        if (g->rows[p] < 2)
            continue;
        if (!(g->high[p] - g->low[p] <= 0.2 * most))
            return 0;
        seen++;
    }
    return seen > 0;
}

/* This side is a rotation, by other angles: how they relate to the reference's, pair by pair, in
 * rows where neither has gone half way round. */
static void tell_angles(struct task *t, int pairing, double explained)
{
    double low = INFINITY, high = -INFINITY;
    struct growth growth = {.rows = {0}};
    uint32_t first = UINT32_MAX, last = 0, n = structure_rotated(t->s) / 2;
    for (size_t r = 0; r < t->n_rows; r++) {
        struct turn mine, ref;
        if (!t->rows[r].input || !t->off_in_row[r])
            continue;
        structure_read_turn(t->s, pairing, t->rows[r].input, t->rows[r].mine, &mine);
        structure_read_turn(t->s, pairing, t->rows[r].input, t->rows[r].ref, &ref);
        for (uint32_t p = 0; p < n; p++) {
            double a = atan2(mine.sine[p], mine.cosine[p]), b = atan2(ref.sine[p], ref.cosine[p]);
            if (!(fabs(a - b) > 4 * t->s->order + 1e-5))
                continue;
            first = p < first ? p : first;
            last = p > last ? p : last;
            /* where it is well above what can be read */
            if (t->rows[r].position > 0 && fabs(a - b) > 10 * (4 * t->s->order + 1e-5))
                add_growth(&growth, p, a - b, t->rows[r].position);
            double expected = t->s->rope_base > 0
                                  ? t->rows[r].position * pow(t->s->rope_base, -2.0 * p / (2.0 * n))
                                  : (double)INFINITY;
            if (!(expected < 3) || !(fabs(b) > 1e-4))
                continue;
            low = fmin(low, a / b);
            high = fmax(high, a / b);
        }
    }
    if (first == UINT32_MAX)
        return;
    /* a ratio that is one number, and not 1 */
    if (low <= high && high - low <= 0.02 * fabs(high) && high - low < 0.5 * fabs(low + high - 2))
        claim(t, explained, 0, "rotated by %.4g times the angle in frequencies %u to %u of %u",
              0.5 * (low + high), first, last, n);
    else
        claim(t, explained, 0, "rotated by other angles in frequencies %u to %u of %u%s", first,
              last, n, grows(&growth, n) ? ": their error grows with the position" : "");
}

/* Rows that are each as if at another position, not all as far away. */
static int predict_own_distance(const struct task *t, size_t r, const void *how)
{
    struct how h = *(const struct how *)how;
    if (!t->rows[r].input)
        return -1;
    for (int d = 0; d <= 2 * MOST_DISTANCE; d++) {
        uint32_t off = 0, back = 0;
        h.distance = d % 2 ? -(d + 1) / 2 : d / 2;
        if (predict_turn(t, r, &h) != 1)
            return 0;
        for (uint32_t i = 0; i < t->s->width; i++) {
            off += (uint32_t)is_off(t, r, i);
            back += is_off(t, r, i) && fits(t, r, i, (double)t->guess[i]);
        }
        if (off && 20 * back >= 19 * off)
            return (int)h.distance + 2 * MOST_DISTANCE; /* never 0 */
    }
    return 0;
}

static void try_distances(struct task *t, int pairing)
{
    const struct how how = {.from = pairing, .to = pairing, .base = t->s->rope_base};
    int low = INT_MAX, high = INT_MIN, first = INT_MAX, last = INT_MIN, rows = 0;
    double least = INFINITY, most = -INFINITY; /* distance over position */
    if (!(t->s->rope_base > 0))
        return;
    for (size_t r = 0; r < t->n_rows; r++) {
        const int position = t->rows[r].position,
                  d = t->off_in_row[r] ? predict_own_distance(t, r, &how) : 0;
        if (!t->off_in_row[r])
            continue;
        if (d <= 0)
            return;
        const double share_of_own =
            position > 0 ? (double)(d - 2 * MOST_DISTANCE) / position : (double)INFINITY;
        least = fmin(least, share_of_own);
        most = fmax(most, share_of_own);
        rows++;
        low = d - 2 * MOST_DISTANCE < low ? d - 2 * MOST_DISTANCE : low;
        high = d - 2 * MOST_DISTANCE > high ? d - 2 * MOST_DISTANCE : high;
        first = position < first ? position : first;
        last = position > last ? position : last;
    }
    const double share = explains(t, predict_own_distance, &how);
    if (!holds_beside(t, predict_own_distance, &how, t->s->head_dim))
        return;
    if (rows > 2 && most - least < 1e-9 && most != -1)
        claim(t, share, 0, "positions %d to %d are rotated by %.4g times their angle", first, last,
              1 + most);
    if (high < 0)
        claim(t, share, 0, "positions %d to %d are rotated as if %d to %d positions earlier", first,
              last, -high, -low);
    else if (low > 0)
        claim(t, share, 0, "positions %d to %d are rotated as if %d to %d positions later", first,
              last, low, high);
    else
        claim(t, share, 0,
              "positions %d to %d are rotated as if at others, from %d earlier to %d later", first,
              last, -low, high);
}

/* ": heads 1-3", where some heads are as they should be. */
static const char *idle_heads(const struct task *t, char *text, size_t size)
{
    char which[DS_PROFILE_TEXT];
    const uint32_t off = structure_heads_off(t, which);
    text[0] = '\0';
    if (off != UINT32_MAX && off != t->s->width / t->s->head_dim)
        snprintf(text, size, ": head%s %s", off == 1 ? "" : "s", which);
    return text;
}

/* Says of which frequencies it is true that nothing is rotated, if this side does rotate others. */
static void try_idle(struct task *t, int pairing)
{
    char text[DS_PROFILE_TEXT + 16];
    const struct how idle = {.nothing = 1};
    const double share = explains(t, predict_turn, &idle);
    const uint32_t n = structure_rotated(t->s) / 2;
    uint32_t first = UINT32_MAX, last = 0, turned = 0;
    for (uint32_t p = 0; p < n; p++) {
        uint32_t off = 0, moved = 0;
        for (size_t r = 0; r < t->n_rows; r++)
            for (uint32_t h = 0; t->rows[r].input && h < t->s->width / t->s->head_dim; h++) {
                uint32_t a, b;
                pair_at(t->s, pairing, h, p, &a, &b);
                off += (uint32_t)(is_off(t, r, a) + is_off(t, r, b));
                moved += !fits(t, r, a, (double)t->rows[r].input[a]);
            }
        first = off && p < first ? p : first;
        last = off ? p : last;
        turned += !off && moved;
    }
    if (turned && first != UINT32_MAX)
        claim(t, share, 0, "not rotated in frequencies %u to %u of %u", first, last, n);
    else
        claim(t, share, 0, "not rotated at all%s", idle_heads(t, text, sizeof text));
}

/* Inputs of fewer bits. */
static void try_inputs(struct task *t, int pairing)
{
    static const int dtypes[] = {DS_BF16, DS_F16};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        struct how how = {.from = pairing, .to = pairing, .input = dtypes[i]};
        t->best->precision |= claim(t, explains(t, predict_turn, &how), 0,
                                    "its input is rounded to %s", ds_dtype_name(dtypes[i]));
    }
}

void try_rope(struct task *t)
{
    uint32_t dim = structure_rotated(t->s);
    if (t->s->head_dim == 0 || dim < 4 || dim % 2 || dim / 2 > MOST_PAIRS)
        return;
    for (int from = 0; from < PAIRINGS; from++) {
        if (!reference_turns(t, from))
            continue;
        try_idle(t, from);
        struct how same = {.from = from, .to = from, .backwards = 1};
        claim(t, explains(t, predict_turn, &same), 0, "rotated the other way round");
        struct how exchanged = {.from = from, .to = from, .exchanged = 1};
        claim(t, explains(t, predict_turn, &exchanged), 0, "sines and cosines are exchanged");
        try_positions(t, from);
        try_tables(t, from);
        try_inputs(t, from);
        struct how other = {.from = from, .to = 1 - from};
        claim(t, explains(t, predict_turn, &other), 0, "RoPE pairs %s instead of %s",
              pairing_names[1 - from], pairing_names[from]);
        struct how own = {.from = from, .to = from, .own = 1};
        if (!t->best->found)
            try_distances(t, from);
        if (!t->best->found)
            try_frequencies(t, from);
        if (!t->best->found)
            tell_angles(t, from, explains(t, predict_turn, &own));
        return;
    }
}
