/* device_open.c: see device_open.h. The library of the device cuda is opened with dlopen, so that no binary
 * here depends on CUDA; whether it finds a driver and a device is asked in a child process, since a
 * process that did cannot fork workers that use them. */
#define _GNU_SOURCE
#include "kernels/device_open.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/fp_control.h"
#include "base/names.h"
#include "kernels/device_cpu.h"
#include "kernels/registry.h"
#include "kernels/sim/mma.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIBRARY "libdriftscope_cuda.so"
enum { MOST_NUMBER = 63, PROBE_SECONDS = 60 };

static const char *asked_path;
static const struct ds_device_library *library;

/* ---- names ------------------------------------------------------------------------------------- */

static int unknown(const char *name, struct ds_error *err)
{
    static const char *const known[] = {"cpu", "sim", "cuda"};
    ds_fail(err, "unknown device '%.60s'", name);
    const int near = ds_nearest(name, known, sizeof known / sizeof known[0]);
    if (near >= 0)
        return ds_hint(err, "did you mean '%s'?", known[near]);
    return ds_hint(err,
                   "known: cpu; sim, or sim:80, sim:89, sim:90, sim:100, sim:120, with the tensor "
                   "cores of that architecture; cuda, cuda:0 to cuda:%d",
                   MOST_NUMBER);
}

int ds_device_parse_name(const char *name, int *kind, int *number, struct ds_error *err)
{
    *number = 0;
    for (*kind = 0; *kind < DS_DEVICE_KINDS; ++*kind)
        if (strcmp(name, ds_device_name(*kind)) == 0)
            return 0;
    /* Of a GPU the number is which, of sim whose tensor cores it has. */
    if (strncmp(name, "sim:", 4) == 0)
        *kind = DS_DEVICE_SIM;
    else if (strncmp(name, "cuda:", 5) == 0)
        *kind = DS_DEVICE_CUDA;
    else
        return unknown(name, err);
    const char *digits = strchr(name, ':') + 1;
    const size_t n = strspn(digits, "0123456789");
    if (n < 1 || n > 3 || digits[n] || (n > 1 && *digits == '0')) /* one name for each */
        return unknown(name, err);
    *number = atoi(digits);
    const int have =
        *kind == DS_DEVICE_SIM ? ds_sim_mma_of(*number) != NULL : n < 3 && *number <= MOST_NUMBER;
    return have ? 0 : unknown(name, err);
}

/* ---- the library --------------------------------------------------------------------------------- */

void ds_device_library_path(const char *path)
{
    asked_path = path;
}

/* The folder of the program, with a slash; "" where nobody tells. */
static void own_folder(char *out, size_t size)
{
    const ssize_t n = readlink("/proc/self/exe", out, size - 1);
    out[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(out, '/');
    if (slash)
        slash[1] = '\0';
}

static void *open_library(struct ds_error *err)
{
    char folder[3000], beside[3100];
    void *handle;
    if (asked_path) {
        snprintf(beside, sizeof beside, "%s%.3000s", strchr(asked_path, '/') ? "" : "./",
                 asked_path);
        if (!(handle = dlopen(beside, RTLD_NOW | RTLD_LOCAL)))
            ds_fail(err, "device cuda: %s", dlerror());
        return handle;
    }
    own_folder(folder, sizeof folder);
    snprintf(beside, sizeof beside, "%s" LIBRARY, folder);
    if (access(beside, F_OK) == 0) {
        if (!(handle = dlopen(beside, RTLD_NOW | RTLD_LOCAL)))
            ds_fail(err, "device cuda: %s", dlerror());
        return handle;
    }
    if ((handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL)))
        return handle;
    ds_fail(err, "device cuda: there is no " LIBRARY " in %s or where the system looks", folder);
    ds_hint(err, "`make cuda` builds it where nvcc is; --device sim runs the same kernels without");
    return NULL;
}

static const struct ds_device_library *check_library(void *handle, struct ds_error *err)
{
    /* ISO C has no cast from data to functions; POSIX says that this works. */
    ds_device_library_fn fn;
    void *symbol = dlsym(handle, DS_DEVICE_SYMBOL);
    memcpy(&fn, &symbol, sizeof fn);
    const struct ds_device_library *l = fn ? fn() : NULL;
    if (!l) {
        ds_fail(err, "device cuda: the library has no %s", DS_DEVICE_SYMBOL);
        return NULL;
    }
    if (l->abi != DS_DEVICE_ABI || l->kernel_abi != DS_KERNEL_ABI) {
        ds_fail(err, "device cuda: the library is of abi %u and %u, this driftscope has %u and %u",
                l->abi, l->kernel_abi, (unsigned)DS_DEVICE_ABI, (unsigned)DS_KERNEL_ABI);
        ds_hint(err, "build both from the same sources");
        return NULL;
    }
    return l;
}

const struct ds_device_library *ds_device_cuda_library(struct ds_error *err)
{
    if (library)
        return library;
    const uint32_t fp = ds_fp_control();
    void *handle = open_library(err);
    ds_fp_restore(fp);
    if (!handle)
        return NULL;
    if (!(library = check_library(handle, err)))
        dlclose(handle);
    return library;
}

/* ---- opening --------------------------------------------------------------------------------------- */

int ds_device_open(int kind, int number, struct ds_device **out, struct ds_error *err)
{
    char why[512] = "";
    *out = NULL;
    if (kind == DS_DEVICE_CPU) {
        *out = ds_cpu_device_new(err);
        return *out ? 0 : -1;
    }
    if (kind == DS_DEVICE_SIM) {
        *out = ds_sim_device_new(number);
        return *out ? 0 : ds_fail(err, "out of memory for the device sim");
    }
    const struct ds_device_library *l = ds_device_cuda_library(err);
    if (!l)
        return -1;
    *out = l->open(number, why, sizeof why);
    return *out ? 0 : ds_fail(err, "device cuda:%d: %s", number, *why ? why : "no reason given");
}

void ds_device_close(struct ds_device *d)
{
    if (d)
        d->close(d);
}

int ds_device_check(const struct ds_device *d, int rc, struct ds_error *err)
{
    return rc == 0 ? 0 : ds_fail(err, "%.500s", *d->why ? d->why : "the device gave no reason");
}

/* ---- is it there? ---------------------------------------------------------------------------------- */

/* What a child answers: what the device says of itself, else the reason. */
struct answer {
    int ok;
    struct ds_device_info info;
    char why[900];
};

static void probe_child(int kind, int number, int fd)
{
    struct ds_device *d;
    struct ds_error err;
    struct answer a;
    memset(&a, 0, sizeof a);
    a.ok = ds_device_open(kind, number, &d, &err) == 0 &&
           ds_device_check(d, d->info(d, &a.info), &err) == 0;
    if (!a.ok)
        snprintf(a.why, sizeof a.why, "%.890s", err.msg);
    (void)!write(fd, &a, sizeof a);
    _exit(!a.ok);
}

/* The child's answer; -1 with a reason of its own where there is none. */
static int probe_parent(pid_t pid, int fd, struct answer *a)
{
    char *why = (char *)a;
    const size_t size = sizeof *a;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    size_t n = 0;
    int status = 0, late = 0;
    const double end = ds_seconds(CLOCK_MONOTONIC) + PROBE_SECONDS;
    for (;;) {
        const double left = end - ds_seconds(CLOCK_MONOTONIC);
        const int ready = left > 0 ? poll(&p, 1, (int)(left * 1e3) + 1) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        late = ready == 0;
        const ssize_t got = ready > 0 && n < size ? read(fd, why + n, size - n) : 0;
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    a->why[sizeof a->why - 1] = '\0';
    if (late)
        (void)kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (late)
        snprintf(a->why, sizeof a->why, "the driver did not answer in %d seconds",
                 (int)PROBE_SECONDS);
    else if (n < size && WIFSIGNALED(status))
        snprintf(a->why, sizeof a->why, "opening it ended with signal %d", WTERMSIG(status));
    else if (n < size)
        snprintf(a->why, sizeof a->why, "opening it ended the process");
    return n == size && a->ok && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

static int ask(int kind, int number, struct answer *a, struct ds_error *err)
{
    int fds[2];
    memset(a, 0, sizeof *a);
    if (kind == DS_DEVICE_CUDA && !ds_device_cuda_library(err))
        return -1;
    if (pipe(fds) != 0)
        return ds_fail(err, "device %s:%d: no pipe: %s", ds_device_name(kind), number,
                       strerror(errno));
    const pid_t pid = fork();
    if (pid == 0) {
        close(fds[0]);
        probe_child(kind, number, fds[1]);
    }
    close(fds[1]);
    const int rc = pid < 0 ? -1 : probe_parent(pid, fds[0], a);
    close(fds[0]);
    if (pid < 0)
        return ds_fail(err, "device %s:%d: no process: %s", ds_device_name(kind), number,
                       strerror(errno));
    if (rc == 0)
        return 0;
    ds_fail(err, "%.900s", *a->why ? a->why : "the device cannot be opened");
    return ds_hint(err, "nvidia-smi says what the driver sees; --device sim runs the same kernels "
                        "without a GPU");
}

int ds_device_describe(int kind, int number, struct ds_device_info *out, struct ds_error *err)
{
    struct answer a;
    if (ask(kind, number, &a, err) != 0)
        return -1;
    *out = a.info;
    return 0;
}

int ds_device_probe(int kind, int number, struct ds_error *err)
{
    static uint64_t there; /* numbers that were found to be */
    struct answer a;
    if (kind != DS_DEVICE_CUDA || there >> number & 1)
        return 0;
    if (ask(kind, number, &a, err) != 0)
        return -1;
    there |= (uint64_t)1 << number;
    return 0;
}
