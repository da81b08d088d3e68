/* threads_seen.c: which threads of this process really used CPU time, whoever started them (a BLAS
 * library's own among them). Source: /proc/self/task/TID/schedstat, first field, nanoseconds
 * (Linux, Documentation/scheduler/sched-stats). A thread that comes and goes within a trial is not seen.
 *
 * Threads that have nothing to do may spin: OpenBLAS's do for some 20 ms after it was loaded, or had work
 * for them. They would count in a trial that gives them none, so it waits until they sleep. */
#include "engine/trial.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void ds_thread_times_read(struct ds_thread_times *out)
{
    out->n = 0;
    DIR *dir = opendir("/proc/self/task");
    if (!dir)
        return;
    for (struct dirent *e; (e = readdir(dir)) != NULL && out->n < 256;) {
        char path[320];
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "re");
        if (!f)
            continue;
        unsigned long long ns;
        if (fscanf(f, "%llu", &ns) == 1) {
            out->t[out->n].tid = atol(e->d_name);
            out->t[out->n].ns = ns;
            out->n++;
        }
        fclose(f);
    }
    closedir(dir);
}

static unsigned long long moved(const struct ds_thread_times *before,
                                const struct ds_thread_times *after, int i)
{
    unsigned long long was = 0;
    for (int j = 0; j < before->n; j++)
        if (before->t[j].tid == after->t[i].tid)
            was = before->t[j].ns;
    return after->t[i].ns > was ? after->t[i].ns - was : 0;
}

int ds_thread_times_moved(const struct ds_thread_times *before, const struct ds_thread_times *after)
{
    enum { LEAST_SHARE = 64 }; /* of the busiest: less than that is a wake-up, not work */
    unsigned long long most = 0;
    int n = 0;
    if (before->n == 0 || after->n == 0)
        return DS_UNKNOWN;
    for (int i = 0; i < after->n; i++)
        most = moved(before, after, i) > most ? moved(before, after, i) : most;
    for (int i = 0; i < after->n; i++)
        n += moved(before, after, i) > most / LEAST_SHARE;
    return n;
}

/* Whether it would go on if it had a CPU: on a machine with other work a thread that spins may get none for longer
 * than it is looked at. Source: the state in /proc/self/task/TID/stat, behind the name in brackets. */
static int is_runnable(long tid)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/self/task/%ld/stat", tid);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    const size_t n = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    line[n] = '\0';
    const char *state = strrchr(line, ')');
    return state && state[1] == ' ' && state[2] == 'R';
}

/* A round in which an idle thread spins counts. One in which it waits for a CPU tells nothing and hardly counts: where
 * others have the machine, a thread needs many of these for the little that it has left to spin. */
void ds_thread_times_settle(void)
{
    enum { SPINNING = 50, ROUNDS = 500 };
    static const struct timespec pause = {.tv_nsec = 2000000};
    const long self = syscall(SYS_gettid);
    struct ds_thread_times times[2];
    int spun = 0;
    ds_thread_times_read(&times[0]);
    for (int k = 1; k < ROUNDS && spun < SPINNING && times[0].n > 1; k++) {
        int spins = 0, waits = 0;
        nanosleep(&pause, NULL);
        ds_thread_times_read(&times[k % 2]);
        for (int i = 0; i < times[k % 2].n; i++) {
            if (times[k % 2].t[i].tid == self)
                continue;
            spins |= moved(&times[(k + 1) % 2], &times[k % 2], i) > 100000;
            waits |= is_runnable(times[k % 2].t[i].tid);
        }
        if (!spins && !waits)
            return;
        spun += spins;
    }
}
