/* faulty_kernels.cu: kernels with one fault each, for tests that driftscope names it on sim. Each is right in the
 * simplest case: threads in order, one block, widths that its author tried. */
#include "kernels/cuda/kernels.cuh"

namespace
{

enum { THREADS = 64 };

/* ---- add: y = a + b ----------------------------------------------------------------------------- */

struct fault {
    int outside, before; /* elements read behind and before what belongs to the call */
    int writes_input, tail, forever, overflow;
};

__device__ __forceinline__ int64_t first_of(const struct ds_add_args &)
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

__global__ void add_faulty(struct ds_add_args a, struct fault f)
{
    const int64_t n = a.rows * a.width, step = (int64_t)gridDim.x * blockDim.x;
    const int64_t all = f.tail ? n / step * step : n; /* the last, not whole, stride is left out */
    for (int64_t i = first_of(a); i < all; i += step) {
        const int64_t r = i / a.width, c = i % a.width;
        volatile const float *x = a.a + r * a.lda + c;
        /* Reads more than it needs, and does not use it. */
        if (f.outside && i == n - 1)
            (void)x[f.outside];
        if (f.before && i == 0)
            (void)x[-f.before];
        if (f.overflow && i == n - 1)
            a.y[r * a.ldy + c + f.overflow] = 1.0f;
        a.y[r * a.ldy + c] = *x + a.b[r * a.ldb + c];
        if (f.writes_input && i == n - 1)
            const_cast<float *>(a.a)[r * a.lda + c] = 0.0f;
    }
    volatile int on = f.forever;
    while (on)
        ;
}

/* Four at a time, from wherever a row begins. */
__global__ void add_vectors(struct ds_add_args a)
{
    for (int64_t i = first_of(a); i < a.rows * (a.width / 4);
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t r = i / (a.width / 4), c = i % (a.width / 4) * 4;
        const float4 x = *reinterpret_cast<const float4 *>(a.a + r * a.lda + c),
                     z = *reinterpret_cast<const float4 *>(a.b + r * a.ldb + c);
        *reinterpret_cast<float4 *>(a.y + r * a.ldy + c) =
            make_float4(x.x + z.x, x.y + z.y, x.z + z.z, x.w + z.w);
    }
    for (int64_t i = first_of(a); i < a.rows * (a.width % 4);
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t r = i / (a.width % 4), c = a.width / 4 * 4 + i % (a.width % 4);
        a.y[r * a.ldy + c] = a.a[r * a.lda + c] + a.b[r * a.ldb + c];
    }
}

int launch_add(const void *args, const struct ds_exec *exec, char *why, size_t why_size,
               const struct fault &f)
{
    const struct ds_add_args *a = static_cast<const struct ds_add_args *>(args);
    const struct ds_device_call call = {exec, why, why_size};
    return DS_LAUNCH(call, add_faulty, 4, THREADS, 0, *a, f);
}

#define ADD(NAME, MEMBER, VALUE)                                                                   \
    int NAME(const void *args, const struct ds_exec *exec, char *why, size_t size)                 \
    {                                                                                              \
        struct fault f = {};                                                                       \
        f.MEMBER = VALUE;                                                                          \
        return launch_add(args, exec, why, size, f);                                               \
    }
ADD(add_outside, outside, 1)
ADD(add_far_outside, outside, 100000)
ADD(add_before, before, 100000)
ADD(add_overflow, overflow, 1)
ADD(add_input, writes_input, 1)
ADD(add_tail, tail, 1)
ADD(add_forever, forever, 1)

int add_vector(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_device_call call = {exec, why, why_size};
    return DS_LAUNCH(call, add_vectors, 4, THREADS, 0,
                     *static_cast<const struct ds_add_args *>(args));
}

/* On a stream of its own, for which nothing of the call waits. */
int add_stream(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    struct ds_exec own = *exec;
    own.stream = nullptr;
    return launch_add(args, &own, why, why_size, {});
}

int add_block(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_device_call call = {exec, why, why_size};
    return DS_LAUNCH(call, add_faulty, 1, 2048, 0, *static_cast<const struct ds_add_args *>(args),
                     (struct fault){});
}

/* An argument that was forgotten. */
int add_null(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    struct ds_add_args a = *static_cast<const struct ds_add_args *>(args);
    a.b = nullptr;
    return launch_add(&a, exec, why, why_size, {});
}

/* ---- rmsnorm: a block a row ----------------------------------------------------------------------- */

enum how { NO_BARRIER, WRONG_MASK, RACE, UNWRITTEN, ARRIVAL, LOW, DIVERGENT };

template <enum how HOW> __global__ void norm_faulty(struct ds_rmsnorm_args a)
{
    __shared__ float part[THREADS], total;
    const int64_t r = blockIdx.x;
    const int t = (int)threadIdx.x;
    const float *x = a.x + r * a.ldx;
    float s = 0.0f;
    for (int64_t i = t; i < a.width; i += THREADS)
        s = HOW == LOW ? __bfloat162float(__float2bfloat16_rn(ds_fma(x[i], x[i], s)))
                       : ds_fma(x[i], x[i], s);
    if (HOW == WRONG_MASK) {
        for (int with = 16; with; with /= 2)
            s += __shfl_down_sync(0xffffu, s, (unsigned)with);
    }
    if (HOW != UNWRITTEN && t == 0)
        total = 0.0f;
    __syncthreads();
    if (HOW == RACE) {
        total = total + s; /* all at once */
    } else if (HOW == ARRIVAL || HOW == UNWRITTEN) {
        atomicAdd(&total, s);
    } else if (HOW == DIVERGENT && t < THREADS / 2) {
        part[t] = s;
        __syncthreads();
    } else {
        part[t] = s;
    }
    if (HOW != NO_BARRIER)
        __syncthreads();
    if (HOW != RACE && HOW != ARRIVAL && HOW != UNWRITTEN) {
        if (t == 0)
            for (int i = 0; i < THREADS; i++)
                total = total + part[i];
        __syncthreads();
    }
    const float inv = 1.0f / __fsqrt_rn(total / (float)a.width + a.eps);
    for (int64_t i = t; i < a.width; i += THREADS)
        ds_store(&a.y[r * a.ldy + i], (x[i] * inv) * a.weight[i]);
}

/* As many threads a row as there are for each: another order with another number of rows. */
__global__ void norm_split(struct ds_rmsnorm_args a)
{
    __shared__ float part[THREADS];
    const int of = a.rows >= THREADS ? 1 : THREADS / (int)a.rows, t = (int)threadIdx.x;
    const int64_t r = (int64_t)blockIdx.x;
    const float *x = a.x + r * a.ldx;
    float s = 0.0f;
    for (int64_t i = t; t < of && i < a.width; i += of)
        s = ds_fma(x[i], x[i], s);
    part[t] = s;
    __syncthreads();
    s = 0.0f;
    for (int i = 0; i < of; i++)
        s += part[i];
    const float inv = 1.0f / __fsqrt_rn(s / (float)a.width + a.eps);
    for (int64_t i = t; i < a.width; i += THREADS)
        ds_store(&a.y[r * a.ldy + i], (x[i] * inv) * a.weight[i]);
}

#define NORM(NAME, KERNEL)                                                                         \
    int NAME(const void *args, const struct ds_exec *exec, char *why, size_t size)                 \
    {                                                                                              \
        const struct ds_rmsnorm_args *a = static_cast<const struct ds_rmsnorm_args *>(args);       \
        const struct ds_device_call call = {exec, why, size};                                      \
        return DS_LAUNCH(call, (KERNEL), (unsigned)a->rows, THREADS, 0, *a);                       \
    }
NORM(norm_barrier, norm_faulty<NO_BARRIER>)
NORM(norm_mask, norm_faulty<WRONG_MASK>)
NORM(norm_race, norm_faulty<RACE>)
NORM(norm_unwritten, norm_faulty<UNWRITTEN>)
NORM(norm_arrival, norm_faulty<ARRIVAL>)
NORM(norm_low, norm_faulty<LOW>)
NORM(norm_divergent, norm_faulty<DIVERGENT>)
NORM(norm_by_rows, norm_split)

/* ---- matmul on tensor cores: one tile, two registers of a exchanged --------------------------------- */

__global__ void tc_faulty(struct ds_matmul_args a)
{
    const int lane = (int)threadIdx.x, group = lane / 4, pair = lane % 4 * 2;
    const int64_t row0 = (int64_t)blockIdx.x * 16, column0 = (int64_t)blockIdx.y * 8;
    float d[4] = {};
    for (int64_t k = 0; k < a.k; k += 16) {
        unsigned r[4], b[2];
        for (int i = 0; i < 6; i++) {
            /* a: (group, low k), (group + 8, low k), (group, high k), (group + 8, high k): here as rows first. */
            const int64_t row = i < 4 ? row0 + group + i / 2 * 8 : column0 + group;
            const int64_t at = k + pair + (i < 4 ? i % 2 * 8 : (i - 4) * 8);
            const float *from = i < 4 ? a.x + row * a.ldx : a.w.data + row * a.k;
            const int64_t rows = i < 4 ? a.rows : a.n;
            unsigned both = 0;
            for (int e = 0; e < 2; e++)
                if (row < rows && at + e < a.k)
                    both |= (unsigned)__bfloat16_as_ushort(__float2bfloat16_rn(from[at + e]))
                            << 16 * e;
            *(i < 4 ? &r[i] : &b[i - 4]) = both;
        }
        ds_mma(__nv_bfloat16(), d, r, b);
    }
    for (int e = 0; e < 4; e++) {
        const int64_t row = row0 + group + e / 2 * 8, column = column0 + pair + e % 2;
        if (row < a.rows && column < a.n)
            ds_store(&a.y[row * a.ldy + column], d[e] + (a.bias ? a.bias[column] : 0.0f));
    }
}

int tc_layout(const void *args, const struct ds_exec *exec, char *why, size_t size)
{
    const struct ds_matmul_args *a = static_cast<const struct ds_matmul_args *>(args);
    const struct ds_device_call call = {exec, why, size};
    return DS_LAUNCH(call, tc_faulty,
                     dim3((unsigned)ds_ceil_div(a->rows, 16), (unsigned)ds_ceil_div(a->n, 8)), 32,
                     0, *a);
}

} /* namespace */

#define VARIANTS(DO)                                                                               \
    DO(add_outside, DS_OP_ADD, "outside")                                                          \
    DO(add_far_outside, DS_OP_ADD, "far-outside")                                                  \
    DO(add_before, DS_OP_ADD, "before")                                                            \
    DO(add_overflow, DS_OP_ADD, "overflow")                                                        \
    DO(add_input, DS_OP_ADD, "input")                                                              \
    DO(add_tail, DS_OP_ADD, "tail")                                                                \
    DO(add_forever, DS_OP_ADD, "forever")                                                          \
    DO(add_vector, DS_OP_ADD, "vector")                                                            \
    DO(add_stream, DS_OP_ADD, "stream")                                                            \
    DO(add_block, DS_OP_ADD, "block")                                                              \
    DO(add_null, DS_OP_ADD, "null")                                                                \
    DO(norm_barrier, DS_OP_RMSNORM, "barrier")                                                     \
    DO(norm_mask, DS_OP_RMSNORM, "mask")                                                           \
    DO(norm_race, DS_OP_RMSNORM, "race")                                                           \
    DO(norm_unwritten, DS_OP_RMSNORM, "unwritten")                                                 \
    DO(norm_arrival, DS_OP_RMSNORM, "arrival")                                                     \
    DO(norm_low, DS_OP_RMSNORM, "low")                                                             \
    DO(norm_divergent, DS_OP_RMSNORM, "divergent")                                                 \
    DO(norm_by_rows, DS_OP_RMSNORM, "by-rows")                                                     \
    DO(tc_layout, DS_OP_MATMUL, "layout")

#define DECLARE(NAME, OP, VARIANT)                                                                 \
    DS_DEVICE_VARIANT(NAME, OP, VARIANT, DS_CLAIM_ALL, NAME, "a fault");
VARIANTS(DECLARE)

extern "C" const struct ds_kernel *const *ds_plugin_kernels(uint32_t abi)
{
#define LIST(NAME, OP, VARIANT) &DS_DEVICE_KERNEL(NAME),
    static const struct ds_kernel *const all[] = {VARIANTS(LIST) nullptr};
    return abi == DS_KERNEL_ABI ? all : nullptr;
}
