/* interrupt.c: Ctrl-C, SIGTERM and a lost terminal in verbs that keep nothing: the line of the progress
 * bar is erased, an unfinished file goes, exit code 130. Owns the handler, which does only what is
 * safe in one; and that of verbs that keep what is finished, which only notes the wish. */
#include "cli/options.h"

#include "base/clock.h"

#include <signal.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* The process that speaks; children that inherit the handler end without a word. */
static volatile pid_t owner;
static volatile sig_atomic_t quiet, requests;
static volatile sig_atomic_t tidying;  /* something has to be put away before the end */
static volatile pid_t working;         /* the child that does this process's work; 0 = none */
static const char *volatile temporary; /* what is not finished yet */

static void put(const char *text, size_t n)
{
    ssize_t ignored = write(STDERR_FILENO, text, n);
    (void)ignored;
}

static void leave(void)
{
    static const char text[] = "driftscope: interrupted\n";
    if (temporary)
        unlink(temporary);
    if (ds_cli_progress_shown())
        put("\r\033[K", 4);
    if (!quiet)
        put(text, sizeof text - 1);
    _exit(DS_EXIT_INTERRUPTED);
}

static void on_signal(int sig)
{
    (void)sig;
    if (getpid() != owner)
        _exit(DS_EXIT_INTERRUPTED);
    if (!working && !tidying)
        leave();
    /* The child, or who has something to put away, tidies up first; one that does not is ended the
     * second time. */
    const int again = requests++ != 0;
    if (working)
        kill(working, again ? SIGKILL : SIGTERM);
    if (again)
        leave();
}

/* A signal that is ignored at start stays so: nohup and a script's background jobs mean it. */
void ds_cli_catch(void (*handler)(int))
{
    static const int caught[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction sa = {.sa_handler = handler}, old;
    sigemptyset(&sa.sa_mask); /* one at a time: a handler may keep state */
    for (size_t i = 0; i < sizeof caught / sizeof caught[0]; i++)
        sigaddset(&sa.sa_mask, caught[i]);
    for (size_t i = 0; i < sizeof caught / sizeof caught[0]; i++)
        if (sigaction(caught[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(caught[i], &sa, NULL);
}

void ds_cli_interruptible(const struct ds_options *o)
{
    owner = getpid();
    working = 0;
    quiet = ds_opt_flag(o, "quiet");
    ds_cli_catch(on_signal);
}

int ds_cli_interrupted(void)
{
    return requests != 0;
}

void ds_cli_tidying(int on)
{
    tidying = on;
    if (!on && requests && !working && getpid() == owner)
        leave();
}

void ds_cli_working(int pid)
{
    working = pid;
}

void ds_cli_temporary(const char *path)
{
    temporary = path;
}

/* ---- verbs that keep what is finished -------------------------------------------------------- */

static volatile sig_atomic_t stop_requests;
static int keeps; /* from ds_cli_stop_on_signal on */

/* The second request aborts; but `timeout`, and a terminal that closes, send two signals at once and
 * mean one. */
static void on_stop(int sig)
{
    static const double AT_ONCE = 0.5; /* seconds */
    static double first;
    const double now = ds_seconds(CLOCK_MONOTONIC);
    (void)sig;
    if (stop_requests && now - first > AT_ONCE)
        _exit(DS_EXIT_INTERRUPTED);
    if (!stop_requests)
        first = now;
    stop_requests = 1;
}

void ds_cli_stop_on_signal(void)
{
    keeps = 1;
    ds_cli_catch(on_stop);
}

void ds_cli_at_once(const struct ds_options *o, int on)
{
    if (!keeps)
        return;
    if (!on) {
        ds_cli_catch(on_stop);
        return;
    }
    ds_cli_interruptible(o);
    if (stop_requests)
        leave();
}

const volatile sig_atomic_t *ds_cli_stop(void)
{
    return &stop_requests;
}
