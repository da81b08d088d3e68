/* plugin.h: variants from a shared object (.so) that exports ds_plugin_kernels. Its path comes from
 * the command line, never from a record. A plugin is trusted code; what loading protects against is
 * mistakes, which must end in a clear text. */
#ifndef DS_PLUGIN_H
#define DS_PLUGIN_H

#include "base/error.h"
#include "kernels/driftscope_kernel.h"

struct ds_plugin {
    const char *path; /* as given */
    const char *file; /* its last part */
    uint64_t digest;  /* XXH3-64 of the file's bytes */
    const struct ds_kernel *const *kernels;
    size_t n_kernels;
    /* The floating-point control word of the thread, before the load and as the load left it; it
     * was put back. They differ for a library built with fast-math. */
    uint32_t fp_before, fp_after;
};

/* Loads a plugin for the rest of the process and adds its variants to the registry: first in a
 * child process that may take so many seconds, so that a crash or a hang in the plugin's
 * constructors, in ds_plugin_kernels or in a variant's `available` is an error here, then in this
 * one (dlopen with RTLD_NOW, RTLD_LOCAL). After an error some variants may have been added already:
 * the caller gives up. Not thread-safe: call before a thread is started and a worker is forked. */
int ds_plugin_load(const char *path, int seconds, struct ds_error *err);

/* Those loaded, in the order given. */
size_t ds_plugin_count(void);
const struct ds_plugin *ds_plugin_at(size_t i);

/* The plugin that a variant comes from; NULL for a built-in one. */
const struct ds_plugin *ds_plugin_of(const struct ds_kernel *k);
/* "matmul/openblas", or "matmul/mine (plugin mine.so)"; for messages. */
void ds_kernel_full_name(const struct ds_kernel *k, char *out, size_t size);

#endif
