/* threads_seen.c: which threads of this process really used CPU time, whoever started them (a BLAS
 * library's own among them). Source: /proc/self/task/TID/schedstat, first field, nanoseconds
 * (Linux, Documentation/scheduler/sched-stats). */
#include "engine/trial.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

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

int ds_thread_times_moved(const struct ds_thread_times *before, const struct ds_thread_times *after)
{
    if (before->n == 0 || after->n == 0)
        return DS_UNKNOWN;
    int moved = 0;
    for (int i = 0; i < after->n; i++) {
        unsigned long long was = 0;
        for (int j = 0; j < before->n; j++)
            if (before->t[j].tid == after->t[i].tid)
                was = before->t[j].ns;
        moved += after->t[i].ns > was;
    }
    return moved;
}
