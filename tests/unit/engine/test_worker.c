/* test_worker.c: what a worker sends is the trial that it was asked for, or nothing is believed of it; and one that does
 * not move on is heard of. */
#include "tests/unit/testing.h"

#include "engine/stall.h"
#include "engine/worker.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What the kernel at work wrote over. */
enum { NOTHING, ARM, REPEAT, PASS, HEALED_TO };

static int trial(void *ctx, const struct ds_trial_order *order, struct ds_trial_data *out,
                 struct ds_error *err)
{
    const int over = *(const int *)ctx;
    (void)err;
    memset(out, 0, sizeof *out);
    out->info = (struct ds_trial){.arm = order->arm + (over == ARM),
                                  .repeat = order->repeat + (over == REPEAT),
                                  .pass = over == PASS ? DS_PASS_BARE : order->pass,
                                  .healed_to = over == HEALED_TO ? 1548222464 : order->healed_to};
    return 0;
}

static void test_an_answer_to_another_order_is_a_dead_worker(void **state)
{
    (void)state;
    for (int over = NOTHING; over <= HEALED_TO; over++)
        for (int heals = 0; heals < 2; heals++) {
            struct ds_worker_context c = {.trial = trial, .ctx = &over};
            struct ds_worker w = {0};
            struct ds_error err = {{0}, {0}};
            struct ds_trial_data t;
            const struct ds_trial_order order = {.arm = 3,
                                                 .repeat = 1,
                                                 .pass = heals ? DS_PASS_HEAL : DS_PASS_NATURAL,
                                                 .healed_to = heals ? 2 : 0};
            assert_ok(ds_worker_start(&w, &c, 1, &err), err);
            const int rc = ds_worker_trial(&w, &order, NULL, NULL, &t, &err);
            if (over == NOTHING) {
                assert_ok(rc, err);
                assert_int_equal(t.info.healed_to, order.healed_to);
                ds_trial_data_free(&t);
            } else {
                assert_int_equal(rc, DS_WORKER_DIED);
                assert_int_equal(w.pid, 0);
                assert_non_null(strstr(err.msg, "worker 1 was asked for arm 3, repeat 1"));
                assert_true(over != HEALED_TO || strstr(err.msg, "healed to arm 1548222464"));
            }
            ds_worker_stop(&w);
        }
}

/* Ends when the parent has been heard of. */
static int long_trial(void *ctx, const struct ds_trial_order *order, struct ds_trial_data *out,
                      struct ds_error *err)
{
    const volatile int *heard = ctx;
    for (int i = 0; !*heard && i < 100000; i++)
        usleep(1000);
    memset(out, 0, sizeof *out);
    out->info = (struct ds_trial){.arm = order->arm, .repeat = order->repeat, .pass = order->pass};
    return *heard ? 0 : ds_fail(err, "nobody waits");
}

static void hear(void *ctx)
{
    *(volatile int *)ctx = 1;
}

static void test_who_waits_is_asked_meanwhile(void **state)
{
    (void)state;
    int *heard =
        mmap(NULL, sizeof *heard, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(heard != MAP_FAILED);
    struct ds_worker_context c = {.trial = long_trial, .ctx = heard};
    struct ds_worker w = {.waiting = hear, .waiting_ctx = heard};
    struct ds_error err = {{0}, {0}};
    struct ds_trial_data t;
    const struct ds_trial_order order = {.arm = 1, .pass = DS_PASS_NATURAL};
    assert_ok(ds_worker_start(&w, &c, 1, &err), err);
    assert_ok(ds_worker_trial(&w, &order, NULL, NULL, &t, &err), err);
    ds_trial_data_free(&t);
    ds_worker_stop(&w);
    munmap(heard, sizeof *heard);
}

static void test_a_stall_is_told_once(void **state)
{
    (void)state;
    struct ds_place at = {.doing = DS_DOING_LAUNCH, .stage = 1, .rows = 4};
    struct ds_stall s = {0};
    assert_int_equal(ds_stalled(&s, &at, 1000), 0);
    assert_int_equal(ds_stalled(&s, &at, 1000 + DS_STALL_SECONDS - 0.5), 0);
    at.stage = 2; /* it moves on */
    assert_int_equal(ds_stalled(&s, &at, 1000 + DS_STALL_SECONDS + 1), 0);
    assert_int_equal(ds_stalled(&s, &at, 1000 + 2 * DS_STALL_SECONDS), 0);
    assert_int_equal(ds_stalled(&s, &at, 1001 + 2 * DS_STALL_SECONDS), 1);
    assert_int_equal(ds_stalled(&s, &at, 1100 + 2 * DS_STALL_SECONDS), 0);
    at.stage = 3;
    assert_int_equal(ds_stalled(&s, &at, 2000), 0);
    assert_int_equal(ds_stalled(&s, &at, 3000), 0); /* told already in this trial */
    /* No kernel is at work: weights are read, another process is waited for. */
    s = (struct ds_stall){0};
    at.doing = DS_DOING_NOTHING;
    assert_int_equal(ds_stalled(&s, &at, 0), 0);
    assert_int_equal(ds_stalled(&s, &at, 4000), 0);
}

static int fails(void *ctx, const struct ds_trial_order *order, struct ds_trial_data *out,
                 struct ds_error *err)
{
    (void)ctx;
    (void)order;
    (void)out;
    ds_fail(err, "short");
    return ds_hint(err, "h");
}

/* Bytes that nobody wrote would be those of something else. */
static void test_an_error_brings_nothing_else_along(void **state)
{
    (void)state;
    static const struct ds_error want = {"short", "h"};
    struct ds_worker_context c = {.trial = fails};
    struct ds_worker w = {0};
    struct ds_error err;
    struct ds_trial_data t;
    memset(&err, 'x', sizeof err);
    assert_ok(ds_worker_start(&w, &c, 1, &err), err);
    for (int i = 0; i < 2; i++) {
        const struct ds_trial_order order = {.arm = 3, .pass = DS_PASS_NATURAL};
        memset(&err, 'x', sizeof err);
        assert_int_equal(ds_worker_trial(&w, &order, NULL, NULL, &t, &err), DS_WORKER_FAILED);
        assert_memory_equal(&err, &want, sizeof err);
    }
    ds_worker_stop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_waits_is_asked_meanwhile),
        cmocka_unit_test(test_a_stall_is_told_once),
        cmocka_unit_test(test_an_answer_to_another_order_is_a_dead_worker),
        cmocka_unit_test(test_an_error_brings_nothing_else_along),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
