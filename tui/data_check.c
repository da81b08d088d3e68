/* data_check.c: dumped rows held against their digests, as `show` and `diff` do, piece by piece, so that keys are answered
 * meanwhile; and what is told of those that do not have theirs. Runs in the worker's thread. */
#include "tui/data_internal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Some hundredths of a second: nobody who asks for something waits longer. */
enum { PIECE_BYTES = 32 << 20 };

static struct book_side *next_side(const struct tui_data *d)
{
    struct book *b = d->book;
    for (int k = 0; b && k < b->n_sides; k++)
        if (!b->side[k].checked)
            return &b->side[k];
    return NULL;
}

int check_is_due(const struct tui_data *d)
{
    return !d->live && !d->unchecked && next_side(d) != NULL;
}

void check_again(struct book_side *s)
{
    s->next_row = 0;
    s->checked = 0;
}

int check_piece(struct tui_data *d)
{
    struct book_side *s = next_side(d);
    struct ds_damage *list;
    struct ds_error ignored; /* no memory: what was not looked at is found when it is asked for */
    size_t n;
    if (ds_record_verify_piece(s->record, &s->next_row, PIECE_BYTES, &ignored) > 0)
        return 0;
    s->checked = 1;
    if (ds_record_damages(s->record, &list, &n, &ignored) != 0)
        return 0;
    const int before = s->n_damage != 0;
    free(s->damage);
    s->damage = list;
    s->n_damage = n;
    return n || before;
}

/* ---- for the screen -------------------------------------------------------------------------- */

static int by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int copy_side(struct snapshot *s, int k, const struct book_side *from, struct ds_error *err)
{
    struct ds_damage_side *to = &s->damage[k];
    struct tui_whole *w = &s->whole;
    *to = (struct ds_damage_side){.header = w->sides[k], .verified = from->checked};
    if (!from->n_damage)
        return 0;
    if (!(to->list = ds_calloc(from->n_damage, sizeof *to->list, "damage", err)))
        return -1;
    memcpy(to->list, from->damage, from->n_damage * sizeof *to->list);
    to->n = from->n_damage;
    for (size_t i = 0; i < to->n; i++)
        if (to->list[i].dumped)
            s->damaged_rows[w->n_damaged_rows++] = to->list[i].digest;
    return 0;
}

static int copy_damage(struct snapshot *s, const struct book *b, size_t n, struct ds_error *err)
{
    if (!(s->damaged_rows = ds_calloc(n, sizeof *s->damaged_rows, "damage", err)))
        return -1;
    for (int k = 0; k < b->n_sides; k++)
        if (copy_side(s, k, &b->side[k], err) != 0)
            return -1;
    qsort(s->damaged_rows, s->whole.n_damaged_rows, sizeof *s->damaged_rows, by_number);
    s->whole.damaged_rows = s->damaged_rows;
    s->whole.report.damage = s->damage;
    return 0;
}

int check_tell(struct snapshot *s, const struct book *b, struct ds_error *err)
{
    size_t n = 0;
    for (int k = 0; b && k < b->n_sides; k++)
        n += b->side[k].n_damage;
    if (n && copy_damage(s, b, n, err) != 0)
        return -1;
    if (s->whole.verdict && (n || s->whole.damaged)) {
        s->verdict = *s->whole.verdict;
        ds_report_damage_judge(&s->whole.report, &s->verdict);
        s->whole.verdict = s->whole.report.v = &s->verdict;
    }
    return 0;
}

void check_free(struct snapshot *s)
{
    free(s->damaged_rows);
    for (int k = 0; k < 2; k++)
        free(s->damage[k].list);
}

int tui_whole_damaged(const struct tui_whole *w, uint64_t digest)
{
    return w->n_damaged_rows && bsearch(&digest, w->damaged_rows, w->n_damaged_rows,
                                        sizeof *w->damaged_rows, by_number) != NULL;
}
