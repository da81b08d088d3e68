/* table.c: the rows that are shown, the cursor among them, marks. What searching, sorting, drawing and exporting
 * are is in table_*.c; none of them knows what the rows mean. */
#include "tui/table_internal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

int tui_row_kind(const struct tui_source *s, size_t row)
{
    return s->kind ? s->kind(s->ctx, row) : TUI_ROW;
}

int tui_row_is_heading(const struct tui_source *s, size_t row)
{
    int kind = tui_row_kind(s, row);

    return kind == TUI_ROW_SECTION || kind == TUI_ROW_HEADS;
}

void tui_row_cell(const struct tui_source *s, size_t row, size_t column, struct tui_value *out)
{
    /* A search asks millions of cells: what lies behind the end of a text is nobody's. */
    out->text[0] = '\0';
    memset(&out->full, 0, sizeof *out - offsetof(struct tui_value, full));
    s->cell(s->ctx, row, column, out);
    out->text[sizeof out->text - 1] = '\0';
    int most = (int)(sizeof out->span / sizeof out->span[0]);
    out->n_spans = out->n_spans < 0 ? 0 : out->n_spans > most ? most : out->n_spans;
}

const char *tui_cell_text(const struct tui_value *v)
{
    return v->full ? v->full : v->text;
}

size_t tui_row_section(const struct tui_source *s, size_t row)
{
    if (!s->kind || row >= s->n_rows)
        return TUI_NOWHERE;
    for (size_t i = row + 1; i-- > 0;)
        if (tui_row_is_heading(s, i))
            return i;
    return TUI_NOWHERE;
}

void tui_section_column(const struct tui_source *s, size_t heading, size_t column, char *out,
                        size_t size)
{
    const char *name = s->columns[column].name ? s->columns[column].name : "";
    struct tui_value v;

    if (heading != TUI_NOWHERE && tui_row_kind(s, heading) == TUI_ROW_HEADS) {
        tui_row_cell(s, heading, column, &v);
        name = v.text;
    }
    size_t n = strlen(name) < size - 1 ? strlen(name) : size - 1;
    memcpy(out, name, n);
    out[n] = '\0';
}

int tui_table_stopped(struct tui_table *t, size_t done)
{
    if (done % TUI_STOP_EVERY == TUI_STOP_EVERY - 1 && t->stop && t->stop(t->stop_ctx))
        t->stopped = 1;
    return t->stopped;
}

/* ---- which rows are shown -------------------------------------------------------------------- */

struct building {
    struct tui_table *t;
    const struct tui_source *s;
    struct tui_terms terms;
    int sort, stoppable;
    size_t *shown, n, from; /* from: where the stretch of rows that may be sorted begins */
    size_t heading;         /* not shown yet, since no row under it is; TUI_NOWHERE: none */
};

static int end_stretch(struct building *b, struct ds_error *err)
{
    size_t n = b->n - b->from;
    size_t column = (size_t)(b->sort < 0 ? -b->sort : b->sort);
    int rc = 0;

    if (column && n > 1)
        rc = tui_rows_sort(b->t, b->s, b->shown + b->from, n, column - 1, b->sort < 0, err);
    b->from = b->n;
    return rc;
}

static void show_row(struct building *b, size_t row)
{
    if (b->heading != TUI_NOWHERE) {
        b->shown[b->n++] = b->heading;
        b->heading = TUI_NOWHERE;
        b->from = b->n;
    }
    b->shown[b->n++] = row;
}

static int add_row(struct building *b, size_t row, struct ds_error *err)
{
    int kind = tui_row_kind(b->s, row);
    int fits = kind == TUI_ROW_SECTION || kind == TUI_ROW_HEADS || !b->terms.n ||
               tui_terms_fit(&b->terms, b->s, row);

    if (kind == TUI_ROW) {
        if (fits)
            show_row(b, row);
        return 0;
    }
    if (!fits) /* a text that is not shown parts no rows */
        return 0;
    if (end_stretch(b, err))
        return -1;
    if (kind == TUI_ROW_TEXT) {
        show_row(b, row);
    } else if (b->terms.n) {
        b->heading = row;
        tui_terms_resolve(&b->terms, b->s, row);
    } else {
        show_row(b, row);
    }
    b->from = b->n;
    return 0;
}

/* The rows of *s as filter and sort have them, malloc'ed. */
static int build_shown(struct tui_table *t, const struct tui_source *s, const char *filter,
                       int sort, size_t **shown, size_t *n, struct ds_error *err)
{
    struct building b = {.t = t, .s = s, .sort = sort, .heading = TUI_NOWHERE};

    t->stopped = 0;
    if (tui_terms_parse(filter, 1, &b.terms, err) || tui_terms_check(&b.terms, s, err))
        return -1;
    tui_terms_resolve(&b.terms, s, TUI_NOWHERE);
    b.shown = ds_calloc(s->n_rows, sizeof *b.shown, "rows of a table", err);
    if (!b.shown)
        return -1;
    int rc = 0;
    for (size_t row = 0; row < s->n_rows && !rc; row++) {
        rc = add_row(&b, row, err);
        if (!rc && tui_table_stopped(t, row))
            rc = ds_fail(err, "stopped");
    }
    if (!rc)
        rc = end_stretch(&b, err);
    if (rc) {
        free(b.shown);
        return -1;
    }
    *shown = b.shown;
    *n = b.n;
    return 0;
}

/* Of the columns' names, by which other columns are known: those of the source before may be gone. */
static uint64_t heading_of(const struct tui_source *s)
{
    uint64_t h = UINT64_C(14695981039346656037) + s->n_columns;
    for (size_t i = 0; i < s->n_columns; i++)
        for (const char *p = s->columns[i].name ? s->columns[i].name : "";; p++) {
            h = (h ^ (unsigned char)*p) * UINT64_C(1099511628211);
            if (!*p)
                break;
        }
    return h;
}

static void count_marks(struct tui_table *t)
{
    t->n_marked = 0;
    for (size_t i = 0; i < t->source.n_rows; i++)
        t->n_marked += t->marked[i] != 0;
}

/* Filter and sort of before, without what the new source has no column for. What is shown must never depend on
 * a key pressed meanwhile, so nothing stops this. */
static int build_again(struct tui_table *t, const struct tui_source *s, size_t **shown, size_t *n,
                       struct ds_error *err)
{
    int (*stop)(void *) = t->stop;
    struct tui_terms terms;
    int column = t->sort < 0 ? -t->sort : t->sort;

    if ((size_t)column > s->n_columns)
        t->sort = 0;
    if (tui_terms_parse(t->filter, 1, &terms, NULL) || tui_terms_check(&terms, s, NULL))
        t->filter[0] = '\0';
    t->stop = NULL;
    int rc = build_shown(t, s, t->filter, t->sort, shown, n, err);
    t->stop = stop;
    return rc;
}

int tui_table_source(struct tui_table *t, const struct tui_source *s, struct ds_error *err)
{
    size_t row = tui_table_row(t), *shown, n;
    uint8_t *marked = ds_calloc(s->n_rows, 1, "marks of a table", err);
    int *widths = ds_calloc(s->n_columns, sizeof *widths, "columns of a table", err);

    if (!marked || !widths || build_again(t, s, &shown, &n, err)) {
        free(marked);
        free(widths);
        return -1;
    }
    size_t keep = t->source.n_rows < s->n_rows ? t->source.n_rows : s->n_rows;
    if (t->marked && keep)
        memcpy(marked, t->marked, keep);
    /* Other columns, another table: widths seen before mean nothing. */
    if (t->widths && s->n_columns && t->heading == heading_of(s))
        memcpy(widths, t->widths, s->n_columns * sizeof *widths);
    free(t->shown);
    free(t->marked);
    free(t->widths);
    t->source = *s;
    t->heading = heading_of(s);
    t->shown = shown;
    t->n_shown = n;
    t->marked = marked;
    t->widths = widths;
    count_marks(t);
    if (t->column >= s->n_columns)
        t->column = s->n_columns ? s->n_columns - 1 : 0;
    if (s->cell_cursor && t->column < s->first_cell)
        t->column = s->first_cell < s->n_columns ? s->first_cell : 0;
    tui_table_settle(t, row);
    return 0;
}

enum { MARK_MOVES = 2 };

/* Marks behind the first row that is another one go where their rows are now, if they are anywhere: each is looked for from
 * where the one before was found, so that rows that kept their order cost one walk. */
static void move_marks(struct tui_table *t, const char *x, size_t n_before, const char *y,
                       size_t n_now, size_t alike, size_t size)
{
    const size_t n = t->source.n_rows < n_before ? t->source.n_rows : n_before;
    size_t from = alike;
    for (size_t i = alike; i < t->source.n_rows; i++)
        t->marked[i] = (uint8_t)((t->marked[i] != 0 && i < n) * MARK_MOVES);
    for (size_t i = alike; i < n; i++) {
        if (!(t->marked[i] & MARK_MOVES))
            continue;
        t->marked[i] &= (uint8_t)~MARK_MOVES;
        for (size_t k = 0; k < n_now - alike; k++) {
            size_t at = alike + (from - alike + k) % (n_now - alike);
            if (at >= t->source.n_rows || memcmp(x + i * size, y + at * size, size) != 0)
                continue;
            t->marked[at] |= 1;
            from = at;
            break;
        }
    }
    count_marks(t);
}

void tui_table_keep(struct tui_table *t, size_t row, const void *before, size_t n_before,
                    const void *now, size_t n_now, size_t size)
{
    const char *x = before, *y = now;
    size_t alike = 0;

    while (alike < n_before && alike < n_now &&
           memcmp(x + alike * size, y + alike * size, size) == 0)
        alike++;
    move_marks(t, x, n_before, y, n_now, alike, size);
    for (size_t i = alike; row >= alike && row < n_before && i < n_now; i++)
        if (memcmp(x + row * size, y + i * size, size) == 0) {
            tui_table_go(t, i, t->column);
            return;
        }
}

void tui_table_free(struct tui_table *t)
{
    free(t->shown);
    free(t->marked);
    free(t->widths);
    memset(t, 0, sizeof *t);
}

static int reshow(struct tui_table *t, const char *filter, int sort, struct ds_error *err)
{
    size_t row = tui_table_row(t), *shown, n;

    if (build_shown(t, &t->source, filter, sort, &shown, &n, err))
        return -1;
    free(t->shown);
    t->shown = shown;
    t->n_shown = n;
    if (filter != t->filter)
        memcpy(t->filter, filter, strlen(filter) + 1);
    t->sort = sort;
    tui_table_settle(t, row);
    return 0;
}

int tui_table_filter(struct tui_table *t, const char *text, struct ds_error *err)
{
    if (strlen(text) >= sizeof t->filter)
        return ds_fail(err, "a filter has at most %zu bytes", sizeof t->filter - 1);
    return reshow(t, text, t->sort, err);
}

int tui_table_sort(struct tui_table *t, int column_from_1, int descending, struct ds_error *err)
{
    if (column_from_1 < 0 || (size_t)column_from_1 > t->source.n_columns)
        return ds_fail(err, "there is no column %d: there are %zu", column_from_1,
                       t->source.n_columns);
    return reshow(t, t->filter, descending ? -column_from_1 : column_from_1, err);
}

void tui_table_column_name(const struct tui_table *t, size_t column, char *out, size_t size)
{
    size_t row = tui_table_row(t);

    out[0] = '\0';
    if (column < t->source.n_columns)
        tui_section_column(&t->source,
                           row == SIZE_MAX ? TUI_NOWHERE : tui_row_section(&t->source, row), column,
                           out, size);
}

/* ---- the cursor ------------------------------------------------------------------------------ */

static int can_stand(const struct tui_table *t, size_t place)
{
    return place < t->n_shown && !tui_row_is_heading(&t->source, t->shown[place]);
}

/* The first place from `from` on, in the direction of `step`, that is no heading. */
static size_t stand_from(const struct tui_table *t, size_t from, int step)
{
    for (size_t i = from; i < t->n_shown; i += (size_t)step) /* below 0 wraps to above n_shown */
        if (can_stand(t, i))
            return i;
    return TUI_NOWHERE;
}

static void put_cursor(struct tui_table *t, size_t place, int step)
{
    size_t at = stand_from(t, place, step);

    if (at == TUI_NOWHERE)
        at = stand_from(t, place, -step);
    t->cursor = at == TUI_NOWHERE ? place : at; /* headings only: it stands on one, to scroll */
    t->panned = 0;
}

void tui_table_settle(struct tui_table *t, size_t row)
{
    size_t place = t->cursor;

    if (!t->n_shown) {
        t->cursor = t->top = 0;
        return;
    }
    for (size_t i = 0; i < t->n_shown && row != SIZE_MAX; i++)
        if (t->shown[i] == row || (!t->sort && t->shown[i] > row)) {
            place = i;
            break;
        }
    put_cursor(t, place < t->n_shown ? place : t->n_shown - 1, 1);
}

/* The cursor's place if a row is there, else TUI_NOWHERE. */
static size_t place_of(const struct tui_table *t)
{
    return can_stand(t, t->cursor) ? t->cursor : TUI_NOWHERE;
}

size_t tui_table_row(const struct tui_table *t)
{
    size_t place = place_of(t);

    return place == TUI_NOWHERE ? SIZE_MAX : t->shown[place];
}

int tui_table_go(struct tui_table *t, size_t row, size_t column)
{
    if (row >= t->source.n_rows)
        return -1;
    size_t at = row < t->n_shown && t->shown[row] == row ? row : 0;
    while (at < t->n_shown && t->shown[at] != row)
        at++;
    if (at == t->n_shown || !can_stand(t, at))
        return -1;
    t->cursor = at;
    t->panned = 0;
    if (t->source.cell_cursor && column >= t->source.first_cell && column < t->source.n_columns)
        t->column = column;
    return 0;
}

void tui_table_move(struct tui_table *t, long rows, long columns)
{
    t->panned = 0;
    if (t->source.cell_cursor && t->source.n_columns > t->source.first_cell && columns) {
        size_t first = t->source.first_cell, last = t->source.n_columns - 1;
        size_t by = columns < 0 ? 0 - (size_t)columns : (size_t)columns;
        if (columns > 0)
            t->column = by > last - t->column ? last : t->column + by;
        else
            t->column = by > t->column - first ? first : t->column - by;
    }
    if (!t->n_shown || !rows)
        return;
    size_t by = rows < 0 ? 0 - (size_t)rows : (size_t)rows, last = t->n_shown - 1;
    if (rows > 0)
        put_cursor(t, by > last - t->cursor ? last : t->cursor + by, 1);
    else
        put_cursor(t, by > t->cursor ? 0 : t->cursor - by, -1);
    if (rows < 0 && stand_from(t, t->cursor - (t->cursor > 0), -1) == TUI_NOWHERE)
        t->top = 0; /* the first row shows the heading above it */
}

void tui_table_page(struct tui_table *t, int half_pages)
{
    int page = t->page > 1 ? t->page : 2;
    long by = half_pages == 2 || half_pages == -2 ? page - 1 : page / 2;

    if (half_pages < 0) {
        t->top = t->top > (size_t)by ? t->top - (size_t)by : 0;
        by = -by;
    } else {
        t->top += (size_t)by;
    }
    tui_table_move(t, by, 0);
}

void tui_table_end(struct tui_table *t, int last)
{
    if (!t->n_shown)
        return;
    put_cursor(t, last ? t->n_shown - 1 : 0, last ? -1 : 1);
    if (!last)
        t->top = 0;
}

void tui_table_pan(struct tui_table *t, int cells)
{
    long pan = (long)t->pan + cells;

    t->pan = pan < 0 ? 0 : pan > 1000000 ? 1000000 : (int)pan;
    t->panned = 1;
}

/* ---- marks ----------------------------------------------------------------------------------- */

void tui_table_mark(struct tui_table *t, int all_off)
{
    size_t row = tui_table_row(t);

    if (all_off) {
        if (t->source.n_rows)
            memset(t->marked, 0, t->source.n_rows);
        t->n_marked = 0;
    } else if (row != SIZE_MAX) {
        t->marked[row] = !t->marked[row];
        t->n_marked += t->marked[row] ? 1 : (size_t)-1;
    }
}

size_t tui_table_marks(const struct tui_table *t)
{
    return t->n_marked;
}
