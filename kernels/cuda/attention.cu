/* attention.cu: causal softmax attention over the paged cache, a row and head at a time.
 *
 *   pinned    KV in blocks of 256 slots counted from the request's first, merged in ascending order by
 *             online softmax; a score is 16 interleaved fma chains and the tree; all of it as
 *             kernels/PINNED.md has it. A block of threads has one row and head and takes its blocks
 *             of KV one after another; a thread a slot for scores, a thread a channel for values.
 *   split-kv  the slots that a row sees cut into as many equal parts as there are multiprocessors for
 *             each row and head (1 to 8, of 16 slots or more), as flash-decoding does. In a part a
 *             score is one fma chain over the channels, the maximum and the sum go over 128 threads
 *             (slot j of the part to thread j % 128, then shuffles, then warps in order), a channel
 *             of the values is one fma chain over the slots. A second kernel merges the parts in
 *             ascending order. So the bits depend on rows in the call, and on how much a row sees. */
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/pinned.cuh"

namespace
{

enum { THREADS = 128, MOST_PARTS = 8, LEAST_SLOTS = 16 };

/* Slots begin..end-1 are what a row sees. */
struct seen {
    const struct ds_sequence *s;
    int64_t first, begin, end;
};

__device__ struct seen what_row_sees(const struct ds_attention_args &a, int64_t row)
{
    struct seen v;
    v.s = ds_sequence_of(a.sequences, a.n_sequences, row);
    v.end = (int64_t)v.s->kv_len - v.s->q_len + (row - v.s->q_first) + 1;
    v.begin = v.first = v.s->kv_first;
    if (a.window > 0 && v.end - a.window > v.begin)
        v.begin = v.end - a.window;
    return v;
}

/* Where the slot's row and KV head begin in cache_k and cache_v. */
__device__ __forceinline__ int64_t cache_at(const struct ds_attention_args &a,
                                            const struct ds_sequence *s, int64_t slot,
                                            int64_t kv_head)
{
    const int64_t row = s->pages[slot / a.page_size] * a.page_size + slot % a.page_size;
    return (row * a.kv_heads + kv_head) * a.head_dim;
}

/* ---- pinned ------------------------------------------------------------------------------------------ */

template <class T>
__device__ float pinned_score(const struct ds_attention_args &a, const float *q, const T *k)
{
    float p[DS_PINNED_SUMS] = {};
    for (int64_t d = 0; d < a.head_dim; d += DS_PINNED_SUMS)
        for (int l = 0; l < DS_PINNED_SUMS && d + l < a.head_dim; l++)
            p[l] = ds_fma(q[d + l], ds_load(k[d + l]), p[l]);
    const float s = ds_tree_of(p) * a.scale;
    return a.soft_cap > 0.0f ? a.soft_cap * ds_tanh(s / a.soft_cap) : s;
}

/* Of the block's scores from..n-1, in the first warp; lane 0 has them. */
__device__ float lanes_max(const float *score, int from, int n)
{
    float m = ds_negative_infinity();
    for (int j = (int)threadIdx.x; threadIdx.x < DS_PINNED_SUMS && j < n; j += DS_PINNED_SUMS)
        if (j >= from)
            m = ds_max(score[j], m);
    return ds_tree_max(m);
}

__device__ float lanes_sum(const float *e, int from, int n)
{
    float l = 0.0f;
    for (int j = (int)threadIdx.x; threadIdx.x < DS_PINNED_SUMS && j < n; j += DS_PINNED_SUMS)
        if (j >= from)
            l = l + e[j];
    return ds_tree_sum(l);
}

/* What is merged so far, and the factors of the last merge. */
struct merged {
    float m, l, f, g;
};

__device__ void merge(struct merged *x, float m, float l)
{
    const float n = ds_max(m, x->m);
    x->f = ds_term(x->m, n);
    x->g = ds_term(m, n);
    x->l = ds_fma(x->l, x->f, l * x->g);
    x->m = n;
}

/* Terms of slots begin..begin+n-1 (from `from` on) in place of their scores; maximum and sum. */
template <class T>
__device__ void pinned_terms(const struct ds_attention_args &a, const struct seen &v, int64_t begin,
                             int from, int n, int64_t kv_head, const float *q, float *score,
                             float *max, float *sum)
{
    for (int j = (int)threadIdx.x; j < n; j += THREADS)
        if (j >= from)
            score[j] =
                pinned_score(a, q, ds_as<T>(a.cache_k) + cache_at(a, v.s, begin + j, kv_head));
    __syncthreads();
    if (threadIdx.x < 32) {
        const float m = lanes_max(score, from, n);
        if (threadIdx.x == 0)
            *max = m;
    }
    __syncthreads();
    for (int j = (int)threadIdx.x; j < n; j += THREADS)
        if (j >= from)
            score[j] = ds_term(score[j], *max);
    __syncthreads();
    if (threadIdx.x < 32) {
        const float l = lanes_sum(score, from, n);
        if (threadIdx.x == 0)
            *sum = l;
    }
}

template <class T>
__device__ float pinned_value(const struct ds_attention_args &a, const struct seen &v,
                              int64_t begin, int from, int n, int64_t kv_head, const float *e,
                              int64_t d)
{
    float s = 0.0f;
    for (int j = from; j < n; j++)
        s = ds_fma(e[j], ds_load(ds_as<T>(a.cache_v)[cache_at(a, v.s, begin + j, kv_head) + d]), s);
    return s;
}

/* Dynamic shared memory: q and the merged values of the head, scores of a block. */
template <class T> __global__ void attention_pinned(struct ds_attention_args a)
{
    DS_DYNAMIC_SHARED(float, shared);
    __shared__ struct merged state;
    __shared__ float max, sum;
    const int64_t row = blockIdx.x, head = blockIdx.y, kv_head = head / (a.heads / a.kv_heads);
    float *q = shared, *acc = shared + a.head_dim, *score = acc + a.head_dim;
    T *y = ds_as<T>(a.y) + row * a.ldy + head * a.head_dim;
    const struct seen v = what_row_sees(a, row);
    int64_t block = (v.begin - v.first) / DS_PINNED_TERMS;
    const int nothing = v.begin >= v.end;
    for (int64_t d = threadIdx.x; d < a.head_dim; d += THREADS)
        q[d] = ds_load(ds_as<T>(a.q)[row * a.ldq + head * a.head_dim + d]);
    __syncthreads();
    for (int first = 1; v.first + block * DS_PINNED_TERMS < v.end; block++, first = 0) {
        const int64_t begin = v.first + block * DS_PINNED_TERMS;
        const int from = v.begin > begin ? (int)(v.begin - begin) : 0;
        const int n = v.end - begin < DS_PINNED_TERMS ? (int)(v.end - begin) : DS_PINNED_TERMS;
        pinned_terms<T>(a, v, begin, from, n, kv_head, q, score, &max, &sum);
        if (threadIdx.x == 0 && first)
            state = {max, sum, 0.0f, 0.0f};
        else if (threadIdx.x == 0)
            merge(&state, max, sum);
        __syncthreads();
        for (int64_t d = threadIdx.x; d < a.head_dim; d += THREADS) {
            const float s = pinned_value<T>(a, v, begin, from, n, kv_head, score, d);
            acc[d] = first ? s : ds_fma(acc[d], state.f, s * state.g);
        }
        __syncthreads();
    }
    if (a.sinks && !nothing) {
        if (threadIdx.x == 0)
            merge(&state, a.sinks[head], 1.0f);
        __syncthreads();
        for (int64_t d = threadIdx.x; d < a.head_dim; d += THREADS)
            acc[d] = ds_fma(acc[d], state.f, 0.0f * state.g);
    }
    for (int64_t d = threadIdx.x; d < a.head_dim; d += THREADS)
        ds_store(&y[d], nothing ? 0.0f : acc[d] / state.l);
    if (a.lse && threadIdx.x == 0)
        a.lse[row * a.heads + head] =
            nothing ? ds_negative_infinity() : ds_stored(state.m + ds_log(state.l));
}

/* What kernels are given: no pointer to the host's sequences. */
struct ds_attention_args on_device(const struct ds_attention_args *a)
{
    struct ds_attention_args d = *a;
    d.sequences = a->device_sequences ? a->device_sequences : a->sequences;
    return d;
}

int check(const struct ds_device_call &call, const struct ds_attention_args *a)
{
    if (a->heads < 1 || a->kv_heads < 1 || a->heads % a->kv_heads || a->head_dim < 1)
        return ds_device_refuse(call, "%lld heads over %lld KV heads of %lld channels",
                                (long long)a->heads, (long long)a->kv_heads,
                                (long long)a->head_dim);
    if (a->heads > 65535 || a->head_dim > 4096)
        return ds_device_refuse(call, "%lld heads of %lld channels are more than a block has",
                                (long long)a->heads, (long long)a->head_dim);
    return ds_device_check_sequences(call, a->sequences, a->n_sequences, a->rows, a->page_size,
                                     a->pages);
}

template <class T>
int pinned_as(const struct ds_device_call &call, const struct ds_attention_args &a)
{
    return DS_LAUNCH(call, attention_pinned<T>, dim3((unsigned)a.rows, (unsigned)a.heads), THREADS,
                     (size_t)(2 * a.head_dim + DS_PINNED_TERMS) * sizeof(float), a);
}

int pinned_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_attention_args *a = static_cast<const struct ds_attention_args *>(args);
    const struct ds_device_call call = {exec, why, why_size};
    if (check(call, a) != 0)
        return -1;
    return a->rows < 1 ? 0 : DS_BY_STORED(call, a->stored, pinned_as, call, on_device(a));
}

int pinned_describe(const void *args, const struct ds_exec *, struct ds_launch_info *out)
{
    const struct ds_attention_args *a = static_cast<const struct ds_attention_args *>(args);
    memset(out, 0, sizeof *out);
    out->tile_rows = 1;
    out->tile_k = DS_PINNED_TERMS;
    out->split = (int)ds_ceil_div(a->max_kv_len, DS_PINNED_TERMS);
    return 0;
}

/* ---- split-kv ------------------------------------------------------------------------------------------ */

/* Sum or maximum over the block, for every thread; shared: a number a warp. */
template <int SUM> __device__ float over_block(float v, float *shared)
{
    for (int with = 16; with; with /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, v, with);
        v = SUM ? v + other : ds_max(v, other);
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = v;
    __syncthreads();
    v = shared[0];
    for (int w = 1; w < THREADS / 32; w++)
        v = SUM ? v + shared[w] : ds_max(v, shared[w]);
    return v;
}

/* Part blockIdx.z of a row and head: maximum, sum and values to state[row][head][part][2 + head_dim]. */
template <class T>
__global__ void attention_part(struct ds_attention_args a, float *state, int parts)
{
    DS_DYNAMIC_SHARED(float, shared);
    __shared__ float warps[THREADS / 32];
    const int64_t row = blockIdx.x, head = blockIdx.y, kv_head = head / (a.heads / a.kv_heads);
    const struct seen v = what_row_sees(a, row);
    const int64_t share = v.end > v.begin ? ds_ceil_div(v.end - v.begin, parts) : 0;
    const int64_t begin = v.begin + blockIdx.z * share;
    const int64_t end = begin + share < v.end ? begin + share : v.end;
    float *out = state + ((row * a.heads + head) * parts + blockIdx.z) * (2 + a.head_dim);
    float *q = shared, *acc = shared + a.head_dim, *e = acc + a.head_dim;
    float m = ds_negative_infinity(), l = 0.0f;
    for (int64_t d = threadIdx.x; d < a.head_dim; d += THREADS) {
        q[d] = ds_load(ds_as<T>(a.q)[row * a.ldq + head * a.head_dim + d]);
        acc[d] = 0.0f;
    }
    __syncthreads();
    for (int64_t at = begin; at < end; at += THREADS) {
        const int n = end - at < THREADS ? (int)(end - at) : (int)THREADS;
        const int mine = (int)threadIdx.x < n;
        float s = 0.0f;
        const T *k = ds_as<T>(a.cache_k) + (mine ? cache_at(a, v.s, at + threadIdx.x, kv_head) : 0);
        for (int64_t d = 0; mine && d < a.head_dim; d++)
            s = ds_fma(q[d], ds_load(k[d]), s);
        s = mine ? s * a.scale : ds_negative_infinity();
        const float top = over_block<0>(s, warps), next = ds_max(top, m), f = ds_term(m, next);
        const float term = ds_term(s, next);
        e[threadIdx.x] = term;
        l = ds_fma(l, f, over_block<1>(term, warps));
        m = next;
        for (int64_t d = threadIdx.x; d < a.head_dim; d += THREADS) {
            float sum = acc[d] * f;
            for (int j = 0; j < n; j++)
                sum = ds_fma(
                    e[j], ds_load(ds_as<T>(a.cache_v)[cache_at(a, v.s, at + j, kv_head) + d]), sum);
            acc[d] = sum;
        }
        __syncthreads();
    }
    for (int64_t d = threadIdx.x; d < a.head_dim; d += THREADS)
        out[2 + d] = acc[d];
    if (threadIdx.x == 0) {
        out[0] = m;
        out[1] = l;
    }
}

template <class T>
__global__ void attention_merge(struct ds_attention_args a, const float *state, int parts)
{
    const int64_t row = blockIdx.x, head = blockIdx.y, step = 2 + a.head_dim;
    const float *part = state + (row * a.heads + head) * parts * step;
    const struct seen v = what_row_sees(a, row);
    for (int64_t d = threadIdx.x; d < a.head_dim; d += blockDim.x) {
        struct merged x = {part[0], part[1], 0.0f, 0.0f};
        float acc = part[2 + d];
        for (int p = 1; p < parts; p++) {
            merge(&x, part[p * step], part[p * step + 1]);
            acc = ds_fma(acc, x.f, part[p * step + 2 + d] * x.g);
        }
        ds_store(&ds_as<T>(a.y)[row * a.ldy + head * a.head_dim + d],
                 v.begin < v.end ? acc / x.l : 0.0f);
    }
}

int parts_of(const struct ds_attention_args *a, const struct ds_exec *exec)
{
    const int64_t busy = a->rows * a->heads, most = a->max_kv_len / LEAST_SLOTS;
    int64_t parts = ds_device_sms(exec) / (busy ? busy : 1);
    parts = parts < most ? parts : most;
    parts = parts < MOST_PARTS ? parts : (int64_t)MOST_PARTS;
    return parts < 1 ? 1 : (int)parts;
}

size_t split_scratch(const void *args, int)
{
    const struct ds_attention_args *a = static_cast<const struct ds_attention_args *>(args);
    return (size_t)a->rows * (size_t)a->heads * MOST_PARTS * (size_t)(2 + a->head_dim) *
           sizeof(float);
}

template <class T>
int split_as(const struct ds_device_call &call, const struct ds_attention_args &a)
{
    float *state = static_cast<float *>(call.exec->scratch);
    const int parts = parts_of(&a, call.exec);
    if (DS_LAUNCH(call, attention_part<T>,
                  dim3((unsigned)a.rows, (unsigned)a.heads, (unsigned)parts), THREADS,
                  (size_t)(2 * a.head_dim + THREADS) * sizeof(float), a, state, parts) != 0)
        return -1;
    return DS_LAUNCH(call, attention_merge<T>, dim3((unsigned)a.rows, (unsigned)a.heads), 64, 0, a,
                     state, parts);
}

int split_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_attention_args *a = static_cast<const struct ds_attention_args *>(args);
    const struct ds_device_call call = {exec, why, why_size};
    if (check(call, a) != 0 || ds_device_check_scratch(call, split_scratch(args, 1)) != 0)
        return -1;
    return a->rows < 1 ? 0 : DS_BY_STORED(call, a->stored, split_as, call, on_device(a));
}

int split_describe(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    memset(out, 0, sizeof *out);
    out->tile_rows = 1;
    out->tile_k = THREADS;
    out->split = parts_of(static_cast<const struct ds_attention_args *>(args), exec);
    return 0;
}

} /* namespace */

DS_DEVICE_VARIANT_FULL(
    attention_pinned, DS_OP_ATTENTION, "pinned", DS_CLAIM_ALL,
    DS_FEATURE_WINDOW | DS_FEATURE_SOFT_CAP | DS_FEATURE_SINKS | DS_FEATURE_LSE | DS_FEATURE_STORED,
    nullptr, pinned_launch, pinned_describe,
    "KV in blocks of 256 from the request's first token, online softmax in block "
    "order");
DS_DEVICE_VARIANT_FULL(
    attention_split_kv, DS_OP_ATTENTION, "split-kv",
    DS_CLAIM_REPEAT | DS_CLAIM_SLOT | DS_CLAIM_THREADS, DS_FEATURE_STORED, split_scratch,
    split_launch, split_describe,
    "KV in 1 to 8 parts, as many as multiprocessors are free; merged in ascending "
    "order");
