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
 * device, and are neither those of the CPU nor those of another architecture. */
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/weights.cuh"

namespace
{

/* STRIPS: eight columns each, of a warp. */
enum {
    WARPS = 4,
    THREADS = 32 * WARPS,
    STAGE = 32,
    PITCH = STAGE + 8,
    COLUMNS = 64,
    OF_WARP = COLUMNS / WARPS,
    STRIPS = OF_WARP / 8
};

struct job {
    struct ds_matmul_args a;
    const void *w;
    int w_element;
};

/* ROWS rows from row0 and STAGE columns from k as T; zero outside of the matrix. S: what is read. */
template <int ROWS, class T, class S>
__device__ __forceinline__ void stage_as(T (*to)[PITCH], const S *from, int64_t ld, int64_t row0,
                                         int64_t rows, int64_t k, int64_t k1)
{
    for (int i = (int)threadIdx.x; i < ROWS * STAGE; i += THREADS) {
        const int r = i / STAGE, t = i % STAGE;
        const int there = row0 + r < rows && k + t < k1;
        ds_store(&to[r][t], there ? ds_load(from[(row0 + r) * ld + k + t]) : 0.0f);
    }
}

template <int ROWS, class T>
__device__ __forceinline__ void stage(T (*to)[PITCH], const void *from, int element, int64_t ld,
                                      int64_t row0, int64_t rows, int64_t k, int64_t k1)
{
    if (element == DS_ELEMENT_F32)
        stage_as<ROWS>(to, static_cast<const float *>(from), ld, row0, rows, k, k1);
    else if (element == DS_ELEMENT_BF16)
        stage_as<ROWS>(to, static_cast<const __nv_bfloat16 *>(from), ld, row0, rows, k, k1);
    else
        stage_as<ROWS>(to, static_cast<const __half *>(from), ld, row0, rows, k, k1);
}

/* Two neighbours of a row as one register. */
template <class T> __device__ __forceinline__ unsigned two(const T *p)
{
    return *reinterpret_cast<const unsigned *>(p);
}

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

/* TILES times 16 rows by COLUMNS; a warp has a quarter of the columns. */
template <class T, int TILES> __global__ void matmul_tc(struct job job)
{
    __shared__ __align__(16) T xs[16 * TILES][PITCH], ws[COLUMNS][PITCH];
    const struct ds_matmul_args &a = job.a;
    const int64_t row0 = (int64_t)blockIdx.x * 16 * TILES, column0 = (int64_t)blockIdx.y * COLUMNS;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int group = lane / 4, pair = lane % 4 * 2, mine = warp * OF_WARP;
    float d[TILES][STRIPS][4] = {};
    for (int64_t k = 0; k < a.k; k += STAGE) {
        stage<16 * TILES>(xs, a.x, a.stored, a.ldx, row0, a.rows, k, a.k);
        stage<COLUMNS>(ws, job.w, job.w_element, a.k, column0, a.n, k, a.k);
        __syncthreads();
        for (int t = 0; t < STAGE && k + t < a.k; t += 16) {
            for (int s = 0; s < STRIPS; s++) {
                const T *w = ws[mine + 8 * s + group] + t + pair;
                const unsigned b[2] = {two(w), two(w + 8)};
                for (int i = 0; i < TILES; i++) {
                    const T *x = xs[16 * i + group] + t + pair, *low = x + 8 * PITCH;
                    const unsigned r[4] = {two(x), two(low), two(x + 8), two(low + 8)};
                    ds_mma(T(), d[i][s], r, b);
                }
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < TILES; i++)
        for (int s = 0; s < STRIPS; s++)
            for (int e = 0; e < 4; e++)
                put(a, row0 + 16 * i + group + e / 2 * 8, column0 + mine + 8 * s + pair + e % 2,
                    d[i][s][e]);
}

/* ---- the host's side ------------------------------------------------------------------------------- */

int tiles_of(const struct ds_matmul_args *a)
{
    return a->rows <= 16 ? 1 : 4;
}

template <class T> int launch_as(const struct ds_device_call &call, const struct job &job)
{
    const int tiles = tiles_of(&job.a);
    const dim3 grid((unsigned)ds_ceil_div(job.a.rows, 16 * tiles),
                    (unsigned)ds_ceil_div(job.a.n, COLUMNS));
    if (tiles == 1)
        return DS_LAUNCH(call, (matmul_tc<T, 1>), grid, THREADS, 0, job);
    return DS_LAUNCH(call, (matmul_tc<T, 4>), grid, THREADS, 0, job);
}

int launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_matmul_args *a = static_cast<const struct ds_matmul_args *>(args);
    const struct ds_device_call call = {exec, why, why_size};
    const struct job job = {*a, a->w.data ? a->w.data : a->w.file_data, ds_weights_element(&a->w)};
    if (ds_weights_check(call, a) != 0)
        return -1;
    if (ds_ceil_div(a->n, COLUMNS) > 65535)
        return ds_device_refuse(call, "%lld columns are more than a grid has", (long long)a->n);
    if (a->rows < 1 || a->n < 1)
        return 0;
    const int f16 = a->stored == DS_ELEMENT_F16 ||
                    (a->stored == DS_ELEMENT_F32 && exec->dtype == DS_ELEMENT_F16);
    return f16 ? launch_as<__half>(call, job) : launch_as<__nv_bfloat16>(call, job);
}

int describe(const void *args, const struct ds_exec *, struct ds_launch_info *out)
{
    const struct ds_matmul_args *a = static_cast<const struct ds_matmul_args *>(args);
    memset(out, 0, sizeof *out);
    out->tile_rows = 16 * tiles_of(a);
    out->tile_cols = COLUMNS;
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
