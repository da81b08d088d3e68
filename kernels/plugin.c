/* plugin.c: see plugin.h. Owns the order in which a plugin is looked at, tried and loaded; must not
 * know what its kernels compute. */
#include "kernels/plugin.h"

#include "base/fp_control.h"
#include "base/mem.h"
#include "kernels/device_open.h"
#include "kernels/module.h"
#include "kernels/module_kernel.h"
#include "kernels/registry.h"
#include "kernels/shared_object.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char WHAT[] = "plugin";

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

/* ---- loading --------------------------------------------------------------------------------- */

static int open_plugin(const char *path, const struct ds_kernel *const **kernels,
                       struct ds_error *err)
{
    void *handle = ds_so_open(WHAT, path, err);
    if (!handle)
        return -1;
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
static void rehearse(void *arg)
{
    const char *path = arg;
    const struct ds_kernel *const *k;
    char why[256];
    if (open_plugin(path, &k, NULL) != 0)
        return;
    for (size_t i = 0; k[i] && i < MOST_KERNELS; i++) {
        if (check_abi(path, k[i], i, NULL) != 0)
            return;
        ds_kernel_available(k[i], why, sizeof why);
    }
}

/* ---- what a load may not change -------------------------------------------------------------- */

/* Signals that the program itself handles, and what its files, its numbers and its children hang on. A
 * plugin's initialisation is code that knows nothing of them; runtimes that it brings along set such things
 * for a process that they think is theirs. */
static const int kept_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ, SIGCHLD, SIGALRM};
enum { KEPT_SIGNALS = sizeof kept_signals / sizeof kept_signals[0] };

struct process_state {
    struct sigaction action[KEPT_SIGNALS];
    sigset_t mask;
    mode_t umask;
    int folder;
    char *locale;
};

static void save(struct process_state *s)
{
    for (int i = 0; i < KEPT_SIGNALS; i++)
        sigaction(kept_signals[i], NULL, &s->action[i]);
    pthread_sigmask(SIG_SETMASK, NULL, &s->mask);
    s->umask = umask(0);
    umask(s->umask);
    s->folder = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    const char *locale = setlocale(LC_ALL, NULL);
    s->locale = locale ? strdup(locale) : NULL;
}

static void put_back(struct process_state *s)
{
    for (int i = 0; i < KEPT_SIGNALS; i++)
        sigaction(kept_signals[i], &s->action[i], NULL);
    pthread_sigmask(SIG_SETMASK, &s->mask, NULL);
    umask(s->umask);
    if (s->folder >= 0) {
        int ignored = fchdir(s->folder);
        (void)ignored;
        close(s->folder);
    }
    if (s->locale)
        setlocale(LC_ALL, s->locale);
    free(s->locale);
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
        const struct ds_kernel *other =
            k->name ? ds_kernel_find_on(k->device, k->op, k->name) : NULL;
        if (other)
            return clash(p, k, other, err);
        if (ds_kernel_add(k, err) != 0)
            return ds_prefix(err, "plugin %s", p->path);
        p->n_kernels++;
    }
    return 0;
}

/* A cubin or PTX: what it is said to be is checked first, so that a mistake is told before a GPU is needed. */
static int load_module(const char *path, struct ds_plugin *p, struct ds_error *err)
{
    struct ds_module m;
    struct ds_error absent;
    if (ds_module_read(path, &m, err) != 0)
        return -1;
    const struct ds_device_library *l = ds_device_cuda_library(&absent);
    if (l && l->module_load && l->module_launch)
        return ds_module_kernel_new(path, l, &p->kernels, &p->digest, err);
    ds_fail(err, "plugin %s: %s/%s: cubin loading needs the CUDA library%s%.200s", path,
            ds_op_name(m.op), m.variant, l ? "" : ": ", l ? "" : absent.msg);
    return ds_hint(err,
                   "a .cu file built as a shared object runs on sim, too: see examples/device");
}

/* Its variants from here on; the list of plugins has room. */
static int take(const char *path, const struct ds_plugin *p, struct ds_error *err)
{
    plugins[n_plugins] = *p;
    plugins[n_plugins].path = path;
    return add_kernels(&plugins[n_plugins++], err);
}

int ds_plugin_load(const char *path, int seconds, struct ds_error *err)
{
    const char *slash = strrchr(path, '/');
    struct ds_plugin p = {.file = slash ? slash + 1 : path};
    if (ds_module_is_named(path))
        return load_module(path, &p, err) != 0 || ds_grow(&plugins, &cap_plugins, n_plugins + 1,
                                                          sizeof *plugins, "plugins", err) != 0
                   ? -1
                   : take(path, &p, err);
    if (ds_so_read(WHAT, path, &p.digest, err) != 0 ||
        ds_so_try(WHAT, path, seconds, rehearse, (void *)(uintptr_t)path, err) != 0)
        return -1;
    if (ds_grow(&plugins, &cap_plugins, n_plugins + 1, sizeof *plugins, "plugins", err) != 0)
        return -1;
    struct process_state state;
    save(&state);
    p.fp_before = ds_fp_control();
    int rc = open_plugin(path, &p.kernels, err);
    p.fp_after = ds_fp_control();
    ds_fp_restore(p.fp_before);
    put_back(&state);
    if (rc != 0)
        return -1;
    return take(path, &p, err);
}
