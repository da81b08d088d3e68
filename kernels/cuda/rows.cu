/* rows.cu: the ops that compute every element by itself: embed, cache, silu_mul, add, combine,
 * allreduce, transfer, process. A thread an element, blocks of 256 channels of one row.
 *
 *   pinned  no sum but those of combine (one fma chain over the experts in the order of choice, from
 *           +0) and allreduce (the first rank's value, then the others added in ascending rank);
 *           silu_mul as kernels/PINNED.md has it. The store rounds (device.cuh), but transfer's and
 *           process', which copy bits. */
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/pinned.cuh"

namespace
{

enum { CHANNELS = 256 };

dim3 grid_of(int64_t rows, int64_t width)
{
    return dim3((unsigned)ds_ceil_div(width, CHANNELS), (unsigned)rows);
}

/* Rows of a grid: its second dimension has an end. */
enum { ROWS_A_LAUNCH = 65535 };

__device__ __forceinline__ int64_t channel()
{
    return (int64_t)blockIdx.x * CHANNELS + threadIdx.x;
}

template <class T>
__global__ void embed_pinned(const float *table, int64_t width, const int32_t *ids, T *y,
                             int64_t ldy)
{
    const int64_t i = channel(), r = blockIdx.y;
    if (i < width)
        ds_store(&y[r * ldy + i], table[ids[r] * width + i]);
}

/* Rows first..first+n-1 of a launch. */
struct part {
    int64_t first, n;
};

/* 1 and the next part of so many rows, 0 behind the last. Begins with {0, 0}. */
int next_part(struct part *p, int64_t rows)
{
    p->first += p->n;
    p->n = rows - p->first < ROWS_A_LAUNCH ? rows - p->first : (int64_t)ROWS_A_LAUNCH;
    return p->n > 0;
}

template <class T> int embed_as(const struct ds_device_call &call, const struct ds_embed_args &a)
{
    struct part p = {0, 0};
    while (a.width && next_part(&p, a.rows))
        if (DS_LAUNCH(call, embed_pinned<T>, grid_of(p.n, a.width), CHANNELS, 0, a.table, a.width,
                      a.ids + p.first, ds_as<T>(a.y) + p.first * a.ldy, a.ldy) != 0)
            return -1;
    return 0;
}

int embed_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_embed_args *a = static_cast<const struct ds_embed_args *>(args);
    const struct ds_device_call call = {exec, why, why_size};
    for (int64_t r = 0; exec->memory == DS_MEMORY_HOST && r < a->rows; r++)
        if (a->ids[r] < 0 || a->ids[r] >= a->vocab)
            return ds_device_refuse(call, "row %lld: id %d is not one of %lld", (long long)r,
                                    a->ids[r], (long long)a->vocab);
    return DS_BY_STORED(call, a->stored, embed_as, call, *a);
}

template <class T>
__global__ void cache_pinned(const T *x, int64_t ldx, int64_t width, T *cache, int64_t page_size,
                             const struct ds_sequence *sequences, int64_t n, int64_t first)
{
    const int64_t i = channel(), r = first + blockIdx.y;
    const struct ds_sequence s = *ds_sequence_of(sequences, n, r);
    const int64_t slot = (int64_t)s.kv_len - s.q_len + (r - s.q_first);
    const int64_t row = s.pages[slot / page_size] * page_size + slot % page_size;
    if (i < width)
        ds_store(&cache[row * width + i], ds_load(x[r * ldx + i]));
}

template <class T> int cache_as(const struct ds_device_call &call, const struct ds_cache_args &a)
{
    const struct ds_sequence *seqs = a.device_sequences ? a.device_sequences : a.sequences;
    struct part p = {0, 0};
    while (a.width && next_part(&p, a.rows))
        if (DS_LAUNCH(call, cache_pinned<T>, grid_of(p.n, a.width), CHANNELS, 0, ds_as<T>(a.x),
                      a.ldx, a.width, ds_as<T>(a.cache), a.page_size, seqs, a.n_sequences,
                      p.first) != 0)
            return -1;
    return 0;
}

int cache_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_cache_args *a = static_cast<const struct ds_cache_args *>(args);
    const struct ds_device_call call = {exec, why, why_size};
    if (ds_device_check_sequences(call, a->sequences, a->n_sequences, a->rows, a->page_size,
                                  a->pages) != 0)
        return -1;
    return DS_BY_STORED(call, a->stored, cache_as, call, *a);
}

/* y = f(a, b), element by element. */
enum pair_op { ADD, SILU_MUL };
template <class T, int OP>
__global__ void pair_pinned(const T *a, int64_t lda, const T *b, int64_t ldb, T *y, int64_t ldy,
                            int64_t width)
{
    const int64_t i = channel(), r = blockIdx.y;
    if (i >= width)
        return;
    const float u = ds_load(a[r * lda + i]), v = ds_load(b[r * ldb + i]);
    if (OP == ADD)
        ds_store(&y[r * ldy + i], u + v);
    else
        ds_store(&y[r * ldy + i], u / (1.0f + ds_exp(-u)) * v);
}

template <class T, int OP>
int pair_as(const struct ds_device_call &call, const struct ds_add_args &a)
{
    struct part p = {0, 0};
    while (a.width && next_part(&p, a.rows))
        if (DS_LAUNCH(call, (pair_pinned<T, OP>), grid_of(p.n, a.width), CHANNELS, 0,
                      ds_as<T>(a.a) + p.first * a.lda, a.lda, ds_as<T>(a.b) + p.first * a.ldb,
                      a.ldb, ds_as<T>(a.y) + p.first * a.ldy, a.ldy, a.width) != 0)
            return -1;
    return 0;
}
template <class T> int add_as(const struct ds_device_call &call, const struct ds_add_args &a)
{
    return pair_as<T, ADD>(call, a);
}
template <class T> int silu_mul_as(const struct ds_device_call &call, const struct ds_add_args &a)
{
    return pair_as<T, SILU_MUL>(call, a);
}

int add_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_add_args *a = static_cast<const struct ds_add_args *>(args);
    const struct ds_device_call call = {exec, why, why_size};
    return DS_BY_STORED(call, a->stored, add_as, call, *a);
}

int silu_mul_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_silu_mul_args *s = static_cast<const struct ds_silu_mul_args *>(args);
    const struct ds_device_call call = {exec, why, why_size};
    const struct ds_add_args a = {s->rows, s->width, s->gate, s->up,    s->ldx,
                                  s->ldx,  s->y,     s->ldy,  s->stored};
    return DS_BY_STORED(call, a.stored, silu_mul_as, call, a);
}

template <class T>
__global__ void combine_pinned(const T *x, int64_t ldx, const float *weights, int64_t top_k, T *y,
                               int64_t ldy, int64_t width)
{
    const int64_t i = channel(), r = blockIdx.y;
    float s = 0.0f;
    if (i >= width)
        return;
    for (int64_t e = 0; e < top_k; e++)
        s = ds_fma(weights[r * top_k + e], ds_load(x[(r * top_k + e) * ldx + i]), s);
    ds_store(&y[r * ldy + i], s);
}

template <class T>
int combine_as(const struct ds_device_call &call, const struct ds_combine_args &a)
{
    struct part p = {0, 0};
    while (a.width && next_part(&p, a.rows))
        if (DS_LAUNCH(call, combine_pinned<T>, grid_of(p.n, a.width), CHANNELS, 0,
                      ds_as<T>(a.x) + p.first * a.top_k * a.ldx, a.ldx,
                      a.weights + p.first * a.top_k, a.top_k, ds_as<T>(a.y) + p.first * a.ldy,
                      a.ldy, a.width) != 0)
            return -1;
    return 0;
}

int combine_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_combine_args *a = static_cast<const struct ds_combine_args *>(args);
    const struct ds_device_call call = {exec, why, why_size};
    if (a->top_k < 1)
        return ds_device_refuse(call, "%lld experts to combine", (long long)a->top_k);
    return DS_BY_STORED(call, a->stored, combine_as, call, *a);
}

/* The ranks' rows, handed over by value: the list of pointers is the host's. */
enum { MOST_RANKS = 64 };
template <class T> struct ranks {
    const T *x[MOST_RANKS];
    int n;
};

template <class T>
__global__ void allreduce_pinned(struct ranks<T> ranks, int64_t ldx, T *y, int64_t ldy,
                                 int64_t width)
{
    const int64_t i = channel(), r = blockIdx.y;
    if (i >= width)
        return;
    float s = ds_load(ranks.x[0][r * ldx + i]);
    for (int rank = 1; rank < ranks.n; rank++)
        s = s + ds_load(ranks.x[rank][r * ldx + i]);
    ds_store(&y[r * ldy + i], s);
}

template <class T>
int allreduce_as(const struct ds_device_call &call, const struct ds_allreduce_args &a)
{
    struct part p = {0, 0};
    while (a.width && next_part(&p, a.rows)) {
        struct ranks<T> ranks = {
        };
        ranks.n = (int)a.ranks;
        for (int rank = 0; rank < ranks.n; rank++)
            ranks.x[rank] = ds_as<T>(a.x[rank]) + p.first * a.ldx;
        if (DS_LAUNCH(call, allreduce_pinned<T>, grid_of(p.n, a.width), CHANNELS, 0, ranks, a.ldx,
                      ds_as<T>(a.y) + p.first * a.ldy, a.ldy, a.width) != 0)
            return -1;
    }
    return 0;
}

int allreduce_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_allreduce_args *a = static_cast<const struct ds_allreduce_args *>(args);
    const struct ds_device_call call = {exec, why, why_size};
    if (a->ranks < 1 || a->ranks > MOST_RANKS)
        return ds_device_refuse(call, "%lld ranks: 1 to %d are possible", (long long)a->ranks,
                                MOST_RANKS);
    return DS_BY_STORED(call, a->stored, allreduce_as, call, *a);
}

/* T: unsigned integers as wide as an element. */
template <class T>
__global__ void copy_bits(const T *x, int64_t ldx, T *y, int64_t ldy, int64_t width)
{
    const int64_t i = channel(), r = blockIdx.y;
    if (i < width)
        y[r * ldy + i] = x[r * ldx + i];
}

template <class T>
int copy_rows(const struct ds_device_call &call, int64_t rows, int64_t width, const float *x,
              int64_t ldx, float *y, int64_t ldy)
{
    struct part p = {0, 0};
    while (width && next_part(&p, rows))
        if (DS_LAUNCH(call, copy_bits<T>, grid_of(p.n, width), CHANNELS, 0,
                      ds_as<T>(x) + p.first * ldx, ldx, ds_as<T>(y) + p.first * ldy, ldy,
                      width) != 0)
            return -1;
    return 0;
}

int transfer_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_transfer_args *a = static_cast<const struct ds_transfer_args *>(args);
    const struct ds_device_call call = {exec, why, why_size};
    return a->stored == DS_ELEMENT_F32
               ? copy_rows<uint32_t>(call, a->rows, a->width, a->x, a->ldx, a->y, a->ldy)
               : copy_rows<uint16_t>(call, a->rows, a->width, a->x, a->ldx, a->y, a->ldy);
}

int process_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_process_args *a = static_cast<const struct ds_process_args *>(args);
    return copy_rows<uint32_t>({exec, why, why_size}, a->rows, a->vocab, a->logits, a->ldx, a->y,
                               a->ldy);
}

/* Where a call stands is the host's business on every device: as the engine filled it in. */
int schedule_launch(const void *, const struct ds_exec *, char *, size_t)
{
    return 0;
}

} /* namespace */

DS_DEVICE_VARIANT_STORED(embed_pinned, DS_OP_EMBED, "pinned", DS_CLAIM_ALL, embed_launch,
                         "copies table rows, NaN as 7fc00000");
DS_DEVICE_VARIANT_STORED(cache_pinned, DS_OP_CACHE, "pinned", DS_CLAIM_ALL, cache_launch,
                         "copies rows into their pages, NaN as 7fc00000");
DS_DEVICE_VARIANT_STORED(add_pinned, DS_OP_ADD, "pinned", DS_CLAIM_ALL, add_launch, "a + b");
DS_DEVICE_VARIANT_STORED(silu_mul_pinned, DS_OP_SILU_MUL, "pinned", DS_CLAIM_ALL, silu_mul_launch,
                         "gate / (1 + exp(-gate)) * up with the project's exp");
DS_DEVICE_VARIANT_STORED(combine_pinned, DS_OP_COMBINE, "pinned", DS_CLAIM_ALL, combine_launch,
                         "one fma chain over the experts in the order of choice");
DS_DEVICE_VARIANT_STORED(allreduce_pinned, DS_OP_ALLREDUCE, "pinned", DS_CLAIM_ALL,
                         allreduce_launch, "ranks added in ascending order, the first assigned");
DS_DEVICE_VARIANT_STORED(transfer_pinned, DS_OP_TRANSFER, "pinned", DS_CLAIM_ALL, transfer_launch,
                         "copies rows, bit for bit");
DS_DEVICE_VARIANT(process_pinned, DS_OP_PROCESS, "pinned", DS_CLAIM_ALL, process_launch,
                  "logits as they are, bit for bit");
DS_DEVICE_VARIANT(schedule_pinned, DS_OP_SCHEDULE, "pinned", DS_CLAIM_ALL, schedule_launch,
                  "positions, lengths and pages as the engine counts them");
