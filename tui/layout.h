/* layout.h: where things go on a screen of any size. A pure function. */
#ifndef DS_TUI_LAYOUT_H
#define DS_TUI_LAYOUT_H

#include "tui/canvas.h"

enum { TUI_MIN_LINES = 12, TUI_MIN_COLUMNS = 60 };

struct tui_want {      /* what a view would like */
    int head_lines;    /* text above its table */
    int panel_columns; /* beside the table, 0 = none: used where the screen is wide enough for both */
    int panel_lines;   /* below the table, where it is not; 0: then there is no panel */
    int table_columns; /* the least that its table needs beside a panel */
};
struct tui_layout {
    int too_small; /* nothing else counts: say which size is needed */
    struct tui_rect title, head, table, panel, status, keys; /* h 0: not there */
    int panel_beside;                                        /* or below */
};
/* Every rectangle lies on the screen, none overlap, and the table has at least 4 lines. */
void tui_layout(int lines, int columns, const struct tui_want *want, struct tui_layout *out);

#endif
