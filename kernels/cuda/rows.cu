/* rows.cu: the ops that compute every element by itself: embed, cache, silu_mul, add, combine,
 * allreduce, transfer, process. A thread an element, blocks of 256 channels of one row.
 *
 *   pinned  no sum but those of combine (one fma chain over the experts in the order of choice, from
 *           +0) and allreduce (the first rank's value, then the others added in ascending rank);
 *           silu_mul as kernels/PINNED.md has it. NaN is stored as 7fc00000, but by transfer and
 *           process, which copy bits. */
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

__global__ void embed_pinned(const float *table, int64_t width, const int32_t *ids, float *y,
                             int64_t ldy)
{
    const int64_t i = channel(), r = blockIdx.y;
    if (i < width)
        y[r * ldy + i] = ds_stored(table[ids[r] * width + i]);
}

int embed_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_embed_args *a = static_cast<const struct ds_embed_args *>(args);
    const struct ds_device_call call = {exec, why, why_size};
    for (int64_t r = 0; exec->memory == DS_MEMORY_HOST && r < a->rows; r++)
        if (a->ids[r] < 0 || a->ids[r] >= a->vocab)
            return ds_device_refuse(call, "row %lld: id %d is not one of %lld", (long long)r,
                                    a->ids[r], (long long)a->vocab);
    for (int64_t r = 0; r < a->rows && a->width; r += ROWS_A_LAUNCH) {
        const int64_t n = a->rows - r < ROWS_A_LAUNCH ? a->rows - r : (int64_t)ROWS_A_LAUNCH;
        if (DS_LAUNCH(call, embed_pinned, grid_of(n, a->width), CHANNELS, 0, a->table, a->width,
                      a->ids + r, a->y + r * a->ldy, a->ldy) != 0)
            return -1;
    }
    return 0;
}

__global__ void cache_pinned(const float *x, int64_t ldx, int64_t width, float *cache,
                             int64_t page_size, const struct ds_sequence *seq)
{
    const struct ds_sequence s = *seq;
    const int64_t i = channel(), slot = (int64_t)s.kv_len - s.q_len + blockIdx.y;
    const int64_t row = s.pages[slot / page_size] * page_size + slot % page_size;
    if (i < width)
        cache[row * width + i] = ds_stored(x[(s.q_first + (int64_t)blockIdx.y) * ldx + i]);
}

int cache_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_cache_args *a = static_cast<const struct ds_cache_args *>(args);
    const struct ds_device_call call = {exec, why, why_size};
    if (ds_device_check_sequences(call, a->sequences, a->n_sequences, a->rows, a->page_size,
                                  a->pages) != 0)
        return -1;
    const struct ds_sequence *seqs = a->device_sequences ? a->device_sequences : a->sequences;
    for (int64_t q = 0; q < a->n_sequences && a->width; q++)
        if (a->sequences[q].q_len > 0 &&
            DS_LAUNCH(call, cache_pinned, grid_of(a->sequences[q].q_len, a->width), CHANNELS, 0,
                      a->x, a->ldx, a->width, a->cache, a->page_size, seqs + q) != 0)
            return -1;
    return 0;
}

/* y = f(a, b), element by element. */
enum pair_op { ADD, SILU_MUL };
template <int OP>
__global__ void pair_pinned(const float *a, int64_t lda, const float *b, int64_t ldb, float *y,
                            int64_t ldy, int64_t width)
{
    const int64_t i = channel(), r = blockIdx.y;
    if (i >= width)
        return;
    const float u = a[r * lda + i], v = b[r * ldb + i];
    if (OP == ADD)
        y[r * ldy + i] = ds_stored(u + v);
    else
        y[r * ldy + i] = ds_stored(u / (1.0f + ds_exp(-u)) * v);
}

template <int OP>
int pair_launch(const struct ds_device_call &call, int64_t rows, int64_t width, const float *a,
                int64_t lda, const float *b, int64_t ldb, float *y, int64_t ldy)
{
    for (int64_t r = 0; r < rows && width; r += ROWS_A_LAUNCH) {
        const int64_t n = rows - r < ROWS_A_LAUNCH ? rows - r : (int64_t)ROWS_A_LAUNCH;
        if (DS_LAUNCH(call, pair_pinned<OP>, grid_of(n, width), CHANNELS, 0, a + r * lda, lda,
                      b + r * ldb, ldb, y + r * ldy, ldy, width) != 0)
            return -1;
    }
    return 0;
}

int add_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_add_args *a = static_cast<const struct ds_add_args *>(args);
    return pair_launch<ADD>({exec, why, why_size}, a->rows, a->width, a->a, a->lda, a->b, a->ldb,
                            a->y, a->ldy);
}

int silu_mul_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_silu_mul_args *a = static_cast<const struct ds_silu_mul_args *>(args);
    return pair_launch<SILU_MUL>({exec, why, why_size}, a->rows, a->width, a->gate, a->ldx, a->up,
                                 a->ldx, a->y, a->ldy);
}

__global__ void combine_pinned(struct ds_combine_args a)
{
    const int64_t i = channel(), r = blockIdx.y;
    float s = 0.0f;
    if (i >= a.width)
        return;
    for (int64_t e = 0; e < a.top_k; e++)
        s = ds_fma(a.weights[r * a.top_k + e], a.x[(r * a.top_k + e) * a.ldx + i], s);
    a.y[r * a.ldy + i] = ds_stored(s);
}

int combine_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_combine_args *a = static_cast<const struct ds_combine_args *>(args);
    const struct ds_device_call call = {exec, why, why_size};
    if (a->top_k < 1)
        return ds_device_refuse(call, "%lld experts to combine", (long long)a->top_k);
    for (int64_t r = 0; r < a->rows && a->width; r += ROWS_A_LAUNCH) {
        struct ds_combine_args part = *a;
        part.rows = a->rows - r < ROWS_A_LAUNCH ? a->rows - r : (int64_t)ROWS_A_LAUNCH;
        part.x += r * a->top_k * a->ldx;
        part.weights += r * a->top_k;
        part.y += r * a->ldy;
        if (DS_LAUNCH(call, combine_pinned, grid_of(part.rows, a->width), CHANNELS, 0, part) != 0)
            return -1;
    }
    return 0;
}

/* One rank's rows: the first is stored, the others are added to what is there. */
template <int FIRST>
__global__ void allreduce_pinned(const float *x, int64_t ldx, float *y, int64_t ldy, int64_t width)
{
    const int64_t i = channel(), r = blockIdx.y;
    if (i >= width)
        return;
    const float v = x[r * ldx + i];
    y[r * ldy + i] = ds_stored(FIRST ? v : y[r * ldy + i] + v);
}

/* A launch a rank: a stream keeps them in order, and NaN as 7fc00000 between them changes nothing that is
 * stored at the end. */
int allreduce_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_allreduce_args *a = static_cast<const struct ds_allreduce_args *>(args);
    const struct ds_device_call call = {exec, why, why_size};
    if (a->ranks < 1)
        return ds_device_refuse(call, "%lld ranks", (long long)a->ranks);
    for (int64_t r = 0; r < a->rows && a->width; r += ROWS_A_LAUNCH) {
        const int64_t n = a->rows - r < ROWS_A_LAUNCH ? a->rows - r : (int64_t)ROWS_A_LAUNCH;
        for (int64_t rank = 0; rank < a->ranks; rank++) {
            const float *x = a->x[rank] + r * a->ldx;
            float *y = a->y + r * a->ldy;
            const int rc = rank == 0 ? DS_LAUNCH(call, allreduce_pinned<1>, grid_of(n, a->width),
                                                 CHANNELS, 0, x, a->ldx, y, a->ldy, a->width)
                                     : DS_LAUNCH(call, allreduce_pinned<0>, grid_of(n, a->width),
                                                 CHANNELS, 0, x, a->ldx, y, a->ldy, a->width);
            if (rc != 0)
                return -1;
        }
    }
    return 0;
}

__global__ void copy_bits(const unsigned *x, int64_t ldx, unsigned *y, int64_t ldy, int64_t width)
{
    const int64_t i = channel(), r = blockIdx.y;
    if (i < width)
        y[r * ldy + i] = x[r * ldx + i];
}

int copy_rows(const struct ds_device_call &call, int64_t rows, int64_t width, const float *x,
              int64_t ldx, float *y, int64_t ldy)
{
    for (int64_t r = 0; r < rows && width; r += ROWS_A_LAUNCH) {
        const int64_t n = rows - r < ROWS_A_LAUNCH ? rows - r : (int64_t)ROWS_A_LAUNCH;
        if (DS_LAUNCH(call, copy_bits, grid_of(n, width), CHANNELS, 0,
                      reinterpret_cast<const unsigned *>(x + r * ldx), ldx,
                      reinterpret_cast<unsigned *>(y + r * ldy), ldy, width) != 0)
            return -1;
    }
    return 0;
}

int transfer_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_transfer_args *a = static_cast<const struct ds_transfer_args *>(args);
    return copy_rows({exec, why, why_size}, a->rows, a->width, a->x, a->ldx, a->y, a->ldy);
}

int process_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_process_args *a = static_cast<const struct ds_process_args *>(args);
    return copy_rows({exec, why, why_size}, a->rows, a->vocab, a->logits, a->ldx, a->y, a->ldy);
}

/* Where a call stands is the host's business on every device: as the engine filled it in. */
int schedule_launch(const void *, const struct ds_exec *, char *, size_t)
{
    return 0;
}

} /* namespace */

DS_DEVICE_VARIANT(embed_pinned, DS_OP_EMBED, "pinned", DS_CLAIM_ALL, embed_launch,
                  "copies table rows, NaN as 7fc00000");
DS_DEVICE_VARIANT(cache_pinned, DS_OP_CACHE, "pinned", DS_CLAIM_ALL, cache_launch,
                  "copies rows into their pages, NaN as 7fc00000");
DS_DEVICE_VARIANT(add_pinned, DS_OP_ADD, "pinned", DS_CLAIM_ALL, add_launch, "a + b");
DS_DEVICE_VARIANT(silu_mul_pinned, DS_OP_SILU_MUL, "pinned", DS_CLAIM_ALL, silu_mul_launch,
                  "gate / (1 + exp(-gate)) * up with the project's exp");
DS_DEVICE_VARIANT(combine_pinned, DS_OP_COMBINE, "pinned", DS_CLAIM_ALL, combine_launch,
                  "one fma chain over the experts in the order of choice");
DS_DEVICE_VARIANT(allreduce_pinned, DS_OP_ALLREDUCE, "pinned", DS_CLAIM_ALL, allreduce_launch,
                  "ranks added in ascending order, the first assigned");
DS_DEVICE_VARIANT(transfer_pinned, DS_OP_TRANSFER, "pinned", DS_CLAIM_ALL, transfer_launch,
                  "copies rows, bit for bit");
DS_DEVICE_VARIANT(process_pinned, DS_OP_PROCESS, "pinned", DS_CLAIM_ALL, process_launch,
                  "logits as they are, bit for bit");
DS_DEVICE_VARIANT(schedule_pinned, DS_OP_SCHEDULE, "pinned", DS_CLAIM_ALL, schedule_launch,
                  "positions, lengths and pages as the engine counts them");
