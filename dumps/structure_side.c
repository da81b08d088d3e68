/* structure_side.c: whose fault a difference is, as far as the rows at hand tell: where one side is what the op makes of
 * its inputs and the other is not, what is found is said of the other, be it the reference. See structure.h. */
#include "dumps/structure_rope.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double all_but_few = 0.97;

/* ---- what an op makes of its inputs ------------------------------------------------------------ */

static int predict_sum(const struct task *t, size_t r, const void *how)
{
    const struct ds_structure_row *row = &t->rows[r];
    (void)how;
    for (uint32_t k = 0; k < t->s->n_terms; k++)
        if (!row->term[k])
            return -1;
    for (uint32_t i = 0; i < t->s->width; i++) {
        double sum = 0;
        for (uint32_t k = 0; k < t->s->n_terms; k++)
            sum += (double)row->term_weight[k] * (double)row->term[k][i];
        t->guess[i] = (float)sum;
    }
    return 1;
}

static int predict_rotated(const struct task *t, size_t r, const void *how)
{
    const struct ds_structure_row *row = &t->rows[r];
    const uint32_t dim = structure_rotated(t->s);
    const int pairing = *(const int *)how;
    struct turn turn;
    if (!row->input)
        return -1;
    for (uint32_t p = 0; p < dim / 2; p++) {
        const double angle = row->position * pow(t->s->rope_base, -2.0 * p / dim);
        turn.cosine[p] = cos(angle);
        turn.sine[p] = sin(angle);
    }
    structure_turn_row(t->s, pairing, row->input, &turn, t->guess);
    return 1;
}

static double divisor(const struct task *t, size_t r)
{
    double squares = 0;
    for (uint32_t i = 0; i < t->s->width; i++)
        squares += (double)t->rows[r].input[i] * (double)t->rows[r].input[i];
    return sqrt(squares / t->s->width + t->s->eps);
}

/* A norm's weight is not at hand; but it is one for all rows, so each row gives it as the first one does. */
static int predict_normed(const struct task *t, size_t r, const void *how)
{
    const size_t first = *(const size_t *)how;
    const struct ds_structure_row *row = &t->rows[r], *one = &t->rows[first];
    if (!row->input || r == first)
        return -1;
    const double times = divisor(t, first) / divisor(t, r);
    for (uint32_t i = 0; i < t->s->width; i++) {
        const double x = (double)one->input[i];
        t->guess[i] =
            x != 0 ? (float)(times * (double)row->input[i] / x * (double)one->mine[i]) : NAN;
    }
    return 1;
}

static int is_normed(const struct task *t)
{
    size_t first = 0, rows = 0;
    for (size_t r = t->n_rows; r-- > 0;)
        if (t->off_in_row[r] && t->rows[r].input) {
            first = r;
            rows++;
        }
    if (rows < 3 || !(t->s->eps > 0) || t->s->dtype != DS_F32)
        return 0; /* two rows of one size have one ratio whatever they are divided by */
    return explains(t, predict_normed, &first) >= all_but_few;
}

static int is_plain(const struct task *t)
{
    static const int pairings[] = {BY_HALVES, BY_NEIGHBOURS};
    const uint32_t dim = structure_rotated(t->s);
    if (t->s->op == DS_STRUCTURE_NORM)
        return is_normed(t);
    if (t->s->gated)
        return structure_makes_gate(t);
    if (t->s->op == DS_STRUCTURE_ROPE) {
        for (int i = 0; i < 2 && t->s->head_dim && t->s->rope_base > 0 && dim / 2 <= MOST_PAIRS;
             i++)
            if (explains(t, predict_rotated, &pairings[i]) >= all_but_few)
                return 1;
        return 0;
    }
    return t->s->n_terms > 1 && explains(t, predict_sum, NULL) >= all_but_few;
}

/* ---- the other way round ----------------------------------------------------------------------- */

/* Each "the reference" of the text becomes "this side": the roles were exchanged when it was found. */
static void tell_turned(struct ds_structure *best)
{
    static const char theirs[] = "the reference", ours[] = "this side",
                      prefix[] = "in the reference ";
    char text[DS_STRUCTURE_TEXT] = "";
    size_t n = (size_t)snprintf(text, sizeof text, "%s", prefix);
    if (strncmp(best->text, "values are zero:", 16) == 0) {
        snprintf(best->text, sizeof best->text,
                 "the reference's values are zero, these are not: not written there, or cleared");
        return;
    }
    for (const char *p = best->text; *p && n + 1 < sizeof text;) {
        const int here = strncmp(p, theirs, sizeof theirs - 1) == 0;
        if (here)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s", ours);
        else
            text[n++] = *p;
        n = n < sizeof text ? n : sizeof text - 1;
        text[n] = '\0';
        p += here ? sizeof theirs - 1 : 1;
    }
    memcpy(best->text, text, sizeof text);
}

static void exchange(const struct task *t, struct ds_structure_row *turned)
{
    for (size_t r = 0; r < t->n_rows; r++) {
        turned[r] = t->rows[r];
        turned[r].mine = t->rows[r].ref;
        turned[r].ref = t->rows[r].mine;
    }
}

int structure_turned(struct task *t, int only_if_right, int *right,
                     int (*look)(struct task *, struct ds_error *), struct ds_error *err)
{
    const struct ds_structure_row *rows = t->rows;
    struct ds_structure_row *turned = ds_calloc(t->n_rows, sizeof *turned, "structure", err);
    if (!turned)
        return -1;
    exchange(t, turned);
    const int mine = is_plain(t);
    t->rows = turned;
    t->turned = 1;
    structure_look(t);
    *right = mine - is_plain(t);
    int rc = 0;
    if ((only_if_right ? *right > 0 : *right >= 0) && t->off >= STRUCTURE_LEAST_OFF)
        rc = look(t, err);
    if (t->best->found) {
        t->best->ratio = t->best->ratio != 0 ? 1 / t->best->ratio : 0;
        tell_turned(t->best);
    }
    t->rows = rows;
    t->turned = 0;
    structure_look(t);
    free(turned);
    return rc;
}
