/* ticks.c: see ticks.h. */
#include "probes/ticks.h"

#include <sys/resource.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* Same rate in every power state, same on all cores (CPUID 80000007h, EDX bit 8). */
static int invariant_tsc(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d >> 8 & 1u);
#else
    return 0;
#endif
}

/* Reads both clocks at one moment: the best of a few tries, as the thread may be preempted between
 * the reads. */
static void read_both(const struct ds_ticks *t, uint64_t *ns, uint64_t *ticks)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 4; i++) {
        uint64_t before = ds_ticks_now(t), middle = ds_ticks_ns(), after = ds_ticks_now(t);
        if (after - before < best) {
            best = after - before;
            *ns = middle;
            *ticks = before + best / 2;
        }
    }
}

void ds_ticks_init(struct ds_ticks *t)
{
    t->tsc = invariant_tsc();
    read_both(t, &t->start_ns, &t->start);
}

double ds_ticks_seconds(const struct ds_ticks *t, double ticks)
{
    if (!t->tsc)
        return 1e-9 * ticks;
    uint64_t now_ns = t->start_ns, now = t->start;
    read_both(t, &now_ns, &now);
    if (now <= t->start || now_ns <= t->start_ns)
        return 0;
    return ticks * 1e-9 * (double)(now_ns - t->start_ns) / (double)(now - t->start);
}

void ds_usage_read(struct ds_usage *u)
{
    struct timespec ts = {0, 0};
    struct rusage r;
#ifdef RUSAGE_THREAD
    u->preempted = getrusage(RUSAGE_THREAD, &r) == 0 ? r.ru_nivcsw : 0;
#else
    u->preempted = getrusage(RUSAGE_SELF, &r) == 0 ? r.ru_nivcsw : 0;
#endif
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    u->cpu_s = (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
    u->ns = ds_ticks_ns();
}

double ds_usage_share(const struct ds_usage *a, const struct ds_usage *b)
{
    if (b->preempted == a->preempted || b->ns <= a->ns)
        return 1;
    double share = (b->cpu_s - a->cpu_s) / (1e-9 * (double)(b->ns - a->ns));
    return share < 0 ? 0 : share > 1 ? 1 : share;
}
