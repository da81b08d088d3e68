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

/* ---- which rows there are -------------------------------------------------------------------- */

static int add_row(struct env_own *o, struct env_row row, struct ds_error *err)
{
    if (ds_grow(&o->rows, &o->cap, o->n + 1, sizeof *o->rows, "rows", err))
        return -1;
    o->rows[o->n++] = row;
    return 0;
}

static int add_heading(struct env_own *o, int list, uint32_t at, int equal, struct ds_error *err)
{
    return add_row(o,
                   (struct env_row){.at = {at, at},
                                    .list = (uint8_t)list,
                                    .kind = TUI_ROW_SECTION,
                                    .equal = (uint8_t)equal},
                   err);
}

static int add_findings(struct env_own *o, const struct tui_whole *w, struct ds_error *err)
{
    const struct ds_verdict *v = w->verdict;
    size_t n = (v && v->validity ? v->validity->n_items : 0) + (v ? v->n_notes : 0);
    int none = w->error || (v && v->result == DS_RESULT_INCOMPARABLE);
    if (w->note)
        n++;
    if ((n || none) && add_heading(o, ENV_FINDINGS, 0, 0, err))
        return -1;
    for (size_t i = 0; i < n + (none ? 1 : 0); i++) {
        uint32_t at = none && i == 0 ? ENV_NONE : (uint32_t)(i - (none ? 1 : 0));
        if (add_row(o, (struct env_row){.at = {at, at}, .list = ENV_FINDINGS, .kind = TUI_ROW_TEXT},
                    err))
            return -1;
    }
    return 0;
}

/* By kind, in the order in which ds_diff lists the first of each. */
static int add_items(struct env_own *o, const struct ds_diff *d, struct ds_error *err)
{
    uint8_t done[DS_DIFF_KINDS] = {0};
    for (size_t i = 0; i < d->n_items; i++) {
        int kind = d->items[i].kind;
        if (kind < 0 || kind >= DS_DIFF_KINDS || done[kind]++)
            continue;
        if (add_heading(o, ENV_ITEMS, (uint32_t)kind, 0, err))
            return -1;
        for (size_t k = i; k < d->n_items; k++)
            if (d->items[k].kind == kind &&
                add_row(o, (struct env_row){.at = {(uint32_t)k, (uint32_t)k}, .list = ENV_ITEMS},
                        err))
                return -1;
    }
    o->n_differ = d->n_items;
    return 0;
}

/* Entries of B by name, so that A's find theirs. */
struct named {
    const char *name;
    uint32_t at;
};
struct names {
    struct named *list;
    size_t n;
    struct ds_buf text;
};

static int compare_named(const void *a, const void *b)
{
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

static int names_of(const struct tui_whole *w, int list, struct names *out, struct ds_error *err)
{
    char room[512];
    size_t at = 0;
    out->n = env_entries(w, 1, list);
    out->list = ds_calloc(out->n, sizeof *out->list, "names", err);
    for (size_t i = 0; out->list && i < out->n; i++) {
        const char *name = env_name(w, 1, list, (uint32_t)i, room);
        ds_buf_add(&out->text, name, strlen(name) + 1);
    }
    if (!out->list || out->text.failed)
        return ds_fail(err, "out of memory: names");
    for (size_t i = 0; i < out->n; i++) {
        out->list[i] = (struct named){out->text.data + at, (uint32_t)i};
        at += strlen(out->list[i].name) + 1;
    }
    qsort(out->list, out->n, sizeof *out->list, compare_named);
    return 0;
}

static uint32_t find_name(const struct names *names, const char *name)
{
    const struct named key = {name, 0},
                       *found = bsearch(&key, names->list, names->n, sizeof key, compare_named);
    return found ? found->at : ENV_NONE;
}

static int is_equal(const struct env_own *o, const struct tui_whole *w, int list, uint32_t a,
                    uint32_t b)
{
    char room[2][512];
    return a != ENV_NONE && b != ENV_NONE &&
           strcmp(env_value(o, w, 0, list, a, room[0]), env_value(o, w, 1, list, b, room[1])) == 0;
}

/* One entry of both sides, if it is what is to be told now. */
static int add_pair(struct env_own *o, const struct tui_whole *w, int list, int equal, uint32_t a,
                    uint32_t b, size_t *heading, struct ds_error *err)
{
    if (list != ENV_RECORD && is_equal(o, w, list, a, b) != equal)
        return 0;
    if (*heading == SIZE_MAX) {
        *heading = o->n;
        if (add_heading(o, list, 0, equal, err))
            return -1;
    }
    if (list != ENV_RECORD)
        *(equal ? &o->n_equal : &o->n_differ) += 1;
    return add_row(
        o, (struct env_row){.at = {a, b}, .list = (uint8_t)list, .equal = (uint8_t)equal}, err);
}

static int add_both(struct env_own *o, const struct tui_whole *w, int list, int equal,
                    struct ds_error *err)
{
    size_t na = env_entries(w, 0, list), nb = env_entries(w, 1, list), heading = SIZE_MAX;
    struct names names = {.n = 0};
    uint8_t *used = ds_calloc(nb, 1, "names", err);
    char room[512];
    int rc = !used || names_of(w, list, &names, err) ? -1 : 0;
    for (uint32_t a = 0; a < na && !rc; a++) {
        uint32_t b = find_name(&names, env_name(w, 0, list, a, room));
        if (b != ENV_NONE)
            used[b] = 1;
        rc = add_pair(o, w, list, equal, a, b, &heading, err);
    }
    for (uint32_t b = 0; b < nb && !rc; b++)
        if (!used[b])
            rc = add_pair(o, w, list, equal, ENV_NONE, b, &heading, err);
    free(used);
    free(names.list);
    ds_buf_free(&names.text);
    return rc;
}

static int add_one(struct env_own *o, const struct tui_whole *w, int list, struct ds_error *err)
{
    size_t n = env_entries(w, 0, list);
    if (n && add_heading(o, list, 0, 0, err))
        return -1;
    for (uint32_t i = 0; i < n; i++)
        if (add_row(o, (struct env_row){.at = {i, ENV_NONE}, .list = (uint8_t)list}, err))
            return -1;
    return 0;
}

/* What differs comes first: as ds_diff judges it or, of records that it does not compare, all that is unlike. */
static int make_rows(struct env_own *o, const struct tui_whole *w, struct ds_error *err)
{
    if (env_count(o, w, err) || add_findings(o, w, err) ||
        (o->comparable && add_items(o, w->diff, err)))
        return -1;
    for (int list = ENV_MODEL; list < ENV_LISTS && o->two && !o->comparable; list++)
        if (add_both(o, w, list, 0, err))
            return -1;
    for (int list = 0; list < ENV_LISTS; list++)
        if (o->two ? add_both(o, w, list, list != ENV_RECORD, err) : add_one(o, w, list, err))
            return -1;
    return 0;
}

/* ---- loading --------------------------------------------------------------------------------- */

static void empty(struct env_own *o)
{
    for (int side = 0; side < 2; side++) {
        for (size_t f = 0; f < o->n_values[side]; f++)
            free(o->values[side][f]);
        free(o->values[side]);
        free(o->trials[side]);
    }
    free(o->rows);
    memset(o, 0, sizeof *o);
}

static void free_own(struct tui_view *v)
{
    if (v->own)
        empty(v->own);
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
    o->column[1] = (struct tui_column){o->two ? "A" : "value", TUI_LEFT, 0, 0, o->two ? side : 0};
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
    *o = (struct env_own){.data = c->data,
                          .generation = w->generation,
                          .columns = columns,
                          .ascii = c->ascii,
                          .two = w->sides[1] != NULL,
                          .comparable =
                              w->diff && w->diff->verdict.result != DS_RESULT_INCOMPARABLE};
    set_columns(o);
    int rc = make_rows(o, w, &err) || tui_view_heads(v, 1 + o->two);
    env_source(o, &source);
    if (rc || tui_table_source(&v->table, &source, &err)) {
        empty(o);
        *o = before;
        snprintf(why, 256, "%.250s", err.msg[0] ? err.msg : "out of memory");
        return TUI_EMPTY;
    }
    tui_table_keep(&v->table, row, before.rows, before.n, o->rows, o->n, sizeof *o->rows);
    empty(&before);
    for (int side = 0; side <= o->two; side++)
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
    if (!w || !w->header || row >= o->n)
        return 1;
    const struct env_row *r = &o->rows[row];
    const struct ds_verdict *verdict = w->verdict;
    if (r->list == ENV_FINDINGS && verdict && verdict->validity &&
        r->at[0] < verdict->validity->n_items) {
        const struct ds_validity_item *x = &verdict->validity->items[r->at[0]];
        if (x->located)
            return go(c, x->arm, x->arm == c->place->arm ? c->place->ref : verdict->ref_arm,
                      x->site, next);
    }
    if (r->list == ENV_ITEMS && w->diff->items[r->at[0]].kind == DS_DIFF_LAUNCH && verdict &&
        verdict->first.found)
        return go(c, verdict->first.arm, verdict->first.ref_arm, verdict->first.site, next);
    if (r->list == ENV_ARMS && !o->two)
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
    tui_verdict_command(c, out);
}

static void status(const struct tui_view *v, const struct tui_context *c, struct ds_buf *out)
{
    const struct env_own *o = v->own;
    const struct ds_verdict *verdict = c->whole->verdict;
    if (!o)
        return;
    if (o->two)
        ds_buf_printf(out, "%zu differ, %zu equal", o->n_differ, o->n_equal);
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
