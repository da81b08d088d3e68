/* view_tokens.h: what the files of the view Tokens share. */
#ifndef DS_TUI_VIEW_TOKENS_H
#define DS_TUI_VIEW_TOKENS_H

#include "tui/view.h"

enum { TOKENS_COLUMNS = 12 };
enum {
    TOKENS_FIRST = 1, /* the first step of its request with another token */
    TOKENS_AFTER = 2  /* other tokens were fed before it: choices that nobody can compare */
};
struct tokens_own {
    /* Asked anew before each use; NULL: not there (yet). */
    const struct tui_steps *steps;
    const struct ds_header *h;
    const struct tui_whole *whole;

    struct tui_place at; /* what the rest is made for */
    int ascii, alone;    /* alone: one trial, compared with nothing */
    int requests;        /* steps of more than one */
    int follow;          /* the cursor has yet to go to the step of the place's row */
    uint8_t *is;         /* [n] TOKENS_FIRST .. */
    size_t n;            /* lines */
    size_t same, differ;
    struct tui_column columns[TOKENS_COLUMNS];
};

/* The step of a line that both sides have; NULL: a side has none. */
int tokens_both(const struct tui_step *s);
/* The side that a step is told from: the reference, or this one where it has none. */
const struct ds_step *tokens_side(const struct tui_step *s);
/* How many times as large the drift must be before the token can change: margin / (2 max abs),
 * since both logits move at most so far; 0: it did change; infinite: nothing drifts; NaN: not
 * known, or not to be compared. */
double tokens_room(const struct tokens_own *o, size_t i);

void tokens_source(struct tokens_own *o, struct tui_source *out);
void tokens_panel(struct tui_view *v, const struct tui_context *c, struct tui_canvas *canvas,
                  struct tui_rect r);

#endif
