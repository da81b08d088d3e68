/* placement.c: see placement.h. Threads are known by /proc/self/task, as a library tells nobody
 * which ones it has started. */
#include "kernels/lab/placement.h"

#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct thread {
    pid_t tid;
    int started_since; /* it inherited what the caller was confined to: its mask is not its own */
    cpu_set_t before;
};

struct ds_placement {
    struct ds_placed *placed;
    cpu_set_t before; /* the caller's */
    cpu_set_t rest;   /* what other threads get */
    int cpu[CPU_SETSIZE];
    struct thread *threads; /* confined ones, the caller first */
    size_t n_threads;
    int taken; /* all threads that there were are confined */
};

/* The first CPU of the core that this one belongs to; itself where the system does not say. */
static int core_of(int cpu)
{
    char path[96];
    int first = cpu;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *f = fopen(path, "r");
    if (!f)
        return cpu;
    if (fscanf(f, "%d", &first) != 1)
        first = cpu;
    fclose(f);
    return first;
}

/* The CPU the caller runs on, then one of each other core, then their siblings. */
static int choose(struct ds_placement *p, int threads)
{
    cpu_set_t cores;
    const int here = sched_getcpu();
    int n = 0;
    CPU_ZERO(&cores);
    CPU_ZERO(&p->placed->cpus);
    for (int pass = here >= 0 && CPU_ISSET(here, &p->before) ? 0 : 1; pass < 3; pass++)
        for (int cpu = 0; cpu < CPU_SETSIZE && n < threads; cpu++) {
            if (!CPU_ISSET(cpu, &p->before) || CPU_ISSET(cpu, &p->placed->cpus) ||
                (pass == 0 && cpu != here))
                continue;
            const int core = core_of(cpu), known = core >= 0 && core < CPU_SETSIZE;
            if (pass == 1 && known && CPU_ISSET(core, &cores))
                continue;
            if (known)
                CPU_SET(core, &cores);
            CPU_SET(cpu, &p->placed->cpus);
            p->cpu[n++] = cpu;
        }
    return n;
}

static int confine(struct ds_placement *p, pid_t tid, const cpu_set_t *to)
{
    struct thread t = {.tid = tid, .started_since = p->taken};
    if (sched_getaffinity(tid, sizeof t.before, &t.before) != 0 ||
        ds_grow_by_one(&p->threads, p->n_threads, sizeof *p->threads, "threads", NULL) != 0 ||
        sched_setaffinity(tid, sizeof *to, to) != 0)
        return -1;
    p->threads[p->n_threads++] = t;
    return 0;
}

static int is_confined(const struct ds_placement *p, pid_t tid)
{
    for (size_t i = 0; i < p->n_threads; i++)
        if (p->threads[i].tid == tid)
            return 1;
    return 0;
}

static pid_t caller(void)
{
    return (pid_t)syscall(SYS_gettid);
}

void ds_placement_sweep(struct ds_placement *p)
{
    DIR *tasks = p ? opendir("/proc/self/task") : NULL;
    if (!tasks)
        return;
    for (struct dirent *d; (d = readdir(tasks));) {
        const pid_t tid = (pid_t)strtol(d->d_name, NULL, 10);
        if (tid > 0 && !is_confined(p, tid) && confine(p, tid, &p->rest) == 0)
            p->placed->others++;
    }
    closedir(tasks);
}

static struct ds_placement *refuse(struct ds_placement *p, const char *why)
{
    struct ds_placed *placed = p->placed;
    memset(placed, 0, sizeof *placed);
    snprintf(placed->why, sizeof placed->why, "%s", why);
    free(p->threads);
    free(p);
    return NULL;
}

struct ds_placement *ds_placement_take(int threads, struct ds_placed *placed)
{
    char why[64];
    struct ds_placement *p = ds_calloc(1, sizeof *p, "placement", NULL);
    memset(placed, 0, sizeof *placed);
    snprintf(placed->why, sizeof placed->why, "out of memory");
    if (!p)
        return NULL;
    p->placed = placed;
    if (sched_getaffinity(0, sizeof p->before, &p->before) != 0)
        return refuse(p, strerror(errno));
    const int n = choose(p, threads);
    if (n < threads || threads < 1) {
        snprintf(why, sizeof why, "%d threads, %d CPU%s", threads, n, n == 1 ? "" : "s");
        return refuse(p, why);
    }
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(p->cpu[0], &first);
    p->rest = placed->cpus;
    if (n > 1)
        CPU_CLR(p->cpu[0], &p->rest);
    if (confine(p, caller(), &first) != 0)
        return refuse(p, errno ? strerror(errno) : "refused");
    placed->why[0] = '\0';
    placed->n_cpus = n;
    placed->own = 1;
    ds_placement_sweep(p);
    p->taken = 1;
    return p;
}

const int *ds_placement_cpus(const struct ds_placement *p, int *n)
{
    *n = p ? p->placed->n_cpus : 0;
    return p ? p->cpu : NULL;
}

void ds_placement_give_back(struct ds_placement *p)
{
    if (!p)
        return;
    ds_placement_sweep(p);
    for (size_t i = 0; i < p->n_threads; i++) {
        const struct thread *t = &p->threads[i];
        /* one that ended meanwhile needs nothing */
        sched_setaffinity(t->tid, sizeof t->before, t->started_since ? &p->before : &t->before);
    }
    free(p->threads);
    free(p);
}
