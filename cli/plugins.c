/* plugins.c: --plugin for every verb: loads each before the verb runs, in the order given, says what
 * a load changed, and contains a crash of a verb that launches kernels in its own process. Owns the
 * wording; the loading itself is kernels/plugin.c's. */
#include "cli/cli.h"

#include "base/child.h"
#include "base/clock.h"
#include "base/fp_control.h"
#include "kernels/call.h"
#include "kernels/lab/contain.h"
#include "kernels/plugin.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int ds_cli_plugins(const struct ds_options *o, struct ds_error *err)
{
    int64_t seconds;
    if (ds_opt_int(o, "plugin-timeout", 1, 86400, &seconds, err) != 0)
        return -1;
    for (size_t i = 0; i < ds_opt_count(o, "plugin"); i++) {
        if (ds_plugin_load(ds_opt_at(o, "plugin", i), (int)seconds, err) != 0)
            return -1;
        const struct ds_plugin *p = ds_plugin_at(ds_plugin_count() - 1);
        if (p->fp_after != p->fp_before)
            ds_cli_note(o,
                        "plugin %s: loading it changed this thread's floating-point control word "
                        "from %#x to %#x%s%s; it was put back. A library linked with -ffast-math "
                        "does that to any program",
                        p->path, (unsigned)p->fp_before, (unsigned)p->fp_after,
                        *ds_fp_effect(p->fp_after) ? ": " : "", ds_fp_effect(p->fp_after));
    }
    return 0;
}

/* ---- verbs that launch kernels themselves ------------------------------------------------------ */

/* In memory that both processes share. */
struct shared {
    struct ds_calling calling;
    volatile int finished, code;
    volatile int mute; /* its stderr was closed: whatever it said, nobody heard it */
};

/* Until the child has ended. 1 when it was in one call of a kernel for too long. */
static int wait_or_hang(pid_t pid, const struct ds_calling *c, double seconds)
{
    static const double PATIENCE = 0.2;
    uint64_t seen = 0;
    double since = ds_seconds(CLOCK_MONOTONIC);
    while (!ds_child_ends_within(pid, PATIENCE)) {
        const double now = ds_seconds(CLOCK_MONOTONIC);
        const uint64_t calls = atomic_load(&c->calls);
        if (calls != seen || atomic_load(&c->what) == DS_CALLING_NOTHING) {
            seen = calls;
            since = now;
        } else if (now - since > seconds)
            return 1;
    }
    return 0;
}

/* What is told when it did not come to its end. */
static int tell(const struct ds_options *o, const struct shared *s, int hung, double seconds,
                int status)
{
    struct ds_error err;
    char where[256];
    ds_calling_text(&s->calling, where, sizeof where);
    if (hung) {
        ds_fail(&err, "ended after %g s%s", seconds, where);
        ds_hint(&err, "the call does not return; --plugin-timeout gives it longer");
        return ds_cli_error(o, &err);
    }
    if (s->mute)
        ds_fail(&err, "stderr of the process was closed%s", where);
    else if (WIFSIGNALED(status))
        ds_fail(&err, "ended by signal %d (%s)%s", WTERMSIG(status), strsignal(WTERMSIG(status)),
                where);
    else
        ds_fail(&err, "the process was ended with status %d%s", WEXITSTATUS(status), where);
    ds_hint(&err, *where ? "driftscope check OP/VARIANT --plugin FILE.so names the call"
                         : "probably a kernel of a plugin; driftscope check names it: check "
                           "OP/VARIANT --plugin FILE.so");
    return ds_cli_error(o, &err);
}

/* A child process does the work; this one lives to say how it ended. */
static int watch(const struct ds_options *o, pid_t pid, const struct shared *s, double seconds)
{
    int status;
    const int hung = wait_or_hang(pid, &s->calling, seconds);
    if (hung)
        kill(pid, SIGKILL);
    ds_child_wait(pid, &status);
    ds_cli_working(0);
    if (!hung && s->finished && !s->mute && WIFEXITED(status))
        return s->code;
    if (ds_cli_interrupted()) {
        if (WIFSIGNALED(status)) /* else it has said so */
            ds_cli_note(o, "interrupted");
        return DS_EXIT_INTERRUPTED;
    }
    return tell(o, s, hung, seconds, status);
}

int ds_cli_contained(const struct ds_options *o, int (*verb)(const struct ds_options *))
{
    static const int64_t CALL_SECONDS = 300;
    int64_t seconds = CALL_SECONDS;
    struct ds_error err;
    if (ds_plugin_count() == 0)
        return verb(o);
    if (ds_opt_given(o, "plugin-timeout") &&
        ds_opt_int(o, "plugin-timeout", 1, 86400, &seconds, &err) != 0)
        return ds_cli_error(o, &err);
    struct shared *s = ds_contain_map(sizeof *s, &err);
    if (!s)
        return ds_cli_error(o, &err);
    pid_t parent = getpid(), pid = fork();
    if (pid < 0) {
        ds_fail(&err, "cannot fork: %s", strerror(errno));
        return ds_cli_error(o, &err);
    }
    if (pid > 0) {
        ds_cli_working(pid);
        return watch(o, pid, s, (double)seconds);
    }
    ds_cli_interruptible(o);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(DS_EXIT_ERROR);
    ds_calling_share(&s->calling);
    s->code = verb(o);
    s->mute = fcntl(STDERR_FILENO, F_GETFD) < 0;
    s->finished = 1;
    ds_cli_leave(s->code);
}

/* ---- the end ------------------------------------------------------------------------------------- */

static pid_t own; /* this process, until it leaves by itself */
static const struct ds_options *told;

/* Whatever a library's exit says (HDF5 ends a process where memory runs out; 0 would be "the same"), nothing was done.
 * How a child ended is told by who waits for it. */
static void left_by_another(void)
{
    struct ds_error err;
    if (getpid() != own)
        return;
    ds_fail(&err, "a library ended the program before it was done");
    ds_hint(&err, "HDF5 does that where memory runs out");
    _exit(ds_cli_error(told, &err));
}

void ds_cli_only_leaves_itself(const struct ds_options *o)
{
    told = o;
    own = getpid();
    if (atexit(left_by_another) != 0)
        own = 0;
}

_Noreturn void ds_cli_leave(int code)
{
    own = 0;
    if (ds_plugin_count())
        _exit(code);
    exit(code);
}
