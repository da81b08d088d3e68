/* process.c: logits as they are chosen from. reference and pinned: bits are copied, no penalty and no
 * mask; nothing is added, nothing rounded. The tokens so far are not looked at. */
#include "kernels/cpu/cpu.h"

#include <string.h>

static void copy_rows(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                      int64_t end)
{
    const struct ds_process_args *a = args;
    (void)exec, (void)thread;
    for (int64_t r = begin; r < end; r++)
        memcpy(a->y + r * a->ldy, a->logits + r * a->ldx, (size_t)a->vocab * sizeof *a->y);
}

static int process_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_process_args *a = args;
    (void)why, (void)why_size;
    ds_cpu_split(exec, a, a->rows, 1, 0.125 * (double)a->rows * (double)a->vocab, copy_rows);
    return 0;
}

const struct ds_kernel ds_process_reference = {.abi = DS_KERNEL_ABI,
                                               .op = DS_OP_PROCESS,
                                               .name = "reference",
                                               .claims = DS_CLAIM_ALL,
                                               .launch = process_launch,
                                               .summary = "logits as they are, bit for bit"};
const struct ds_kernel ds_process_pinned = {.abi = DS_KERNEL_ABI,
                                            .op = DS_OP_PROCESS,
                                            .name = "pinned",
                                            .claims = DS_CLAIM_ALL,
                                            .launch = process_launch,
                                            .summary = "logits as they are, bit for bit"};
