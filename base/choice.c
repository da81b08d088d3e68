/* choice.c: see choice.h. */
#include "base/choice.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ENOUGH_BITS: some 100 rules are tried, and one in a million is no chance. */
enum { MOST_TOP = 64, MOST_BEHIND = 4, MOST_NAMED = 6, ENOUGH_BITS = 20 };

struct list {
    const struct ds_choice_row *rows;
    size_t n_rows;
    int64_t n, top;
    const char *what;
    size_t tell; /* rows whose choices are not the largest of all */
};

/* Whether entry i of row r takes part. how: of the rule. */
typedef int (*takes_part_fn)(const struct list *l, size_t r, int64_t i, const void *how);

static float chosen(const struct list *l, size_t r, int64_t k)
{
    return l->rows[r].x[l->rows[r].ids[k]];
}

static int is_chosen(const struct list *l, size_t r, int64_t i)
{
    for (int64_t k = 0; k < l->top; k++)
        if (l->rows[r].ids[k] == i)
            return 1;
    return 0;
}

static float least_chosen(const struct list *l, size_t r)
{
    float least = chosen(l, r, 0);
    for (int64_t k = 1; k < l->top; k++)
        least = fminf(least, chosen(l, r, k));
    return least;
}

/* Whether a row's choices take part, and nothing that does and was not chosen is larger than the least of them. */
static int row_holds(const struct list *l, size_t r, takes_part_fn takes_part, const void *how)
{
    const float least = least_chosen(l, r);
    for (int64_t i = 0; i < l->n; i++) {
        const int mine = is_chosen(l, r, i);
        if (mine ? !takes_part(l, r, i, how) : l->rows[r].x[i] > least && takes_part(l, r, i, how))
            return 0;
    }
    return 1;
}

static int holds(const struct list *l, takes_part_fn takes_part, const void *how)
{
    for (size_t r = 0; r < l->n_rows; r++)
        if (!row_holds(l, r, takes_part, how))
            return 0;
    return 1;
}

static int say(const struct list *l, char text[DS_CHOICE_TEXT], const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static int say(const struct list *l, char text[DS_CHOICE_TEXT], const char *fmt, ...)
{
    char which[120];
    va_list args;
    va_start(args, fmt);
    vsnprintf(which, sizeof which, fmt, args);
    va_end(args);
    snprintf(text, DS_CHOICE_TEXT, "%s; in %zu of %zu rows others are larger", which, l->tell,
             l->n_rows);
    return 1;
}

/* "the largest", "the 2 largest" */
static const char *the(const struct list *l, char text[32])
{
    if (l->top == 1)
        return "the largest";
    snprintf(text, 32, "the %lld largest", (long long)l->top);
    return text;
}

/* ---- the rules ------------------------------------------------------------------------------- */

static int takes_all(const struct list *l, size_t r, int64_t i, const void *how)
{
    (void)l, (void)r, (void)i, (void)how;
    return 1;
}

struct stretch {
    int64_t from, to, step; /* to: the last; every step-th */
};

static int in_stretch(const struct list *l, size_t r, int64_t i, const void *how)
{
    const struct stretch *s = how;
    (void)l, (void)r;
    return i >= s->from && i <= s->to && (i - s->from) % s->step == 0;
}

/* The stretch of all that was ever chosen; or every second, third, ... entry, if those are of one class. */
static int try_stretch(const struct list *l, char text[DS_CHOICE_TEXT])
{
    static const int64_t steps[] = {1, 2, 3, 4, 8};
    int64_t low = l->n, high = -1;
    char most[32];
    for (size_t r = 0; r < l->n_rows; r++)
        for (int64_t k = 0; k < l->top; k++) {
            const int64_t id = l->rows[r].ids[k];
            low = id < low ? id : low;
            high = id > high ? id : high;
        }
    for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
        const struct stretch s = {steps[k] == 1 ? low : low % steps[k],
                                  steps[k] == 1 ? high : l->n - 1, steps[k]};
        if ((steps[k] == 1 && high - low + 1 == l->n) || steps[k] >= l->n ||
            !holds(l, in_stretch, &s))
            continue;
        return s.step == 1 ? say(l, text, "%s of %s %lld-%lld alone", the(l, most), l->what,
                                 (long long)low, (long long)high)
                           : say(l, text, "%s of %s %lld, %lld, %lld, ... alone", the(l, most),
                                 l->what, (long long)s.from, (long long)(s.from + s.step),
                                 (long long)(s.from + 2 * s.step));
    }
    return 0;
}

/* The group of `size` in which the row's first choice lies. */
static int in_group(const struct list *l, size_t r, int64_t i, const void *how)
{
    const int64_t size = *(const int64_t *)how;
    return i / size == l->rows[r].ids[0] / size;
}

/* Whether that is where the largest of all lies, in every row. */
static int is_of_largest(const struct list *l)
{
    for (size_t r = 0; r < l->n_rows; r++)
        for (int64_t i = 0; i < l->n; i++)
            if (l->rows[r].x[i] > chosen(l, r, 0))
                return 0;
    return 1;
}

static int try_groups(const struct list *l, char text[DS_CHOICE_TEXT])
{
    char most[32];
    for (int64_t groups = 2; groups <= 16 && l->top > 1; groups++) {
        const int64_t size = l->n / groups;
        if (l->n % groups || size <= l->top || !holds(l, in_group, &size))
            continue;
        return say(l, text, "%s of one group of %lld %s alone, %s", the(l, most), (long long)size,
                   l->what,
                   is_of_largest(l) ? "that in which the largest of all is"
                                    : "another one by row, not always that of the largest");
    }
    return 0;
}

/* One of each of `top` stretches, the largest there. */
static int try_slices(const struct list *l, char text[DS_CHOICE_TEXT])
{
    const int64_t size = l->n / l->top;
    if (l->top < 2 || l->n % l->top || size < 2)
        return 0;
    for (size_t r = 0; r < l->n_rows; r++) {
        uint64_t seen = 0;
        for (int64_t k = 0; k < l->top; k++) {
            const int64_t slice = l->rows[r].ids[k] / size;
            seen |= (uint64_t)1 << slice;
            for (int64_t i = slice * size; i < (slice + 1) * size; i++)
                if (l->rows[r].x[i] > chosen(l, r, k))
                    return 0;
        }
        if (__builtin_popcountll(seen) != l->top)
            return 0;
    }
    return say(l, text, "the largest of each %lld %s, one of every %lld", (long long)size, l->what,
               (long long)size);
}

/* How many that were not chosen are larger than the largest, or than the least, that was. */
static int64_t larger_than(const struct list *l, size_t r, float x)
{
    int64_t larger = 0;
    for (int64_t i = 0; i < l->n; i++)
        larger += l->rows[r].x[i] > x && !is_chosen(l, r, i);
    return larger;
}

static int try_behind(const struct list *l, char text[DS_CHOICE_TEXT])
{
    char most[32];
    const int64_t behind = larger_than(l, 0, chosen(l, 0, 0));
    if (behind < 1 || behind > MOST_BEHIND)
        return 0;
    for (size_t r = 0; r < l->n_rows; r++)
        if (larger_than(l, r, chosen(l, r, 0)) != behind ||
            larger_than(l, r, least_chosen(l, r)) != behind)
            return 0;
    return behind == 1 ? say(l, text, "%s behind the first, which is left out", the(l, most))
                       : say(l, text, "%s behind the first %lld, which are left out", the(l, most),
                             (long long)behind);
}

static int try_smallest(const struct list *l, char text[DS_CHOICE_TEXT])
{
    for (size_t r = 0; r < l->n_rows; r++)
        for (int64_t i = 0; i < l->n; i++)
            for (int64_t k = 0; k < l->top; k++)
                if (l->rows[r].x[i] < chosen(l, r, k) && !is_chosen(l, r, i))
                    return 0;
    if (l->top == 1)
        return say(l, text, "the smallest of all %s", l->what);
    return say(l, text, "the %lld smallest of all %s", (long long)l->top, l->what);
}

static int try_sizes(const struct list *l, char text[DS_CHOICE_TEXT])
{
    char most[32];
    for (size_t r = 0; r < l->n_rows; r++)
        for (int64_t i = 0; i < l->n; i++)
            for (int64_t k = 0; k < l->top; k++)
                if (fabsf(l->rows[r].x[i]) > fabsf(chosen(l, r, k)) && !is_chosen(l, r, i))
                    return 0;
    return say(l, text, "%s in size, whatever the sign", the(l, most));
}

/* ---- entries that are never chosen ------------------------------------------------------------ */

enum { CHOSEN = 1, LARGER = 2 };

static int is_not_left_out(const struct list *l, size_t r, int64_t i, const void *how)
{
    const uint8_t *used = how;
    (void)l, (void)r;
    return used[i] != LARGER;
}

/* What rows but one chose, and what was larger there and was not chosen. */
static void look_without(const struct list *l, size_t without, uint8_t *used)
{
    memset(used, 0, (size_t)l->n);
    for (size_t r = 0; r < l->n_rows; r++) {
        const float least = least_chosen(l, r);
        for (int64_t i = 0; i < l->n && r != without; i++)
            used[i] |= (uint8_t)(is_chosen(l, r, i)        ? CHOSEN
                                 : l->rows[r].x[i] > least ? LARGER
                                                           : 0);
    }
}

/* A few entries that are left out of all rows. A set that is fitted to the rows fits them: what counts is that the other
 * rows foretell each one. */
static int try_left_out(const struct list *l, uint8_t *used, char text[DS_CHOICE_TEXT])
{
    size_t foretold = 0, at = 0;
    int64_t out = 0;
    char names[64] = "", most[32];
    for (size_t r = 0; r < l->n_rows; r++) {
        look_without(l, r, used);
        foretold += !row_holds(l, r, takes_all, NULL) && row_holds(l, r, is_not_left_out, used);
    }
    look_without(l, SIZE_MAX, used);
    if (foretold < DS_CHOICE_TELLING || 4 * foretold < 3 * l->tell ||
        !holds(l, is_not_left_out, used))
        return 0;
    for (int64_t i = 0; i < l->n; i++)
        if (used[i] == LARGER && ++out <= MOST_NAMED && at < sizeof names)
            at += (size_t)snprintf(names + at, sizeof names - at, "%s%lld", at ? ", " : "",
                                   (long long)i);
    if (2 * out > l->n)
        return 0;
    return say(l, text, "%s of all %s but %s%s, never chosen", the(l, most), l->what, names,
               out > MOST_NAMED ? " and more" : "");
}

/* ---- all -------------------------------------------------------------------------------------- */

static int is_sound(const struct list *l)
{
    for (size_t r = 0; r < l->n_rows; r++) {
        for (int64_t k = 0; k < l->top; k++)
            if (l->rows[r].ids[k] < 0 || l->rows[r].ids[k] >= l->n)
                return 0;
        for (int64_t i = 0; i < l->n; i++)
            if (isnan(l->rows[r].x[i]))
                return 0;
        for (int64_t k = 1; k < l->top; k++) /* best first, each once */
            if (!(chosen(l, r, k) <= chosen(l, r, k - 1)) ||
                l->rows[r].ids[k] == l->rows[r].ids[k - 1])
                return 0;
    }
    return 1;
}

/* How unlikely it is that choices at random are those that a rule gives: one of so many sets, as bits. */
static double bits_of_choice(const struct list *l)
{
    double bits = 0;
    for (int64_t k = 0; k < l->top; k++)
        bits += log2((double)(l->n - k) / (double)(k + 1));
    return bits;
}

int ds_choice_part(const struct ds_choice_row *rows, size_t n_rows, int64_t n, int64_t top,
                   const char *what, uint8_t *used, char text[DS_CHOICE_TEXT])
{
    struct list l = {.rows = rows, .n_rows = n_rows, .n = n, .top = top, .what = what};
    text[0] = '\0';
    if (top < 1 || top > MOST_TOP || top >= n || !is_sound(&l))
        return 0;
    for (size_t r = 0; r < n_rows; r++)
        l.tell += !row_holds(&l, r, takes_all, NULL);
    if (l.tell < DS_CHOICE_TELLING || (double)l.tell * bits_of_choice(&l) < ENOUGH_BITS)
        return 0;
    return try_stretch(&l, text) || try_groups(&l, text) || try_slices(&l, text) ||
           try_behind(&l, text) || try_smallest(&l, text) || try_sizes(&l, text) ||
           try_left_out(&l, used, text);
}
