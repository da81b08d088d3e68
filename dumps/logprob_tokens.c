/* logprob_tokens.c: causes that move single tokens: logits of a coarse format, weights that are others or were rounded. See
 * logprob_cause.h. */
#include "dumps/logprob_cause_internal.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

enum { FEW_VALUES = 30 };

int ds_lp_usable(const struct ds_lp_alternative *x)
{
    return isfinite(x->a) && isfinite(x->b) && x->a > DS_LP_MASKED && x->b > DS_LP_MASKED;
}

void ds_lp_add(struct ds_lp_cause *out, size_t *n, struct ds_lp_cause c)
{
    c.share = c.of ? (double)c.n / (double)c.of : 0;
    out[(*n)++] = c;
}

const struct ds_lp_alternative *ds_lp_best(const struct ds_lp_pairs *p,
                                           const struct ds_lp_position *q, int unseen)
{
    const struct ds_lp_alternative *best = NULL;
    for (size_t i = q->first; i < q->first + q->n; i++)
        if (ds_lp_usable(&p->alternatives[i]) && !(unseen && p->alternatives[i].seen) &&
            (!best || p->alternatives[i].a > best->a))
            best = &p->alternatives[i];
    return best;
}

/* ---- a coarse head -------------------------------------------------------------------------------- */

/* A side's differences between a position's best alternative and the others, `scale` times: those that are multiples of
 * a step. */
struct grid {
    const struct ds_lp_pairs *p;
    int unseen; /* only tokens that did not come before */
    double step, scale;
};

static void count_on_grid(const struct grid *g, int side, size_t *on, size_t *of)
{
    const double tol = fmin(2e-4, g->step / 16);
    *on = *of = 0;
    for (size_t k = 0; k < g->p->n; k++) {
        const struct ds_lp_position *q = &g->p->positions[k];
        const struct ds_lp_alternative *best = ds_lp_best(g->p, q, g->unseen);
        for (size_t i = q->first; best && i < q->first + q->n; i++) {
            const struct ds_lp_alternative *x = &g->p->alternatives[i];
            if (x == best || !ds_lp_usable(x) || (g->unseen && x->seen))
                continue;
            const double d = g->scale * (side ? x->b - best->b : x->a - best->a);
            ++*of;
            *on += fabs(d - g->step * nearbyint(d / g->step)) <= tol;
        }
    }
}

static int is_zero(double x)
{
    return fabs(x) <= 0;
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
        if (!isfinite(x) || x <= DS_LP_MASKED || is_zero(x))
            continue;
        ++*of;
        *on += is_bf16(x);
    }
}

static int is_coarse(const size_t *on, const size_t *of, int side, size_t percent)
{
    return of[side] >= FEW_VALUES && on[side] * 100 >= of[side] * percent &&
           on[!side] * 2 < of[!side];
}

/* A temperature as people give it, with two digits, where the measured one is that near. */
static double as_given(double t)
{
    const double near = nearbyint(100 * t) / 100, inverse = 100 / nearbyint(100 / t);
    return fabs(near - t) <= 0.003 ? near : fabs(inverse - t) <= 0.003 * t ? inverse : t;
}

static int find_grid(struct grid *g, struct ds_lp_cause *out, size_t *n)
{
    size_t on[2], of[2];
    for (int power = 2; power <= 9; power++) {
        g->step = ldexp(1, -power);
        for (int side = 0; side < 2; side++)
            count_on_grid(g, side, &on[side], &of[side]);
        for (int side = 1; side >= 0; side--)
            if (is_coarse(on, of, side, 95)) {
                ds_lp_add(
                    out, n,
                    (struct ds_lp_cause){DS_LP_COARSE_HEAD, side, g->step, 0, on[side], of[side]});
                return 1;
            }
    }
    return 0;
}

void ds_lp_find_coarse_head(const struct ds_lp_pairs *p, double slope, int penalty,
                            struct ds_lp_cause *out, size_t *n)
{
    const double t = as_given(1 / slope), scales[] = {1, t, 1 / t};
    size_t on[2], of[2];
    for (int side = 0; side < 2; side++)
        count_bf16(p, side, &on[side], &of[side]);
    for (int side = 1; side >= 0; side--)
        if (is_coarse(on, of, side, 99)) {
            ds_lp_add(out, n,
                      (struct ds_lp_cause){DS_LP_COARSE_HEAD, side, 0, 0, on[side], of[side]});
            return;
        }
    /* Logits are coarse before they are divided by a temperature. */
    for (size_t i = 0; i < (is_zero(slope - 1) ? 1 : 3); i++) {
        struct grid g = {.p = p, .unseen = penalty, .scale = scales[i]};
        if (find_grid(&g, out, n))
            return;
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

static int tells(const struct ds_lp_alternative *x, int unseen)
{
    return ds_lp_usable(x) && !(unseen && x->seen);
}

/* The root mean square of what moves tokens within a position, over that of A's log-probabilities there. */
static double relative_size(const struct ds_lp_pairs *p, int unseen)
{
    double moved = 0, spread = 0;
    for (size_t k = 0; k < p->n; k++) {
        const struct ds_lp_position *q = &p->positions[k];
        double d = 0, dd = 0, a = 0, aa = 0, m = 0;
        for (size_t i = q->first; i < q->first + q->n; i++) {
            const struct ds_lp_alternative *x = &p->alternatives[i];
            if (!tells(x, unseen))
                continue;
            d += x->b - x->a;
            dd += (x->b - x->a) * (x->b - x->a);
            a += x->a;
            aa += x->a * x->a;
            m++;
        }
        moved += m > 1 ? fmax(dd - d * d / m, 0) : 0;
        spread += m > 1 ? fmax(aa - a * a / m, 0) : 0;
    }
    return spread > 0 ? sqrt(moved / spread) : 0;
}

/* One cell for each usable alternative, less what moved the whole position. Equal beginnings of sequences are
 * one context, whose rounding is one accident: only the first of them counts. */
static size_t collect_cells(const struct ds_lp_pairs *p, const unsigned char *skip, int unseen,
                            struct cell *cells)
{
    size_t n = 0;
    for (size_t k = 0; k < p->n; k++) {
        const struct ds_lp_position *q = &p->positions[k];
        double mean = 0;
        size_t m = 0;
        for (size_t i = q->first; i < q->first + q->n; i++)
            if (tells(&p->alternatives[i], unseen)) {
                mean += p->alternatives[i].b - p->alternatives[i].a;
                m++;
            }
        for (size_t i = q->first; !skip[k] && m >= 2 && i < q->first + q->n; i++)
            if (tells(&p->alternatives[i], unseen))
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
static void judge_cells(const struct cell *cells, size_t n, double size, struct ds_lp_cause *out,
                        size_t *n_out)
{
    /* Measured with the head of a model of 135M parameters: rounding weights and hidden states to TF32 (10 bits) gives
     * 0.0013, weights to BF16 (7 bits) 0.006, 4 bits a block 0.37; weights that moved by 0.5 % of their spread 0.02. */
    static const double rounded = 0.01;
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
        const int kind = size < rounded ? DS_LP_FEWER_BITS : DS_LP_WEIGHTS;
        ds_lp_add(
            out, n_out,
            (struct ds_lp_cause){kind, 1, kind == DS_LP_WEIGHTS ? f : size, 0, groups, groups});
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

int ds_lp_find_weights(const struct ds_lp_pairs *p, const unsigned char *padding, int penalty,
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
        judge_cells(cells, collect_cells(p, skip, penalty, cells), relative_size(p, penalty), out,
                    n);
    }
    free(cells);
    free(places);
    free(skip);
    return rc;
}
