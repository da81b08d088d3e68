/* table_internal.h: what the files of the table share. */
#ifndef DS_TUI_TABLE_INTERNAL_H
#define DS_TUI_TABLE_INTERNAL_H

#include "tui/table.h"

enum { TUI_STOP_EVERY = 4096 };
#define TUI_NOWHERE SIZE_MAX

int tui_row_kind(const struct tui_source *s, size_t row);
/* Empties *out and asks the source; what comes back is made safe to use (terminated, spans in range). */
void tui_row_cell(const struct tui_source *s, size_t row, size_t column, struct tui_value *out);
/* All of its text. */
const char *tui_cell_text(const struct tui_value *v);
/* The heading row that a row is under, at or above it; TUI_NOWHERE: none. */
size_t tui_row_section(const struct tui_source *s, size_t row);
/* The name of a column under a heading row (TUI_NOWHERE: none). */
void tui_section_column(const struct tui_source *s, size_t heading, size_t column, char *out,
                        size_t size);
/* Asked with a running number of rows; 1: end here. */
int tui_table_stopped(struct tui_table *t, size_t done);

/* Puts the cursor on a row of the source or, if it is not shown or a heading, the nearest. */
void tui_table_settle(struct tui_table *t, size_t row);

/* ---- words and conditions (table_find.c) ---- */

enum { TUI_TERM_ANY = 0, TUI_TERM_HOLDS, TUI_TERM_IS, TUI_TERM_ABOVE, TUI_TERM_BELOW };
struct tui_term {
    int op, negated;
    int or_equal; /* of above and below */
    int cased;
    int is_number;
    double number;
    char word[128];
    char name[128]; /* the column's, as given; "": any */
    size_t column;  /* under the heading that was asked last; TUI_NOWHERE: it has no such column */
};
enum { TUI_TERMS = 32 };
struct tui_terms {
    struct tui_term term[TUI_TERMS];
    size_t n;
};
/* with_columns 0: every term is a word. */
int tui_terms_parse(const char *text, int with_columns, struct tui_terms *out,
                    struct ds_error *err);
/* Whether each name is that of a column of the source or of any section. */
int tui_terms_check(const struct tui_terms *terms, const struct tui_source *s,
                    struct ds_error *err);
/* Looks names up under a heading row. */
void tui_terms_resolve(struct tui_terms *terms, const struct tui_source *s, size_t heading);
int tui_terms_fit(const struct tui_terms *terms, const struct tui_source *s, size_t row);
/* The first place of a word in a text at or after `from`; -1 none. */
long tui_term_find(const struct tui_term *term, const char *text, size_t from);

/* ---- order (table_sort.c) ---- */

/* Sorts rows[0..n-1], all of one section, by a column. -1: no memory, or stopped (t->stopped). */
int tui_rows_sort(struct tui_table *t, const struct tui_source *s, size_t *rows, size_t n,
                  size_t column, int descending, struct ds_error *err);

#endif
