/* call.h: the functions of a kernel, called so that a process that watches this one knows which of
 * them is at work. A crash, an end of the process or a hang can then be told with the kernel's name. */
#ifndef DS_CALL_H
#define DS_CALL_H

#include "kernels/driftscope_kernel.h"

#include <stdatomic.h>

enum {
    DS_CALLING_NOTHING = 0,
    DS_CALLING_PREPARE,
    DS_CALLING_SCRATCH,
    DS_CALLING_LAUNCH,
    DS_CALLING_DESCRIBE
};

/* May lie in memory that the watching process shares. */
struct ds_calling {
    _Atomic uint64_t calls;
    _Atomic int what;
    _Atomic(const struct ds_kernel *) kernel;
};

/* Where this process says what it is doing from now on. */
void ds_calling_share(struct ds_calling *where);

/* " while matmul/mine (plugin mine.so) was being launched", "" when no kernel was at work. *c may hold
 * anything: a dying process wrote it. */
void ds_calling_text(const struct ds_calling *c, char *out, size_t size);

/* prepare and launch end with -1 and a reason also when they changed the floating-point control word of
 * this thread; it is put back after each of the four. Members that the kernel does not have: nothing is
 * prepared, no scratch, -1 from describe. `why` needs room for the reason and a zero byte that stays:
 * why[why_size - 1]. */
int ds_call_prepare(const struct ds_kernel *k, const struct ds_weight_view *w, void **prepared,
                    size_t *bytes, char *why, size_t why_size);
size_t ds_call_scratch(const struct ds_kernel *k, const void *args, int threads);
int ds_call_launch(const struct ds_kernel *k, const void *args, const struct ds_exec *exec,
                   char *why, size_t why_size);
int ds_call_describe(const struct ds_kernel *k, const void *args, const struct ds_exec *exec,
                     struct ds_launch_info *out);

/* Launches for a caller that looks at the control word of all threads itself. */
int ds_call_launch_alone(const struct ds_kernel *k, const void *args, const struct ds_exec *exec,
                         char *why, size_t why_size);

#endif
