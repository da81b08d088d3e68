/* test_output.c: results, notes and the progress bar, seen by a terminal and by files; and the
 * environment's whitelist. */
#include "tests/unit/testing.h"

#include "base/mem.h"
#include "cli/options.h"
#include "dumps/record.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* Options of `driftscope help` with one more argument. */
static struct ds_options options_with(const char *argument)
{
    static char *argv[4];
    struct ds_options o;
    struct ds_error err;
    argv[0] = "driftscope";
    argv[1] = "help";
    argv[2] = (char *)argument;
    assert_ok(ds_options_parse(argument ? 3 : 2, argv, &o, &err), err);
    return o;
}

/* Runs fn in a child whose stdout and stderr are a terminal of 60 columns; returns all that it
 * wrote. */
static char *on_terminal(void (*fn)(const struct ds_options *), const char *argument)
{
    static char seen[8192];
    size_t n = 0;
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0)
        skip();
    const char *name = ptsname(master);
    assert_non_null(name);
    int slave = open(name, O_RDWR | O_NOCTTY);
    if (slave < 0)
        skip();
    struct winsize size = {.ws_row = 24, .ws_col = 60};
    assert_int_equal(ioctl(slave, TIOCSWINSZ, &size), 0);
    pid_t child = fork();
    if (child == 0) {
        struct ds_options o = options_with(argument);
        close(master);
        dup2(slave, 1);
        dup2(slave, 2);
        fn(&o);
        _exit(0);
    }
    assert_true(child > 0);
    close(slave);
    for (ssize_t got;
         n < sizeof seen - 1 && (got = read(master, seen + n, sizeof seen - 1 - n)) > 0;)
        n += (size_t)got;
    seen[n] = '\0';
    close(master);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    return seen;
}

static void sweep_with_note(const struct ds_options *o)
{
    setenv("TERM", "xterm", 1);
    for (int i = 0; i < 10; i++) {
        ds_cli_progress(
            o, "batch 4 \033[31m a name that is longer than the terminal is wide, by far", i, 10);
        if (i == 5)
            ds_cli_note(o, "half is done");
    }
    ds_cli_progress(o, "batch 4", 10, 10);
}

static void test_progress_on_a_terminal_is_erased(void **state)
{
    (void)state;
    const char *seen = on_terminal(sweep_with_note, NULL);
    assert_non_null(strstr(seen, "[#"));
    assert_non_null(strstr(seen, "\\x1b[31m"));
    /* The note stands on an erased line, and the last thing is an erased line. */
    assert_non_null(strstr(seen, "\r\033[Kdriftscope: half is done\r\n"));
    assert_string_equal(seen + strlen(seen) - 4, "\r\033[K");
    /* No line is as wide as the terminal. */
    for (const char *p = seen; (p = strstr(p, "\033[K")) != NULL;) {
        p += 3;
        assert_true(strcspn(p, "\r") < 60);
    }
}

static void sweep_dumb(const struct ds_options *o)
{
    setenv("TERM", "dumb", 1);
    ds_cli_progress(o, "x", 1, 2);
    ds_cli_progress(o, "x", 2, 2);
}

static void test_progress_is_silent_elsewhere(void **state)
{
    (void)state;
    assert_string_equal(on_terminal(sweep_dumb, NULL), "");
    assert_string_equal(on_terminal(sweep_with_note, "-q"), "");
    /* Into a pipe only the note goes. */
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t child = fork();
    if (child == 0) {
        struct ds_options o = options_with(NULL);
        dup2(fds[1], 2);
        sweep_with_note(&o);
        _exit(0);
    }
    close(fds[1]);
    char text[256] = "";
    ssize_t n = read(fds[0], text, sizeof text - 1);
    assert_int_equal(n, strlen("driftscope: half is done\n"));
    assert_int_equal(read(fds[0], text + n, 1), 0);
    assert_string_equal(text, "driftscope: half is done\n");
    close(fds[0]);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void odd_progress(const struct ds_options *o)
{
    setenv("TERM", "xterm", 1);
    ds_cli_progress(o, "", 0, 0);
    ds_cli_progress(o, "x", 0.0 / 0.0, 1);
    ds_cli_progress(o, "x", 1, 0.0 / 0.0);
    ds_cli_progress(o, "x", -1, 5);
    ds_cli_progress(o, "x", 7, 5);
    ds_cli_progress(NULL, "x", 1, 5);
}

static void test_progress_takes_odd_numbers(void **state)
{
    (void)state;
    assert_string_equal(on_terminal(odd_progress, NULL), "");
}

static void print_color(const struct ds_options *o)
{
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    dprintf(1, "%d %s.", ds_cli_columns(), ds_cli_color(o, DS_ROLE_DRIFT));
    setenv("NO_COLOR", "1", 1);
    dprintf(1, "%s.", ds_cli_color(o, DS_ROLE_DRIFT));
}

static void test_colour_and_columns_of_a_terminal(void **state)
{
    (void)state;
    assert_string_equal(on_terminal(print_color, NULL), "60 \033[1;31m..");
    assert_string_equal(on_terminal(print_color, "--color=never"), "60 ..");
    assert_string_equal(on_terminal(print_color, "--color=always"), "60 \033[1;31m.\033[1;31m.");
    assert_string_equal(on_terminal(print_color, "--json"), "60 ..");
    assert_string_equal(on_terminal(print_color, "--output=x"), "60 ..");
}

static void test_failed_buffer_is_an_error(void **state)
{
    (void)state;
    struct ds_options o = options_with(NULL);
    struct ds_error err;
    struct ds_buf b = {.failed = 1};
    assert_int_equal(ds_cli_emit(&o, &b, &err), -1);
    assert_non_null(strstr(err.msg, "out of memory"));
    ds_options_free(&o);
}

/* The n-th allocation of an error message fails; what is written. */
static void error_without(long n, const char *what, char *text, size_t size)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t child = fork();
    if (child == 0) {
        struct ds_options o = options_with(NULL);
        struct ds_error err;
        dup2(fds[1], 2);
        ds_fail(&err, "%s", what);
        ds_hint(&err, "less of it");
        ds_mem_fail_at(n);
        _exit(ds_cli_error(&o, &err));
    }
    close(fds[1]);
    size_t have = 0;
    for (ssize_t got; (got = read(fds[0], text + have, size - 1 - have)) > 0;)
        have += (size_t)got;
    text[have] = '\0';
    close(fds[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 2);
}

/* That memory ran out is told without any. */
static void test_an_error_needs_no_memory(void **state)
{
    (void)state;
    char text[4096], long_one[1200];
    for (long n = 0; n < 8; n++) {
        error_without(n, "rows: out of memory (8 bytes)", text, sizeof text);
        assert_string_equal(text, "driftscope: rows: out of memory (8 bytes)\n"
                                  "driftscope: hint: less of it\n");
    }
    error_without(1, "a\x1b[1mb\nc", text, sizeof text);
    assert_string_equal(text, "driftscope: a?[1mb?c\ndriftscope: hint: less of it\n");
    memset(long_one, 'x', sizeof long_one);
    long_one[sizeof long_one - 1] = '\0';
    error_without(1, long_one, text, sizeof text);
    assert_true(strncmp(text, "driftscope: xxx", 15) == 0);
    assert_non_null(strstr(text, "x\ndriftscope: hint: less of it\n"));
}

static const char *line_of(const struct ds_text *lines, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(lines[i].name, name) == 0)
            return lines[i].value;
    return NULL;
}

static void free_lines(struct ds_text *lines, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(lines[i].name);
        free(lines[i].value);
    }
    free(lines);
}

static void test_environment_holds_what_decides_bits(void **state)
{
    (void)state;
    static const char *const needed[] = {"version", "build",     "compiler", "flags",     "kernel",
                                         "machine", "cpu_model", "libc",     "hdf5",      "xxhash",
                                         "pcre2",   "jansson",   "rounding", "pinned_isa"};
    struct ds_text *lines;
    struct ds_error err;
    size_t n;
    char host[256] = "";
    setenv("OMP_NUM_THREADS", "3", 1);
    setenv("OMP_SECRET", "hidden-value", 1);
    setenv("DRIFTSCOPE_TEST_SECRET", "hidden-value", 1);
    unsetenv("MKL_CBWR");
    assert_ok(ds_cli_environment(&lines, &n, &err), err);
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        if (!line_of(lines, n, needed[i]) || !line_of(lines, n, needed[i])[0])
            fail_msg("no %s", needed[i]);
    assert_string_equal(line_of(lines, n, "OMP_NUM_THREADS"), "3");
    assert_null(line_of(lines, n, "MKL_CBWR"));
    assert_non_null(strstr(line_of(lines, n, "flags"), "-ffp-contract=off"));
    assert_string_equal(line_of(lines, n, "rounding"), "nearest");
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    for (size_t i = 0; i < n; i++) {
        assert_null(strstr(lines[i].value, "hidden-value"));
        if (strlen(host) >= 8)
            assert_null(strstr(lines[i].value, host));
        for (size_t j = i + 1; j < n; j++)
            assert_string_not_equal(lines[i].name, lines[j].name);
    }
    free_lines(lines, n);
}

/* Denormals are on when a program of this build starts, and a change is seen. */
static void test_environment_sees_flush_to_zero(void **state)
{
    (void)state;
#if defined(__x86_64__)
    struct ds_text *lines;
    struct ds_error err;
    size_t n;
    unsigned before = _mm_getcsr();
    assert_int_equal(before & 0x8040u, 0);
    for (int on = 0; on < 2; on++) {
        _mm_setcsr(on ? before | 0x8040u : before);
        int rc = ds_cli_environment(&lines, &n, &err);
        _mm_setcsr(before);
        assert_int_equal(rc, 0);
        assert_string_equal(line_of(lines, n, "flush_to_zero"), on ? "on" : "off");
        assert_string_equal(line_of(lines, n, "denormals_are_zero"), on ? "on" : "off");
        free_lines(lines, n);
    }
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_progress_on_a_terminal_is_erased),
        cmocka_unit_test(test_progress_is_silent_elsewhere),
        cmocka_unit_test(test_progress_takes_odd_numbers),
        cmocka_unit_test(test_colour_and_columns_of_a_terminal),
        cmocka_unit_test(test_failed_buffer_is_an_error),
        cmocka_unit_test(test_an_error_needs_no_memory),
        cmocka_unit_test(test_environment_holds_what_decides_bits),
        cmocka_unit_test(test_environment_sees_flush_to_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
