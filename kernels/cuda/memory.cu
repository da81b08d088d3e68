/* memory.cu: rows from one place to another, and between f32 and 16 bits: what the engine does beside the
 * ops of a pass, for struct ds_device. Adds nothing; rounds to nearest even, every NaN as 7fc0 or 7e00. */
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/memory.h"

namespace
{

enum { THREADS = 128, MOST_BLOCKS = 65535 };

/* A block a row, or more of them; T is the widest word that all rows begin and end with. */
template <class T> __global__ void move_rows(struct ds_device_rows r)
{
    for (int64_t i = blockIdx.x; i < r.n; i += gridDim.x) {
        const int64_t from = r.x_at ? r.x_at[i] : i, to = r.y_at ? r.y_at[i] : i;
        const T *x =
            reinterpret_cast<const T *>(static_cast<const char *>(r.x) + from * r.x_stride);
        T *y = reinterpret_cast<T *>(static_cast<char *>(r.y) + to * r.y_stride);
        for (int64_t k = threadIdx.x; k < r.row_bytes / (int64_t)sizeof(T); k += THREADS)
            y[k] = x[k];
    }
}

__device__ __forceinline__ uint16_t round_bf16(float v)
{
    const unsigned u = __float_as_uint(v);
    return v != v ? 0x7fc0 : (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

__device__ __forceinline__ uint16_t round_f16(float v)
{
    const unsigned u = __float_as_uint(v), magnitude = u & 0x7fffffffu, e = magnitude >> 23;
    const uint16_t sign = (uint16_t)(u >> 16 & 0x8000u);
    if (v != v)
        return 0x7e00;
    if (magnitude >= 0x47800000u) /* 2^16 and up */
        return (uint16_t)(sign | 0x7c00u);
    if (e < 102) /* below 2^-25 */
        return sign;
    const int normal = e >= 113;
    const unsigned significand = (magnitude & 0x7fffffu) | 0x800000u, shift = normal ? 13 : 126 - e;
    const unsigned rest = significand & ((1u << shift) - 1u), half = 1u << (shift - 1u);
    unsigned kept = significand >> shift;
    kept += rest > half || (rest == half && (kept & 1u));
    return (uint16_t)(sign | (normal ? ((e - 113u) << 10) + kept : kept));
}

__device__ __forceinline__ float widen_f16(uint16_t h)
{
    const unsigned sign = (unsigned)(h & 0x8000u) << 16, e = h >> 10 & 31u, m = h & 0x3ffu;
    if (e == 31)
        return __uint_as_float(sign | 0x7f800000u | m << 13);
    if (e == 0) {
        const float tiny = __fmul_rn((float)m, 0x1p-24f); /* exact */
        return sign ? -tiny : tiny;
    }
    return __uint_as_float(sign | (e + 112) << 23 | m << 13);
}

template <int BF16> __global__ void convert(int how, uint16_t *half, float *y, int64_t n)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * THREADS) {
        const float v = how == DS_CONVERT_WIDEN ? 0.0f : y[i];
        const uint16_t rounded = BF16 ? round_bf16(v) : round_f16(v);
        if (how == DS_CONVERT_ROUND)
            half[i] = rounded;
        else if (how == DS_CONVERT_WIDEN || rounded != half[i])
            y[i] = BF16 ? __uint_as_float((unsigned)half[i] << 16) : widen_f16(half[i]);
    }
}

unsigned blocks_of(int64_t n)
{
    return (unsigned)(n < MOST_BLOCKS ? n : (int64_t)MOST_BLOCKS);
}

} /* namespace */

int DS_DEVICE_KERNEL(move_rows)(const struct ds_device_rows *r, const struct ds_exec *exec,
                                char *why, size_t why_size)
{
    const struct ds_device_call call = {exec, why, why_size};
    const uint64_t all = (uint64_t)r->row_bytes | (uint64_t)r->x_stride | (uint64_t)r->y_stride |
                         reinterpret_cast<uintptr_t>(r->x) | reinterpret_cast<uintptr_t>(r->y);
    if (r->n < 1 || r->row_bytes < 1)
        return 0;
    if (all % 2)
        return ds_device_refuse(call, "rows of %lld bytes", (long long)r->row_bytes);
    if (all % 16 == 0)
        return DS_LAUNCH(call, move_rows<uint4>, blocks_of(r->n), THREADS, 0, *r);
    if (all % 4 == 0)
        return DS_LAUNCH(call, move_rows<unsigned>, blocks_of(r->n), THREADS, 0, *r);
    return DS_LAUNCH(call, move_rows<uint16_t>, blocks_of(r->n), THREADS, 0, *r);
}

int DS_DEVICE_KERNEL(convert)(int element, int how, void *half, float *y, int64_t n,
                              const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_device_call call = {exec, why, why_size};
    const unsigned blocks = blocks_of(ds_ceil_div(n, 8 * THREADS));
    uint16_t *h = static_cast<uint16_t *>(half);
    if (n < 1)
        return 0;
    if (element == DS_ELEMENT_BF16)
        return DS_LAUNCH(call, convert<1>, blocks, THREADS, 0, how, h, y, n);
    if (element == DS_ELEMENT_F16)
        return DS_LAUNCH(call, convert<0>, blocks, THREADS, 0, how, h, y, n);
    return ds_device_refuse(call, "element type %d is not one of 16 bits", element);
}
