/* pinned.cuh: the functions of kernels/PINNED.md for threads of a device: exp, tanh, log, the tree of
 * sixteen, and softmax's maximum and sum. The orders are those of that page. */
#ifndef DS_PINNED_CUH
#define DS_PINNED_CUH

#include "kernels/cuda/device.cuh"

enum { DS_PINNED_TERMS = 256, DS_PINNED_SUMS = 16 };

__device__ static __forceinline__ float ds_negative_infinity()
{
    return -__uint_as_float(DS_INFINITY_BITS);
}

/* b wins a tie and a NaN. */
__device__ static __forceinline__ float ds_max(float a, float b)
{
    return a > b ? a : b;
}

/* p * 2^n with n = t - 1.5 * 2^23, in two steps of half of it. */
__device__ static __forceinline__ float ds_scale(float p, float t)
{
    const int n = __float_as_int(t) - 0x4b400000;
    const int h = n >> 1;
    return (p * __int_as_float((int)((unsigned)(h + 127) << 23))) *
           __int_as_float((int)((unsigned)(n - h + 127) << 23));
}

__device__ static __forceinline__ float ds_exp(float x)
{
    if (x != x)
        return x;
    x = ds_max(-104.0f, x);
    x = 89.0f < x ? 89.0f : x;
    const float t = ds_fma(x, 0x1.715476p+0f, 12582912.0f);
    const float n = t - 12582912.0f;
    float r = ds_fma(n, -0x1.62e430p-1f, x);
    r = ds_fma(n, 0x1.05c610p-29f, r);
    float p = 0x1.6a2256p-10f;
    p = ds_fma(p, r, 0x1.123b02p-7f);
    p = ds_fma(p, r, 0x1.5558f8p-5f);
    p = ds_fma(p, r, 0x1.555490p-3f);
    p = ds_fma(p, r, 0x1.fffffcp-2f);
    p = ds_fma(p, r, 1.0f);
    p = ds_fma(p, r, 1.0f);
    return ds_scale(p, t);
}

/* exp(x - m), +0 where x is -infinity. */
__device__ static __forceinline__ float ds_term(float x, float m)
{
    return x == ds_negative_infinity() ? 0.0f : ds_exp(x - m);
}

__device__ static __forceinline__ float ds_tanh(float x)
{
    const float a = __uint_as_float(__float_as_uint(x) & 0x7fffffffu);
    if (!(a < 0.625f)) {
        const float y = 1.0f - 2.0f / (ds_exp(a + a) + 1.0f);
        return __float_as_uint(x) >> 31 ? -y : y;
    }
    const float z = x * x;
    float p = -0x1.75e1cap-8f;
    p = ds_fma(p, z, 0x1.52269ap-6f);
    p = ds_fma(p, z, -0x1.b83c5ap-5f);
    p = ds_fma(p, z, 0x1.110726p-3f);
    p = ds_fma(p, z, -0x1.555532p-2f);
    return ds_fma(p, z * x, x);
}

/* Of 0, normal numbers, +infinity and NaN. */
__device__ static __forceinline__ float ds_log(float x)
{
    if (x == 0.0f)
        return ds_negative_infinity();
    if (x != x || x == __uint_as_float(DS_INFINITY_BITS))
        return x;
    const unsigned u = __float_as_uint(x);
    const int k = (int)(u - 0x3f3504f3u) >> 23;
    const float t = __uint_as_float(u - ((unsigned)k << 23)) - 1.0f, z = t * t, e = (float)k;
    float p = -0x1.38b576p-4f;
    p = ds_fma(p, t, 0x1.055b68p-3f);
    p = ds_fma(p, t, -0x1.0d8542p-3f);
    p = ds_fma(p, t, 0x1.22da1ep-3f);
    p = ds_fma(p, t, -0x1.547244p-3f);
    p = ds_fma(p, t, 0x1.99a008p-3f);
    p = ds_fma(p, t, -0x1.000226p-2f);
    p = ds_fma(p, t, 0x1.555554p-2f);
    p = (p * t) * z;
    p = ds_fma(e, -0x1.05c610p-29f, p);
    p = ds_fma(z, -0.5f, p);
    return ds_fma(e, 0x1.62e430p-1f, t + p);
}

/* The trees over lanes 0..15 of each half of a warp; the result is lane 0's of the half. All lanes of
 * the warp take part. */
__device__ static __forceinline__ float ds_tree_sum(float p)
{
    for (unsigned by = 8; by; by /= 2)
        p = p + __shfl_down_sync(0xffffffffu, p, by, 16);
    return p;
}

__device__ static __forceinline__ float ds_tree_max(float p)
{
    for (unsigned by = 8; by; by /= 2)
        p = ds_max(p, __shfl_down_sync(0xffffffffu, p, by, 16));
    return p;
}

/* The same over an array of one thread. */
__device__ static __forceinline__ float ds_tree_of(float *p)
{
    for (int by = 8; by; by /= 2)
        for (int j = 0; j < by; j++)
            p[j] = p[j] + p[j + by];
    return p[0];
}

/* Maximum and sum of softmax's terms over a row, for every thread of the block. The block has a
 * multiple of 32 threads, `shared` room for one number a half of a warp, and two more. Each half of
 * a warp sums a block of 256 terms; thread 0 adds the sums in ascending order. */
template <class T>
__device__ static inline void ds_softmax_sums(const T *x, int64_t n, float *shared, float *max,
                                              float *sum)
{
    const int lane = (int)threadIdx.x % DS_PINNED_SUMS, half = (int)threadIdx.x / DS_PINNED_SUMS;
    const int halves = (int)blockDim.x / DS_PINNED_SUMS;
    float *m = shared + halves, *total = m + 1;
    if (threadIdx.x < 32) {
        float v = ds_negative_infinity();
        for (int64_t i = lane; i < n && half == 0; i += DS_PINNED_SUMS)
            v = ds_max(ds_load(x[i]), v);
        v = ds_tree_max(v);
        if (threadIdx.x == 0)
            *m = v;
    }
    __syncthreads();
    const int64_t blocks = ds_ceil_div(n, DS_PINNED_TERMS);
    for (int64_t first = 0; first < blocks; first += halves) {
        const int64_t begin = (first + half) * DS_PINNED_TERMS;
        const int64_t end = begin + DS_PINNED_TERMS < n ? begin + DS_PINNED_TERMS : n;
        float v = 0.0f;
        for (int64_t i = begin + lane; i < end; i += DS_PINNED_SUMS)
            v = v + ds_term(ds_load(x[i]), *m);
        v = ds_tree_sum(v);
        if (lane == 0)
            shared[half] = v;
        __syncthreads();
        for (int64_t b = first; threadIdx.x == 0 && b < blocks && b < first + halves; b++)
            *total = b == 0 ? shared[0] : *total + shared[b - first];
        __syncthreads();
    }
    *max = *m;
    *sum = *total;
}

#endif
