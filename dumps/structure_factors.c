/* structure_factors.c: hypotheses about the factors of a sum of a few rows: there are none, all are alike, they are
 * another row's, squared, or simply others; one term stands alone, or in another's place. See structure.h. */
#include "dumps/structure_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- known ones ------------------------------------------------------------------------------- */

enum factors { ONE_EACH, EQUAL, IN_REVERSE, SQUARED, FACTORS };

/* The sum with other factors, or of one term alone. */
struct weighed {
    int factors; /* enum factors; -1: */
    uint32_t alone;
};

static int predict_weighed(const struct task *t, size_t r, const void *how)
{
    const struct weighed *h = how;
    const struct ds_structure_row *row = &t->rows[r];
    const uint32_t n = t->s->n_terms;
    for (uint32_t k = 0; k < n; k++)
        if (!row->term[k])
            return -1;
    for (uint32_t i = 0; i < t->s->width; i++) {
        double sum = 0;
        for (uint32_t k = 0; k < n; k++) {
            const double factor = h->factors < 0 ? (k == h->alone) * (double)row->term_weight[k]
                                  : h->factors == ONE_EACH ? 1
                                  : h->factors == EQUAL    ? 1.0 / n
                                  : h->factors == SQUARED
                                      ? (double)row->term_weight[k] * (double)row->term_weight[k]
                                      : (double)row->term_weight[n - 1 - k];
            sum += factor * (double)row->term[k][i];
        }
        t->guess[i] = (float)sum;
    }
    return 1;
}

/* Whether terms differ in them. */
static int has_factors(const struct task *t)
{
    for (size_t r = 0; r < t->n_rows; r++)
        for (uint32_t k = 1; k < t->s->n_terms; k++)
            if (fabs((double)t->rows[r].term_weight[k] - (double)t->rows[r].term_weight[0]) > 1e-6)
                return 1;
    return 0;
}

/* All terms, or all factors, are those of the row before or behind. */
struct other_row {
    int behind, of_factors;
};

static int predict_other_row(const struct task *t, size_t r, const void *how)
{
    const struct other_row *h = how;
    const struct ds_structure_row *row = &t->rows[r];
    const float *factors = row->weight_beside[h->behind];
    if (h->of_factors && !factors)
        return -1;
    for (uint32_t i = 0; i < t->s->width; i++) {
        double sum = 0;
        for (uint32_t k = 0; k < t->s->n_terms; k++) {
            const float *term = h->of_factors ? row->term[k] : row->term_beside[h->behind][k];
            if (!term)
                return -1;
            sum += (double)(h->of_factors ? factors[k] : row->term_weight[k]) * (double)term[i];
        }
        t->guess[i] = (float)sum;
    }
    return 1;
}

void try_factors(struct task *t)
{
    static const char *const text[FACTORS] = {
        "the terms are added without their factors", "every term has the same factor",
        "the terms have each other's factors, in reverse", "the factors of the terms are squared"};
    const uint32_t n = t->s->n_terms;
    if (n < 2 || n > DS_STRUCTURE_TERMS)
        return;
    for (int f = 0; f < FACTORS && has_factors(t); f++) {
        const struct weighed h = {.factors = f};
        claim(t, explains(t, predict_weighed, &h), 0, "%s", text[f]);
    }
    for (uint32_t k = 0; k < n && n > 2; k++) {
        const struct weighed h = {.factors = -1, .alone = k};
        claim(t, explains(t, predict_weighed, &h), 0, "there is %s alone, not the sum",
              t->s->term_name[k]);
    }
    for (int behind = 0; behind < 2; behind++)
        for (int of_factors = 0; of_factors < 2; of_factors++) {
            const struct other_row h = {behind, of_factors};
            claim(t, explains(t, predict_other_row, &h), 0,
                  of_factors ? "the terms have the factors of the position 1 %s"
                             : "the terms are those of the position 1 %s",
                  behind ? "after" : "before");
        }
}

/* ---- any -------------------------------------------------------------------------------------- */

/* Factors for each row, by least squares. Few numbers for a row of many elements: that they explain it is no
 * chance. */
struct fitted {
    double factor[DS_STRUCTURE_TERMS];
};

/* Solves for the factors that bring row r nearest. 0: the terms do not tell them apart. */
static int fit(const struct task *t, size_t r, struct fitted *out)
{
    const struct ds_structure_row *row = &t->rows[r];
    const uint32_t n = t->s->n_terms;
    double a[DS_STRUCTURE_TERMS][DS_STRUCTURE_TERMS + 1];
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t l = 0; l <= n; l++) {
            const float *x = row->term[k], *y = l < n ? row->term[l] : row->mine;
            if (!x || !y)
                return 0;
            a[k][l] = 0;
            for (uint32_t i = 0; i < t->s->width; i++)
                a[k][l] += (double)x[i] * (double)y[i];
        }
    for (uint32_t k = 0; k < n; k++) {
        const double own = a[k][k];
        for (uint32_t l = 0; l < k; l++) {
            const double by = a[k][l] / a[l][l];
            for (uint32_t m = l; m <= n; m++)
                a[k][m] -= by * a[l][m];
        }
        if (!(a[k][k] > 1e-6 * own) || !isfinite(a[k][n]))
            return 0;
    }
    for (uint32_t k = n; k-- > 0;) {
        out->factor[k] = a[k][n];
        for (uint32_t l = k + 1; l < n; l++)
            out->factor[k] -= a[k][l] * out->factor[l];
        out->factor[k] /= a[k][k];
    }
    return 1;
}

static int predict_fitted(const struct task *t, size_t r, const void *how)
{
    struct fitted f;
    (void)how;
    if (!fit(t, r, &f))
        return -1;
    for (uint32_t i = 0; i < t->s->width; i++) {
        double sum = 0;
        for (uint32_t k = 0; k < t->s->n_terms; k++)
            sum += f.factor[k] * (double)t->rows[r].term[k][i];
        t->guess[i] = (float)sum;
    }
    return 1;
}

static int near(double x, double y)
{
    return fabs(x - y) <= 1e-4 * (1 + fabs(y));
}

/* Whether in every row that is off only term k has another factor, and that is 1: it is added as it is. */
static int is_bare(const struct task *t, uint32_t k)
{
    size_t rows = 0;
    struct fitted f;
    for (size_t r = 0; r < t->n_rows; r++) {
        if (!t->off_in_row[r] || !fit(t, r, &f))
            continue;
        if (near(1, (double)t->rows[r].term_weight[k]))
            return 0; /* it has no other */
        for (uint32_t l = 0; l < t->s->n_terms; l++)
            if (!near(f.factor[l], l == k ? 1 : (double)t->rows[r].term_weight[l]))
                return 0;
        rows++;
    }
    return rows > 0;
}

/* Whether in every row that is off term k has l's factor as well as its own, and l none. */
static int stands_for(const struct task *t, uint32_t k, uint32_t l)
{
    size_t rows = 0;
    struct fitted f;
    for (size_t r = 0; r < t->n_rows; r++) {
        const float *w = t->rows[r].term_weight;
        if (!t->off_in_row[r] || !fit(t, r, &f))
            continue;
        for (uint32_t m = 0; m < t->s->n_terms; m++)
            if (!near(f.factor[m], m == k   ? (double)w[k] + (double)w[l]
                                   : m == l ? 0
                                            : (double)w[m]))
                return 0;
        rows++;
    }
    return rows > 0;
}

/* Whether some row's factors are not those that it should have. */
static int others(const struct task *t)
{
    struct fitted f;
    for (size_t r = 0; r < t->n_rows; r++)
        for (uint32_t k = 0; t->off_in_row[r] && fit(t, r, &f) && k < t->s->n_terms; k++)
            if (!near(f.factor[k], (double)t->rows[r].term_weight[k]))
                return 1;
    return 0;
}

/* "0.21, 0.4 instead of 0.3, 0.7 at position 3", of the first row that is off. */
static void tell_factors(const struct task *t, char *text, size_t size)
{
    struct fitted f;
    size_t r = 0, at = 0;
    while (r < t->n_rows && (!t->off_in_row[r] || !fit(t, r, &f)))
        r++;
    text[0] = '\0';
    for (int own = 1; own >= 0 && r < t->n_rows; own--) {
        for (uint32_t k = 0; k < t->s->n_terms && at < size; k++)
            at += (size_t)snprintf(text + at, size - at, "%s%.3g", k ? ", " : "",
                                   own ? f.factor[k] : (double)t->rows[r].term_weight[k]);
        if (own && at < size)
            at += (size_t)snprintf(text + at, size - at, " instead of ");
    }
}

void try_other_factors(struct task *t)
{
    enum { MOST_TOLD = 8 };
    const uint32_t n = t->s->n_terms;
    if (n < 2 || n > MOST_TOLD || t->s->width < 8 * n)
        return;
    const double share = explains(t, predict_fitted, NULL);
    if (share < 0.95 || !others(t))
        return;
    for (uint32_t k = 0; k < n && !t->best->found; k++) {
        if (is_bare(t, k))
            claim(t, share, 0, "the sum has %s without its factor", t->s->term_name[k]);
        for (uint32_t l = 0; l < n && !t->best->found; l++)
            if (l != k && stands_for(t, k, l))
                claim(t, share, 0, "the sum has %s in the place of %s", t->s->term_name[k],
                      t->s->term_name[l]);
    }
    char text[112];
    tell_factors(t, text, sizeof text);
    claim(t, share, 0, "the terms have other factors: %s", text);
}
