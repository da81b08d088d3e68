/* rmsnorm.cu: y[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i].
 *
 *   pinned  a block a row; lane j of the first half-warp adds x[i]*x[i] over i = j, j+16, ... in one
 *           fma chain from +0, the tree of sixteen, / width, 1/sqrt; y = (x*inv)*weight.
 *   split   what fills the device at every row count: while the rows are fewer than its
 *           multiprocessors, all 256 threads of a block add to one row (thread t: i = t, t+256, ...,
 *           then a tree of shuffles over the warp and over the warps); with more rows one warp has a
 *           row to itself (lane l: i = l, l+32, ...). So the bits depend on the number of rows.
 *
 * All rounding is to f32; x*x is fused into the sum in both; the store rounds (device.cuh). */
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/pinned.cuh"

namespace
{

enum { PINNED_THREADS = 128, SPLIT_THREADS = 256 };

template <class T>
__device__ void write_row(const struct ds_rmsnorm_args &a, int64_t r, float inv, int first,
                          int step)
{
    const T *x = ds_as<T>(a.x) + r * a.ldx;
    T *y = ds_as<T>(a.y) + r * a.ldy;
    for (int64_t i = first; i < a.width; i += step)
        ds_store(&y[i], (ds_load(x[i]) * inv) * a.weight[i]);
}

template <class T> __global__ void rmsnorm_pinned(struct ds_rmsnorm_args a)
{
    __shared__ float inverse;
    const int64_t r = blockIdx.x;
    const T *x = ds_as<T>(a.x) + r * a.ldx;
    if (threadIdx.x < 32) {
        float p = 0.0f;
        for (int64_t i = threadIdx.x; i < a.width && threadIdx.x < DS_PINNED_SUMS;
             i += DS_PINNED_SUMS)
            p = ds_fma(ds_load(x[i]), ds_load(x[i]), p);
        p = ds_tree_sum(p);
        if (threadIdx.x == 0)
            inverse = 1.0f / __fsqrt_rn(p / (float)a.width + a.eps);
    }
    __syncthreads();
    write_row<T>(a, r, inverse, (int)threadIdx.x, (int)blockDim.x);
}

__device__ __forceinline__ float warp_sum(float s)
{
    for (unsigned by = 16; by; by /= 2)
        s = s + __shfl_xor_sync(0xffffffffu, s, (int)by);
    return s;
}

/* A row on all threads of a block. */
template <class T> __global__ void rmsnorm_split(struct ds_rmsnorm_args a)
{
    __shared__ float part[SPLIT_THREADS / 32];
    const int64_t r = blockIdx.x;
    const T *x = ds_as<T>(a.x) + r * a.ldx;
    float s = 0.0f;
    for (int64_t i = threadIdx.x; i < a.width; i += SPLIT_THREADS)
        s = ds_fma(ds_load(x[i]), ds_load(x[i]), s);
    s = warp_sum(s);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = s;
    __syncthreads();
    s = threadIdx.x % 32 < SPLIT_THREADS / 32 ? part[threadIdx.x % 32] : 0.0f;
    s = warp_sum(s);
    write_row<T>(a, r, 1.0f / __fsqrt_rn(s / (float)a.width + a.eps), (int)threadIdx.x,
                 SPLIT_THREADS);
}

/* A row on each warp of a block. */
template <class T> __global__ void rmsnorm_warps(struct ds_rmsnorm_args a)
{
    const int64_t r = (int64_t)blockIdx.x * (SPLIT_THREADS / 32) + threadIdx.x / 32;
    const int lane = (int)threadIdx.x % 32;
    const T *x = ds_as<T>(a.x) + r * a.ldx;
    float s = 0.0f;
    if (r >= a.rows) /* the whole warp */
        return;
    for (int64_t i = lane; i < a.width; i += 32)
        s = ds_fma(ds_load(x[i]), ds_load(x[i]), s);
    s = warp_sum(s);
    write_row<T>(a, r, 1.0f / __fsqrt_rn(s / (float)a.width + a.eps), lane, 32);
}

template <class T> int pinned_as(const struct ds_device_call &call, const struct ds_rmsnorm_args &a)
{
    return DS_LAUNCH(call, rmsnorm_pinned<T>, (unsigned)a.rows, PINNED_THREADS, 0, a);
}

int pinned_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_rmsnorm_args *a = static_cast<const struct ds_rmsnorm_args *>(args);
    const struct ds_device_call call = {exec, why, why_size};
    return a->rows < 1 || a->width < 1 ? 0 : DS_BY_STORED(call, a->stored, pinned_as, call, *a);
}

int few_rows(const struct ds_rmsnorm_args *a, const struct ds_exec *exec)
{
    return a->rows < ds_device_sms(exec);
}

template <class T> int split_as(const struct ds_device_call &call, const struct ds_rmsnorm_args &a)
{
    if (few_rows(&a, call.exec))
        return DS_LAUNCH(call, rmsnorm_split<T>, (unsigned)a.rows, SPLIT_THREADS, 0, a);
    return DS_LAUNCH(call, rmsnorm_warps<T>, (unsigned)ds_ceil_div(a.rows, SPLIT_THREADS / 32),
                     SPLIT_THREADS, 0, a);
}

int split_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_rmsnorm_args *a = static_cast<const struct ds_rmsnorm_args *>(args);
    const struct ds_device_call call = {exec, why, why_size};
    return a->rows < 1 || a->width < 1 ? 0 : DS_BY_STORED(call, a->stored, split_as, call, *a);
}

int pinned_describe(const void *, const struct ds_exec *, struct ds_launch_info *out)
{
    memset(out, 0, sizeof *out);
    out->tile_rows = 1;
    out->split = DS_PINNED_SUMS;
    return 0;
}

int split_describe(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    const int few = few_rows(static_cast<const struct ds_rmsnorm_args *>(args), exec);
    memset(out, 0, sizeof *out);
    out->tile_rows = 1;
    out->split = few ? SPLIT_THREADS : 32;
    snprintf(out->algo, sizeof out->algo, "%s a row", few ? "block" : "warp");
    return 0;
}

} /* namespace */

DS_DEVICE_VARIANT_FULL(rmsnorm_pinned, DS_OP_RMSNORM, "pinned", DS_CLAIM_ALL, DS_FEATURE_STORED,
                       nullptr, pinned_launch, pinned_describe,
                       "16 interleaved fma chains, a fixed tree, 1/sqrt");
DS_DEVICE_VARIANT_FULL(rmsnorm_split, DS_OP_RMSNORM, "split",
                       DS_CLAIM_REPEAT | DS_CLAIM_SLOT | DS_CLAIM_THREADS, DS_FEATURE_STORED,
                       nullptr, split_launch, split_describe,
                       "fewer rows than multiprocessors: 256 threads a row; else a warp a row");
