/* allreduce.c: y = the sum of every rank's rows, element by element.
 *
 *   reference  s = x[0], then s = s + x[rank] in ascending rank, each rounded.
 *   pinned     the same; NaN as 7fc00000.
 *
 * One rank alone is a copy. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pinned.h"

static void reference_rows(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                           int64_t end)
{
    const struct ds_allreduce_args *a = args;
    (void)exec, (void)thread;
    for (int64_t r = begin; r < end; r++)
        for (int64_t i = 0; i < a->width; i++) {
            float s = a->x[0][r * a->ldx + i];
            for (int64_t rank = 1; rank < a->ranks; rank++)
                s += a->x[rank][r * a->ldx + i];
            a->y[r * a->ldy + i] = s;
        }
}

static void pinned_rows(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                        int64_t end)
{
    (void)exec, (void)thread;
    for (int64_t r = begin; r < end; r++)
        ds_pinned_code()->allreduce(args, r);
}

static int launch(const void *args, const struct ds_exec *exec, ds_cpu_part_fn fn, char *why,
                  size_t why_size)
{
    const struct ds_allreduce_args *a = args;
    if (a->ranks < 1)
        return ds_cpu_refuse(why, why_size, "a sum over %lld ranks", (long long)a->ranks);
    ds_cpu_split(exec, a, a->rows, 1, 0.5 * (double)a->rows * (double)a->width * (double)a->ranks,
                 fn);
    return 0;
}

static int reference_launch(const void *args, const struct ds_exec *exec, char *why,
                            size_t why_size)
{
    return launch(args, exec, reference_rows, why, why_size);
}

static int pinned_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    return launch(args, exec, pinned_rows, why, why_size);
}

const struct ds_kernel ds_allreduce_reference = {.abi = DS_KERNEL_ABI,
                                                 .op = DS_OP_ALLREDUCE,
                                                 .name = "reference",
                                                 .claims = DS_CLAIM_ALL,
                                                 .launch = reference_launch,
                                                 .summary = "ranks added in ascending order"};
const struct ds_kernel ds_allreduce_pinned = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_ALLREDUCE,
    .name = "pinned",
    .claims = DS_CLAIM_ALL,
    .launch = pinned_launch,
    .summary = "ranks added in ascending order, NaN as 7fc00000"};
