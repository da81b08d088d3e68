/* view_layers_cells.c: what the map's cells show, and which site a cell is. Asked by the table for what is on the screen. */
#include "tui/view_layers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_PAN = 400 };

/* Cells of a bar of powers of ten; at least one. */
static int bar_cells(const struct layers_own *o, double size)
{
    double share = (log10(size) - o->low) / (o->high - o->low);
    int cells = isfinite(size) ? (int)lround(share * o->growth_cells) : o->growth_cells;
    return cells < 1 ? 1 : cells > o->growth_cells ? o->growth_cells : cells;
}

/* A bar for all that differs at the layer's last residual, in it or behind it "+" for what one of its sites adds. */
void layers_growth_text(const struct layers_own *o, const struct layers_line *l, char *out,
                        size_t n)
{
    char mark = o->marks[l->last];
    int all = l->size > 0 ? bar_cells(o, l->size) : 0,
        at = l->added > 0 ? bar_cells(o, l->added) : 0;
    size_t len = 0;
    out[0] = '\0';
    if (mark == '!' || mark == '?' || (layers_is_drift(mark) && l->size < 0)) {
        snprintf(out, n, "%s", mark == '!' ? "NaN" : mark == '?' ? "?" : "n/a");
        return;
    }
    for (int i = 1; (i <= all || i <= at) && len + 4 < n; i++)
        len += (size_t)snprintf(out + len, n - len, "%s",
                                i == at    ? "+"
                                : i <= all ? tui_glyph(TUI_G_SHADE + (o->ascii ? 4 : 3), o->ascii)
                                           : " ");
}

/* ---- cells ------------------------------------------------------------------------------------- */

/* The site of a line in one column of the record. */
static uint32_t site_of(const struct layers_own *o, const struct layers_line *l, uint32_t stage)
{
    uint32_t low = l->first, high = l->first + l->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (o->stage[o->order[middle]] < stage)
            low = middle + 1;
        else
            high = middle;
    }
    return low < l->first + l->n && o->stage[o->order[low]] == stage ? o->order[low] : UINT32_MAX;
}

static int graver(const struct layers_own *o, uint32_t a, uint32_t b)
{
    const char *all = TUI_MARKS;
    long x = strchr(all, o->marks[a]) - all, y = strchr(all, o->marks[b]) - all;
    if (x != y)
        return x < y;
    x = strchr(all, o->kinds[a]) - all;
    y = strchr(all, o->kinds[b]) - all;
    if (x != y)
        return x < y;
    return layers_size(&o->sums[a], o->at.metric) > layers_size(&o->sums[b], o->at.metric);
}

/* The gravest of a cell's sites. */
static uint32_t cell_site(const struct layers_own *o, const struct layers_line *l, size_t column)
{
    const struct layers_column *c = &o->columns[column];
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t s = site_of(o, l, c->stage + i);
        if (s != UINT32_MAX && (best == UINT32_MAX || graver(o, s, best)))
            best = s;
    }
    return best;
}

static double cell_size(const struct layers_own *o, uint32_t site)
{
    return layers_is_drift(o->marks[site]) ? layers_size(&o->sums[site], o->at.metric) : -1;
}

void layers_site_text(const struct layers_own *o, uint32_t site, char out[32])
{
    char mark = o->marks[site], number[16];
    double size = cell_size(o, site);
    layers_number(size, o->at.metric, number);
    if (mark == '!')
        snprintf(out, 32, "!%c", o->kinds[site]);
    else if (o->wide && size > 0)
        snprintf(out, 32, "%c %s", mark, number); /* apart: '-' is no sign */
    else
        snprintf(out, 32, layers_is_drift(mark) ? "%c%c" : "%c", mark,
                 layers_digit(size, o->at.metric));
}

/* ---- the table ------------------------------------------------------------------------------------ */

void layers_row_name(const struct layers_own *o, size_t row, char out[48])
{
    const struct layers_row *r = &o->rows[row];
    const struct layers_line *l = &o->lines[r->line];
    if (r->n > 1)
        snprintf(out, 48, "L%02d-%02d", l->layer, o->lines[r->line + r->n - 1].layer);
    else
        snprintf(out, 48, "L%02d", l->layer);
}

static void number_cell(const struct layers_own *o, double size, struct tui_value *v)
{
    char text[16];
    v->null = size < 0;
    v->numeric = size >= 0;
    v->key = size;
    layers_number(size, o->at.metric, text);
    snprintf(v->text, sizeof v->text, "%s", text);
}

static void outside_cell(const struct layers_own *o, const struct layers_line *l,
                         struct tui_value *v)
{
    char text[32];
    const struct tui_table *t = o->table;
    int at = t && t->widths && t->source.n_columns > LAYERS_GROWTH
                 ? t->widths[LAYERS_NAME] + 1 + t->widths[LAYERS_GROWTH] + 1 +
                       (t->pan < MOST_PAN ? t->pan : MOST_PAN)
                 : 0;
    layers_site_text(o, l->first, text);
    snprintf(v->text, sizeof v->text, "%*s%-3s %s", at, "", text, l->name);
    v->n_spans = 1;
    v->span[0].begin = (uint16_t)at;
    v->span[0].end = (uint16_t)(at + (int)strlen(text));
    v->span_role = tui_mark_role(o->marks[l->first]);
}

static void cell(void *ctx, size_t row, size_t column, struct tui_value *v)
{
    const struct layers_own *o = ctx;
    char text[64];
    if (row >= o->n_rows)
        return;
    const struct layers_line *l = &o->lines[o->rows[row].line];
    if (l->name[0]) {
        outside_cell(o, l, v);
    } else if (column == LAYERS_NAME) {
        layers_row_name(o, row, text);
        snprintf(v->text, sizeof v->text, "%s", text);
    } else if (column == LAYERS_GROWTH) {
        layers_growth_text(o, l, v->text, sizeof v->text);
        v->role = o->marks[l->last] == '!' ? TUI_NONFINITE : TUI_DIM;
        v->numeric = l->size >= 0;
        v->key = l->size;
    } else if (column - LAYERS_FIRST < o->n_columns) {
        uint32_t site = cell_site(o, l, column - LAYERS_FIRST);
        v->null = site == UINT32_MAX;
        if (v->null)
            return;
        layers_site_text(o, site, text);
        snprintf(v->text, sizeof v->text, "%s", text);
        v->role = tui_mark_role(o->marks[site]); /* no number: exports must have the mark */
    } else if (column - LAYERS_FIRST - o->n_columns == 0) {
        number_cell(o, layers_is_drift(o->marks[l->last]) ? l->size : -1, v);
    } else {
        number_cell(o, l->added, v);
    }
}

static int kind(void *ctx, size_t row)
{
    const struct layers_own *o = ctx;
    return row < o->n_rows && o->lines[o->rows[row].line].name[0] ? TUI_ROW_TEXT : TUI_ROW;
}

int layers_is(const struct layers_own *o, size_t row, size_t column)
{
    uint32_t site = column >= LAYERS_FIRST + o->n_columns
                        ? UINT32_MAX
                        : layers_site_at(o, row, column, UINT32_MAX);
    char kind = site == UINT32_MAX ? ' ' : o->kinds[site];
    return (layers_is_drift(kind) ? TUI_IS_DRIFT : 0) |
           (kind == '#' || kind == '@' ? TUI_IS_ORIGIN : 0) |
           (site != UINT32_MAX && o->sums[site].jump ? TUI_IS_JUMP : 0);
}

static int is(void *ctx, size_t row, size_t column)
{
    return layers_is(ctx, row, column);
}

void layers_source(struct layers_own *o, struct tui_source *out)
{
    *out = (struct tui_source){.ctx = o,
                               .columns = o->heads,
                               .n_columns = LAYERS_FIRST + o->n_columns + (o->numbers ? 2 : 0),
                               .n_rows = o->n_rows,
                               .cell = cell,
                               .kind = kind,
                               .is = is,
                               .cell_cursor = 1,
                               .first_cell = LAYERS_FIRST,
                               .name = "sites"};
}

/* ---- where a site is --------------------------------------------------------------------------- */

uint32_t layers_site_at(const struct layers_own *o, size_t row, size_t column, uint32_t site)
{
    if (row >= o->n_rows)
        return UINT32_MAX;
    const struct layers_row *r = &o->rows[row];
    const struct layers_line *l = &o->lines[r->line];
    if (l->name[0])
        return l->first;
    if (column < LAYERS_FIRST)
        return UINT32_MAX;
    column -= LAYERS_FIRST;
    int known =
        site < o->n_sites && o->line_of[site] >= r->line && o->line_of[site] < r->line + r->n;
    if (column >= o->n_columns)
        return known && o->lines[o->line_of[site]].last == site ? site : l->last;
    const struct layers_column *c = &o->columns[column];
    if (known && o->stage[site] >= c->stage && o->stage[site] < c->stage + c->n)
        return site;
    return cell_site(o, l, column);
}

int layers_place_of(const struct layers_own *o, uint32_t site, size_t *row, size_t *column)
{
    if (site >= o->n_sites)
        return -1;
    size_t low = 0, high = o->n_rows;
    while (low + 1 < high) {
        size_t middle = low + (high - low) / 2;
        if (o->rows[middle].line <= o->line_of[site])
            low = middle;
        else
            high = middle;
    }
    *row = low;
    *column = LAYERS_FIRST;
    for (size_t i = 0; i < o->n_columns; i++)
        if (o->stage[site] >= o->columns[i].stage &&
            o->stage[site] < o->columns[i].stage + o->columns[i].n)
            *column = LAYERS_FIRST + i;
    return o->n_rows ? 0 : -1;
}
