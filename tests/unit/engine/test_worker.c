/* test_worker.c: what a worker sends is the trial that it was asked for, or nothing is believed of it. */
#include "tests/unit/testing.h"

#include "engine/worker.h"

#include <string.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_answer_to_another_order_is_a_dead_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
