/* warp_norm.cu: rmsnorm/warp-tree as a plugin for the device sim, or, built with nvcc, for CUDA.
 *
 * A warp has a row: lane l adds x[i]*x[i] over i = l, l+32, ... in one fma chain from +0; then a tree
 * of five shuffles (with lane l xor 16, 8, 4, 2, 1); y = (x * inv) * weight, each step rounded to f32.
 * So a row's bits depend on the row alone. With -DWITHOUT_BARRIER one thread makes the sum for all and
 * nobody waits for it: right when threads run in order, which sim's schedules do not let stand. */
#include "kernels/cuda/kernels.cuh"

namespace
{

enum { WARPS = 4, THREADS = 32 * WARPS };

template <class T> __global__ void warp_norm(struct ds_rmsnorm_args a)
{
    const int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int lane = (int)threadIdx.x % 32;
    float s = 0.0f;
    if (r >= a.rows) /* the whole warp */
        return;
    const T *x = ds_as<T>(a.x) + r * a.ldx;
    T *y = ds_as<T>(a.y) + r * a.ldy;
#ifdef WITHOUT_BARRIER
    __shared__ float sums[WARPS];
    for (int64_t i = 0; lane == 0 && i < a.width; i++)
        s = ds_fma(ds_load(x[i]), ds_load(x[i]), s);
    if (lane == 0)
        sums[threadIdx.x / 32] = s;
    s = sums[threadIdx.x / 32];
#else
    for (int64_t i = lane; i < a.width; i += 32)
        s = ds_fma(ds_load(x[i]), ds_load(x[i]), s);
    for (int with = 16; with; with /= 2)
        s = s + __shfl_xor_sync(0xffffffffu, s, with);
#endif
    const float inv = 1.0f / __fsqrt_rn(s / (float)a.width + a.eps);
    for (int64_t i = lane; i < a.width; i += 32)
        ds_store(&y[i], (ds_load(x[i]) * inv) * a.weight[i]);
}

template <class T> int launch_as(const struct ds_device_call &call, const struct ds_rmsnorm_args &a)
{
    return DS_LAUNCH(call, warp_norm<T>, (unsigned)ds_ceil_div(a.rows, WARPS), THREADS, 0, a);
}

int launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_rmsnorm_args *a = static_cast<const struct ds_rmsnorm_args *>(args);
    const struct ds_device_call call = {exec, why, why_size};
    return a->rows < 1 || a->width < 1 ? 0 : DS_BY_STORED(call, a->stored, launch_as, call, *a);
}

} /* namespace */

DS_DEVICE_VARIANT_STORED(warp_norm, DS_OP_RMSNORM, "warp-tree", DS_CLAIM_ALL, launch,
                         "32 interleaved fma chains, a tree of shuffles");

extern "C" const struct ds_kernel *const *ds_plugin_kernels(uint32_t abi)
{
    static const struct ds_kernel *const all[] = {&DS_DEVICE_KERNEL(warp_norm), nullptr};
    return abi == DS_KERNEL_ABI ? all : nullptr;
}
