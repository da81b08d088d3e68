/* softmax.cu: softmax over a row, the router made of it, and the choice of a token. A block a row.
 *
 *   softmax/pinned  maximum: 16 interleaved lanes, then the tree; terms exp(x - m) summed in blocks of
 *                   256, each in 16 interleaved lanes and the tree, block sums added in ascending
 *                   order, the first assigned; y = term / sum; the store rounds.
 *   router/pinned   that softmax over all experts; the lower index wins a tie, NaN comes last; the
 *                   weights added in the order of choice.
 *   sample/pinned   no arithmetic: the lowest index of the largest logit, NaN never. */
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/pinned.cuh"

namespace
{

enum { THREADS = 128, HALVES = THREADS / DS_PINNED_SUMS };

template <class T> __global__ void softmax_pinned(struct ds_softmax_args a)
{
    __shared__ float shared[HALVES + 2];
    const int64_t r = blockIdx.x;
    const T *x = ds_as<T>(a.x) + r * a.ldx;
    T *y = ds_as<T>(a.y) + r * a.ldy;
    float max, sum;
    ds_softmax_sums(x, a.width, shared, &max, &sum);
    for (int64_t i = threadIdx.x; i < a.width; i += THREADS)
        ds_store(&y[i], ds_term(ds_load(x[i]), max) / sum);
}

template <class T>
int softmax_as(const struct ds_device_call &call, const struct ds_softmax_args &a)
{
    return DS_LAUNCH(call, softmax_pinned<T>, (unsigned)a.rows, THREADS, 0, a);
}

int softmax_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_softmax_args *a = static_cast<const struct ds_softmax_args *>(args);
    const struct ds_device_call call = {exec, why, why_size};
    if (a->rows < 1 || a->width < 1)
        return 0;
    return DS_BY_STORED(call, a->stored, softmax_as, call, *a);
}

/* ---- router ---------------------------------------------------------------------------------------- */

/* Whether expert i with logit a is chosen before expert j with logit b; -1 is no expert. */
__device__ __forceinline__ int comes_before(float a, int i, float b, int j)
{
    if (i < 0 || j < 0)
        return j < 0 && i >= 0;
    if ((a != a) != (b != b))
        return b != b;
    return a > b || (!(a < b) && i < j);
}

/* The first of the experts that come after `last` (-1: all); of the whole warp, for every lane. */
template <class T> __device__ int next_choice(const T *x, int experts, int last)
{
    float best = 0.0f;
    int chosen = -1;
    for (int i = (int)threadIdx.x; i < experts; i += 32)
        if ((last < 0 || (i != last && comes_before(ds_load(x[last]), last, ds_load(x[i]), i))) &&
            comes_before(ds_load(x[i]), i, best, chosen)) {
            best = ds_load(x[i]);
            chosen = i;
        }
    for (int with = 16; with; with /= 2) {
        const float v = __shfl_xor_sync(0xffffffffu, best, with);
        const int i = __shfl_xor_sync(0xffffffffu, chosen, with);
        if (comes_before(v, i, best, chosen)) {
            best = v;
            chosen = i;
        }
    }
    return chosen;
}

template <class T> __global__ void router_pinned(struct ds_router_args a)
{
    __shared__ float shared[HALVES + 2];
    const int64_t r = blockIdx.x;
    const T *x = ds_as<T>(a.logits) + r * a.ldx;
    int32_t *ids = a.ids + r * a.top_k;
    float *weights = a.weights + r * a.top_k, max, sum, total = 0.0f;
    int last = -1;
    ds_softmax_sums(x, a.experts, shared, &max, &sum);
    if (threadIdx.x >= 32)
        return;
    for (int64_t j = 0; j < a.top_k; j++) {
        last = next_choice(x, (int)a.experts, last);
        const float w = ds_stored(ds_term(ds_load(x[last]), max) / sum);
        total = j == 0 ? w : total + w;
        if (threadIdx.x == 0) {
            ids[j] = last;
            weights[j] = w;
        }
    }
    for (int64_t j = 0; a.normalise && threadIdx.x == 0 && j < a.top_k; j++)
        weights[j] = ds_stored(weights[j] / total);
}

template <class T> int router_as(const struct ds_device_call &call, const struct ds_router_args &a)
{
    return DS_LAUNCH(call, router_pinned<T>, (unsigned)a.rows, THREADS, 0, a);
}

int router_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_router_args *a = static_cast<const struct ds_router_args *>(args);
    const struct ds_device_call call = {exec, why, why_size};
    if (a->experts < 1 || a->experts > INT32_MAX || a->top_k < 1 || a->top_k > a->experts)
        return ds_device_refuse(call, "%lld of %lld experts cannot be chosen", (long long)a->top_k,
                                (long long)a->experts);
    if (a->rows < 1)
        return 0;
    return DS_BY_STORED(call, a->stored, router_as, call, *a);
}

/* ---- sample ---------------------------------------------------------------------------------------- */

/* Whether logit a at i is taken before b at j; -1 is none. Neither is NaN. */
__device__ __forceinline__ int is_better(float a, int i, float b, int j)
{
    if (i < 0 || j < 0)
        return j < 0 && i >= 0;
    return a > b || (a == b && i < j);
}

__device__ void best_of_warp(float *best, int *at)
{
    for (int with = 16; with; with /= 2) {
        const float v = __shfl_xor_sync(0xffffffffu, *best, with);
        const int i = __shfl_xor_sync(0xffffffffu, *at, with);
        if (is_better(v, i, *best, *at)) {
            *best = v;
            *at = i;
        }
    }
}

__global__ void sample_pinned(const float *logits, int64_t ldx, int vocab, int32_t *ids)
{
    __shared__ float values[THREADS / 32];
    __shared__ int places[THREADS / 32];
    const float *x = logits + (int64_t)blockIdx.x * ldx;
    const int warp = (int)threadIdx.x / 32;
    float best = 0.0f;
    int at = -1;
    for (int i = (int)threadIdx.x; i < vocab; i += THREADS)
        if (x[i] == x[i] && is_better(x[i], i, best, at)) {
            best = x[i];
            at = i;
        }
    best_of_warp(&best, &at);
    if (threadIdx.x % 32 == 0) {
        values[warp] = best;
        places[warp] = at;
    }
    __syncthreads();
    for (int w = 0; threadIdx.x == 0 && w < THREADS / 32; w++)
        if (is_better(values[w], places[w], best, at)) {
            best = values[w];
            at = places[w];
        }
    if (threadIdx.x == 0)
        ids[blockIdx.x] = at < 0 ? 0 : at;
}

int sample_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_sample_args *a = static_cast<const struct ds_sample_args *>(args);
    const struct ds_device_call call = {exec, why, why_size};
    if (a->vocab < 1 || a->vocab > INT32_MAX)
        return ds_device_refuse(call, "a vocabulary of %lld", (long long)a->vocab);
    if (a->rows < 1)
        return 0;
    return DS_LAUNCH(call, sample_pinned, (unsigned)a->rows, THREADS, 0, a->logits, a->ldx,
                     (int)a->vocab, a->ids);
}

} /* namespace */

DS_DEVICE_VARIANT_STORED(
    softmax_pinned, DS_OP_SOFTMAX, "pinned", DS_CLAIM_ALL, softmax_launch,
    "16 lanes and a fixed tree, sums in blocks of 256 added in ascending order");
DS_DEVICE_VARIANT_STORED(router_pinned, DS_OP_ROUTER, "pinned", DS_CLAIM_ALL, router_launch,
                         "softmax/pinned over all experts; lower index on a tie, NaN last");
DS_DEVICE_VARIANT(sample_pinned, DS_OP_SAMPLE, "pinned", DS_CLAIM_ALL, sample_launch,
                  "largest logit, lowest index on a tie, NaN never");
