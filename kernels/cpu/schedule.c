/* schedule.c: where the rows of a call stand. reference and pinned: as the engine filled it in, which
 * is right; nothing is changed. Variants that change something are faults on purpose: a plugin's. */
#include "kernels/cpu/cpu.h"

static int schedule_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    (void)args, (void)exec, (void)why, (void)why_size;
    return 0;
}

const struct ds_kernel ds_schedule_reference = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_SCHEDULE,
    .name = "reference",
    .claims = DS_CLAIM_ALL,
    .launch = schedule_launch,
    .summary = "positions, lengths and pages as the engine counts them"};
const struct ds_kernel ds_schedule_pinned = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_SCHEDULE,
    .name = "pinned",
    .claims = DS_CLAIM_ALL,
    .launch = schedule_launch,
    .summary = "positions, lengths and pages as the engine counts them"};
