/* digest.cu: probe_kernels.h for the threads of a device.
 *
 * XXH3-64 of a row of more than 240 bytes has two phases. 1: the sums of its blocks of 1024 bytes need
 * nothing of each other; each warp of the row's block of threads makes those of one block of bytes
 * after another. 2: the sums are added to eight accumulators, which are scrambled after each, so that
 * goes in order, by eight lanes; then the last 64 bytes and the merge. Shorter rows: a thread a row.
 * Integers alone, so nothing depends on the order of threads; the list of differing rows is made in
 * ascending order. */
#include "kernels/cuda/probe_kernels.h"

#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/xxh3.cuh"

namespace
{

enum { THREADS = 128, WARPS = THREADS / 32, BLOCK = 1024, STRIPE = 64, SUMS = 8 };
enum { SHORT = 240, CHUNK = 128 }; /* blocks of bytes whose sums are kept at a time */
const unsigned ALL = 0xffffffffu;

/* ---- digest ------------------------------------------------------------------------------------------ */

__global__ void digest_short(struct ds_probe_rows x, uint64_t *digest)
{
    const int64_t r = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (r < x.rows)
        digest[r] =
            ds_xxh_short(static_cast<const unsigned char *>(x.data) + r * x.ld_bytes, (int)x.bytes);
}

/* What 8 bytes give to their accumulator; the bytes themselves go to its neighbour's. */
__device__ __forceinline__ uint64_t product(uint64_t data, uint64_t key)
{
    const uint64_t v = data ^ key;
    return (v & 0xffffffffu) * (v >> 32);
}

/* Phase 1: sum lane % 8 over the first `stripes` stripes of a block of bytes, in every lane. A lane has four of the
 * sixteen; all are asked for before the first is needed. */
__device__ uint64_t block_sum(const unsigned char *p, int stripes, int lane)
{
    enum { EACH = BLOCK / STRIPE * SUMS / 32, STEP = 32 / SUMS };
    const int i = lane % SUMS, first = lane / SUMS;
    const unsigned char *own_at = p + first * STRIPE + 8 * i;
    uint64_t data[EACH], own = 0, neighbour = 0;
    if ((reinterpret_cast<uintptr_t>(p) & 7) == 0) {
        DS_UNROLL
        for (int j = 0; j < EACH; j++)
            data[j] = first + j * STEP < stripes
                          ? reinterpret_cast<const uint64_t *>(own_at)[j * STEP * STRIPE / 8]
                          : 0;
    } else {
        DS_UNROLL
        for (int j = 0; j < EACH; j++)
            data[j] = first + j * STEP < stripes ? ds_xxh_read(own_at + j * STEP * STRIPE) : 0;
    }
    DS_UNROLL
    for (int j = 0; j < EACH; j++) {
        const int n = first + j * STEP;
        if (n < stripes)
            own += product(data[j], ds_xxh_key(8 * n + 8 * i));
        neighbour += data[j];
    }
    own += __shfl_xor_sync(ALL, neighbour, 1);
    for (int with = SUMS; with < 32; with *= 2)
        own += __shfl_xor_sync(ALL, own, with);
    return own;
}

__device__ __forceinline__ uint64_t first_accumulator(int i)
{
    return i == 0   ? DS_XXH_32_3
           : i == 1 ? DS_XXH_64_1
           : i == 2 ? DS_XXH_64_2
           : i == 3 ? DS_XXH_64_3
           : i == 4 ? DS_XXH_64_4
           : i == 5 ? DS_XXH_32_2
           : i == 6 ? DS_XXH_64_5
                    : DS_XXH_32_1;
}

/* The last 64 bytes, and one number of the eight accumulators; by a whole warp. */
__device__ uint64_t merge(uint64_t acc, const unsigned char *end, int64_t bytes, int lane)
{
    const int i = lane % SUMS;
    const uint64_t data = ds_xxh_read(end - STRIPE + 8 * i);
    acc += product(data, ds_xxh_key(121 + 8 * i)) + __shfl_xor_sync(ALL, data, 1);
    const uint64_t v = acc ^ ds_xxh_key(11 + 8 * i);
    uint64_t h = ds_xxh_fold(v, __shfl_xor_sync(ALL, v, 1)); /* the same in both of a pair */
    h += __shfl_xor_sync(ALL, h, 2);
    h += __shfl_xor_sync(ALL, h, 4);
    return ds_xxh_avalanche((uint64_t)bytes * DS_XXH_64_1 + h);
}

__global__ void digest_long(struct ds_probe_rows x, uint64_t *digest)
{
    __shared__ uint64_t sums[CHUNK][SUMS];
    const unsigned char *p = static_cast<const unsigned char *>(x.data) + blockIdx.x * x.ld_bytes;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, i = lane % SUMS;
    /* Full ones; the last is never full, since the last byte is kept for the merge. */
    const int64_t full = (x.bytes - 1) / BLOCK;
    const int rest = (int)(x.bytes - 1 - full * BLOCK) / STRIPE;
    uint64_t acc = first_accumulator(i);
    for (int64_t first = 0; first <= full; first += CHUNK) {
        const int n = full + 1 - first < CHUNK ? (int)(full + 1 - first) : (int)CHUNK;
        for (int b = warp; b < n; b += WARPS) {
            const uint64_t s =
                block_sum(p + (first + b) * BLOCK, first + b < full ? BLOCK / STRIPE : rest, lane);
            if (lane < SUMS)
                sums[b][lane] = s;
        }
        __syncthreads();
        for (int b = 0; warp == 0 && b < n; b++) {
            acc += sums[b][i];
            if (first + b < full)
                acc = (acc ^ acc >> 47 ^ ds_xxh_key(128 + 8 * i)) * DS_XXH_32_1;
        }
        __syncthreads();
    }
    if (warp != 0)
        return;
    const uint64_t h = merge(acc, p + x.bytes, x.bytes, lane);
    if (lane == 0)
        digest[blockIdx.x] = h;
}

/* The largest bits without the sign: T as wide as an element. */
template <class T> __global__ void magnitudes(struct ds_probe_rows x, uint32_t *largest)
{
    __shared__ uint32_t of_warp[WARPS];
    const T *p = reinterpret_cast<const T *>(static_cast<const unsigned char *>(x.data) +
                                             blockIdx.x * x.ld_bytes);
    const T all = (T) ~((T)1 << (8 * sizeof(T) - 1));
    uint32_t most = 0;
    for (int64_t i = threadIdx.x; i < x.bytes / (int64_t)sizeof(T); i += THREADS)
        most = (uint32_t)(p[i] & all) > most ? (uint32_t)(p[i] & all) : most;
    for (int with = 16; with; with /= 2) {
        const uint32_t other = __shfl_xor_sync(ALL, most, with);
        most = other > most ? other : most;
    }
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = most;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    for (int w = 1; w < WARPS; w++)
        most = of_warp[w] > most ? of_warp[w] : most;
    largest[blockIdx.x] = most;
}

__global__ void zeros(uint32_t *to, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        to[i] = 0;
}

int launch_magnitudes(const struct ds_device_call &call, const struct ds_probe_rows &x, int element,
                      uint32_t *largest)
{
    if (element == DS_ELEMENT_I32)
        return DS_LAUNCH(call, zeros, (unsigned)ds_ceil_div(x.rows, THREADS), THREADS, 0, largest,
                         x.rows);
    if (element == DS_ELEMENT_F32)
        return DS_LAUNCH(call, magnitudes<uint32_t>, (unsigned)x.rows, THREADS, 0, x, largest);
    if (element == DS_ELEMENT_F16 || element == DS_ELEMENT_BF16)
        return DS_LAUNCH(call, magnitudes<uint16_t>, (unsigned)x.rows, THREADS, 0, x, largest);
    return ds_device_refuse(call, "digest: elements of type %d", element);
}

/* ---- watch ------------------------------------------------------------------------------------------- */

/* T: unsigned integers as wide as an element; an exponent of nothing but ones is not finite. */
template <class T>
__global__ void watch(struct ds_probe_rows x, T exponent, int32_t *count, int32_t *first)
{
    __shared__ int counts[WARPS], firsts[WARPS];
    const T *p = reinterpret_cast<const T *>(static_cast<const unsigned char *>(x.data) +
                                             blockIdx.x * x.ld_bytes);
    const int n = (int)(x.bytes / (int64_t)sizeof(T)), none = INT32_MAX;
    int have = 0, at = none;
    for (int i = (int)threadIdx.x; i < n; i += THREADS)
        if ((p[i] & exponent) == exponent) {
            have++;
            at = i < at ? i : at;
        }
    for (int with = 16; with; with /= 2) {
        have += __shfl_xor_sync(ALL, have, with);
        const int other = __shfl_xor_sync(ALL, at, with);
        at = other < at ? other : at;
    }
    if (threadIdx.x % 32 == 0) {
        counts[threadIdx.x / 32] = have;
        firsts[threadIdx.x / 32] = at;
    }
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    for (int w = 1; w < WARPS; w++) {
        have += counts[w];
        at = firsts[w] < at ? firsts[w] : at;
    }
    count[blockIdx.x] = have;
    first[blockIdx.x] = at == none ? -1 : at;
}

int watch_rows(const struct ds_probe_rows *x, int element, int32_t *count, int32_t *first,
               const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_device_call call = {exec, why, why_size};
    const unsigned size = element == DS_ELEMENT_F32 ? 4 : 2;
    if (element < DS_ELEMENT_F32 || element > DS_ELEMENT_BF16)
        return ds_device_refuse(call, "watch: elements of type %d", element);
    if (x->bytes / size > INT32_MAX)
        return ds_device_refuse(call, "watch: rows of %lld bytes", (long long)x->bytes);
    if (x->rows < 1)
        return 0;
    if (element == DS_ELEMENT_F32)
        return DS_LAUNCH(call, watch<uint32_t>, (unsigned)x->rows, THREADS, 0, *x, 0x7f800000u,
                         count, first);
    return DS_LAUNCH(call, watch<uint16_t>, (unsigned)x->rows, THREADS, 0, *x,
                     (uint16_t)(element == DS_ELEMENT_F16 ? 0x7c00 : 0x7f80), count, first);
}

/* ---- compare, heal, pack ------------------------------------------------------------------------------- */

/* One block: rows in steps of its threads, each step's differing rows behind those before. */
__global__ void list_differing(const uint64_t *digest, int64_t rows, const uint64_t *reference,
                               const int32_t *of, int32_t *list, int32_t *n)
{
    __shared__ int before[WARPS + 1];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int total = 0;
    for (int64_t first = 0; first < rows; first += THREADS) {
        const int64_t r = first + threadIdx.x;
        const int64_t at = r >= rows ? -1 : of ? of[r] : r;
        const int differs = at >= 0 && digest[r] != reference[at];
        const unsigned votes = __ballot_sync(ALL, differs);
        if (lane == 0)
            before[warp + 1] = __popc(votes);
        __syncthreads();
        if (threadIdx.x == 0) {
            before[0] = 0;
            for (int w = 0; w < WARPS; w++)
                before[w + 1] += before[w];
        }
        __syncthreads();
        if (differs)
            list[total + before[warp] + __popc(votes & ((1u << lane) - 1))] = (int32_t)r;
        total += before[WARPS];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        *n = total;
}

int compare_rows(const uint64_t *digest, int64_t rows, const uint64_t *reference, const int32_t *of,
                 int32_t *list, int32_t *n, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_device_call call = {exec, why, why_size};
    if (rows > INT32_MAX)
        return ds_device_refuse(call, "compare: %lld rows", (long long)rows);
    return DS_LAUNCH(call, list_differing, 1, THREADS, 0, digest, rows, reference, of, list, n);
}

/* Row list[i] of one array to that of another, block i; blocks behind the list's end do nothing, so that
 * its length need not be known on the host. packed: to row i. */
__global__ void copy_listed(struct ds_probe_rows from, const int32_t *of, const int32_t *list,
                            const int32_t *n, unsigned char *to, int64_t to_ld, int packed)
{
    const int i = (int)blockIdx.x;
    if (i >= *n)
        return;
    const int32_t r = list[i], source = of ? of[r] : r;
    const unsigned char *x = static_cast<const unsigned char *>(from.data) + source * from.ld_bytes;
    unsigned char *y = to + (packed ? i : r) * to_ld;
    if (((reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) & 3) == 0) {
        const int64_t words = from.bytes / 4;
        for (int64_t w = threadIdx.x; w < words; w += THREADS)
            reinterpret_cast<uint32_t *>(y)[w] = reinterpret_cast<const uint32_t *>(x)[w];
        for (int64_t b = words * 4 + threadIdx.x; b < from.bytes; b += THREADS)
            y[b] = x[b];
        return;
    }
    for (int64_t b = threadIdx.x; b < from.bytes; b += THREADS)
        y[b] = x[b];
}

int heal_rows(const struct ds_probe_rows *from, const int32_t *of, const int32_t *list,
              const int32_t *n, void *to, int64_t rows, int64_t to_ld_bytes,
              const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_device_call call = {exec, why, why_size};
    if (rows < 1)
        return 0;
    return DS_LAUNCH(call, copy_listed, (unsigned)rows, THREADS, 0, *from, of, list, n,
                     static_cast<unsigned char *>(to), to_ld_bytes, 0);
}

int pack_rows(const struct ds_probe_rows *x, const int32_t *list, const int32_t *n, void *to,
              const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_device_call call = {exec, why, why_size};
    const int32_t *same = nullptr;
    if (x->rows < 1)
        return 0;
    return DS_LAUNCH(call, copy_listed, (unsigned)x->rows, THREADS, 0, *x, same, list, n,
                     static_cast<unsigned char *>(to), x->bytes, 1);
}

} /* namespace */

int DS_DEVICE_KERNEL(digest_rows)(const struct ds_device_digest *g, const struct ds_exec *exec,
                                  char *why, size_t why_size)
{
    const struct ds_device_call call = {exec, why, why_size};
    const struct ds_probe_rows x = {g->x, g->n, g->row_bytes, g->stride};
    if (x.rows < 1)
        return 0;
    const int rc = x.bytes <= SHORT
                       ? DS_LAUNCH(call, digest_short, (unsigned)ds_ceil_div(x.rows, THREADS),
                                   THREADS, 0, x, g->digests)
                       : DS_LAUNCH(call, digest_long, (unsigned)x.rows, THREADS, 0, x, g->digests);
    return rc == 0 && g->largest ? launch_magnitudes(call, x, g->element, g->largest) : rc;
}

const struct ds_probe_kernels DS_DEVICE_KERNEL(probe_kernels) = {
    DS_DEVICE_KERNEL(digest_rows), watch_rows, compare_rows, heal_rows, pack_rows};
