/* device.cuh: the one header of .cu files. With nvcc it is CUDA, with a C++ compiler the host shim of
 * kernels/sim: the same text makes variants of the device cuda or of the device sim. Owns launching
 * and its errors, and the few words that differ between the two.
 *
 * Arithmetic: every + - * / is one operation rounded once (nvcc -fmad=false, g++ -ffp-contract=off), and
 * a fused multiply-add is written ds_fma(). With -DDS_DEVICE_NO_FMA ds_fma is two operations: a
 * kernel compiled so must contain no fused operation at all, which is how a test finds those that
 * nobody asked for. */
#ifndef DS_DEVICE_CUH
#define DS_DEVICE_CUH

#include "kernels/driftscope_kernel.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What a launcher needs to start kernels and to say what went wrong. */
struct ds_device_call {
    const struct ds_exec *exec;
    char *why;
    size_t why_size;
};

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#else
#include "kernels/sim/cuda_host.h"
#endif

/* The host's side of the device cuda, in a test by a C++ compiler: kernels run on sim, and the runtime is
 * tests/cuda's. */
#if defined(DS_CUDA_ON_SIM) && !defined(__CUDACC__)
#include "tests/cuda/cuda_runtime.h"
#endif

#if defined(__CUDACC__) || defined(DS_CUDA_ON_SIM)

#define DS_DEVICE_HERE            DS_DEVICE_CUDA
#define DS_DEVICE_MULTIPROCESSORS 132 /* where the caller does not say what the device has */
#define DS_DEVICE_KERNEL(NAME)    ds_cuda_##NAME

/* Faults that come of a launch that was made before this one: the context is of no use any more. Among their numbers are two of
 * launches that were not made: for too many registers (cudaErrorLaunchOutOfResources), too large a cooperative one. */
static inline int ds_device_is_fault(cudaError_t e)
{
    enum { ECC = 214, NVLINK = 220, CONTAINED = 226, OUT_OF_RESOURCES = 701, TOO_LARGE = 720 };
    const int n = (int)e;
    return (n >= 700 && n < 800 && n != OUT_OF_RESOURCES && n != TOO_LARGE) || n == ECC ||
           n == NVLINK || n == CONTAINED;
}

static inline int ds_device_launched(const struct ds_device_call &call, const char *kernel)
{
    const cudaError_t e = cudaGetLastError();
    if (e == cudaSuccess)
        return 0;
    snprintf(call.why, call.why_size, "%s %s: %s (%s)",
             ds_device_is_fault(e) ? "a kernel before" : "kernel", kernel, cudaGetErrorString(e),
             cudaGetErrorName(e));
    return -1;
}

/* A block that wants more shared memory than every device gives has to ask for it, its static arrays counted in: what a kernel has
 * of those is not known here, so all with dynamic shared memory ask. For the most so far, and never for less again: what was captured
 * with more is made ready later. asked: that much, on each device; not all 0, since what is 0 of a .cu file lies with its shared memory
 * in a test (Makefile: shared_section). */
enum { DS_DEVICE_ASKING = 64 };
static inline void ds_device_ask_shared(const void *kernel, size_t bytes, size_t *asked)
{
    int device = 0;
    if (bytes == 0 || cudaGetDevice(&device) != cudaSuccess)
        return;
    const int known = device >= 0 && device < DS_DEVICE_ASKING;
    if (known && bytes <= asked[device])
        return;
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) ==
            cudaSuccess &&
        known)
        asked[device] = bytes;
    (void)cudaGetLastError(); /* that it is too much is told by the launch */
}

/* The same with what it was launched on. */
static inline int ds_device_launched_on(const struct ds_device_call &call, const char *kernel,
                                        dim3 grid, dim3 block, size_t shared)
{
    char text[160];
    /* Every launch comes here: words are for those that failed. */
    const cudaError_t e = cudaPeekAtLastError();
    if (e == cudaSuccess)
        return 0;
    snprintf(text, sizeof text, "%.60s on (%u,%u,%u) blocks of (%u,%u,%u), %zu bytes shared",
             kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared);
    return ds_device_launched(call, text);
}
#endif

#ifdef __CUDACC__
#define DS_DYNAMIC_SHARED(TYPE, NAME)                                                              \
    extern __shared__ __align__(16) unsigned char ds_dynamic_shared[];                             \
    TYPE *NAME = reinterpret_cast<TYPE *>(ds_dynamic_shared)

/* What another call left to be told is not this launch's. */
#define DS_LAUNCH(CALL, KERNEL, GRID, BLOCK, SHARED, ...)                                          \
    [&]() {                                                                                        \
        static size_t ds_asked[DS_DEVICE_ASKING] = {1};                                            \
        (void)cudaGetLastError();                                                                  \
        ds_device_ask_shared(reinterpret_cast<const void *>(KERNEL), (SHARED), ds_asked);          \
        KERNEL<<<(GRID), (BLOCK), (SHARED), static_cast<cudaStream_t>((CALL).exec->stream)>>>(     \
            __VA_ARGS__);                                                                          \
        return ds_device_launched_on((CALL), #KERNEL, (GRID), (BLOCK), (SHARED));                  \
    }()

#else

#define DS_DYNAMIC_SHARED(TYPE, NAME) TYPE *NAME = static_cast<TYPE *>(ds_sim_dynamic_shared())

/* KERNEL(arguments) as what sim runs. As with CUDA, arguments are taken by value: they hold no pointer to
 * the host's memory where the arrays are the device's. */
#define DS_SIM_BODY(KERNEL, ...)                                                                   \
    [](auto... ds_by_value) { return [=]() { KERNEL(ds_by_value...); }; }(__VA_ARGS__)

#ifdef DS_CUDA_ON_SIM

#define DS_LAUNCH(CALL, KERNEL, GRID, BLOCK, SHARED, ...)                                          \
    [&]() {                                                                                        \
        static size_t ds_asked[DS_DEVICE_ASKING] = {1};                                            \
        char ds_why[512];                                                                          \
        int ds_runs;                                                                               \
        (void)cudaGetLastError();                                                                  \
        ds_device_ask_shared(ds_sim_entry(KERNEL), (SHARED), ds_asked);                            \
        ds_test_cuda_launch(#KERNEL, ds_sim_entry(KERNEL), (SHARED),                               \
                            static_cast<cudaStream_t>((CALL).exec->stream), &ds_runs);             \
        if (ds_runs && ds_sim_launch_body((CALL).exec, #KERNEL, ds_sim_entry(KERNEL), (GRID),      \
                                          (BLOCK), (SHARED), DS_SIM_BODY(KERNEL, __VA_ARGS__),     \
                                          ds_why, sizeof ds_why) != 0)                             \
            ds_test_cuda_fault(ds_why, ds_sim_failed());                                           \
        return ds_device_launched_on((CALL), #KERNEL, (GRID), (BLOCK), (SHARED));                  \
    }()

#else

#define DS_DEVICE_HERE            DS_DEVICE_SIM
#define DS_DEVICE_MULTIPROCESSORS DS_SIM_MULTIPROCESSORS
#ifdef DS_SIM_FMA /* compiled a second time, for CPUs with fused multiply-add */
#define DS_DEVICE_KERNEL(NAME) ds_sim_fma_##NAME
#else
#define DS_DEVICE_KERNEL(NAME) ds_sim_##NAME
#endif
/* KERNEL(arguments) on a grid of blocks with so many bytes of dynamic shared memory; 0, or -1 with the
 * reason in the call's why. A template with commas stands in parentheses. */
#define DS_LAUNCH(CALL, KERNEL, GRID, BLOCK, SHARED, ...)                                          \
    ds_sim_launch_body((CALL).exec, #KERNEL, ds_sim_entry(KERNEL), (GRID), (BLOCK), (SHARED),      \
                       DS_SIM_BODY(KERNEL, __VA_ARGS__), (CALL).why, (CALL).why_size)
#endif

#endif

/* d = d + a * b on a tensor core, by a whole warp: 16 rows, 8 columns, 16 k, bf16 or f16 inputs as `T`
 * says, f32 sums; registers as PTX's mma.m16n8k16 has them. On sim the model of kernels/sim/mma.h. */
#ifdef __CUDACC__
__device__ static __forceinline__ void ds_mma(__nv_bfloat16, float *d, const unsigned *a,
                                              const unsigned *b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ static __forceinline__ void ds_mma(__half, float *d, const unsigned *a,
                                              const unsigned *b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#else
static inline void ds_mma(__nv_bfloat16, float *d, const unsigned *a, const unsigned *b,
                          const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    ds_sim_mma(DS_ELEMENT_BF16, d, a, b, file, line);
}
static inline void ds_mma(__half, float *d, const unsigned *a, const unsigned *b,
                          const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    ds_sim_mma(DS_ELEMENT_F16, d, a, b, file, line);
}
#endif

/* Before a loop whose arrays are to be registers, and before one of which four turns at a time are enough; sim's compiler
 * decides for itself. */
#ifdef __CUDACC__
#define DS_UNROLL      _Pragma("unroll")
#define DS_UNROLL_FOUR _Pragma("unroll 4")
#else
#define DS_UNROLL
#define DS_UNROLL_FOUR
#endif

/* The reason why a call is not taken; -1. */
__attribute__((format(printf, 2, 3))) static inline int
ds_device_refuse(const struct ds_device_call &call, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(call.why, call.why_size, fmt, ap);
    va_end(ap);
    return -1;
}

static inline int ds_device_check_scratch(const struct ds_device_call &call, size_t need)
{
    const struct ds_exec *e = call.exec;
    if (need && (!e->scratch || e->scratch_bytes < need))
        return ds_device_refuse(call, "scratch memory of %zu bytes where %zu are needed",
                                e->scratch ? e->scratch_bytes : (size_t)0, need);
    return 0;
}

/* Multiprocessors that a launch may fill. */
static inline int ds_device_sms(const struct ds_exec *exec)
{
    return exec->multiprocessors > 0 ? exec->multiprocessors : (int)DS_DEVICE_MULTIPROCESSORS;
}

__host__ __device__ static inline int64_t ds_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* ---- arithmetic in kernels ------------------------------------------------------------------------ */

__device__ static __forceinline__ float ds_fma(float a, float b, float c)
{
#ifdef DS_DEVICE_NO_FMA
    return __fadd_rn(__fmul_rn(a, b), c);
#else
    return __fmaf_rn(a, b, c);
#endif
}

#define DS_INFINITY_BITS 0x7f800000u

/* ---- how activations lie in memory: enum ds_element ------------------------------------------------
 *
 * A kernel is written once for elements of type T: float, __nv_bfloat16 or __half. Exact on the way in,
 * rounded to nearest even on the way out, every NaN stored as 7fc00000, 7fc0, 7e00. */

__device__ static __forceinline__ float ds_stored(float v)
{
    return v != v ? __uint_as_float(0x7fc00000u) : v;
}

__device__ static __forceinline__ float ds_load(float v)
{
    return v;
}
__device__ static __forceinline__ float ds_load(__nv_bfloat16 v)
{
    return __bfloat162float(v);
}
__device__ static __forceinline__ float ds_load(__half v)
{
    return __half2float(v);
}

__device__ static __forceinline__ void ds_store(float *p, float v)
{
    *p = ds_stored(v);
}
__device__ static __forceinline__ void ds_store(__nv_bfloat16 *p, float v)
{
    *p = v != v ? __ushort_as_bfloat16(0x7fc0) : __float2bfloat16_rn(v);
}
__device__ static __forceinline__ void ds_store(__half *p, float v)
{
    *p = v != v ? __ushort_as_half(0x7e00) : __float2half_rn(v);
}

/* An op's array, declared float *, as what it holds. */
template <class T> __host__ __device__ static __forceinline__ const T *ds_as(const float *p)
{
    return reinterpret_cast<const T *>(p);
}
template <class T> __host__ __device__ static __forceinline__ T *ds_as(float *p)
{
    return reinterpret_cast<T *>(p);
}

/* FUNCTION<T>(arguments) with the T of an op's `stored`; refused for what is none. */
#define DS_BY_STORED(CALL, STORED, FUNCTION, ...)                                                  \
    ((STORED) == DS_ELEMENT_F32    ? FUNCTION<float>(__VA_ARGS__)                                  \
     : (STORED) == DS_ELEMENT_BF16 ? FUNCTION<__nv_bfloat16>(__VA_ARGS__)                          \
     : (STORED) == DS_ELEMENT_F16                                                                  \
         ? FUNCTION<__half>(__VA_ARGS__)                                                           \
         : ds_device_refuse((CALL), "activations of type %d", (int)(STORED)))

#endif
