/* child.c: see child.h. */
#include "base/child.h"

#include "base/clock.h"

#include <errno.h>
#include <sys/wait.h>
#include <time.h>

int ds_child_ended(pid_t pid)
{
    siginfo_t info = {.si_pid = 0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ? errno != EINTR
                                                                             : info.si_pid == pid;
}

int ds_child_ends_within(pid_t pid, double seconds)
{
    const struct timespec moment = {0, 2000000};
    const double deadline = ds_seconds(CLOCK_MONOTONIC) + seconds;
    while (!ds_child_ended(pid)) {
        if (ds_seconds(CLOCK_MONOTONIC) > deadline)
            return 0;
        nanosleep(&moment, NULL);
    }
    return 1;
}

int ds_child_wait(pid_t pid, int *status)
{
    *status = 0;
    while (waitpid(pid, status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return 0;
}
