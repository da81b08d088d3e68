/* view_overview.c: Overview: the verdict in words, kernel by factor, what to look at next. view_overview_matrix.c is the
 * matrix, view_overview_text.c the words. */
#include "tui/view_overview.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PANEL_CELLS = 44 };

static struct overview_own *own(const struct tui_view *v)
{
    return v->own;
}

/* ---- lines --------------------------------------------------------------------------------------- */

void overview_free(struct overview_own *o)
{
    for (size_t i = 0; i < o->n_lines; i++)
        free(o->lines[i].text);
    free(o->lines);
    free(o->columns);
    free(o->names);
    free(o->factors);
    free(o->cells);
    o->lines = NULL;
    o->columns = NULL;
    o->names = NULL;
    o->factors = NULL;
    o->cells = NULL;
    o->n_lines = o->cap_lines = o->n_columns = o->n_kernels = 0;
    o->made = 0;
}

int overview_add(struct overview_own *o, int kind, int role, const char *text,
                 const struct overview_goal *goal)
{
    static const struct overview_goal nowhere = {.view = -1};
    if (o->n_lines == o->cap_lines) {
        size_t cap = o->cap_lines ? 2 * o->cap_lines : 64;
        struct overview_line *lines = realloc(o->lines, cap * sizeof *lines);
        if (!lines)
            return -1;
        o->lines = lines;
        o->cap_lines = cap;
    }
    char *copy = strdup(text);
    if (!copy)
        return -1;
    o->lines[o->n_lines++] = (struct overview_line){
        .kind = kind, .role = role, .text = copy, .goal = goal ? *goal : nowhere};
    return 0;
}

/* ---- the table ----------------------------------------------------------------------------------- */

static const struct overview_cell *cell_at(const struct overview_own *o, size_t line, size_t column)
{
    if (line >= o->n_lines || o->lines[line].kind != TUI_ROW || column < 1 ||
        column >= o->n_columns || o->lines[line].kernel >= o->n_kernels)
        return NULL;
    return &o->cells[o->lines[line].kernel * (o->n_columns - 1) + column - 1];
}

const struct overview_goal *overview_goal_at(const struct overview_own *o, size_t line,
                                             size_t column)
{
    const struct overview_cell *c = cell_at(o, line, column);
    const struct overview_goal *g = c ? &c->goal : line < o->n_lines ? &o->lines[line].goal : NULL;
    return g && g->view >= 0 ? g : NULL;
}

static int cell_role(int condition)
{
    switch (condition) {
    case DS_COND_SAME:
    case DS_COND_WITHIN:
        return TUI_SAME;
    case DS_COND_DRIFT:
        return TUI_ORIGIN;
    case DS_COND_UNSTABLE:
        return TUI_UNSTABLE;
    case DS_COND_UNKNOWN:
        return TUI_UNKNOWN;
    default:
        return TUI_MISSING;
    }
}

static void cell(void *ctx, size_t line, size_t column, struct tui_value *v)
{
    const struct overview_own *o = ctx;
    if (line >= o->n_lines)
        return;
    const struct overview_line *l = &o->lines[line];
    const struct overview_cell *c = cell_at(o, line, column);
    if (l->kind == TUI_ROW_HEADS && column > 0) {
        /* Only the matrix has columns. */
        if (line + 1 < o->n_lines && o->lines[line + 1].kind == TUI_ROW && column < o->n_columns)
            snprintf(v->text, sizeof v->text, "%s", o->names[column]);
        v->role = TUI_HEAD;
    } else if (c) {
        snprintf(v->text, sizeof v->text, "%s", c->text);
        v->role = cell_role(c->condition);
        v->null = c->condition == DS_COND_NOT_RUN;
    } else if (column == 0) {
        snprintf(v->text, sizeof v->text, "%s", l->text);
        v->role = l->role;
    }
}

static int kind(void *ctx, size_t line)
{
    const struct overview_own *o = ctx;
    return line < o->n_lines ? o->lines[line].kind : TUI_ROW;
}

static int is(void *ctx, size_t line, size_t column)
{
    const struct overview_own *o = ctx;
    const struct overview_cell *c = cell_at(o, line, column);
    return c && overview_is_drift(c) ? TUI_IS_DRIFT : 0;
}

void overview_source(struct overview_own *o, struct tui_source *out)
{
    static const struct tui_column text = {"", TUI_LEFT, 0, 0, 0};
    int matrix = o->n_columns > 1 && o->n_kernels;
    *out = (struct tui_source){.ctx = o,
                               .columns = matrix ? o->columns : &text,
                               .n_columns = matrix ? o->n_columns : 1,
                               .n_rows = o->n_lines,
                               .cell = cell,
                               .kind = kind,
                               .is = is,
                               .cell_cursor = matrix,
                               .first_cell = 1,
                               .name = "overview"};
}

/* ---- loading ------------------------------------------------------------------------------------- */

static int fail(struct tui_view *v, const struct ds_error *err, char why[256])
{
    struct tui_source none = {.name = "overview"};
    struct ds_error unused;
    snprintf(why, 256, "%.255s", err->msg);
    tui_table_source(&v->table, &none, &unused);
    overview_free(own(v));
    tui_view_heads(v, 0);
    v->seen = 0;
    return TUI_EMPTY;
}

/* The cursor begins on the first drift's cell, else on the first one that drifts. */
static void stand(struct tui_view *v)
{
    const struct overview_own *o = own(v);
    for (size_t i = 0; i < o->n_lines && o->first.view >= 0; i++)
        for (size_t c = 1; c < o->n_columns; c++) {
            const struct overview_cell *x = cell_at(o, i, c);
            if (x && overview_is_drift(x) && x->goal.view >= 0 && x->goal.site == o->first.site &&
                x->goal.arm == o->first.arm && x->goal.ref == o->first.ref) {
                tui_table_go(&v->table, i, c);
                return;
            }
        }
    if (tui_table_jump(&v->table, TUI_IS_DRIFT, 0) == 0)
        return;
    for (size_t i = 0; i < o->n_lines; i++)
        if (o->lines[i].kind == TUI_ROW) {
            tui_table_go(&v->table, i, 1);
            return;
        }
}

static int load(struct tui_view *v, const struct tui_context *c, char why[256])
{
    struct ds_error err = {"", ""};
    struct tui_source source;
    why[0] = '\0';
    if (!v->own && !(v->own = ds_calloc(1, sizeof(struct overview_own), "the view", &err))) {
        snprintf(why, 256, "out of memory");
        return TUI_EMPTY;
    }
    struct overview_own *o = own(v);
    int same = o->made && v->seen == c->whole->generation && o->ascii == c->ascii &&
               o->screen == c->columns;
    if (!same) {
        int judged = o->made && o->with_verdict;
        if (overview_make(v, o, c, &err) != 0)
            return fail(v, &err, why);
        overview_source(o, &source);
        if (tui_table_source(&v->table, &source, &err) != 0)
            return fail(v, &err, why);
        v->seen = c->whole->generation;
        if (!judged && o->with_verdict)
            stand(v);
    } else if (o->lines_of_screen == c->lines) {
        return TUI_READY;
    }
    o->lines_of_screen = c->lines;
    if (overview_head(v, o, c) != 0)
        return fail(v, &(struct ds_error){"out of memory", ""}, why);
    return TUI_READY;
}

static void want(const struct tui_view *v, const struct tui_context *c, struct tui_want *out)
{
    *out = (struct tui_want){.head_lines = v->n_head,
                             .panel_columns = PANEL_CELLS,
                             .panel_lines = c->lines >= 40   ? 8
                                            : c->lines >= 24 ? 4
                                                             : 0,
                             .table_columns = 104};
}

/* ---- going --------------------------------------------------------------------------------------- */

/* The row with that key; the first that drifts where there is none. */
static size_t find_row(const struct tui_pair *p, const struct overview_goal *g)
{
    size_t drift = SIZE_MAX;
    for (size_t i = 0; i < p->n_rows; i++) {
        if (g->position >= 0 && p->keys[i].request == g->request &&
            p->keys[i].position == g->position)
            return i;
        if (drift == SIZE_MAX && g->site < p->n_sites &&
            p->labels[(size_t)g->site * p->n_rows + i] >= DS_LABEL_ORIGIN)
            drift = i;
    }
    return drift == SIZE_MAX ? 0 : drift;
}

static int follow(const struct overview_goal *g, const struct tui_context *c, int *next)
{
    if (g->arm != UINT32_MAX) {
        c->place->arm = g->arm;
        c->place->ref = g->ref;
        c->place->element = 0;
        if (g->site != UINT32_MAX)
            c->place->site = g->site;
        const struct tui_pair *p = tui_data_pair(c->data, g->arm, g->ref, NULL);
        c->place->row = p && g->site != UINT32_MAX ? find_row(p, g) : 0;
    }
    *next = g->view;
    return 2;
}

static int request(struct tui_view *v, const struct tui_context *c, int r, int *next,
                   struct ds_error *err)
{
    struct overview_own *o = own(v);
    if (!o || !o->made)
        return 0;
    if (r == TUI_FIRST_ORIGIN && o->first.view >= 0)
        return follow(&o->first, c, next);
    if (r == TUI_FIRST_ORIGIN)
        return ds_fail(err, o->with_verdict ? "nothing drifts in this record"
                                            : "the verdict is being made");
    if (r == TUI_FOLD) {
        o->apart = !o->apart;
        o->made = 0;
        return 1;
    }
    if (r != TUI_ENTER)
        return 0;
    size_t line = tui_table_row(&v->table);
    const struct overview_cell *at = cell_at(o, line, v->table.column);
    const struct overview_goal *g = overview_goal_at(o, line, v->table.column);
    if (g)
        return follow(g, c, next);
    return ds_fail(err, !at ? "Enter opens a cell that drifts, or a line about a place"
                        : at->condition == DS_COND_SAME
                            ? "the kernel gives the same bits there: 2 shows all layers"
                        : at->condition == DS_COND_NOT_RUN ? "nothing was compared there"
                        : at->condition == DS_COND_UNKNOWN
                            ? "the kernel never had equal inputs there"
                            : "where is not known");
}

/* ---- what is said of it -------------------------------------------------------------------------- */

static void command(const struct tui_view *v, const struct tui_context *c, struct ds_buf *out)
{
    (void)v;
    tui_verdict_command(c, "", out);
}

static void status(const struct tui_view *v, const struct tui_context *c, struct ds_buf *out)
{
    static const char *const names[] = {
        [DS_COND_NOT_RUN] = "not run",    [DS_COND_SAME] = "same",
        [DS_COND_DRIFT] = "drift",        [DS_COND_UNSTABLE] = "unstable",
        [DS_COND_UNKNOWN] = "not judged", [DS_COND_WITHIN] = "within",
    };
    const struct overview_own *o = own(v);
    int n = 0;
    (void)c;
    if (!o || o->n_kernels == 0 || o->n_columns < 2)
        return;
    for (int i = DS_COND_SAME; i < DS_CONDITIONS; i++)
        if (i <= DS_COND_DRIFT || o->of[i])
            ds_buf_printf(out, "%s%d %s", n++ ? ", " : "", o->of[i], names[i]);
    if (o->of[DS_COND_NOT_RUN])
        ds_buf_printf(out, ", %d %s", o->of[DS_COND_NOT_RUN], names[DS_COND_NOT_RUN]);
}

static void free_own(struct tui_view *v)
{
    if (v->own)
        overview_free(v->own);
    free(v->own);
    v->own = NULL;
}

const struct tui_view_ops tui_view_overview = {
    .name = "overview",
    .hints = "enter first-origin next-drift view-layers view-runs search-prompt prompt help",
    .load = load,
    .want = want,
    .panel = overview_panel,
    .request = request,
    .command = command,
    .status = status,
    .free_own = free_own,
};
