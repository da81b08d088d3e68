/* test_timing.c: the order of things in a timing, never how long they take. Where time decides, it is that of a clock of
 * this file, which only the contenders move: a busy machine changes nothing. */
#include "tests/unit/kernels/harness.h"

#include "base/mem.h"
#include "base/team.h"
#include "kernels/lab/bench.h"
#include "kernels/lab/timing.h"
#include "kernels/registry.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
    int on;
    double wall, cpu;
    long asleep; /* times */
} own_clock;

static void pass(double wall, double cpu)
{
    own_clock.wall += wall;
    own_clock.cpu += cpu;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    if (!own_clock.on)
        return (int)syscall(SYS_clock_gettime, clock, t);
    const double now = clock == CLOCK_MONOTONIC ? own_clock.wall : own_clock.cpu;
    t->tv_sec = (time_t)now;
    t->tv_nsec = (long)((now - (double)t->tv_sec) * 1e9);
    return 0;
}

int getrusage(__rusage_who_t who, struct rusage *u)
{
    if (!own_clock.on)
        return (int)syscall(SYS_getrusage, who, u);
    memset(u, 0, sizeof *u);
    u->ru_nvcsw = own_clock.asleep;
    return 0;
}

static int start_own_clock(void **state)
{
    (void)state;
    own_clock.wall = own_clock.cpu = 1;
    own_clock.on = 1;
    return 0;
}

static int stop_own_clock(void **state)
{
    (void)state;
    own_clock.on = 0;
    return 0;
}

struct counter {
    long calls, fail_at;
};

static int count(void *arg, struct ds_error *err)
{
    struct counter *c = arg;
    return ++c->calls == c->fail_at ? ds_fail(err, "call %ld failed", c->calls) : 0;
}

static const struct ds_timing_plan plan = {.clock = CLOCK_MONOTONIC,
                                           .seconds = 0,
                                           .min_rounds = 5,
                                           .sample = 0, /* one call a sample */
                                           .longest_call = 1e9};

static void test_spread(void **state)
{
    double v[] = {5, 1, 4, 2, 3}, one[] = {7};
    (void)state;
    struct ds_spread s = ds_spread_of(v, 5);
    assert_true(s.min == 1 && s.low == 2 && s.median == 3 && s.high == 4 && s.max == 5);
    s = ds_spread_of(one, 1);
    assert_true(s.min == 7 && s.low == 7 && s.median == 7 && s.high == 7 && s.max == 7);
}

/* Every contender runs in every round; the first twice. */
static void test_rounds(void **state)
{
    struct counter a[3] = {{0, 0}, {0, 0}, {0, 0}};
    struct ds_contender c[3] = {
        {.run = count, .arg = &a[0]}, {.run = count, .arg = &a[1]}, {.run = count, .arg = &a[2]}};
    struct ds_timing t[3];
    struct ds_error err;
    double noise = -1;
    (void)state;
    assert_ok(ds_time_side_by_side(c, 3, &plan, t, &noise, NULL, &err), err);
    assert_int_equal(a[0].calls, 2 + 2 * 5);
    assert_int_equal(a[1].calls, 2 + 5);
    assert_int_equal(a[2].calls, 2 + 5);
    assert_true(noise >= 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(t[i].rounds, 5);
        assert_true(t[i].min <= t[i].median && t[i].median <= t[i].max);
        assert_true(t[i].ratio_low <= t[i].ratio && t[i].ratio <= t[i].ratio_high);
    }
    assert_true(t[0].ratio == 1);
}

static int work(void *arg, struct ds_error *err)
{
    (void)arg, (void)err;
    pass(2e-3, 1e-3); /* something else has half of the machine */
    return 0;
}

/* Nothing is computed, but the caller waits all the same. */
static int wait_for_others(void *arg, struct ds_error *err)
{
    (void)arg, (void)err;
    pass(4e-3, 1e-6);
    own_clock.asleep++;
    return 0;
}

/* CPU time does not make who waits look fast. */
static void test_waiting_is_time(void **state)
{
    struct ds_contender c[3] = {{.run = work, .arg = NULL},
                                {.run = wait_for_others, .arg = NULL},
                                {.run = work, .arg = NULL}};
    struct ds_timing_plan cpu = plan;
    struct ds_timing t[3];
    struct ds_error err;
    double noise;
    (void)state;
    cpu.clock = CLOCK_PROCESS_CPUTIME_ID;
    assert_ok(ds_time_side_by_side(c, 3, &cpu, t, &noise, NULL, &err), err);
    assert_true(t[1].waits);
    assert_close("wall time", 0, t[1].min, 4e-3, 1e-6);
    assert_close("ratio", 0, t[1].ratio, 0.5, 1e-3);
    assert_false(t[0].waits || t[2].waits);
    assert_close("CPU time", 0, t[2].min, 1e-3, 1e-6);
}

/* A long call on a busy machine: its wall time is a larger multiple of its CPU time than a short one's. */
static int be_preempted(void *arg, struct ds_error *err)
{
    (void)arg, (void)err;
    pass(80e-3, 8e-3);
    return 0;
}

static void test_being_preempted_is_no_waiting(void **state)
{
    struct ds_contender c[2] = {{.run = work, .arg = NULL}, {.run = be_preempted, .arg = NULL}};
    struct ds_timing_plan cpu = plan;
    struct ds_timing t[2];
    struct ds_error err;
    double noise;
    (void)state;
    cpu.clock = CLOCK_PROCESS_CPUTIME_ID;
    assert_ok(ds_time_side_by_side(c, 2, &cpu, t, &noise, NULL, &err), err);
    assert_false(t[1].waits);
    assert_close("CPU time", 0, t[1].min, 8e-3, 1e-6);
}

static void test_what_takes_too_long_is_left_out(void **state)
{
    struct counter a[2] = {{0, 0}, {0, 0}};
    struct ds_contender c[2] = {{.run = count, .arg = &a[0]}, {.run = count, .arg = &a[1]}};
    struct ds_timing_plan strict = plan;
    struct ds_timing t[2];
    struct ds_error err;
    double noise;
    (void)state;
    strict.longest_call = -1;
    assert_ok(ds_time_side_by_side(c, 2, &strict, t, &noise, NULL, &err), err);
    assert_int_equal(t[0].rounds, 5); /* the measure of the others stays */
    assert_int_equal(t[1].rounds, 0);
    assert_int_equal(a[1].calls, 1);
}

static int slow(void *arg, struct ds_error *err)
{
    pass(20e-3, 20e-3);
    return count(arg, err);
}

/* The rounds that have to be fit into the time there is, or nothing is measured. */
static void test_time_is_bounded(void **state)
{
    struct counter a[3] = {{0, 0}, {0, 0}, {0, 0}};
    struct ds_contender c[3] = {
        {.run = count, .arg = &a[0]}, {.run = slow, .arg = &a[1]}, {.run = slow, .arg = &a[2]}};
    struct ds_timing_plan bounded = plan;
    struct ds_timing t[3];
    struct ds_error err;
    double noise;
    (void)state;
    bounded.most_seconds = 0.19; /* five rounds of one of the slow ones take 0.1 s, of both 0.2 s */
    assert_int_equal(ds_time_side_by_side(c, 3, &bounded, t, &noise, NULL, &err), 0);
    assert_int_equal(t[0].rounds, 5);
    assert_int_equal(t[1].rounds + t[2].rounds, 5); /* one of them, the other is left out */
    bounded.most_seconds = 0.09;
    assert_int_equal(ds_time_side_by_side(c, 3, &bounded, t, &noise, NULL, &err), 0);
    assert_true(t[0].rounds == 5 && t[1].rounds == 0 && t[2].rounds == 0);
    assert_int_equal(ds_time_side_by_side(&c[1], 1, &bounded, t, &noise, NULL, &err), 1);
}

/* ---- placement --------------------------------------------------------------------------------- */

struct crew {
    struct ds_team *team;
    cpu_set_t seen[2]; /* masks of the caller and of the member in the last call */
    cpu_set_t own;     /* of a thread that is no team's */
    pthread_t thread;
    _Atomic(int) asked, stop;
};

static void look(void *arg, int thread, int threads)
{
    struct crew *w = arg;
    (void)threads;
    pthread_getaffinity_np(pthread_self(), sizeof w->seen[thread], &w->seen[thread]);
}

static int look_all(void *arg, struct ds_error *err)
{
    struct crew *w = arg;
    (void)err;
    ds_team_run(w->team, look, w);
    pthread_getaffinity_np(w->thread, sizeof w->own, &w->own);
    return 0;
}

static int bind_crew(void *arg, const int *cpus, int n)
{
    return ds_team_bind(((struct crew *)arg)->team, cpus, n);
}

static void *idle(void *arg)
{
    struct crew *w = arg;
    const struct timespec pause = {.tv_nsec = 1000000};
    while (!atomic_load(&w->stop))
        nanosleep(&pause, NULL);
    return NULL;
}

/* One CPU for the caller, the other one for its team's member and for a thread of somebody else;
 * all have the masks back that they had. */
static void test_placement(void **state)
{
    cpu_set_t before[2], after[2];
    struct crew w = {0};
    struct ds_contender c = {.run = look_all, .arg = &w, .bind = bind_crew};
    struct ds_timing_plan placed_plan = plan;
    struct ds_placed placed;
    struct ds_timing t;
    struct ds_error err;
    double noise;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof before[0], &before[0]), 0);
    if (CPU_COUNT(&before[0]) < 2)
        skip();
    assert_non_null(w.team = ds_team_new(2, &err));
    assert_int_equal(pthread_create(&w.thread, NULL, idle, &w), 0);
    pthread_getaffinity_np(w.thread, sizeof before[1], &before[1]);
    placed_plan.threads = 2;
    assert_ok(ds_time_side_by_side(&c, 1, &placed_plan, &t, &noise, &placed, &err), err);
    assert_int_equal(placed.n_cpus, 2);
    assert_int_equal(CPU_COUNT(&placed.cpus), 2);
    assert_int_equal(placed.own, 2);
    assert_true(placed.others >= 1);
    assert_int_equal(CPU_COUNT(&w.seen[0]), 1);
    assert_int_equal(CPU_COUNT(&w.seen[1]), 1);
    assert_false(CPU_EQUAL(&w.seen[0], &w.seen[1]));
    assert_true(CPU_EQUAL(&w.own, &w.seen[1]));
    sched_getaffinity(0, sizeof after[0], &after[0]);
    pthread_getaffinity_np(w.thread, sizeof after[1], &after[1]);
    assert_true(CPU_EQUAL(&before[0], &after[0]) && CPU_EQUAL(&before[1], &after[1]));
    look_all(&w, &err);
    assert_true(CPU_EQUAL(&w.seen[0], &before[0]) && CPU_EQUAL(&w.seen[1], &before[0]));
    atomic_store(&w.stop, 1);
    pthread_join(w.thread, NULL);
    ds_team_free(w.team);
}

/* A library that starts its threads in its first call hands the caller's mask down to them. */
static int start_late(void *arg, struct ds_error *err)
{
    struct crew *w = arg;
    if (!atomic_exchange(&w->asked, 1) && pthread_create(&w->thread, NULL, idle, w) != 0)
        return ds_fail(err, "no thread");
    pthread_getaffinity_np(w->thread, sizeof w->own, &w->own);
    pthread_getaffinity_np(pthread_self(), sizeof w->seen[0], &w->seen[0]);
    return 0;
}

static void test_placement_of_threads_started_in_it(void **state)
{
    cpu_set_t before, after;
    struct crew w = {0};
    struct ds_contender c = {.run = start_late, .arg = &w};
    struct ds_timing_plan placed_plan = plan;
    struct ds_placed placed;
    struct ds_timing t;
    struct ds_error err;
    double noise;
    (void)state;
    sched_getaffinity(0, sizeof before, &before);
    if (CPU_COUNT(&before) < 2)
        skip();
    placed_plan.threads = 2;
    assert_ok(ds_time_side_by_side(&c, 1, &placed_plan, &t, &noise, &placed, &err), err);
    assert_int_equal(CPU_COUNT(&w.own), 1);
    assert_false(CPU_EQUAL(&w.own, &w.seen[0]));
    pthread_getaffinity_np(w.thread, sizeof after, &after);
    assert_true(CPU_EQUAL(&before, &after));
    atomic_store(&w.stop, 1);
    pthread_join(w.thread, NULL);
}

/* Too few CPUs: measured all the same, and said. */
static void test_placement_needs_cpus(void **state)
{
    struct counter a = {0, 0};
    struct ds_contender c = {.run = count, .arg = &a};
    struct ds_timing_plan wide = plan;
    struct ds_placed placed;
    struct ds_timing t;
    struct ds_error err;
    double noise;
    cpu_set_t before, after;
    (void)state;
    sched_getaffinity(0, sizeof before, &before);
    wide.threads = CPU_COUNT(&before) + 1;
    assert_ok(ds_time_side_by_side(&c, 1, &wide, &t, &noise, &placed, &err), err);
    assert_int_equal(t.rounds, 5);
    assert_int_equal(placed.n_cpus, 0);
    assert_non_null(strstr(placed.why, "CPU"));
    sched_getaffinity(0, sizeof after, &after);
    assert_true(CPU_EQUAL(&before, &after));
    assert_ok(ds_time_side_by_side(&c, 1, &plan, &t, &noise, &placed, &err), err);
    assert_string_equal(placed.why, "left to the system");
}

/* ---- a bench of variants -------------------------------------------------------------------- */

/* A setting is bounded by the time it may take, and says so; the same bench goes on with others. */
static void test_bench_is_bounded(void **state)
{
    const struct ds_kernel *kernels[] = {ds_kernel_find(DS_OP_ATTENTION, "vendor"),
                                         ds_kernel_find(DS_OP_ATTENTION, "pinned")};
    const struct ds_bench_setting big = {.rows = 8, .threads = 1, .kv = 512},
                                  small = {.rows = 2, .threads = 1};
    const struct ds_bench_limits none = {.seconds = 0}, tight = {.most = 1e-9};
    struct ds_bench_figures f;
    struct ds_shape shape;
    struct ds_error err;
    (void)state;
    assert_ok(ds_shape_parse(DS_OP_ATTENTION, "heads=2,kv_heads=1,head_dim=16", &shape, &err), err);
    struct ds_lab_bench *b = ds_lab_bench_open(kernels, 2, &shape, DS_ELEMENT_F32, &err);
    assert_non_null(b);
    assert_int_equal(ds_lab_bench(b, &big, &tight, &f, &err), 1);
    assert_ok(ds_lab_bench(b, &big, &none, &f, &err), err);
    assert_true(f.time[0].rounds >= 5 && f.time[1].rounds >= 5 && f.work > 0);
    assert_int_equal(ds_lab_bench(b, &small, &tight, &f, &err), 1);
    assert_ok(ds_lab_bench(b, &small, &none, &f, &err), err);
    assert_true(f.time[0].rounds >= 5 && f.time[1].rounds >= 5);
    ds_lab_bench_close(b);
    assert_null(ds_lab_bench_open(kernels, 0, &shape, DS_ELEMENT_F32, &err));
    ds_mem_fail_at(1);
    assert_null(ds_lab_bench_open(kernels, 2, &shape, DS_ELEMENT_F32, &err));
    ds_mem_fail_at(0);
}

/* A contender's own clock: what it says counts, whatever the clocks of this machine do. */
static int given_time(void *arg, long calls, double *seconds, struct ds_error *err)
{
    (void)err;
    *seconds = (double)calls * *(const double *)arg;
    return 0;
}

static void test_own_clocks(void **state)
{
    double slow = 0.5, fast = 0.125;
    const struct ds_contender c[2] = {{.arg = &slow, .timed = given_time},
                                      {.arg = &fast, .timed = given_time}};
    struct ds_timing t[2];
    struct ds_error err;
    double noise = -1;
    (void)state;
    assert_ok(ds_time_side_by_side(c, 2, &plan, t, &noise, NULL, &err), err);
    assert_true(t[0].median == 0.5 && t[1].median == 0.125 && t[1].ratio == 4 && noise == 0);
}

static void test_failures(void **state)
{
    struct counter a[2] = {{0, 0}, {0, 4}};
    struct ds_contender c[2] = {{.run = count, .arg = &a[0]}, {.run = count, .arg = &a[1]}};
    struct ds_timing t[2];
    struct ds_error err;
    double noise;
    (void)state;
    assert_int_equal(ds_time_side_by_side(c, 2, &plan, t, &noise, NULL, &err), -1);
    assert_string_equal(err.msg, "call 4 failed");
    assert_int_equal(ds_time_side_by_side(c, 0, &plan, t, &noise, NULL, &err), -1);
    assert_int_equal(
        ds_time_side_by_side(c, DS_TIMING_MAX_CONTENDERS + 1, &plan, t, &noise, NULL, &err), -1);
    ds_mem_fail_at(1);
    assert_int_equal(ds_time_side_by_side(c, 2, &plan, t, &noise, NULL, &err), -1);
    ds_mem_fail_at(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spread),
        cmocka_unit_test(test_rounds),
        cmocka_unit_test_setup_teardown(test_waiting_is_time, start_own_clock, stop_own_clock),
        cmocka_unit_test_setup_teardown(test_being_preempted_is_no_waiting, start_own_clock,
                                        stop_own_clock),
        cmocka_unit_test(test_what_takes_too_long_is_left_out),
        cmocka_unit_test_setup_teardown(test_time_is_bounded, start_own_clock, stop_own_clock),
        cmocka_unit_test(test_placement),
        cmocka_unit_test(test_placement_of_threads_started_in_it),
        cmocka_unit_test(test_placement_needs_cpus),
        cmocka_unit_test(test_bench_is_bounded),
        cmocka_unit_test(test_own_clocks),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests_name("timing", tests, NULL, NULL);
}
