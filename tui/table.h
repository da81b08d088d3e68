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
    char text[512]; /* first: UTF-8, may hold glyphs of canvas.h */
    /* The whole text where `text` is only its beginning, for search, filter and export; borrowed until the next call.
     * NULL: text is all. */
    const char *full;
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
enum tui_row_kind {
    TUI_ROW = 0,
    TUI_ROW_SECTION, /* a heading over all columns */
    TUI_ROW_TEXT,    /* one text over all columns */
    /* A section whose columns have names of their own: asked for every column; an empty one is not there. */
    TUI_ROW_HEADS
};

struct tui_source {
    void *ctx;
    const struct tui_column *columns;
    size_t n_columns, n_rows;
    /* Fills *out (no text, all else zeroed before). For TUI_ROW_SECTION and TUI_ROW_TEXT only column 0 is asked. */
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
    size_t n_marked;
    /* [n_columns], as drawn last: as wide as the widest cell seen, so that scrolling does not make columns jump;
     * other columns begin anew, and so does another width of the table, for which a source may write cells otherwise. */
    int *widths;
    int seen_w; /* the table's width that they were seen at */
    /* Asked once every few thousand rows by search, filter, sort and jump over many rows: not 0 ends them, and
     * they leave everything as it was, `stopped` set. NULL: never. */
    int (*stop)(void *ctx);
    void *stop_ctx;
    int stopped;
    uint64_t heading; /* of the columns' names */
    int panned;       /* since the cursor moved: it may be beside the screen */
    int text_width;   /* of the widest text row seen: so far one can pan */
};

/* Zero-initialise to start. Sets or replaces the source: cursor, scroll, sort, filter and marks stay where they
 * can (same numbers of rows and columns, or clamped); a filter that names a column that is no more is let go. Call
 * it too when the cells of a source changed. What the source before pointed to may be gone already. -1: the table is as it
 * was. */
int tui_table_source(struct tui_table *t, const struct tui_source *s, struct ds_error *err);
void tui_table_free(struct tui_table *t);
/* After a new source whose rows are numbered anew: each is known by `size` bytes, before and now. The cursor, which was on
 * source row `row`, goes to the same one; marks go with their rows, those of rows that are no more are taken away. */
void tui_table_keep(struct tui_table *t, size_t row, const void *before, size_t n_before,
                    const void *now, size_t n_now, size_t size);

/* The source row under the cursor; SIZE_MAX: none. */
size_t tui_table_row(const struct tui_table *t);
/* A heading: of a section, or of its columns. */
int tui_row_is_heading(const struct tui_source *s, size_t row);
/* Puts the cursor on a source row (and column); 0, or -1 if a filter hides it. */
int tui_table_go(struct tui_table *t, size_t row, size_t column);

void tui_table_move(struct tui_table *t, long rows, long columns); /* clamps; skips section rows */
void tui_table_page(struct tui_table *t, int half_pages);          /* +-1, +-2 */
void tui_table_end(struct tui_table *t, int last);
void tui_table_pan(struct tui_table *t, int cells);

/* Words, "quoted" where they hold spaces; a row fits if each is in one of its columns; case-blind, but a word
 * with a capital letter is matched by case. 0 found and gone to, -1 nothing. step +1 next, -1 previous, 0 from the
 * cursor on. Wraps; *wrapped says so. A heading's words are found at its first row. "": nothing is searched, and
 * nothing highlighted. At most 127 bytes. */
int tui_table_search(struct tui_table *t, const char *text, int step, int *wrapped);
/* Rows that fit every word. Words as above; before one, "!" turns it round. In one column: "name=word" (holds the
 * word; of numbers: is it), "name==word" (is it), "name!=word", and of numbers "name>4", ">=", "<", "<=". Names are
 * case-blind, may be cut short, and have _ or nothing for a space: "max_ulp>4". What is not known (null) or NaN
 * is neither above nor below anything. Text rows are filtered by words only; headings go with the last of their
 * rows. "": all. -1 with an error (a column that is not there, not a number, stopped), and nothing
 * changes. */
int tui_table_filter(struct tui_table *t, const char *text, struct ds_error *err);
/* By a column; 0 = as they come. Stable. In both directions numbers come before texts (digits in them count as
 * numbers), then NaN, then what is not known. Rows stay between the section and text rows that they are
 * between. */
int tui_table_sort(struct tui_table *t, int column_from_1, int descending, struct ds_error *err);
/* The name of a column where the cursor is: sections may have their own; "" one that is not there. */
void tui_table_column_name(const struct tui_table *t, size_t column, char *out, size_t size);
/* The column of that name there, in the way of a filter's names; SIZE_MAX: none. */
size_t tui_table_find_column(const struct tui_table *t, const char *name);
void tui_table_mark(struct tui_table *t, int all_off); /* toggles at the cursor */
size_t tui_table_marks(const struct tui_table *t);
/* The next (step 1) or previous (-1) row or cell that has `what`, the first one (0), in the order shown; no wrap.
 * 0 moved there, -1 there is none. */
int tui_table_jump(struct tui_table *t, int what, int step);

/* Heading line (the section's, where sections have their own), rows, and at the right edge how much is above and
 * below. The first cell of each line is > at the cursor and a bullet at a mark. One line high: a row only. */
void tui_table_draw(struct tui_table *t, struct tui_canvas *c, struct tui_rect r);

enum tui_format { TUI_TEXT = 0, TUI_TSV, TUI_JSON };
/* The marked rows, or all that are shown. Marked rows that the filter hides come last.
 * Text: aligned. TSV: as base/buf.h escapes, a heading line; a column "section" in front where there are
 * sections, and a heading line more for each that has its own columns. JSON: {"schema": "driftscope.table/1", "table":
 * NAME, "rows": [objects by column name]}; numbers where a cell is numeric, written so that reading gives the same
 * double (NaN, Inf, -Inf as text), null where nothing is known; texts escaped as in TSV. *out->failed: no memory. */
void tui_table_export(const struct tui_table *t, int format, struct ds_buf *out);

#endif
