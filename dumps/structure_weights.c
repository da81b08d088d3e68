/* structure_weights.c: hypotheses about the weights of attention: by another function than the softmax's, by a softmax
 * that forgets to scale down what it has added, by scores that are cut, or by a mask that lets through what it should
 * hide; and that a head holds what no weights make of its own cached rows. See structure_attention.c, which asks for
 * them last. */
#include "dumps/structure_attend.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_TRIES = 4000, MOST_SINKS = 16, MOST_CALL = 64, MOST_MIX = 32 };

double structure_share(const struct task *t, size_t row, const struct keys *k)
{
    return structure_plausible(t, row, k) ? explains(t, structure_predict_keys, k) : 0;
}

/* ---- functions -------------------------------------------------------------------------------- */

static void try_functions(struct task *t, size_t last)
{
    static const char *const text[WEIGHT_FUNCTIONS] = {
        [W_SOFTPLUS] = "by softplus instead of an exponential",
        [W_SIGMOID_BARE] = "by sigmoids of the scores, not divided by their sum",
        [W_SIGMOID] = "by sigmoids of the scores instead of exponentials",
        [W_RELU] = "by the scores where those are above 0 (ReLU) instead of exponentials",
        [W_RELU_SQUARED] = "by squared scores where those are above 0 instead of exponentials",
        [W_LINEAR] = "by the scores themselves, without a softmax",
        [W_LINEAR_SUM] = "by the scores divided by their sum, without exponentials",
        [W_EXP_SQUARES] =
            "by exponentials that are divided by the root of the sum of their squares"};
    static const char *const left[UNSHRUNK_WAYS] = {"sum and output", "the output", "the sum"};
    for (int64_t n = 0; n < WEIGHT_FUNCTIONS && !t->best->found; n++) {
        const struct keys k = {.family = FUNCTION, .n = n};
        claim(t, structure_share(t, last, &k), 0, "%s weighs values %s%s", structure_whose(t),
              text[n], structure_but(t));
    }
    for (int64_t n = 0; n < UNSHRUNK_WAYS && !t->best->found; n++) {
        const struct keys k = {.family = UNSHRUNK, .n = n};
        claim(t, structure_share(t, last, &k), 0,
              "%s does not scale down %s where a larger score comes%s", structure_whose(t), left[n],
              structure_but(t));
    }
}

/* ---- scores ----------------------------------------------------------------------------------- */

static void try_cut(struct task *t, size_t last)
{
    struct keys k = {.family = CUT_SCORES, .factor = 1};
    structure_fit(t, last, &k, &k.factor, -1, exp2(-6), 64);
    claim(t, structure_share(t, last, &k), 0, "%s cuts its scores to +-%.4g%s", structure_whose(t),
          k.factor, structure_but(t));
}

static void try_query(struct task *t, size_t last)
{
    static const char *const text[QUERY_ORDERS] = {
        "has the two halves of each query exchanged",
        "has the channels of its queries interleaved, and not those of its keys",
        "has the channels of its queries in two halves, and not those of its keys",
        "has the channels of its queries in reverse order"};
    for (int64_t n = 0; n < QUERY_ORDERS && t->s->head_dim % 2 == 0 && !t->best->found; n++) {
        const struct keys k = {.family = QUERY_TURNED, .n = n};
        claim(t, structure_share(t, last, &k), 0, "%s %s%s", structure_whose(t), text[n],
              structure_but(t));
    }
}

/* A number for every row; the rows differ in it. */
static double own_scale(const struct task *t, size_t r)
{
    struct keys k = {.family = SCALED, .factor = 1};
    structure_fit(t, r, &k, &k.factor, -1, exp2(-4), 32);
    return k.factor;
}

static int predict_own_scale(const struct task *t, size_t r, const void *how)
{
    const struct keys k = {.family = SCALED, .factor = ((const double *)how)[r]};
    return structure_predict_keys(t, r, &k);
}

/* One key has no other weight than 1, whatever its score: rows of one key say nothing. */
static void try_own_scales(struct task *t)
{
    enum { MOST_ROWS = 64 };
    double factor[MOST_ROWS], low = INFINITY, high = -INFINITY;
    int32_t from = INT32_MAX, to = -1;
    size_t rows = 0;
    if (t->n_rows > MOST_ROWS)
        return;
    for (size_t r = 0; r < t->n_rows; r++) {
        const struct ds_structure_row *row = &t->rows[r];
        factor[r] = 1;
        if (!t->off_in_row[r] || !row->input || !row->k || row->position < 1)
            continue;
        factor[r] = own_scale(t, r);
        low = fmin(low, factor[r]);
        high = fmax(high, factor[r]);
        from = row->position < from ? row->position : from;
        to = row->position > to ? row->position : to;
        rows++;
    }
    if (rows > 1 && high - low > 1e-3 * high)
        claim(t, explains(t, predict_own_scale, factor), 0,
              "%s multiplies its scores by a number of each row, %.4g to %.4g at positions %d to "
              "%d%s",
              structure_whose(t), low, high, t->s->first + from, t->s->first + to,
              structure_but(t));
}

/* ---- what is seen ----------------------------------------------------------------------------- */

/* The first few keys and the last few, and none between: a window that keeps sinks. */
static void try_ends(struct task *t, size_t last)
{
    const int64_t keys = t->rows[last].position + 1;
    int tries = 0;
    for (int64_t from = 1; from <= MOST_SINKS && !t->best->found; from++)
        for (int64_t n = 1; from + n < keys && !t->best->found && tries < MOST_TRIES;
             n++, tries++) {
            const struct keys k = {.family = ENDS, .n = n, .from = from};
            claim(t, structure_share(t, last, &k), 0,
                  "%s sees the first %lld keys and the last %lld, and none between%s",
                  structure_whose(t), (long long)from, (long long)n, structure_but(t));
        }
}

static int is_log_of_number(double x)
{
    const double n = exp(x);
    return n > 1.5 && n < 64.5 && fabs(n - rint(n)) < 1e-3;
}

/* Keys of later positions are not hidden but counted less, or with a score of 0. In the row with the fewest keys most
 * of them are. */
static void try_masked(struct task *t, size_t first)
{
    const struct ds_structure_row *row = &t->rows[first];
    const int64_t from = row->position + 2;
    for (int64_t n = from; n <= row->n_keys && n < from + MOST_CALL && row->k[n - 1]; n++) {
        struct keys k = {.family = MASKED, .n = n, .from = 1};
        if (t->best->found)
            return;
        claim(t, structure_share(t, first, &k), 0,
              "%s gives keys of later positions, up to %lld, a score of 0 instead of hiding them%s",
              structure_whose(t), (long long)(n - 1 + t->s->first), structure_but(t));
        k = (struct keys){.family = MASKED, .n = n, .factor = -1};
        structure_fit(t, first, &k, &k.factor, -1, -exp2(-4), 48);
        if (is_log_of_number(-k.factor))
            claim(
                t, structure_share(t, first, &k), 0,
                "%s sees keys of later positions too, up to %lld, and its own %.0f times as often: "
                "as where it sees those of sequences like its own%s",
                structure_whose(t), (long long)(n - 1 + t->s->first), exp(-k.factor),
                structure_but(t));
        claim(
            t, structure_share(t, first, &k), 0,
            "%s adds %.4g to the scores of keys of later positions, up to %lld, instead of hiding "
            "them%s",
            structure_whose(t), k.factor, (long long)(n - 1 + t->s->first), structure_but(t));
    }
}

static void try_places(struct task *t, size_t last)
{
    static const char *const what[PARTS] = {"keys and values", "keys", "values"};
    const struct keys none = {.family = NO_VALUE};
    claim(t, structure_share(t, last, &none), 0,
          "%s finds no value at the row's own position (zeros), and weighs it%s",
          structure_whose(t), structure_but(t));
    for (int parts = 0; parts < PARTS && !t->best->found; parts++) {
        const struct keys k = {.family = AHEAD, .parts = parts};
        claim(t, structure_share(t, last, &k), 0,
              "%s reads the %s of every position from the one behind it%s", structure_whose(t),
              what[parts], structure_but(t));
    }
}

/* ---- rows of others --------------------------------------------------------------------------- */

/* Share of the squares of one head of a row that no mixture of its values gives, by least squares; NaN: it has as many
 * keys as channels, or one is not at hand. */
static double beyond_mixtures(const struct task *t, size_t r, uint32_t head)
{
    const struct ds_structure_row *row = &t->rows[r];
    const uint32_t d = t->s->head_dim, at = head / (heads_of(t) / t->s->kv_heads) * d;
    const int64_t keys = (int64_t)row->position + 1;
    double base[MOST_MIX][MOST_MIX * 4], left[MOST_MIX * 4], all = 0, rest = 0;
    if (!row->k || keys > MOST_MIX || keys > (int64_t)row->n_keys || 2 * keys > d ||
        d > MOST_MIX * 4)
        return NAN;
    for (uint32_t c = 0; c < d; c++) {
        left[c] = (double)row->mine[head * d + c];
        all += left[c] * left[c];
    }
    for (int64_t key = 0; key < keys; key++) {
        double size = 0, own = 0;
        if (!row->v[key])
            return NAN;
        for (uint32_t c = 0; c < d; c++)
            base[key][c] = (double)row->v[key][at + c];
        for (int64_t o = 0; o < key; o++) { /* made orthogonal to those before */
            double along = 0;
            for (uint32_t c = 0; c < d; c++)
                along += base[key][c] * base[o][c];
            for (uint32_t c = 0; c < d; c++)
                base[key][c] -= along * base[o][c];
        }
        for (uint32_t c = 0; c < d; c++)
            size += base[key][c] * base[key][c];
        for (uint32_t c = 0; c < d && size > 0; c++)
            base[key][c] /= sqrt(size);
        for (uint32_t c = 0; c < d; c++)
            own += left[c] * base[key][c];
        for (uint32_t c = 0; c < d; c++)
            left[c] -= own * base[key][c];
    }
    for (uint32_t c = 0; c < d; c++)
        rest += left[c] * left[c];
    return all > 0 ? rest / all : (double)NAN;
}

/* Whether that is so of a head in all rows that can tell; 0: it is not, or none can. */
static int holds_others(const struct task *t, uint32_t head)
{
    static const double much = 0.01;
    size_t rows = 0;
    for (size_t r = 0; r < t->n_rows; r++) {
        uint32_t off = 0;
        for (uint32_t c = 0; c < t->s->head_dim; c++)
            off += (uint32_t)is_off(t, r, head * t->s->head_dim + c);
        const double beyond = off ? beyond_mixtures(t, r, head) : (double)NAN;
        if (isnan(beyond))
            continue;
        if (beyond < much)
            return 0;
        rows++;
    }
    return rows > 0;
}

/* No weights at all make these heads from the values that the rows may see. No arithmetic between scores and values
 * does that. Whose rows were read is not at hand: a record has the rows of one request. */
void try_mixtures(struct task *t)
{
    char which[DS_PROFILE_TEXT];
    if (t->s->head_dim == 0 || t->s->kv_heads == 0 || heads_of(t) % t->s->kv_heads)
        return;
    const uint32_t off = structure_heads_off(t, which), d = t->s->head_dim;
    if (off == UINT32_MAX || off == 0)
        return;
    for (uint32_t h = 0; h < heads_of(t); h++) {
        uint32_t here = 0;
        for (size_t r = 0; r < t->n_rows; r++)
            for (uint32_t c = 0; c < d; c++)
                here += (uint32_t)is_off(t, r, h * d + c);
        if (here && !holds_others(t, h))
            return;
    }
    if (off == heads_of(t))
        snprintf(which, sizeof which, "all heads");
    claim(t, 1, 0,
          "no weights make these values of the request's own cached values (%s%s): other rows were "
          "read, as those of another sequence, or the output was spoilt later",
          off == heads_of(t) ? ""
          : off == 1         ? "head "
                             : "heads ",
          which);
}

/* ---- all -------------------------------------------------------------------------------------- */

void try_weights(struct task *t, size_t first, size_t last)
{
    try_functions(t, last);
    if (!t->best->found)
        try_places(t, last);
    if (!t->best->found)
        try_query(t, last);
    if (!t->best->found)
        try_cut(t, last);
    if (!t->best->found)
        try_masked(t, first);
    if (!t->best->found)
        try_ends(t, last);
    if (!t->best->found)
        try_own_scales(t);
}
