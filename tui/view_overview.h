/* view_overview.h: what the files of the view Overview share. All that is shown is copied from the verdict when the view
 * is loaded: keys work on it after the data have gone on. */
#ifndef DS_TUI_VIEW_OVERVIEW_H
#define DS_TUI_VIEW_OVERVIEW_H

#include "tui/view.h"

/* Somewhere to go. */
struct overview_goal {
    int view;                  /* number of a view; -1: nowhere */
    uint32_t arm, ref;         /* UINT32_MAX: where the user is */
    uint32_t site;             /* likewise */
    int32_t request, position; /* of a row; position -1: the first that drifts */
};
struct overview_line {
    int kind; /* enum tui_row_kind; TUI_ROW: a row of the matrix */
    int role;
    size_t kernel;             /* of the verdict */
    uint32_t joined;           /* kernels of this row, one after the other */
    char *text;                /* a row's kernel, else the line; UTF-8, escaped */
    struct overview_goal goal; /* of a text */
};
enum { OVERVIEW_CELL = 40 };
struct overview_cell {
    char text[OVERVIEW_CELL];
    int condition; /* enum ds_condition */
    struct overview_goal goal;
};
struct overview_own {
    int ascii, screen, lines_of_screen; /* it was made for */
    int apart; /* a row for each kernel, else one for those that are alike in all */
    struct overview_line *lines;
    size_t n_lines, cap_lines;
    struct tui_column *columns; /* the kernel, then a factor each */
    char (*names)[32];          /* [n_columns] */
    size_t *factors;            /* [n_columns - 1] of the verdict */
    size_t n_columns;
    struct overview_cell *cells; /* [n_kernels][n_columns - 1] */
    size_t n_kernels;
    struct overview_goal first; /* the first origin */
    int of[DS_CONDITIONS];      /* cells by enum ds_condition */
    int made, with_verdict;
};

/* Everything from the whole. -1: no memory. */
int overview_make(struct tui_view *v, struct overview_own *o, const struct tui_context *c,
                  struct ds_error *err);
void overview_free(struct overview_own *o);
void overview_source(struct overview_own *o, struct tui_source *out);
/* NULL: nowhere. */
const struct overview_goal *overview_goal_at(const struct overview_own *o, size_t line,
                                             size_t column);
int overview_is_drift(const struct overview_cell *c);
/* One more line; takes a copy of the text. */
int overview_add(struct overview_own *o, int kind, int role, const char *text,
                 const struct overview_goal *goal);

/* view_overview_matrix.c: columns and cells of kernel by factor. */
int overview_matrix(struct overview_own *o, const struct tui_whole *w, struct ds_error *err);
/* view_overview_text.c: the sections below it, and the head. */
void overview_text(struct overview_own *o, const struct tui_whole *w);
int overview_head(struct tui_view *v, const struct overview_own *o, const struct tui_context *c);
void overview_panel(struct tui_view *v, const struct tui_context *c, struct tui_canvas *canvas,
                    struct tui_rect r);

#endif
