/* call.c: see call.h. Owns the words for what a kernel was doing; must not know who watches. */
#include "kernels/call.h"

#include "base/fp_control.h"
#include "kernels/plugin.h"
#include "kernels/registry.h"

#include <stdio.h>
#include <stdlib.h>

static struct ds_calling own, *calling = &own;

void ds_calling_share(struct ds_calling *where)
{
    calling = where;
}

static void begin(const struct ds_kernel *k, int what)
{
    atomic_store_explicit(&calling->kernel, k, memory_order_relaxed);
    atomic_store_explicit(&calling->what, what, memory_order_relaxed);
    atomic_store_explicit(&calling->calls,
                          atomic_load_explicit(&calling->calls, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

static void end(void)
{
    atomic_store_explicit(&calling->what, DS_CALLING_NOTHING, memory_order_relaxed);
}

static int is_known(const struct ds_kernel *k)
{
    if (ds_plugin_of(k))
        return 1;
    for (int device = 0; device < DS_DEVICE_KINDS; device++)
        for (size_t i = 0; i < ds_kernel_count_on(device); i++)
            if (ds_kernel_at_on(device, i) == k)
                return 1;
    return 0;
}

void ds_calling_text(const struct ds_calling *c, char *out, size_t size)
{
    static const char *const words[] = {
        [DS_CALLING_PREPARE] = "prepared weights",
        [DS_CALLING_SCRATCH] = "was asked for its scratch memory",
        [DS_CALLING_LAUNCH] = "was launched",
        [DS_CALLING_DESCRIBE] = "was asked for its launch choice",
    };
    const struct ds_kernel *k = atomic_load(&c->kernel);
    const int what = atomic_load(&c->what);
    char name[160];
    out[0] = '\0';
    if (what < DS_CALLING_PREPARE || what > DS_CALLING_DESCRIBE || !is_known(k))
        return;
    ds_kernel_full_name(k, name, sizeof name);
    snprintf(out, size, " while %s %s", name, words[what]);
}

/* 1, with the reason, when the thread's control word was another afterwards. */
static int changed(uint32_t before, const char *what, char *why, size_t why_size)
{
    if (!ds_fp_restore(before))
        return 0;
    snprintf(why, why_size, "%s changed the floating-point control word", what);
    return 1;
}

int ds_call_prepare(const struct ds_kernel *k, const struct ds_weight_view *w, void **prepared,
                    size_t *bytes, char *why, size_t why_size)
{
    *prepared = NULL;
    *bytes = 0;
    if (!k->prepare)
        return 0;
    const uint32_t fp = ds_fp_control();
    begin(k, DS_CALLING_PREPARE);
    int rc = k->prepare(w, prepared, bytes, why, why_size - 1);
    end();
    why[why_size - 1] = '\0';
    if (changed(fp, "prepare", why, why_size) && rc == 0) {
        free(*prepared);
        rc = -1;
    }
    if (rc == 0 && *bytes && !*prepared) {
        snprintf(why, why_size, "prepare gave no memory, but its size");
        rc = -1;
    }
    if (rc != 0) {
        *prepared = NULL;
        *bytes = 0;
    }
    return rc;
}

size_t ds_call_scratch(const struct ds_kernel *k, const void *args, int threads)
{
    if (!k->scratch_bytes)
        return 0;
    const uint32_t fp = ds_fp_control();
    begin(k, DS_CALLING_SCRATCH);
    size_t n = k->scratch_bytes(args, threads);
    end();
    ds_fp_restore(fp);
    return n;
}

int ds_call_launch_alone(const struct ds_kernel *k, const void *args, const struct ds_exec *exec,
                         char *why, size_t why_size)
{
    begin(k, DS_CALLING_LAUNCH);
    int rc = k->launch(args, exec, why, why_size - 1);
    end();
    why[why_size - 1] = '\0';
    return rc;
}

int ds_call_launch(const struct ds_kernel *k, const void *args, const struct ds_exec *exec,
                   char *why, size_t why_size)
{
    const uint32_t fp = ds_fp_control();
    int rc = ds_call_launch_alone(k, args, exec, why, why_size);
    return changed(fp, "the launch", why, why_size) ? -1 : rc;
}

int ds_call_describe(const struct ds_kernel *k, const void *args, const struct ds_exec *exec,
                     struct ds_launch_info *out)
{
    if (!k->describe)
        return -1;
    const uint32_t fp = ds_fp_control();
    begin(k, DS_CALLING_DESCRIBE);
    int rc = k->describe(args, exec, out);
    end();
    ds_fp_restore(fp);
    return rc;
}
