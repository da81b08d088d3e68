/* false_device.cu: op add, a block a row, each variant with one fault that the lab must find in the memory of
 * a device. */
#include "tests/unit/kernels/false_device.h"

#include "kernels/cuda/kernels.cuh"

namespace
{

enum { THREADS = 32 };

template <int FAULT>
__device__ float wrong(const struct ds_add_args &a, const float *scratch, int64_t r)
{
    if (FAULT == FALSE_READS_BEYOND && r + 1 == a.rows)
        return 0.0f * a.a[r * a.lda + a.width];
    if (FAULT == FALSE_READS_BEFORE && r == 0)
        return 0.0f * a.b[-1];
    if (FAULT == FALSE_USES_PADDING && r > 0)
        return 0.0f * a.a[r * a.lda - 1];
    if (FAULT == FALSE_USES_SCRATCH)
        return 0.0f * scratch[3];
    if (FAULT == FALSE_BY_ADDRESS && reinterpret_cast<uintptr_t>(a.a) / 4 % 4)
        return 0x1p-20f;
    return 0.0f;
}

template <int FAULT> __global__ void add_false(struct ds_add_args a, const float *scratch)
{
    const int64_t r = blockIdx.x;
    const int has = FAULT != FALSE_NONE && FAULT != FALSE_LEAVES_ONE;
    const float more = has ? wrong<FAULT>(a, scratch, r) : 0.0f;
    for (int64_t i = threadIdx.x; i < a.width; i += THREADS) {
        const float sum = a.a[r * a.lda + i] + a.b[r * a.ldb + i];
        if (FAULT != FALSE_LEAVES_ONE || i + 1 < a.width)
            ds_store(&a.y[r * a.ldy + i], more != 0.0f ? sum + more : sum);
    }
    if (threadIdx.x == 0 && FAULT == FALSE_WRITES_BEYOND && r + 1 == a.rows)
        a.y[r * a.ldy + a.width] = 1.0f;
    if (threadIdx.x == 0 && FAULT == FALSE_WRITES_GAP && a.ldy > a.width && r + 1 < a.rows)
        a.y[r * a.ldy + a.width] = 1.0f;
    if (threadIdx.x == 0 && FAULT == FALSE_WRITES_INPUT && r == 0)
        *const_cast<float *>(a.a) = a.a[0] + 1.0f;
}

template <int FAULT>
int launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_add_args *a = static_cast<const struct ds_add_args *>(args);
    const struct ds_device_call call = {exec, why, why_size};
    return DS_LAUNCH(call, add_false<FAULT>, (unsigned)a->rows, THREADS, 0, *a,
                     static_cast<const float *>(exec->scratch));
}

int looks_itself(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_add_args *a = static_cast<const struct ds_add_args *>(args);
    volatile float first = a->a[0];
    (void)first;
    return launch<FALSE_NONE>(args, exec, why, why_size);
}

} /* namespace */

int (*const ds_false_adds[FALSE_LAUNCHES + 1])(const void *, const struct ds_exec *, char *,
                                               size_t) = {launch<FALSE_NONE>,
                                                          launch<FALSE_READS_BEYOND>,
                                                          launch<FALSE_READS_BEFORE>,
                                                          launch<FALSE_WRITES_BEYOND>,
                                                          launch<FALSE_WRITES_GAP>,
                                                          launch<FALSE_WRITES_INPUT>,
                                                          launch<FALSE_LEAVES_ONE>,
                                                          launch<FALSE_USES_PADDING>,
                                                          launch<FALSE_USES_SCRATCH>,
                                                          launch<FALSE_BY_ADDRESS>,
                                                          looks_itself};

size_t ds_false_scratch(const void *, int)
{
    return 64;
}
