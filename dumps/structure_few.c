/* structure_few.c: hypotheses about single elements, few as they may be: not written, or a bit flipped; and about
 * elements that stand in each other's place. See structure.h. */
#include "dumps/structure_internal.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a few ----------------------------------------------------------------------------------- */

static int predict_zero(const struct task *t, size_t r, const void *how)
{
    (void)r, (void)how;
    memset(t->guess, 0, t->s->width * sizeof *t->guess);
    return 1;
}

/* Sums come to exactly zero as good as never: one such element is enough. */
static void try_unwritten(struct task *t)
{
    for (size_t r = 0; r < t->n_rows; r++)
        for (uint32_t i = 0; i < t->s->width; i++)
            if (is_off(t, r, i) && t->rows[r].mine[i] != 0)
                return;
    if (claim(t, explains(t, predict_zero, NULL), 0, "values are zero: not written, or cleared"))
        t->best->blank = 1;
}

static int bit_of(uint32_t x)
{
    int n = 0;
    while (x >>= 1)
        n++;
    return n;
}

/* All that differs does by one bit, and that by more than rounding may. f16 is skipped: its values are kept widened, in
 * other bits. */
static void try_flipped_bit(struct task *t)
{
    enum { MOST = 4 };
    const int low = t->s->dtype == DS_BF16 ? 16 : 0; /* the lowest bit that is stored */
    uint32_t element = 0, changed = 0;
    size_t n = 0;
    if (t->s->dtype != DS_F32 && t->s->dtype != DS_BF16)
        return;
    for (size_t r = 0; r < t->n_rows; r++)
        for (uint32_t i = 0; i < t->s->width; i++) {
            const uint32_t x = ds_f32_bits(t->rows[r].mine[i]) ^ ds_f32_bits(t->rows[r].ref[i]);
            if (!x)
                continue;
            if ((x & (x - 1)) != 0 || !is_off(t, r, i) || n == MOST)
                return;
            if (n++ == 0) {
                element = i;
                changed = x;
            }
        }
    if (n == 1)
        claim(t, 1, 0, "a bit is flipped: bit %d of element %u", bit_of(changed) - low, element);
    else
        claim(t, 1, 0, "in each of %zu elements a bit is flipped, the first bit %d of element %u",
              n, bit_of(changed) - low, element);
}

/* One element, or a few, that are off by the same number in every row, or by the same factor. */
static void try_same_elements(struct task *t)
{
    enum { MOST = 4 };
    uint32_t element[MOST], n = 0;
    size_t rows = 0;
    double low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY};
    for (size_t r = 0; r < t->n_rows; r++) {
        rows += t->off_in_row[r] != 0;
        for (uint32_t i = 0; i < t->s->width; i++) {
            uint32_t k = 0;
            if (!is_off(t, r, i))
                continue;
            while (k < n && element[k] != i)
                k++;
            if (k == MOST)
                return;
            element[k] = i;
            n += k == n;
            const double ref = (double)t->rows[r].ref[i], mine = (double)t->rows[r].mine[i],
                         x[2] = {mine - ref, mine / ref};
            for (int what = 0; what < 2; what++) {
                low[what] = fmin(low[what], x[what]);
                high[what] = fmax(high[what], x[what]);
            }
        }
    }
    for (int what = 0; what < 2 && rows > 1; what++)
        if (high[what] - low[what] <= 1e-5 * fabs(high[what]))
            claim(t, 1, 0,
                  what ? "element %u%s is %.6g times the reference's"
                       : "element %u%s has %.6g added",
                  element[0], n > 1 ? " and others" : "", 0.5 * (low[what] + high[what]));
}

void try_few(struct task *t)
{
    t->least = 1;
    try_unwritten(t);
    if (!t->best->found)
        try_same_elements(t);
    if (!t->best->found)
        try_flipped_bit(t);
    t->least = STRUCTURE_LEAST_OFF;
}

/* ---- elements in each other's place ---------------------------------------------------------- */

struct moved {
    uint32_t *from; /* [width] which element of the reference stands here */
    uint32_t n;     /* that do not stand at home */
};

static int predict_moved(const struct task *t, size_t r, const void *how)
{
    const struct moved *m = how;
    for (uint32_t i = 0; i < t->s->width; i++)
        t->guess[i] = t->rows[r].ref[m->from[i]];
    return 1;
}

static int stands_here(const struct task *t, uint32_t here, uint32_t from)
{
    for (size_t r = 0; r < t->n_rows; r++)
        if (t->off_in_row[r] && !fits(t, r, here, (double)t->rows[r].ref[from]))
            return 0;
    return 1;
}

/* Of how many other elements it is expected that one fits by chance in all rows. */
static double by_chance(const struct task *t, size_t rows)
{
    const double step = t->s->dtype == DS_BF16 ? 0x1p-8 : t->s->dtype == DS_F16 ? 0x1p-11 : 0x1p-23;
    return (double)t->s->width * pow(fmin(1, 4 * (t->s->order + step)), (double)rows);
}

/* Where each element that is off comes from; 0: some have no place, or looking for them takes too long. */
static int find_places(const struct task *t, struct moved *m)
{
    enum { MOST_LOOKS = 1 << 24 };
    const uint32_t n = t->s->width;
    for (uint32_t i = 0; i < n; i++) {
        int off = 0;
        m->from[i] = i;
        for (size_t r = 0; r < t->n_rows && !off; r++)
            off = is_off(t, r, i);
        if (!off)
            continue;
        if ((uint64_t)++m->n * n > MOST_LOOKS)
            return 0;
        uint32_t k = 0;
        while (k < n && (k == i || !stands_here(t, i, k)))
            k++;
        if (k == n)
            return 0;
        m->from[i] = k;
    }
    return m->n > 1;
}

static int is_permutation(const struct task *t, const struct moved *m)
{
    /* sorted is scratch: one mark for each element */
    memset(t->sorted, 0, t->s->width * sizeof *t->sorted);
    for (uint32_t i = 0; i < t->s->width; i++)
        t->sorted[m->from[i]] += 1;
    for (uint32_t i = 0; i < t->s->width; i++)
        if (t->sorted[i] < 1)
            return 0;
    return 1;
}

static void tell_places(const struct task *t, const struct moved *m, char *text, size_t size)
{
    enum { TOLD = 6 };
    size_t at = 0;
    uint32_t told = 0;
    for (uint32_t i = 0; i < t->s->width && told < TOLD && at < size; i++)
        if (m->from[i] != i)
            at += (size_t)snprintf(text + at, size - at, "%s%u in %u", told++ ? ", " : "",
                                   m->from[i], i);
    if (m->n > told && at < size)
        snprintf(text + at, size - at, " and %u more", m->n - told);
}

int try_moved(struct task *t, struct ds_error *err)
{
    size_t rows = 0;
    char text[112];
    for (size_t r = 0; r < t->n_rows; r++)
        rows += t->off_in_row[r] != 0;
    if (by_chance(t, rows) > 1e-3)
        return 0;
    struct moved m = {.from = ds_calloc(t->s->width, sizeof *m.from, "structure", err)};
    if (!m.from)
        return -1;
    if (find_places(t, &m)) {
        tell_places(t, &m, text, sizeof text);
        claim(t, explains(t, predict_moved, &m), 0, "%s: %s",
              is_permutation(t, &m) ? "the same values stand in another order"
                                    : "elements hold the values of others",
              text);
    }
    free(m.from);
    return 0;
}
