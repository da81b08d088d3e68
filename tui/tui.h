/* tui.h: the terminal UI's only entrance for other rooms. */
#ifndef DS_TUI_H
#define DS_TUI_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct ds_report_caller;

struct ds_tui_options {
    const char *path, *path_b; /* path_b NULL: one record */
    int follow;
    int partial;       /* of two records: as `diff --partial` */
    int across_models; /* as `diff --across-models` */
    /* Where its writer puts it in the end, and what it is called; NULL: it stays. */
    const char *moves_to;
    const char *program;                   /* as called, for the commands that `y` shows */
    const struct ds_report_caller *caller; /* of such commands (report/report.h); NULL: as there */
    int ascii;                             /* --ascii; also where the locale is not UTF-8 */
    int colour;                            /* 0: none (NO_COLOR, --color=never) */
    uint64_t hold;
    /* Script mode: commands and keys of a file, no terminal. */
    const char *script; /* NULL: interactive */
    int lines, columns; /* its size */
    const char *view;   /* first view; NULL: overview */
    int64_t arm, ref;   /* -1: those of the first drift */
    const char *site;   /* "LAYER,STAGE[/PART]" to start at; NULL */
    /* A sweep that this UI follows (run --tui): asked before quitting; NULL: none. */
    int (*running)(void *ctx);
    void (*stop)(void *ctx);
    void *ctx;
};
/* Returns when the user quits: 0, or -1 with an error; the terminal is as it was, in both cases and after any signal. */
int ds_tui(const struct ds_tui_options *o, struct ds_error *err);

#endif
