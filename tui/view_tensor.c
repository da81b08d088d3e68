/* view_tensor.c: Tensor: one row of a site on both sides, element by element. view_tensor_cells.c
 * is its table, view_tensor_panel.c the histogram. */
#include "tui/view_tensor.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "tui/number.h"
#include "tui/view_site.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- loading --------------------------------------------------------------------------------- */

static struct tensor_own *own(const struct tui_view *v)
{
    return v->own;
}

static const struct tui_row_fact *fact(const struct tensor_own *o, const struct tui_place *p)
{
    return o->site && p->row < o->site->n_rows ? &o->site->facts[p->row] : NULL;
}

/* Pointers of the data live until the next turn only: they are asked for anew before each use. */
static void refresh(const struct tui_view *v, const struct tui_context *c, const char **error)
{
    struct tensor_own *o = own(v);
    const struct tui_place *p = c->place;
    const struct ds_header *h = c->whole->header;
    const struct tui_row_fact *f;
    o->whole = c->whole;
    o->h = h;
    o->values = NULL;
    o->site = h ? tui_data_site(c->data, p->arm, p->ref, p->site, error) : NULL;
    if (h && p->site >= h->n_sites)
        o->site = NULL;
    if ((f = fact(o, p)) && (f->dumped || f->ref_dumped))
        o->values = tui_data_values(c->data, p->arm, p->ref, f->has ? f->digest : 0,
                                    f->ref_has ? f->ref_digest : 0, error);
    o->pair.data[DS_VALUES_REF] = o->values ? o->values->ref.data : NULL;
    o->pair.data[DS_VALUES_MINE] = o->values ? o->values->mine.data : NULL;
}

/* 1 a line differs, 0 not: numbers, places and formats are those that were made before. */
static int is_made(const struct tui_view *v, const struct tui_context *c)
{
    const struct tensor_own *o = own(v);
    const struct tui_place *a = &o->at, *p = c->place;
    return v->seen == c->whole->generation && a->arm == p->arm && a->ref == p->ref &&
           a->site == p->site && a->row == p->row && a->metric == p->metric &&
           a->number == p->number && o->ascii == c->ascii;
}

static int make(struct tui_view *v, const struct tui_context *c, struct ds_error *err)
{
    struct tensor_own *o = own(v);
    struct tui_source source;
    uint32_t width = o->h->sites[c->place->site].width;
    if (v->seen != c->whole->generation || o->at.arm != c->place->arm ||
        o->at.ref != c->place->ref || o->at.site != c->place->site || o->at.row != c->place->row)
        tui_table_mark(&v->table, 1); /* of another row */
    o->at = *c->place;
    o->ascii = c->ascii;
    ds_values_look(&o->pair, &o->values->ref, &o->values->mine);
    o->heads = ds_values_elements(&o->pair) == width ? ds_site_heads(o->h, c->place->site) : 0;
    o->head_dim = o->heads ? width / o->heads : 0;
    tensor_count(o);
    tensor_source(o, &source);
    return tui_table_source(&v->table, &source, err);
}

static const char *option(const struct ds_header *h, const char *name)
{
    for (size_t i = 0; i < h->n_options; i++)
        if (strcmp(h->options[i].name, name) == 0)
            return h->options[i].value;
    return NULL;
}

/* Which option keeps what is not here. */
static void tell_missing(const struct tensor_own *o, const struct tui_place *p, char why[256])
{
    const struct ds_row_key *k = &o->site->keys[p->row];
    const struct tui_row_fact *f = fact(o, p);
    const char *rows = option(o->h, "dump_rows");
    if (!f->has && !f->ref_has)
        snprintf(why, 256, "request %d, position %d: no side has this row here", k->request,
                 k->position);
    else
        snprintf(why, 256,
                 "request %d, position %d: its values are on neither side; run with --dump all "
                 "--dump-rows N keeps N rows of a site%s%.20s%s",
                 k->request, k->position, rows ? " (here: " : "", rows ? rows : "",
                 rows ? ")" : "");
}

static int nothing(struct tui_view *v, const struct tui_context *c, int state)
{
    struct tensor_own *o = own(v);
    if (o) {
        o->values = NULL;
        memset(&o->pair, 0, sizeof o->pair);
    }
    return tui_view_reset(v, c, "elements", state);
}

static int make_head(struct tui_view *v, const struct tui_context *c)
{
    const struct tensor_own *o = own(v);
    const struct tui_row_fact *f = fact(o, c->place);
    int label = o->site->labels[c->place->row];
    if (tui_view_heads(v, 1) != 0)
        return -1;
    struct ds_buf b = {0};
    const char *names[2] = {tui_side_name(o->whole, &o->at, 0), tui_side_name(o->whole, &o->at, 1)};
    ds_buf_printf(&b, "%s, %s row: ", ds_label_name(label), ds_row_kind_name(f->row.kind));
    ds_values_words(&o->pair, names, &b);
    tui_view_head(v, 0, tui_label_role(label), "%s", b.data ? b.data : "");
    ds_buf_free(&b);
    return 0;
}

static int load(struct tui_view *v, const struct tui_context *c, char why[256])
{
    const char *error = NULL;
    struct ds_error err = {"", ""};
    why[0] = '\0';
    if (!v->own && !(v->own = ds_calloc(1, sizeof(struct tensor_own), "the view", &err))) {
        snprintf(why, 256, "out of memory");
        return TUI_EMPTY;
    }
    struct tensor_own *o = own(v);
    refresh(v, c, &error);
    const struct tui_row_fact *f = fact(o, c->place);
    if (!o->values && (error || !o->h)) {
        snprintf(why, 256, "%.255s", error ? error : "nothing is read yet");
        return nothing(v, c, TUI_EMPTY);
    }
    if (!o->site || (f && !o->values && (f->dumped || f->ref_dumped))) {
        tui_view_heads(v, 0);
        return TUI_WAITING;
    }
    if (!f) {
        snprintf(why, 256, "the site has no such row");
        return nothing(v, c, TUI_EMPTY);
    }
    if (!o->values) {
        tell_missing(o, c->place, why);
        return nothing(v, c, TUI_EMPTY);
    }
    int went = !is_made(v, c) || v->at.element != c->place->element;
    if ((!is_made(v, c) && make(v, c, &err) != 0) || make_head(v, c) != 0) {
        snprintf(why, 256, "%.255s", err.msg[0] ? err.msg : "out of memory");
        return nothing(v, c, TUI_EMPTY);
    }
    if (ds_values_elements(&o->pair) == 0) {
        snprintf(why, 256, "the row has no elements that can be shown");
        return nothing(v, c, TUI_EMPTY);
    }
    if (went && c->place->element < ds_values_elements(&o->pair))
        tui_table_go(&v->table, c->place->element, 0);
    v->seen = c->whole->generation;
    v->at = *c->place;
    return TUI_READY;
}

static void want(const struct tui_view *v, const struct tui_context *c, struct tui_want *out)
{
    (void)v;
    *out = (struct tui_want){.head_lines = 1,
                             .panel_columns = 46,
                             .panel_lines = c->lines >= 40   ? 18
                                            : c->lines >= 22 ? 6
                                                             : 0,
                             .table_columns = 92};
}

/* ---- moving ---------------------------------------------------------------------------------- */

static void moved(struct tui_view *v, const struct tui_context *c)
{
    size_t i = tui_table_row(&v->table);
    if (!v->own || i == SIZE_MAX || i >= ds_values_elements(&own(v)->pair))
        return;
    c->place->element = i;
    v->at.element = i;
}

/* The next row of the site with values on a side: rows without have nothing to show here. */
static int step_row(const struct tui_view *v, const struct tui_context *c, int step,
                    struct ds_error *err)
{
    struct tensor_own *o = own(v);
    if (o)
        refresh(v, c, NULL);
    if (!o || !o->site)
        return ds_fail(err, "the site is still being read");
    for (size_t i = c->place->row;
         step < 0 ? i-- > 0 && i < o->site->n_rows : ++i < o->site->n_rows;)
        if (o->site->facts[i].dumped || o->site->facts[i].ref_dumped) {
            c->place->row = i;
            return 1;
        }
    return ds_fail(err, "no row %s this one has values here", step < 0 ? "before" : "after");
}

/* The element that differs most; where several do alike, the next of them, and after the last the
 * first again. */
static int go_largest(struct tui_view *v, const struct tui_context *c, int step,
                      struct ds_error *err)
{
    if (!own(v) || !own(v)->pair.differ)
        return ds_fail(err, "no element differs");
    if (tui_table_jump(&v->table, TUI_IS_JUMP, step) != 0 &&
        tui_table_jump(&v->table, TUI_IS_JUMP, 0) != 0)
        return ds_fail(err, "the filter hides the element that differs most");
    moved(v, c);
    return 1;
}

static int request(struct tui_view *v, const struct tui_context *c, int r, int *next,
                   struct ds_error *err)
{
    (void)next;
    switch (r) {
    case TUI_NEXT_JUMP:
    case TUI_PREVIOUS_JUMP:
        return go_largest(v, c, r == TUI_NEXT_JUMP ? 1 : -1, err);
    case TUI_NEXT_ROW:
        return step_row(v, c, 1, err);
    case TUI_PREVIOUS_ROW:
        return step_row(v, c, -1, err);
    case TUI_NEXT_LAYER:
    case TUI_PREVIOUS_LAYER:
        if (!c->whole->header)
            return 0;
        return tui_site_beside(c->whole->header, c->place->site, r == TUI_NEXT_LAYER ? 1 : -1,
                               &c->place->site, err) != 0
                   ? -1
                   : 1;
    default:
        return 0;
    }
}

/* ---- what is said of it ---------------------------------------------------------------------- */

static void command(const struct tui_view *v, const struct tui_context *c, struct ds_buf *out)
{
    struct tensor_own *o = own(v);
    struct ds_buf row = {0};
    if (o)
        refresh(v, c, NULL);
    if (o && o->site && c->place->row < o->site->n_rows) {
        ds_buf_puts(&row, "--row ");
        ds_report_row_key(&o->site->keys[c->place->row], &row);
    }
    tui_site_command(c, c->place->site, row.data ? row.data : "", out);
    out->failed |= row.failed;
    ds_buf_free(&row);
}

static void status(const struct tui_view *v, const struct tui_context *c, struct ds_buf *out)
{
    const struct tensor_own *o = own(v);
    (void)c;
    if (!o || !o->pair.comparable || !ds_values_elements(&o->pair))
        return;
    ds_buf_printf(out, "%zu same, %zu differ", o->pair.bins[DS_BIN_EQUAL], o->pair.differ);
    if (o->pair.bins[DS_BIN_NAN])
        ds_buf_printf(out, ", %zu with NaN", o->pair.bins[DS_BIN_NAN]);
}

static void free_own(struct tui_view *v)
{
    free(v->own);
    v->own = NULL;
}

const struct tui_view_ops tui_view_tensor = {
    .name = "tensor",
    .hints = "next-drift next-jump next-row next-layer number metric command help",
    .load = load,
    .want = want,
    .panel = tensor_panel,
    .moved = moved,
    .request = request,
    .command = command,
    .status = status,
    .free_own = free_own,
};
