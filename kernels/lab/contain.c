/* contain.c: see contain.h. */
#include "kernels/lab/contain.h"

#include "base/buf.h"
#include "base/child.h"
#include "base/mem.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { DIED = 77, POLL_MS = 100 };

/* Of the child. */
static struct ds_contained *box;
static const struct ds_arena *volatile watched;

void *ds_contain_map(size_t bytes, struct ds_error *err)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p != MAP_FAILED)
        return p;
    ds_fail(err, "cannot map %zu bytes of shared memory: %s", bytes, strerror(errno));
    return NULL;
}

void ds_contain_unmap(void *shared, size_t bytes)
{
    if (shared)
        munmap(shared, bytes);
}

int ds_contained_lacks_memory(const struct ds_contained *c)
{
    return c->fault.kind == DS_FAULT_NONE && c->rc != 0 && ds_error_is_memory(&c->error);
}

void ds_contain_watch(const struct ds_arena *a)
{
    watched = a;
}

/* ---- the child ----------------------------------------------------------------------------------- */

void ds_contain_die(const struct ds_fault *f)
{
    if (!box)
        return;
    box->fault = *f;
    _exit(DIED);
}

static int is_write(const void *context)
{
#if defined(__x86_64__)
    const ucontext_t *u = context;
    return (int)(u->uc_mcontext.gregs[REG_ERR] >> 1 & 1);
#else
    (void)context;
    return 0;
#endif
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    struct ds_fault *f = &box->fault;
    const int memory = number == SIGSEGV || number == SIGBUS;
    if (!memory || !watched || !ds_arena_locate(watched, info->si_addr, is_write(context), f)) {
        memset(f, 0, sizeof *f);
        f->kind = DS_FAULT_CRASH;
    }
    f->signal = number;
    _exit(DIED);
}

static void catch_signals(void)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS};
    static char stack[64 << 10];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction sa;
    sigaltstack(&alternate, NULL);
    memset(&sa, 0, sizeof sa);
    sa.sa_sigaction = on_signal;
    sa.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&sa.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        sigaction(numbers[i], &sa, NULL);
}

static void child(struct ds_contained *c, ds_contained_fn fn, void *arg, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it died before that */
        _exit(DIED);
    dup2(STDERR_FILENO, STDOUT_FILENO); /* results are the parent's */
    signal(SIGPIPE, SIG_DFL);
    box = c;
    catch_signals();
    c->rc = fn(arg, c, &c->error);
    if (c->rc == 0 && ds_buf_lost())
        c->rc = ds_fail(&c->error, "out of memory for a text");
    c->finished = 1;
    _exit(0);
}

/* ---- the parent ---------------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* Until the child has closed its end of the pipe, by whatever death, or stands still for too long: 1.
 */
static int wait_or_hang(const struct ds_contained *c, int fd, pid_t pid, double seconds)
{
    uint64_t seen = c->beats;
    double since = now();
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int rc = poll(&p, 1, POLL_MS);
        if (rc > 0)
            return 0;
        if ((rc < 0 && errno != EINTR) || (rc == 0 && ds_child_ended(pid)))
            return 0;
        if (c->beats != seen) {
            seen = c->beats;
            since = now();
        } else if (now() - since > seconds)
            return 1;
    }
}

static void how_it_ended(struct ds_contained *c, int hung, int status)
{
    if (c->fault.kind != DS_FAULT_NONE)
        return;
    if (hung)
        c->fault.kind = DS_FAULT_HANG;
    else if (WIFSIGNALED(status)) {
        c->fault.kind = DS_FAULT_CRASH;
        c->fault.signal = WTERMSIG(status);
    } else if (!c->finished)
        c->fault.kind = DS_FAULT_EXIT;
}

int ds_contain(struct ds_contained *c, ds_contained_fn fn, void *arg, double seconds,
               struct ds_error *err)
{
    int fd[2], status = 0;
    memset(&c->fault, 0, sizeof c->fault);
    c->finished = c->rc = 0;
    if (pipe(fd) != 0)
        return ds_fail(err, "cannot make a pipe: %s", strerror(errno));
    const pid_t parent = getpid(), pid = fork();
    if (pid < 0) {
        ds_fail(err, "cannot start a process: %s", strerror(errno));
        close(fd[0]);
        close(fd[1]);
        return -1;
    }
    if (pid == 0) {
        close(fd[0]);
        child(c, fn, arg, parent);
    }
    close(fd[1]);
    int hung = wait_or_hang(c, fd[0], pid, seconds);
    if (hung)
        kill(pid, SIGKILL);
    close(fd[0]);
    ds_child_wait(pid, &status);
    how_it_ended(c, hung, status);
    return 0;
}
