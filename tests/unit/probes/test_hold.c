/* test_hold.c: held rows: sizes, spill file, sharing between processes, death of a worker, look-up
 * by key. */
#include "tests/unit/probes/net.h"

#include "probes/hold.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint32_t arms[] = {4, 9};
static struct net base;

static void test_impossible_sizes_are_refused(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_site site = {.stage = "logits", .dtype = "f32", .width = UINT32_MAX};
    uint32_t rows = UINT32_MAX;
    struct ds_hold *hold = (struct ds_hold *)(void *)&err;
    struct ds_hold_config config = {&site, 1, &rows, arms, 2, 1u << 20, NULL};
    assert_int_equal(ds_hold_new(&config, &hold, &err), -1);
    assert_null(hold);
    assert_non_null(strstr(err.msg, "do not fit in memory"));
    assert_non_null(strstr(err.msg, "logits"));
    strcpy(site.dtype, "f99");
    assert_int_equal(ds_hold_new(&config, &hold, &err), -1);
    assert_non_null(strstr(err.msg, "f99"));
}

static void test_sites_of_varying_width_are_not_held(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_site site[2] = {{.stage = "scores", .dtype = "f32"},
                              {.stage = "embed", .dtype = "bf16", .width = 3}};
    uint32_t rows[2] = {5, 1};
    struct ds_hold *hold;
    struct ds_hold_config config = {site, 2, rows, arms, 2, 1u << 20, NULL};
    assert_ok(ds_hold_new(&config, &hold, &err), err);
    assert_int_equal(ds_hold_keeps(hold, 0), 0);
    assert_int_equal(ds_hold_keeps(hold, 1), 1);
    assert_int_equal(ds_hold_has(hold, 9), 0);
    assert_int_equal(ds_hold_has(hold, 5), 0);
    struct ds_row key = {.request = 1};
    assert_int_equal(ds_hold_begin(hold, 1), 1);
    assert_ok(ds_hold_store(hold, 1, 1, &key, 77, "\1\2\3\4\5\6", &err), err);
    assert_int_equal(ds_hold_store(hold, 1, 1, &key, 77, "\1\2\3\4\5\6", &err),
                     -1); /* room for one */
    assert_non_null(strstr(err.msg, "room"));
    assert_ok(ds_hold_commit(hold, 1, &err), err);
    assert_int_equal(ds_hold_has(hold, 9), 1);
    assert_memory_equal(ds_hold_bytes(hold, 1, 1, 0), "\1\2\3\4\5\6", 6);
    ds_hold_free(hold);
}

static void test_rows_are_found_in_any_order(void **state)
{
    (void)state;
    enum { N = 60 };
    struct ds_error err;
    struct ds_site site = {.stage = "embed", .dtype = "i32", .width = 1};
    uint32_t rows = N, seed = 5;
    struct ds_hold *hold;
    struct ds_hold_config config = {&site, 1, &rows, arms, 1, 1u << 20, NULL};
    assert_ok(ds_hold_new(&config, &hold, &err), err);
    struct ds_row key[N];
    for (int i = 0; i < N; i++)
        key[i] = (struct ds_row){.request = i % 3, .position = i / 6, .occurrence = i / 3 % 2};
    for (int i = N - 1; i > 0; i--) {
        seed = seed * 1664525u + 1013904223u;
        int j = (int)((seed >> 8) % (uint32_t)(i + 1));
        struct ds_row swap = key[i];
        key[i] = key[j];
        key[j] = swap;
    }
    assert_int_equal(ds_hold_begin(hold, 0), 1);
    for (int32_t i = 0; i < N; i++)
        assert_ok(ds_hold_store(hold, 0, 0, &key[i], (uint64_t)i, &i, &err), err);
    assert_ok(ds_hold_commit(hold, 0, &err), err);
    for (int i = 0; i < N; i++)
        for (uint32_t guess = 0; guess < N + 2; guess += 7)
            assert_int_equal(ds_hold_find(hold, 0, 0, &key[i], guess), i);
    struct ds_row absent[] = {
        {.request = 3}, {.request = -1}, {.position = 10}, {.occurrence = 2}, {.position = -1}};
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++)
        assert_int_equal(ds_hold_find(hold, 0, 0, &absent[i], 3), -1);
    ds_hold_free(hold);
}

static void test_budget_decides_what_is_spilled(void **state)
{
    (void)state;
    net_init(&base);
    uint64_t all = 0;
    for (uint64_t budget = 0; budget < 1u << 20; budget = budget * 2 + 4096) {
        struct ds_hold *hold = net_hold(&base, arms, 2, budget);
        uint64_t spilled = ds_hold_spilled(hold);
        if (budget == 0)
            all = spilled;
        assert_true(spilled <= all);
        ds_hold_free(hold);
    }
    assert_true(all > 2 * (SITES - 1) * REQUESTS * POSITIONS * WIDTH * 4);
    struct ds_hold *hold = net_hold(&base, arms, 2, UINT64_MAX);
    assert_int_equal(ds_hold_spilled(hold), 0);
    ds_hold_free(hold);
}

static void test_spill_folder_that_is_not_there(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_site site = {.stage = "embed", .dtype = "f32", .width = 100};
    uint32_t rows = 10;
    struct ds_hold *hold;
    struct ds_hold_config config = {&site, 1, &rows, arms, 2, 0, "/nonexistent/folder"};
    assert_int_equal(ds_hold_new(&config, &hold, &err), -1);
    assert_non_null(strstr(err.msg, "/nonexistent/folder"));
    assert_non_null(strstr(err.hint, "TMPDIR"));
}

/* Nothing but the mapping is left of the spill file: no name, no descriptor. */
static void test_spill_file_has_no_name(void **state)
{
    (void)state;
    struct ds_error err;
    char dir[] = "/tmp/driftscope-test-XXXXXX";
    assert_non_null(mkdtemp(dir));
    struct ds_site site = {.stage = "embed", .dtype = "f32", .width = 100};
    uint32_t rows = 10;
    struct ds_hold *hold;
    struct ds_hold_config config = {&site, 1, &rows, arms, 2, 0, dir};
    int before = open("/dev/null", O_RDONLY);
    close(before);
    assert_ok(ds_hold_new(&config, &hold, &err), err);
    int after = open("/dev/null", O_RDONLY);
    close(after);
    assert_int_equal(before, after);
    assert_true(ds_hold_spilled(hold) > 0);
    assert_int_equal(rmdir(dir), 0); /* the folder is empty */
    struct ds_row key = {.request = 1};
    float row[100] = {1, 2, 3};
    assert_int_equal(ds_hold_begin(hold, 0), 1);
    for (uint32_t i = 0; i < rows; i++)
        assert_ok(ds_hold_store(hold, 0, 0, &key, i, row, &err), err);
    ds_hold_abandon(hold, 0);
    ds_hold_free(hold);
}

/* Runs fn in a child and returns its exit status; a signal counts as 1000 + its number. */
static int in_child(int (*fn)(void *), void *arg)
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(fn(arg));
    int status;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Files may not grow beyond a page: as a full disk, at creation, without a signal later. */
static int full_disk(void *arg)
{
    (void)arg;
    struct ds_error err = {{0}, {0}};
    struct rlimit limit = {8192, 8192};
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return 2;
    struct ds_site site = {.stage = "embed", .dtype = "f32", .width = 1000};
    uint32_t rows = 10;
    struct ds_hold *hold;
    struct ds_hold_config config = {&site, 1, &rows, arms, 2, 0, NULL};
    if (ds_hold_new(&config, &hold, &err) != -1 || hold)
        return 3;
    return strstr(err.msg, "cannot reserve") && strstr(err.hint, "TMPDIR") ? 0 : 4;
}

static void test_full_disk_is_an_error_at_creation(void **state)
{
    (void)state;
    assert_int_equal(in_child(full_disk, NULL), 0);
}

/* ---- processes ------------------------------------------------------------------------------- */

struct work {
    struct ds_hold *hold;
    uint32_t arm;
    int die_at; /* calls made before the child kills itself; -1 never */
    size_t drifts;
};

/* Fills the arm; exit 0 if that worked and the slot is complete. */
static int fill_arm(void *arg)
{
    struct work *w = arg;
    struct ds_error err;
    struct ds_trial_data t;
    struct ds_probe *p = net_probe(&base, w->hold, DS_DUMP_NONE, 0);
    if (w->die_at >= 0) {
        if (ds_probe_begin_trial(p, &(struct ds_trial){.arm = w->arm}, NULL, 0, &err))
            return 2;
        for (int c = 0; c < w->die_at; c++) {
            struct ds_row rows[REQUESTS * POSITIONS];
            uint32_t m, n = net_rows(&net_chunks[c], rows, &m);
            if (ds_probe_begin_call(p, 0, m, 1, rows, n, &err))
                return 3;
            for (int s = 0; s < SITES; s++)
                if (net_site(&base, p, rows, n, m, s, &err))
                    return 4;
            if (ds_probe_end_call(p, &err))
                return 5;
        }
        kill(getpid(), SIGKILL);
    }
    if (net_trial(&base, p, &(struct ds_trial){.arm = w->arm}, NULL, 0, net_chunks, 4, &t, &err))
        return 6;
    ds_trial_data_free(&t);
    ds_probe_free(p);
    return ds_hold_has(w->hold, w->arm) ? 0 : 7;
}

/* Compares a disturbed run with the held arm; exit 0 if it drifts as much as expected. */
static int compare_arm(void *arg)
{
    struct work *w = arg;
    struct ds_error err;
    struct ds_trial_data t;
    static struct net now;
    now = base;
    now.bump[now.n_bumps++] = (struct net_bump){FIRST_LAYER_SITE + KEY, 1, 6, 8};
    struct ds_probe *p = net_probe(&now, w->hold, DS_DUMP_NONE, 0);
    if (net_trial(&now, p, &(struct ds_trial){.arm = 50}, &w->arm, 1, net_whole, 1, &t, &err))
        return 2;
    size_t drifts = t.n_drifts;
    ds_trial_data_free(&t);
    ds_probe_free(p);
    if (w->drifts == 0)
        w->drifts = drifts;
    return drifts > 0 && drifts == w->drifts ? 0 : 3;
}

static void check_fork(uint64_t budget)
{
    net_init(&base);
    struct work w = {net_hold(&base, arms, 2, budget), 9, -1, 0};
    assert_int_equal(in_child(fill_arm, &w), 0);
    assert_int_equal(ds_hold_has(w.hold, 9), 1);
    assert_int_equal(ds_hold_has(w.hold, 4), 0);
    assert_int_equal(compare_arm(&w), 0);           /* the parent reads */
    assert_int_equal(in_child(compare_arm, &w), 0); /* and a second child, the same */
    ds_hold_free(w.hold);
}

static void test_a_child_fills_and_others_read(void **state)
{
    (void)state;
    check_fork(1u << 24);
    check_fork(0);
}

static void test_a_killed_child_leaves_nothing_behind(void **state)
{
    (void)state;
    net_init(&base);
    for (int die_at = 0; die_at <= 4; die_at++) {
        struct work w = {net_hold(&base, arms, 2, 1u << 24), 4, die_at, 0};
        assert_int_equal(in_child(fill_arm, &w), 1000 + SIGKILL);
        assert_int_equal(ds_hold_has(w.hold, 4), 0);
        assert_int_equal(in_child(fill_arm, &w), 1000 + SIGKILL); /* and once more on top */
        assert_int_equal(ds_hold_has(w.hold, 4), 0);
        w.die_at = -1;
        assert_int_equal(in_child(fill_arm, &w), 0); /* started anew */
        assert_int_equal(ds_hold_has(w.hold, 4), 1);
        struct work fresh = {net_hold(&base, arms, 2, 1u << 24), 4, -1, 0};
        assert_int_equal(fill_arm(&fresh), 0);
        assert_int_equal(compare_arm(&fresh), 0);
        w.drifts = fresh.drifts;
        assert_int_equal(compare_arm(&w), 0); /* as if nothing had happened */
        ds_hold_free(w.hold);
        ds_hold_free(fresh.hold);
    }
}

static int claim(void *arg)
{
    struct work *w = arg;
    return ds_hold_begin(w->hold, 0);
}

static void test_only_one_process_fills_a_slot(void **state)
{
    (void)state;
    struct ds_error err;
    net_init(&base);
    struct work w = {net_hold(&base, arms, 2, 1u << 24), 4, -1, 0};
    assert_int_equal(ds_hold_begin(w.hold, 0), 1);
    assert_int_equal(in_child(claim, &w), 0); /* busy */
    ds_hold_abandon(w.hold, 0);
    assert_int_equal(in_child(claim, &w), 1); /* free; the child ends without letting go */
    assert_int_equal(ds_hold_begin(w.hold, 0), 1);
    assert_ok(ds_hold_commit(w.hold, 0, &err), err);
    assert_int_equal(in_child(claim, &w), 0); /* complete */
    assert_int_equal(ds_hold_begin(w.hold, 0), 0);
    ds_hold_free(w.hold);
}

static void test_allocation_failures_are_errors(void **state)
{
    (void)state;
    struct ds_error err;
    net_init(&base);
    uint32_t rows[SITES] = {0};
    struct ds_hold_config config = {base.site, SITES, rows, arms, 2, 1u << 20, NULL};
    struct ds_hold *hold = NULL;
    int failures = 0;
    for (long n = 1; !hold; n++) {
        ds_mem_fail_at(n);
        int rc = ds_hold_new(&config, &hold, &err);
        ds_mem_fail_at(0);
        assert_int_equal(rc, hold ? 0 : -1);
        failures += rc != 0;
    }
    assert_true(failures >= 3);
    ds_hold_free(hold);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_impossible_sizes_are_refused),
        cmocka_unit_test(test_sites_of_varying_width_are_not_held),
        cmocka_unit_test(test_rows_are_found_in_any_order),
        cmocka_unit_test(test_budget_decides_what_is_spilled),
        cmocka_unit_test(test_spill_folder_that_is_not_there),
        cmocka_unit_test(test_spill_file_has_no_name),
        cmocka_unit_test(test_full_disk_is_an_error_at_creation),
        cmocka_unit_test(test_a_child_fills_and_others_read),
        cmocka_unit_test(test_a_killed_child_leaves_nothing_behind),
        cmocka_unit_test(test_only_one_process_fills_a_slot),
        cmocka_unit_test(test_allocation_failures_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
