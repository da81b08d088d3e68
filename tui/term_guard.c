/* term_guard.c: see term_guard.h. All state is static: a signal handler has nothing else. */
#include "tui/term_guard.h"

#include "tui/term.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <termios.h>
#include <unistd.h>

enum { MOST_RESTORE = 256, MOST_STDERR = 1 << 20 };

static const int asked[] = {SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGWINCH, SIGTSTP, SIGCONT};
static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
enum { N_ASKED = sizeof asked / sizeof asked[0], N_FATAL = sizeof fatal / sizeof fatal[0] };

static struct {
    volatile sig_atomic_t open;
    int tty, pipe[2];
    int kept, was; /* stderr: where it goes meanwhile, and where it went; -1 */
    struct termios settings;
    int has_settings;
    char restore[MOST_RESTORE];
    size_t n_restore;
    volatile sig_atomic_t came[N_ASKED];
    volatile sig_atomic_t end; /* the signal that asked the program to end */
    struct sigaction old_asked[N_ASKED], old_fatal[N_FATAL];
} guard = {.tty = -1, .pipe = {-1, -1}, .kept = -1, .was = -1};

/* A stack that overflows leaves none for its handler. */
static char handler_stack[65536];

static int ends(int signal)
{
    return signal == SIGTERM || signal == SIGHUP || signal == SIGINT || signal == SIGQUIT;
}

static void write_all(int fd, const char *data, size_t n)
{
    while (n) {
        ssize_t did = write(fd, data, n);
        if (did < 0 && errno != EINTR)
            return;
        data += did > 0 ? did : 0;
        n -= did > 0 ? (size_t)did : 0;
    }
}

/* Safe in a signal handler. */
static void release_stderr(void)
{
    char block[4096];
    off_t at = 0;
    if (guard.kept < 0)
        return;
    dup2(guard.was, STDERR_FILENO);
    for (ssize_t n; at < MOST_STDERR && (n = pread(guard.kept, block, sizeof block, at)) > 0;
         at += n)
        write_all(STDERR_FILENO, block, (size_t)n);
    close(guard.kept);
    close(guard.was);
    guard.kept = guard.was = -1;
}

/* Safe in a signal handler. */
static void restore_now(void)
{
    write_all(guard.tty, guard.restore, guard.n_restore);
    if (guard.has_settings)
        tcsetattr(guard.tty, TCSANOW, &guard.settings);
    release_stderr();
}

static void on_asked(int signal)
{
    int saved = errno;
    if (ends(signal) && guard.end) { /* the loop does not get to it */
        restore_now();
        struct sigaction by_default = {.sa_handler = SIG_DFL};
        sigaction(signal, &by_default, NULL);
        raise(signal);
    }
    for (int i = 0; i < N_ASKED; i++)
        guard.came[i] = asked[i] == signal ? 1 : guard.came[i];
    if (ends(signal))
        guard.end = signal;
    write_all(guard.pipe[1], "", 1);
    errno = saved;
}

/* After it returns the fault happens again, under the handler that was there before. */
static void on_fatal(int signal, siginfo_t *info, void *context)
{
    (void)context;
    restore_now();
    for (int i = 0; i < N_FATAL; i++)
        sigaction(fatal[i], &guard.old_fatal[i], NULL);
    if (info->si_code <= 0)
        raise(signal);
}

void tui_guard_handlers(void)
{
    struct sigaction a = {.sa_handler = on_asked, .sa_flags = SA_RESTART},
                     f = {.sa_sigaction = on_fatal, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigfillset(&a.sa_mask);
    sigemptyset(&f.sa_mask);
    for (int i = 0; i < N_ASKED; i++)
        if (!(ends(asked[i]) && guard.old_asked[i].sa_handler == SIG_IGN))
            sigaction(asked[i], &a, NULL);
    for (int i = 0; i < N_FATAL; i++)
        sigaction(fatal[i], &f, NULL);
}

/* Only what would land on the screen: where stderr is a file it stays one. */
static void keep_stderr(void)
{
    if (!isatty(STDERR_FILENO))
        return;
    guard.kept = memfd_create("driftscope-stderr", MFD_CLOEXEC);
    guard.was = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    if (guard.kept < 0 || guard.was < 0 || dup2(guard.kept, STDERR_FILENO) < 0) {
        if (guard.kept >= 0)
            close(guard.kept);
        if (guard.was >= 0)
            close(guard.was);
        guard.kept = guard.was = -1;
    }
}

void tui_guard_restore(const char *bytes, size_t n)
{
    guard.n_restore = n < sizeof guard.restore ? n : 0;
    memcpy(guard.restore, bytes, guard.n_restore);
}

int tui_guard_open(int tty, struct ds_error *err)
{
    stack_t stack = {.ss_sp = handler_stack, .ss_size = sizeof handler_stack};
    if (pipe2(guard.pipe, O_CLOEXEC | O_NONBLOCK) != 0)
        return ds_fail(err, "cannot make a pipe: %s", strerror(errno));
    guard.tty = tty;
    guard.n_restore = 0;
    guard.has_settings = tcgetattr(tty, &guard.settings) == 0;
    guard.end = 0;
    for (int i = 0; i < N_ASKED; i++) {
        guard.came[i] = 0;
        sigaction(asked[i], NULL, &guard.old_asked[i]);
    }
    for (int i = 0; i < N_FATAL; i++)
        sigaction(fatal[i], NULL, &guard.old_fatal[i]);
    sigaltstack(&stack, NULL);
    keep_stderr();
    guard.open = 1;
    tui_guard_handlers();
    return 0;
}

int tui_guard_fd(void)
{
    return guard.pipe[0];
}

int tui_guard_take(void)
{
    char bytes[64];
    int what = 0;
    while (guard.open && read(guard.pipe[0], bytes, sizeof bytes) > 0)
        continue;
    for (int i = 0; i < N_ASKED; i++) {
        if (!guard.came[i])
            continue;
        guard.came[i] = 0;
        what |= ends(asked[i])         ? TUI_SIGNAL_END
                : asked[i] == SIGTSTP  ? TUI_SIGNAL_STOP
                : asked[i] == SIGWINCH ? TUI_SIGNAL_SIZE
                                       : TUI_SIGNAL_RESUMED;
    }
    return what;
}

void tui_guard_stop(void)
{
    struct sigaction by_default = {.sa_handler = SIG_DFL};
    for (int i = 0; i < N_ASKED; i++)
        if (asked[i] == SIGTSTP && guard.old_asked[i].sa_handler == SIG_IGN)
            return; /* whoever started this could not make it run on */
    sigaction(SIGTSTP, &by_default, NULL);
    /* The whole job stops, as it does when the terminal sends the signal. */
    kill(0, SIGTSTP);
    tui_guard_handlers();
}

void tui_guard_close(void)
{
    if (!guard.open)
        return;
    guard.open = 0;
    for (int i = 0; i < N_ASKED; i++)
        sigaction(asked[i], &guard.old_asked[i], NULL);
    for (int i = 0; i < N_FATAL; i++)
        sigaction(fatal[i], &guard.old_fatal[i], NULL);
    if (guard.has_settings)
        tcsetattr(guard.tty, TCSADRAIN, &guard.settings);
    release_stderr();
    close(guard.pipe[0]);
    close(guard.pipe[1]);
    guard.pipe[0] = guard.pipe[1] = guard.tty = -1;
    if (guard.end)
        raise(guard.end);
}
