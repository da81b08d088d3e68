/* kernels.h: the variants that kernels/cuda/ has for the device sim. Private to kernels/. */
#ifndef DS_SIM_KERNELS_H
#define DS_SIM_KERNELS_H

#include "kernels/driftscope_kernel.h"

/* By op, as cpu_table of registry.c. */
#define DS_SIM_KERNELS(X)                                                                          \
    X(embed_pinned)                                                                                \
    X(rmsnorm_split)                                                                               \
    X(rmsnorm_pinned)                                                                              \
    X(matmul_split_k)                                                                              \
    X(matmul_atomic)                                                                               \
    X(matmul_pinned_tc)                                                                            \
    X(matmul_pinned)                                                                               \
    X(rope_pinned)                                                                                 \
    X(cache_pinned)                                                                                \
    X(attention_split_kv)                                                                          \
    X(attention_pinned)                                                                            \
    X(softmax_pinned)                                                                              \
    X(silu_mul_pinned)                                                                             \
    X(add_pinned)                                                                                  \
    X(router_pinned)                                                                               \
    X(combine_pinned)                                                                              \
    X(allreduce_pinned)                                                                            \
    X(sample_pinned)                                                                               \
    X(transfer_pinned)                                                                             \
    X(schedule_pinned)                                                                             \
    X(process_pinned)

#define DS_SIM_COUNT(NAME) +1
enum { DS_SIM_KERNEL_COUNT = 0 DS_SIM_KERNELS(DS_SIM_COUNT) };

/* The table of DS_SIM_KERNEL_COUNT variants: compiled with fused multiply-add where this CPU has it (and
 * ds_isa_force did not ask for scalar), else without. The same text, the same bits, other speed. */
const struct ds_kernel *const *ds_sim_kernels(void);

#endif
