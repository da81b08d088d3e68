/* view.h: what a view is: one file each (view_NAME.c), one table of functions. A view owns a table (table.h), may have
 * lines above it and a panel about the row under the cursor; the frame (app.c) does all that views have in common:
 * keys, search, filter, sort, marks, export, the prompt, title, status and bottom line. */
#ifndef DS_TUI_VIEW_H
#define DS_TUI_VIEW_H

#include "base/buf.h"
#include "tui/data.h"
#include "tui/keys.h"
#include "tui/layout.h"
#include "tui/table.h"

enum tui_metric {
    TUI_METRIC_BITS = 0,
    TUI_METRIC_ULP,
    TUI_METRIC_ABS,
    TUI_METRIC_REL,
    TUI_METRICS
};
enum tui_number { /* as enum ds_value_format of report/value.h */
                  TUI_NUMBER_DECIMAL = 0,
                  TUI_NUMBER_A,
                  TUI_NUMBER_HEX,
                  TUI_NUMBERS
};
const char *tui_metric_name(int metric); /* "elements", "max ULP", "max abs", "rel rms" */
const char *tui_metric_word(int metric); /* for `:set metric`: "bits", "ulp", "abs", "rel" */
const char *tui_number_name(int number); /* "decimal", "%a", "hex" */

/* Where the user is. Shared by all views: going to a site in one is being there in the others. */
struct tui_place {
    uint32_t arm, ref;
    uint32_t site;
    size_t row; /* number of its key in tui_pair.keys */
    size_t element;
    int metric, number;
};

struct tui_app; /* app.h */

struct tui_view {
    const struct tui_view_ops *ops;
    struct tui_table table;
    char (*head)[512]; /* lines above the table; roles beside them */
    int *head_role;
    int n_head;
    void *own;           /* what the view keeps */
    uint64_t seen;       /* generation that `own` was made from */
    struct tui_place at; /* the place it was made for */
};

/* What a view's functions get beside itself. */
struct tui_context {
    struct tui_data *data;
    const struct tui_whole *whole;
    struct tui_place *place;
    int ascii;
    int lines, columns;  /* of the screen */
    const char *program; /* as called, for commands */
};

enum { TUI_READY = 0, TUI_WAITING = 1, TUI_EMPTY = 2 /* nothing to show, `why` says why */ };

struct tui_view_ops {
    const char *name; /* "overview": also for `:view NAME` */
    const char *
        hints; /* the keys that matter here, by request names: "next-drift first-origin enter help" */
    /* Fills head lines and the table's source from the data for *place. Called before every drawing, so
     * it returns at once when nothing changed (view->seen, view->at). */
    int (*load)(struct tui_view *v, const struct tui_context *c, char why[256]);
    void (*want)(const struct tui_view *v, const struct tui_context *c, struct tui_want *out);
    /* The panel; NULL: none. */
    void (*panel)(struct tui_view *v, const struct tui_context *c, struct tui_canvas *canvas,
                  struct tui_rect r);
    /* The cursor moved (or the view was entered): puts what it stands on into *place. NULL: nothing. */
    void (*moved)(struct tui_view *v, const struct tui_context *c);
    /* Own keys. 1 done; 2 done, and go to view *next (a number of tui_views) after it; 0 not mine; -1 with a message. */
    int (*request)(struct tui_view *v, const struct tui_context *c, int request, int *next,
                   struct ds_error *err);
    /* `y`: the command line that shows the same in text. */
    void (*command)(const struct tui_view *v, const struct tui_context *c, struct ds_buf *out);
    /* What status says of this view: position is added by the frame; "12 same 3 drift ..., max ULP". */
    void (*status)(const struct tui_view *v, const struct tui_context *c, struct ds_buf *out);
    void (*free_own)(struct tui_view *v);
};
enum { TUI_VIEWS = 7 };
extern const struct tui_view_ops *const tui_views[TUI_VIEWS]; /* views.c */
extern const struct tui_view_ops tui_view_help;
extern const struct tui_view_ops tui_view_overview, tui_view_layers, tui_view_site, tui_view_tensor,
    tui_view_tokens, tui_view_runs, tui_view_environment;

/* view_common.c: what several views need. */
int tui_view_heads(struct tui_view *v, int n); /* room for n head lines, emptied; -1: no memory */
void tui_view_head(struct tui_view *v, int line, int role, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* An empty table called `name`, no head lines: nothing of another place may stand under the new title. Returns state. */
int tui_view_reset(struct tui_view *v, const struct tui_context *c, const char *name, int state);
/* { and } where there are no layers, but sections: to the first row of the next one (step 1) or of the one before (-1),
 * its heading above it. 1; -1: there is none. */
int tui_view_section(struct tui_view *v, int step, struct ds_error *err);
/* `y`: the command that prints what the verdict is made of, with the options `what`; the one about the pair of arms at
 * the place. Nothing where the record is not on disk. */
void tui_verdict_command(const struct tui_context *c, const char *what, struct ds_buf *out);
void tui_pair_command(const struct tui_context *c, const char *what, struct ds_buf *out);
/* Lines of a panel, one below the other; y: where the next one goes. A text takes as many lines as it needs, further
 * ones indented; what does not fit is left out. */
struct tui_page {
    struct tui_canvas *canvas;
    struct tui_rect r;
    int y;
};
void tui_page_line(struct tui_page *p, int role, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* "L00 q_proj", "L03 kv_write/k", "final_norm". */
void tui_site_text(const struct ds_header *h, uint32_t site, struct ds_buf *out);
/* 1: an arm against itself, with one trial: nothing is compared with anything. */
int tui_alone(const struct tui_whole *w, const struct tui_place *p);
int tui_label_role(int label);
/* What a site is marked with, the gravest first: as report/ marks sites, and beside that ',' for healed, and '@' 'O' '^'
 * 'X' for '#' 'o' '-' 'x' with a jump in size. */
#define TUI_MARKS "!~@#OoX^x-,.?"
int tui_mark_role(char mark);
const char *tui_mark_words(char mark);

#endif
