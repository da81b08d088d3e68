/* probe_kernels.h: what a probe does where the rows lie: digests, the watch for values that are not
 * finite, which rows differ from a reference, and putting the reference in their place. Plain C, no
 * CUDA: the functions come as a table, of the device cuda or of sim.
 *
 * All pointers are the device's; a call puts its work in order on exec->stream (sim: it is done when
 * the call returns), waits for nothing and can be captured in a graph. rows and bytes may be 0. 0, or
 * -1 with a reason in `why`. */
#ifndef DS_PROBE_KERNELS_H
#define DS_PROBE_KERNELS_H

#include "kernels/device.h"
#include "kernels/driftscope_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* rows rows of `bytes` bytes, `ld_bytes` apart, at any address. */
struct ds_probe_rows {
    const void *data;
    int64_t rows, bytes, ld_bytes;
};

struct ds_probe_kernels {
    /* As struct ds_device_digest says: XXH3-64 (seed 0) of every row, and its largest magnitude. */
    int (*digest)(const struct ds_device_digest *g, const struct ds_exec *exec, char *why,
                  size_t why_size);
    /* count[r] = elements of row r that are NaN or infinite, first[r] = the index of the first, -1
     * where there is none. element: F32, F16 or BF16. */
    int (*watch)(const struct ds_probe_rows *x, int element, int32_t *count, int32_t *first,
                 const struct ds_exec *exec, char *why, size_t why_size);
    /* list[0..*n-1] = the rows, ascending, whose digest differs from reference[of[r]]; rows with
     * of[r] < 0 have no reference. of NULL: row r's is r. list has room for `rows`. */
    int (*compare)(const uint64_t *digest, int64_t rows, const uint64_t *reference,
                   const int32_t *of, int32_t *list, int32_t *n, const struct ds_exec *exec,
                   char *why, size_t why_size);
    /* For every row r of list[0..*n-1]: row of[r] of `from` to row r of `to` (heal: from the
     * reference). */
    int (*heal)(const struct ds_probe_rows *from, const int32_t *of, const int32_t *list,
                const int32_t *n, void *to, int64_t rows, int64_t to_ld_bytes,
                const struct ds_exec *exec, char *why, size_t why_size);
    /* Row list[i] of x to row i of `to`, side by side, for i < *n: what has to cross the bus. */
    int (*pack)(const struct ds_probe_rows *x, const int32_t *list, const int32_t *n, void *to,
                const struct ds_exec *exec, char *why, size_t why_size);
};

/* `digest` by itself. */
int ds_sim_digest_rows(const struct ds_device_digest *g, const struct ds_exec *exec, char *why,
                       size_t why_size);
int ds_sim_fma_digest_rows(const struct ds_device_digest *g, const struct ds_exec *exec, char *why,
                           size_t why_size);
int ds_cuda_digest_rows(const struct ds_device_digest *g, const struct ds_exec *exec, char *why,
                        size_t why_size);

/* Those of sim are compiled without and with the instructions of newer CPUs: the same bits. */
extern const struct ds_probe_kernels ds_sim_probe_kernels, ds_sim_fma_probe_kernels,
    ds_cuda_probe_kernels;

#ifdef __cplusplus
}
#endif
#endif
