/* test_guard.c: the terminal is restored whatever ends the program, and what was written to stderr meanwhile comes out
 * after. A child has a pseudo terminal as its own; the test reads what arrives there. */
#include "tests/unit/testing.h"

#include "tui/term.h"
#include "tui/term_guard.h"

#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

static void say(int fd, const char *text)
{
    if (write(fd, text, strlen(text)) < 0)
        _exit(99);
}

/* ---- what the children do -------------------------------------------------------------------- */

static void begin(void)
{
    struct ds_error err;
    struct termios raw;
    if (tui_guard_open(STDOUT_FILENO, &err) != 0)
        _exit(98);
    tui_guard_restore("[restored]", 10);
    tcgetattr(STDOUT_FILENO, &raw);
    cfmakeraw(&raw);
    tcsetattr(STDOUT_FILENO, TCSANOW, &raw);
    say(STDOUT_FILENO, "[up]");
    say(STDERR_FILENO, "[from stderr]");
}

static void ends_well(void)
{
    begin();
    say(STDOUT_FILENO, "[screen]");
    tui_guard_close();
    say(STDERR_FILENO, "[after]");
    _exit(7);
}

static void is_told_to_end(void)
{
    begin();
    raise(SIGTERM);
    struct pollfd p = {.fd = tui_guard_fd(), .events = POLLIN};
    if (poll(&p, 1, 0) != 1 || tui_guard_take() != TUI_SIGNAL_END || tui_guard_take() != 0)
        _exit(97);
    say(STDOUT_FILENO, "[loop ends]");
    tui_guard_close(); /* gives the signal to who had it before */
    _exit(96);
}

static void is_told_twice(void)
{
    begin();
    raise(SIGTERM);
    raise(SIGINT);
    _exit(95);
}

static void faults(void)
{
    begin();
    volatile char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page[8] = 1;
    _exit(94);
}

static void aborts(void)
{
    begin();
    abort();
}

static volatile int bottomless = 1;

static int deeper(volatile char *above)
{
    volatile char here[4096];
    here[0] = above ? above[0] : 1;
    return (bottomless ? deeper(here) : 0) + here[0];
}

static void overflows(void)
{
    begin();
    _exit(deeper(NULL));
}

/* ---- and what arrives ------------------------------------------------------------------------ */

struct seen {
    char text[8192];
    int status;
    struct termios before, after;
};

static void run(void (*child)(void), struct seen *out)
{
    int master, slave;
    size_t n = 0;
    memset(out, 0, sizeof *out);
    assert_int_equal(openpty(&master, &slave, NULL, NULL, NULL), 0);
    tcgetattr(slave, &out->before);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        static const int mine[] = {SIGTERM, SIGINT, SIGSEGV, SIGABRT, SIGBUS};
        for (size_t i = 0; i < sizeof mine / sizeof mine[0]; i++)
            signal(mine[i], SIG_DFL);
        close(master);
        if (login_tty(dup(slave)) != 0)
            _exit(90);
        close(slave);
        child();
        _exit(91);
    }
    /* This end stays open until the child has ended, so that its settings can be asked for. */
    for (int ended = 0; !ended;) {
        struct pollfd p = {.fd = master, .events = POLLIN};
        ended = waitpid(pid, &out->status, WNOHANG) == pid;
        while (poll(&p, 1, ended ? 0 : 20) > 0 && n < sizeof out->text - 1) {
            ssize_t did = read(master, out->text + n, sizeof out->text - 1 - n);
            if (did <= 0)
                break;
            n += (size_t)did;
        }
    }
    tcgetattr(slave, &out->after);
    close(slave);
    close(master);
}

static void expect(const struct seen *s, const char *text)
{
    if (strcmp(s->text, text) != 0)
        fail_msg("got '%s', want '%s' (status %d)", s->text, text, s->status);
    assert_int_equal(s->before.c_lflag, s->after.c_lflag);
    assert_int_equal(s->before.c_iflag, s->after.c_iflag);
    assert_int_equal(s->before.c_oflag, s->after.c_oflag);
}

static void test_stderr_comes_after(void **state)
{
    (void)state;
    struct seen s;
    run(ends_well, &s);
    expect(&s, "[up][screen][from stderr][after]");
    assert_true(WIFEXITED(s.status) && WEXITSTATUS(s.status) == 7);
}

static void test_signal_reaches_loop(void **state)
{
    (void)state;
    struct seen s;
    run(is_told_to_end, &s);
    expect(&s, "[up][loop ends][from stderr]");
    assert_true(WIFSIGNALED(s.status) && WTERMSIG(s.status) == SIGTERM);
}

static void test_second_signal_ends_at_once(void **state)
{
    (void)state;
    struct seen s;
    run(is_told_twice, &s);
    expect(&s, "[up][restored][from stderr]");
    assert_true(WIFSIGNALED(s.status));
}

/* Sanitizers have a report of their own to add, and another way to end. */
static void expect_crash(void (*child)(void), int signal)
{
    struct seen s;
    run(child, &s);
    static const char begins[] = "[up][restored][from stderr]";
    s.text[sizeof begins - 1] = '\0';
    expect(&s, begins);
#ifdef __SANITIZE_ADDRESS__
    (void)signal;
    assert_true(WIFSIGNALED(s.status) || WEXITSTATUS(s.status) != 0);
#else
    assert_true(WIFSIGNALED(s.status) && WTERMSIG(s.status) == signal);
#endif
}

static void test_fault(void **state)
{
    (void)state;
    expect_crash(faults, SIGSEGV);
}

static void test_abort(void **state)
{
    (void)state;
    expect_crash(aborts, SIGABRT);
}

static void test_stack_overflow(void **state)
{
    (void)state;
    expect_crash(overflows, SIGSEGV);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stderr_comes_after),
        cmocka_unit_test(test_signal_reaches_loop),
        cmocka_unit_test(test_second_signal_ends_at_once),
        cmocka_unit_test(test_fault),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_stack_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
