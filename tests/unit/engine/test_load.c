/* test_load.c: busy neighbours are there while they should be, and gone afterwards, also when the
 * process that started them is killed. */
#include "tests/unit/testing.h"

#include "engine/load.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_start_and_stop(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_load l = {0};
    assert_ok(ds_load_start(&l, 3, &err), err);
    assert_int_equal(l.n, 3);
    pid_t pid[3];
    for (int i = 0; i < 3; i++) {
        pid[i] = l.pid[i];
        assert_int_equal(kill(pid[i], 0), 0);
    }
    ds_load_stop(&l);
    for (int i = 0; i < 3; i++)
        assert_true(waitpid(pid[i], NULL, 0) < 0 && errno == ECHILD);
    assert_int_equal(l.n, 0);
    ds_load_stop(&l);
    assert_ok(ds_load_start(&l, 0, &err), err);
    assert_int_equal(l.n, 0);
    ds_load_stop(&l);
}

/* The pipe's end is held by everybody who was forked: it closes when the last of them is gone. */
static void test_they_end_with_a_killed_parent(void **state)
{
    (void)state;
    int pair[2];
    char byte;
    assert_int_equal(pipe(pair), 0);
    pid_t parent = fork();
    assert_true(parent >= 0);
    if (parent == 0) {
        struct ds_error err;
        struct ds_load l = {0};
        close(pair[0]);
        if (ds_load_start(&l, 2, &err) != 0 || write(pair[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(pair[1]);
    assert_int_equal(read(pair[0], &byte, 1), 1);
    kill(parent, SIGKILL);
    waitpid(parent, NULL, 0);
    assert_int_equal(read(pair[0], &byte, 1), 0);
    close(pair[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start_and_stop),
        cmocka_unit_test(test_they_end_with_a_killed_parent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
