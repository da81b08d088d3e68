/* verdict_choice_part.c: of choices that differ from equal numbers: whether one side's are the largest of only a part of
 * them. What the rules are is base/choice.h's; here rows of the record are gathered, as far as they are dumped. */
#include "dumps/evidence.h"

#include "base/choice.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 64 };

/* Choices of both sides, and what they were made of. */
struct choices {
    struct row_values logits[MOST_ROWS];
    int32_t *ids[2][MOST_ROWS]; /* mine, the reference's */
    size_t n;
};

/* What a choice is made of: as many numbers as there are experts, or tokens. */
static uint32_t logits_of(const struct ds_analysis *a, uint32_t site)
{
    uint32_t best = NONE;
    for (uint32_t e = a->in_start[site]; e < a->in_start[site + 1]; e++) {
        const struct ds_site *from = &a->h->sites[a->in_from[e]];
        if (a->in_kind[e] == DS_EDGE_ROW && !from->part[0] && strcmp(from->dtype, "i32") != 0 &&
            (best == NONE || from->width > a->h->sites[best].width))
            best = a->in_from[e];
    }
    return best;
}

/* One row; 1: all of it is at hand. */
static int load_choice(const struct ds_analysis *a, const struct chosen *c,
                       const struct ds_finding *f, uint32_t from, size_t row, struct choices *x,
                       struct ds_error *err)
{
    const struct arm_table *t[2] = {chosen_table(a, f->arm, c), chosen_ref(a, f->ref_arm, c)};
    const uint32_t top = a->h->sites[f->site].width, n = a->h->sites[from].width;
    const size_t cell = (size_t)f->site * a->n_rows + row, source = (size_t)from * a->n_rows + row;
    int rc = 1;
    if (t[1]->state[source] != CELL_STABLE)
        return 0;
    for (int side = 0; side < 2 && rc == 1; side++) {
        rc = t[side]->state[cell] == CELL_STABLE
                 ? ids_of(a, t[side]->digest[cell], top, &x->ids[side][x->n], err)
                 : 1;
        rc = rc < 0 ? -1 : x->ids[side][x->n] != NULL;
    }
    if (rc == 1)
        rc = values_of(a, t[1]->digest[source], &x->logits[x->n], err);
    if (rc == 1 && x->logits[x->n].n == n)
        return 1;
    if (rc == 1)
        values_free(&x->logits[x->n]);
    for (int side = 0; side < 2; side++) {
        free(x->ids[side][x->n]);
        x->ids[side][x->n] = NULL;
    }
    return rc < 0 ? -1 : 0;
}

static int load_choices(const struct ds_analysis *a, const struct chosen *c,
                        const struct ds_finding *f, uint32_t from, struct choices *x,
                        struct ds_error *err)
{
    for (size_t i = 0; i < a->n_rows && x->n < MOST_ROWS; i++) {
        if ((c->labels[(size_t)f->site * a->n_rows + i] & LABEL_MASK) != c->label)
            continue;
        const int rc = load_choice(a, c, f, from, i, x, err);
        if (rc < 0)
            return -1;
        x->n += (size_t)rc;
    }
    return 0;
}

/* The side whose choices are not the largest of all: which part of them they are. */
static int tell_part(const struct ds_analysis *a, struct ds_finding *f, uint32_t from,
                     const struct choices *x, struct ds_error *err)
{
    const uint32_t n = a->h->sites[from].width;
    struct ds_choice_row rows[MOST_ROWS];
    char text[DS_CHOICE_TEXT];
    uint8_t *used = ds_calloc(n, 1, "choices", err);
    if (!used)
        return -1;
    for (int side = 0; side < 2; side++) {
        for (size_t r = 0; r < x->n; r++)
            rows[r] = (struct ds_choice_row){x->logits[r].value, x->ids[side][r]};
        if (ds_choice_part(rows, x->n, n, a->h->sites[f->site].width,
                           strcmp(a->h->sites[f->site].op, "sample") == 0 ? "tokens" : "experts",
                           used, text)) {
            const size_t at = strlen(f->why);
            snprintf(f->why + at, sizeof f->why - at, ": %s %s",
                     side ? "the reference chose" : "chosen are", text);
            break;
        }
    }
    free(used);
    return 0;
}

int tell_choice_part(const struct ds_analysis *a, const struct chosen *c, struct ds_finding *f,
                     struct ds_error *err)
{
    const uint32_t from = logits_of(a, f->site);
    struct choices *x;
    if (from == NONE || a->h->sites[from].width == 0 || a->h->sites[f->site].width == 0)
        return 0;
    if (!(x = ds_calloc(1, sizeof *x, "choices", err)))
        return -1;
    int rc = load_choices(a, c, f, from, x, err);
    rc = rc ? rc : tell_part(a, f, from, x, err);
    for (size_t i = 0; i < x->n; i++) {
        values_free(&x->logits[i]);
        free(x->ids[0][i]);
        free(x->ids[1][i]);
    }
    free(x);
    return rc;
}
