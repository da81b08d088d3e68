/* view_site.c: Site: one site of one arm against another: its rows in every arm as class letters,
 * sizes, profile, launches, inputs. view_site_lines.c is its table, view_site_head.c its words. */
#include "tui/view_site.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VIEW_SITE = 2, VIEW_TENSOR = 3 };

/* ---- loading --------------------------------------------------------------------------------- */

static struct site_own *own(const struct tui_view *v)
{
    return v->own;
}

/* Pointers of the data live until the next turn only: they are asked for anew before each use. */
static const struct tui_site *refresh(const struct tui_view *v, const struct tui_context *c,
                                      const char **error)
{
    struct site_own *o = own(v);
    const struct tui_place *p = c->place;
    const struct ds_header *h = c->whole->header;
    if (!o || !h)
        return NULL;
    const struct tui_site *s = tui_data_site(c->data, p->arm, p->ref, p->site, error);
    s = s && p->site < h->n_sites ? s : NULL;
    o->whole = c->whole;
    o->h = h;
    o->pair = s ? tui_data_pair(c->data, p->arm, p->ref, NULL) : NULL;
    /* The lines are those of another place until load has made them anew. */
    int same = o->at.arm == p->arm && o->at.ref == p->ref && o->at.site == p->site;
    o->site = s && same && v->seen == c->whole->generation ? s : NULL;
    return s;
}

static int head_lines(const struct tui_context *c)
{
    return c->lines < 20 ? 2 : c->lines < 30 ? 4 : 9;
}

/* Rows x arms is what the view is for: where the arms do not fit beside the panel it goes below. Where they do not fit
 * into the whole screen either, they are panned. A wide screen has the other sizes too, a wider one the digests. */
static void want(const struct tui_view *v, const struct tui_context *c, struct tui_want *out)
{
    enum { PANEL = 48, BESIDE = PANEL + 1, SIZES = 36, DIGESTS = 34 };
    const struct ds_header *h = c->whole->header;
    int table = SITE_BEFORE_ARMS + 2; /* marks of the pair */
    for (size_t arm = 0; h && arm < h->n_arms && table <= c->columns; arm++)
        table += arm < 10 ? 2 : arm < 100 ? 3 : arm < 1000 ? 4 : 5;
    if (table > c->columns)
        table = SITE_BEFORE_ARMS;
    else if (table + SIZES + DIGESTS + BESIDE <= c->columns)
        table += SIZES + DIGESTS;
    else if (table + SIZES + BESIDE <= c->columns)
        table += SIZES;
    *out = (struct tui_want){.head_lines = v->n_head,
                             .panel_columns = PANEL,
                             .panel_lines = c->lines >= 40 ? 14 : 0,
                             .table_columns = table};
}

/* Columns that the table will have. */
static int table_width(const struct tui_view *v, const struct tui_context *c)
{
    struct tui_want wanted;
    struct tui_layout layout;
    want(v, c, &wanted);
    tui_layout(c->lines, c->columns, &wanted, &layout);
    return layout.too_small ? c->columns : layout.table.w;
}

/* A table that cannot have its new source has none. */
static int set_source(struct tui_view *v, const struct tui_source *source, struct ds_error *err)
{
    int rc = tui_table_source(&v->table, source, err);
    if (rc != 0)
        tui_table_free(&v->table);
    site_old_free(own(v));
    return rc;
}

static int make(struct tui_view *v, const struct tui_context *c, const struct tui_site *s,
                int refold, struct ds_error *err)
{
    struct site_own *o = own(v);
    struct tui_source source;
    /* Other lines than those that were marked. */
    if (o->at.arm != c->place->arm || o->at.ref != c->place->ref || o->at.site != c->place->site ||
        v->seen != c->whole->generation || refold)
        tui_table_mark(&v->table, 1);
    o->site = s;
    o->at = *c->place;
    o->ascii = c->ascii;
    o->alone = tui_alone(c->whole, c->place);
    o->width = table_width(v, c);
    site_launch_make(o, c);
    if (site_lines_make(o, err) != 0)
        return -1;
    site_source(o, &source);
    return set_source(v, &source, err);
}

static int empty(struct tui_view *v, const struct tui_context *c, int state)
{
    struct site_own *o = own(v);
    site_lines_free(o);
    o->site = NULL;
    tui_view_reset(v, c, "rows", state);
    site_old_free(o); /* the table looked at them until now */
    return state;
}

static int load(struct tui_view *v, const struct tui_context *c, char why[256])
{
    const char *error = NULL;
    struct ds_error err = {"", ""};
    why[0] = '\0';
    if (!v->own && !(v->own = ds_calloc(1, sizeof(struct site_own), "the view", &err))) {
        snprintf(why, 256, "out of memory");
        return TUI_EMPTY;
    }
    const struct tui_site *s = refresh(v, c, &error);
    if (!s && !error && c->whole->header) {
        tui_view_heads(v,
                       0); /* the lines stay, with empty cells: sort, filter and folds with them */
        return TUI_WAITING;
    }
    if (!s) {
        snprintf(why, 256, "%s", error ? error : "nothing is read yet");
        return empty(v, c, TUI_EMPTY);
    }
    struct site_own *o = own(v);
    const struct tui_place *p = c->place;
    int went = !o->site || v->at.row != p->row || v->at.site != p->site,
        other = !o->site || o->at.metric != p->metric || o->ascii != c->ascii || !o->lines ||
                o->width != table_width(v, c);
    if (other && make(v, c, s, 0, &err) != 0) {
        snprintf(why, 256, "%.255s", err.msg);
        return empty(v, c, TUI_EMPTY);
    }
    v->seen = c->whole->generation;
    v->at = *p;
    size_t line = went ? site_line_of(o, p->row) : SIZE_MAX;
    if (line != SIZE_MAX)
        tui_table_go(&v->table, line, 0);
    if (site_head_make(v, o, head_lines(c)) != 0) {
        snprintf(why, 256, "out of memory");
        return empty(v, c, TUI_EMPTY);
    }
    return TUI_READY;
}

/* ---- moving ---------------------------------------------------------------------------------- */

static void moved(struct tui_view *v, const struct tui_context *c)
{
    struct site_own *o = own(v);
    size_t line = tui_table_row(&v->table);
    if (!refresh(v, c, NULL) || !o->site || line >= o->n_lines ||
        o->lines[line].part != SITE_ROWS || o->lines[line].index >= SITE_FOLDED)
        return;
    if (c->place->row != o->lines[line].index) {
        c->place->row = o->lines[line].index;
        c->place->element = 0;
    }
    v->at = *c->place;
}

/* The next row that the site has, from that of the place. */
static int step_row(struct tui_view *v, const struct tui_context *c, int step, struct ds_error *err)
{
    struct site_own *o = own(v);
    size_t at = 0;
    while (at < o->n_rows && o->rows[at] < c->place->row)
        at++;
    int there = at < o->n_rows && o->rows[at] == c->place->row;
    if (step < 0 ? at == 0 : at + (size_t)there >= o->n_rows)
        return ds_fail(err, step < 0 ? "this is the first row" : "this is the last row");
    c->place->row = o->rows[step < 0 ? at - 1 : at + (size_t)there];
    c->place->element = 0;
    size_t line = site_line_of(o, c->place->row);
    if (line != SIZE_MAX)
        tui_table_go(&v->table, line, 0);
    v->at = *c->place;
    return 1;
}

/* Enter on a row, or on a part of the profile: its values, from the first element that differs or
 * of the part on. */
static int open_row(const struct site_own *o, const struct tui_context *c, size_t line, int *next,
                    struct ds_error *err)
{
    struct site_line l = o->lines[line];
    size_t row = site_row_of(o, line);
    if (row == SIZE_MAX)
        return ds_fail(err, "no row of it differs");
    const struct tui_row_fact *f = &o->site->facts[row];
    const struct ds_site_profile *p = o->site->profile;
    c->place->row = row;
    c->place->element = f->sized ? f->drift.first : 0;
    if (l.part == SITE_HEADS && l.index < p->n_heads && p->heads[l.index].index >= 0 &&
        o->h->head_dim > 0)
        c->place->element = (size_t)p->heads[l.index].index * (size_t)o->h->head_dim;
    if (l.part == SITE_CHANNELS && l.index < p->n_channels && p->channels[l.index].index >= 0)
        c->place->element = (size_t)p->channels[l.index].index;
    *next = VIEW_TENSOR;
    return 2;
}

static int fold(struct tui_view *v, const struct tui_context *c, size_t line, struct ds_error *err)
{
    struct site_own *o = own(v);
    uint32_t part = o->lines[line].part;
    o->folded[part] = !o->folded[part];
    if (make(v, c, o->site, 1, err) != 0)
        return -1;
    tui_table_go(&v->table, o->first[part], 0);
    return 1;
}

static int enter(struct tui_view *v, const struct tui_context *c, int *next, struct ds_error *err)
{
    struct site_own *o = own(v);
    size_t line = tui_table_row(&v->table);
    if (line >= o->n_lines)
        return ds_fail(err, "there is no row here");
    struct site_line l = o->lines[line];
    if (l.index == SITE_FOLDED)
        return fold(v, c, line, err);
    if (l.part == SITE_INPUTS && l.index < o->site->n_inputs) {
        c->place->site = o->site->inputs[l.index].site;
        c->place->element = 0;
        *next = VIEW_SITE;
        return 2;
    }
    if (l.part == SITE_LAUNCH || l.index == SITE_HEAD)
        return ds_fail(err, "Enter opens a row, a part of the profile or an input");
    return open_row(o, c, line, next, err);
}

static int request(struct tui_view *v, const struct tui_context *c, int r, int *next,
                   struct ds_error *err)
{
    struct site_own *o = own(v);
    if (r == TUI_NEXT_LAYER || r == TUI_PREVIOUS_LAYER) {
        if (!c->whole->header)
            return 0;
        c->place->element = 0;
        return tui_site_beside(c->whole->header, c->place->site, r == TUI_NEXT_LAYER ? 1 : -1,
                               &c->place->site, err) != 0
                   ? -1
                   : 1;
    }
    if (r != TUI_ENTER && r != TUI_NEXT_ROW && r != TUI_PREVIOUS_ROW && r != TUI_FOLD)
        return 0;
    if (!refresh(v, c, NULL) || !o->site)
        return ds_fail(err, "the site is still being read");
    size_t line = tui_table_row(&v->table);
    if (r == TUI_ENTER)
        return enter(v, c, next, err);
    if (r == TUI_FOLD)
        return line < o->n_lines ? fold(v, c, line, err) : 0;
    return step_row(v, c, r == TUI_NEXT_ROW ? 1 : -1, err);
}

/* ---- what is said of it ---------------------------------------------------------------------- */

static void command(const struct tui_view *v, const struct tui_context *c, struct ds_buf *out)
{
    const struct site_own *o = own(v);
    size_t line = tui_table_row(&v->table);
    if (o && o->site && line < o->n_lines && o->lines[line].part == SITE_LAUNCH &&
        o->lines[line].index >= o->n_fields && o->lines[line].index - o->n_fields < o->n_commands)
        ds_buf_puts(out, o->command[o->lines[line].index - o->n_fields].text);
    else
        tui_site_command(c, c->place->site, "--long", out);
}

static void status(const struct tui_view *v, const struct tui_context *c, struct ds_buf *out)
{
    const struct site_own *o = own(v);
    if (!refresh(v, c, NULL) || !o->site)
        return;
    if (o->alone) {
        ds_buf_printf(out, "%zu recorded", o->n_rows);
        return;
    }
    ds_buf_printf(out, "%zu same, %zu drift", o->n_rows - o->n_drift - o->n_missing, o->n_drift);
    if (o->n_nonfinite)
        ds_buf_printf(out, ", %zu non-finite", o->n_nonfinite);
    if (o->n_missing)
        ds_buf_printf(out, ", %zu not compared", o->n_missing);
}

static void free_own(struct tui_view *v)
{
    if (v->own) {
        site_lines_free(v->own);
        site_old_free(v->own);
    }
    free(v->own);
    v->own = NULL;
}

const struct tui_view_ops tui_view_site = {
    .name = "site",
    .hints = "enter next-drift next-row next-layer next-arm metric fold command help",
    .load = load,
    .want = want,
    .panel = site_panel,
    .moved = moved,
    .request = request,
    .command = command,
    .status = status,
    .free_own = free_own,
};
