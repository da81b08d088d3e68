/* verdict_places.c: rows that are right and stand where they should not: those of another position, request, stage
 * or layer, the kernel's input, or nothing. By their digests alone, which needs no dump. */
#include "dumps/evidence.h"

#include "base/dtype.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { ROWS_LOOKED_UP = 256, LEAST_WIDTH = 8, MOVED_TOLD = 4 };

/* Where the digest of a drifting row stands otherwise. */
struct place {
    enum { NOWHERE, NOTHING, OTHER_POSITION, OTHER_REQUEST, INPUT, OTHER_LAYER, OTHER_STAGE } what;
    int32_t number; /* distance in positions; layers before; INPUT, OTHER_STAGE: its site */
};

static int has(const struct arm_table *t, size_t cell, uint64_t digest)
{
    return t->state[cell] != CELL_ABSENT && t->digest[cell] == digest;
}

/* The digest of a row of zeros, which stands in many places, and says of none that it was meant. 0: not known. */
static uint64_t digest_of_zeros(const struct ds_header *h, uint32_t site, uint32_t arm)
{
    static const char zeros[1 << 14];
    const int dtype = ds_dtype_parse(ds_site_dtype(h, site, arm));
    const size_t bytes = dtype < 0 ? 0 : h->sites[site].width * ds_dtype_size(dtype);
    return bytes && bytes <= sizeof zeros ? XXH3_64bits(zeros, bytes) : 0;
}

/* A stage of the same layer whose row this is: the weights, or the buffer, of another one. */
static struct place find_stage(const struct ds_analysis *a, const struct ds_finding *f,
                               const struct arm_table *mine, const struct arm_table *ref,
                               uint32_t row, uint64_t digest)
{
    const struct ds_site *s = &a->h->sites[f->site];
    for (uint32_t o = 0; o < a->n_sites; o++) {
        const struct ds_site *x = &a->h->sites[o];
        if (o != f->site && x->layer == s->layer && x->width == s->width &&
            strcmp(x->dtype, "i32") != 0 && has(mine, (size_t)o * a->n_rows + row, digest) &&
            has(ref, (size_t)o * a->n_rows + row, digest)) /* no copy of what is wrong here */
            return (struct place){OTHER_STAGE, (int32_t)o};
    }
    return (struct place){NOWHERE, 0};
}

/* Whether the kernel read the same bits for two rows of the reference arm, as it does for equal tokens in
 * layer 0: then equal results say nothing about whose they are. */
static int same_inputs(const struct ds_analysis *a, const struct arm_table *ref, uint32_t site,
                       size_t x, size_t y)
{
    for (uint32_t e = a->in_start[site]; e < a->in_start[site + 1]; e++) {
        size_t from = (size_t)a->in_from[e] * a->n_rows;
        if (a->in_kind[e] != DS_EDGE_ROW)
            return 0;
        if (ref->state[from + x] == CELL_ABSENT || ref->state[from + y] == CELL_ABSENT ||
            ref->digest[from + x] != ref->digest[from + y])
            return 0;
    }
    return 1;
}

/* turned: where the reference's row stands on this side; that it is the kernel's input is no fault there: copies are. */
static struct place find_place(const struct ds_analysis *a, const struct ds_finding *f,
                               const struct chosen *c, uint32_t row, int turned)
{
    const struct arm_table *sides[2] = {chosen_table(a, f->arm, c), chosen_ref(a, f->ref_arm, c)},
                           *mine = sides[turned], *ref = sides[!turned],
                           *read = c->mine     ? &a->arms[c->given] /* what the kernel was given */
                                   : c->healed ? sides[1]
                                               : mine;
    const uint64_t digest = mine->digest[(size_t)f->site * a->n_rows + row];
    const struct ds_site *s = &a->h->sites[f->site];
    const struct ds_row_key *key = &a->keys[row];
    struct place best = {NOWHERE, 0};
    if (digest == digest_of_zeros(a->h, f->site, f->arm))
        return (struct place){NOTHING, 0};
    /* An input of one side alone, such as a sum of ranks, may be meant to be the output. */
    for (uint32_t e = a->in_start[f->site]; !turned && e < a->in_start[f->site + 1]; e++)
        if (a->in_kind[e] == DS_EDGE_ROW && a->h->sites[a->in_from[e]].width == s->width &&
            both_have(mine, ref, a->in_from[e]) &&
            has(read, (size_t)a->in_from[e] * a->n_rows + row, digest))
            return (struct place){INPUT, (int32_t)a->in_from[e]};
    for (size_t i = 0; i < a->n_rows; i++) {
        if (i == row || !has(ref, (size_t)f->site * a->n_rows + i, digest) ||
            same_inputs(a, sides[1], f->site, i, row))
            continue;
        int32_t away = a->keys[i].position - key->position;
        if (a->keys[i].request != key->request)
            best = best.what == NOWHERE ? (struct place){OTHER_REQUEST, 0} : best;
        else if (best.what != OTHER_POSITION || abs(away) < abs(best.number))
            best = (struct place){OTHER_POSITION, away};
    }
    for (uint32_t o = 0; o < a->n_sites && best.what == NOWHERE; o++) {
        const struct ds_site *x = &a->h->sites[o];
        if (o != f->site && strcmp(x->stage, s->stage) == 0 && strcmp(x->part, s->part) == 0 &&
            has(mine, (size_t)o * a->n_rows + row, digest))
            best = (struct place){OTHER_LAYER, s->layer - x->layer};
    }
    return best.what == NOWHERE && !turned ? find_stage(a, f, mine, ref, row, digest) : best;
}

static void tell_place(const struct ds_header *h, const struct place *p, uint64_t n, uint64_t of,
                       char *text, size_t size)
{
    const int32_t by = abs(p->number);
    switch (p->what) {
    case INPUT:
        snprintf(text, size, "%llu of %llu rows are the kernel's input %s%s%s, unchanged",
                 (unsigned long long)n, (unsigned long long)of, h->sites[p->number].stage,
                 h->sites[p->number].part[0] ? "/" : "", h->sites[p->number].part);
        break;
    case OTHER_POSITION:
        snprintf(text, size, "%llu of %llu rows hold the values of the position %d %s",
                 (unsigned long long)n, (unsigned long long)of, by,
                 p->number < 0 ? "before" : "after");
        break;
    case OTHER_STAGE:
        snprintf(text, size, "%llu of %llu rows are those of %s%s%s", (unsigned long long)n,
                 (unsigned long long)of, h->sites[p->number].stage,
                 h->sites[p->number].part[0] ? "/" : "", h->sites[p->number].part);
        break;
    case OTHER_REQUEST:
        snprintf(text, size, "%llu of %llu rows hold values of another request",
                 (unsigned long long)n, (unsigned long long)of);
        break;
    default:
        snprintf(text, size, "%llu of %llu rows hold the values of %d layer%s %s",
                 (unsigned long long)n, (unsigned long long)of, by, by == 1 ? "" : "s",
                 p->number > 0 ? "before" : "after");
    }
}

/* Which position's values stand at which, of those rows that hold another one's. */
struct moved {
    int32_t from[MOVED_TOLD], to[MOVED_TOLD];
    uint64_t n;
};

static void note_moved(struct moved *m, int32_t position, int32_t away)
{
    if (m->n < MOVED_TOLD) {
        m->from[m->n] = position + away;
        m->to[m->n] = position;
    }
    m->n++;
}

static void tell_moved(const struct moved *m, uint64_t rows, char *text, size_t size)
{
    size_t at = 0;
    if (m->n == 2 && m->from[0] == m->to[1] && m->from[1] == m->to[0]) {
        snprintf(text, size, "%llu of %llu rows are exchanged: positions %d and %d",
                 (unsigned long long)m->n, (unsigned long long)rows, m->to[0], m->to[1]);
        return;
    }
    at = (size_t)snprintf(text, size, "%llu of %llu rows hold the values of other positions:",
                          (unsigned long long)m->n, (unsigned long long)rows);
    for (uint64_t i = 0; i < m->n && i < MOVED_TOLD && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s %d in %d", i ? "," : "", m->from[i],
                               m->to[i]);
    if (m->n > MOVED_TOLD && at < size)
        snprintf(text + at, size - at, " and %llu more", (unsigned long long)(m->n - MOVED_TOLD));
}

static void tell_nothing(uint64_t rows, char *text, size_t size)
{
    const size_t at = strlen(text);
    snprintf(text + at, size - at, "; %llu hold%s nothing (zeros)", (unsigned long long)rows,
             rows == 1 ? "s" : "");
}

/* The place that most of the drifting rows have in common. Returns the share of the rows. */
static double find_on_side(const struct ds_analysis *a, const struct ds_finding *f,
                           const struct chosen *c, int turned, char *text, size_t size)
{
    const struct ds_site *s = &a->h->sites[f->site];
    struct place votes[16];
    struct moved other = {.n = 0};
    uint64_t count[16] = {0}, rows = 0, nothing = 0;
    size_t n = 0, best = 0;
    if (f->arm == f->ref_arm || strcmp(s->dtype, "i32") == 0 ||
        (s->width && s->width < LEAST_WIDTH))
        return 0;
    for (uint32_t i = 0; i < a->n_rows && rows < ROWS_LOOKED_UP; i++) {
        size_t cell = (size_t)f->site * a->n_rows + i;
        if ((c->labels[cell] & LABEL_MASK) != c->label)
            continue;
        struct place p = find_place(a, f, c, i, turned);
        size_t k = 0;
        rows++;
        nothing += p.what == NOTHING;
        if (p.what == OTHER_POSITION)
            note_moved(&other, a->keys[i].position, p.number);
        while (k < n && (votes[k].what != p.what || votes[k].number != p.number))
            k++;
        if (k == n && n == 16)
            continue;
        votes[k] = p;
        n += k == n;
        count[k]++;
    }
    uint64_t most = 0;
    for (size_t k = 0; k < n; k++)
        if (votes[k].what != NOWHERE && votes[k].what != NOTHING && count[k] > most) {
            best = k;
            most = count[k];
        }
    if (other.n > 1 && other.n >= 2 * most) { /* each as far as it likes */
        tell_moved(&other, rows, text, size);
        most = other.n;
    } else if (most) {
        tell_place(a->h, &votes[best], most, rows, text, size);
    }
    if (most && nothing)
        tell_nothing(nothing, text, size);
    return most ? (double)(most + nothing) / (double)rows : 0;
}

double find_misplaced(const struct ds_analysis *a, const struct ds_finding *f,
                      const struct chosen *c, char *text, size_t size)
{
    char other[DS_STRUCTURE_TEXT - 20] = "";
    const double share = find_on_side(a, f, c, 0, text, size),
                 turned = share > 0.5 ? 0 : find_on_side(a, f, c, 1, other, sizeof other);
    if (turned <= 0.5)
        return share;
    snprintf(text, size, "in the reference %s", other);
    return turned;
}
