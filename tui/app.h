/* app.h: inside the room: the frame around the views: the place, the stack of views, messages, prompt. Works on a
 * canvas and knows no terminal, so that tests and scripts drive it as the loop does. */
#ifndef DS_TUI_APP_H
#define DS_TUI_APP_H

#include "tui/command.h"
#include "tui/prompt.h"
#include "tui/tui.h"
#include "tui/view.h"

enum { TUI_HELP_VIEW = TUI_VIEWS, TUI_ALL_VIEWS, TUI_STACK = 64 };

/* Where a view was left: coming back restores it. */
struct tui_stop {
    int view;
    struct tui_place place;
    size_t cursor, top, column;
    int pan;
};

struct tui_app {
    const struct ds_tui_options *o;
    struct tui_data *data;
    const struct tui_whole *whole;
    struct tui_context context;
    struct tui_view views[TUI_ALL_VIEWS];
    struct tui_stop stack[TUI_STACK];
    int depth;   /* the last of them is on the screen */
    int entered; /* it has just been: its cursor is to be put back (2) or asked where it stands (1) */

    struct tui_place place;
    int placed;             /* 1 by a guess, 2 by the verdict, 3 by the user */
    struct tui_place begun; /* where the verdict put it */
    int seek;               /* the row is to be found by: */
    int32_t seek_request, seek_position;

    int lines, columns, ascii;
    struct tui_canvas canvas;
    struct tui_layout layout;
    int cursor_y, cursor_x; /* the terminal's own; -1: hidden */
    int drawn; /* the view on the screen was loaded after the last turn of the data: what it holds is valid */
    int state; /* TUI_READY .. of it */
    char why[256];
    int given_up; /* Esc: the view asks for nothing until something changes */
    struct tui_place given_up_at;
    uint64_t given_up_seen; /* generation of the data then */

    struct tui_prompt prompt;
    size_t search_from, search_top; /* the cursor before an incremental search */
    char filter_before[128];
    /* What was typed is drawn first where all rows take longer than `patience` (seconds); then tui_app_finish. */
    double patience, typed_until;
    int unfinished;
    int asking; /* the question whether to end is on the screen */
    char message[1600];
    int message_role;
    char noted[512]; /* the note of the record that was shown as a message */
    int quit, suspend, redraw;

    /* What only the terminal can do; NULL: there is none. */
    void (*screen)(struct tui_app *a, int attributes, struct ds_buf *out);
    void (*resize)(struct tui_app *a, int lines, int columns);
    int (*input)(void); /* a key waits */
};

/* The data are borrowed. */
int tui_app_new(const struct ds_tui_options *o, struct tui_data *data, struct tui_app **out,
                struct ds_error *err);
void tui_app_free(struct tui_app *a);
/* Another size of the screen. */
void tui_app_size(struct tui_app *a, int lines, int columns);
/* Takes over what has been read; 1 there is something new. */
int tui_app_turn(struct tui_app *a);
/* Draws everything into a->canvas. */
int tui_app_draw(struct tui_app *a, struct ds_error *err);

/* Its table may be touched. */
static inline int tui_app_ready(const struct tui_app *a)
{
    return a->drawn && a->state == TUI_READY;
}

/* Draws first where that is due, so that every key sees the screen that came before it. */
void tui_app_key(struct tui_app *a, const char *key);
void tui_app_request(struct tui_app *a, int request);
/* Draws; in a script waits until all that this needs has been read. */
int tui_app_settle(struct tui_app *a, struct ds_error *err);
/* Does the lines of a script until its end or `quit`. -1: the line that is wrong, as "FILE:LINE: ...". */
int tui_app_script(struct tui_app *a, const char *path, struct ds_error *err);
/* A command line. -1 with an error. */
int tui_app_command(struct tui_app *a, const char *text, struct ds_error *err);
int tui_app_do(struct tui_app *a, const struct tui_line *line, struct ds_error *err);

void tui_app_say(struct tui_app *a, int role, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void tui_app_say_error(struct tui_app *a, const struct ds_error *err);

/* How many of the first `end` lines shown are rows, not headings. */
size_t tui_app_lines(const struct tui_table *t, size_t end);

/* ---- app_place.c: going somewhere ------------------------------------------------------------- */

struct tui_view *tui_app_view(struct tui_app *a);
/* Opens a view: beside (Tab, 1..7): in the place of the one on the screen, if that was not the first; else on top
 * of it, to be closed again. `left`: the place to come back to. */
void tui_app_open(struct tui_app *a, int view, int beside, const struct tui_place *left);
/* Back to the view before; 0 if there is none. */
int tui_app_back(struct tui_app *a);
/* Where the program begins, and again when the verdict has come, as long as the user went nowhere. */
void tui_app_begin(struct tui_app *a);
int tui_app_go_site(struct tui_app *a, const char *text, struct ds_error *err);
int tui_app_go_arm(struct tui_app *a, int64_t arm, struct ds_error *err);
int tui_app_go_ref(struct tui_app *a, int64_t ref, struct ds_error *err);
/* The requests that move the shared place; 0: it is none of them. */
int tui_app_move_place(struct tui_app *a, int request);
void tui_app_first_drift(struct tui_app *a);

/* ---- app_prompt.c: the prompt, search, filter, export ------------------------------------------- */

void tui_app_open_prompt(struct tui_app *a, int kind);
void tui_app_prompt_key(struct tui_app *a, const char *key);
/* Searches or filters by what has been typed, until it is done or a key waits. */
void tui_app_finish(struct tui_app *a);
int tui_app_export(struct tui_app *a, const char *path, const char *format, int force,
                   struct ds_error *err);
/* A file that appears whole or not at all. */
int tui_write_file(const char *path, int force, const struct ds_buf *text, struct ds_error *err);

#endif
