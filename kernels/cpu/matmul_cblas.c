/* matmul_cblas.c: y = x * w^T (+ bias) by the cblas_sgemm of a library that the user names.
 *
 * Order and rounding: the library's own, and so is what they depend on; only the repeat of the same
 * call is promised. bias is added after, rounded once more. The weights are handed over as they are
 * in each call: what the library packs, it packs each time. */
#include "kernels/cblas.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/sgemm_call.h"

#include <stdio.h>

static int cblas_available(char *why, size_t why_size)
{
    return *ds_cblas_path() ? 0
                            : ds_cpu_refuse(why, why_size, "no library was given (--blas FILE.so)");
}

static void sgemm(const struct ds_matmul_args *a)
{
    ds_cblas_sgemm_nt(a->rows, a->n, a->k, a->x, a->ldx, a->w.data, a->k, a->y, a->ldy);
}

static int cblas_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_matmul_args *a = args;
    struct ds_error err;
    if (ds_sgemm_check(a, why, why_size) != 0)
        return -1;
    if (a->rows < 1 || a->n < 1)
        return 0;
    if (ds_cblas_open(&err) != 0)
        return ds_cpu_refuse(why, why_size, "%s", err.msg);
    if (ds_cblas_set_threads(exec->threads) < 0)
        return ds_cpu_refuse(why, why_size, "%s does not take %d threads", ds_cblas_config(),
                             exec->threads);
    return ds_sgemm_run(a, exec, sgemm, why, why_size);
}

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
