/* cli.h: what the verbs share: parsed options, output, errors. cli/ is the only room that prints
 * results or exits. */
#ifndef DS_CLI_H
#define DS_CLI_H

#include "base/buf.h"
#include "base/error.h"
#include "report/role.h"

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

enum { DS_EXIT_SAME = 0, DS_EXIT_DRIFT = 1, DS_EXIT_ERROR = 2, DS_EXIT_INTERRUPTED = 130 };

/* ---- options: parsed by options.c from the tables of verbs.c and option_table.c --------- */

struct ds_options;

/* Value of option `name` (long name, no dashes): the last one given, else the table's default; NULL
 * if neither. */
const char *ds_opt_text(const struct ds_options *o, const char *name);
/* Whether it was on the command line. */
int ds_opt_given(const struct ds_options *o, const char *name);
/* A flag (no argument): 1 if given (and not undone by --no-NAME). */
int ds_opt_flag(const struct ds_options *o, const char *name);
/* A whole number in min..max; -1 with an error naming the option. */
int ds_opt_int(const struct ds_options *o, const char *name, int64_t min, int64_t max, int64_t *out,
               struct ds_error *err);
/* A size: "2G", "512M", "64K" or bytes. */
int ds_opt_size(const struct ds_options *o, const char *name, uint64_t *out, struct ds_error *err);
/* All values of an option that may be repeated (-p), in order. */
size_t ds_opt_count(const struct ds_options *o, const char *name);
const char *ds_opt_at(const struct ds_options *o, const char *name, size_t i);
/* What is not an option: record files, patterns. */
size_t ds_opt_operands(const struct ds_options *o);
const char *ds_opt_operand(const struct ds_options *o, size_t i);
/* How many of them stand before "--": all, where there is none. */
size_t ds_opt_operands_plain(const struct ds_options *o);
/* The whole command line, quoted so that a shell reads it back as it was; printable whatever the
 * arguments hold. */
const char *ds_opt_command(const struct ds_options *o);

/* Adds the program as it was called, so that a suggested command can be pasted: a path if it was called by one, else
 * "driftscope". ds_cli_called is told argv[0] once, by main. */
void ds_cli_program(struct ds_buf *b);
void ds_cli_called(const char *argv0);

/* ---- output ---------------------------------------------------------------------------------- */

/* Prints "driftscope: MSG" and the hint on stderr (escaped), and returns the exit code for errors
 * (2, or --error-exit). */
int ds_cli_error(const struct ds_options *o, const struct ds_error *err);
/* The exit code of a result: one that compared nothing (2) counts as an error, so --error-exit holds
 * for it, too. */
int ds_cli_exit(const struct ds_options *o, int code);
/* A note on stderr unless -q: "driftscope: TEXT". */
void ds_cli_note(const struct ds_options *o, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Writes a finished result to stdout, or to -o FILE (beside it, then renamed). A full disk or a
 * failed write is an error; a broken pipe is quiet. Returns 0 or -1. */
int ds_cli_emit(const struct ds_options *o, const struct ds_buf *text, struct ds_error *err);

/* The same for a second file. */
int ds_cli_write_file(const char *path, const struct ds_buf *text, struct ds_error *err);
/* All bytes of a file, pipes included, added to `out`: `limit` of them at most. `what` names it in errors
 * ("prompt file"). */
int ds_cli_read_file(const char *what, const char *path, size_t limit, struct ds_buf *out,
                     struct ds_error *err);
/* From here on what libraries print on stdout goes to stderr, since stdout carries results only; the first
 * result puts it back. */
void ds_cli_stdout_aside(void);
void ds_cli_stdout_back(void);

/* Whether -o FILE, or `path`, looks as if it could be written: asked before work that takes long. -1
 * with an error if not. */
int ds_cli_check_output(const struct ds_options *o, struct ds_error *err);
int ds_cli_check_file(const char *path, struct ds_error *err);

/* Colour by role; "" when colour is off (--color, NO_COLOR, not a terminal). */
const char *ds_cli_color(const struct ds_options *o, enum ds_role role);

/* Columns of the terminal on stdout, 100 when it is none. */
int ds_cli_columns(void);

/* A progress bar with ETA on a terminal stderr, else nothing. Call with done = total or done < 0 to
 * erase it. */
void ds_cli_progress(const struct ds_options *o, const char *what, double done, double total);
/* The bar is on the screen. Safe in a signal handler. */
int ds_cli_progress_shown(void);

/* ---- signals (interrupt.c) ------------------------------------------------------------------- */

/* From here on SIGINT, SIGTERM and SIGHUP end the process with 130: the bar is erased, an unfinished file
 * removed. To be called again in a child that speaks for itself. */
void ds_cli_interruptible(const struct ds_options *o);
/* The handler for those of the three signals that are not ignored. */
void ds_cli_catch(void (*handler)(int));
/* For verbs that keep what is finished: from here on the first signal only sets *ds_cli_stop(), a second one
 * ends the process. */
void ds_cli_stop_on_signal(void);
const volatile sig_atomic_t *ds_cli_stop(void);
/* Of such a verb, while it does something long that leaves nothing to keep (a model is loaded): on, a signal ends the
 * process, as one does that has come already; off, as before. */
void ds_cli_at_once(const struct ds_options *o, int on);
/* A child does the work: a signal goes to it, a second one ends both. 0 = it has ended. */
void ds_cli_working(int pid);
/* A signal was passed on. */
int ds_cli_interrupted(void);
/* on: from here an interruption is only noted, since there is something to put away; whoever does so asks
 * ds_cli_interrupted and ends early. Off: the process ends here if there was one. */
void ds_cli_tidying(int on);
/* A file to be removed when a signal comes; NULL = none. */
void ds_cli_temporary(const char *path);

/* ---- environment: what decides bits (environment.c) ------------------------------------------ */

struct ds_text;
/* Name = value lines of a fixed whitelist: CPU model and flags, MXCSR state, compiler and flags,
 * library versions, OPENBLAS_* OMP_* variables. malloc'ed, as in ds_header.environment. */
int ds_cli_environment(struct ds_text **lines, size_t *n, struct ds_error *err);
/* Adds a line for each device of the header's arms but the CPU, and one of its clocks, which no two runs
 * have alike; its name ends so. */
struct ds_header;
#define DS_CLI_CLOCKS "_clocks"
int ds_cli_environment_devices(const struct ds_header *h, struct ds_text **lines, size_t *n,
                               struct ds_error *err);
const char *ds_cli_version(void); /* "0.1.0" */
const char *ds_cli_build(void);   /* git describe at build time, or "unknown" */

/* Loads the files of --plugin, once, before a verb looks for kernels (plugins.c). */
int ds_cli_plugins(const struct ds_options *o, struct ds_error *err);
/* Chooses the library of --blas, if one was given (blas_library.c). */
int ds_cli_blas_library(const struct ds_options *o, struct ds_error *err);
/* Runs a verb that launches kernels itself: where there are plugins in a child process, so that a
 * crash, an early end and a call that does not return have a text and an exit code. */
int ds_cli_contained(const struct ds_options *o, int (*verb)(const struct ds_options *));
/* Ends the process. Where there are plugins nothing of theirs runs any more: what they registered for the
 * end of the process could change the exit code. */
_Noreturn void ds_cli_leave(int code);
/* From here on an exit that a library calls is told, and an error. */
void ds_cli_only_leaves_itself(const struct ds_options *o);

/* ---- verbs: one file each; return the exit code ---------------------------------------------- */

int ds_verb_run(const struct ds_options *o);
int ds_verb_show(const struct ds_options *o);
int ds_verb_diff(const struct ds_options *o);
int ds_verb_tui(const struct ds_options *o);
int ds_verb_kernels(const struct ds_options *o);
int ds_verb_check(const struct ds_options *o);
int ds_verb_bench(const struct ds_options *o);
int ds_verb_order(const struct ds_options *o);
int ds_verb_bisect(const struct ds_options *o);
int ds_verb_selftest(const struct ds_options *o);
int ds_verb_storm(const struct ds_options *o);
int ds_verb_replay(const struct ds_options *o);
int ds_verb_table(const struct ds_options *o);
int ds_verb_onpolicy(const struct ds_options *o);
int ds_verb_lock(const struct ds_options *o);
int ds_verb_verify(const struct ds_options *o);
int ds_verb_report(const struct ds_options *o);
int ds_verb_risk(const struct ds_options *o);
int ds_verb_explain(const struct ds_options *o);
int ds_verb_doctor(const struct ds_options *o);
int ds_verb_fingerprint(const struct ds_options *o);

#endif
