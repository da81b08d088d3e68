/* matmul.cu: y[r][j] = sum over k of x[r][k] * w[j][k] (+ bias[j]), weights as the model holds them: f32,
 * or F16 and BF16 of a file, which are exact as f32.
 *
 * A block computes a tile of 4 or 16 rows by 64 columns from stages of 32 k in shared memory; a thread
 * has a quarter or an eighth of a column's rows. Every output is one thread's, in ascending k:
 *
 *   split-k  k cut into as many parts as there are multiprocessors for each tile (1 to 8, of 32 k or
 *            more); one fma chain a part; parts go to scratch memory and are added in ascending order,
 *            the first assigned; bias last. So the bits depend on the number of rows.
 *   atomic   k in up to 8 parts at every row count; y starts as bias or +0, and parts are added to
 *            it by atomicAdd, in the order in which their blocks come to run.
 *
 * pinned is in matmul_pinned.cu. */
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/weights.cuh"

namespace
{

enum { THREADS = 64, COLUMNS = 64, STAGE = 32, MOST_PARTS = 8 };
enum mode { PART, ATOMIC };
enum { FEATURES = DS_FEATURE_STORED | DS_FEATURE_FILE_WEIGHTS };

struct job {
    struct ds_matmul_args a;
    const void *w; /* the weights, in elements of type w_element */
    int w_element;
    float *parts;  /* [part][rows][n] of PART */
    int64_t share; /* terms of k a part */
};

/* ROWS rows from row0 and STAGE columns from k of a matrix to shared memory as f32; 0 outside of it. */
template <int ROWS, class T>
__device__ __forceinline__ void stage(float (*to)[STAGE + 1], const T *from, int64_t ld,
                                      int64_t row0, int64_t rows, int64_t k, int n)
{
    for (int i = (int)threadIdx.x; i < ROWS * STAGE; i += THREADS) {
        const int r = i / STAGE, t = i % STAGE;
        to[r][t] = row0 + r < rows && t < n ? ds_load(from[(row0 + r) * ld + k + t]) : 0.0f;
    }
}

/* The same with the type of elements known at run time; no thread of a block goes another way. */
template <int ROWS>
__device__ __forceinline__ void stage_any(float (*to)[STAGE + 1], const void *from, int element,
                                          int64_t ld, int64_t row0, int64_t rows, int64_t k, int n)
{
    if (element == DS_ELEMENT_F32)
        stage<ROWS>(to, static_cast<const float *>(from), ld, row0, rows, k, n);
    else if (element == DS_ELEMENT_BF16)
        stage<ROWS>(to, static_cast<const __nv_bfloat16 *>(from), ld, row0, rows, k, n);
    else
        stage<ROWS>(to, static_cast<const __half *>(from), ld, row0, rows, k, n);
}

__device__ __forceinline__ void put(const struct ds_matmul_args &a, int64_t r, int64_t c, float v)
{
    const int64_t at = r * a.ldy + c;
    v = a.bias ? v + a.bias[c] : v;
    if (a.y_stored == DS_ELEMENT_F32)
        ds_store(&a.y[at], v);
    else if (a.y_stored == DS_ELEMENT_BF16)
        ds_store(&ds_as<__nv_bfloat16>(a.y)[at], v);
    else
        ds_store(&ds_as<__half>(a.y)[at], v);
}

/* Rows first..first+TR-1 of the tile and columns column, column+32 are a thread's. */
template <int TR, int MODE> __global__ void matmul_tile(struct job job)
{
    __shared__ float xs[2 * TR][STAGE + 1], ws[COLUMNS][STAGE + 1];
    const struct ds_matmul_args &a = job.a;
    const int64_t row0 = (int64_t)blockIdx.x * 2 * TR, column0 = (int64_t)blockIdx.y * COLUMNS;
    const int64_t k0 = blockIdx.z * job.share;
    const int64_t k1 = k0 + job.share > a.k ? a.k : k0 + job.share;
    const int column = (int)threadIdx.x % 32, first = (int)threadIdx.x / 32 * TR;
    float s[TR][2] = {};
    for (int64_t k = k0; k < k1; k += STAGE) {
        const int n = k1 - k < STAGE ? (int)(k1 - k) : (int)STAGE;
        stage_any<2 * TR>(xs, a.x, a.stored, a.ldx, row0, a.rows, k, n);
        stage_any<COLUMNS>(ws, job.w, job.w_element, a.k, column0, a.n, k, n);
        __syncthreads();
        for (int t = 0; t < n; t++)
            for (int i = 0; i < TR; i++)
                for (int j = 0; j < 2; j++)
                    s[i][j] = ds_fma(xs[first + i][t], ws[column + 32 * j][t], s[i][j]);
        __syncthreads();
    }
    for (int i = 0; i < TR; i++)
        for (int j = 0; j < 2; j++) {
            const int64_t r = row0 + first + i, c = column0 + column + 32 * j;
            if (r >= a.rows || c >= a.n)
                continue;
            if (MODE == PART)
                job.parts[(blockIdx.z * a.rows + r) * a.n + c] = s[i][j];
            else
                atomicAdd(&a.y[r * a.ldy + c], s[i][j]);
        }
}

/* split-k's second step: the parts of one output, in ascending order. */
__global__ void matmul_add_parts(struct job job, int parts)
{
    const struct ds_matmul_args &a = job.a;
    const int64_t c = (int64_t)blockIdx.y * blockDim.x + threadIdx.x, r = blockIdx.x;
    if (c >= a.n)
        return;
    float s = job.parts[r * a.n + c];
    for (int p = 1; p < parts; p++)
        s = s + job.parts[(p * a.rows + r) * a.n + c];
    put(a, r, c, s);
}

/* atomic's first step. */
__global__ void matmul_begin(struct job job)
{
    const struct ds_matmul_args &a = job.a;
    const int64_t c = (int64_t)blockIdx.y * blockDim.x + threadIdx.x;
    if (c < a.n)
        a.y[blockIdx.x * a.ldy + c] = a.bias ? a.bias[c] : 0.0f;
}

/* ---- the host's side ------------------------------------------------------------------------------- */

int tile_rows(const struct ds_matmul_args *a)
{
    return a->rows <= 4 ? 4 : 16;
}

/* Parts of k that fill the multiprocessors which the tiles leave free. */
int parts_of(const struct ds_matmul_args *a, const struct ds_exec *exec, int atomic)
{
    const int64_t tiles = ds_ceil_div(a->rows, tile_rows(a)) * ds_ceil_div(a->n, COLUMNS);
    int64_t parts = atomic ? (int64_t)MOST_PARTS : ds_device_sms(exec) / (tiles ? tiles : 1);
    const int64_t most = a->k / STAGE;
    parts = parts < most ? parts : most;
    parts = parts < MOST_PARTS ? parts : (int64_t)MOST_PARTS;
    return parts < 1 ? 1 : (int)parts;
}

int64_t share_of(const struct ds_matmul_args *a, int parts)
{
    const int64_t share = ds_ceil_div(ds_ceil_div(a->k, parts), STAGE) * STAGE;
    return share < STAGE ? (int64_t)STAGE : share;
}

int check(const struct ds_device_call &call, const struct ds_matmul_args *a)
{
    if (ds_weights_check(call, a) != 0)
        return -1;
    if (ds_ceil_div(a->n, COLUMNS) > 65535)
        return ds_device_refuse(call, "%lld columns are more than a grid has", (long long)a->n);
    return 0;
}

struct job job_of(const void *args)
{
    const struct ds_matmul_args *a = static_cast<const struct ds_matmul_args *>(args);
    return {*a, a->w.data ? a->w.data : a->w.file_data, ds_weights_element(&a->w), nullptr, 0};
}

template <int MODE>
int launch_tiles(const struct ds_device_call &call, const struct job &job, int parts)
{
    const int rows = tile_rows(&job.a);
    const dim3 grid((unsigned)ds_ceil_div(job.a.rows, rows),
                    (unsigned)ds_ceil_div(job.a.n, COLUMNS), (unsigned)parts);
    if (rows == 4)
        return DS_LAUNCH(call, (matmul_tile<2, MODE>), grid, THREADS, 0, job);
    return DS_LAUNCH(call, (matmul_tile<8, MODE>), grid, THREADS, 0, job);
}

dim3 columns_grid(const struct ds_matmul_args *a)
{
    return dim3((unsigned)a->rows, (unsigned)ds_ceil_div(a->n, 256));
}

size_t split_scratch(const void *args, int)
{
    const struct ds_matmul_args *a = static_cast<const struct ds_matmul_args *>(args);
    return (size_t)MOST_PARTS * (size_t)a->rows * (size_t)a->n * sizeof(float);
}

int split_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    struct job job = job_of(args);
    const struct ds_device_call call = {exec, why, why_size};
    const int parts = parts_of(&job.a, exec, 0);
    if (check(call, &job.a) != 0 || ds_device_check_scratch(call, split_scratch(args, 1)) != 0)
        return -1;
    if (job.a.rows < 1 || job.a.n < 1)
        return 0;
    job.parts = static_cast<float *>(exec->scratch);
    job.share = share_of(&job.a, parts);
    if (launch_tiles<PART>(call, job, parts) != 0)
        return -1;
    return DS_LAUNCH(call, matmul_add_parts, columns_grid(&job.a), 256, 0, job, parts);
}

int atomic_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    struct job job = job_of(args);
    const struct ds_device_call call = {exec, why, why_size};
    const int parts = parts_of(&job.a, exec, 1);
    if (check(call, &job.a) != 0)
        return -1;
    if (job.a.rows < 1 || job.a.n < 1)
        return 0;
    job.share = share_of(&job.a, parts);
    if (DS_LAUNCH(call, matmul_begin, columns_grid(&job.a), 256, 0, job) != 0)
        return -1;
    return launch_tiles<ATOMIC>(call, job, parts);
}

int describe(const struct ds_matmul_args *a, int split, struct ds_launch_info *out)
{
    memset(out, 0, sizeof *out);
    out->tile_rows = tile_rows(a);
    out->tile_cols = COLUMNS;
    out->tile_k = STAGE;
    out->split = split;
    return 0;
}

int split_describe(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    const struct ds_matmul_args *a = static_cast<const struct ds_matmul_args *>(args);
    return describe(a, parts_of(a, exec, 0), out);
}

int atomic_describe(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    const struct ds_matmul_args *a = static_cast<const struct ds_matmul_args *>(args);
    return describe(a, parts_of(a, exec, 1), out);
}

} /* namespace */

DS_DEVICE_VARIANT_FULL(matmul_split_k, DS_OP_MATMUL, "split-k",
                       DS_CLAIM_REPEAT | DS_CLAIM_SLOT | DS_CLAIM_THREADS, FEATURES, split_scratch,
                       split_launch, split_describe,
                       "K in 1 to 8 parts, as many as multiprocessors are free; added in ascending "
                       "order");
DS_DEVICE_VARIANT_FULL(matmul_atomic, DS_OP_MATMUL, "atomic", 0, DS_FEATURE_FILE_WEIGHTS, nullptr,
                       atomic_launch, atomic_describe,
                       "up to 8 parts of K, added by atomicAdd in the order in which they arrive");
