/* matmul_tc.cu: y[r][j] = sum over k of x[r][k] * w[j][k] (+ bias[j]) on tensor cores.
 *
 *   pinned-tc  mma of 16 rows, 8 columns and 16 k, one after another in ascending k from k = 0, the f32
 *              sum of one is what the next adds to, from +0; k behind the last is zero. The same
 *              instruction and the same k at every number of rows: the size of a block's tile is how
 *              many of them it has, and changes no bit. bias last, one more rounding; the store rounds.
 *
 * Inputs are bf16, or f16 where activations are f16 (stored so, or by exec->dtype): others are rounded
 * to it first, weights too. How an mma adds its 16 products is the device's: at once, or eight and
 * eight, cut off and not rounded (kernels/sim/mma.h). So a row's bits depend on the row alone on one
 * device, and are neither those of the CPU nor those of another architecture.
 *
 * A block of threads has 16 by 64, 64 by 64 or 128 by 128 of y; 32 k at a time go to shared memory, eight elements at once
 * where rows are aligned for that, while the next ones are on their way. mma.sync is not the fastest that Hopper
 * has (wgmma is), and the same on all architectures. */
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/weights.cuh"

namespace
{

/* PITCH: of a row in shared memory, in words of two elements. */
enum { STAGE = 32, PITCH = (STAGE + 8) / 2 };

struct job {
    struct ds_matmul_args a;
    const void *w;
    int w_element;
    int x_eights, w_eights; /* whether eight elements of a row can be read at once */
};

/* ---- eight neighbours of a row, as T ------------------------------------------------------------------ */

__device__ __forceinline__ unsigned short bits_of(__nv_bfloat16 v)
{
    return __bfloat16_as_ushort(v);
}
__device__ __forceinline__ unsigned short bits_of(__half v)
{
    return __half_as_ushort(v);
}
template <class T> __device__ __forceinline__ unsigned pack(float low, float high)
{
    T a, b;
    ds_store(&a, low);
    ds_store(&b, high);
    return bits_of(a) | (unsigned)bits_of(b) << 16;
}

/* As they lie: an element that is T is not touched, a NaN of it neither; what an mma makes of it is a NaN. */
template <class T> __device__ __forceinline__ uint4 all_of(T, const T *p)
{
    return *reinterpret_cast<const uint4 *>(p);
}
template <class T> __device__ __forceinline__ uint4 all_of(T, const float *p)
{
    const float4 a = reinterpret_cast<const float4 *>(p)[0];
    const float4 b = reinterpret_cast<const float4 *>(p)[1];
    return {pack<T>(a.x, a.y), pack<T>(a.z, a.w), pack<T>(b.x, b.y), pack<T>(b.z, b.w)};
}
template <class T, class S> __device__ __forceinline__ uint4 all_of(T, const S *p)
{
    const uint4 u = *reinterpret_cast<const uint4 *>(p);
    const unsigned words[4] = {u.x, u.y, u.z, u.w};
    unsigned out[4];
    DS_UNROLL
    for (int i = 0; i < 4; i++) {
        S low, high;
        memcpy(&low, &words[i], sizeof low);
        memcpy(&high, reinterpret_cast<const char *>(&words[i]) + 2, sizeof high);
        out[i] = pack<T>(ds_load(low), ds_load(high));
    }
    return {out[0], out[1], out[2], out[3]};
}

/* The first n of eight; others are +0. */
template <class T, class S> __device__ __forceinline__ uint4 some(const S *p, int64_t n, int eights)
{
    if (eights && n >= 8)
        return all_of(T(), p);
    unsigned out[4];
    DS_UNROLL
    for (int i = 0; i < 4; i++)
        out[i] = pack<T>(2 * i < n ? ds_load(p[2 * i]) : 0.0f,
                         2 * i + 1 < n ? ds_load(p[2 * i + 1]) : 0.0f);
    return {out[0], out[1], out[2], out[3]};
}

/* A thread's part of ROWS rows from row0 and STAGE columns from k; zero outside of the matrix. */
template <class T, int ROWS, int THREADS, class S>
__device__ __forceinline__ void fetch_as(uint4 *to, const S *from, int eights, int64_t ld,
                                         int64_t row0, int64_t rows, int64_t k, int64_t k1)
{
    enum { ALL = ROWS * STAGE / 8 };
    DS_UNROLL
    for (int i = 0; i < (ALL + THREADS - 1) / THREADS; i++) {
        const int at = (int)threadIdx.x + i * THREADS, r = at / (STAGE / 8),
                  t = at % (STAGE / 8) * 8;
        if (ALL % THREADS == 0 || at < ALL)
            to[i] =
                some<T>(from + (row0 + r) * ld + k + t, row0 + r < rows ? k1 - k - t : 0, eights);
    }
}

template <class T, int ROWS, int THREADS>
__device__ __forceinline__ void fetch(uint4 *to, const void *from, int element, int eights,
                                      int64_t ld, int64_t row0, int64_t rows, int64_t k, int64_t k1)
{
    if (element == DS_ELEMENT_F32)
        fetch_as<T, ROWS, THREADS>(to, static_cast<const float *>(from), eights, ld, row0, rows, k,
                                   k1);
    else if (element == DS_ELEMENT_BF16)
        fetch_as<T, ROWS, THREADS>(to, static_cast<const __nv_bfloat16 *>(from), eights, ld, row0,
                                   rows, k, k1);
    else
        fetch_as<T, ROWS, THREADS>(to, static_cast<const __half *>(from), eights, ld, row0, rows, k,
                                   k1);
}

/* What fetch read, to where it belongs. */
template <int ROWS, int THREADS>
__device__ __forceinline__ void lay(unsigned (*to)[PITCH], const uint4 *from)
{
    enum { ALL = ROWS * STAGE / 8 };
    DS_UNROLL
    for (int i = 0; i < (ALL + THREADS - 1) / THREADS; i++) {
        const int at = (int)threadIdx.x + i * THREADS;
        if (ALL % THREADS == 0 || at < ALL)
            *reinterpret_cast<uint4 *>(&to[at / (STAGE / 8)][at % (STAGE / 8) * 4]) = from[i];
    }
}

/* ---- the kernel ----------------------------------------------------------------------------------------- */

__device__ __forceinline__ void put(const struct ds_matmul_args &a, int64_t r, int64_t c, float v)
{
    if (r >= a.rows || c >= a.n)
        return;
    v = a.bias ? v + a.bias[c] : v;
    if (a.y_stored == DS_ELEMENT_F32)
        ds_store(&a.y[r * a.ldy + c], v);
    else if (a.y_stored == DS_ELEMENT_BF16)
        ds_store(&ds_as<__nv_bfloat16>(a.y)[r * a.ldy + c], v);
    else
        ds_store(&ds_as<__half>(a.y)[r * a.ldy + c], v);
}

/* DOWN by ACROSS warps; a warp has TILES times 16 rows by STRIPS times 8 columns. */
template <class T, int DOWN, int ACROSS, int TILES, int STRIPS>
__global__ void __launch_bounds__(32 * DOWN * ACROSS) matmul_tc(struct job job)
{
    enum {
        THREADS = 32 * DOWN * ACROSS,
        ROWS = DOWN * TILES * 16,
        COLUMNS = ACROSS * STRIPS * 8,
        OF_X = (ROWS * STAGE / 8 + THREADS - 1) / THREADS,
        OF_W = (COLUMNS * STAGE / 8 + THREADS - 1) / THREADS
    };
    __shared__ __align__(16) unsigned xs[2][ROWS][PITCH], ws[2][COLUMNS][PITCH];
    const struct ds_matmul_args &a = job.a;
    const int64_t row0 = (int64_t)blockIdx.x * ROWS, column0 = (int64_t)blockIdx.y * COLUMNS;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int group = lane / 4, pair = lane % 4 * 2;
    const int top = warp / ACROSS * TILES * 16, left = warp % ACROSS * STRIPS * 8;
    float d[TILES][STRIPS][4] = {};
    uint4 x[OF_X], w[OF_W];
    fetch<T, ROWS, THREADS>(x, a.x, a.stored, job.x_eights, a.ldx, row0, a.rows, 0, a.k);
    fetch<T, COLUMNS, THREADS>(w, job.w, job.w_element, job.w_eights, a.k, column0, a.n, 0, a.k);
    int now = 0;
    for (int64_t k = 0; k < a.k; k += STAGE, now ^= 1) {
        /* The other half may still be read by those who are behind. */
        lay<ROWS, THREADS>(xs[now], x);
        lay<COLUMNS, THREADS>(ws[now], w);
        __syncthreads();
        if (k + STAGE < a.k) {
            fetch<T, ROWS, THREADS>(x, a.x, a.stored, job.x_eights, a.ldx, row0, a.rows, k + STAGE,
                                    a.k);
            fetch<T, COLUMNS, THREADS>(w, job.w, job.w_element, job.w_eights, a.k, column0, a.n,
                                       k + STAGE, a.k);
        }
        DS_UNROLL
        for (int t = 0; t < STAGE; t += 16) {
            unsigned r[TILES][4];
            if (k + t >= a.k)
                break;
            DS_UNROLL
            for (int i = 0; i < TILES; i++) {
                const unsigned *p = &xs[now][top + 16 * i + group][t / 2 + lane % 4];
                r[i][0] = p[0];
                r[i][1] = p[8 * PITCH];
                r[i][2] = p[4];
                r[i][3] = p[8 * PITCH + 4];
            }
            DS_UNROLL
            for (int s = 0; s < STRIPS; s++) {
                const unsigned *q = &ws[now][left + 8 * s + group][t / 2 + lane % 4];
                const unsigned b[2] = {q[0], q[4]};
                DS_UNROLL
                for (int i = 0; i < TILES; i++)
                    ds_mma(T(), d[i][s], r[i], b);
            }
        }
    }
    DS_UNROLL
    for (int i = 0; i < TILES; i++) {
        DS_UNROLL
        for (int s = 0; s < STRIPS; s++) {
            DS_UNROLL
            for (int e = 0; e < 4; e++)
                put(a, row0 + top + 16 * i + group + e / 2 * 8,
                    column0 + left + 8 * s + pair + e % 2, d[i][s][e]);
        }
    }
}

/* ---- the host's side ------------------------------------------------------------------------------- */

enum way { SMALL, MIDDLE, LARGE };
const struct {
    int rows, columns;
} tile[] = {{16, 64}, {64, 64}, {128, 128}};

int64_t tiles_of(const struct ds_matmul_args *a, enum way way)
{
    return ds_ceil_div(a->rows, tile[way].rows) * ds_ceil_div(a->n, tile[way].columns);
}

/* Large tiles where there are some for half of the multiprocessors. */
enum way way_of(const struct ds_matmul_args *a, const struct ds_exec *exec)
{
    return a->rows <= 16                                                               ? SMALL
           : a->rows > 64 && tiles_of(a, LARGE) >= ds_ceil_div(ds_device_sms(exec), 2) ? LARGE
                                                                                       : MIDDLE;
}

template <class T>
int launch_as(const struct ds_device_call &call, const struct job &job, enum way way)
{
    const dim3 grid((unsigned)ds_ceil_div(job.a.rows, tile[way].rows),
                    (unsigned)ds_ceil_div(job.a.n, tile[way].columns));
    if (way == SMALL)
        return DS_LAUNCH(call, (matmul_tc<T, 1, 4, 1, 2>), grid, 128, 0, job);
    if (way == MIDDLE)
        return DS_LAUNCH(call, (matmul_tc<T, 1, 4, 4, 2>), grid, 128, 0, job);
    return DS_LAUNCH(call, (matmul_tc<T, 2, 4, 4, 4>), grid, 256, 0, job);
}

/* Whether each row of p begins at a multiple of eight elements. */
int has_eights(const void *p, int64_t ld)
{
    return reinterpret_cast<uintptr_t>(p) % 16 == 0 && ld % 8 == 0;
}

int launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_matmul_args *a = static_cast<const struct ds_matmul_args *>(args);
    const struct ds_device_call call = {exec, why, why_size};
    struct job job = {*a, a->w.data ? a->w.data : a->w.file_data, ds_weights_element(&a->w), 0, 0};
    if (ds_weights_check(call, a) != 0)
        return -1;
    const enum way way = way_of(a, exec);
    if (ds_ceil_div(a->n, tile[way].columns) > 65535)
        return ds_device_refuse(call, "%lld columns are more than a grid has", (long long)a->n);
    if (a->rows < 1 || a->n < 1)
        return 0;
    job.x_eights = has_eights(a->x, a->ldx);
    job.w_eights = has_eights(job.w, a->k);
    const int f16 = a->stored == DS_ELEMENT_F16 ||
                    (a->stored == DS_ELEMENT_F32 && exec->dtype == DS_ELEMENT_F16);
    return f16 ? launch_as<__half>(call, job, way) : launch_as<__nv_bfloat16>(call, job, way);
}

int describe(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    const struct ds_matmul_args *a = static_cast<const struct ds_matmul_args *>(args);
    const enum way way = way_of(a, exec);
    memset(out, 0, sizeof *out);
    out->tile_rows = tile[way].rows;
    out->tile_cols = tile[way].columns;
    out->tile_k = 16;
    out->split = 1;
    snprintf(out->algo, sizeof out->algo, "mma.m16n8k16");
    return 0;
}

} /* namespace */

DS_DEVICE_VARIANT_FULL(matmul_pinned_tc, DS_OP_MATMUL, "pinned-tc", DS_CLAIM_ALL,
                       DS_FEATURE_STORED | DS_FEATURE_FILE_WEIGHTS, nullptr, launch, describe,
                       "tensor cores, bf16 or f16 inputs: mma of 16 k in ascending order at every "
                       "row count; not the CPU's bits");
