/* plugins.c: --plugin for every verb: loads each before the verb runs, in the order given, says what
 * a load changed, and contains a crash of a verb that launches kernels in its own process. Owns the
 * wording; the loading itself is kernels/plugin.c's. */
#include "cli/cli.h"

#include "base/fp_control.h"
#include "kernels/plugin.h"

#include <errno.h>
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

/* A child process does the work; this one lives to say how it ended. */
static int wait_for(const struct ds_options *o, pid_t pid)
{
    int status = 0;
    struct ds_error err;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    ds_cli_working(0);
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    if (ds_cli_interrupted()) {
        ds_cli_note(o, "interrupted");
        return DS_EXIT_INTERRUPTED;
    }
    ds_fail(&err, "ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    ds_hint(&err, "probably a kernel of a plugin; driftscope check names it: check OP/VARIANT "
                  "--plugin FILE.so");
    return ds_cli_error(o, &err);
}

int ds_cli_contained(const struct ds_options *o, int (*verb)(const struct ds_options *))
{
    if (ds_plugin_count() == 0)
        return verb(o);
    pid_t parent = getpid(), pid = fork();
    if (pid < 0) {
        struct ds_error err;
        ds_fail(&err, "cannot fork: %s", strerror(errno));
        return ds_cli_error(o, &err);
    }
    if (pid > 0) {
        ds_cli_working(pid);
        return wait_for(o, pid);
    }
    ds_cli_interruptible(o);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(DS_EXIT_ERROR);
    exit(verb(o));
}
