/* load.c: see load.h. */
#include "engine/load.h"

#include "base/child.h"
#include "base/mem.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 1 << 19 }; /* 4 MiB: more than a core's own caches */

/* Bursts of reading and writing memory, of random length, with the processor given away between
 * them: even load would disturb every trial in the same way. */
static void be_busy(uint64_t seed)
{
    static uint64_t memory[WORDS]; /* the child's own, once written */
    volatile uint64_t *m = memory;
    uint64_t z = seed;
    for (;;) {
        z ^= z << 13;
        z ^= z >> 7;
        z ^= z << 17;
        for (uint64_t i = 0, at = z; i < (z & 0x3ffff); i++, at += 9)
            m[at % WORDS] += z;
        sched_yield();
    }
}

int ds_load_start(struct ds_load *l, int n, struct ds_error *err)
{
    l->n = 0;
    l->pid = NULL;
    if (n <= 0)
        return 0;
    if (!(l->pid = ds_calloc((size_t)n, sizeof *l->pid, "busy neighbours", err)))
        return -1;
    pid_t parent = getpid();
    for (; l->n < n; l->n++) {
        pid_t pid = fork();
        if (pid < 0) {
            int why = errno;
            ds_load_stop(l);
            return ds_fail(err, "cannot fork a busy neighbour: %s", strerror(why));
        }
        if (pid == 0) {
            /* Ctrl-C reaches the whole foreground group: the parent decides. */
            signal(SIGINT, SIG_IGN);
            signal(SIGTERM, SIG_DFL);
            signal(SIGHUP, SIG_DFL);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() == parent)
                be_busy((uint64_t)l->n * 0x9e3779b97f4a7c15u + 0xbf58476d1ce4e5b9u);
            _exit(0);
        }
        l->pid[l->n] = pid;
    }
    return 0;
}

void ds_load_stop(struct ds_load *l)
{
    for (int i = 0; i < l->n; i++)
        kill(l->pid[i], SIGKILL);
    for (int i = 0; i < l->n; i++) {
        int status;
        ds_child_wait(l->pid[i], &status);
    }
    free(l->pid);
    l->pid = NULL;
    l->n = 0;
}
