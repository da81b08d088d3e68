/* table.cu: what libdriftscope_cuda.so exports: its variants, in the order in which they are listed. */
#include "kernels/cuda/library/library.h"

#include <cuda_runtime_api.h>

#define DS_TEXT_(X) #X
#define DS_TEXT(X)  DS_TEXT_(X)

extern "C" {
extern const struct ds_kernel ds_cuda_embed_pinned, ds_cuda_cache_pinned, ds_cuda_add_pinned;
extern const struct ds_kernel ds_cuda_silu_mul_pinned, ds_cuda_combine_pinned;
extern const struct ds_kernel ds_cuda_allreduce_pinned, ds_cuda_transfer_pinned;
extern const struct ds_kernel ds_cuda_process_pinned, ds_cuda_schedule_pinned;
extern const struct ds_kernel ds_cuda_rope_pinned, ds_cuda_softmax_pinned, ds_cuda_router_pinned;
extern const struct ds_kernel ds_cuda_sample_pinned;
extern const struct ds_kernel ds_cuda_rmsnorm_pinned, ds_cuda_rmsnorm_split;
extern const struct ds_kernel ds_cuda_matmul_pinned, ds_cuda_matmul_split_k, ds_cuda_matmul_atomic;
extern const struct ds_kernel ds_cuda_matmul_cublaslt, ds_cuda_matmul_cublaslt_pinned;
extern const struct ds_kernel ds_cuda_attention_pinned, ds_cuda_attention_split_kv;
}

/* clang-format off */
static const struct ds_kernel *const kernels[] = {
    &ds_cuda_embed_pinned,
    &ds_cuda_rmsnorm_split, &ds_cuda_rmsnorm_pinned,
    &ds_cuda_matmul_cublaslt, &ds_cuda_matmul_cublaslt_pinned,
    &ds_cuda_matmul_split_k, &ds_cuda_matmul_atomic, &ds_cuda_matmul_pinned,
    &ds_cuda_rope_pinned,
    &ds_cuda_cache_pinned,
    &ds_cuda_attention_split_kv, &ds_cuda_attention_pinned,
    &ds_cuda_softmax_pinned,
    &ds_cuda_silu_mul_pinned,
    &ds_cuda_add_pinned,
    &ds_cuda_router_pinned,
    &ds_cuda_combine_pinned,
    &ds_cuda_allreduce_pinned,
    &ds_cuda_sample_pinned,
    &ds_cuda_transfer_pinned,
    &ds_cuda_schedule_pinned,
    &ds_cuda_process_pinned,
    nullptr,
};
/* clang-format on */

static const struct ds_device_library library = {
    .abi = DS_DEVICE_ABI,
    .kernel_abi = DS_KERNEL_ABI,
    .version = "CUDA runtime " DS_TEXT(CUDART_VERSION) ", for " DS_CUDA_ARCHITECTURES,
    .kernels = kernels,
    .open = ds_cuda_open,
};

extern "C" __attribute__((visibility("default"))) const struct ds_device_library *
ds_device_library(void)
{
    return &library;
}
