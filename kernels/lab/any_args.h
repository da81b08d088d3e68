/* any_args.h: the arguments of a call of whatever op. */
#ifndef DS_LAB_ANY_ARGS_H
#define DS_LAB_ANY_ARGS_H

#include "kernels/driftscope_kernel.h"

union ds_any_args {
    struct ds_embed_args embed;
    struct ds_rmsnorm_args rmsnorm;
    struct ds_matmul_args matmul;
    struct ds_rope_args rope;
    struct ds_cache_args cache;
    struct ds_attention_args attention;
    struct ds_softmax_args softmax;
    struct ds_silu_mul_args silu_mul;
    struct ds_add_args add;
    struct ds_router_args router;
    struct ds_combine_args combine;
    struct ds_allreduce_args allreduce;
    struct ds_sample_args sample;
    struct ds_custom_args custom;
    struct ds_transfer_args transfer;
    struct ds_process_args process;
};

#endif
