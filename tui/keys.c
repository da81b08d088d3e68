/* keys.c: the one table of requests: see keys.h. */
#include "tui/keys.h"

#include <string.h>

#define MOVING  "Moving"
#define VIEWS   "Views"
#define DRIFT   "To what matters"
#define FINDING "Finding"
#define SHOWING "Showing"
#define PROGRAM "The program"

/* clang-format off */
static const struct tui_binding bindings[] = {
    {TUI_DOWN, {"j", "Down"}, "down", "down", MOVING, "one line down"},
    {TUI_UP, {"k", "Up"}, "up", "up", MOVING, "one line up"},
    {TUI_HALF_DOWN, {"^D"}, "half-down", "half page", MOVING, "half a page down"},
    {TUI_HALF_UP, {"^U"}, "half-up", "half page up", MOVING, "half a page up"},
    {TUI_PAGE_DOWN, {"PgDn", "^F", "Space"}, "page-down", "page down", MOVING, "a page down"},
    {TUI_PAGE_UP, {"PgUp", "^B"}, "page-up", "page up", MOVING, "a page up"},
    {TUI_FIRST, {"g", "Home"}, "first", "first", MOVING, "to the first line"},
    {TUI_LAST, {"G", "End"}, "last", "last", MOVING, "to the last line"},
    {TUI_LEFT_, {"h", "Left"}, "left", "left", MOVING, "to the cell on the left; where the cursor is a line, move the columns"},
    {TUI_RIGHT_, {"l", "Right"}, "right", "right", MOVING, "to the cell on the right; where the cursor is a line, move the columns"},
    {TUI_PAN_LEFT, {"H"}, "pan-left", "pan left", MOVING, "move the columns to see what is left of them"},
    {TUI_PAN_RIGHT, {"L"}, "pan-right", "pan right", MOVING, "move the columns to see what is right of them"},
    {TUI_FOLD, {"z"}, "fold", "fold", MOVING, "fold lines that are alike, or show them all"},
    {TUI_ENTER, {"Enter"}, "enter", "open", MOVING, "open what the cursor is on"},
    {TUI_BACK, {"Backspace", "Esc"}, "back", "back", MOVING, "back to where Enter was pressed; Esc first gives up what is being read"},

    {TUI_NEXT_VIEW, {"Tab"}, "next-view", "view", VIEWS, "the next view"},
    {TUI_PREVIOUS_VIEW, {"S-Tab"}, "previous-view", "previous view", VIEWS, "the previous view"},
    {TUI_VIEW_1, {"1"}, "view-overview", "overview", VIEWS, "overview: the verdict, kernels and factors"},
    {TUI_VIEW_2, {"2"}, "view-layers", "layers", VIEWS, "layers: the map of layers and stages"},
    {TUI_VIEW_3, {"3"}, "view-site", "site", VIEWS, "site: its rows in all arms"},
    {TUI_VIEW_4, {"4"}, "view-tensor", "tensor", VIEWS, "tensor: both sides of a row, element by element"},
    {TUI_VIEW_5, {"5"}, "view-tokens", "tokens", VIEWS, "tokens: the choices of both sides"},
    {TUI_VIEW_6, {"6"}, "view-runs", "runs", VIEWS, "runs: trials, repeats, flakes"},
    {TUI_VIEW_7, {"7"}, "view-environment", "environment", VIEWS, "environment: machine, build, libraries, options"},
    {TUI_HELP, {"?", "F1"}, "help", "help", VIEWS, "this page"},

    {TUI_NEXT_DRIFT, {"e"}, "next-drift", "next drift", DRIFT, "the next drift"},
    {TUI_PREVIOUS_DRIFT, {"E"}, "previous-drift", "previous drift", DRIFT, "the drift before"},
    {TUI_FIRST_ORIGIN, {"f"}, "first-origin", "first origin", DRIFT, "the first origin: where drift begins"},
    {TUI_NEXT_JUMP, {"w"}, "next-jump", "next jump", DRIFT, "the next jump in size"},
    {TUI_PREVIOUS_JUMP, {"W"}, "previous-jump", "previous jump", DRIFT, "the jump before"},
    {TUI_NEXT_ROW, {"]"}, "next-row", "next row", DRIFT, "the next row (token) of the site"},
    {TUI_PREVIOUS_ROW, {"["}, "previous-row", "previous row", DRIFT, "the row before"},
    {TUI_NEXT_LAYER, {"}"}, "next-layer", "next layer", DRIFT, "the same stage in the next layer; in Runs, Environment the next section"},
    {TUI_PREVIOUS_LAYER, {"{"}, "previous-layer", "previous layer", DRIFT, "the same stage in the layer before; there the section before"},
    {TUI_NEXT_ARM, {"a"}, "next-arm", "next arm", DRIFT, "the next arm, with its own reference"},
    {TUI_PREVIOUS_ARM, {"A"}, "previous-arm", "previous arm", DRIFT, "the arm before"},
    {TUI_SWAP, {"r"}, "next-reference", "reference", DRIFT, "another arm as the reference"},

    {TUI_SEARCH, {"/"}, "search-prompt", "search", FINDING, "search while typing"},
    {TUI_SEARCH_NEXT, {"n"}, "search-next", "next found", FINDING, "the next line that has it"},
    {TUI_SEARCH_PREVIOUS, {"N"}, "search-previous", "search previous", FINDING, "the line before that has it"},
    {TUI_FILTER, {"\\"}, "filter-prompt", "filter", FINDING, "show only lines with all these words; !word without it; name=word, name>number in one column"},
    {TUI_SORT, {"s"}, "sort-next", "sort", FINDING, "sort by the next column"},
    {TUI_SORT_REVERSE, {"S"}, "sort-reverse", "reverse", FINDING, "sort the other way round"},
    {TUI_MARK_, {"m"}, "mark", "mark", FINDING, "mark the line, or take the mark away; marked lines are what export writes"},
    {TUI_UNMARK, {"u"}, "unmark", "unmark", FINDING, "take the line's mark away"},
    {TUI_UNMARK_ALL, {"U"}, "unmark-all", "unmark all", FINDING, "take all marks away"},

    {TUI_METRIC, {"d"}, "metric", "metric", SHOWING, "measure differences in elements, ULP, max abs or relative rms"},
    {TUI_NUMBER, {"x"}, "number", "number", SHOWING, "numbers as decimal, %a or hex"},
    {TUI_COMMAND, {"y"}, "command", "as command", SHOWING, "the command line that shows the same"},
    {TUI_PROMPT, {":"}, "prompt", "command", PROGRAM, "a command: Tab completes, Up and Down recall"},
    {TUI_RELOAD, {"R"}, "reload", "reload", PROGRAM, "read the record again"},
    {TUI_REDRAW, {"^L"}, "redraw", "redraw", PROGRAM, "draw the screen anew"},
    {TUI_SUSPEND, {"^Z"}, "suspend", "suspend", PROGRAM, "to the shell; fg comes back"},
    {TUI_CANCEL, {"^G"}, "cancel", "cancel", PROGRAM, "give up what is being read"},
    {TUI_CLOSE, {"q"}, "close", "close", PROGRAM, "close the view; the last one ends the program"},
    {TUI_QUIT, {"Q", "^C"}, "quit", "quit", PROGRAM, "end the program"},
};
/* clang-format on */

enum { N_BINDINGS = sizeof bindings / sizeof bindings[0] };

const struct tui_binding *tui_bindings(size_t *n)
{
    *n = N_BINDINGS;
    return bindings;
}

int tui_request_of_key(const char *key)
{
    for (size_t i = 0; i < N_BINDINGS; i++)
        for (size_t k = 0; k < 3 && bindings[i].keys[k]; k++)
            if (strcmp(bindings[i].keys[k], key) == 0)
                return bindings[i].request;
    return TUI_NONE;
}

int tui_request_of_name(const char *name)
{
    for (size_t i = 0; i < N_BINDINGS; i++)
        if (strcmp(bindings[i].name, name) == 0)
            return bindings[i].request;
    return TUI_NONE;
}

const struct tui_binding *tui_binding_of(int request)
{
    for (size_t i = 0; i < N_BINDINGS; i++)
        if (bindings[i].request == request)
            return &bindings[i];
    return NULL;
}
