/* view_layers.h: what the files of the view Layers share. All that is shown is copied from the data when the view is
 * loaded: keys work on it after the data have gone on. */
#ifndef DS_TUI_VIEW_LAYERS_H
#define DS_TUI_VIEW_LAYERS_H

#include "tui/view.h"

/* ---- one site (view_layers_mark.c; pure) ------------------------------------------------------- */

/* One of TUI_MARKS, of the rows' labels and the jump; never '!', which stands before it where there is NaN or Inf. */
char layers_mark(const struct tui_pair *pair, size_t site);
/* Whether the rows of a site with this mark differ. */
int layers_is_drift(char mark);
/* Its size in a metric; negative: not known. */
double layers_size(const struct tui_site_sum *s, int metric);
/* The power of ten as a digit: elements and ULP from 1 (0) to 1e9 and more (9), absolute and relative sizes from less
 * than 1e-8 (0) to 1 and more (9); '=' for no size at all: bits differ, values do not; ' ' not known. */
char layers_digit(double size, int metric);
/* What a digit stands for: "3 is 1000-9999 ULP". */
void layers_digit_words(char digit, int metric, char *out, size_t n);
/* A size in at most 6 characters. */
void layers_number(double size, int metric, char out[16]);

/* ---- the map (view_layers_map.c, view_layers_cells.c) ----------------------------------------------------------------- */

enum { LAYERS_NAME = 0, LAYERS_GROWTH, LAYERS_FIRST /* the first stage */ };

struct layers_line {    /* of the record: a layer, or a site that is in none */
    int32_t layer;      /* of all its sites */
    uint32_t first, n;  /* its sites */
    uint32_t last;      /* the site that its growth is of */
    double size, added; /* negative: not known; 0: no drift */
    char name[48];      /* of a site that is in no layer, else "" */
};
struct layers_row {   /* of the table */
    uint32_t line, n; /* n lines that look alike */
};
struct layers_column {
    uint32_t stage, n; /* stages that it stands for */
    int width;
    char name[32];
};
struct layers_own {
    struct tui_place at;
    int ascii, screen; /* columns of the screen it was made for */
    int alone;         /* one trial: nothing is compared */
    int adds;          /* some line's sites add something */
    int unfolded, parts_folded;

    /* Lines of sites in no layer stand under its first stage, however it is panned. */
    const struct tui_table *table;
    size_t n_sites;
    struct tui_site_sum *sums; /* [n_sites] */
    char *marks;               /* [n_sites] what a cell says first */
    char *kinds;               /* [n_sites] the same, and behind '!' what else is known */
    uint32_t *stage;           /* [n_sites] column as in the record; UINT32_MAX: in no layer */
    uint32_t *order;           /* [n_sites] sites; those of a line by stage */
    uint32_t *line_of;         /* [n_sites] */
    struct layers_line *lines;
    size_t n_lines;
    struct layers_row *rows;
    size_t n_rows;
    uint32_t *stages;              /* a site of each */
    size_t n_stages, n_parts;      /* parts: stages that are numbered parts of one */
    struct layers_column *columns; /* shown */
    size_t n_columns;
    struct tui_column *heads;
    int wide, numbers;                  /* sizes in cells; columns for growth's numbers */
    int name_cells, growth_cells, need; /* of a layer's name, of its bar, of the whole table */
    double low, high;                   /* powers of ten that its bars go from and to */
    uint32_t of[5];                     /* sites same, healed, drift, non-finite, not compared */
    char pair[512];                     /* the pair in words */
};

/* Fills everything but `at` from the pair. -1: no memory. */
int layers_make(struct layers_own *o, const struct ds_header *h, const struct tui_pair *pair,
                struct ds_error *err);
void layers_free(struct layers_own *o);
int layers_is(const struct layers_own *o, size_t row, size_t column); /* TUI_IS_* */
void layers_source(struct layers_own *o, struct tui_source *out);
/* The site of a cell; if `site` is one of several there, then that. UINT32_MAX: none. */
uint32_t layers_site_at(const struct layers_own *o, size_t row, size_t column, uint32_t site);
/* Where a site is shown. 0, or -1: nowhere. */
int layers_place_of(const struct layers_own *o, uint32_t site, size_t *row, size_t *column);

/* Texts as they are shown: folding compares them. A site's mark and digit or size; "L03", "L04-27"; the bar of a line's
 * growth, with "+" at what one of its sites adds. */
void layers_site_text(const struct layers_own *o, uint32_t site, char out[32]);
void layers_row_name(const struct layers_own *o, size_t row, char out[48]);
void layers_growth_text(const struct layers_own *o, const struct layers_line *l, char *out,
                        size_t n);

/* Lists of sites and stages for what the panel has left, all but the last `below` lines; nothing where that is little.
 * view_layers_lists.c */
void layers_lists(struct tui_page *p, const struct ds_header *h, const struct layers_own *o,
                  int below);
/* The growth curve as bars, for free space below the map; nothing where it is small. */
void layers_chart(struct tui_canvas *canvas, struct tui_rect r, const struct layers_own *o);
void layers_panel(struct tui_view *v, const struct tui_context *c, struct tui_canvas *canvas,
                  struct tui_rect r);

#endif
