/* kernels.h: the variants that kernels/cuda/ has for the device sim. Private to kernels/. */
#ifndef DS_SIM_KERNELS_H
#define DS_SIM_KERNELS_H

#include "kernels/driftscope_kernel.h"

extern const struct ds_kernel ds_sim_embed_pinned, ds_sim_cache_pinned, ds_sim_add_pinned;
extern const struct ds_kernel ds_sim_silu_mul_pinned, ds_sim_combine_pinned;
extern const struct ds_kernel ds_sim_allreduce_pinned, ds_sim_transfer_pinned;
extern const struct ds_kernel ds_sim_process_pinned, ds_sim_schedule_pinned;
extern const struct ds_kernel ds_sim_rope_pinned, ds_sim_softmax_pinned, ds_sim_router_pinned;
extern const struct ds_kernel ds_sim_sample_pinned;
extern const struct ds_kernel ds_sim_rmsnorm_pinned, ds_sim_rmsnorm_split;
extern const struct ds_kernel ds_sim_matmul_pinned, ds_sim_matmul_split_k, ds_sim_matmul_atomic;
extern const struct ds_kernel ds_sim_attention_pinned, ds_sim_attention_split_kv;

#endif
