/* prompt.h: one line of text being typed: editing, history in memory, what Tab offers. Pure: knows no terminal
 * and no command. */
#ifndef DS_TUI_PROMPT_H
#define DS_TUI_PROMPT_H

#include "tui/canvas.h"

enum { TUI_PROMPT_TEXT = 512, TUI_PROMPT_HISTORY = 50, TUI_PROMPT_KINDS = 3 };
/* The sign before the text is the kind. */
enum {
    TUI_PROMPT_OFF = 0,
    TUI_PROMPT_COMMAND = ':',
    TUI_PROMPT_SEARCH = '/',
    TUI_PROMPT_FILTER = '\\'
};

struct tui_prompt {
    int kind;
    char text[TUI_PROMPT_TEXT];
    size_t at; /* byte of `text` before which the next character goes */
    struct {
        char *line[TUI_PROMPT_HISTORY];
        int n;
    } history[TUI_PROMPT_KINDS];
    int recalled;               /* lines back in the history, 0: none */
    char kept[TUI_PROMPT_TEXT]; /* what was typed before recalling */
    char offers[512];           /* what Tab found, to be shown; "" nothing */
};

void tui_prompt_open(struct tui_prompt *p, int kind, const char *text);
/* Closes it; what was typed joins the history if `keep`. */
void tui_prompt_close(struct tui_prompt *p, int keep);
void tui_prompt_free(struct tui_prompt *p);

enum { TUI_TYPING = 0, TUI_TYPED, TUI_DONE, TUI_GIVEN_UP, TUI_COMPLETE };
/* One key: TUI_TYPED the text has changed, TUI_DONE Enter, TUI_GIVEN_UP Esc (or Backspace with nothing typed),
 * TUI_COMPLETE Tab. */
int tui_prompt_key(struct tui_prompt *p, const char *key);
/* Puts a completion in the place of the word that ends at the cursor. candidates: lines, "\n" after each. */
void tui_prompt_offer(struct tui_prompt *p, size_t word_begin, const char *candidates);

/* Draws it on one line; returns the column of its cursor. */
int tui_prompt_draw(const struct tui_prompt *p, struct tui_canvas *c, struct tui_rect r);

#endif
