/* term_guard.h: inside the room: what must hold whatever happens while the screen is up. Signals reach the loop
 * through a pipe; a crash, or a second request to end, puts the terminal back at once; what is written to stderr
 * is kept and printed after. Knows no curses: the texts that restore the screen are given. */
#ifndef DS_TUI_TERM_GUARD_H
#define DS_TUI_TERM_GUARD_H

#include "base/error.h"

#include <stddef.h>

/* tty: a descriptor of the terminal, whose settings are saved. */
int tui_guard_open(int tty, struct ds_error *err);
/* The bytes that bring the screen back. */
void tui_guard_restore(const char *bytes, size_t n);
/* Handlers are installed by open; again after others (curses) may have changed them. */
void tui_guard_handlers(void);
/* Readable when a signal came; -1 when not open. */
int tui_guard_fd(void);
/* TUI_SIGNAL_* of term.h. */
int tui_guard_take(void);
/* Stops the process with the default action of SIGTSTP; returns when it runs on. */
void tui_guard_stop(void);
/* Old handlers, stderr as it was with what it had kept; then the signal that ended the program, if any. */
void tui_guard_close(void);

#endif
