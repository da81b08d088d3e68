/* schedule.c: see schedule.h. A disturbance is a function of its seed, the round and the thread; what
 * the system makes of it is not, so a race shows often but never surely. */
#include "kernels/lab/schedule.h"

#include "base/mem.h"
#include "base/team.h"
#include "kernels/lab/content.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct ds_schedule {
    struct ds_team *team;
    int threads;
    uint64_t disturb, round;
    _Atomic(uint64_t) pauses;
    _Atomic(int) fp_changed;
    int pinned; /* all members are bound to one core */
    cpu_set_t all;
    int *order; /* member i does the work of thread order[i] */
    void (*fn)(void *, int, int);
    void *arg;
};

/* ---- the floating-point control word ---------------------------------------------------------- */

#if defined(__x86_64__)
uint32_t ds_fp_now(void)
{
    return __builtin_ia32_stmxcsr() & ~0x3fu; /* without the sticky flags */
}
static void set_fp(uint32_t v)
{
    __builtin_ia32_ldmxcsr(v);
}
#elif defined(__aarch64__)
uint32_t ds_fp_now(void)
{
    return (uint32_t)__builtin_aarch64_get_fpcr();
}
static void set_fp(uint32_t v)
{
    __builtin_aarch64_set_fpcr(v);
}
#else
#error "the floating-point control word of this machine is not known"
#endif

int ds_fp_put_back(uint32_t want)
{
    if (ds_fp_now() == want)
        return 0;
    set_fp(want);
    return 1;
}

/* ---- the disturbance --------------------------------------------------------------------------- */

static void relax(uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        __asm__ volatile("" ::: "memory");
}

static void delay(uint64_t u)
{
    switch (u % 4) {
    case 0:
        for (uint64_t i = 0; i <= u / 4 % 3; i++)
            sched_yield();
        return;
    case 1:
        relax(u / 4 % 4000);
        return;
    default:
        return;
    }
}

static void pause_here(void *arg, int thread)
{
    struct ds_schedule *s = arg;
    uint64_t n = atomic_fetch_add(&s->pauses, 1);
    delay(ds_content_hash(s->disturb + (uint64_t)thread, n));
}

static void bind_member(void *arg, int thread, int threads)
{
    struct ds_schedule *s = arg;
    cpu_set_t one = s->all;
    (void)thread, (void)threads;
    for (int cpu = 0, kept = 0; cpu < CPU_SETSIZE && s->pinned; cpu++)
        if (CPU_ISSET(cpu, &s->all) && kept++)
            CPU_CLR(cpu, &one);
    sched_setaffinity(0, sizeof one, &one); /* a refusal costs only the disturbance */
}

static void pin(struct ds_schedule *s, int pinned)
{
    if (pinned == s->pinned || s->threads == 1)
        return;
    s->pinned = pinned;
    ds_team_run(s->team, bind_member, s);
}

/* ---- running ------------------------------------------------------------------------------------ */

static void member(void *arg, int i, int threads)
{
    struct ds_schedule *s = arg;
    uint32_t fp = ds_fp_now();
    int thread = s->disturb ? s->order[i] : i;
    if (s->disturb)
        delay(ds_content_hash(s->disturb, s->round * (uint64_t)threads + (uint64_t)i));
    s->fn(s->arg, thread, threads);
    if (ds_fp_put_back(fp))
        atomic_store(&s->fp_changed, 1);
}

static void run(void *team, void (*fn)(void *, int, int), void *arg)
{
    struct ds_schedule *s = team;
    s->fn = fn;
    s->arg = arg;
    s->round++;
    for (int i = s->threads - 1; s->disturb && i > 0; i--) {
        uint64_t u = ds_content_hash(s->disturb, s->round * 1000003u + (uint64_t)i);
        int j = (int)(u % (uint64_t)(i + 1)), keep = s->order[i];
        s->order[i] = s->order[j];
        s->order[j] = keep;
    }
    ds_team_run(s->team, member, s);
}

struct ds_schedule *ds_schedule_new(int threads, struct ds_error *err)
{
    struct ds_schedule *s = ds_calloc(1, sizeof *s, "schedule", err);
    if (!s)
        return NULL;
    s->threads = threads;
    s->team = ds_team_new(threads, err);
    if (s->team)
        s->order = ds_calloc((size_t)threads, sizeof *s->order, "schedule", err);
    if (!s->team || !s->order) {
        ds_schedule_free(s);
        return NULL;
    }
    for (int i = 0; i < threads; i++)
        s->order[i] = i;
    if (sched_getaffinity(0, sizeof s->all, &s->all) != 0)
        memset(&s->all, 0xff, sizeof s->all);
    return s;
}

void ds_schedule_free(struct ds_schedule *s)
{
    if (!s)
        return;
    if (s->team)
        pin(s, 0);
    ds_team_free(s->team);
    free(s->order);
    free(s);
}

void ds_schedule_exec(struct ds_schedule *s, uint64_t disturb, struct ds_exec *exec)
{
    s->disturb = disturb;
    s->round = 0;
    atomic_store(&s->pauses, 0);
    pin(s, disturb && ds_content_hash(disturb, 0) % 2);
    exec->threads = s->threads;
    exec->team = s;
    exec->run = run;
    exec->pause = disturb ? pause_here : NULL;
    exec->pause_arg = s;
}

int ds_schedule_bind(struct ds_schedule *s, const int *cpus, int n)
{
    return ds_team_bind(s->team, cpus, n);
}

int ds_schedule_fp_changed(struct ds_schedule *s)
{
    return atomic_exchange(&s->fp_changed, 0);
}
