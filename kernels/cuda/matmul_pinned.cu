/* matmul_pinned.cu: y[r][j] = sum over k of x[r][k] * w[j][k] (+ bias[j]), weights as the model holds them: f32, or F16 and
 * BF16 of a file, which are exact as f32.
 *
 *   pinned   k in blocks of 256 from k = 0, one fma chain from +0 a block, block sums added in ascending order, the first
 *            assigned; bias last; the store rounds (device.cuh).
 *
 * Who computes what changes no bit, so it is chosen for speed, by the number of tiles that there are for the device's
 * multiprocessors:
 *
 *   few    a warp has a block of k and a tile of 4 or 8 rows by 8 columns; as many blocks of k at once as there are
 *          warps. Their sums meet in shared memory and are added in ascending order. For up to 16 rows, and for
 *          matrices that have no tiles for half of the multiprocessors.
 *   tiles  a block of threads has all of k, and a tile of 32 by 64 or of 128 by 128; a thread has 4 by 4 or 8 by 8 of it.
 *
 * All read 64 or 16 k at a time into shared memory, while the next ones are on their way; k behind the last is not
 * added, not even as zeros: -0 + 0 would be another sum. */
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/pinned.cuh"
#include "kernels/cuda/weights.cuh"

namespace
{

struct job {
    struct ds_matmul_args a;
    const void *w; /* the weights, in elements of type w_element */
    int w_element;
    int x_fours, w_fours; /* whether four elements of a row can be read at once */
};

__device__ __forceinline__ void put(const struct ds_matmul_args &a, int64_t r, int64_t c, float v)
{
    const int64_t at = r * a.ldy + c;
    if (r >= a.rows || c >= a.n)
        return;
    v = a.bias ? v + a.bias[c] : v;
    if (a.y_stored == DS_ELEMENT_F32)
        ds_store(&a.y[at], v);
    else if (a.y_stored == DS_ELEMENT_BF16)
        ds_store(&ds_as<__nv_bfloat16>(a.y)[at], v);
    else
        ds_store(&ds_as<__half>(a.y)[at], v);
}

/* ---- four neighbours of a row ---------------------------------------------------------------------- */

__device__ __forceinline__ float4 four(const float *p)
{
    return *reinterpret_cast<const float4 *>(p);
}
__device__ __forceinline__ float value(__nv_bfloat16, unsigned bits)
{
    return ds_load(__ushort_as_bfloat16((unsigned short)bits));
}
__device__ __forceinline__ float value(__half, unsigned bits)
{
    return ds_load(__ushort_as_half((unsigned short)bits));
}
template <class T> __device__ __forceinline__ float4 four(const T *p)
{
    const uint2 u = *reinterpret_cast<const uint2 *>(p);
    return make_float4(value(T(), u.x & 0xffffu), value(T(), u.x >> 16), value(T(), u.y & 0xffffu),
                       value(T(), u.y >> 16));
}

/* The first n of four; others are +0. */
template <class T> __device__ __forceinline__ float4 some(const T *p, int64_t n, int fours)
{
    if (fours && n >= 4)
        return four(p);
    return make_float4(n > 0 ? ds_load(p[0]) : 0.0f, n > 1 ? ds_load(p[1]) : 0.0f,
                       n > 2 ? ds_load(p[2]) : 0.0f, n > 3 ? ds_load(p[3]) : 0.0f);
}

/* A thread's part of ROWS rows from row0 and K columns from k, read by so many threads: fours number thread, thread + THREADS,
 * ... in the order of rows. */
template <int ROWS, int K, int THREADS, class T>
__device__ __forceinline__ void fetch_as(float4 *to, const T *from, int fours, int64_t ld,
                                         int64_t row0, int64_t rows, int64_t k, int64_t k1,
                                         int thread)
{
    DS_UNROLL
    for (int i = 0; i < ROWS * K / 4 / THREADS; i++) {
        const int at = thread + i * THREADS, r = at / (K / 4), t = at % (K / 4) * 4;
        to[i] = some(from + (row0 + r) * ld + k + t, row0 + r < rows ? k1 - k - t : 0, fours);
    }
}

template <int ROWS, int K, int THREADS>
__device__ __forceinline__ void fetch(float4 *to, const void *from, int element, int fours,
                                      int64_t ld, int64_t row0, int64_t rows, int64_t k, int64_t k1,
                                      int thread)
{
    if (element == DS_ELEMENT_F32)
        fetch_as<ROWS, K, THREADS>(to, static_cast<const float *>(from), fours, ld, row0, rows, k,
                                   k1, thread);
    else if (element == DS_ELEMENT_BF16)
        fetch_as<ROWS, K, THREADS>(to, static_cast<const __nv_bfloat16 *>(from), fours, ld, row0,
                                   rows, k, k1, thread);
    else
        fetch_as<ROWS, K, THREADS>(to, static_cast<const __half *>(from), fours, ld, row0, rows, k,
                                   k1, thread);
}

/* Ends of k of the stage that begins there. */
__device__ __forceinline__ int terms(int64_t k, int64_t k1, int stage)
{
    return k1 - k < stage ? (int)(k1 - k) : stage;
}

/* ---- few ----------------------------------------------------------------------------------------------- */

enum { COLUMNS = 8, STAGE = 64, PITCH = STAGE + 4, MOST_WARPS = 16 };

template <int R> struct few {
    enum { MINE = R / 4 }; /* rows of a lane */
    float w[COLUMNS][PITCH], x[R][PITCH];
};

/* Four terms of a chain. */
__device__ __forceinline__ float chain(float s, float4 x, float4 w)
{
    s = ds_fma(x.x, w.x, s);
    s = ds_fma(x.y, w.y, s);
    s = ds_fma(x.z, w.z, s);
    return ds_fma(x.w, w.w, s);
}

/* What a lane read before: where fetch said that it lies. */
template <int ROWS>
__device__ __forceinline__ void lay(float (*to)[PITCH], const float4 *from, int lane)
{
    DS_UNROLL
    for (int i = 0; i < ROWS * STAGE / 4 / 32; i++) {
        const int at = lane + i * 32;
        *reinterpret_cast<float4 *>(&to[at / (STAGE / 4)][at % (STAGE / 4) * 4]) = from[i];
    }
}

/* The chains over k0..k1-1 of a warp's tile: a lane has column lane % 8 and MINE rows. */
template <int R>
__device__ __forceinline__ void few_chains(const struct job &job, struct few<R> *mine, int64_t row0,
                                           int64_t column0, int64_t k0, int64_t k1, float *s)
{
    enum { MINE = few<R>::MINE };
    const struct ds_matmul_args &a = job.a;
    const int lane = (int)threadIdx.x % 32, c = lane % COLUMNS, first = lane / COLUMNS * MINE;
    float4 x[R * STAGE / 4 / 32], w[COLUMNS * STAGE / 4 / 32];
    fetch<COLUMNS, STAGE, 32>(w, job.w, job.w_element, job.w_fours, a.k, column0, a.n, k0, k1,
                              lane);
    fetch<R, STAGE, 32>(x, a.x, a.stored, job.x_fours, a.ldx, row0, a.rows, k0, k1, lane);
    for (int64_t k = k0; k < k1; k += STAGE) {
        const int n = terms(k, k1, STAGE);
        __syncwarp();
        lay<COLUMNS>(mine->w, w, lane);
        lay<R>(mine->x, x, lane);
        __syncwarp();
        if (k + STAGE < k1) {
            fetch<COLUMNS, STAGE, 32>(w, job.w, job.w_element, job.w_fours, a.k, column0, a.n,
                                      k + STAGE, k1, lane);
            fetch<R, STAGE, 32>(x, a.x, a.stored, job.x_fours, a.ldx, row0, a.rows, k + STAGE, k1,
                                lane);
        }
        int t = 0;
        for (; t + 4 <= n; t += 4) {
            const float4 of_w = four(&mine->w[c][t]);
            DS_UNROLL
            for (int i = 0; i < MINE; i++)
                s[i] = chain(s[i], four(&mine->x[first + i][t]), of_w);
        }
        for (; t < n; t++) {
            DS_UNROLL
            for (int i = 0; i < MINE; i++)
                s[i] = ds_fma(mine->x[first + i][t], mine->w[c][t], s[i]);
        }
    }
}

/* Dynamic shared memory: a struct few a warp, then the sums, [warp][row][column]. */
template <int R> __global__ void __launch_bounds__(MOST_WARPS * 32) matmul_few(struct job job)
{
    enum { MINE = few<R>::MINE, TILE = R * COLUMNS };
    DS_DYNAMIC_SHARED(struct few<R>, shared);
    const struct ds_matmul_args &a = job.a;
    const int warps = (int)blockDim.x / 32, warp = (int)threadIdx.x / 32, lane = threadIdx.x % 32;
    float *sums = reinterpret_cast<float *>(shared + warps);
    const int64_t row0 = (int64_t)blockIdx.y * R, column0 = (int64_t)blockIdx.x * COLUMNS;
    const int64_t blocks = ds_ceil_div(a.k, DS_PINNED_TERMS);
    float total = 0.0f;
    for (int64_t b = 0; b < blocks; b += warps) {
        if (b + warp < blocks) {
            const int64_t k0 = (b + warp) * DS_PINNED_TERMS, k1 = k0 + DS_PINNED_TERMS;
            float s[MINE] = {};
            few_chains<R>(job, &shared[warp], row0, column0, k0, k1 < a.k ? k1 : a.k, s);
            DS_UNROLL
            for (int i = 0; i < MINE; i++)
                sums[warp * TILE + (lane / COLUMNS * MINE + i) * COLUMNS + lane % COLUMNS] = s[i];
        }
        __syncthreads();
        for (int q = 0; threadIdx.x < TILE && q < warps && b + q < blocks; q++) {
            const float s = sums[q * TILE + threadIdx.x];
            total = b + q == 0 ? s : total + s;
        }
        __syncthreads();
    }
    if (threadIdx.x < TILE)
        put(a, row0 + threadIdx.x / COLUMNS, column0 + threadIdx.x % COLUMNS, total);
}

/* ---- tiles --------------------------------------------------------------------------------------------- */

enum { DEPTH = 16 };

/* What a thread read before, turned: a row of k's is a column in shared memory. */
template <int ROWS, int THREADS>
__device__ __forceinline__ void turn(float (*to)[ROWS + 4], const float4 *from, int thread)
{
    DS_UNROLL
    for (int i = 0; i < ROWS * DEPTH / 4 / THREADS; i++) {
        const int at = thread + i * THREADS, r = at / (DEPTH / 4), t = at % (DEPTH / 4) * 4;
        to[t][r] = from[i].x;
        to[t + 1][r] = from[i].y;
        to[t + 2][r] = from[i].z;
        to[t + 3][r] = from[i].w;
    }
}

/* N of a row in shared memory: fours, SIZE / (N / 4) apart. */
template <int N, int SIZE> __device__ __forceinline__ void pick(float *to, const float *from)
{
    DS_UNROLL
    for (int g = 0; g < N / 4; g++) {
        const float4 v = four(from + g * (SIZE / (N / 4)));
        to[4 * g] = v.x;
        to[4 * g + 1] = v.y;
        to[4 * g + 2] = v.z;
        to[4 * g + 3] = v.w;
    }
}

/* Element i of what pick gave to thread number t of its row. */
template <int N, int SIZE> __device__ __forceinline__ int place(int t, int i)
{
    return i / 4 * (SIZE / (N / 4)) + 4 * t + i % 4;
}

/* One k more for all of a thread's chains. */
template <int ROWS, int COLS, int TR, int TC>
__device__ __forceinline__ void term(const float *x, const float *w, int down, int across,
                                     float (*s)[TC])
{
    float p[TR], q[TC];
    pick<TR, ROWS>(p, x + 4 * down);
    pick<TC, COLS>(q, w + 4 * across);
    DS_UNROLL
    for (int i = 0; i < TR; i++) {
        DS_UNROLL
        for (int j = 0; j < TC; j++)
            s[i][j] = ds_fma(p[i], q[j], s[i][j]);
    }
}

/* ROWS by COLS; a thread has TR by TC of it. */
template <int ROWS, int COLS, int TR, int TC>
__global__ void __launch_bounds__(ROWS / TR * COLS / TC) matmul_tiles(struct job job)
{
    enum { THREADS = ROWS / TR * COLS / TC, ACROSS = COLS / TC };
    __shared__ __align__(16) float xs[2][DEPTH][ROWS + 4], ws[2][DEPTH][COLS + 4];
    const struct ds_matmul_args &a = job.a;
    const int thread = (int)threadIdx.x, down = thread / ACROSS, across = thread % ACROSS;
    const int64_t row0 = (int64_t)blockIdx.x * ROWS, column0 = (int64_t)blockIdx.y * COLS;
    float4 x[ROWS * DEPTH / 4 / THREADS], w[COLS * DEPTH / 4 / THREADS];
    float s[TR][TC] = {}, total[TR][TC];
    DS_UNROLL
    for (int i = 0; i < TR; i++) {
        DS_UNROLL
        for (int j = 0; j < TC; j++)
            total[i][j] =
                a.k ? -0.0f : 0.0f; /* -0 + s is s, -0 and NaN included: the first is assigned */
    }
    fetch<ROWS, DEPTH, THREADS>(x, a.x, a.stored, job.x_fours, a.ldx, row0, a.rows, 0, a.k, thread);
    fetch<COLS, DEPTH, THREADS>(w, job.w, job.w_element, job.w_fours, a.k, column0, a.n, 0, a.k,
                                thread);
    int now = 0;
    for (int64_t k = 0; k < a.k; k += DEPTH, now ^= 1) {
        const int n = terms(k, a.k, DEPTH);
        /* The other half may still be read by those who are behind. */
        turn<ROWS, THREADS>(xs[now], x, thread);
        turn<COLS, THREADS>(ws[now], w, thread);
        __syncthreads();
        if (k + DEPTH < a.k) {
            fetch<ROWS, DEPTH, THREADS>(x, a.x, a.stored, job.x_fours, a.ldx, row0, a.rows,
                                        k + DEPTH, a.k, thread);
            fetch<COLS, DEPTH, THREADS>(w, job.w, job.w_element, job.w_fours, a.k, column0, a.n,
                                        k + DEPTH, a.k, thread);
        }
        if (n == DEPTH) {
            DS_UNROLL_FOUR
            for (int t = 0; t < DEPTH; t++)
                term<ROWS, COLS, TR, TC>(xs[now][t], ws[now][t], down, across, s);
        } else {
            for (int t = 0; t < n; t++)
                term<ROWS, COLS, TR, TC>(xs[now][t], ws[now][t], down, across, s);
        }
        if ((k + DEPTH) % DS_PINNED_TERMS && k + DEPTH < a.k)
            continue;
        DS_UNROLL
        for (int i = 0; i < TR; i++) {
            DS_UNROLL
            for (int j = 0; j < TC; j++) {
                total[i][j] = total[i][j] + s[i][j];
                s[i][j] = 0.0f;
            }
        }
    }
    DS_UNROLL
    for (int i = 0; i < TR; i++) {
        DS_UNROLL
        for (int j = 0; j < TC; j++)
            put(a, row0 + place<TR, ROWS>(down, i), column0 + place<TC, COLS>(across, j),
                total[i][j]);
    }
}

/* ---- the host's side ------------------------------------------------------------------------------- */

enum way { FEW_4, FEW_8, TILES_32, TILES_128 };
const struct {
    int rows, columns;
} tile[] = {{4, COLUMNS}, {8, COLUMNS}, {32, 64}, {128, 128}};

int64_t tiles_of(const struct ds_matmul_args *a, enum way way)
{
    return ds_ceil_div(a->rows, tile[way].rows) * ds_ceil_div(a->n, tile[way].columns);
}

enum way way_of(const struct ds_matmul_args *a, const struct ds_exec *exec)
{
    const int64_t half = ds_ceil_div(ds_device_sms(exec), 2);
    if (a->rows <= 4)
        return FEW_4;
    if (a->rows > 64 && tiles_of(a, TILES_128) >= half)
        return TILES_128;
    return a->rows > 16 && tiles_of(a, TILES_32) >= half ? TILES_32 : FEW_8;
}

/* Warps of a block: one for each block of k, as far as there is room; enough threads for a tile's sums. */
int warps_of(const struct ds_matmul_args *a)
{
    const int64_t blocks = ds_ceil_div(a->k, DS_PINNED_TERMS);
    return blocks < 2 ? 2 : blocks < MOST_WARPS ? (int)blocks : (int)MOST_WARPS;
}

template <int R> int launch_few(const struct ds_device_call &call, const struct job &job)
{
    const int warps = warps_of(&job.a);
    const dim3 grid((unsigned)ds_ceil_div(job.a.n, COLUMNS), (unsigned)ds_ceil_div(job.a.rows, R));
    return DS_LAUNCH(call, matmul_few<R>, grid, (unsigned)warps * 32,
                     (size_t)warps * (sizeof(struct few<R>) + R * COLUMNS * sizeof(float)), job);
}

template <int ROWS, int COLS, int TR, int TC>
int launch_tiles(const struct ds_device_call &call, const struct job &job)
{
    const dim3 grid((unsigned)ds_ceil_div(job.a.rows, ROWS), (unsigned)ds_ceil_div(job.a.n, COLS));
    return DS_LAUNCH(call, (matmul_tiles<ROWS, COLS, TR, TC>), grid, ROWS / TR * COLS / TC, 0, job);
}

/* Whether each row of p begins at a multiple of four elements. */
int has_fours(const void *p, int element, int64_t ld)
{
    const uintptr_t bytes = element == DS_ELEMENT_F32 ? 16 : 8;
    return reinterpret_cast<uintptr_t>(p) % bytes == 0 && ld % 4 == 0;
}

int launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_matmul_args *a = static_cast<const struct ds_matmul_args *>(args);
    const struct ds_device_call call = {exec, why, why_size};
    struct job job = {*a, a->w.data ? a->w.data : a->w.file_data, ds_weights_element(&a->w), 0, 0};
    if (ds_weights_check(call, a) != 0)
        return -1;
    const enum way way = way_of(a, exec);
    const int64_t down = ds_ceil_div(a->rows, tile[way].rows),
                  across = ds_ceil_div(a->n, tile[way].columns);
    if (way >= TILES_32 ? across > 65535 : down > 65535)
        return ds_device_refuse(call, "%lld rows of %lld columns are more than a grid has",
                                (long long)a->rows, (long long)a->n);
    if (a->rows < 1 || a->n < 1)
        return 0;
    job.x_fours = has_fours(a->x, a->stored, a->ldx);
    job.w_fours = has_fours(job.w, job.w_element, a->k);
    return way == FEW_4      ? launch_few<4>(call, job)
           : way == FEW_8    ? launch_few<8>(call, job)
           : way == TILES_32 ? launch_tiles<32, 64, 4, 4>(call, job)
                             : launch_tiles<128, 128, 8, 8>(call, job);
}

int describe(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    const struct ds_matmul_args *a = static_cast<const struct ds_matmul_args *>(args);
    const enum way way = way_of(a, exec);
    memset(out, 0, sizeof *out);
    out->tile_rows = tile[way].rows;
    out->tile_cols = tile[way].columns;
    out->tile_k = DS_PINNED_TERMS;
    out->split = (int)ds_ceil_div(a->k, DS_PINNED_TERMS);
    return 0;
}

} /* namespace */

DS_DEVICE_VARIANT_FULL(matmul_pinned, DS_OP_MATMUL, "pinned", DS_CLAIM_ALL,
                       DS_FEATURE_STORED | DS_FEATURE_FILE_WEIGHTS, nullptr, launch, describe,
                       "K in blocks of 256, one fma chain a block in ascending k, block sums added "
                       "in ascending order");
