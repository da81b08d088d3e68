/* view_tokens.h: what the files of the view Tokens share. */
#ifndef DS_TUI_VIEW_TOKENS_H
#define DS_TUI_VIEW_TOKENS_H

#include "tui/view.h"

enum { TOKENS_COLUMNS = 12 };
struct tokens_own {
    /* Asked anew before each use; NULL: not there (yet). */
    const struct tui_steps *steps;
    const struct ds_header *h;
    const struct tui_whole *whole;

    struct tui_place at; /* what the rest is made for */
    int ascii, alone;    /* alone: one trial, compared with nothing */
    int requests;        /* steps of more than one */
    int follow;          /* the cursor has yet to go to the step of the place's row */
    size_t n;            /* lines */
    size_t same, differ;
    struct tui_column columns[TOKENS_COLUMNS];
};

void tokens_source(struct tokens_own *o, struct tui_source *out);
void tokens_panel(struct tui_view *v, const struct tui_context *c, struct tui_canvas *canvas,
                  struct tui_rect r);

#endif
