/* table.cu: what libdriftscope_cuda.so exports: its variants, by op. */
#include "kernels/cuda/library/library.h"
#include "kernels/sim/kernels.h"

#include <cuda_runtime_api.h>

#define DS_TEXT_(X) #X
#define DS_TEXT(X)  DS_TEXT_(X)

/* Those of sim, which are the same texts, and cublasLt's. */
#define DECLARE(NAME) extern const struct ds_kernel ds_cuda_##NAME;
extern "C" {
DS_SIM_KERNELS(DECLARE)
DECLARE(matmul_cublaslt)
DECLARE(matmul_cublaslt_pinned)
DECLARE(matmul_cublaslt_tf32)
DECLARE(matmul_cublaslt_small)
DECLARE(matmul_cublaslt_sums)
}

#define LIST(NAME) &ds_cuda_##NAME,
static const struct ds_kernel *const kernels[] = {
    LIST(matmul_cublaslt) LIST(matmul_cublaslt_pinned) LIST(matmul_cublaslt_tf32)
        LIST(matmul_cublaslt_small) LIST(matmul_cublaslt_sums) DS_SIM_KERNELS(LIST) nullptr};

static const struct ds_device_library library = {
    .abi = DS_DEVICE_ABI,
    .kernel_abi = DS_KERNEL_ABI,
    .version = "CUDA runtime " DS_TEXT(CUDART_VERSION) ", for " DS_CUDA_ARCHITECTURES,
    .kernels = kernels,
    .open = ds_cuda_open,
    .module_load = ds_cuda_module_load,
    .module_launch = ds_cuda_module_launch,
};

extern "C" __attribute__((visibility("default"))) const struct ds_device_library *
ds_device_library(void)
{
    return &library;
}
