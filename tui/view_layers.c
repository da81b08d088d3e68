/* view_layers.c: Layers: every site of one arm against another on one map, layer by stage. view_layers_map.c is its
 * table, view_layers_mark.c its cells, view_layers_panel.c the words about one. */
#include "tui/view_layers.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VIEW_SITE = 2, PANEL_CELLS = 44 };

static struct layers_own *own(const struct tui_view *v)
{
    return v->own;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* "arm 5 (batch 4, threads 2) against arm 3: batch 1" */
static void name_pair(struct layers_own *o, const struct tui_context *c)
{
    const struct ds_header *h = c->whole->header;
    uint32_t arm = c->place->arm, ref = c->place->ref;
    struct ds_buf b = {0};
    o->pair[0] = '\0';
    if (arm >= h->n_arms || ref >= h->n_arms)
        return;
    ds_buf_printf(&b, "arm %" PRIu32 " (", arm);
    ds_report_arm_values(h, arm, &b);
    if (arm == ref)
        ds_buf_puts(&b, o->alone ? "), one trial: nothing to compare it with"
                                 : "), its own repeats against each other");
    else
        ds_buf_printf(&b, ") against arm %" PRIu32, ref);
    for (size_t f = 0, n = 0; f < h->n_factors; f++)
        if (strcmp(h->arms[arm].values[f], h->arms[ref].values[f]) != 0)
            ds_buf_printf(&b, "%s%s %s", n++ ? ", " : ": ", h->factors[f], h->arms[ref].values[f]);
    if (isfinite(o->low))
        ds_buf_printf(&b, "; bars 1e%.0f to 1e%.0f%s", o->low, o->high, o->adds ? ", + added" : "");
    snprintf(o->pair, sizeof o->pair, "%s", b.data ? b.data : "");
    ds_buf_free(&b);
}

static int make(struct tui_view *v, const struct tui_context *c, const struct tui_pair *pair,
                struct ds_error *err)
{
    struct layers_own *o = own(v);
    struct tui_source source;
    o->at = *c->place;
    o->ascii = c->ascii;
    o->screen = c->columns;
    o->alone = tui_alone(c->whole, c->place);
    if (layers_make(o, c->whole->header, pair, err) != 0)
        return -1;
    name_pair(o, c);
    o->table = &v->table;
    layers_source(o, &source);
    return tui_table_source(&v->table, &source, err);
}

static int empty(struct tui_view *v)
{
    struct tui_source none = {.name = "sites"};
    struct ds_error err;
    tui_table_source(&v->table, &none, &err);
    layers_free(own(v));
    v->seen = 0;
    tui_view_heads(v, 0);
    return TUI_EMPTY;
}

static void go(struct tui_view *v, uint32_t site)
{
    size_t row, column;
    if (layers_place_of(own(v), site, &row, &column) == 0)
        tui_table_go(&v->table, row, column);
}

static void head(struct tui_view *v, const struct tui_context *c)
{
    if (tui_view_heads(v, c->lines < 16 ? 0 : 1) == 0)
        tui_view_head(v, 0, TUI_PLAIN, " %s", own(v)->pair);
}

static int load(struct tui_view *v, const struct tui_context *c, char why[256])
{
    const char *error = NULL;
    struct ds_error err = {"", ""};
    const struct tui_place *p = c->place;
    why[0] = '\0';
    if (!v->own && !(v->own = ds_calloc(1, sizeof(struct layers_own), "the view", &err))) {
        snprintf(why, 256, "out of memory");
        return TUI_EMPTY;
    }
    struct layers_own *o = own(v);
    const struct tui_pair *pair = tui_data_pair(c->data, p->arm, p->ref, &error);
    int same =
        o->n_sites && v->seen == c->whole->generation && o->at.arm == p->arm && o->at.ref == p->ref;
    if (!same && !pair && !error)
        return TUI_WAITING; /* the table stays, with its filter, order and marks */
    if (!same && !pair) {
        snprintf(why, 256, "%s", error);
        return empty(v);
    }
    int went = !same || o->at.site != p->site;
    if ((!same || o->at.metric != p->metric || o->ascii != c->ascii || o->screen != c->columns) &&
        pair && make(v, c, pair, &err) != 0) {
        snprintf(why, 256, "%.255s", err.msg);
        return empty(v);
    }
    if (went)
        go(v, p->site);
    o->at = *p;
    v->seen = c->whole->generation;
    v->at = *p;
    head(v, c);
    return TUI_READY;
}

static void want(const struct tui_view *v, const struct tui_context *c, struct tui_want *out)
{
    *out = (struct tui_want){.head_lines = v->n_head,
                             .panel_columns = PANEL_CELLS,
                             .panel_lines = c->lines >= 48   ? 12
                                            : c->lines >= 32 ? 8
                                            : c->lines >= 20 ? 4
                                                             : 0,
                             .table_columns = own(v)->need};
}

/* ---- moving ---------------------------------------------------------------------------------- */

static void moved(struct tui_view *v, const struct tui_context *c)
{
    struct layers_own *o = own(v);
    if (!o)
        return;
    uint32_t site = layers_site_at(o, tui_table_row(&v->table), v->table.column, c->place->site);
    if (site == UINT32_MAX || site == c->place->site)
        return;
    c->place->site = o->at.site = site;
    c->place->element = 0;
    v->at = *c->place;
}

/* Folds what is folded least; everything open again after that. */
static int fold(struct tui_view *v)
{
    struct layers_own *o = own(v);
    if (o->unfolded) {
        o->unfolded = o->parts_folded = 0;
    } else if (o->n_parts && !o->parts_folded) {
        o->parts_folded = 1;
    } else {
        o->unfolded = 1;
        o->parts_folded = 0;
    }
    v->seen = 0; /* made anew */
    return 1;
}

/* The next cell, in the order shown, whose site fits; sites in no layer are lines of their own, which tables do not ask
 * about. */
static int step_to(struct tui_view *v, const struct tui_context *c, int what, int step,
                   struct ds_error *err)
{
    const struct layers_own *o = own(v);
    struct tui_table *t = &v->table;
    size_t place = t->cursor, column = t->column;
    while (t->n_shown) {
        int text = o->lines[o->rows[t->shown[place]].line].name[0];
        size_t first = LAYERS_FIRST, last = LAYERS_FIRST + o->n_columns - 1;
        if (text || o->n_columns == 0 || (step > 0 ? column >= last : column <= first)) {
            if (step > 0 ? place + 1 >= t->n_shown : place == 0)
                break;
            place += step > 0 ? 1 : (size_t)-1;
            column = step > 0 ? first : last;
        } else {
            column += step > 0 ? 1 : (size_t)-1;
        }
        if (!(layers_is(o, t->shown[place], column) & what))
            continue;
        text = o->lines[o->rows[t->shown[place]].line].name[0];
        tui_table_go(t, t->shown[place], text ? t->column : column);
        moved(v, c);
        return 1;
    }
    return ds_fail(err, "no %s further %s", what == TUI_IS_DRIFT ? "drift" : "jump in size",
                   step > 0 ? "down" : "up");
}

/* In execution order; what has none has the record's first drift, which the frame knows. */
static int first_origin(struct tui_view *v, const struct tui_context *c)
{
    const struct layers_own *o = own(v);
    for (uint32_t s = 0; s < o->n_sites; s++)
        if (o->kinds[s] == '#' || o->kinds[s] == '@') {
            c->place->site = s;
            c->place->element = 0;
            return 1;
        }
    return 0;
}

/* Opens a site at a row of it that differs, if any does: the one where the user is, else the first. */
static int open_site(const struct tui_context *c, uint32_t site, int *next)
{
    const struct tui_pair *p = tui_data_pair(c->data, c->place->arm, c->place->ref, NULL);
    const uint8_t *labels = p && site < p->n_sites ? p->labels + (size_t)site * p->n_rows : NULL;
    c->place->site = site;
    if (labels && (c->place->row >= p->n_rows || labels[c->place->row] < DS_LABEL_ORIGIN))
        for (size_t i = 0; i < p->n_rows; i++)
            if (labels[i] >= DS_LABEL_ORIGIN) {
                c->place->row = i;
                c->place->element = 0;
                break;
            }
    *next = VIEW_SITE;
    return 2;
}

static int request(struct tui_view *v, const struct tui_context *c, int r, int *next,
                   struct ds_error *err)
{
    struct layers_own *o = own(v);
    if (!o || !o->n_sites)
        return 0;
    if (r == TUI_NEXT_DRIFT || r == TUI_PREVIOUS_DRIFT)
        return step_to(v, c, TUI_IS_DRIFT, r == TUI_NEXT_DRIFT ? 1 : -1, err);
    if (r == TUI_NEXT_JUMP || r == TUI_PREVIOUS_JUMP)
        return step_to(v, c, TUI_IS_JUMP, r == TUI_NEXT_JUMP ? 1 : -1, err);
    if (r == TUI_FIRST_ORIGIN)
        return first_origin(v, c);
    if (r == TUI_FOLD)
        return fold(v);
    if (r != TUI_ENTER)
        return 0;
    uint32_t site = layers_site_at(o, tui_table_row(&v->table), v->table.column, c->place->site);
    if (site == UINT32_MAX)
        return ds_fail(err, "the layer has no such stage");
    return open_site(c, site, next);
}

/* ---- what is said of it ---------------------------------------------------------------------- */

static void command(const struct tui_view *v, const struct tui_context *c, struct ds_buf *out)
{
    (void)v;
    tui_pair_command(c, "--sites --long", out);
}

static void status(const struct tui_view *v, const struct tui_context *c, struct ds_buf *out)
{
    static const char *const names[] = {"same", "healed", "drift", "non-finite", "not compared"};
    const struct layers_own *o = own(v);
    char words[64];
    if (!o || !o->n_sites)
        return;
    for (int i = 0; i < 5; i++)
        if (i == 0 || i == 2 || o->of[i])
            ds_buf_printf(out, "%s%" PRIu32 " %s", i ? ", " : "", o->of[i], names[i]);
    uint32_t site = layers_site_at(o, tui_table_row(&v->table), v->table.column, c->place->site);
    char digit =
        site == UINT32_MAX || !layers_is_drift(o->marks[site])
            ? '3'
            : layers_digit(layers_size(&o->sums[site], c->place->metric), c->place->metric);
    layers_digit_words(digit, c->place->metric, words, sizeof words);
    ds_buf_printf(out, "; %s", words);
}

static void free_own(struct tui_view *v)
{
    if (v->own)
        layers_free(v->own);
    free(v->own);
    v->own = NULL;
}

const struct tui_view_ops tui_view_layers = {
    .name = "layers",
    .hints = "enter next-drift first-origin next-jump metric next-arm fold command help",
    .load = load,
    .want = want,
    .panel = layers_panel,
    .moved = moved,
    .request = request,
    .command = command,
    .status = status,
    .free_own = free_own,
};
