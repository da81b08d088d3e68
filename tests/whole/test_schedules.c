/* test_schedules.c: whole sweeps of a small model whose bookkeeping has one known fault: the verdict
 * blames op schedule, and what no engine could follow ends the trial with an error. */
#include "tests/whole/schedule_specimens.h"
#include "tests/whole/verdict_checks.h"

#include <stdio.h>

static void test_bookkeeping_is_blamed_and_not_arithmetic(void **state)
{
    static const struct {
        const char *variant, *stage;
        int32_t step, position;
        uint32_t rows;
    } cases[] = {
        {"far", "positions", 1, PROMPT, 4},
        {"forget", "kv_len", 2, PROMPT + 1, 3},
        {"page", "slots", 0, 0, PROMPT + 4},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char kernels[64];
        struct outcome x;
        snprintf(kernels, sizeof kernels, "pinned,pinned+schedule=%s", cases[i].variant);
        struct ask q = {.factor = {[DS_FACTOR_BATCH] = "4", [DS_FACTOR_KERNELS] = kernels}};
        judge(&x, &q);
        const char *what = cases[i].variant;
        struct culprit guilty = {"schedule", cases[i].variant, " kernels ", NULL};
        only_blames(&x, what, &guilty, 1);
        check(what, x.v.result == DS_RESULT_DRIFT && x.v.stable && x.result.failed == 0);
        check_text(what, x.v.first.stage, cases[i].stage);
        check_text(what, x.v.first.op, "schedule");
        check_text(what, x.v.first.variant, cases[i].variant);
        check(what, x.v.first.layer == -1 && x.v.first.label == DS_LABEL_ORIGIN);
        check(what, x.v.first.step == cases[i].step && x.v.first.position == cases[i].position);
        check(what, x.v.first.rows == cases[i].rows);
        done(&x);
    }
}

static void test_what_cannot_be_followed_ends_the_trial(void **state)
{
    static const char *const want[] = {"position 64 is impossible",   "position -1 is impossible",
                                       "kv_len 14 is impossible",     "kv_len 0 is impossible",
                                       "kv_first 11 is impossible",   "page 4 is impossible",
                                       "a changed place in the call", "a changed place in the call",
                                       "a changed place in the call"};
    (void)state;
    for (which_lie = 0; which_lie < 9; which_lie++) {
        struct outcome x;
        struct ask q = {
            .repeats = 1,
            .factor = {
                [DS_FACTOR_BATCH] = "4", [DS_FACTOR_KERNELS] = "pinned,pinned+schedule=lie"}};
        judge(&x, &q);
        check(want[which_lie], x.result.failed == 1);
        if (!strstr(x.result.first_failure.msg, want[which_lie]) ||
            !strstr(x.result.first_failure.msg, "positions: schedule/lie")) {
            print_error("%s: '%s'\n", want[which_lie], x.result.first_failure.msg);
            cut_short = 1;
        }
        check(want[which_lie], x.v.counts.arms == 1);
        done(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bookkeeping_is_blamed_and_not_arithmetic),
        cmocka_unit_test(test_what_cannot_be_followed_ends_the_trial),
    };
    return cmocka_run_group_tests_name("schedules", tests, add_schedules, NULL);
}
