/* view_environment.c: Environment: of two records what differs beside the digests, then what is equal; of one what it
 * was made with, and what casts doubt on it. view_environment_rows.c is its lists and cells. */
#include "tui/view_environment.h"

#include "base/mem.h"
#include "dumps/validity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VIEW_LAYERS = 1, VIEW_SITE = 2 };

const struct tui_whole *env_whole(const struct env_own *o)
{
    const struct tui_whole *w = o->data ? tui_data_whole(o->data) : NULL;
    return w && w->generation == o->generation ? w : NULL;
}

struct ds_env_of env_of(const struct tui_whole *w)
{
    return (struct ds_env_of){.report = &w->report,
                              .sides = {w->sides[0], w->sides[1]},
                              .trials = w->trials,
                              .n_trials = w->n_trials,
                              .incomplete = w->incomplete,
                              .damaged = w->damaged,
                              .verdict = w->verdict,
                              .diff = w->diff,
                              .error = w->error,
                              .note = w->note};
}

/* ---- loading --------------------------------------------------------------------------------- */

static void free_own(struct tui_view *v)
{
    if (v->own)
        ds_env_free(&((struct env_own *)v->own)->env);
    free(v->own);
    v->own = NULL;
}

/* Below the table, where there is room for it; beside it on a wide screen. */
enum { WIDE = 150 };

static void want(const struct tui_view *v, const struct tui_context *c, struct tui_want *out)
{
    int low = c->lines < 18;
    (void)v;
    *out = (struct tui_want){.head_lines = low                  ? 0
                                           : c->whole->sides[1] ? 2
                                                                : 1,
                             .panel_columns = c->columns >= WIDE ? c->columns / 3 : 0,
                             .panel_lines = low             ? 0
                                            : c->lines < 30 ? 4
                                                            : 6,
                             .table_columns = c->columns - c->columns / 3 - 2};
}

static int table_columns(const struct tui_context *c)
{
    struct tui_want wanted;
    struct tui_layout l;
    want(NULL, c, &wanted);
    tui_layout(c->lines, c->columns, &wanted, &l);
    return l.too_small ? c->columns : l.table.w;
}

/* Both sides are seen beside each other on a screen of any width. */
static void set_columns(struct env_own *o)
{
    int name = o->columns < 100 ? 24 : 32, side = (o->columns - name - 5) / 2;
    o->column[0] = (struct tui_column){"name", TUI_LEFT, TUI_COLUMN_FIXED, 0, name};
    o->column[1] =
        (struct tui_column){o->env.two ? "A" : "value", TUI_LEFT, 0, 0, o->env.two ? side : 0};
    o->column[2] = (struct tui_column){"B", TUI_LEFT, 0, 0, 0};
}

static void head_side(struct tui_view *v, const struct tui_whole *w, int side)
{
    const struct ds_header *h = w->sides[side];
    const char *path = side ? w->report.path_b : w->report.path;
    tui_view_head(v, side, TUI_PLAIN, "%s%.200s  driftscope %s (%s), %s",
                  !w->sides[1] ? ""
                  : side       ? "B  "
                               : "A  ",
                  path ? path : "not on disk", h->tool_version, h->build, h->start);
}

static int load(struct tui_view *v, const struct tui_context *c, char why[256])
{
    struct ds_error err = {.msg = ""};
    const struct tui_whole *w = c->whole;
    struct env_own *o = v->own;
    struct tui_source source;
    int columns = table_columns(c);
    if (!w->sides[0])
        return TUI_WAITING;
    if (o && v->seen == w->generation && o->columns == columns)
        return TUI_READY;
    if (!o && !(v->own = o = ds_calloc(1, sizeof *o, "environment", &err)))
        return snprintf(why, 256, "%.250s", err.msg), TUI_EMPTY;
    size_t row = tui_table_row(&v->table);
    struct env_own before = *o;
    *o = (struct env_own){
        .data = c->data, .generation = w->generation, .columns = columns, .ascii = c->ascii};
    const struct ds_env_of of = env_of(w);
    int rc = ds_env_make(&o->env, &of, &err) || tui_view_heads(v, 1 + o->env.two);
    set_columns(o);
    env_source(o, &source);
    if (rc || tui_table_source(&v->table, &source, &err)) {
        ds_env_free(&o->env);
        *o = before;
        snprintf(why, 256, "%.250s", err.msg[0] ? err.msg : "out of memory");
        return TUI_EMPTY;
    }
    tui_table_keep(&v->table, row, before.env.rows, before.env.n, o->env.rows, o->env.n,
                   sizeof *o->env.rows);
    ds_env_free(&before.env);
    for (int side = 0; side <= o->env.two; side++)
        head_side(v, w, side);
    v->seen = w->generation;
    v->at = *c->place;
    return TUI_READY;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static int go(const struct tui_context *c, uint32_t arm, uint32_t ref, uint32_t site, int *next)
{
    c->place->arm = arm;
    c->place->ref = ref;
    c->place->row = c->place->element = 0;
    if (site < c->whole->header->n_sites)
        c->place->site = site;
    *next = site < c->whole->header->n_sites ? VIEW_SITE : VIEW_LAYERS;
    return 2;
}

static int enter(const struct tui_view *v, const struct tui_context *c, int *next,
                 struct ds_error *err)
{
    const struct env_own *o = v->own;
    const struct tui_whole *w = o ? env_whole(o) : NULL;
    size_t row = tui_table_row(&v->table);
    if (!w || !w->header || row >= o->env.n)
        return 1;
    const struct ds_env_row *r = &o->env.rows[row];
    const struct ds_verdict *verdict = w->verdict;
    if (r->list == DS_ENV_FINDINGS && verdict && verdict->validity &&
        r->at[0] < verdict->validity->n_items) {
        const struct ds_validity_item *x = &verdict->validity->items[r->at[0]];
        if (x->located)
            return go(c, x->arm, x->arm == c->place->arm ? c->place->ref : verdict->ref_arm,
                      x->site, next);
    }
    if (r->list == DS_ENV_ITEMS && w->diff->items[r->at[0]].kind == DS_DIFF_LAUNCH && verdict &&
        verdict->first.found)
        return go(c, verdict->first.arm, verdict->first.ref_arm, verdict->first.site, next);
    if (r->list == DS_ENV_ARMS && !o->env.two)
        return go(c, r->at[0],
                  r->at[0] == c->place->arm ? c->place->ref
                  : verdict                 ? verdict->ref_arm
                                            : 0,
                  UINT32_MAX, next);
    return ds_fail(err, "this line leads nowhere: arms, launches and findings about a site do");
}

static int request(struct tui_view *v, const struct tui_context *c, int request, int *next,
                   struct ds_error *err)
{
    switch (request) {
    case TUI_ENTER:
        return enter(v, c, next, err);
    case TUI_NEXT_LAYER:
    case TUI_PREVIOUS_LAYER:
        return tui_view_section(v, request == TUI_NEXT_LAYER ? 1 : -1, err);
    default:
        return 0;
    }
}

static void command(const struct tui_view *v, const struct tui_context *c, struct ds_buf *out)
{
    (void)v;
    tui_verdict_command(c, "--environment", out);
}

static void status(const struct tui_view *v, const struct tui_context *c, struct ds_buf *out)
{
    const struct env_own *o = v->own;
    const struct ds_verdict *verdict = c->whole->verdict;
    if (!o)
        return;
    if (o->env.two)
        ds_buf_printf(out, "%zu differ, %zu equal", o->env.n_differ, o->env.n_equal);
    else if (!verdict)
        ds_buf_puts(out, c->whole->error ? "no verdict" : "verdict being made");
    else
        ds_buf_printf(out, "%zu findings", verdict->validity ? verdict->validity->n_items : 0);
}

const struct tui_view_ops tui_view_environment = {
    .name = "environment",
    .hints = "enter next-drift search-prompt filter-prompt command",
    .load = load,
    .want = want,
    .panel = env_panel,
    .request = request,
    .command = command,
    .status = status,
    .free_own = free_own,
};
