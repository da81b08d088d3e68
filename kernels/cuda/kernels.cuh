/* kernels.cuh: what the .cu files share on the host's side: how a variant is declared, checks of a
 * call. */
#ifndef DS_KERNELS_CUH
#define DS_KERNELS_CUH

#include "kernels/cuda/device.cuh"

/* A variant; its symbol is ds_sim_NAME or ds_cuda_NAME. */
#define DS_DEVICE_VARIANT_FULL(NAME, OP, VARIANT, CLAIMS, FEATURES, SCRATCH, LAUNCH, DESCRIBE,     \
                               SUMMARY)                                                            \
    extern "C" const struct ds_kernel DS_DEVICE_KERNEL(NAME);                                      \
    const struct ds_kernel DS_DEVICE_KERNEL(NAME) = {.abi = DS_KERNEL_ABI,                         \
                                                     .op = OP,                                     \
                                                     .name = VARIANT,                              \
                                                     .summary = SUMMARY,                           \
                                                     .claims = CLAIMS,                             \
                                                     .features = FEATURES,                         \
                                                     .available = nullptr,                         \
                                                     .prepare = nullptr,                           \
                                                     .scratch_bytes = SCRATCH,                     \
                                                     .launch = LAUNCH,                             \
                                                     .describe = DESCRIBE,                         \
                                                     .declare = nullptr,                           \
                                                     .device = DS_DEVICE_HERE}
/* One that has nothing but a launch. */
#define DS_DEVICE_VARIANT(NAME, OP, VARIANT, CLAIMS, LAUNCH, SUMMARY)                              \
    DS_DEVICE_VARIANT_FULL(NAME, OP, VARIANT, CLAIMS, 0, nullptr, LAUNCH, nullptr, SUMMARY)
/* The same for a kernel that takes activations of any type. */
#define DS_DEVICE_VARIANT_STORED(NAME, OP, VARIANT, CLAIMS, LAUNCH, SUMMARY)                       \
    DS_DEVICE_VARIANT_FULL(NAME, OP, VARIANT, CLAIMS, DS_FEATURE_STORED, nullptr, LAUNCH, nullptr, \
                           SUMMARY)

/* Every slot of every sequence lies in a page of the cache, and the rows are covered once, in order.
 * Sequences and pages are the host's copies. */
static inline int ds_device_check_sequences(const struct ds_device_call &call,
                                            const struct ds_sequence *seqs, int64_t n, int64_t rows,
                                            int64_t page_size, int64_t pages)
{
    int64_t next = 0;
    if (page_size < 1)
        return ds_device_refuse(call, "page_size %lld", (long long)page_size);
    for (int64_t i = 0; i < n; i++) {
        const struct ds_sequence *s = &seqs[i];
        if (s->q_first != next)
            return ds_device_refuse(call, "sequence %lld begins at row %d, not %lld", (long long)i,
                                    s->q_first, (long long)next);
        if (s->q_len < 0 || s->kv_len < s->q_len || s->kv_first < 0)
            return ds_device_refuse(call,
                                    "request %d: q_len %d, kv_len %d, kv_first %d make no sense",
                                    s->request, s->q_len, s->kv_len, s->kv_first);
        for (int64_t p = 0; p * page_size < s->kv_len; p++)
            if (s->pages[p] < 0 || s->pages[p] >= pages)
                return ds_device_refuse(
                    call, "request %d: page %d of slot %lld is not one of the cache's %lld pages",
                    s->request, s->pages[p], (long long)(p * page_size), (long long)pages);
        next += s->q_len;
    }
    if (next != rows)
        return ds_device_refuse(call, "sequences cover %lld rows of %lld", (long long)next,
                                (long long)rows);
    return 0;
}

/* The sequence that owns a row: sequences cover all rows in ascending order. */
__device__ static inline const struct ds_sequence *
ds_sequence_of(const struct ds_sequence *sequences, int64_t n, int64_t row)
{
    int64_t low = 0, high = n - 1;
    while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        if (sequences[middle].q_first <= row)
            low = middle;
        else
            high = middle - 1;
    }
    return &sequences[low];
}

#endif
