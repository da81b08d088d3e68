/* table_draw.c: a table in a rectangle. What it measures and asks for is what the rectangle shows, never
 * the whole table. */
#include "tui/table_internal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { MARGIN = 2, MOST_CELLS = 1000, LEAST_PANNED = 8 };

struct drawing {
    struct tui_table *t;
    const struct tui_source *s;
    struct tui_canvas *c;
    struct tui_rect rows; /* of the rows' texts: without the first cell and the bar */
    int heading_y;        /* -1: no line for it */
    int bar;              /* whether there is one, behind the rows */
    size_t first;         /* place drawn in the first line */
    size_t heading;       /* heading row that the first line is under */
    size_t n_fixed;
    int fixed_cells, all_cells; /* of fixed columns with their gaps; of the others */
    int *
        x; /* [n_columns] first cells, counted from the first column that moves (fixed ones: from the left) */
    struct tui_terms search;
    struct tui_canvas line; /* one line to draw on before it is cut */
};

/* ---- where things go ------------------------------------------------------------------------- */

static struct tui_rect within(const struct tui_canvas *c, struct tui_rect r)
{
    int y1 = r.y + r.h < c->h ? r.y + r.h : c->h, x1 = r.x + r.w < c->w ? r.x + r.w : c->w;

    r.y = r.y > 0 ? r.y : 0;
    r.x = r.x > 0 ? r.x : 0;
    r.h = y1 - r.y;
    r.w = x1 - r.x;
    return r;
}

static int has_names(const struct tui_source *s)
{
    for (size_t i = 0; i < s->n_columns; i++)
        if (s->columns[i].name && s->columns[i].name[0])
            return 1;
    for (size_t row = 0; s->kind && row < s->n_rows; row++)
        if (tui_row_kind(s, row) == TUI_ROW_HEADS)
            return 1;
    return 0;
}

/* Scrolls as little as needed: a few lines around the cursor stay in sight. */
static void scroll(struct tui_table *t, int lines)
{
    size_t page = (size_t)lines, n = t->n_shown;
    size_t margin = (page - 1) / 2 < MARGIN ? (page - 1) / 2 : MARGIN;

    if (t->top > t->cursor || t->cursor - t->top < margin)
        t->top = t->cursor > margin ? t->cursor - margin : 0;
    if (t->cursor + margin >= t->top + page)
        t->top = t->cursor + margin + 1 - page;
    if (t->top + page > n)
        t->top = n > page ? n - page : 0;
    t->page = lines;
}

static void place_rows(struct drawing *d, struct tui_rect r)
{
    int named = r.h > 1 && has_names(d->s);

    d->heading_y = named ? r.y : -1;
    d->rows = (struct tui_rect){r.y + named, r.x + 1, r.h - named, r.w - 1};
    scroll(d->t, d->rows.h);
    d->bar = d->t->n_shown > (size_t)d->rows.h && d->rows.w > 2;
    d->rows.w -= d->bar;
    d->first = d->t->top;
    d->heading = TUI_NOWHERE;
    if (!d->t->n_shown || !named)
        return;
    size_t row = d->t->shown[d->first];
    d->heading = tui_row_section(d->s, row);
    /* The heading line shows it already. */
    if (d->heading == row && tui_row_kind(d->s, row) == TUI_ROW_HEADS && d->t->cursor != d->first)
        d->first++;
}

static void heading_text(const struct drawing *d, size_t heading, size_t column, char *out,
                         size_t size)
{
    int sorted = d->t->sort < 0 ? -d->t->sort : d->t->sort;

    tui_section_column(d->s, heading, column, out, size - 8);
    if (sorted && (size_t)sorted == column + 1)
        strcat(out, tui_glyph(d->t->sort < 0 ? TUI_G_DOWN : TUI_G_UP, d->c->ascii));
}

/* ---- widths ---------------------------------------------------------------------------------- */

static void widen(struct drawing *d, size_t column, const char *text)
{
    const struct tui_column *of = &d->s->columns[column];
    int *w = &d->t->widths[column], cells = tui_text_width(text, d->c->ascii);

    cells = cells < of->min ? of->min : cells;
    cells = of->max && cells > of->max ? of->max : cells;
    cells = cells > MOST_CELLS ? MOST_CELLS : cells;
    *w = *w < cells ? cells : *w;
    *w = of->max && *w > of->max ? of->max : *w; /* it may be less than before */
}

static void measure_row(struct drawing *d, size_t row)
{
    int kind = tui_row_kind(d->s, row);
    struct tui_value v;
    char name[512];

    for (size_t i = 0; i < d->s->n_columns && kind == TUI_ROW; i++) {
        tui_row_cell(d->s, row, i, &v);
        widen(d, i, v.text);
    }
    for (size_t i = 0; i < d->s->n_columns && kind == TUI_ROW_HEADS; i++) {
        heading_text(d, row, i, name, sizeof name);
        widen(d, i, name);
    }
    if (kind == TUI_ROW_TEXT && d->s->n_columns) {
        tui_row_cell(d->s, row, 0, &v);
        int cells = tui_text_width(v.text, d->c->ascii);
        d->t->text_width = d->t->text_width < cells ? cells : d->t->text_width;
    }
}

static int gap_of(const struct drawing *d, size_t column)
{
    return d->t->widths[column] > 0;
}

static void measure(struct drawing *d, int w)
{
    const struct tui_source *s = d->s;
    char name[512];

    if (d->t->seen_w != w) {
        memset(d->t->widths, 0, s->n_columns * sizeof *d->t->widths);
        d->t->text_width = 0;
    }
    d->t->seen_w = w;
    for (size_t i = 0; i < s->n_columns && d->heading_y >= 0; i++) {
        heading_text(d, d->heading, i, name, sizeof name);
        widen(d, i, name);
    }
    for (size_t i = d->first; i < d->t->n_shown && i < d->first + (size_t)d->rows.h; i++)
        measure_row(d, d->t->shown[i]);
    while (d->n_fixed < s->n_columns && (s->columns[d->n_fixed].flags & TUI_COLUMN_FIXED)) {
        d->fixed_cells += d->t->widths[d->n_fixed] + gap_of(d, d->n_fixed);
        d->n_fixed++;
    }
    if (d->fixed_cells + LEAST_PANNED > d->rows.w) { /* too narrow to keep them still */
        d->n_fixed = 0;
        d->fixed_cells = 0;
    }
}

static void place_columns(struct drawing *d)
{
    int x = 0;

    for (size_t i = 0; i < d->s->n_columns; i++) {
        if (i == d->n_fixed)
            x = 0;
        d->x[i] = x;
        x += d->t->widths[i] + gap_of(d, i);
    }
    if (d->s->n_columns > d->n_fixed)
        d->all_cells = x - (x > 0); /* no gap behind the last */
}

static void pan(struct drawing *d)
{
    struct tui_table *t = d->t;
    int room = d->rows.w - d->fixed_cells, over = d->all_cells - room;

    if (d->s->cell_cursor && !t->panned && t->column >= d->n_fixed && t->column < d->s->n_columns) {
        int x = d->x[t->column], w = t->widths[t->column];
        if (x + w > t->pan + room)
            t->pan = x + w - room;
        if (x < t->pan)
            t->pan = x;
    }
    if (over < t->text_width - d->rows.w)
        over = t->text_width - d->rows.w;
    t->pan = t->pan > over ? over : t->pan;
    t->pan = t->pan < 0 ? 0 : t->pan;
}

/* ---- cells ----------------------------------------------------------------------------------- */

static size_t to_character(const char *text, size_t at)
{
    size_t n = strlen(text);

    at = at < n ? at : n;
    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80)
        at--;
    return at;
}

/* Cells of text[0..at-1]. */
static int width_to(const struct drawing *d, const char *text, size_t at)
{
    char part[sizeof((struct tui_value *)0)->text];

    at = to_character(text, at < sizeof part ? at : sizeof part - 1);
    memcpy(part, text, at);
    part[at] = '\0';
    return tui_text_width(part, d->c->ascii);
}

/* Bytes begin..end-1 of a text that begins at cell x of the line. */
static void paint(struct drawing *d, const char *text, size_t begin, size_t end, int x, int w,
                  int role)
{
    int from = x + width_to(d, text, begin), to = x + width_to(d, text, end);

    for (int i = from < 0 ? 0 : from; i < to && i < w; i++)
        d->line.cells[i].role = (uint8_t)role;
}

static void paint_found(struct drawing *d, const char *text, int x, int w)
{
    for (size_t i = 0; i < d->search.n; i++) {
        const struct tui_term *term = &d->search.term[i];
        size_t n = strlen(term->word);
        for (long at = tui_term_find(term, text, 0); at >= 0;
             at = tui_term_find(term, text, (size_t)at + n))
            paint(d, text, (size_t)at, (size_t)at + n, x, w, TUI_MATCH);
    }
}

/* Copies w cells of the line to (y, x), as far as they lie between the cells left and right - 1; what is cut off shows. */
static void cut_line(struct drawing *d, int y, int x, int w, int left, int right)
{
    int from = x < left ? left - x : 0, to = x + w > right ? right - x : w;

    if (from >= to)
        return;
    struct tui_cell *out = d->c->cells + (size_t)y * (size_t)d->c->w + x;
    for (int i = from; i < to; i++)
        out[i] = d->line.cells[i];
    int before = 0, behind = 0;
    for (int i = 0; i < from; i++)
        before |= d->line.cells[i].ch != ' ';
    for (int i = to; i < w; i++)
        behind |= d->line.cells[i].ch != ' ';
    if (before)
        tui_put_glyph(d->c, y, x + from, TUI_G_LESS, TUI_DIM, 0);
    if (behind)
        tui_put_glyph(d->c, y, x + to - 1, TUI_G_MORE, TUI_DIM, 0);
}

static void clear_line(struct drawing *d, int w)
{
    for (int i = 0; i < w && i < d->line.w; i++)
        d->line.cells[i] = (struct tui_cell){' ', TUI_PLAIN, 0};
}

/* Draws a value in w cells of the line. */
static void put_value(struct drawing *d, const struct tui_value *v, int align, int w)
{
    int cells = tui_text_width(v->text, d->c->ascii), x = 0;

    clear_line(d, w);
    if (cells < w)
        x = align == TUI_RIGHT ? w - cells : align == TUI_CENTRE ? (w - cells) / 2 : 0;
    if (cells > w && align == TUI_RIGHT) {
        tui_put_right(&d->line, 0, 0, w, v->role, v->attr, v->text);
        x = w - cells;
    } else {
        tui_put(&d->line, 0, x, w - x, v->role, v->attr, v->text);
    }
    for (int i = 0; i < v->n_spans; i++)
        if (v->span[i].begin < v->span[i].end)
            paint(d, v->text, v->span[i].begin, v->span[i].end, x, w, v->span_role);
    paint_found(d, v->text, x, w);
}

/* Where a column lies on the canvas, and the cells left .. right - 1 that it may be drawn in. 0: beside them. */
static int column_cells(const struct drawing *d, size_t column, int *x, int *w, int *left,
                        int *right)
{
    *left = d->rows.x;
    *right = d->rows.x + d->rows.w;
    *x = *left + d->x[column];
    *w = d->t->widths[column];
    if (column >= d->n_fixed) {
        *left += d->fixed_cells;
        *x += d->fixed_cells - d->t->pan;
    }
    if (column + 1 == d->s->n_columns && d->s->columns[column].align == TUI_LEFT && *w > 0 &&
        *x >= *left && *x + *w < *right)
        *w = *right - *x < MOST_CELLS ? *right - *x : MOST_CELLS; /* takes what is left */
    return *w > 0 && *x<*right && * x + *w> * left;
}

static void put_cell(struct drawing *d, int y, size_t column, const struct tui_value *v)
{
    int x, w, left, right;

    if (!column_cells(d, column, &x, &w, &left, &right))
        return;
    put_value(d, v, d->s->columns[column].align, w);
    cut_line(d, y, x, w, left, right);
}

static void mark_cell(struct drawing *d, int y, size_t column)
{
    int x, w, left, right;

    if (column >= d->s->n_columns || !column_cells(d, column, &x, &w, &left, &right))
        return;
    w = d->t->widths[column];
    right = x + w < right ? x + w : right;
    left = x > left ? x : left;
    struct tui_rect r = {y, left, 1, right - left};
    tui_mark_cells(d->c, r, TUI_CURSOR);
}

static void put_text(struct drawing *d, int y, const struct tui_value *v, int pan_by)
{
    int w = tui_text_width(v->text, d->c->ascii);

    w = w < MOST_CELLS ? w : MOST_CELLS;
    put_value(d, v, TUI_LEFT, w);
    cut_line(d, y, d->rows.x - pan_by, w, d->rows.x, d->rows.x + d->rows.w);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void put_names(struct drawing *d, int y, size_t heading)
{
    struct tui_value v;

    for (size_t i = 0; i < d->s->n_columns; i++) {
        memset(&v, 0, sizeof v);
        v.role = TUI_HEAD;
        int here = d->s->cell_cursor && i == d->t->column && d->t->n_shown;
        v.attr = y != d->heading_y || here || d->t->sort == (int)i + 1 || d->t->sort == -(int)i - 1
                     ? TUI_BOLD
                     : 0;
        heading_text(d, heading, i, v.text, sizeof v.text);
        put_cell(d, y, i, &v);
    }
}

static void put_heading_line(struct drawing *d)
{
    int y = d->heading_y, room = d->rows.w - d->fixed_cells;

    if (y < 0)
        return;
    put_names(d, y, d->heading);
    if (d->t->pan > 0)
        tui_put_glyph(d->c, y, d->rows.x + d->fixed_cells - 1, TUI_G_LESS, TUI_DIM, 0);
    if (d->all_cells - d->t->pan > room)
        tui_put_glyph(d->c, y, d->rows.x + d->rows.w - 1, TUI_G_MORE, TUI_DIM, 0);
}

static void put_section(struct drawing *d, int y, size_t row)
{
    struct tui_value v;

    tui_put_glyph(d->c, y, d->rows.x - 1, TUI_G_HLINE, TUI_DIM, 0);
    if (tui_row_kind(d->s, row) == TUI_ROW_HEADS) {
        put_names(d, y, row);
        return;
    }
    struct tui_rect rest = {y, d->rows.x, 1, d->rows.w};
    tui_row_cell(d->s, row, 0, &v);
    v.role = v.role ? v.role : TUI_HEAD;
    v.attr |= TUI_BOLD;
    int used = tui_text_width(v.text, d->c->ascii) + 1;
    rest.x += used;
    rest.w -= used;
    if (rest.w > 0)
        tui_fill(d->c, rest, TUI_G_HLINE, TUI_DIM);
    put_text(d, y, &v, 0);
}

static void put_row(struct drawing *d, int y, size_t place)
{
    size_t row = d->t->shown[place];
    int kind = tui_row_kind(d->s, row), at_cursor = place == d->t->cursor;
    struct tui_value v;

    if (kind == TUI_ROW_SECTION || kind == TUI_ROW_HEADS) {
        put_section(d, y, row);
    } else if (kind == TUI_ROW_TEXT) {
        tui_row_cell(d->s, row, 0, &v);
        put_text(d, y, &v, d->t->pan);
    } else {
        int x, w, left, right;
        for (size_t i = 0; i < d->s->n_columns; i++) {
            if (!column_cells(d, i, &x, &w, &left, &right))
                continue;
            tui_row_cell(d->s, row, i, &v);
            put_cell(d, y, i, &v);
        }
    }
    if (d->t->marked[row])
        tui_put_glyph(d->c, y, d->rows.x - 1, TUI_G_BULLET, TUI_MARK, TUI_BOLD);
    else if (at_cursor)
        tui_put(d->c, y, d->rows.x - 1, 1, TUI_PLAIN, TUI_BOLD, ">");
    if (at_cursor && d->s->cell_cursor && kind == TUI_ROW) {
        mark_cell(d, y, d->t->column);
    } else if (at_cursor) {
        struct tui_rect all = {y, d->rows.x - 1, 1, d->rows.w + 1};
        tui_mark_cells(d->c, all, TUI_CURSOR);
    }
}

/* Where in the table the rows drawn are. */
static void put_bar(const struct drawing *d)
{
    const struct tui_table *t = d->t;
    int h = d->rows.h, x = d->rows.x + d->rows.w;
    int above = t->top > 0, below = d->first + (size_t)h < t->n_shown;
    double n = (double)t->n_shown;
    int from = (int)((double)t->top / n * h), to = (int)((double)(t->top + (size_t)h) / n * h);

    if (!d->bar)
        return;
    if (to <= from)
        to = from + 1;
    for (int i = 0; i < h; i++)
        tui_put_glyph(d->c, d->rows.y + i, x, i >= from && i < to ? TUI_G_SHADE + 4 : TUI_G_VLINE,
                      TUI_DIM, 0);
    if (below)
        tui_put_glyph(d->c, d->rows.y + h - 1, x, TUI_G_DOWN, TUI_DIM, 0);
    if (above)
        tui_put_glyph(d->c, d->rows.y, x, below && h == 1 ? TUI_G_CROSS : TUI_G_UP, TUI_DIM, 0);
}

static void put_nothing(struct drawing *d)
{
    if (d->t->filter[0])
        tui_putf(d->c, d->rows.y, d->rows.x, d->rows.w, TUI_DIM, 0,
                 "no row fits the filter %s; :filter shows all", d->t->filter);
    else
        tui_put(d->c, d->rows.y, d->rows.x, d->rows.w, TUI_DIM, 0, "no rows");
}

void tui_table_draw(struct tui_table *t, struct tui_canvas *c, struct tui_rect r)
{
    struct drawing d = {.t = t, .s = &t->source, .c = c};

    r = within(c, r);
    if (r.h < 1 || r.w < 1)
        return;
    tui_fill(c, r, TUI_G_SPACE, TUI_PLAIN);
    if (r.w < 2 || !t->source.n_columns)
        return;
    d.x = ds_calloc(t->source.n_columns, sizeof *d.x, "columns of a table", NULL);
    if (!d.x || tui_canvas_new(&d.line, 1, MOST_CELLS, c->ascii, NULL)) {
        free(d.x);
        return;
    }
    if (t->search[0] && tui_terms_parse(t->search, 0, &d.search, NULL))
        d.search.n = 0;
    place_rows(&d, r);
    measure(&d, r.w);
    place_columns(&d);
    pan(&d);
    put_heading_line(&d);
    for (int i = 0; i < d.rows.h && d.first + (size_t)i < t->n_shown; i++)
        put_row(&d, d.rows.y + i, d.first + (size_t)i);
    put_bar(&d);
    if (!t->n_shown)
        put_nothing(&d);
    tui_canvas_free(&d.line);
    free(d.x);
}
