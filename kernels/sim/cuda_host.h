/* cuda_host.h: the words of CUDA C for a C++ compiler without CUDA, so that a .cu file becomes code
 * for the sim device. Included by kernels/cuda/device.cuh. Needs nothing of CUDA.
 *
 * There are: the index variables, __syncthreads, __syncwarp, shuffles, votes, static __shared__
 * (in kernels of internal linkage; one array for all launches, filled with NaN before each block; g++ leaves
 * that of templates in .bss, and the Makefile brings it into its section), atomics on global and shared memory, vector types, bf16 and f16 storage,
 * rounding intrinsics. Not: textures, cooperative groups, dynamic parallelism, inline PTX. */
#ifndef DS_SIM_CUDA_HOST_H
#define DS_SIM_CUDA_HOST_H

#include "kernels/sim/mma.h"
#include "kernels/sim/sim.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define __global__ static
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
/* N threads of a block at most: as many no-operations before the kernel's entry, whose place the compiler lists, so that a launch
 * of more is refused, as CUDA refuses it. It is an attribute that takes a template's sizes, too. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#define __launch_bounds__(N, ...) __attribute__((patchable_function_entry((N), (N))))
#else
#define __launch_bounds__(...)
#endif
#define __align__(n) __attribute__((aligned(n)))
/* In a section of the file's own, whose bounds the linker knows: so all of it can be poisoned. */
#ifndef DS_SIM_SHARED
#define DS_SIM_SHARED ds_shared
#endif
#define DS_SIM_TEXT(...)    #__VA_ARGS__
#define DS_SIM_TEXT_OF(X)   DS_SIM_TEXT(X)
#define DS_SIM_JOIN(A, B)   A##B
#define DS_SIM_JOINED(A, B) DS_SIM_JOIN(A, B)
#define __shared__          static __attribute__((section(DS_SIM_TEXT_OF(DS_SIM_SHARED))))
#define ds_sim_shared_begin DS_SIM_JOINED(__start_, DS_SIM_SHARED)
#define ds_sim_shared_end   DS_SIM_JOINED(__stop_, DS_SIM_SHARED)
#define __constant__        static

extern "C" {
extern char ds_sim_shared_begin[] __attribute__((weak, visibility("hidden")));
extern char ds_sim_shared_end[] __attribute__((weak, visibility("hidden")));
/* Where the no-operations of __launch_bounds__ begin, of all kernels of this program or library. */
extern const uintptr_t __start___patchable_function_entries[]
    __attribute__((weak, visibility("hidden")));
extern const uintptr_t __stop___patchable_function_entries[]
    __attribute__((weak, visibility("hidden")));
}

/* Nothing here may be merged by the linker with what another file made of it with other instructions. */
namespace
{
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz)
    {
    }
};
} /* namespace */

#define threadIdx (ds_sim_here.thread)
#define blockIdx  (ds_sim_here.block)
#define blockDim  (ds_sim_here.block_dim)
#define gridDim   (ds_sim_here.grid_dim)
enum { warpSize = DS_SIM_WARP };

/* ---- vector types ------------------------------------------------------------------------------ */

#define DS_SIM_VECTORS(T, N, ALIGN2, ALIGN4)                                                       \
    struct alignas(ALIGN2) N##2                                                                    \
    {                                                                                              \
        T x, y;                                                                                    \
    };                                                                                             \
    struct N##3                                                                                    \
    {                                                                                              \
        T x, y, z;                                                                                 \
    };                                                                                             \
    struct alignas(ALIGN4) N##4                                                                    \
    {                                                                                              \
        T x, y, z, w;                                                                              \
    };                                                                                             \
    static inline N##2 make_##N##2(T x, T y)                                                       \
    {                                                                                              \
        return {x, y};                                                                             \
    }                                                                                              \
    static inline N##3 make_##N##3(T x, T y, T z)                                                  \
    {                                                                                              \
        return {x, y, z};                                                                          \
    }                                                                                              \
    static inline N##4 make_##N##4(T x, T y, T z, T w)                                             \
    {                                                                                              \
        return {x, y, z, w};                                                                       \
    }
DS_SIM_VECTORS(float, float, 8, 16)
DS_SIM_VECTORS(int, int, 8, 16)
DS_SIM_VECTORS(unsigned, uint, 8, 16)

/* ---- bits -------------------------------------------------------------------------------------- */

template <class To, class From> static inline To ds_sim_bits(From v)
{
    static_assert(sizeof(To) == sizeof(From), "sizes differ");
    To out;
    memcpy(&out, &v, sizeof out);
    return out;
}
static inline unsigned __float_as_uint(float v)
{
    return ds_sim_bits<unsigned>(v);
}
static inline int __float_as_int(float v)
{
    return ds_sim_bits<int>(v);
}
static inline float __uint_as_float(unsigned v)
{
    return ds_sim_bits<float>(v);
}
static inline float __int_as_float(int v)
{
    return ds_sim_bits<float>(v);
}
static inline int __popc(unsigned v)
{
    return __builtin_popcount(v);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline int __ffs(int v)
{
    return __builtin_ffs(v);
}
static inline int __clz(int v)
{
    return v ? __builtin_clz((unsigned)v) : 32;
}

template <class T> static inline T min(T a, T b)
{
    return b < a ? b : a;
}
template <class T> static inline T max(T a, T b)
{
    return a < b ? b : a;
}
template <class T> static inline T __ldg(const T *p)
{
    return *p;
}

/* ---- arithmetic: one operation, rounded once --------------------------------------------------- */

static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}
static inline float __int2float_rn(int v)
{
    return (float)v;
}

/* ---- bf16 and f16: storage, exact to f32, to nearest even from it ------------------------------ */

struct __nv_bfloat16 {
    uint16_t bits;
};
struct __half {
    uint16_t bits;
};
static inline float __bfloat162float(__nv_bfloat16 v)
{
    return ds_sim_bits<float>((uint32_t)v.bits << 16);
}
static inline __nv_bfloat16 __float2bfloat16_rn(float v)
{
    const uint32_t u = ds_sim_bits<uint32_t>(v);
    if (v != v)
        return {0x7fff}; /* as the hardware's conversion: one NaN for all */
    return {(uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16)};
}
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short v)
{
    return {v};
}
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 v)
{
    return v.bits;
}
static inline __half __ushort_as_half(unsigned short v)
{
    return {v};
}
static inline unsigned short __half_as_ushort(__half v)
{
    return v.bits;
}
static inline __nv_bfloat16 __float2bfloat16(float v)
{
    return __float2bfloat16_rn(v);
}
static inline float __half2float(__half v)
{
    const uint32_t sign = (uint32_t)(v.bits & 0x8000) << 16, e = v.bits >> 10 & 31,
                   m = v.bits & 1023;
    if (e == 31)
        return ds_sim_bits<float>(sign | 0x7f800000u | m << 13);
    if (e == 0) {
        const float tiny = (float)m * 0x1p-24f; /* exact */
        return sign ? -tiny : tiny;
    }
    return ds_sim_bits<float>(sign | (e + 112) << 23 | m << 13);
}
static inline __half __float2half_rn(float v)
{
    const uint32_t u = ds_sim_bits<uint32_t>(v), sign = u >> 16 & 0x8000, a = u & 0x7fffffffu;
    if (v != v)
        return {0x7fff};
    if (a >= 0x477ff000u) /* rounds to 2^16 or more */
        return {(uint16_t)(sign | 0x7c00)};
    if (a < 0x38800000u) { /* subnormal: adding 0.5 puts the unit of 2^-24 at the last bit */
        const float t = ds_sim_bits<float>(a) + 0.5f;
        return {(uint16_t)(sign | (ds_sim_bits<uint32_t>(t) - 0x3f000000u))};
    }
    return {(uint16_t)(sign | ((a - 0x38000000u + 0xfff + (a >> 13 & 1)) >> 13))};
}
static inline __half __float2half(float v)
{
    return __float2half_rn(v);
}

/* ---- meeting other threads ---------------------------------------------------------------------- */

static inline void __syncthreads(const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    ds_sim_syncthreads(file, line);
}
static inline void __syncwarp(unsigned mask = 0xffffffffu, const char *file = __builtin_FILE(),
                              int line = __builtin_LINE())
{
    ds_sim_meet(DS_SIM_SYNCWARP, mask, 0, 0, file, line);
}
static inline unsigned __ballot_sync(unsigned mask, int v, const char *file = __builtin_FILE(),
                                     int line = __builtin_LINE())
{
    return (unsigned)ds_sim_meet(DS_SIM_BALLOT, mask, v != 0, 0, file, line);
}
static inline int __any_sync(unsigned mask, int v, const char *file = __builtin_FILE(),
                             int line = __builtin_LINE())
{
    return (int)ds_sim_meet(DS_SIM_ANY, mask, v != 0, 0, file, line);
}
static inline int __all_sync(unsigned mask, int v, const char *file = __builtin_FILE(),
                             int line = __builtin_LINE())
{
    return (int)ds_sim_meet(DS_SIM_ALL, mask, v != 0, 0, file, line);
}

template <class T>
static inline T ds_sim_shuffle(unsigned mask, T v, int source, const char *file, int line)
{
    static_assert(sizeof(T) <= 8, "a shuffle moves up to 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &v, sizeof v);
    bits = ds_sim_meet(DS_SIM_SHUFFLE, mask, bits, source, file, line);
    memcpy(&v, &bits, sizeof v);
    return v;
}
template <class T>
static inline T __shfl_sync(unsigned mask, T v, int source, int width = 32,
                            const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    const int l = ds_sim_lane();
    return ds_sim_shuffle(mask, v, l / width * width + (int)((unsigned)source % (unsigned)width),
                          file, line);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32,
                                 const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    const int l = ds_sim_lane();
    return ds_sim_shuffle(mask, v, l % width + (int)by < width ? l + (int)by : l, file, line);
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32,
                               const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    const int l = ds_sim_lane();
    return ds_sim_shuffle(mask, v, l % width >= (int)by ? l - (int)by : l, file, line);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T v, int with, int width = 32,
                                const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    const int l = ds_sim_lane(), other = l ^ with;
    return ds_sim_shuffle(mask, v, other < (l / width + 1) * width ? other : l, file, line);
}
/* mma.sync.aligned.m16n8k16.row.col.f32.T.T.f32 with c = d: registers of a lane as PTX has them. The
 * numbers are those of mma.h. */
static inline void ds_sim_mma(int element, float *d, const unsigned *a, const unsigned *b,
                              const char *file, int line)
{
    struct registers {
        const unsigned *a, *b;
    } mine = {a, b};
    const uint64_t *lanes = reinterpret_cast<const uint64_t *>(
        ds_sim_meet(DS_SIM_GATHER, 0xffffffffu, reinterpret_cast<uintptr_t>(&mine), 0, file, line));
    const int group = ds_sim_lane() / 4, pair = ds_sim_lane() % 4 * 2;
    uint16_t x[2][16], w[2][16]; /* rows group and group + 8, columns pair and pair + 1 */
    float out[4];
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 16; k++) {
            const int of = k % 8 / 2, high = k / 8;
            const registers *p = reinterpret_cast<const registers *>(lanes[group * 4 + of]);
            const registers *q = reinterpret_cast<const registers *>(lanes[(pair + i) * 4 + of]);
            x[i][k] = (uint16_t)(p->a[2 * high + i] >> 16 * (k % 2));
            w[i][k] = (uint16_t)(q->b[high] >> 16 * (k % 2));
        }
    for (int i = 0; i < 4; i++)
        out[i] = ds_sim_mma_sum(ds_sim_mma_chosen(), element, x[i / 2], w[i % 2], 16, d[i]);
    /* Nobody's registers change before all have read them. */
    ds_sim_meet(DS_SIM_SYNCWARP, 0xffffffffu, 0, 0, file, line);
    memcpy(d, out, sizeof out);
}
static inline void __threadfence()
{
}
static inline void __threadfence_block()
{
}

/* ---- atomics: threads take turns as a whole, so nothing can come between ------------------------ */

#define DS_SIM_ATOMIC(NAME, EXPRESSION)                                                            \
    template <class T> static inline T NAME(T *p, T v)                                             \
    {                                                                                              \
        const T old = *p;                                                                          \
        *p = (EXPRESSION);                                                                         \
        return old;                                                                                \
    }
DS_SIM_ATOMIC(atomicAdd, old + v)
DS_SIM_ATOMIC(atomicSub, old - v)
DS_SIM_ATOMIC(atomicExch, v)
DS_SIM_ATOMIC(atomicMin, v < old ? v : old)
DS_SIM_ATOMIC(atomicMax, old < v ? v : old)
DS_SIM_ATOMIC(atomicAnd, old &v)
DS_SIM_ATOMIC(atomicOr, old | v)
DS_SIM_ATOMIC(atomicInc, old >= v ? 0 : old + 1)
template <class T> static inline T atomicCAS(T *p, T compare, T v)
{
    const T old = *p;
    if (old == compare)
        *p = v;
    return old;
}

/* ---- launching ---------------------------------------------------------------------------------- */

template <class Body> static void ds_sim_body(const void *arg)
{
    (*static_cast<const Body *>(arg))();
}

template <class... Args> static const void *ds_sim_entry(void (*kernel)(Args...))
{
    return reinterpret_cast<const void *>(kernel);
}

/* What __launch_bounds__ says of the kernel with this entry; 0: nothing. */
static inline int ds_sim_bound(const void *entry)
{
    enum { NO_OPERATION = 0x90 };
    const uintptr_t at = reinterpret_cast<uintptr_t>(entry);
    uintptr_t from = 0;
    for (const uintptr_t *p = __start___patchable_function_entries;
         p < __stop___patchable_function_entries; p++)
        if (*p<at && * p> from)
            from = *p;
    if (!from || at - from > DS_SIM_MOST_THREADS)
        return 0;
    /* Another kernel's, if there is code in between. */
    for (uintptr_t i = from; i < at; i++)
        if (*reinterpret_cast<const unsigned char *>(i) != NO_OPERATION)
            return 0;
    return (int)(at - from);
}

template <class Body>
static int ds_sim_launch_body(const struct ds_exec *exec, const char *kernel, const void *entry,
                              dim3 grid, dim3 block, size_t shared_bytes, const Body &body,
                              char *why, size_t why_size)
{
    /* Padding holds what was there before: beside a number it can look like an address. */
    Body clean = body;
    __builtin_clear_padding(&clean);
    const struct ds_sim_launch launch = {kernel,
                                         {grid.x, grid.y, grid.z},
                                         {block.x, block.y, block.z},
                                         shared_bytes,
                                         ds_sim_shared_begin,
                                         ds_sim_shared_end,
                                         ds_sim_body<Body>,
                                         &clean,
                                         sizeof clean,
                                         ds_sim_schedule_of(exec),
#ifdef DS_CUDA_ON_SIM /* whose runtime has streams of its own */
                                         ds_sim_stream(),
#else
                                         exec->stream,
#endif
                                         exec->memory == DS_MEMORY_DEVICE,
                                         ds_sim_bound(entry)};
    return ds_sim_run(&launch, why, why_size);
}

#endif
