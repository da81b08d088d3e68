/* test_base.c: buffers, names, number formats, allocation, the thread team. */
#include "tests/unit/testing.h"

#include "base/buf.h"
#include "base/child.h"
#include "base/mem.h"
#include "base/names.h"
#include "base/team.h"

#include <limits.h>
#include <sched.h>

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_escape_makes_text_safe_for_a_terminal(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"plain", "plain"},
        {"a\nb\tc", "a\\nb\\tc"},
        {"\033[31m", "\\x1b[31m"},
        {"back\\slash", "back\\\\slash"},
        {"\xc3\xa9", "\xc3\xa9"},
        {"\xc3", "\\xc3"},
        {"\xc2\x9b"
         "2J",
         "\\xc2\\x9b2J"},
        {"a\xe2\x80\xae" /* the direction of writing turned (U+202E), and a mark of it (U+061C) */
         "b\xd8\x9c",
         "a\\xe2\\x80\\xaeb\\xd8\\x9c"},
        {"\xe2\x80\xa8|\xe2\x81\xa7|\xe2\x80\x8f", /* a separator of lines, an isolate, a mark */
         "\\xe2\\x80\\xa8|\\xe2\\x81\\xa7|\\xe2\\x80\\x8f"},
        {"\xef\xbf\xbe\xef\xbf\xbf", "\\xef\\xbf\\xbe\\xef\\xbf\\xbf"}, /* no characters */
        {"\xe2\x80\x94 \xd7\xa9\xd7\x9c \xe2\x81\xa5\xef\xbf\xbd \xe2\x80\x8d",
         "\xe2\x80\x94 \xd7\xa9\xd7\x9c \xe2\x81\xa5\xef\xbf\xbd \xe2\x80\x8d"}, /* a dash, letters, a joiner */
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"},
        {"\xc0\xaf", "\\xc0\\xaf"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_buf b = {0};
        ds_buf_escape(&b, cases[i].in, (size_t)-1);
        assert_string_equal(b.data, cases[i].out);
        ds_buf_free(&b);
    }
}

/* What a shell reads back: plain words as they are, the rest quoted, control characters in $'...'. */
static void test_quote_for_a_shell(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"a/b-1.h5", "a/b-1.h5"},
        {"", "''"},
        {"my record.h5", "'my record.h5'"},
        {"it's", "'it'\\''s'"},
        {"caf\xc3\xa9", "'caf\xc3\xa9'"},
        {"a\nb's", "$'a\\nb\\'s'"},
        {"$(x)", "'$(x)'"},
        {"\033[2J", "$'\\x1b[2J'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_buf b = {0};
        ds_buf_quote(&b, cases[i].in);
        assert_string_equal(b.data, cases[i].out);
        ds_buf_free(&b);
    }
}

static void test_nearest_name(void **state)
{
    (void)state;
    static const char *const names[] = {"rmsnorm", "matmul", "attention", "add"};
    assert_int_equal(ds_nearest("matmull", names, 4), 1);
    assert_int_equal(ds_nearest("atention", names, 4), 2);
    assert_int_equal(ds_nearest("rmsnrom", names, 4), 0);
    assert_int_equal(ds_nearest("zzzzzz", names, 4), -1);
}

/* Every f16 bit pattern survives widening and rounding; every midpoint rounds to even. */
static void test_f16_is_exhaustively_right(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        float x = ds_f16_value((uint16_t)h);
        if ((h & 0x7fff) > 0x7c00) {
            assert_true(isnan(x));
            assert_int_equal(ds_f16_round(x), 0x7e00);
            continue;
        }
        assert_int_equal(ds_f16_round(x), h);
        if ((h & 0x7fff) >= 0x7bff)
            continue;
        float y = ds_f16_value((uint16_t)(h + 1)), mid = (float)(((double)x + (double)y) / 2);
        assert_int_equal(ds_f16_round(mid), h & 1 ? h + 1 : h);
        assert_int_equal(ds_f16_round(nextafterf(mid, x)), h);
        assert_int_equal(ds_f16_round(nextafterf(mid, y)), h + 1);
    }
    assert_int_equal(ds_f16_round(65519.0f), 0x7bff);
    assert_int_equal(ds_f16_round(65520.0f), 0x7c00);
    assert_int_equal(ds_f16_round(-1e30f), 0xfc00);
}

static void test_bf16_rounds_to_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        float x = ds_bf16_value((uint16_t)h);
        if ((h & 0x7fff) > 0x7f80) {
            assert_int_equal(ds_bf16_round(x), 0x7fc0);
            continue;
        }
        assert_int_equal(ds_bf16_round(x), h);
        if ((h & 0x7fff) == 0x7f80)
            continue;
        uint32_t mid = (h << 16) | 0x8000u;
        assert_int_equal(ds_bf16_round(ds_f32_from_bits(mid)), h & 1 ? h + 1 : h);
        assert_int_equal(ds_bf16_round(ds_f32_from_bits(mid - 1)), h);
        assert_int_equal(ds_bf16_round(ds_f32_from_bits(mid + 1)), h + 1);
    }
}

static void test_ulp_distance(void **state)
{
    (void)state;
    assert_int_equal(ds_ulp_distance(DS_F32, 0x80000000u, 0), 0);
    assert_int_equal(ds_ulp_distance(DS_F32, 0x80000001u, 1), 2);
    assert_int_equal(ds_ulp_distance(DS_F32, 0x3f800000u, 0x3f800001u), 1);
    assert_int_equal(ds_ulp_distance(DS_F32, 0x7f800000u, 0x7f7fffffu), 1);
    assert_true(ds_ulp_distance(DS_F32, 0x7fc00000u, 0x7fc00000u) == UINT64_MAX);
    assert_int_equal(ds_ulp_distance(DS_BF16, 0x3f80u, 0x3f82u), 2);
    assert_true(ds_ulp_distance(DS_F16, 0x7e00u, 0) == UINT64_MAX);
}

static void test_allocation_checks_size_and_injects_failure(void **state)
{
    (void)state;
    struct ds_error err;
    assert_null(ds_calloc(SIZE_MAX / 2, 3, "rows", &err));
    assert_non_null(strstr(err.msg, "rows"));
    assert_null(ds_alloc_aligned(SIZE_MAX, 1, "rows", &err));
    ds_mem_fail_at(2);
    void *first = ds_calloc(1, 8, "first", &err), *second = ds_calloc(1, 8, "second", &err);
    ds_mem_fail_at(0);
    assert_non_null(first);
    assert_null(second);
    assert_non_null(strstr(err.msg, "out of memory"));
    free(first);
    int *grown = NULL;
    size_t cap = 0;
    assert_ok(ds_grow(&grown, &cap, 100, sizeof *grown, "ints", &err), err);
    assert_true(cap >= 100 && grown[99] == 0);
    assert_int_equal(ds_grow(&grown, &cap, SIZE_MAX / 2, sizeof *grown, "ints", &err), -1);
    free(grown);
}

struct tally {
    int calls[8];
    int threads;
};

static void count_call(void *arg, int thread, int threads)
{
    struct tally *t = arg;
    t->calls[thread]++;
    if (thread == 0)
        t->threads = threads;
}

static void test_team_runs_every_member_each_round(void **state)
{
    (void)state;
    struct ds_error err;
    for (int threads = 1; threads <= 4; threads++) {
        struct ds_team *team = ds_team_new(threads, &err);
        assert_non_null(team);
        struct tally t = {{0}, 0};
        for (int round = 0; round < 2000; round++)
            ds_team_run(team, count_call, &t);
        for (int i = 0; i < threads; i++)
            assert_int_equal(t.calls[i], 2000);
        assert_int_equal(t.threads, threads);
        assert_int_equal(ds_team_seen(team), threads);
        assert_int_equal(ds_team_seen(team), 1);
        ds_team_free(team);
    }
    assert_null(ds_team_new(0, &err));
    assert_null(ds_team_new(100000, &err));
}

static void dawdle(void *arg, int thread, int threads)
{
    if (thread > 0)
        for (volatile int i = 0; i < 20 * 1000 * 1000; i++)
            ;
    count_call(arg, thread, threads);
}

/* The caller has long stopped spinning when the members end: they must wake it. A lost wake-up
 * hangs. */
static void test_team_wakes_a_caller_that_sleeps(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_team *team = ds_team_new(3, &err);
    assert_non_null(team);
    struct tally t = {{0}, 0};
    for (int round = 0; round < 3; round++) {
        ds_team_run(team, dawdle, &t);
        for (int i = 0; i < 3; i++)
            assert_int_equal(t.calls[i], round + 1);
    }
    ds_team_free(team);
}

/* With members that would spin for minutes. */
static void test_team_rests_when_asked_to(void **state)
{
    (void)state;
    struct ds_error err;
    struct tally t = {{0}, 0};
    ds_team_set_spin(INT_MAX);
    struct ds_team *team = ds_team_new(3, &err);
    assert_non_null(team);
    for (int round = 1; round <= 5; round++) {
        ds_team_run(team, count_call, &t);
        assert_int_equal(t.calls[1], round);
        assert_int_equal(ds_team_asleep(team), 0);
        ds_team_rest();
        while (ds_team_asleep(team) <
               2) /* however long that takes here: a member that never does hangs */
            sched_yield();
    }
    ds_team_set_spin(0);
    ds_team_free(team);
}

static void test_share_covers_everything_once(void **state)
{
    (void)state;
    for (long n = 0; n < 70; n++)
        for (int threads = 1; threads <= 5; threads++) {
            long next = 0, begin, end;
            for (int i = 0; i < threads; i++) {
                ds_team_share(n, 16, i, threads, &begin, &end);
                assert_int_equal(begin, next);
                assert_true(end == n || end % 16 == 0);
                next = end;
            }
            assert_int_equal(next, n);
        }
}

static pid_t start(int status)
{
    const pid_t pid = fork();
    if (pid != 0)
        return pid;
    if (status >= 0)
        _exit(status);
    for (;;)
        pause();
}

static void test_end_of_a_child_is_asked_without_taking_it(void **state)
{
    (void)state;
    int status;
    const pid_t ends = start(3), stays = start(-1);
    assert_true(ends > 0 && stays > 0);
    assert_true(ds_child_ends_within(ends, 600));
    assert_true(ds_child_ended(ends)); /* again: it was only looked at */
    assert_false(ds_child_ended(stays));
    assert_false(ds_child_ends_within(stays, 0));
    assert_int_equal(ds_child_wait(ends, &status), 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    kill(stays, SIGKILL);
    assert_int_equal(ds_child_wait(stays, &status), 0);
    assert_true(WIFSIGNALED(status));
    assert_true(ds_child_ended(stays)); /* there is none of that number */
    assert_int_equal(ds_child_wait(stays, &status), -1);
}

static void test_cpus_are_those_of_the_process(void **state)
{
    cpu_set_t before, one;
    int first = 0;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(ds_team_cpus(), CPU_COUNT(&before));
    while (!CPU_ISSET(first, &before))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    const int seen = ds_team_cpus();
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(seen, 1);
}

static void test_bytes_in_words(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *words;
    } cases[] = {{0, "0 bytes"},         {1, "1 byte"},         {999, "999 bytes"},
                 {1000, "1 KB"},         {8534, "8.53 KB"},     {999499, "999 KB"},
                 {999500, "1 MB"},       {268435456, "268 MB"}, {2145761280, "2.15 GB"},
                 {UINT64_MAX, "18.4 EB"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[DS_BYTES_WORDS];
        assert_string_equal(ds_bytes_words(cases[i].bytes, words), cases[i].words);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_escape_makes_text_safe_for_a_terminal),
        cmocka_unit_test(test_quote_for_a_shell),
        cmocka_unit_test(test_nearest_name),
        cmocka_unit_test(test_f16_is_exhaustively_right),
        cmocka_unit_test(test_bf16_rounds_to_even),
        cmocka_unit_test(test_ulp_distance),
        cmocka_unit_test(test_allocation_checks_size_and_injects_failure),
        cmocka_unit_test(test_bytes_in_words),
        cmocka_unit_test(test_team_runs_every_member_each_round),
        cmocka_unit_test(test_team_wakes_a_caller_that_sleeps),
        cmocka_unit_test(test_team_rests_when_asked_to),
        cmocka_unit_test(test_cpus_are_those_of_the_process),
        cmocka_unit_test(test_end_of_a_child_is_asked_without_taking_it),
        cmocka_unit_test(test_share_covers_everything_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
