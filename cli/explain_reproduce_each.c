/* explain_reproduce_each.c: reproducers of ops whose elements stand alone: rope, silu_mul, add, copies. */
#include "cli/explain_reproduce.h"

#include "base/dtype.h"
#include "kernels/lab/explain_each.h"

#include <stdio.h>
#include <string.h>

struct own {
    float v[DS_SHOWN_ELEMENTS][4];
    int32_t place[DS_SHOWN_ELEMENTS];
};

/* What an element is made of; of another row or column where a side is thought to have read that. */
static void gather(const struct ds_shown *s, const struct ds_explain_guess *g, struct own *to)
{
    for (size_t i = 0; i < s->n; i++) {
        struct ds_each_terms t;
        size_t row = s->from_row[i];
        int64_t c = s->column[i];
        if (g && g->kind == DS_GUESS_ROW && (int64_t)row == g->a)
            row = (size_t)g->b;
        if (g && g->kind == DS_GUESS_COLUMNS && c + g->a >= 0 && c + g->a < s->width)
            c += g->a;
        ds_each_terms(&s->x->c->e, DS_SIDE_A, row, c, &t);
        memcpy(to->v[i], t.v, sizeof t.v);
        to->place[i] = t.at;
    }
}

static int gives(const struct ds_shown *s, int side, int form, const struct own *own)
{
    for (size_t i = 0; i < s->n; i++) {
        struct ds_each_terms t = {.at = own->place[i]};
        memcpy(t.v, own->v[i], sizeof t.v);
        const float y = ds_shown_stored(s, ds_each_value(s->x->c->e.op, form, &t));
        if (ds_f32_bits(y) != ds_f32_bits(s->y[side][i]))
            return 0;
    }
    return 1;
}

/* A side whose way is not known, computed as the other one from what it is thought to have read. */
static void guess(struct ds_shown *s, int side, struct own *own)
{
    const struct ds_explain_noise *n = &s->x->noise;
    const struct ds_explain_guess *g = &n->guess[side];
    const int other = DS_SIDE_B - side;
    if (g->kind != DS_GUESS_ROW && g->kind != DS_GUESS_COLUMNS)
        return;
    snprintf(s->guess[side], sizeof s->guess[side], "%s", g->text);
    s->near[side] = 8 * n->order_error.most;
    gather(s, g, own);
    if (s->known[other] && gives(s, side, s->form[other], own)) {
        s->form[side] = s->form[other];
        s->known[side] = 1;
    }
}

int ds_shown_each(struct ds_shown *s, struct ds_error *err)
{
    struct own *own = ds_shown_room(s, DS_SHOWN_DATA, sizeof *own, err);
    if (!own || ds_shown_choose(s, err) != 0)
        return -1;
    for (int i = 0; i < DS_SHOWN_DATA; i++)
        gather(s, NULL, &own[i]);
    for (int i = 0; i < DS_SIDES; i++) {
        if (!s->known[i])
            guess(s, i, &own[i]);
        if (s->known[i] && !gives(s, i, s->form[i], &own[i]))
            return ds_fail(err, "--reproducer: it would show nothing: %c does not come out",
                           'A' + i);
    }
    for (int i = 0; i < DS_SHOWN_DATA; i++) {
        ds_shown_array(s, "v", i, DS_ARRAY_F32, s->n, 4, own[i].v);
        ds_shown_array(s, "in_pair", i, DS_ARRAY_I32, s->n, 0, own[i].place);
    }
    return 0;
}
