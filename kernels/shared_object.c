/* shared_object.c: see shared_object.h. Knows no symbol of what it opens. */
#include "kernels/shared_object.h"

#include "base/child.h"
#include "base/clock.h"
#include "base/mem.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

/* ---- the file -------------------------------------------------------------------------------- */

static int check_elf(const char *what, const char *path, const unsigned char *bytes, size_t n,
                     struct ds_error *err)
{
    Elf64_Ehdr h;
    if (n < sizeof h || memcmp(bytes, ELFMAG, SELFMAG) != 0) {
        ds_fail(err, "%s %s: not a shared object (it does not begin as an ELF file)", what, path);
        return ds_hint(err, "cc -shared -fPIC -O2 -o my.so my.c builds one");
    }
    memcpy(&h, bytes, sizeof h);
    if (h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_ident[EI_DATA] != ELFDATA2LSB ||
        h.e_machine != EM_X86_64)
        return ds_fail(err, "%s %s: built for another processor than this one", what, path);
    if (h.e_type == ET_DYN)
        return 0;
    ds_fail(err, "%s %s: an ELF file, but not a shared object", what, path);
    return ds_hint(err, "link it with -shared");
}

static int read_open_file(const char *what, const char *path, int fd, uint64_t *digest,
                          struct ds_error *err)
{
    unsigned char bytes[1 << 14];
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return ds_fail(err, "%s %s: not a file", what, path);
    XXH3_state_t *state = XXH3_createState();
    if (!state || XXH3_64bits_reset(state) != XXH_OK) {
        XXH3_freeState(state);
        return ds_fail(err, "%s %s: out of memory", what, path);
    }
    int rc = 0, first = 1;
    for (ssize_t n = 1; rc == 0 && n > 0; first = 0) {
        n = read(fd, bytes, sizeof bytes);
        if (n < 0)
            rc = ds_fail(err, "%s %s: cannot be read: %s", what, path, strerror(errno));
        else if (first)
            rc = check_elf(what, path, bytes, (size_t)n, err);
        if (rc == 0 && n > 0)
            XXH3_64bits_update(state, bytes, (size_t)n);
    }
    *digest = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return rc;
}

int ds_so_read(const char *what, const char *path, uint64_t *digest, struct ds_error *err)
{
    /* Opening a pipe that nobody writes to would wait. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return ds_fail(err, "%s %s: cannot be opened: %s", what, path, strerror(errno));
    int rc = read_open_file(what, path, fd, digest, err);
    close(fd);
    return rc;
}

void *ds_so_open(const char *what, const char *path, struct ds_error *err)
{
    /* Without a slash dlopen would search the library path instead of taking the file. */
    size_t n = strlen(path) + 3;
    char *name = ds_calloc(n, 1, "a file name", err);
    if (!name)
        return NULL;
    snprintf(name, n, "%s%s", strchr(path, '/') ? "" : "./", path);
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    free(name);
    if (!handle) {
        const char *why = dlerror();
        ds_fail(err, "%s %s: cannot be loaded: %s", what, path, why ? why : "no reason given");
    }
    return handle;
}

/* ---- in a child first ------------------------------------------------------------------------ */

static void child(void (*fn)(void *arg), void *arg, int fd, pid_t parent)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        signal(ends[i], SIG_DFL); /* else it could end as if the program did */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it died before that */
        _exit(1);
    if (nowhere >= 0)
        dup2(nowhere, STDOUT_FILENO); /* else what it prints would be there twice */
    fn(arg);
    char done = 1;
    _exit(write(fd, &done, 1) == 1 ? 0 : 1);
}

/* 1 when the child came to its end, 0 when it went away before, -1 when the time is over. */
static int wait_for_child(int fd, pid_t pid, int seconds)
{
    const double deadline = ds_seconds(CLOCK_MONOTONIC) + seconds;
    for (;;) {
        double left = deadline - ds_seconds(CLOCK_MONOTONIC);
        struct pollfd p = {.fd = fd, .events = POLLIN};
        char done;
        if (!(left > 0))
            return -1;
        if (poll(&p, 1, left < 0.1 ? (int)(left * 1e3) + 1 : 100) <= 0) {
            if (!ds_child_ended(pid) || poll(&p, 1, 0) > 0)
                continue;
            return 0; /* what it left behind holds the pipe */
        }
        ssize_t n = read(fd, &done, 1);
        if (n >= 0 || errno != EINTR)
            return n == 1;
    }
}

int ds_so_try(const char *what, const char *path, int seconds, void (*fn)(void *arg), void *arg,
              struct ds_error *err)
{
    int fds[2], status = 0;
    if (pipe2(fds, O_CLOEXEC) != 0)
        return ds_fail(err, "%s %s: cannot make a pipe: %s", what, path, strerror(errno));
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        child(fn, arg, fds[1], parent);
    close(fds[1]);
    if (pid < 0) {
        close(fds[0]);
        return ds_fail(err, "%s %s: cannot fork: %s", what, path, strerror(errno));
    }
    int end = wait_for_child(fds[0], pid, seconds);
    close(fds[0]);
    if (end != 0)
        kill(pid, SIGKILL);
    ds_child_wait(pid, &status);
    if (end > 0)
        return 0;
    if (end < 0) {
        ds_fail(err, "%s %s: was not loaded within %d s", what, path, seconds);
        return ds_hint(err, "its initialisation does not return; --plugin-timeout gives it longer");
    }
    if (WIFSIGNALED(status))
        return ds_fail(err, "%s %s: ended by signal %d (%s) while it was being loaded", what, path,
                       WTERMSIG(status), strsignal(WTERMSIG(status)));
    return ds_fail(err, "%s %s: ended the process with status %d while it was being loaded", what,
                   path, WEXITSTATUS(status));
}
