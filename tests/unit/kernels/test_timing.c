/* test_timing.c: the order of things in a timing, never how long they take. */
#include "tests/unit/kernels/harness.h"

#include "base/mem.h"
#include "kernels/lab/timing.h"

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
    struct ds_contender c[3] = {{count, &a[0]}, {count, &a[1]}, {count, &a[2]}};
    struct ds_timing t[3];
    struct ds_error err;
    double noise = -1;
    (void)state;
    assert_ok(ds_time_side_by_side(c, 3, &plan, t, &noise, &err), err);
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
    volatile float x = 1.0f;
    (void)arg, (void)err;
    for (int i = 0; i < 200000; i++)
        x = x * 0.999f + 1.0f;
    return 0;
}

/* Nothing is computed, but the caller waits all the same. */
static int wait_for_others(void *arg, struct ds_error *err)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    (void)arg, (void)err;
    nanosleep(&pause, NULL);
    return 0;
}

/* CPU time does not make who waits look fast. */
static void test_waiting_is_time(void **state)
{
    struct ds_contender c[3] = {{work, NULL}, {wait_for_others, NULL}, {work, NULL}};
    struct ds_timing_plan cpu = plan;
    struct ds_timing t[3];
    struct ds_error err;
    double noise;
    (void)state;
    cpu.clock = CLOCK_PROCESS_CPUTIME_ID;
    assert_ok(ds_time_side_by_side(c, 3, &cpu, t, &noise, &err), err);
    assert_true(t[1].waits && t[1].min >= 2e-3);
    assert_false(t[0].waits);
}

static void test_what_takes_too_long_is_left_out(void **state)
{
    struct counter a[2] = {{0, 0}, {0, 0}};
    struct ds_contender c[2] = {{count, &a[0]}, {count, &a[1]}};
    struct ds_timing_plan strict = plan;
    struct ds_timing t[2];
    struct ds_error err;
    double noise;
    (void)state;
    strict.longest_call = -1;
    assert_ok(ds_time_side_by_side(c, 2, &strict, t, &noise, &err), err);
    assert_int_equal(t[0].rounds, 5); /* the measure of the others stays */
    assert_int_equal(t[1].rounds, 0);
    assert_int_equal(a[1].calls, 1);
}

static void test_failures(void **state)
{
    struct counter a[2] = {{0, 0}, {0, 4}};
    struct ds_contender c[2] = {{count, &a[0]}, {count, &a[1]}};
    struct ds_timing t[2];
    struct ds_error err;
    double noise;
    (void)state;
    assert_int_equal(ds_time_side_by_side(c, 2, &plan, t, &noise, &err), -1);
    assert_string_equal(err.msg, "call 4 failed");
    assert_int_equal(ds_time_side_by_side(c, 0, &plan, t, &noise, &err), -1);
    assert_int_equal(ds_time_side_by_side(c, DS_TIMING_MAX_CONTENDERS + 1, &plan, t, &noise, &err),
                     -1);
    ds_mem_fail_at(1);
    assert_int_equal(ds_time_side_by_side(c, 2, &plan, t, &noise, &err), -1);
    ds_mem_fail_at(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spread),
        cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_waiting_is_time),
        cmocka_unit_test(test_what_takes_too_long_is_left_out),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests_name("timing", tests, NULL, NULL);
}
