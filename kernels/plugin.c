/* plugin.c: see plugin.h. Owns the order in which a plugin is looked at, tried and loaded; must not
 * know what its kernels compute. */
#include "kernels/plugin.h"

#include "base/clock.h"
#include "base/fp_control.h"
#include "base/mem.h"
#include "kernels/registry.h"

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

/* An array of kernels longer than this has lost its NULL. */
enum { MOST_KERNELS = 1000 };

static struct ds_plugin *plugins;
static size_t n_plugins, cap_plugins;

size_t ds_plugin_count(void)
{
    return n_plugins;
}

const struct ds_plugin *ds_plugin_at(size_t i)
{
    return i < n_plugins ? &plugins[i] : NULL;
}

const struct ds_plugin *ds_plugin_of(const struct ds_kernel *k)
{
    for (size_t p = 0; p < n_plugins; p++)
        for (size_t i = 0; i < plugins[p].n_kernels; i++)
            if (plugins[p].kernels[i] == k)
                return &plugins[p];
    return NULL;
}

void ds_kernel_full_name(const struct ds_kernel *k, char *out, size_t size)
{
    const struct ds_plugin *p = ds_plugin_of(k);
    snprintf(out, size, "%s/%s%s%.80s%s", ds_op_name(k->op), k->name, p ? " (plugin " : "",
             p ? p->file : "", p ? ")" : "");
}

/* ---- the file -------------------------------------------------------------------------------- */

static int check_elf(const char *path, const unsigned char *bytes, size_t n, struct ds_error *err)
{
    Elf64_Ehdr h;
    if (n < sizeof h || memcmp(bytes, ELFMAG, SELFMAG) != 0) {
        ds_fail(err, "plugin %s: not a shared object (it does not begin as an ELF file)", path);
        return ds_hint(err, "build one with: cc -shared -fPIC -O2 -o my.so my.c");
    }
    memcpy(&h, bytes, sizeof h);
    if (h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_ident[EI_DATA] != ELFDATA2LSB ||
        h.e_machine != EM_X86_64)
        return ds_fail(err, "plugin %s: built for another processor than this one", path);
    if (h.e_type != ET_DYN) {
        ds_fail(err, "plugin %s: an ELF file, but not a shared object", path);
        return ds_hint(err, "link it with -shared");
    }
    return 0;
}

static int read_open_file(const char *path, int fd, uint64_t *digest, struct ds_error *err)
{
    unsigned char bytes[1 << 14];
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return ds_fail(err, "plugin %s: not a file", path);
    XXH3_state_t *state = XXH3_createState();
    if (!state || XXH3_64bits_reset(state) != XXH_OK) {
        XXH3_freeState(state);
        return ds_fail(err, "plugin %s: out of memory", path);
    }
    int rc = 0, first = 1;
    for (ssize_t n = 1; rc == 0 && n > 0;) {
        n = read(fd, bytes, sizeof bytes);
        if (n < 0)
            rc = ds_fail(err, "plugin %s: cannot be read: %s", path, strerror(errno));
        else if (first)
            rc = check_elf(path, bytes, (size_t)n, err);
        if (rc == 0 && n > 0)
            XXH3_64bits_update(state, bytes, (size_t)n);
        first = 0;
    }
    *digest = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return rc;
}

/* What the file is, before anything in it can run, and the digest of its bytes. */
static int read_file(const char *path, uint64_t *digest, struct ds_error *err)
{
    /* Opening a pipe that nobody writes to would wait. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return ds_fail(err, "plugin %s: cannot be opened: %s", path, strerror(errno));
    int rc = read_open_file(path, fd, digest, err);
    close(fd);
    return rc;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* Without a slash dlopen would search the library path instead of taking the file. malloc'ed. */
static char *name_to_open(const char *path, struct ds_error *err)
{
    size_t n = strlen(path) + 3;
    char *name = ds_calloc(n, 1, "a plugin's name", err);
    if (name)
        snprintf(name, n, "%s%s", strchr(path, '/') ? "" : "./", path);
    return name;
}

static int open_plugin(const char *path, const struct ds_kernel *const **kernels,
                       struct ds_error *err)
{
    char *name = name_to_open(path, err);
    if (!name)
        return -1;
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    free(name);
    if (!handle) {
        const char *why = dlerror();
        return ds_fail(err, "plugin %s: cannot be loaded: %s", path, why ? why : "no reason given");
    }
    ds_plugin_kernels_fn ask;
    void *symbol = dlsym(handle, DS_PLUGIN_SYMBOL);
    if (!symbol) {
        ds_fail(err, "plugin %s: has no function %s", path, DS_PLUGIN_SYMBOL);
        return ds_hint(err, "include driftscope_kernel.h, which declares it, and define it; see "
                            "examples/plugin");
    }
    memcpy(&ask, &symbol, sizeof ask);
    *kernels = ask(DS_KERNEL_ABI);
    if (!*kernels) {
        ds_fail(err, "plugin %s: has no kernels for abi %d, which this driftscope has", path,
                DS_KERNEL_ABI);
        return ds_hint(err, "build it against the driftscope_kernel.h of this version");
    }
    return 0;
}

static int check_abi(const char *path, const struct ds_kernel *k, size_t i, struct ds_error *err)
{
    if (k->abi == DS_KERNEL_ABI)
        return 0;
    ds_fail(err, "plugin %s: kernel %zu is of abi %u, this driftscope has abi %d", path, i,
            (unsigned)k->abi, DS_KERNEL_ABI);
    return ds_hint(err, "build it against the driftscope_kernel.h of this version");
}

/* ---- in a child first ------------------------------------------------------------------------ */

/* Everything of a plugin that runs before its first launch. Errors are told by the real load. */
static void rehearse(const char *path)
{
    const struct ds_kernel *const *k;
    char why[256];
    if (open_plugin(path, &k, NULL) != 0)
        return;
    for (size_t i = 0; k[i] && i < MOST_KERNELS; i++) {
        if (check_abi(path, k[i], i, NULL) != 0)
            return;
        if (k[i]->available)
            k[i]->available(why, sizeof why);
    }
}

static void child(const char *path, int fd)
{
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (nowhere >= 0)
        dup2(nowhere, STDOUT_FILENO); /* else what it prints would be there twice */
    rehearse(path);
    char done = 1;
    if (write(fd, &done, 1) != 1)
        _exit(1);
    _exit(0);
}

/* 1 when the child came to its end, 0 when it went away before, -1 when the time is over. */
static int wait_for_child(int fd, int seconds)
{
    const double deadline = ds_seconds(CLOCK_MONOTONIC) + seconds;
    for (;;) {
        double left = deadline - ds_seconds(CLOCK_MONOTONIC);
        struct pollfd p = {.fd = fd, .events = POLLIN};
        char done;
        if (!(left > 0))
            return -1;
        if (poll(&p, 1, (int)(left * 1e3) + 1) <= 0)
            continue;
        ssize_t n = read(fd, &done, 1);
        if (n >= 0 || errno != EINTR)
            return n == 1;
    }
}

static int try_in_child(const char *path, int seconds, struct ds_error *err)
{
    int fds[2], status = 0;
    if (pipe2(fds, O_CLOEXEC) != 0)
        return ds_fail(err, "plugin %s: cannot make a pipe: %s", path, strerror(errno));
    pid_t pid = fork();
    if (pid == 0)
        child(path, fds[1]);
    close(fds[1]);
    if (pid < 0) {
        close(fds[0]);
        return ds_fail(err, "plugin %s: cannot fork: %s", path, strerror(errno));
    }
    int end = wait_for_child(fds[0], seconds);
    close(fds[0]);
    if (end != 0)
        kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (end > 0)
        return 0;
    if (end < 0) {
        ds_fail(err, "plugin %s: was not loaded within %d s", path, seconds);
        return ds_hint(err, "a constructor or %s does not return; --plugin-timeout gives it longer",
                       DS_PLUGIN_SYMBOL);
    }
    if (WIFSIGNALED(status))
        return ds_fail(err, "plugin %s: ended by signal %d (%s) while it was being loaded", path,
                       WTERMSIG(status), strsignal(WTERMSIG(status)));
    return ds_fail(err, "plugin %s: ended the process with status %d while it was being loaded",
                   path, WEXITSTATUS(status));
}

/* ---- adding ---------------------------------------------------------------------------------- */

static int clash(const struct ds_plugin *p, const struct ds_kernel *k,
                 const struct ds_kernel *other, struct ds_error *err)
{
    const struct ds_plugin *from = ds_plugin_of(other);
    if (from == p)
        return ds_fail(err, "plugin %s: has two variants of the name %s/%s", p->path,
                       ds_op_name(k->op), k->name);
    ds_fail(err, "plugin %s: %s/%s is a variant of %s%s already", p->path, ds_op_name(k->op),
            k->name, from ? "plugin " : "driftscope", from ? from->path : "");
    return ds_hint(err, "give it another name; driftscope kernels lists those taken");
}

static int add_kernels(struct ds_plugin *p, struct ds_error *err)
{
    if (!p->kernels[0])
        return ds_fail(err, "plugin %s: brings no kernel", p->path);
    for (size_t i = 0; p->kernels[i]; i++) {
        const struct ds_kernel *k = p->kernels[i];
        if (i == MOST_KERNELS)
            return ds_fail(err, "plugin %s: more than %d kernels: the NULL at the end is missing",
                           p->path, MOST_KERNELS);
        if (check_abi(p->path, k, i, err) != 0)
            return -1;
        const struct ds_kernel *other = k->name ? ds_kernel_find(k->op, k->name) : NULL;
        if (other)
            return clash(p, k, other, err);
        if (ds_kernel_add(k, err) != 0)
            return ds_prefix(err, "plugin %s", p->path);
        p->n_kernels++;
    }
    return 0;
}

int ds_plugin_load(const char *path, int seconds, struct ds_error *err)
{
    const char *slash = strrchr(path, '/');
    struct ds_plugin p = {.file = slash ? slash + 1 : path};
    if (read_file(path, &p.digest, err) != 0 || try_in_child(path, seconds, err) != 0)
        return -1;
    if (ds_grow(&plugins, &cap_plugins, n_plugins + 1, sizeof *plugins, "plugins", err) != 0)
        return -1;
    p.fp_before = ds_fp_control();
    int rc = open_plugin(path, &p.kernels, err);
    p.fp_after = ds_fp_control();
    ds_fp_restore(p.fp_before);
    if (rc != 0)
        return -1;
    p.path = path;
    plugins[n_plugins] = p;
    return add_kernels(&plugins[n_plugins++], err);
}
