/* structure_shift.c: hypotheses about where a term of a sum, or an input of the gated unit, was read: some channels
 * further on, in circles, or of one row for all. See structure_sum.c and structure_gate.c, which have what is nearer. */
#include "dumps/structure_internal.h"

#include <math.h>
#include <stdlib.h>

enum { NEAR_SHIFT = 64, FAR_SHIFT = 2048, FAR_STEP = 16, QUICK = 24 };

struct moved {
    uint32_t which;
    int64_t by;  /* channels */
    int64_t row; /* number of the row whose it is; -1: the own one */
};

static const float *term_of(const struct task *t, size_t r, uint32_t k, const struct moved *h)
{
    return t->rows[k == h->which && h->row >= 0 ? (size_t)h->row : r].term[k];
}

/* NaN: a term is not at hand. */
static double joined(const struct task *t, size_t r, uint32_t i, const struct moved *h)
{
    const int64_t n = t->s->width;
    double x[2] = {0, 0}, sum = 0;
    for (uint32_t k = 0; k < t->s->n_terms; k++) {
        const float *term = term_of(t, r, k, h);
        if (!term)
            return NAN;
        const double v = (double)term[k == h->which ? ((int64_t)i + h->by + n) % n : i];
        if (t->s->gated && k < 2)
            x[k] = v;
        sum += (double)t->rows[r].term_weight[k] * v;
    }
    return t->s->gated ? x[0] / (1 + exp(-x[0])) * x[1] : sum;
}

static int predict_moved(const struct task *t, size_t r, const void *how)
{
    for (uint32_t i = 0; i < t->s->width; i++) {
        const double y = joined(t, r, i, how);
        if (isnan(y) && !isnan(t->rows[r].mine[i]))
            return -1;
        t->guess[i] = (float)y;
    }
    return 1;
}

/* A look at a few elements of the last row that is off. */
static int is_plausible(const struct task *t, const struct moved *h)
{
    uint32_t looked = 0, good = 0;
    size_t r = t->n_rows;
    while (r > 0 && !t->off_in_row[r - 1])
        r--;
    if (r-- == 0)
        return 0;
    for (uint32_t i = 0; i < t->s->width && looked < QUICK; i++) {
        if (!is_off(t, r, i))
            continue;
        looked++;
        good += fits(t, r, i, joined(t, r, i, h));
    }
    return looked && 10 * good >= 9 * looked;
}

static double share_of(const struct task *t, const struct moved *h)
{
    return is_plausible(t, h) ? explains(t, predict_moved, h) : 0;
}

static const char *name_of(const struct task *t, uint32_t k)
{
    return !t->s->gated ? t->s->term_name[k] : k ? "up" : "gate";
}

static void try_shift(struct task *t, uint32_t k)
{
    const int64_t most =
        (int64_t)t->s->width - 1 < FAR_SHIFT ? (int64_t)t->s->width - 1 : FAR_SHIFT;
    for (int64_t by = 1; by <= most && !t->best->found; by += by < NEAR_SHIFT ? 1 : FAR_STEP)
        for (int sign = -1; sign <= 1; sign += 2) {
            const struct moved h = {k, sign * by, -1};
            claim(t, share_of(t, &h), 0, "%s is read %lld channel%s %s its place", name_of(t, k),
                  (long long)by, by == 1 ? "" : "s", sign < 0 ? "before" : "behind");
        }
}

/* Rows of a call that all get what one of them should have. */
static void try_one_row(struct task *t, uint32_t k)
{
    size_t off = 0;
    for (size_t r = 0; r < t->n_rows; r++)
        off += t->off_in_row[r] != 0;
    for (size_t o = 0; o < t->n_rows && off > 1 && !t->best->found; o++) {
        const struct moved h = {k, 0, (int64_t)o};
        claim(t, share_of(t, &h), 0, "%s is that of position %d in every row", name_of(t, k),
              t->rows[o].position);
    }
}

/* A row that is not off beside them, the first of a call as a rule, may be whose the term is. */
void try_shifts(struct task *t)
{
    const struct moved own = {UINT32_MAX, 0, -1};
    uint64_t n = 0, good = 0;
    if (t->s->n_terms < 2)
        return;
    for (size_t r = 0; r < t->n_rows; r++)
        for (uint32_t i = 0; t->off_in_row[r] && i < t->s->width; i++, n++)
            good += fabs(joined(t, r, i, &own) - (double)t->rows[r].ref[i]) <=
                    2 * ds_structure_slack(t->s, t->rows[r].ref[i], t->rows[r].ref[i], t->rms[r]);
    if (!n || good * 100 < n * 97)
        return; /* the reference is made otherwise */
    for (uint32_t k = 0; k < t->s->n_terms && k < DS_STRUCTURE_TERMS && !t->best->found; k++) {
        try_shift(t, k);
        try_one_row(t, k);
    }
}
