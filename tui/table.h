/* table.h: rows and columns with a cursor: the one list that all views are made of. It scrolls, pans, searches,
 * filters, sorts, marks, jumps to the next drift, draws itself and exports itself. Pure: knows no
 * record, no terminal; cells are asked for one by one, so a table of a million rows costs what is on the
 * screen.
 *
 * Row numbers: `row` is a row of the source; `at` a place among the rows shown (after folding, filter and sort).
 * Section rows (headings inside a table) stay where they are: filter and sort work within each section. */
#ifndef DS_TUI_TABLE_H
#define DS_TUI_TABLE_H

#include "base/buf.h"
#include "tui/canvas.h"

enum tui_align { TUI_LEFT = 0, TUI_RIGHT, TUI_CENTRE };
enum { TUI_COLUMN_FIXED = 1 /* stays when the table is panned: the first columns only */ };

struct tui_column {
    const char *name; /* heading; borrowed */
    int align, flags;
    int min,
        max; /* cells; max 0: as wide as what is shown needs. The last column takes what is left */
};

struct tui_value {  /* one cell */
    char text[512]; /* UTF-8, may hold glyphs of canvas.h */
    int role, attr;
    double key;  /* what sorting compares */
    int numeric; /* 0: sort by text */
    int null;    /* nothing is known: sorts last, null in JSON */
    /* Bytes begin[i]..end[i]-1 of the text are drawn in role span_role (differing bits or digits). */
    struct {
        uint16_t begin, end;
    } span[8];
    int n_spans, span_role;
};

/* What a row or a cell is to `e E`, `f` and `w W`. */
enum { TUI_IS_DRIFT = 1, TUI_IS_ORIGIN = 2, TUI_IS_JUMP = 4 };
enum tui_row_kind { TUI_ROW = 0, TUI_ROW_SECTION, TUI_ROW_TEXT /* one text over all columns */ };

struct tui_source {
    void *ctx;
    const struct tui_column *columns;
    size_t n_columns, n_rows;
    /* Fills *out (zeroed before). For section and text rows only column 0 is asked. */
    void (*cell)(void *ctx, size_t row, size_t column, struct tui_value *out);
    int (*kind)(void *ctx, size_t row);              /* NULL: all TUI_ROW */
    int (*is)(void *ctx, size_t row, size_t column); /* TUI_IS_*; NULL: nothing is. Tables
                                                              without a cell cursor are asked column 0 */
    int cell_cursor; /* the cursor is a cell, among columns first_cell .. n_columns - 1 */
    size_t first_cell;
    const char *name; /* of the table, for JSON ("sites"), one word */
};

struct tui_table {
    struct tui_source source;
    size_t *shown, n_shown; /* rows shown, in their order */
    size_t cursor, top;     /* places in `shown` */
    size_t column;          /* the cursor's, with cell_cursor */
    int pan;                /* cells that the columns are moved to the left */
    int page;               /* rows drawn last time */
    char search[128], filter[128];
    int sort;        /* column + 1; 0: as they come; negative: descending */
    uint8_t *marked; /* [source.n_rows] */
    int *widths;     /* [n_columns], as drawn last */
};

/* Zero-initialise to start. Sets or replaces the source: cursor, scroll, sort, filter and marks stay where they
 * can (same numbers of rows and columns, or clamped). */
int tui_table_source(struct tui_table *t, const struct tui_source *s, struct ds_error *err);
void tui_table_free(struct tui_table *t);

/* The source row under the cursor; SIZE_MAX: none. */
size_t tui_table_row(const struct tui_table *t);
/* Puts the cursor on a source row (and column); 0, or -1 if a filter hides it. */
int tui_table_go(struct tui_table *t, size_t row, size_t column);

void tui_table_move(struct tui_table *t, long rows, long columns); /* clamps; skips section rows */
void tui_table_page(struct tui_table *t, int half_pages);          /* +-1, +-2 */
void tui_table_end(struct tui_table *t, int last);
void tui_table_pan(struct tui_table *t, int cells);

/* Case-blind, words in any column; a text in upper case somewhere is matched by case. 0 found and gone to, -1
 * nothing. step +1 next, -1 previous, 0 from the cursor on. Wraps; *wrapped says so. */
int tui_table_search(struct tui_table *t, const char *text, int step, int *wrapped);
/* Rows whose cells hold every word; "!word": none; "name=word", "name>number", "name<number": in that column. "":
 * all. -1 with an error for a column that is not there. */
int tui_table_filter(struct tui_table *t, const char *text, struct ds_error *err);
/* By a column; 0 = as they come. Stable; NaN and unknown last in both directions. */
int tui_table_sort(struct tui_table *t, int column_from_1, int descending, struct ds_error *err);
void tui_table_mark(struct tui_table *t, int all_off); /* toggles at the cursor */
size_t tui_table_marks(const struct tui_table *t);
/* The next (step 1) or previous (-1) row or cell that has `what`, the first one (0), in the order shown; no wrap.
 * 0 moved there, -1 there is none. */
int tui_table_jump(struct tui_table *t, int what, int step);

/* Heading line, rows, and at the right edge how much is above and below. At least one row high. */
void tui_table_draw(struct tui_table *t, struct tui_canvas *c, struct tui_rect r);

enum tui_format { TUI_TEXT = 0, TUI_TSV, TUI_JSON };
/* The marked rows, or all that are shown. TSV: tabs and newlines escaped, a heading line. JSON: an array of
 * objects by column name; numbers where a cell is numeric (NaN and Inf as text), null where nothing is known. */
void tui_table_export(const struct tui_table *t, int format, struct ds_buf *out);

#endif
