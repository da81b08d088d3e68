/* structure_reduce.c: hypotheses about sums of a few rows that are no sums: the largest of the terms, their mean, the sum
 * of some of them, in every element alike or in stretches of a row. See structure.h. */
#include "dumps/structure_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum reduction { LARGEST, SMALLEST, LARGEST_SIZE, SMALLEST_SIZE, MEAN, PRODUCT, REDUCTIONS };

static double reduce(int how, const double *x, uint32_t n)
{
    double y = x[0];
    for (uint32_t k = 1; k < n; k++)
        switch (how) {
        case LARGEST:
            y = x[k] > y ? x[k] : y;
            break;
        case SMALLEST:
            y = x[k] < y ? x[k] : y;
            break;
        case LARGEST_SIZE:
            y = fabs(x[k]) > fabs(y) ? x[k] : y;
            break;
        case SMALLEST_SIZE:
            y = fabs(x[k]) < fabs(y) ? x[k] : y;
            break;
        case PRODUCT:
            y *= x[k];
            break;
        default:
            y += x[k];
        }
    return how == MEAN ? y / n : y;
}

/* The terms of an element, times their factors; 0: one is not at hand. */
static int terms_of(const struct task *t, size_t r, uint32_t i, double *x)
{
    const struct ds_structure_row *row = &t->rows[r];
    for (uint32_t k = 0; k < t->s->n_terms; k++) {
        if (!row->term[k])
            return 0;
        x[k] = (double)row->term_weight[k] * (double)row->term[k][i];
    }
    return 1;
}

static int predict_reduced(const struct task *t, size_t r, const void *how)
{
    double x[DS_STRUCTURE_TERMS];
    for (uint32_t i = 0; i < t->s->width; i++) {
        if (!terms_of(t, r, i, x))
            return -1;
        t->guess[i] = (float)reduce(*(const int *)how, x, t->s->n_terms);
    }
    return 1;
}

/* Whether the reference is the sum of these terms: else nothing is known of what is none. */
static int is_sum(const struct task *t)
{
    uint64_t n = 0, good = 0;
    double x[DS_STRUCTURE_TERMS];
    for (size_t r = 0; r < t->n_rows; r++)
        for (uint32_t i = 0; t->off_in_row[r] && i < t->s->width; i++) {
            if (!terms_of(t, r, i, x))
                return 0;
            double sum = 0;
            for (uint32_t k = 0; k < t->s->n_terms; k++)
                sum += x[k];
            good += fabs(sum - (double)t->rows[r].ref[i]) <=
                    2 * ds_structure_slack(t->s, t->rows[r].ref[i], t->rows[r].ref[i], t->rms[r]);
            n++;
        }
    return n && good * 100 >= n * 97;
}

/* ---- some of the terms ------------------------------------------------------------------------ */

/* Stretches of a row, each with a bit for every term that is added there. */
enum { MOST_STRETCHES = 16, LEAST_STRETCH = 4, MOST_CHOSEN_FROM = 6 };
struct some {
    uint32_t n, from[MOST_STRETCHES + 1]; /* [n]: the row's end */
    uint32_t which[MOST_STRETCHES];
};

static double sum_of(const double *x, uint32_t n, uint32_t which)
{
    double sum = 0;
    for (uint32_t k = 0; k < n; k++)
        sum += which >> k & 1 ? x[k] : 0;
    return sum;
}

static int predict_some(const struct task *t, size_t r, const void *how)
{
    const struct some *h = how;
    double x[DS_STRUCTURE_TERMS];
    for (uint32_t i = 0, at = 0; i < t->s->width; i++) {
        at += i == h->from[at + 1];
        if (!terms_of(t, r, i, x))
            return -1;
        t->guess[i] = (float)sum_of(x, t->s->n_terms, h->which[at]);
    }
    return 1;
}

/* "moe_combine/r0, moe_combine/r2" */
static void tell_terms(const struct task *t, uint32_t which, char *text, size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (uint32_t k = 0; k < t->s->n_terms && at < size; k++)
        if (which >> k & 1)
            at +=
                (size_t)snprintf(text + at, size - at, "%s%s", at ? ", " : "", t->s->term_name[k]);
}

static int bits_in(uint32_t x)
{
    return __builtin_popcount(x);
}

/* Two terms at least, and two left out: one alone, and all but one, are other hypotheses. */
static void try_some(struct task *t)
{
    const uint32_t n = t->s->n_terms;
    for (uint32_t which = 1; n <= MOST_CHOSEN_FROM && which < 1u << n; which++) {
        const struct some h = {.n = 1, .from = {0, t->s->width}, .which = {which}};
        char text[112];
        if (bits_in(which) < 2 || bits_in(which) > (int)n - 2)
            continue;
        tell_terms(t, which, text, sizeof text);
        claim(t, explains(t, predict_some, &h), 0, "the sum is of %s alone", text);
    }
}

/* A bit for each of the sums that give element i in every row. */
static uint64_t sums_that_give(const struct task *t, uint32_t i)
{
    const uint32_t n = t->s->n_terms;
    uint64_t give = ~(uint64_t)0 >> (64 - (1u << n));
    double x[DS_STRUCTURE_TERMS];
    for (size_t r = 0; r < t->n_rows && give; r++) {
        if (!terms_of(t, r, i, x))
            return 0;
        for (uint32_t which = 0; which < 1u << n; which++)
            if (give >> which & 1 && !fits(t, r, i, sum_of(x, n, which)))
                give &= ~((uint64_t)1 << which);
    }
    return give;
}

/* The row in as few stretches as there are, from the left. 0: too many, or one is too short to tell. */
static int find_stretches(const struct task *t, struct some *h)
{
    uint64_t give = 0;
    h->n = 0;
    for (uint32_t i = 0; i < t->s->width; i++) {
        const uint64_t here = sums_that_give(t, i);
        if (!here || (!(give & here) && h->n == MOST_STRETCHES))
            return 0;
        if (h->n && !(give & here) && i - h->from[h->n - 1] < LEAST_STRETCH)
            return 0;
        if (!(give & here)) {
            h->from[h->n++] = i;
            give = here;
        }
        give &= here;
        h->which[h->n - 1] = (uint32_t)(63 - __builtin_clzll(give));
    }
    h->from[h->n] = t->s->width;
    return h->n > 1 && t->s->width - h->from[h->n - 1] >= LEAST_STRETCH;
}

/* As where a row is cut into parts that ranks add up and hand round: each part lacks another rank. */
static void try_stretches(struct task *t)
{
    const uint32_t n = t->s->n_terms, all = (1u << n) - 1;
    struct some h;
    char text[128] = "";
    size_t at = 0;
    if (n > MOST_CHOSEN_FROM || t->best->found || !find_stretches(t, &h))
        return;
    for (uint32_t k = 0; k < h.n && at < sizeof text; k++) {
        char names[64];
        const int few = h.which[k] && bits_in(h.which[k]) * 2 < (int)n;
        if (h.which[k] == all)
            continue;
        tell_terms(t, few ? h.which[k] : all & ~h.which[k], names, sizeof names);
        at += (size_t)snprintf(text + at, sizeof text - at, "%schannels %u-%u %s %s",
                               at ? ", " : "", (unsigned)h.from[k], (unsigned)h.from[k + 1] - 1,
                               few ? "have" : "lack", h.which[k] ? names : "all");
    }
    claim(t, explains(t, predict_some, &h), 0, "the sum is not of all terms: %s", text);
}

/* ---- all -------------------------------------------------------------------------------------- */

void try_reductions(struct task *t)
{
    static const char *const text[REDUCTIONS] = {
        [LARGEST] = "there is the largest of the %u terms, not their sum",
        [SMALLEST] = "there is the smallest of the %u terms, not their sum",
        [LARGEST_SIZE] = "there is the term of the largest size of %u, not their sum",
        [SMALLEST_SIZE] = "there is the term of the smallest size of %u, not their sum",
        [MEAN] = "there is the mean of the %u terms, not their sum",
        [PRODUCT] = "there is the product of the %u terms, not their sum",
    };
    const uint32_t n = t->s->n_terms;
    if (n < 2 || n > DS_STRUCTURE_TERMS || !is_sum(t))
        return;
    for (int how = LARGEST; how < REDUCTIONS; how++)
        claim(t, explains(t, predict_reduced, &how), how == MEAN ? 1.0 / n : 0, text[how],
              (unsigned)n);
    try_some(t);
    try_stretches(t);
}
