/* matmul_cblas.c: y = x * w^T (+ bias) by the cblas_sgemm of a library that the user names.
 *
 * Order and rounding: the library's own, and so is what they depend on; only the repeat of the same
 * call is promised. bias is added after, rounded once more. The weights are handed over as they are
 * in each call: what the library packs, it packs each time.
 *
 * cblas-packed: the same by cblas_sgemm_compute on weights that the library packed ahead, as MKL can:
 * the comparison that is fair to variants which pack theirs. It takes another path through the
 * library, whose bits may differ from cblas_sgemm's at the same number of rows. */
#include "base/fp_control.h"
#include "base/mem.h"
#include "kernels/cblas.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/sgemm_call.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int cblas_available(char *why, size_t why_size)
{
    return *ds_cblas_path() ? 0
                            : ds_cpu_refuse(why, why_size, "no library was given (--blas FILE.so)");
}

static void sgemm(const struct ds_matmul_args *a)
{
    ds_cblas_sgemm_nt(a->rows, a->n, a->k, a->x, a->ldx, a->w.data, a->k, a->y, a->ldy);
}

/* Opens the library, once; engines prepare weights on several threads. */
static int open_library(char *why, size_t why_size)
{
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    struct ds_error err;
    pthread_mutex_lock(&once);
    int rc = ds_cblas_open(&err);
    pthread_mutex_unlock(&once);
    return rc == 0 ? 0 : ds_cpu_refuse(why, why_size, "%s", err.msg);
}

static int launch(const struct ds_matmul_args *a, const struct ds_exec *exec,
                  void (*multiply)(const struct ds_matmul_args *a), char *why, size_t why_size)
{
    if (open_library(why, why_size) != 0)
        return -1;
    if (ds_cblas_set_threads(exec->threads) < 0)
        return ds_cpu_refuse(why, why_size, "%s does not take %d threads", ds_cblas_config(),
                             exec->threads);
    return ds_sgemm_run(a, exec, multiply, why, why_size);
}

static int cblas_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_matmul_args *a = args;
    if (ds_sgemm_check(a, why, why_size) != 0)
        return -1;
    return a->rows < 1 || a->n < 1 ? 0 : launch(a, exec, sgemm, why, why_size);
}

/* ---- packed ahead ---------------------------------------------------------------------------- */

static int packed_available(char *why, size_t why_size)
{
    if (cblas_available(why, why_size) != 0)
        return -1;
    const int packs = ds_cblas_packs();
    if (packs > 0)
        return 0;
    return packs ? ds_cpu_refuse(why, why_size,
                                 "%s multiplies two small matrices wrongly with packed weights",
                                 ds_cblas_file())
                 : ds_cpu_refuse(why, why_size,
                                 "%s cannot pack weights ahead (no cblas_sgemm_pack, _compute)",
                                 ds_cblas_file());
}

static int packed_prepare(const struct ds_weight_view *w, void **prepared, size_t *bytes_out,
                          char *why, size_t why_size)
{
    if (!w->data)
        return ds_cpu_refuse(why, why_size, "this variant needs the weights as f32");
    if (w->n > INT_MAX || w->k > INT_MAX || w->n < 1 || w->k < 1)
        return ds_cpu_refuse(why, why_size, "N %lld, K %lld: the library takes 1 to 2^31 - 1",
                             (long long)w->n, (long long)w->k);
    if (open_library(why, why_size) != 0)
        return -1;
    const size_t bytes = ds_cblas_packed_bytes(w->n, w->k);
    if (!bytes)
        return ds_cpu_refuse(why, why_size, "%s cannot pack weights ahead", ds_cblas_file());
    void *to = ds_memory_lacks(bytes) ? NULL : aligned_alloc(DS_CBLAS_PACKED_ALIGN, bytes);
    if (!to)
        return ds_cpu_refuse(why, why_size, "out of memory for %zu bytes of packed weights", bytes);
    memset(to, 0, bytes); /* what the library leaves alone is stored, too */
    const uint32_t fp = ds_fp_control();
    ds_cblas_pack(w->n, w->k, w->data, w->k, to);
    ds_fp_restore(fp);
    *prepared = to;
    *bytes_out = bytes;
    return 0;
}

static void sgemm_packed(const struct ds_matmul_args *a)
{
    ds_cblas_sgemm_packed(a->rows, a->n, a->k, a->x, a->ldx, a->prepared, a->y, a->ldy);
}

static int packed_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_matmul_args *a = args;
    if (ds_sgemm_check(a, why, why_size) != 0)
        return -1;
    if (a->rows < 1 || a->n < 1)
        return 0;
    if (!a->prepared || (uintptr_t)a->prepared % DS_CBLAS_PACKED_ALIGN)
        return ds_cpu_refuse(why, why_size, "the weights were not packed%s",
                             a->prepared ? " at an address that is a multiple of a page" : "");
    return launch(a, exec, sgemm_packed, why, why_size);
}

/* ---- both ------------------------------------------------------------------------------------ */

static int cblas_describe(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    (void)args;
    /* The library does not say how many threads a call used; with one there is no choice, if it
     * takes the number at all. */
    *out = (struct ds_launch_info){0};
    if (ds_cblas_open(NULL) == 0 && exec->threads == 1 && ds_cblas_set_threads(1) == 0)
        out->threads = 1;
    snprintf(out->algo, sizeof out->algo, "%.*s", (int)sizeof out->algo - 1, ds_cblas_config());
    return 0;
}

const struct ds_kernel ds_matmul_cblas = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_MATMUL,
    .name = "cblas",
    .claims = DS_CLAIM_REPEAT,
    .available = cblas_available,
    .launch = cblas_launch,
    .describe = cblas_describe,
    .summary = "cblas_sgemm of the library given with --blas FILE.so; the order is its own"};

const struct ds_kernel ds_matmul_cblas_packed = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_MATMUL,
    .name = "cblas-packed",
    .claims = DS_CLAIM_REPEAT,
    .available = packed_available,
    .prepare = packed_prepare,
    .launch = packed_launch,
    .describe = cblas_describe,
    .summary = "cblas_sgemm_compute of that library, on weights that it packed ahead (MKL)"};
