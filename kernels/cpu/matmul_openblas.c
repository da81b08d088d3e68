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
#include "base/fp_control.h"
#include "base/team.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/openblas.h"
#include "kernels/registry.h"

#include <limits.h>
#include <string.h>

static int openblas_available(char *why, size_t why_size)
{
    struct ds_error err;
    return ds_blas_probe(&err) == 0 ? 0 : ds_cpu_refuse(why, why_size, "%s", err.msg);
}

static int check(const struct ds_matmul_args *a, char *why, size_t why_size)
{
    if (a->w.n != a->n || a->w.k != a->k)
        return ds_cpu_refuse(why, why_size, "weights are %lld x %lld, the call says %lld x %lld",
                             (long long)a->w.n, (long long)a->w.k, (long long)a->n,
                             (long long)a->k);
    if (a->rows > INT_MAX || a->n > INT_MAX || a->k > INT_MAX || a->ldx > INT_MAX ||
        a->ldy > INT_MAX)
        return ds_cpu_refuse(why, why_size,
                             "M %lld, N %lld, K %lld: cblas_sgemm takes 32-bit sizes",
                             (long long)a->rows, (long long)a->n, (long long)a->k);
    if (a->ldx < a->k || a->ldy < a->n || a->k < 1) /* the library would print its own complaint */
        return ds_cpu_refuse(why, why_size, "rows of %lld and %lld values, %lld and %lld apart",
                             (long long)a->k, (long long)a->n, (long long)a->ldx,
                             (long long)a->ldy);
    return 0;
}

static int openblas_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_matmul_args *a = args;
    struct ds_error err;
    if (check(a, why, why_size) != 0)
        return -1;
    if (a->rows < 1)
        return 0;
    if (!ds_blas_is_open() && ds_blas_open(NULL, &err) != 0)
        return ds_cpu_refuse(why, why_size, "%s", err.msg);
    if (ds_blas_set_threads(exec->threads) != 0)
        return ds_cpu_refuse(why, why_size, "%s does not take %d threads (at most %d)",
                             ds_blas_config(), exec->threads, ds_blas_max_threads());
    if (exec->threads > 1)
        ds_team_rest();
    const uint32_t before = ds_fp_control();
    ds_blas_sgemm_nt((int)a->rows, (int)a->n, (int)a->k, a->x, (int)a->ldx, a->w.data, (int)a->k,
                     a->y, (int)a->ldy);
    const uint32_t after = ds_fp_control();
    if (ds_fp_restore(before))
        return ds_cpu_refuse(why, why_size, "cblas_sgemm left MXCSR at %04x, it was %04x",
                             (unsigned)after, (unsigned)before);
    if (a->bias)
        for (int64_t r = 0; r < a->rows; r++)
            for (int64_t j = 0; j < a->n; j++)
                a->y[r * a->ldy + j] += a->bias[j];
    return 0;
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
