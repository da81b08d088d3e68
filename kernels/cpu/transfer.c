/* transfer.c: carries rows from one device to another. reference and pinned: bits are copied, in
 * whatever order; nothing is added, nothing rounded. On this machine both devices are its memory. */
#include "kernels/cpu/cpu.h"

#include <string.h>

static void copy_rows(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                      int64_t end)
{
    const struct ds_transfer_args *a = args;
    (void)exec, (void)thread;
    for (int64_t r = begin; r < end; r++)
        memcpy(a->y + r * a->ldy, a->x + r * a->ldx, (size_t)a->width * sizeof *a->y);
}

static int transfer_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_transfer_args *a = args;
    (void)why, (void)why_size;
    ds_cpu_split(exec, a, a->rows, 1, 0.125 * (double)a->rows * (double)a->width, copy_rows);
    return 0;
}

const struct ds_kernel ds_transfer_reference = {.abi = DS_KERNEL_ABI,
                                                .op = DS_OP_TRANSFER,
                                                .name = "reference",
                                                .claims = DS_CLAIM_ALL,
                                                .launch = transfer_launch,
                                                .summary = "copies rows, bit for bit"};
const struct ds_kernel ds_transfer_pinned = {.abi = DS_KERNEL_ABI,
                                             .op = DS_OP_TRANSFER,
                                             .name = "pinned",
                                             .claims = DS_CLAIM_ALL,
                                             .launch = transfer_launch,
                                             .summary = "copies rows, bit for bit"};
