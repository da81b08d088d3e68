/* view_environment.h: what the files of the view Environment share: lists of names and values, of one record or of
 * both. */
#ifndef DS_TUI_VIEW_ENVIRONMENT_H
#define DS_TUI_VIEW_ENVIRONMENT_H

#include "tui/view.h"

enum env_list {
    ENV_RECORD = 0, /* what is unlike in any two records */
    ENV_MODEL,
    ENV_HPARAMS,
    ENV_ENVIRONMENT,
    ENV_OPTIONS,
    ENV_PROMPTS,
    ENV_FACTORS,
    ENV_ARMS,
    ENV_WEIGHTS,
    ENV_LISTS,
    ENV_FINDINGS, /* what casts doubt on the record: validity, notes; no list of a record */
    ENV_ITEMS     /* what differs, as ds_diff has it */
};
enum { ENV_NONE = UINT32_MAX };

struct env_row { /* without padding: rows are compared as bytes */
    uint32_t at
        [2]; /* entry of each side's list, ENV_NONE where it has none; findings and items: at[0] */
    uint8_t list, kind; /* enum tui_row_kind; a heading: of a list, and items of the kind at[0] */
    uint8_t equal;      /* both sides have it, and it is the same */
    uint8_t unused;
};

/* A row's name and both texts (of one record the first; NULL: that side has none). */
struct env_texts {
    const char *name, *text[2];
    char room[3][512];
};

struct env_own {
    struct tui_data *data;
    uint64_t generation;
    int columns; /* the table's */
    int ascii;
    int two;        /* records */
    int comparable; /* two, and what differs is listed */
    struct env_row *rows;
    size_t n, cap, n_differ, n_equal;
    struct tui_column column[3];
    char **values[2]; /* [n_factors] a factor's values as one text */
    size_t n_values[2];
    uint32_t *trials[2];    /* [n_arms] natural trials */
    size_t edges[2][3];     /* by kind */
    size_t passes[2][4];    /* trials by pass */
    char blas[2][256];      /* as the trials saw it */
    struct env_texts texts; /* of the cell that was asked for last */
};

/* What the view was made from; NULL: something else is there now. */
const struct tui_whole *env_whole(const struct env_own *o);
/* The counts of a side that the lists tell. -1: no memory. */
int env_count(struct env_own *o, const struct tui_whole *w, struct ds_error *err);
size_t env_entries(const struct tui_whole *w, int side, int list);
/* An entry's name and value, in `out` or borrowed from the record. */
const char *env_name(const struct tui_whole *w, int side, int list, uint32_t at, char out[512]);
const char *env_value(const struct env_own *o, const struct tui_whole *w, int side, int list,
                      uint32_t at, char out[512]);
void env_row_texts(const struct env_own *o, const struct tui_whole *w, const struct env_row *r,
                   struct env_texts *out);
/* What the heading of a list, or of items of a kind, says. */
void env_heading(const struct env_own *o, const struct env_row *r, char out[512]);
void env_source(struct env_own *o, struct tui_source *out);

/* Parts of a that b has not: words where there are several, else what lies between the equal beginning and the equal
 * end. Returns how many, at most `most`. */
struct env_span {
    size_t begin, end;
};
size_t env_difference(const char *a, const char *b, struct env_span *out, size_t most);

void env_panel(struct tui_view *v, const struct tui_context *c, struct tui_canvas *canvas,
               struct tui_rect r);

#endif
