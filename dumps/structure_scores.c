/* structure_scores.c: hypotheses about where an attention row's keys and values are read (a wrong page, keys
 * read as values, the query of another row) and about what stands between scores and values (a slope by
 * distance, a sink, an exponential that is off). See structure_attention.c, which asks for them last. */
#include "dumps/structure_attend.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TRIES = 4000, MOST_HEADS = 256, LEAST_KEYS = 4, FAR_QUERY = 4 };

/* ---- where cached rows are read -------------------------------------------------------------- */

static void try_exchanged(struct task *t, size_t last)
{
    static const char *const text[] = {"reads values where keys belong",
                                       "reads keys where values belong",
                                       "takes keys for values and values for keys"};
    for (int64_t n = 1; n <= 3; n++) {
        const struct keys k = {.family = EXCHANGE, .n = n};
        claim(t, structure_share(t, last, &k), 0, "%s %s%s", structure_whose(t), text[n - 1],
              structure_but(t));
    }
}

static void try_queries(struct task *t, size_t last)
{
    for (int64_t n = -FAR_QUERY; n <= FAR_QUERY; n++) {
        const struct keys k = {.family = QUERY, .n = n};
        if (n)
            claim(t, structure_share(t, last, &k), 0,
                  "%s asks with the query of the position %lld %s%s", structure_whose(t),
                  (long long)llabs(n), n > 0 ? "before" : "after", structure_but(t));
    }
}

static int claim_page(struct task *t, size_t row, const struct keys *k)
{
    const double share = structure_share(t, row, k);
    const long long at = k->n * k->page + t->s->first, from = k->from * k->page + t->s->first,
                    more = k->page - 1;
    if (k->from < 0)
        return claim(t, share, 0, "%s reads nothing at positions %lld to %lld (an empty page)%s",
                     structure_whose(t), at, at + more, structure_but(t));
    return claim(t, share, 0,
                 "%s reads the keys and values of positions %lld to %lld at positions %lld to %lld "
                 "(a wrong page)%s",
                 structure_whose(t), from, from + more, at, at + more, structure_but(t));
}

/* One page is another one. Looked for in the row with the fewest keys: its last page comes first. */
static void try_page(struct task *t, size_t row, int64_t page, int *tries)
{
    const struct ds_structure_row *x = &t->rows[row];
    const int64_t pages = x->position / page + 1;
    for (int64_t n = pages - 1; n >= 0; n--)
        for (int64_t from = -1; from < pages; from++) {
            const struct keys k = {.family = PAGE, .n = n, .page = page, .from = from};
            if (from == n || t->best->found)
                continue;
            if (++*tries > MOST_TRIES)
                return;
            claim_page(t, row, &k);
        }
}

/* Rows of one sequence follow each other in the cache, so that another size of its pages reads other rows of it. */
static void try_stride(struct task *t, size_t last)
{
    const int64_t page = t->s->page, apart[] = {page / 2, 2 * page};
    for (int i = 0; i < 2 && page && page <= t->rows[last].position && !t->best->found; i++) {
        const struct keys k = {.family = STRIDE, .page = page, .from = apart[i]};
        claim(t, structure_share(t, last, &k), 0,
              "%s reads the cache as if its pages of %lld rows lay %lld apart%s",
              structure_whose(t), (long long)page, (long long)apart[i], structure_but(t));
    }
}

/* Scores of half a head, or of all but what is left over from whole vectors. */
static void try_partial(struct task *t, size_t last)
{
    const int64_t d = t->s->head_dim, counts[] = {d / 2, d - 1, d - 2, d - 4, d - 8};
    for (size_t i = 0; i < sizeof counts / sizeof *counts && !t->best->found; i++) {
        const struct keys k = {.family = PARTIAL, .n = counts[i]};
        if (counts[i] > 0)
            claim(t, structure_share(t, last, &k), 0,
                  "%s makes its scores of the first %lld of %lld channels%s", structure_whose(t),
                  (long long)counts[i], (long long)d, structure_but(t));
    }
}

/* A cache that is a step behind: in every row, from some position on, or where the row itself was to be written. */
static void try_behind(struct task *t, size_t first, size_t last)
{
    static const char *const what[PARTS] = {"keys and values", "keys", "values"};
    for (int parts = 0; parts < PARTS && !t->best->found; parts++) {
        const struct keys stale = {.family = STALE, .parts = parts},
                          before = {.family = BEFORE, .parts = parts};
        claim(t, structure_share(t, last, &stale), 0,
              "%s reads the %s of the position before at the row's own position (a step behind)%s",
              structure_whose(t), what[parts], structure_but(t));
        claim(t, structure_share(t, last, &before), 0,
              "%s reads the %s of every position from the one before%s", structure_whose(t),
              what[parts], structure_but(t));
        const struct keys late = {
            .family = BEFORE, .parts = parts, .from = t->rows[first].position};
        if (late.from > 1 && first != last)
            claim(t, structure_share(t, last, &late), 0,
                  "%s reads the %s of every position from %lld on from the one before%s",
                  structure_whose(t), what[parts], (long long)(late.from + t->s->first),
                  structure_but(t));
    }
}

void try_cached_rows(struct task *t, size_t first, size_t last)
{
    static const int64_t sizes[] = {16, 32, 8, 64, 4, 128, 256, 2};
    int tries = 0;
    try_exchanged(t, last);
    if (!t->best->found)
        try_behind(t, first, last);
    if (!t->best->found)
        try_queries(t, last);
    if (!t->best->found)
        try_partial(t, last);
    if (!t->best->found)
        try_stride(t, last);
    if (t->s->page && t->s->page <= (uint32_t)t->rows[last].position && !t->best->found)
        try_page(t, first, t->s->page, &tries);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !t->best->found; i++)
        if (sizes[i] <= t->rows[last].position && sizes[i] != t->s->page)
            try_page(t, first, sizes[i], &tries);
}

/* Whether the row is off, and every key that it sees is at hand. */
static int has_all_keys(const struct task *t, size_t r)
{
    const struct ds_structure_row *row = &t->rows[r];
    if (!t->off_in_row[r] || !row->input || !row->k || row->position >= (int64_t)row->n_keys)
        return 0;
    for (int64_t key = 0; key <= row->position; key++)
        if (!row->k[key] || !row->v[key])
            return 0;
    return 1;
}

/* ---- one number for each head ---------------------------------------------------------------- */

static uint32_t off_in_head(const struct task *t, size_t r, uint32_t head)
{
    uint32_t n = 0;
    for (uint32_t c = 0; c < t->s->head_dim; c++)
        n += (uint32_t)is_off(t, r, head * t->s->head_dim + c);
    return n;
}

static size_t rows_off(const struct task *t)
{
    size_t n = 0;
    for (size_t r = 0; r < t->n_rows; r++)
        n += t->off_in_row[r] != 0;
    return n;
}

/* The slope of a head's scores, falling with distance or growing, that brings row r nearest. */
static void fit_slope(const struct task *t, size_t r, double *by_head, uint32_t head)
{
    struct keys k = {.family = SLOPED, .by_head = by_head};
    double best = 0, least = INFINITY;
    for (int sign = -1; sign <= 1; sign += 2) {
        const double x = structure_fit(t, r, &k, &by_head[head], head, sign * exp2(-14), 64);
        best = x < least ? by_head[head] : best;
        least = fmin(x, least);
    }
    by_head[head] = best;
}

/* The logit of a key without a value that explains by how much a head of row r is smaller: NaN, if none. */
static void fit_sink(const struct task *t, size_t r, double *by_head, uint32_t head)
{
    const struct keys all = {.family = ALL};
    const uint32_t d = t->s->head_dim;
    double top = -INFINITY, sum = 0, both = 0, square = 0;
    by_head[head] = NAN;
    for (int64_t key = 0; key <= t->rows[r].position; key++)
        top = fmax(top, structure_score(t, r, head, &all, key));
    for (int64_t key = 0; key <= t->rows[r].position; key++)
        sum += exp(structure_score(t, r, head, &all, key) - top);
    for (uint32_t c = head * d; c < (head + 1) * d; c++) {
        both += (double)t->rows[r].mine[c] * (double)t->rows[r].ref[c];
        square += (double)t->rows[r].ref[c] * (double)t->rows[r].ref[c];
    }
    const double ratio = both / square;
    if (ratio > 0 && ratio < 1)
        by_head[head] = top + log(sum) + log(1 / ratio - 1);
}

typedef void fit_fn(const struct task *t, size_t r, double *by_head, uint32_t head);

/* Fits the first head of the row that is off, and if that is right all of them: 1. */
static int fit_heads(const struct task *t, size_t r, int family, fit_fn *fit, double none,
                     double *by_head)
{
    const struct keys k = {.family = family, .by_head = by_head};
    const uint32_t heads = heads_of(t);
    int fitted = 0;
    for (uint32_t h = 0; h < heads; h++)
        by_head[h] = none;
    for (uint32_t h = 0; h < heads; h++) {
        if (!off_in_head(t, r, h))
            continue;
        fit(t, r, by_head, h);
        if (isnan(by_head[h]) || (!fitted && !structure_plausible(t, r, &k)))
            return 0;
        fitted = 1;
    }
    return fitted;
}

/* Those of the heads that have one. */
static void range_of(const double *x, uint32_t n, double none, double *low, double *high)
{
    *low = INFINITY;
    *high = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        if (x[i] < none || x[i] > none) {
            *low = fmin(*low, x[i]);
            *high = fmax(*high, x[i]);
        }
}

/* In a row of few keys one number explains any weights; in one row alone, any ratio. */
static void try_heads(struct task *t, size_t last)
{
    double by_head[MOST_HEADS], low, high;
    const uint32_t heads = heads_of(t);
    struct keys k = {.family = SLOPED, .by_head = by_head};
    if (heads > MOST_HEADS || t->rows[last].position + 1 < LEAST_KEYS || rows_off(t) < 2 ||
        !has_all_keys(t, last))
        return;
    if (fit_heads(t, last, SLOPED, fit_slope, 0, by_head)) {
        range_of(by_head, heads, 0, &low, &high);
        claim(t, explains(t, structure_predict_keys, &k), 0,
              "%s adds a slope to its scores by the distance of the key (ALiBi), %.4g to %.4g by "
              "head%s",
              structure_whose(t), low, high, structure_but(t));
    }
    k.family = SINK;
    if (!t->best->found && fit_heads(t, last, SINK, fit_sink, -INFINITY, by_head)) {
        range_of(by_head, heads, -INFINITY, &low, &high);
        claim(t, explains(t, structure_predict_keys, &k), 0,
              "%s has a sink in its softmax, a score without a value: %.4g to %.4g by head%s",
              structure_whose(t), low, high, structure_but(t));
    }
}

/* ---- an exponential that is off -------------------------------------------------------------- */

/* Least squares for the places of an exponential: half of the heads are fitted, the others tell whether it
 * holds for more than what it was fitted to. */
struct fit {
    int by_distance;
    double square[BENT_KNOTS][BENT_KNOTS], both[BENT_KNOTS];
    size_t fitted;
    double (*part)
        [BENT_KNOTS]; /* [head_dim] what each place adds to a channel, for a small error of it */
};

/* Adds one head of one row. */
static void add_head(const struct task *t, size_t r, uint32_t head, struct fit *f)
{
    const struct keys all = {.family = ALL};
    const struct ds_structure_row *row = &t->rows[r];
    const uint32_t d = t->s->head_dim, at = head / (heads_of(t) / t->s->kv_heads) * d;
    double top = -INFINITY, sum = 0;
    for (int64_t key = 0; key <= row->position; key++)
        top = fmax(top, structure_score(t, r, head, &all, key));
    for (int64_t key = 0; key <= row->position; key++)
        sum += exp(structure_score(t, r, head, &all, key) - top);
    memset(f->part, 0, d * sizeof *f->part);
    for (int64_t key = 0; key <= row->position; key++) {
        const double below = top - structure_score(t, r, head, &all, key), p = exp(-below) / sum;
        int knot;
        double part;
        structure_knot(f->by_distance, below, &knot, &part);
        for (uint32_t c = 0; c < d; c++) {
            const double by = p * ((double)row->v[key][at + c] - (double)row->ref[head * d + c]);
            f->part[c][knot] += (1 - part) * by;
            f->part[c][knot + 1] += part * by;
        }
    }
    for (uint32_t c = 0; c < d; c++) {
        const double off = (double)row->mine[head * d + c] - (double)row->ref[head * d + c];
        for (int i = 0; i < BENT_KNOTS; i++) {
            f->both[i] += f->part[c][i] * off;
            for (int j = 0; j < BENT_KNOTS; j++)
                f->square[i][j] += f->part[c][i] * f->part[c][j];
        }
    }
    f->fitted += d;
}

/* Solves for the places; what the rows do not tell of stays 0. */
static void solve(struct fit *f, double *x)
{
    double trace = 0;
    for (int i = 0; i < BENT_KNOTS; i++)
        trace += f->square[i][i];
    for (int i = 0; i < BENT_KNOTS; i++)
        f->square[i][i] += 1e-9 * trace / BENT_KNOTS + 1e-300;
    for (int i = 0; i < BENT_KNOTS; i++) /* positive definite: no pivots */
        for (int j = i + 1; j < BENT_KNOTS; j++) {
            const double by = f->square[j][i] / f->square[i][i];
            for (int k = i; k < BENT_KNOTS; k++)
                f->square[j][k] -= by * f->square[i][k];
            f->both[j] -= by * f->both[i];
        }
    for (int i = BENT_KNOTS - 1; i >= 0; i--) {
        x[i] = f->both[i];
        for (int k = i + 1; k < BENT_KNOTS; k++)
            x[i] -= f->square[i][k] * x[k];
        x[i] /= f->square[i][i];
    }
}

/* Share of the squared difference that it explains in heads that were not fitted. */
static double explained_beside(const struct task *t, const struct keys *k)
{
    const uint32_t d = t->s->head_dim, heads = heads_of(t);
    double all = 0, left = 0;
    size_t n = 0;
    for (size_t r = 0; r < t->n_rows; r++)
        for (uint32_t h = 0; has_all_keys(t, r) && h < heads; h++) {
            if ((r + h) % 2 == 0 || structure_attend(t, r, h, k, t->sorted) != 0)
                continue;
            for (uint32_t c = 0; c < d; c++, n++) {
                const double mine = (double)t->rows[r].mine[h * d + c],
                             off = mine - (double)t->rows[r].ref[h * d + c];
                all += off * off;
                left += (mine - t->sorted[c]) * (mine - t->sorted[c]);
            }
        }
    return n >= 2 * BENT_KNOTS && all > 0 ? 1 - left / all : 0;
}

static double worst_of(const struct bent *b)
{
    double worst = 0;
    for (int i = 0; i < BENT_KNOTS; i++)
        worst = fmax(worst, fabs(b->off[i]));
    return worst;
}

/* What rounding and other data do to a row is no function of where a score lies: it would not hold in heads
 * that were not fitted. */
static int try_exponential(struct task *t, struct ds_error *err)
{
    static const double enough = 0.98;
    struct fit *f = ds_calloc(1, sizeof *f, "structure", err);
    double(*part)[BENT_KNOTS] =
        f ? ds_calloc(t->s->head_dim, sizeof *part, "structure", err) : NULL;
    for (int by_distance = 0; part && by_distance < 2 && !t->best->found; by_distance++) {
        struct bent bent = {.by_distance = by_distance};
        const struct keys k = {.family = BENT_EXP, .bent = &bent};
        *f = (struct fit){.by_distance = by_distance, .part = part};
        for (size_t r = 0; r < t->n_rows; r++)
            for (uint32_t h = 0; has_all_keys(t, r) && h < heads_of(t); h++)
                if ((r + h) % 2 == 0)
                    add_head(t, r, h, f);
        if (f->fitted < 4 * BENT_KNOTS)
            break;
        solve(f, bent.off);
        const double share = explained_beside(t, &k);
        if (share >= enough &&
            claim(t, share, 0,
                  "%s has another exponential: weights are off by up to %.2g %%, a "
                  "factor that all have left aside, by %s%s",
                  structure_whose(t), 100 * worst_of(&bent),
                  by_distance ? "how far a score is below the largest"
                              : "where a score lies between powers of two",
                  structure_but(t)))
            t->best->algorithm = 1;
    }
    free(part);
    free(f);
    return part ? 0 : -1;
}

int try_other_scores(struct task *t, size_t last, struct ds_error *err)
{
    try_heads(t, last);
    if (!t->best->found && !t->turned)
        try_parts(t, last);
    return t->best->found ? 0 : try_exponential(t, err);
}
