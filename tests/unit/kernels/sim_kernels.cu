/* sim_kernels.cu: small kernels for test_sim.c: what the device sim must do, and faults that it must
 * show. Each fault is right when blocks, warps and threads run in order. */
#include "tests/unit/kernels/sim_kernels.h"

#include "kernels/cuda/kernels.cuh"

namespace
{

/* ---- what works ---------------------------------------------------------------------------------- */

__global__ void __launch_bounds__(64) indices(unsigned *out)
{
    const unsigned t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const unsigned b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    out[b * blockDim.x * blockDim.y * blockDim.z + t] = b * 1000 + t;
}

__global__ void lanes(unsigned *out)
{
    const unsigned all = 0xffffffffu, l = threadIdx.x;
    unsigned *o = out + l * SIM_LANE_WORDS;
    o[0] = __shfl_sync(all, l * 3, 5);
    o[1] = __shfl_down_sync(all, l, 4);
    o[2] = __shfl_up_sync(all, l, 4);
    o[3] = __shfl_xor_sync(all, l, 9);
    o[4] = __shfl_down_sync(all, l, 3, 8);
    o[5] = __shfl_sync(all, l, 2, 16);
    o[6] = __ballot_sync(all, l % 3 == 0);
    o[7] = (unsigned)__any_sync(all, l == 31) + 2 * (unsigned)__all_sync(all, l != 31);
    o[8] = l < 16 ? __ballot_sync(0x0000ffffu, l & 1) : __ballot_sync(0xffff0000u, l & 2);
    __syncwarp();
    const double wide = __shfl_xor_sync(all, 1.0 + l, 1);
    o[9] = wide == 1.0 + (l ^ 1);
}

__global__ void reverse(const float4 *x, float4 *y, int n)
{
    __shared__ float4 tile[64];
    DS_DYNAMIC_SHARED(int2, more);
    tile[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
    more[threadIdx.x] = make_int2((int)threadIdx.x, n);
    __syncthreads();
    const int2 from = more[63 - threadIdx.x];
    y[blockIdx.x * 64 + threadIdx.x] = tile[from.x];
}

__global__ void counts(int *sum, float *total)
{
    atomicAdd(sum, 1);
    atomicAdd(total, 0.5f);
    atomicMax(sum + 1, (int)(blockIdx.x * blockDim.x + threadIdx.x));
    atomicCAS(sum + 2, 0, 7);
}

/* Reads what nobody wrote. */
__global__ void unwritten(unsigned *out)
{
    __shared__ unsigned fixed[32];
    DS_DYNAMIC_SHARED(unsigned, dynamic);
    out[threadIdx.x * 2] = fixed[threadIdx.x];
    out[threadIdx.x * 2 + 1] = dynamic[threadIdx.x];
    __syncthreads();
    fixed[threadIdx.x] = dynamic[threadIdx.x] = 1; /* must not be there in the next block */
}

/* ---- errors ---------------------------------------------------------------------------------------- */

__global__ void half_at_barrier()
{
    if (threadIdx.x < 40)
        __syncthreads();
}

__global__ void two_barriers()
{
    if (threadIdx.x < 40)
        __syncthreads();
    else
        __syncthreads();
}

__global__ void lane_missing(float *out)
{
    if (threadIdx.x != 7)
        out[threadIdx.x] = __shfl_down_sync(0xffffffffu, 1.0f, 1);
}

__global__ void lane_not_in_mask(float *out)
{
    out[threadIdx.x] = __shfl_down_sync(0x0000ffffu, 1.0f, 1);
}

__global__ void behind_dynamic(int at)
{
    DS_DYNAMIC_SHARED(unsigned, dynamic);
    dynamic[at] = threadIdx.x;
}

__global__ void behind_static(int at, unsigned *out)
{
    __shared__ unsigned mine[33];
    unsigned *volatile first = mine; /* what the compiler knows of is seen without red zones */
    first[at] = 3;
    out[0] = mine[0];
}

__global__ void nothing()
{
}

__global__ void __launch_bounds__(64, 2) bounded()
{
}

template <int WARPS> __global__ void __launch_bounds__(32 * WARPS) bounded_by(int *out)
{
    out[threadIdx.x] = WARPS;
}

/* Takes all the stack there is. */
__device__ int deep(volatile int *n)
{
    volatile int more[64];
    more[0] = *n;
    return *n > 0 ? deep(n) + more[0] : 0;
}

__global__ void stack(int n, int *out)
{
    out[0] = deep(&n);
}

/* ---- on the device --------------------------------------------------------------------------------- */

/* What lies where the first of a list of pointers points. */
__global__ void follow(float *const *list, float *out)
{
    out[0] = list[0][0];
}

__attribute__((no_sanitize("undefined"))) __global__ void divide(int by, int *out)
{
    out[0] = 7 / by;
}

/* ---- faults: rmsnorm that is right in order ----------------------------------------------------------- */

enum { THREADS = 64 };

__device__ float square_sum(const float *x, int64_t n, int64_t from)
{
    float s = 0.0f;
    for (int64_t i = 0; i < n; i++)
        s = ds_fma(x[(from + i) % n], x[(from + i) % n], s);
    return s;
}

__device__ void scale_row(const struct ds_rmsnorm_args &a, int64_t r, float sum)
{
    const float inv = 1.0f / __fsqrt_rn(sum / (float)a.width + a.eps);
    for (int64_t i = threadIdx.x; i < a.width; i += THREADS)
        a.y[r * a.ldy + i] = (a.x[r * a.ldx + i] * inv) * a.weight[i];
}

/* Thread 0 makes what all read. */
template <int BARRIER> __global__ void norm_barrier(struct ds_rmsnorm_args a)
{
    __shared__ float sum;
    const int64_t r = blockIdx.x;
    if (threadIdx.x == 0)
        sum = square_sum(a.x + r * a.ldx, a.width, 0);
    if (BARRIER)
        __syncthreads();
    scale_row(a, r, sum);
}

/* Every thread writes its own sum to the same place; the last one stays. */
__global__ void norm_race(struct ds_rmsnorm_args a)
{
    __shared__ float sum;
    const int64_t r = blockIdx.x;
    sum = square_sum(a.x + r * a.ldx, a.width, threadIdx.x);
    __syncthreads();
    scale_row(a, r, sum);
}

__global__ void norm_arrival(struct ds_rmsnorm_args a)
{
    __shared__ float sum;
    const int64_t r = blockIdx.x;
    if (threadIdx.x == 0)
        sum = 0.0f;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < a.width; i += THREADS)
        atomicAdd(&sum, a.x[r * a.ldx + i] * a.x[r * a.ldx + i]);
    __syncthreads();
    scale_row(a, r, sum);
}

__global__ void norm_divergent(struct ds_rmsnorm_args a)
{
    const int64_t r = blockIdx.x;
    if (threadIdx.x < a.width)
        __syncthreads();
    scale_row(a, r, square_sum(a.x + r * a.ldx, a.width, 0));
}

#define NORM_LAUNCH(NAME, KERNEL)                                                                  \
    int NAME(const void *args, const struct ds_exec *exec, char *why, size_t why_size)             \
    {                                                                                              \
        const struct ds_rmsnorm_args *a = static_cast<const struct ds_rmsnorm_args *>(args);       \
        const struct ds_device_call call = {exec, why, why_size};                                  \
        return DS_LAUNCH(call, KERNEL, (unsigned)a->rows, THREADS, 0, *a);                         \
    }
NORM_LAUNCH(with_barrier, norm_barrier<1>)
NORM_LAUNCH(without_barrier, norm_barrier<0>)
NORM_LAUNCH(race, norm_race)
NORM_LAUNCH(arrival, norm_arrival)
NORM_LAUNCH(divergent, norm_divergent)

} /* namespace */

const struct ds_sim_norm ds_sim_norms[] = {
    {"honest", with_barrier}, {"no-barrier", without_barrier}, {"race", race},
    {"arrival", arrival},     {"divergent", divergent},        {nullptr, nullptr}};

int sim_test_run(int which, const struct ds_exec *exec, const void *in, void *out, int n, char *why,
                 size_t why_size)
{
    const struct ds_device_call call = {exec, why, why_size};
    unsigned *words = static_cast<unsigned *>(out);
    float *floats = static_cast<float *>(out);
    switch (which) {
    case SIM_INDICES:
        return DS_LAUNCH(call, indices, dim3(3, 2, 2), dim3(8, 4, 2), 0, words);
    case SIM_LANES:
        return DS_LAUNCH(call, lanes, 1, 32, 0, words);
    case SIM_REVERSE:
        return DS_LAUNCH(call, reverse, 2, 64, 64 * sizeof(int2), static_cast<const float4 *>(in),
                         static_cast<float4 *>(out), n);
    case SIM_COUNTS:
        return DS_LAUNCH(call, counts, 5, 96, 0, static_cast<int *>(out), floats + 3);
    case SIM_UNWRITTEN:
        return DS_LAUNCH(call, unwritten, 2, 32, 128, words);
    case SIM_HALF_AT_BARRIER:
        return DS_LAUNCH(call, half_at_barrier, 2, 64, 0);
    case SIM_TWO_BARRIERS:
        return DS_LAUNCH(call, two_barriers, 2, 64, 0);
    case SIM_LANE_MISSING:
        return DS_LAUNCH(call, lane_missing, 1, 64, 0, floats);
    case SIM_LANE_NOT_IN_MASK:
        return DS_LAUNCH(call, lane_not_in_mask, 1, 32, 0, floats);
    case SIM_PARTIAL_WARP:
        return DS_LAUNCH(call, lanes, 1, 20, 0, words);
    case SIM_BEHIND_DYNAMIC:
        return DS_LAUNCH(call, behind_dynamic, 1, 1, 128, n);
    case SIM_BEHIND_STATIC:
        return DS_LAUNCH(call, behind_static, 1, 1, 0, n, words);
    case SIM_FOLLOW:
        return DS_LAUNCH(call, follow, 1, 1, 0, static_cast<float *const *>(in),
                         static_cast<float *>(out));
    case SIM_DIVIDE:
        return DS_LAUNCH(call, divide, 1, 1, 0, n, static_cast<int *>(out));
    case SIM_STACK:
        return DS_LAUNCH(call, stack, 1, 40, 0, n, static_cast<int *>(out));
    case SIM_MANY_THREADS:
        return DS_LAUNCH(call, nothing, 1, 1025, 0);
    case SIM_BOUNDED:
        return DS_LAUNCH(call, bounded, 1, dim3(1, (unsigned)n), 0);
    case SIM_BOUNDED_BY_1:
        return DS_LAUNCH(call, bounded_by<1>, 1, (unsigned)n, 0, static_cast<int *>(out));
    case SIM_BOUNDED_BY_8:
        return DS_LAUNCH(call, bounded_by<8>, 1, (unsigned)n, 0, static_cast<int *>(out));
    case SIM_MUCH_SHARED:
        return DS_LAUNCH(call, nothing, 1, 32, 1 << 20);
    default:
        return DS_LAUNCH(call, nothing, 0, 32, 0);
    }
}

uint16_t sim_test_bf16(float v)
{
    return __float2bfloat16_rn(v).bits;
}
float sim_test_from_bf16(uint16_t v)
{
    return __bfloat162float({v});
}
uint16_t sim_test_f16(float v)
{
    return __float2half_rn(v).bits;
}
float sim_test_from_f16(uint16_t v)
{
    return __half2float({v});
}
