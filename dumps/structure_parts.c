/* structure_parts.c: hypotheses about what attention makes of the sums of its weights: two parts of the keys that are
 * joined in other shares, as a merge of partial results does it, or one key that counts more; a sum that nothing is
 * divided by. See structure_attention.c, which asks for them last. */
#include "dumps/structure_attend.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_SPLIT = 64, LEAST_KEYS = 4, MOST_DIM = 1024 };

struct split {
    int64_t at; /* the first key of the second part; 0: the row's own key */
};

static int64_t split_of(const struct split *h, int64_t position)
{
    return h->at ? h->at : position;
}

/* The share of the first part in one head of y, by least squares, and what it then is. NaN: a key is not at hand. */
static double share_in(const struct task *t, size_t r, uint32_t head, int64_t at, const float *y,
                       float *out)
{
    const uint32_t d = t->s->head_dim;
    const struct keys first = {.family = FIRST, .n = at}, since = {.family = SINCE, .n = at};
    double a[MOST_DIM], b[MOST_DIM], both = 0, square = 0;
    if (d > MOST_DIM || structure_attend(t, r, head, &first, a) != 0 ||
        structure_attend(t, r, head, &since, b) != 0)
        return NAN;
    for (uint32_t c = 0; c < d; c++) {
        both += ((double)y[head * d + c] - b[c]) * (a[c] - b[c]);
        square += (a[c] - b[c]) * (a[c] - b[c]);
    }
    const double share = both / square;
    for (uint32_t c = 0; out && c < d; c++)
        out[head * d + c] = (float)(share * a[c] + (1 - share) * b[c]);
    return share;
}

static int predict_split(const struct task *t, size_t r, const void *how)
{
    const struct ds_structure_row *row = &t->rows[r];
    const int64_t at = split_of(how, row->position);
    if (!row->input || !row->k)
        return -1;
    if (at < 1 || row->position < at) {
        memcpy(t->guess, row->ref, t->s->width * sizeof *t->guess);
        return 1;
    }
    for (uint32_t h = 0; h < heads_of(t); h++)
        if (isnan(share_in(t, r, h, at, row->mine, t->guess)))
            return -1;
    return 1;
}

/* How many times more the second part counts than in the reference, between heads and rows. */
static void range_of_times(const struct task *t, const struct split *h, double *low, double *high)
{
    *low = INFINITY;
    *high = -INFINITY;
    for (size_t r = 0; r < t->n_rows; r++) {
        const int64_t at = split_of(h, t->rows[r].position);
        if (!t->off_in_row[r] || at < 1 || t->rows[r].position < at || !t->rows[r].input ||
            !t->rows[r].k)
            continue;
        for (uint32_t n = 0; n < heads_of(t); n++) {
            const double mine = share_in(t, r, n, at, t->rows[r].mine, NULL),
                         ref = share_in(t, r, n, at, t->rows[r].ref, NULL),
                         times = (1 - mine) / mine * ref / (1 - ref);
            if (!isfinite(times))
                continue;
            *low = fmin(*low, times);
            *high = fmax(*high, times);
        }
    }
}

static void try_split(struct task *t, int64_t at)
{
    const struct split h = {at};
    const double share = explains(t, predict_split, &h);
    double low, high;
    char which[64];
    if (share < 0.95)
        return;
    range_of_times(t, &h, &low, &high);
    if (at == 0)
        snprintf(which, sizeof which, "a row's own key");
    else if (at == 1)
        snprintf(which, sizeof which, "the keys behind the first");
    else
        snprintf(which, sizeof which, "the keys from position %lld on",
                 (long long)(at + t->s->first));
    if (high - low <= 0.02 * fabs(high))
        claim(t, share, 0, "attention counts %s %.4g times as much", which, 0.5 * (low + high));
    else
        claim(t, share, 0,
              "attention counts %s %.3g to %.3g times as much by row and head: two parts that are "
              "joined in other shares",
              which, low, high);
}

/* ---- a sum that is left out -------------------------------------------------------------------- */

/* how: 1 where the largest score is not taken off first. */
static int predict_undivided(const struct task *t, size_t r, const void *how)
{
    const struct keys all = {.family = ALL};
    const struct ds_structure_row *row = &t->rows[r];
    const uint32_t d = t->s->head_dim;
    if (!row->input || !row->k || row->position >= (int64_t)row->n_keys)
        return -1;
    for (uint32_t h = 0; h < heads_of(t); h++) {
        double top = -INFINITY, sum = 0;
        for (int64_t key = 0; key <= row->position; key++) {
            if (!row->k[key])
                return -1;
            top = fmax(top, structure_score(t, r, h, &all, key));
        }
        top = *(const int *)how ? 0 : top;
        for (int64_t key = 0; key <= row->position; key++)
            sum += exp(structure_score(t, r, h, &all, key) - top);
        for (uint32_t c = h * d; c < (h + 1) * d; c++)
            t->guess[c] = (float)(sum * (double)row->ref[c]);
    }
    return 1;
}

void try_parts(struct task *t, size_t last)
{
    for (int bare = 0; bare < 2; bare++)
        claim(t, explains(t, predict_undivided, &bare), 0,
              "attention does not divide by the sum of its weights");
    if (t->rows[last].position + 1 < LEAST_KEYS)
        return;
    for (int64_t at = 0; at <= t->rows[last].position && at <= MOST_SPLIT && !t->best->found; at++)
        try_split(t, at);
}
