/* sgemm_call.c: a call of some library's cblas_sgemm. Must not know which library. */
#include "kernels/cpu/sgemm_call.h"

#include "base/fp_control.h"
#include "base/team.h"
#include "kernels/cpu/cpu.h"

#include <limits.h>

int ds_sgemm_check(const struct ds_matmul_args *a, char *why, size_t why_size)
{
    if (a->w.n != a->n || a->w.k != a->k)
        return ds_cpu_refuse(why, why_size, "weights are %lld x %lld, the call says %lld x %lld",
                             (long long)a->w.n, (long long)a->w.k, (long long)a->n,
                             (long long)a->k);
    if (!a->w.data)
        return ds_cpu_refuse(why, why_size, "this variant needs the weights as f32");
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

int ds_sgemm_run(const struct ds_matmul_args *a, const struct ds_exec *exec,
                 void (*sgemm)(const struct ds_matmul_args *a), char *why, size_t why_size)
{
    if (exec->threads > 1)
        ds_team_rest();
    const uint32_t before = ds_fp_control();
    sgemm(a);
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
