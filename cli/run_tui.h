/* run_tui.h: `run --tui`: the sweep in a child process, the terminal UI on its record in this one. */
#ifndef DS_RUN_TUI_H
#define DS_RUN_TUI_H

#include "cli/cli.h"

/* Runs `sweep` in a child and shows its record as it grows; the exit code is the sweep's. Without a terminal it is
 * run as always, with a note. */
int ds_run_tui(const struct ds_options *o, int (*sweep)(const struct ds_options *));
/* The sweep's record is at `path` from now on, and at `final` when it has ended: what it prints is kept until the UI has ended. Nothing where there is
 * no UI. */
void ds_run_tui_started(const struct ds_options *o, const char *path, const char *final);

#endif
