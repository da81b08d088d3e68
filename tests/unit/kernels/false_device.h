/* false_device.h: what false_device.cu offers test_far.c: op add on a device with one fault each. */
#ifndef DS_TEST_FALSE_DEVICE_H
#define DS_TEST_FALSE_DEVICE_H

#include "kernels/driftscope_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    FALSE_NONE = 0,
    FALSE_READS_BEYOND,
    FALSE_READS_BEFORE,
    FALSE_WRITES_BEYOND,
    FALSE_WRITES_GAP,
    FALSE_WRITES_INPUT,
    FALSE_LEAVES_ONE,
    FALSE_USES_PADDING,
    FALSE_USES_SCRATCH,
    FALSE_BY_ADDRESS,
    FALSE_LAUNCHES
};
/* The last one's launch function itself looks at the rows. */
extern int (*const ds_false_adds[FALSE_LAUNCHES + 1])(const void *args, const struct ds_exec *exec,
                                                      char *why, size_t why_size);
size_t ds_false_scratch(const void *args, int threads);

#ifdef __cplusplus
}
#endif
#endif
