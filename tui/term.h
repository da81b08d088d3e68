/* term.h: the terminal: painting a canvas, keys, signals, and putting everything back as it was. There is one
 * terminal at a time. In script mode curses runs on /dev/null with a size of its own, and what it would show
 * is read back from it. */
#ifndef DS_TUI_TERM_H
#define DS_TUI_TERM_H

#include "tui/canvas.h"

struct tui_term_options {
    int script;         /* no terminal: */
    int lines, columns; /* its size */
    int colour;         /* 0: attributes only */
};
/* Adds ../share/terminfo beside the program, if there is one, to where curses looks for descriptions of terminals. It changes
 * the environment: before other threads are there, and before tui_term_open. */
void tui_term_find_descriptions(void);
int tui_term_open(const struct tui_term_options *o, struct ds_error *err);
/* Puts the terminal back and prints what was written to stderr meanwhile. A signal that ended the program is
 * given to whoever handled it before. No effect when it is not open. */
void tui_term_close(void);

void tui_term_size(int *lines, int *columns);
/* Script mode: another size. */
void tui_term_resize(int lines, int columns);
/* Shows a canvas of the terminal's size; the terminal's own cursor goes to (y, x), or is hidden: y -1. */
void tui_term_paint(const struct tui_canvas *c, int y, int x);
/* Forgets what is on the screen: the next paint draws all of it. */
void tui_term_redraw(void);
/* What curses has on its screen, a line a row; with attributes, two more grids: colours (r g y b m c w, '.' none)
 * and attributes (hex digits: 1 bold, 2 dim, 4 reverse, 8 underlined, '.' none). */
struct ds_buf;
void tui_term_screen(int attributes, struct ds_buf *out);

/* The next key by its name in keys.h ("j", "^D", "PgDn", "Enter", "Space"), without waiting: 1 there is one, 0 none,
 * -1 the terminal is gone. */
enum { TUI_KEY_NAME = 16 };
int tui_term_key(char name[TUI_KEY_NAME]);

/* Readable when there are keys, and signals; -1 in script mode. */
int tui_term_fd(void);
int tui_term_signal_fd(void);
enum {
    TUI_SIGNAL_SIZE = 1,    /* the size has changed: taken over already */
    TUI_SIGNAL_RESUMED = 2, /* the process ran on after a stop: all is drawn anew */
    TUI_SIGNAL_STOP = 4,    /* it is asked to stop: tui_term_suspend */
    TUI_SIGNAL_END = 8      /* it is asked to end */
};
int tui_term_signals(void);
/* Gives the terminal back, stops the process, and takes the terminal again when it runs on. */
void tui_term_suspend(void);

#endif
