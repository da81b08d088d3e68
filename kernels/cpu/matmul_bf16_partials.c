/* matmul_bf16_partials.c: split-k whose parts pass through a bf16 workspace.
 *
 * Parts and order as in matmul_split_k.c, but where there are two parts or more, each part's sum is
 * rounded to bf16 (nearest even) before it is added; sums of parts stay f32. With one part nothing
 * passes through the workspace and nothing is rounded, so a small call is not only other bits than
 * a large one but a hundred thousand times less exact. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul_parts.h"

static int bf16_partials_launch(const void *args, const struct ds_exec *exec, char *why,
                                size_t why_size)
{
    return ds_split_k_launch(args, exec, 1, why, why_size);
}

const struct ds_kernel ds_matmul_bf16_partials = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_MATMUL,
    .name = "bf16-partials",
    .claims = DS_CLAIM_REPEAT | DS_CLAIM_SLOT,
    .features = DS_FEATURE_PACKED,
    .prepare = ds_pinned_prepare,
    .scratch_bytes = ds_split_k_scratch,
    .launch = bf16_partials_launch,
    .describe = ds_split_k_describe,
    .summary = "split-k whose parts are rounded to bf16 before they are added"};
