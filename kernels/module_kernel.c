/* module_kernel.c: see module_kernel.h. A launch function is given nothing but arguments, so each module has one of
 * its own. */
#include "kernels/module_kernel.h"

#include "base/mem.h"
#include "kernels/module.h"
#include "kernels/registry.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { MOST_BYTES = 256 << 20 };

static struct module {
    struct ds_module m;
    struct ds_kernel kernel;
    const struct ds_kernel *list[2];
    const struct ds_device_library *library;
    char *image; /* with a zero behind it, as PTX needs */
    void *loaded;
    pid_t pid; /* who loaded it */
} modules[DS_MODULE_MOST];
static int n_modules;

/* ---- launching ------------------------------------------------------------------------------------- */

/* How the activations of an op's struct are stored. */
static int stored_of(int op, const void *args)
{
#define AT(OP, STRUCT) [DS_OP_##OP] = offsetof(struct ds_##STRUCT##_args, stored)
    static const size_t at[DS_OP_COUNT] = {
        AT(EMBED, embed),      AT(RMSNORM, rmsnorm),   AT(MATMUL, matmul),
        AT(ROPE, rope),        AT(CACHE, cache),       AT(ATTENTION, attention),
        AT(SOFTMAX, softmax),  AT(SILU_MUL, silu_mul), AT(ADD, add),
        AT(ROUTER, router),    AT(COMBINE, combine),   AT(ALLREDUCE, allreduce),
        AT(TRANSFER, transfer)};
#undef AT
    int32_t stored = DS_ELEMENT_F32;
    if (at[op])
        memcpy(&stored, (const char *)args + at[op], sizeof stored);
    return stored;
}

static int load(struct module *x, char *why, size_t why_size)
{
    if (x->loaded && x->pid == getpid())
        return 0;
    x->pid = getpid();
    return x->library->module_load(x->image, x->m.entry, x->m.shared_bytes, &x->loaded, why,
                                   why_size);
}

static int launch(int i, const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    struct module *x = &modules[i];
    union ds_module_slot slot[DS_MODULE_MOST_ARGUMENTS];
    void *argument[DS_MODULE_MOST_ARGUMENTS];
    uint32_t grid[3];
    struct ds_error err;
    const int stored = stored_of(x->m.op, args);
    if (stored < 0 || stored > 31 || !(x->m.stored >> stored & 1)) {
        snprintf(why, why_size, "its description says nothing of activations of type %d", stored);
        return -1;
    }
    if (ds_module_launch(&x->m, args, grid, slot, &err) != 0) {
        snprintf(why, why_size, "%.200s", err.msg);
        return -1;
    }
    for (int a = 0; a < x->m.n_arguments; a++)
        argument[a] = &slot[a];
    if (load(x, why, why_size) != 0)
        return -1;
    return x->library->module_launch(x->loaded, grid, x->m.block, x->m.shared_bytes, exec->stream,
                                     argument, why, why_size);
}

#define LAUNCH(I)                                                                                  \
    static int launch_##I(const void *args, const struct ds_exec *exec, char *why, size_t size)    \
    {                                                                                              \
        return launch(I, args, exec, why, size);                                                   \
    }
LAUNCH(0)
LAUNCH(1)
LAUNCH(2)
LAUNCH(3)
LAUNCH(4)
LAUNCH(5)
LAUNCH(6)
LAUNCH(7)
static int (*const launches[DS_MODULE_MOST])(const void *, const struct ds_exec *, char *,
                                             size_t) = {launch_0, launch_1, launch_2, launch_3,
                                                        launch_4, launch_5, launch_6, launch_7};

/* ---- reading ------------------------------------------------------------------------------------------ */

static char *read_image(const char *path, size_t *bytes, struct ds_error *err)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char *image = NULL;
    *bytes = 0;
    if (fd < 0) {
        ds_fail(err, "module %s: cannot be opened: %s", path, strerror(errno));
        return NULL;
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size < 1 || st.st_size > MOST_BYTES)
        ds_fail(err, "module %s: no file of 1 to %d bytes", path, (int)MOST_BYTES);
    else
        image = ds_calloc((size_t)st.st_size + 1, 1, "a module", err);
    ssize_t got = image ? 1 : 0;
    while (got > 0 && *bytes < (size_t)st.st_size) {
        got = read(fd, image + *bytes, (size_t)st.st_size - *bytes);
        *bytes += got > 0 ? (size_t)got : 0;
    }
    close(fd);
    if (image && *bytes < (size_t)st.st_size) {
        ds_fail(err, "module %s: cannot be read", path);
        free(image);
        image = NULL;
    }
    return image;
}

int ds_module_kernel_new(const char *path, const struct ds_device_library *library,
                         const struct ds_kernel *const **out, uint64_t *digest,
                         struct ds_error *err)
{
    struct module x = {.library = library};
    size_t bytes;
    if (n_modules == DS_MODULE_MOST)
        return ds_fail(err, "module %s: more than %d modules", path, DS_MODULE_MOST);
    if (ds_module_read(path, &x.m, err) != 0 || !(x.image = read_image(path, &bytes, err)))
        return -1;
    *digest = XXH3_64bits(x.image, bytes);
    struct module *at = &modules[n_modules];
    *at = x;
    at->kernel = (struct ds_kernel){
        .abi = DS_KERNEL_ABI,
        .op = at->m.op,
        .name = at->m.variant,
        .summary = at->m.summary,
        .claims = at->m.claims,
        .features = at->m.stored & ~(1u << DS_ELEMENT_F32) ? (uint32_t)DS_FEATURE_STORED : 0,
        .launch = launches[n_modules],
        .device = DS_DEVICE_CUDA};
    at->list[0] = &at->kernel;
    *out = at->list;
    n_modules++;
    return 0;
}
