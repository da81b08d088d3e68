/* matmul_openblas.c: y = x * w^T (+ bias) by the cblas_sgemm of an OpenBLAS opened at run time.
 *
 * Order and rounding: the library's own. It chooses tiles, the cut of K and the threads by M, N, K,
 * its core and its thread count, so a row's bits depend on the number of rows, on the row's place
 * among them and on the threads; only the repeat of the same call is promised. bias is added after,
 * rounded once more.
 *
 * Also a single row is an sgemm, not an sgemv: that is what a caller gets who hands every matmul to
 * the library. (llama.cpp keeps calls of fewer than 32 rows to itself.) With more threads than one
 * the caller's team is sent to sleep first, as the library's own threads want the same cores. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/openblas.h"
#include "kernels/cpu/sgemm_call.h"
#include "kernels/registry.h"

#include <string.h>

static int openblas_available(char *why, size_t why_size)
{
    struct ds_error err;
    return ds_blas_probe(&err) == 0 ? 0 : ds_cpu_refuse(why, why_size, "%s", err.msg);
}

static void sgemm(const struct ds_matmul_args *a)
{
    ds_blas_sgemm_nt((int)a->rows, (int)a->n, (int)a->k, a->x, (int)a->ldx, a->w.data, (int)a->k,
                     a->y, (int)a->ldy);
}

static int openblas_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_matmul_args *a = args;
    struct ds_error err;
    if (ds_sgemm_check(a, why, why_size) != 0)
        return -1;
    if (a->rows < 1)
        return 0;
    if (!ds_blas_is_open() && ds_blas_open(NULL, &err) != 0)
        return ds_cpu_refuse(why, why_size, "%s", err.msg);
    if (ds_blas_set_threads(exec->threads) != 0)
        return ds_cpu_refuse(why, why_size, "%s does not take %d threads (at most %d)",
                             ds_blas_config(), exec->threads, ds_blas_max_threads());
    return ds_sgemm_run(a, exec, sgemm, why, why_size);
}

static int openblas_describe(const void *args, const struct ds_exec *exec,
                             struct ds_launch_info *out)
{
    (void)args;
    /* The library does not say how many threads a call used; with one there is no choice. */
    *out = (struct ds_launch_info){.threads = exec->threads == 1 ? 1 : 0};
    strncpy(out->algo, ds_blas_core(), sizeof out->algo - 1);
    return 0;
}

const struct ds_kernel ds_matmul_openblas = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_MATMUL,
    .name = "openblas",
    .claims = DS_CLAIM_REPEAT,
    .available = openblas_available,
    .launch = openblas_launch,
    .describe = openblas_describe,
    .summary = "OpenBLAS cblas_sgemm; its order changes with M, N, K, core and threads"};
