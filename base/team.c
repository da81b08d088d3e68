/* team.c: see team.h. One generation counter starts a round, one counter of finished members ends
 * it; both are futex words (condition variables would cost two more switches per site, some
 * thousand times a token). */
#include "base/team.h"

#include "base/clock.h"
#include "base/mem.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int ds_team_cpus(void)
{
    cpu_set_t cpus;
    int n = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    return n < 1 ? 1 : n;
}

/* A member spins for some tens of microseconds between rounds, which is longer than what one thread
 * does alone between two matmuls of a token. The caller, in the middle of a round, waits about as
 * long again, and then much longer while it offers its core to others: if it slept as soon, its
 * wake-up (some 50 us) would let the members fall asleep, whose wake-up would let it fall asleep in
 * the next round, and so on, each round costing two wake-ups. */
enum { MAX_THREADS = 1024, SPIN_ROUNDS = 2000, YIELD_ROUNDS = 2000 };

struct member {
    struct ds_team *team;
    pthread_t thread;
    clockid_t clock;
    double seen_cpu;
    long rounds; /* rounds in which this member ran, written by itself, read after a round */
    long seen_rounds;
    int index;
};

struct ds_team {
    int threads, started;
    void (*fn)(void *, int, int);
    void *arg;
    _Atomic(unsigned) generation; /* bumped to start a round */
    _Atomic(unsigned) pending;    /* members still running */
    _Atomic(int) sleepers;        /* members asleep on `generation` */
    _Atomic(int) caller_sleeps;   /* on `pending`; mostly it spins, and needs no wake-up */
    _Atomic(int) stop;
    struct member member[];
};

static _Atomic(int) resting; /* nobody spins */
static _Atomic(int) spin_rounds = SPIN_ROUNDS;

static void futex_wait(_Atomic(unsigned) *word, unsigned value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic(unsigned) *word, int n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Waits until *word differs from `old`: a short spin, then sleep. */
static void wait_change(_Atomic(unsigned) *word, unsigned old, _Atomic(int) *sleepers)
{
    const int rounds = atomic_load_explicit(&spin_rounds, memory_order_relaxed);
    for (int i = 0; i < rounds && !atomic_load_explicit(&resting, memory_order_relaxed); i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != old)
            return;
        relax();
    }
    atomic_fetch_add(sleepers, 1);
    while (atomic_load(word) == old)
        futex_wait(word, old);
    atomic_fetch_sub(sleepers, 1);
}

static void *member_main(void *arg)
{
    struct member *me = arg;
    struct ds_team *t = me->team;
    unsigned generation = 0;
    for (;;) {
        wait_change(&t->generation, generation, &t->sleepers);
        generation++;
        if (atomic_load(&t->stop))
            return NULL;
        t->fn(t->arg, me->index, t->threads);
        me->rounds++;
        if (atomic_fetch_sub(&t->pending, 1) == 1 && atomic_load(&t->caller_sleeps))
            futex_wake(&t->pending, 1);
    }
}

struct ds_team *ds_team_new(int threads, struct ds_error *err)
{
    if (threads < 1 || threads > MAX_THREADS) {
        ds_fail(err, "%d threads asked for; 1 to %d are possible", threads, MAX_THREADS);
        return NULL;
    }
    struct ds_team *t =
        ds_calloc(1, sizeof *t + (size_t)threads * sizeof t->member[0], "thread team", err);
    if (!t)
        return NULL;
    t->threads = threads;
    t->member[0].clock = CLOCK_THREAD_CPUTIME_ID;
    t->started = 1;
    for (int i = 1; i < threads; i++, t->started++) {
        struct member *m = &t->member[i];
        m->team = t;
        m->index = i;
        int rc = pthread_create(&m->thread, NULL, member_main, m);
        if (rc) {
            ds_fail(err, "cannot start thread %d of %d: %s", i + 1, threads, strerror(rc));
            ds_team_free(t);
            return NULL;
        }
        if (pthread_getcpuclockid(m->thread, &m->clock) != 0)
            m->clock = CLOCK_THREAD_CPUTIME_ID;
    }
    return t;
}

void ds_team_free(struct ds_team *t)
{
    if (!t)
        return;
    atomic_store(&t->stop, 1);
    atomic_fetch_add(&t->generation, 1);
    futex_wake(&t->generation, t->threads);
    for (int i = 1; i < t->started; i++)
        pthread_join(t->member[i].thread, NULL);
    free(t);
}

int ds_team_threads(const struct ds_team *t)
{
    return t->threads;
}

/* The caller's wait for the end of a round. */
static void wait_members(struct ds_team *t)
{
    for (int i = 0; i < SPIN_ROUNDS + YIELD_ROUNDS; i++) {
        if (!atomic_load_explicit(&t->pending, memory_order_acquire))
            return;
        if (i < SPIN_ROUNDS)
            relax();
        else
            sched_yield();
    }
    /* Set before `pending` is read again, as the last member reads it after it has written that:
     * one of the two sees the other. */
    atomic_store(&t->caller_sleeps, 1);
    for (unsigned left; (left = atomic_load(&t->pending)) != 0;)
        futex_wait(&t->pending, left);
    atomic_store(&t->caller_sleeps, 0);
}

void ds_team_run(struct ds_team *t, void (*fn)(void *, int, int), void *arg)
{
    if (t->threads == 1) {
        fn(arg, 0, 1);
        return;
    }
    if (atomic_load_explicit(&resting, memory_order_relaxed))
        atomic_store_explicit(&resting, 0, memory_order_relaxed);
    t->fn = fn;
    t->arg = arg;
    atomic_store_explicit(&t->pending, (unsigned)t->threads - 1, memory_order_relaxed);
    atomic_fetch_add(&t->generation, 1);
    if (atomic_load(&t->sleepers))
        futex_wake(&t->generation, t->threads);
    fn(arg, 0, t->threads);
    wait_members(t);
}

int ds_team_bind(struct ds_team *t, const int *cpus, int n)
{
    int bound = 0;
    for (int i = 1; i < t->threads && n > 0; i++) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpus[i % n], &one);
        bound += pthread_setaffinity_np(t->member[i].thread, sizeof one, &one) == 0;
    }
    return bound;
}

void ds_team_rest(void)
{
    atomic_store_explicit(&resting, 1, memory_order_relaxed);
}

int ds_team_asleep(const struct ds_team *t)
{
    return atomic_load(&t->sleepers);
}

void ds_team_set_spin(int rounds)
{
    atomic_store(&spin_rounds, rounds > 0 ? rounds : SPIN_ROUNDS);
}

int ds_team_seen(struct ds_team *t)
{
    int seen = 1;
    for (int i = 1; i < t->threads; i++) {
        struct member *m = &t->member[i];
        double now = ds_seconds(m->clock);
        seen += now > m->seen_cpu && m->rounds > m->seen_rounds;
        m->seen_cpu = now;
        m->seen_rounds = m->rounds;
    }
    return seen;
}

void ds_team_share(long n, long grain, int thread, int threads, long *begin, long *end)
{
    long units = (n + grain - 1) / grain;
    long b = units * thread / threads * grain, e = units * (thread + 1) / threads * grain;
    *begin = b < n ? b : n;
    *end = e < n ? e : n;
}
