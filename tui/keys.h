/* keys.h: what a user can ask for. One table gives key, name (for `:NAME` and scripts), group and help text; the
 * help screen, the bottom line, completion and README's list are made from it. */
#ifndef DS_TUI_KEYS_H
#define DS_TUI_KEYS_H

#include <stddef.h>

enum tui_request {
    TUI_NONE = 0,
    /* moving */
    TUI_DOWN,
    TUI_UP,
    TUI_PAGE_DOWN,
    TUI_PAGE_UP,
    TUI_HALF_DOWN,
    TUI_HALF_UP,
    TUI_FIRST,
    TUI_LAST,
    TUI_LEFT_,
    TUI_RIGHT_, /* h l: the cell to the left or right, else pan */
    TUI_PAN_LEFT,
    TUI_PAN_RIGHT, /* H L: always pan */
    TUI_FOLD,      /* z */
    TUI_ENTER,
    TUI_BACK,
    /* views */
    TUI_NEXT_VIEW,
    TUI_PREVIOUS_VIEW,
    TUI_VIEW_1, /* overview layers site tensor tokens runs environment */
    TUI_VIEW_2,
    TUI_VIEW_3,
    TUI_VIEW_4,
    TUI_VIEW_5,
    TUI_VIEW_6,
    TUI_VIEW_7,
    /* to what matters */
    TUI_NEXT_DRIFT,
    TUI_PREVIOUS_DRIFT,
    TUI_FIRST_ORIGIN,
    TUI_NEXT_JUMP,
    TUI_PREVIOUS_JUMP,
    TUI_NEXT_ROW,
    TUI_PREVIOUS_ROW, /* [ ] : row of the site */
    TUI_NEXT_LAYER,
    TUI_PREVIOUS_LAYER, /* { } */
    TUI_NEXT_ARM,
    TUI_PREVIOUS_ARM, /* a A */
    TUI_SWAP,         /* r: reference cycles */
    /* finding */
    TUI_SEARCH,
    TUI_SEARCH_NEXT,
    TUI_SEARCH_PREVIOUS,
    TUI_FILTER,
    TUI_SORT,         /* s: by the next column */
    TUI_SORT_REVERSE, /* S */
    TUI_MARK_,        /* m */
    TUI_UNMARK,       /* u */
    TUI_UNMARK_ALL,   /* U */
    /* showing */
    TUI_METRIC,  /* d */
    TUI_NUMBER,  /* x */
    TUI_COMMAND, /* y: the command line that shows the same */
    TUI_PROMPT,
    TUI_RELOAD,
    TUI_REDRAW,
    TUI_SUSPEND,
    TUI_CANCEL, /* Esc with something pending */
    TUI_HELP,
    TUI_CLOSE,
    TUI_QUIT,
    TUI_REQUESTS
};

struct tui_binding {
    int request;
    const char *keys[3]; /* "j", "Down", "^D": as shown; NULL-terminated within */
    const char *name;    /* one word with dashes: "next-drift" */
    const char *label;   /* on the bottom line: "next drift" */
    const char *group;   /* heading of the help screen */
    const char *help;
};
const struct tui_binding *tui_bindings(size_t *n);
/* By key name ("^D", "Enter", "e") or by `name`; TUI_NONE: unknown. */
int tui_request_of_key(const char *key);
int tui_request_of_name(const char *name);
const struct tui_binding *tui_binding_of(int request);

#endif
