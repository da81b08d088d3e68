/* embed.c: table lookup. reference: the row's bits are copied. pinned: the same, each NaN as
 * 7fc00000. Nothing is added, nothing rounded. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pinned.h"

#include <string.h>

static void copy_rows(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                      int64_t end)
{
    const struct ds_embed_args *a = args;
    (void)exec, (void)thread;
    for (int64_t r = begin; r < end; r++)
        memcpy(a->y + r * a->ldy, a->table + a->ids[r] * a->width,
               (size_t)a->width * sizeof(float));
}

static void pinned_rows(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                        int64_t end)
{
    const struct ds_embed_args *a = args;
    (void)exec, (void)thread;
    for (int64_t r = begin; r < end; r++)
        ds_pinned_code()->copy(a->y + r * a->ldy, a->table + a->ids[r] * a->width, a->width);
}

static int launch(const struct ds_embed_args *a, const struct ds_exec *exec, ds_cpu_part_fn fn,
                  char *why, size_t why_size)
{
    for (int64_t r = 0; r < a->rows; r++)
        if (a->ids[r] < 0 || a->ids[r] >= a->vocab)
            return ds_cpu_refuse(why, why_size, "row %lld: id %d is not one of %lld", (long long)r,
                                 a->ids[r], (long long)a->vocab);
    ds_cpu_split(exec, a, a->rows, 1, (double)a->rows * (double)a->width * 0.25, fn);
    return 0;
}

static int reference_launch(const void *args, const struct ds_exec *exec, char *why,
                            size_t why_size)
{
    return launch(args, exec, copy_rows, why, why_size);
}

static int pinned_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    return launch(args, exec, pinned_rows, why, why_size);
}

const struct ds_kernel ds_embed_reference = {.abi = DS_KERNEL_ABI,
                                             .op = DS_OP_EMBED,
                                             .name = "reference",
                                             .claims = DS_CLAIM_ALL,
                                             .launch = reference_launch,
                                             .summary = "copies table rows, bit for bit"};
const struct ds_kernel ds_embed_pinned = {.abi = DS_KERNEL_ABI,
                                          .op = DS_OP_EMBED,
                                          .name = "pinned",
                                          .claims = DS_CLAIM_ALL,
                                          .launch = pinned_launch,
                                          .summary = "copies table rows, NaN as 7fc00000"};
