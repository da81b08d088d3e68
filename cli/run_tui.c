/* run_tui.c: see run_tui.h. Owns the child that sweeps, what it prints meanwhile, and signals to it.
 *
 * Until its record is there the child speaks as an ordinary run does: a model is loaded, an option may be wrong.
 * Then it tells the path and writes into temporary files; they are printed when the UI has ended. */
#include "cli/run_tui.h"

#include "cli/verdict.h"

#include "base/clock.h"
#include "tui/tui.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct sweep_child {
    pid_t pid;
    int told;             /* the end from which its path is read */
    FILE *out, *err;      /* what it prints */
    char path[2 * 8192];  /* two texts: */
    const char *moves_to; /* where its record will be in the end; NULL: it stays */
    int ended, status;
};

/* In the child: where to tell the path, and where its output goes then; -1: there is no UI. */
static int tell = -1, out_fd = -1, err_fd = -1;

/* ---- signals --------------------------------------------------------------------------------- */

static volatile pid_t sweeping;
static volatile sig_atomic_t asked;

/* As Ctrl-C does: the first one lets the sweep finish its flush, a later one ends it. A terminal sends its own to the
 * child as well, at once: two that come together mean one. */
static void on_signal(int sig)
{
    static const double AT_ONCE = 0.5; /* seconds */
    static double first;
    const double now = ds_seconds(CLOCK_MONOTONIC);
    (void)sig;
    if (!sweeping)
        _exit(DS_EXIT_INTERRUPTED);
    if (!asked)
        first = now;
    if (!asked || now - first > AT_ONCE)
        kill(sweeping, asked ? SIGKILL : SIGTERM);
    asked = 1;
}

static void stop_sweep(void *ctx)
{
    const struct sweep_child *c = ctx;
    asked = 1;
    if (!c->ended)
        kill(c->pid, SIGTERM);
}

static int is_running(void *ctx)
{
    struct sweep_child *c = ctx;
    if (!c->ended && waitpid(c->pid, &c->status, WNOHANG) == c->pid)
        c->ended = 1;
    if (c->ended)
        sweeping = 0;
    return !c->ended;
}

/* Whether the record is still being written: when it has ended the child only makes its verdict. */
static int is_sweeping(void *ctx)
{
    struct sweep_child *c = ctx;
    return is_running(c) && c->path[0] && ds_record_written(c->path);
}

/* ---- the child ------------------------------------------------------------------------------- */

void ds_run_tui_started(const struct ds_options *o, const char *path, const char *final)
{
    if (tell < 0)
        return;
    ds_cli_progress(o, "", -1, 0);
    fflush(NULL);
    dup2(out_fd, STDOUT_FILENO);
    dup2(err_fd, STDERR_FILENO);
    /* A parent that has gone away has ended this process, too. */
    struct ds_buf b = {0};
    ds_buf_add(&b, path, strlen(path) + 1);
    if (strcmp(path, final) != 0)
        ds_buf_puts(&b, final);
    int ignored = ds_buf_write(&b, tell);
    (void)ignored;
    ds_buf_free(&b);
    close(tell);
    tell = -1;
}

static void become_child(const struct sweep_child *c, int pipe_end, pid_t parent)
{
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(DS_EXIT_INTERRUPTED);
    if (nothing >= 0)
        dup2(nothing, STDIN_FILENO); /* keys are the UI's */
    tell = pipe_end;
    out_fd = fileno(c->out);
    err_fd = fileno(c->err);
}

/* ---- the parent ------------------------------------------------------------------------------ */

static int begin(struct sweep_child *c, int *pipe_end, struct ds_error *err)
{
    int ends[2];
    c->told = -1;
    c->out = tmpfile();
    c->err = tmpfile();
    if (!c->out || !c->err)
        return ds_fail(err, "no temporary file for what the sweep prints: %s", strerror(errno));
    if (pipe2(ends, O_CLOEXEC) != 0)
        return ds_fail(err, "no pipe to the sweep: %s", strerror(errno));
    c->told = ends[0];
    *pipe_end = ends[1];
    return 0;
}

/* Waits until the paths are there, or the child has ended without one. */
static void read_path(struct sweep_child *c)
{
    size_t n = 0;
    ssize_t got;
    while (n + 1 < sizeof c->path &&
           ((got = read(c->told, c->path + n, sizeof c->path - 1 - n)) > 0 ||
            (got < 0 && errno == EINTR)))
        n += got > 0 ? (size_t)got : 0;
    c->path[n] = '\0';
    const size_t first = strlen(c->path) + 1;
    c->moves_to = first < n ? c->path + first : NULL;
}

static void print_file(FILE *from, int to)
{
    char block[4096];
    ssize_t n, done;
    for (off_t at = 0; (n = pread(fileno(from), block, sizeof block, at)) > 0; at += n)
        for (ssize_t k = 0; k < n; k += done)
            if ((done = write(to, block + k, (size_t)(n - k))) < 0) {
                if (errno != EINTR)
                    return;
                done = 0;
            }
}

static int wants_colour(const struct ds_options *o)
{
    const char *color = ds_opt_text(o, "color"), *no = getenv("NO_COLOR");
    return strcmp(color, "always") == 0 || (strcmp(color, "auto") == 0 && !(no && no[0]));
}

static int show(const struct ds_options *o, struct sweep_child *c)
{
    struct ds_error err = {{0}, {0}};
    struct ds_buf program = {0};
    struct ds_tui_options t = {.path = c->path,
                               .moves_to = c->moves_to,
                               .follow = 1,
                               .arm = -1,
                               .ref = -1,
                               .colour = wants_colour(o),
                               .caller = &ds_cli_caller,
                               .running = is_sweeping,
                               .stop = stop_sweep,
                               .ctx = c};
    ds_cli_program(&program);
    t.program = program.data && !program.failed ? program.data : "driftscope";
    int rc = ds_tui(&t, &err);
    ds_buf_free(&program);
    if (rc != 0)
        ds_cli_note(o, "%s: %s without the terminal UI", err.msg,
                    is_sweeping(c) ? "the sweep goes on" : "the verdict follows");
    return rc;
}

/* Trials that are in the record, and how many were planned. 0, or -1: it cannot be read. */
static int count_trials(const struct sweep_child *c, size_t *done, size_t *planned)
{
    struct ds_record *r;
    struct ds_error ignored;
    *done = 0;
    if (ds_record_open(c->path, &r, &ignored) != 0 &&
        (!c->moves_to || ds_record_open(c->moves_to, &r, &ignored) != 0))
        return -1;
    const struct ds_header *h = ds_record_header(r);
    for (size_t i = 0; i < ds_record_trial_count(r); i++)
        *done += ds_record_trial(r, i)->pass == DS_PASS_NATURAL;
    *planned = h->n_arms * h->repeats;
    ds_record_close(r);
    return 0;
}

/* A bar: the sweep itself has no terminal any more. */
static void tell_progress(const struct ds_options *o, const struct sweep_child *c)
{
    size_t done, planned;
    if (count_trials(c, &done, &planned) == 0)
        ds_cli_progress(o, "sweep", (double)done, (double)planned);
}

/* What ended it left no time to say so. */
static int ended_by_signal(const struct ds_options *o, const struct sweep_child *c)
{
    const int signal = c->ended && WIFSIGNALED(c->status) ? WTERMSIG(c->status) : 0;
    struct ds_error err = {{0}, {0}};
    struct ds_buf b = {0};
    size_t done, planned;
    ds_fail(&err, "the sweep was ended by signal %d (%s)", signal, strsignal(signal));
    if (c->path[0] && count_trials(c, &done, &planned) == 0) {
        ds_report_resume(&ds_cli_caller, ds_opt_text(o, "model"), c->path, &b);
        ds_hint(&err, "%zu of %zu trials are saved; go on with: %s", done, planned,
                b.data && !b.failed ? b.data : "run --resume");
    }
    ds_buf_free(&b);
    return ds_cli_error(o, &err);
}

/* Until the child has ended. */
static void wait_for(const struct ds_options *o, struct sweep_child *c)
{
    const struct timespec tenth = {0, 100000000};
    for (unsigned i = 0; is_running(c); i++) {
        if (i % 10 == 0 && !asked && is_sweeping(c))
            tell_progress(o, c);
        nanosleep(&tenth, NULL); /* a signal ends it early */
    }
    ds_cli_progress(o, "", -1, 0);
}

static int end(const struct ds_options *o, struct sweep_child *c)
{
    if (is_sweeping(c))
        ds_cli_note(o, asked ? "waiting until the sweep has saved what is finished"
                             : "the sweep goes on; Ctrl-C ends it, and it can be resumed");
    else if (is_running(c) && c->path[0] && !asked)
        ds_cli_note(o, "the sweep has ended; its verdict follows");
    wait_for(o, c);
    sweeping = 0;
    if (c->path[0]) {
        fflush(NULL);
        print_file(c->err, STDERR_FILENO);
        print_file(c->out, STDOUT_FILENO);
    }
    if (c->ended && WIFEXITED(c->status))
        return WEXITSTATUS(c->status);
    if (asked) {
        ds_cli_note(o, "interrupted");
        return DS_EXIT_INTERRUPTED;
    }
    return ended_by_signal(o, c);
}

static void release(struct sweep_child *c)
{
    if (c->out)
        fclose(c->out);
    if (c->err)
        fclose(c->err);
    if (c->told >= 0)
        close(c->told);
}

int ds_run_tui(const struct ds_options *o, int (*sweep)(const struct ds_options *))
{
    struct sweep_child c = {0};
    struct ds_error err = {{0}, {0}};
    int pipe_end = -1;
    if (ds_opt_flag(o, "no-record")) {
        ds_fail(&err, "--tui shows the record that --no-record does without");
        return ds_cli_error(o, &err);
    }
    ds_cli_stdout_back();
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
        ds_cli_note(o, "--tui needs a terminal: this is an ordinary run");
        return sweep(o);
    }
    pid_t parent = getpid();
    if (begin(&c, &pipe_end, &err) != 0 || (c.pid = fork()) < 0) {
        if (c.pid < 0)
            ds_fail(&err, "cannot fork: %s", strerror(errno));
        release(&c);
        return ds_cli_error(o, &err);
    }
    if (c.pid == 0) {
        close(c.told);
        become_child(&c, pipe_end, parent);
        ds_cli_leave(sweep(o));
    }
    close(pipe_end);
    sweeping = c.pid;
    ds_cli_catch(on_signal);
    read_path(&c);
    if (c.path[0])
        show(o, &c);
    int code = end(o, &c);
    release(&c);
    return code;
}
