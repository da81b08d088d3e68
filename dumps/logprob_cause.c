/* logprob_cause.c: see logprob_cause.h. Owns what counts as evidence. Two systems that differ by rounding alone
 * must not be blamed: every rule asks for a pattern that noise of any size gives with a chance far below 1 %,
 * and for enough places to show it. */
#include "dumps/logprob_cause.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FEW_POSITIONS = 5, FEW_VALUES = 30 };
static const double MASKED = -1000; /* no probability is that small where the other side has one */

void ds_lp_pairs_free(struct ds_lp_pairs *p)
{
    free(p->positions);
    free(p->alternatives);
    memset(p, 0, sizeof *p);
}

const char *ds_lp_cause_name(int kind)
{
    static const char *const names[DS_LP_CAUSES] = {
        "masked-padding",     "temperature", "filtered", "penalty",
        "top-k-renormalised", "bf16-head",   "weights"};
    return names[kind];
}

static int usable(const struct ds_lp_alternative *x)
{
    return isfinite(x->a) && isfinite(x->b) && x->a > MASKED && x->b > MASKED;
}

static void add(struct ds_lp_cause *out, size_t *n, struct ds_lp_cause c)
{
    c.share = c.of ? (double)c.n / (double)c.of : 0;
    out[(*n)++] = c;
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
        add(out, n, (struct ds_lp_cause){DS_LP_PADDING, side, 0, 0, found[side], p->n});
}

/* ---- one ratio among the alternatives ------------------------------------------------------------- */

/* The usable alternative that A finds best; NULL: none. */
static const struct ds_lp_alternative *best_of(const struct ds_lp_pairs *p,
                                               const struct ds_lp_position *q)
{
    const struct ds_lp_alternative *best = NULL;
    for (size_t i = q->first; i < q->first + q->n; i++)
        if (usable(&p->alternatives[i]) && (!best || p->alternatives[i].a > best->a))
            best = &p->alternatives[i];
    return best;
}

struct ratio {
    double xx, xy, yy; /* of differences to the best one: x on A, y on B */
    size_t pairs, positions;
};

static struct ratio find_ratio(const struct ds_lp_pairs *p, const unsigned char *padding)
{
    struct ratio r = {0, 0, 0, 0, 0};
    for (size_t k = 0; k < p->n; k++) {
        const struct ds_lp_position *q = &p->positions[k];
        const struct ds_lp_alternative *best = padding[k] ? NULL : best_of(p, q);
        const size_t before = r.pairs;
        for (size_t i = q->first; best && i < q->first + q->n; i++) {
            const struct ds_lp_alternative *x = &p->alternatives[i];
            if (x == best || !usable(x))
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

static void find_temperature(const struct ds_lp_pairs *p, const unsigned char *padding,
                             struct ds_lp_cause *out, size_t *n)
{
    const struct ratio r = find_ratio(p, padding);
    if (r.positions < FEW_POSITIONS || r.pairs < 2 * FEW_POSITIONS || !(r.xx > 0) || !(r.xy > 0))
        return;
    const double slope = r.xy / r.xx, before = r.yy - 2 * r.xy + r.xx, after = r.yy - slope * r.xy;
    if (!(fabs(slope - 1) > 0.005) || !(after <= 0.1 * before))
        return;
    struct ds_lp_cause c = {DS_LP_TEMPERATURE, 1, 1 / slope, 0, r.pairs, r.pairs};
    add(out, n, c);
    out[*n - 1].share = 1 - after / before; /* of the squared differences */
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

static void find_filter(const struct ds_lp_pairs *p, struct ds_lp_cause *out, size_t *n)
{
    size_t masked[2] = {0, 0}, of = 0;
    double most[2] = {0, 0};
    for (size_t i = 0; i < p->n_alternatives; i++) {
        const struct ds_lp_alternative *x = &p->alternatives[i];
        if (isnan(x->a) || isnan(x->b))
            continue;
        of++;
        for (int side = 0; side < 2; side++) {
            const double here = side ? x->b : x->a, there = side ? x->a : x->b;
            if (!(here <= MASKED) || !(there > -50))
                continue;
            masked[side]++;
            most[side] = fmax(most[side], exp(there));
        }
    }
    for (int side = 1; side >= 0; side--) {
        size_t open, closed;
        count_sums(p, side, &open, &closed);
        if (masked[side])
            add(out, n, (struct ds_lp_cause){DS_LP_FILTER, side, most[side], 0, masked[side], of});
        else if (open >= FEW_POSITIONS && closed * 100 >= open * 99 && !same_length(p, side))
            add(out, n, (struct ds_lp_cause){DS_LP_FILTER, side, 0, 0, closed, open});
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
        count_sums(p, side, &open, &closed);
        if (open < FEW_POSITIONS || closed * 100 < open * 99 || !same_length(p, side))
            continue;
        add(out, n, (struct ds_lp_cause){DS_LP_TOP_K, side, 0, 0, closed, open});
        return;
    }
}

static int ascending(const void *pa, const void *pb)
{
    const double a = *(const double *)pa, b = *(const double *)pb;
    return a < b ? -1 : a > b;
}

/* The median of b - a over what did not come before: what a constant moves all by. NaN: fewer than three. */
static double middle_unseen(const struct ds_lp_pairs *p, const struct ds_lp_position *q,
                            double *space)
{
    size_t n = 0;
    for (size_t i = q->first; i < q->first + q->n; i++)
        if (usable(&p->alternatives[i]) && !p->alternatives[i].seen)
            space[n++] = p->alternatives[i].b - p->alternatives[i].a;
    if (n < 3)
        return (double)NAN;
    qsort(space, n, sizeof *space, ascending);
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
            if (!usable(x))
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
            if (usable(&p->alternatives[i]) && !p->alternatives[i].seen)
                space[n_errors++] = fabs(p->alternatives[i].b - p->alternatives[i].a - middle[k]);
    qsort(space, n_errors, sizeof *space, ascending);
    struct penalty c = {0, 0, 0, 0, 0, 0};
    const double noise = n_errors ? space[n_errors / 2] : 0;
    count_moved(p, middle, fmax(5 * noise, 1e-3), &c);
    const size_t moved = c.down > c.up ? c.down : c.up;
    if (c.seen >= 8 && moved * 10 >= c.seen * 8 && c.stirred * 5 <= c.unseen)
        add(out, n,
            (struct ds_lp_cause){DS_LP_PENALTY, c.down >= c.up, fabs(c.moved) / (double)c.seen, 0,
                                 moved, c.seen});
    free(middle);
    free(space);
    return 0;
}

/* ---- a coarse head -------------------------------------------------------------------------------- */

/* Of the differences between a position's best alternative and the others, those that are multiples of a step. */
static void count_on_grid(const struct ds_lp_pairs *p, int side, double step, size_t *on,
                          size_t *of)
{
    const double tol = fmin(2e-4, step / 16);
    *on = *of = 0;
    for (size_t k = 0; k < p->n; k++) {
        const struct ds_lp_position *q = &p->positions[k];
        const struct ds_lp_alternative *best = best_of(p, q);
        for (size_t i = q->first; best && i < q->first + q->n; i++) {
            const struct ds_lp_alternative *x = &p->alternatives[i];
            if (x == best || !usable(x))
                continue;
            const double d = side ? x->b - best->b : x->a - best->a;
            ++*of;
            *on += fabs(d - step * nearbyint(d / step)) <= tol;
        }
    }
}

static int is_bf16(double x)
{
    return isfinite(x) && !is_zero(x) && (ds_f32_bits((float)x) & 0xffffu) == 0 &&
           fabs((double)(float)x - x) <= 1e-6 * fabs(x);
}

/* Log-probabilities that are numbers of bf16 themselves. */
static void count_bf16(const struct ds_lp_pairs *p, int side, size_t *on, size_t *of)
{
    *on = *of = 0;
    for (size_t i = 0; i < p->n_alternatives; i++) {
        const double x = side ? p->alternatives[i].b : p->alternatives[i].a;
        if (!isfinite(x) || x <= MASKED || is_zero(x))
            continue;
        ++*of;
        *on += is_bf16(x);
    }
}

static void find_coarse_head(const struct ds_lp_pairs *p, struct ds_lp_cause *out, size_t *n)
{
    size_t on[2], of[2];
    for (int side = 0; side < 2; side++)
        count_bf16(p, side, &on[side], &of[side]);
    for (int side = 1; side >= 0; side--)
        if (of[side] >= FEW_VALUES && on[side] * 100 >= of[side] * 99 &&
            on[!side] * 2 < of[!side]) {
            add(out, n, (struct ds_lp_cause){DS_LP_COARSE_HEAD, side, 0, 0, on[side], of[side]});
            return;
        }
    for (int power = 2; power <= 9; power++) {
        const double step = ldexp(1, -power);
        for (int side = 0; side < 2; side++)
            count_on_grid(p, side, step, &on[side], &of[side]);
        for (int side = 1; side >= 0; side--)
            if (of[side] >= FEW_VALUES && on[side] * 100 >= of[side] * 95 &&
                on[!side] * 2 < of[!side]) {
                add(out, n,
                    (struct ds_lp_cause){DS_LP_COARSE_HEAD, side, step, 0, on[side], of[side]});
                return;
            }
    }
}

/* ---- other weights ---------------------------------------------------------------------------------- */

/* How far a token moved in one sequence, on the average of the positions that list it. */
struct cell {
    uint64_t key;
    uint32_t sequence, n;
    double sum;
};

static int by_token(const void *pa, const void *pb)
{
    const struct cell *a = pa, *b = pb;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->sequence < b->sequence ? -1 : a->sequence > b->sequence;
}

/* One cell for each usable alternative, less what moved the whole position. Equal beginnings of sequences are
 * one context, whose rounding is one accident: only the first of them counts. */
static size_t collect_cells(const struct ds_lp_pairs *p, const unsigned char *skip,
                            struct cell *cells)
{
    size_t n = 0;
    for (size_t k = 0; k < p->n; k++) {
        const struct ds_lp_position *q = &p->positions[k];
        double mean = 0;
        size_t m = 0;
        for (size_t i = q->first; i < q->first + q->n; i++)
            if (usable(&p->alternatives[i])) {
                mean += p->alternatives[i].b - p->alternatives[i].a;
                m++;
            }
        for (size_t i = q->first; !skip[k] && m >= 2 && i < q->first + q->n; i++)
            if (usable(&p->alternatives[i]))
                cells[n++] =
                    (struct cell){p->alternatives[i].key, q->sequence, 1,
                                  p->alternatives[i].b - p->alternatives[i].a - mean / (double)m};
    }
    qsort(cells, n, sizeof *cells, by_token);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (kept && by_token(&cells[kept - 1], &cells[i]) == 0) {
            cells[kept - 1].sum += cells[i].sum;
            cells[kept - 1].n++;
        } else
            cells[kept++] = cells[i];
    return kept;
}

/* Analysis of variance: do the means of a token in unlike sequences agree better than those of unlike tokens? */
static void judge_cells(const struct cell *cells, size_t n, struct ds_lp_cause *out, size_t *n_out)
{
    enum { SEQUENCES = 3, TOKENS = 8 };
    double between = 0, within = 0, all = 0, weight = 0;
    size_t groups = 0, members = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0, end; i < n; i = end) {
            double sum = 0;
            for (end = i; end < n && cells[end].key == cells[i].key; end++)
                sum += cells[end].sum / cells[end].n;
            const size_t m = end - i;
            if (m < SEQUENCES)
                continue;
            const double mean = sum / (double)m;
            if (pass == 0) {
                all += sum;
                weight += (double)m;
                continue;
            }
            groups++;
            members += m;
            between += (double)m * (mean - all / weight) * (mean - all / weight);
            for (size_t k = i; k < end; k++) {
                const double e = cells[k].sum / cells[k].n - mean;
                within += e * e;
            }
        }
    if (groups < TOKENS || members < groups + TOKENS || !(between > 1e-12))
        return;
    const double df1 = (double)groups - 1, df2 = (double)(members - groups),
                 f = (between / df1) / (within / df2 + 1e-300);
    if ((f - 1) / sqrt(2 / df1 + 2 / df2) > 6 && between >= 0.3 * (between + within)) {
        add(out, n_out, (struct ds_lp_cause){DS_LP_WEIGHTS, 1, f, 0, groups, groups});
        out[*n_out - 1].share = between / (between + within);
    }
}

/* Whether position k has the context of an earlier one: the same last tokens and the same alternatives. */
static uint64_t context(const struct ds_lp_pairs *p, size_t k)
{
    uint64_t h = 1469598103934665603u; /* FNV-1a over keys */
    for (size_t back = 1; back <= 4; back++)
        h = (h ^ (back <= k && p->positions[k - back].sequence == p->positions[k].sequence
                      ? p->positions[k - back].key
                      : 0)) *
            1099511628211u;
    for (size_t i = p->positions[k].first; i < p->positions[k].first + p->positions[k].n; i++)
        if (!isnan(p->alternatives[i].a))
            h = (h ^ p->alternatives[i].key) * 1099511628211u;
    return h;
}

struct place {
    uint64_t context;
    size_t at;
};

static int by_context(const void *pa, const void *pb)
{
    const struct place *a = pa, *b = pb;
    if (a->context != b->context)
        return a->context < b->context ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

static int find_weights(const struct ds_lp_pairs *p, const unsigned char *padding,
                        struct ds_lp_cause *out, size_t *n, struct ds_error *err)
{
    struct cell *cells = ds_calloc(p->n_alternatives + 1, sizeof *cells, "alternatives", err);
    struct place *places = ds_calloc(p->n + 1, sizeof *places, "positions", err);
    unsigned char *skip = ds_calloc(p->n + 1, 1, "positions", err);
    const int rc = cells && places && skip ? 0 : -1;
    if (rc == 0) {
        for (size_t k = 0; k < p->n; k++)
            places[k] = (struct place){context(p, k), k};
        qsort(places, p->n, sizeof *places, by_context);
        for (size_t i = 0; i < p->n; i++)
            skip[places[i].at] =
                padding[places[i].at] || (i > 0 && places[i].context == places[i - 1].context);
        judge_cells(cells, collect_cells(p, skip, cells), out, n);
    }
    free(cells);
    free(places);
    free(skip);
    return rc;
}

/* ---- all --------------------------------------------------------------------------------------------- */

int ds_lp_causes(const struct ds_lp_pairs *p, struct ds_lp_cause *out, size_t *n,
                 struct ds_error *err)
{
    unsigned char *padding = ds_calloc(p->n + 1, 1, "positions", err);
    *n = 0;
    if (!padding)
        return -1;
    find_padding(p, padding, out, n);
    find_temperature(p, padding, out, n);
    find_filter(p, out, n);
    int rc = find_penalty(p, out, n, err);
    find_top_k(p, out, n);
    find_coarse_head(p, out, n);
    /* Whatever moves single tokens by a rule moves them alike, too. */
    int simple = 0;
    for (size_t i = 0; i < *n; i++)
        simple |= out[i].kind != DS_LP_PADDING;
    if (rc == 0 && !simple)
        rc = find_weights(p, padding, out, n, err);
    free(padding);
    return rc;
}
