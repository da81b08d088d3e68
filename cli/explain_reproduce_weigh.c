/* explain_reproduce_weigh.c: reproducers of softmax and attention: a few heads of a few rows with all their slots,
 * the orders of their sums, and the way from scores to outputs. */
#include "cli/explain_reproduce.h"

#include "base/dtype.h"
#include "kernels/lab/explain_weigh.h"

#include <stdio.h>
#include <string.h>

enum { MOST_GROUPS = 4, MOST_FLOATS = 1 << 21 };

/* A head of a row; of softmax a row. */
struct group {
    size_t row;
    int64_t head, slots, seen, usable;
};

struct ranges {
    int32_t *first, *begin, *end; /* [groups + 1]; [n] */
    int32_t n;
};

struct weigh {
    struct ds_shown *s;
    const struct ds_explain *e;
    int64_t heads, dim; /* softmax: 1, 0 */
    struct group group[MOST_GROUPS];
    size_t n_groups;
    int32_t *of, *channel, *first_slot, *seen; /* [n]; [n]; [groups + 1]; [groups] */
    float *q, *k, *v, *sink;
    struct {
        int32_t *scores, *sum, *values, *before;
        struct ranges part, block;
    } way[DS_SIDES];
};

/* ---- which heads ------------------------------------------------------------------------------ */

static void sizes_of(const struct weigh *w, struct group *g)
{
    const struct ds_explain_input *in = &w->e->rows[g->row].input[DS_SIDE_A];
    const int32_t window = w->e->op == DS_OP_ATTENTION ? w->e->shared.attention.window : 0;
    g->slots = w->dim ? in->slot + 1 - in->kv_first : w->s->width;
    g->seen = window > 0 && g->slots > window ? window : g->slots;
}

static int64_t columns_of(const struct weigh *w)
{
    return w->dim ? w->dim : w->s->width;
}

/* Among the best so far, the most usable first. */
static void consider(struct weigh *w, const struct group *g)
{
    size_t at = w->n_groups;
    while (at > 0 && w->group[at - 1].usable < g->usable)
        at--;
    if (at >= MOST_GROUPS || g->usable == 0)
        return;
    w->n_groups += w->n_groups < MOST_GROUPS;
    for (size_t i = w->n_groups - 1; i > at; i--)
        w->group[i] = w->group[i - 1];
    w->group[at] = *g;
}

static void choose_groups(struct weigh *w)
{
    struct ds_shown *s = w->s;
    const int64_t columns = columns_of(w);
    int64_t floats = 0;
    size_t keep = 0;
    ds_shown_rows(s);
    for (size_t r = 0; r < s->n_rows; r++)
        for (int64_t h = 0; h < w->heads; h++) {
            struct group g = {.row = s->rows[r], .head = h};
            for (int64_t c = 0; c < columns; c++)
                g.usable += ds_shown_usable(s, g.row, h * columns + c);
            sizes_of(w, &g);
            consider(w, &g);
        }
    while (keep < w->n_groups) {
        floats += w->group[keep].slots * (w->dim ? 2 * w->dim : 1);
        if (keep && floats > MOST_FLOATS)
            break;
        keep++;
    }
    w->n_groups = keep;
}

static void choose_elements(struct weigh *w)
{
    struct ds_shown *s = w->s;
    const int64_t columns = columns_of(w);
    for (size_t g = 0; g < w->n_groups; g++) {
        const int64_t most = DS_SHOWN_ELEMENTS / (int64_t)w->n_groups, all = w->group[g].usable;
        int64_t seen = 0, taken = 0;
        for (int64_t c = 0; c < columns && taken < most; c++) {
            const int64_t at = w->group[g].head * columns + c;
            if (!ds_shown_usable(s, w->group[g].row, at) || seen++ * most < taken * all)
                continue;
            w->of[s->n] = (int32_t)g;
            w->channel[s->n] = (int32_t)c;
            ds_shown_take(s, w->group[g].row, at);
            taken++;
        }
    }
}

/* ---- what they read --------------------------------------------------------------------------- */

static void gather(struct weigh *w)
{
    const struct ds_attention_args *a = &w->e->shared.attention;
    int32_t at = 0;
    for (size_t g = 0; g < w->n_groups; g++) {
        const struct group *one = &w->group[g];
        const struct ds_explain_input *in = &w->e->rows[one->row].input[DS_SIDE_A];
        w->first_slot[g] = at;
        w->seen[g] = (int32_t)one->seen;
        for (int64_t j = 0; j < one->slots && !w->dim; j++)
            w->k[at + j] = in->in[0][j];
        const size_t each = (size_t)w->dim * sizeof(float);
        if (w->dim) {
            const int64_t kv = one->head / (a->heads / a->kv_heads) * w->dim,
                          step = a->kv_heads * w->dim;
            memcpy(w->q + (int64_t)g * w->dim, in->in[0] + one->head * w->dim, each);
            for (int64_t j = 0; j < one->slots; j++) {
                memcpy(w->k + (at + j) * w->dim, in->k + j * step + kv, each);
                memcpy(w->v + (at + j) * w->dim, in->v + j * step + kv, each);
            }
            w->sink[g] = a->sinks ? a->sinks[one->head] : 0;
        }
        at += (int32_t)one->slots;
    }
    w->first_slot[w->n_groups] = at;
}

/* ---- one side -------------------------------------------------------------------------------- */

static int add_ranges(struct weigh *w, struct ranges *r, size_t g, const struct ds_weigh_part *p,
                      int n, struct ds_error *err)
{
    if (!r->first)
        r->first = ds_shown_room(w->s, MOST_GROUPS + 1, sizeof *r->first, err);
    int32_t *begin = ds_shown_room(w->s, (size_t)(r->n + n), sizeof *begin, err),
            *end = ds_shown_room(w->s, (size_t)(r->n + n), sizeof *end, err);
    if (!r->first || !begin || !end)
        return -1;
    for (int32_t i = 0; i < r->n; i++) {
        begin[i] = r->begin[i];
        end[i] = r->end[i];
    }
    for (int i = 0; i < n; i++) {
        begin[r->n + i] = (int32_t)p[i].begin;
        end[r->n + i] = (int32_t)p[i].end;
    }
    r->begin = begin;
    r->end = end;
    r->n += n;
    r->first[g + 1] = r->n;
    return 0;
}

/* Its parts, and the blocks before each of which the maximum moves on. */
static int take_ranges(struct weigh *w, int side, size_t g, const struct ds_weigh_form *f,
                       struct ds_error *err)
{
    const struct ds_explain_order *o = &w->s->x->order[side];
    const struct group *one = &w->group[g];
    const int64_t slots = one->slots - w->way[side].before[g];
    struct ds_weigh_part part[DS_WEIGH_MOST_PARTS] = {{0, slots, 0, 0}},
                         *block = ds_shown_room(w->s, (size_t)slots, sizeof *block, err);
    int n = 1, blocks = 0;
    if (!block)
        return -1;
    if (f->merge != DS_MERGE_NONE)
        n = ds_weigh_parts(
            &o->trees[o->tree_of[(int64_t)one->row * w->s->width + one->head * w->dim]].tree,
            o->cut_of[one->row], part, DS_WEIGH_MOST_PARTS);
    if (f->running == DS_MAX_BY_BLOCK)
        blocks = ds_weigh_parts(&o->trees[o->den_of[one->row]].tree, 2, block, (int)slots);
    for (; f->running == DS_MAX_BY_SLOT && blocks < slots; blocks++)
        block[blocks] = (struct ds_weigh_part){blocks, blocks + 1, 0, 0};
    return add_ranges(w, &w->way[side].part, g, part, n, err) != 0 ||
                   add_ranges(w, &w->way[side].block, g, block, blocks, err) != 0
               ? -1
               : 0;
}

static int take_side(struct weigh *w, int side, struct ds_error *err)
{
    struct ds_shown *s = w->s;
    const struct ds_explain_order *o = &s->x->order[side];
    const struct ds_weigh_form f = ds_weigh_form_of(o->form);
    for (size_t g = 0; g < w->n_groups; g++) {
        const struct group *one = &w->group[g];
        w->way[side].before[g] = o->clipped ? (int32_t)(one->slots - one->seen) : 0;
        if (ds_shown_tree(s, side, o, o->den_of[one->row], 0, &w->way[side].sum[g], err) != 0 ||
            (w->dim && ds_shown_tree(s, side, o, o->scores_of[one->row], 0, &w->way[side].scores[g],
                                     err) != 0) ||
            take_ranges(w, side, g, &f, err) != 0)
            return -1;
    }
    for (size_t i = 0; i < s->n && w->dim; i++)
        if (ds_shown_tree(s, side, o,
                          o->tree_of[s->from_row[i] * (size_t)s->width + (size_t)s->column[i]],
                          f.fma, &w->way[side].values[i], err) != 0)
            return -1;
    return 0;
}

/* ---- all ------------------------------------------------------------------------------------- */

static int setup(struct weigh *w, struct ds_error *err)
{
    struct ds_shown *s = w->s;
    size_t slots = 0;
    for (size_t g = 0; g < w->n_groups; g++)
        slots += (size_t)w->group[g].slots;
    const size_t each = w->dim ? (size_t)w->dim : 1;
    w->of = ds_shown_room(s, DS_SHOWN_ELEMENTS, sizeof *w->of, err);
    w->channel = ds_shown_room(s, DS_SHOWN_ELEMENTS, sizeof *w->channel, err);
    w->first_slot = ds_shown_room(s, MOST_GROUPS + 1, sizeof *w->first_slot, err);
    w->seen = ds_shown_room(s, MOST_GROUPS, sizeof *w->seen, err);
    w->q = ds_shown_room(s, MOST_GROUPS * each, sizeof *w->q, err);
    w->k = ds_shown_room(s, slots * each, sizeof *w->k, err);
    w->v = ds_shown_room(s, slots * each, sizeof *w->v, err);
    w->sink = ds_shown_room(s, MOST_GROUPS, sizeof *w->sink, err);
    int ok = w->of && w->channel && w->first_slot && w->seen && w->q && w->k && w->v && w->sink;
    for (int i = 0; i < DS_SIDES; i++) {
        w->way[i].scores = ds_shown_room(s, MOST_GROUPS, sizeof(int32_t), err);
        w->way[i].sum = ds_shown_room(s, MOST_GROUPS, sizeof(int32_t), err);
        w->way[i].values = ds_shown_room(s, DS_SHOWN_ELEMENTS, sizeof(int32_t), err);
        w->way[i].before = ds_shown_room(s, MOST_GROUPS, sizeof(int32_t), err);
        ok = ok && w->way[i].scores && w->way[i].sum && w->way[i].values && w->way[i].before;
    }
    return ok ? 0 : -1;
}

static void add_ranges_of(struct weigh *w, const char *const name[3], int side,
                          const struct ranges *r)
{
    ds_shown_array(w->s, name[0], side, DS_ARRAY_I32, r->first ? w->n_groups + 1 : 0, 0, r->first);
    ds_shown_array(w->s, name[1], side, DS_ARRAY_I32, (size_t)r->n, 0, r->begin);
    ds_shown_array(w->s, name[2], side, DS_ARRAY_I32, (size_t)r->n, 0, r->end);
}

static void add_side(struct weigh *w, int side)
{
    static const char *const part[] = {"first_part", "part_begin", "part_end"}, *const block[] = {
                                                                                    "first_block",
                                                                                    "block_begin",
                                                                                    "block_end"};
    struct ds_shown *s = w->s;
    const struct ds_weigh_form f = ds_weigh_form_of(s->known[side] ? s->form[side] : 0);
    ds_shown_array(s, "order_scores", side, DS_ARRAY_I32, w->n_groups, 0, w->way[side].scores);
    ds_shown_array(s, "order_sum", side, DS_ARRAY_I32, w->n_groups, 0, w->way[side].sum);
    ds_shown_array(s, "order_values", side, DS_ARRAY_I32, s->n, 0, w->way[side].values);
    ds_shown_array(s, "before", side, DS_ARRAY_I32, w->n_groups, 0, w->way[side].before);
    add_ranges_of(w, part, side, &w->way[side].part);
    add_ranges_of(w, block, side, &w->way[side].block);
    ds_shown_number(s, "exp", side, f.exp);
    ds_shown_number(s, "maximum", side, f.running);
    ds_shown_number(s, "merge", side, f.merge);
    ds_shown_number(s, "fma", side, f.fma);
    ds_shown_number(s, "reciprocal", side, f.reciprocal);
    ds_shown_number(s, "sink_last", side, f.sink_last);
}

static void add_arrays(struct weigh *w)
{
    struct ds_shown *s = w->s;
    const struct ds_attention_args *a = &w->e->shared.attention;
    const size_t slots = (size_t)w->first_slot[w->n_groups], dim = (size_t)w->dim;
    ds_shown_array(s, "group", -1, DS_ARRAY_I32, s->n, 0, w->of);
    ds_shown_array(s, "channel", -1, DS_ARRAY_I32, s->n, 0, w->channel);
    ds_shown_array(s, "first_slot", -1, DS_ARRAY_I32, w->n_groups + 1, 0, w->first_slot);
    ds_shown_array(s, "seen", -1, DS_ARRAY_I32, w->n_groups, 0, w->seen);
    ds_shown_array(s, "q", -1, DS_ARRAY_F32, dim ? w->n_groups : 0, dim, w->q);
    ds_shown_array(s, "k", -1, DS_ARRAY_F32, slots, dim, w->k);
    ds_shown_array(s, "v", -1, DS_ARRAY_F32, dim ? slots : 0, dim, w->v);
    ds_shown_array(s, "sink", -1, DS_ARRAY_F32, w->n_groups, 0, w->sink);
    ds_shown_number(s, "dim", -1, (double)w->dim);
    ds_shown_number(s, "scale", -1, w->dim ? (double)a->scale : 1);
    ds_shown_number(s, "soft_cap", -1, w->dim ? (double)a->soft_cap : 0);
    ds_shown_number(s, "has_sinks", -1, w->dim && a->sinks);
    for (int i = 0; i < DS_SIDES; i++)
        add_side(w, i);
}

int ds_shown_weigh(struct ds_shown *s, struct ds_error *err)
{
    struct weigh w = {.s = s, .e = &s->x->c->e, .heads = 1};
    if (w.e->op == DS_OP_ATTENTION) {
        w.heads = w.e->shared.attention.heads;
        w.dim = w.e->shared.attention.head_dim;
    }
    choose_groups(&w);
    if (w.n_groups == 0)
        return ds_fail(err, "--reproducer: no element of the rows dumped differs");
    if (setup(&w, err) != 0)
        return -1;
    choose_elements(&w);
    gather(&w);
    for (int i = 0; i < DS_SIDES; i++)
        if (s->known[i] && take_side(&w, i, err) != 0)
            return -1;
    add_arrays(&w);
    return 0;
}
