/* layout.c: see layout.h. */
#include "tui/layout.h"

#include <string.h>

enum { LEAST_TABLE = 4, LEAST_PANEL_LINES = 2 };

/* Title above, status and keys below: one line each. Head, panel and table share what is between. */
static void beside(const struct tui_want *want, struct tui_layout *out)
{
    int columns = out->title.w, first = out->head.y + out->head.h;
    int panel = want->panel_columns;
    out->panel_beside = 1;
    /* On a wide screen the panel gets half of what both can spare. */
    panel += (columns - want->table_columns - 1 - panel) / 2;
    out->table = (struct tui_rect){first, 0, out->status.y - first, columns - panel - 1};
    out->panel = (struct tui_rect){first, columns - panel, out->table.h, panel};
}

static void below(const struct tui_want *want, struct tui_layout *out)
{
    int first = out->head.y + out->head.h, lines = out->status.y - first;
    int panel = want->panel_lines;
    if (panel > lines - LEAST_TABLE - 1)
        panel = lines - LEAST_TABLE - 1;
    if (panel < LEAST_PANEL_LINES || panel < 1)
        panel = 0;
    int table = panel ? lines - panel - 1 : lines; /* a line between them */
    out->table = (struct tui_rect){first, 0, table, out->title.w};
    if (panel)
        out->panel = (struct tui_rect){first + table + 1, 0, panel, out->title.w};
}

void tui_layout(int lines, int columns, const struct tui_want *want, struct tui_layout *out)
{
    memset(out, 0, sizeof *out);
    if (lines < TUI_MIN_LINES || columns < TUI_MIN_COLUMNS) {
        out->too_small = 1;
        return;
    }
    out->title = (struct tui_rect){0, 0, 1, columns};
    out->status = (struct tui_rect){lines - 2, 0, 1, columns};
    out->keys = (struct tui_rect){lines - 1, 0, 1, columns};
    int head = want->head_lines > 0 ? want->head_lines : 0;
    if (head > lines - 3 - LEAST_TABLE)
        head = lines - 3 - LEAST_TABLE;
    if (head)
        out->head = (struct tui_rect){1, 0, head, columns};
    else
        out->head = (struct tui_rect){1, 0, 0, 0};
    int table = want->table_columns > 0 ? want->table_columns : 0;
    if (want->panel_columns > 0 && table <= columns - 1 - want->panel_columns)
        beside(want, out);
    else
        below(want, out);
}
