/* module.cu: kernels of cubins and PTX, by the runtime's own libraries of code: loaded once, for whichever device is
 * current when one is launched. */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/library/library.h"

#include <stdio.h>

namespace
{

int told(cudaError_t e, const char *what, char *why, size_t why_size)
{
    if (e == cudaSuccess)
        return 0;
    (void)cudaGetLastError(); /* it is told here, and not by the next launch again */
    snprintf(why, why_size, "%s: %s (%s)", what, cudaGetErrorString(e), cudaGetErrorName(e));
    return -1;
}

} /* namespace */

#if CUDART_VERSION < 12080 /* whose runtime has no libraries of code */

int ds_cuda_module_load(const void *, const char *, uint32_t, void **, char *why, size_t why_size)
{
    snprintf(why, why_size,
             "modules need a library that was built with CUDA 12.8 or later, not with %d.%d",
             CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    return -1;
}

#else

int ds_cuda_module_load(const void *image, const char *entry, uint32_t shared_bytes, void **out,
                        char *why, size_t why_size)
{
    cudaLibrary_t library = nullptr;
    cudaKernel_t kernel = nullptr;
    char what[160];
    if (told(cudaLibraryLoadData(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0),
             "the module cannot be loaded", why, why_size) != 0)
        return -1;
    snprintf(what, sizeof what, "the module's entry %.100s", entry);
    if (told(cudaLibraryGetKernel(&kernel, library, entry), what, why, why_size) != 0 ||
        (shared_bytes > 48u << 10 &&
         told(cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                                   cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes),
              "shared memory", why, why_size) != 0)) {
        (void)cudaLibraryUnload(library);
        return -1;
    }
    *out = kernel;
    return 0;
}

#endif

int ds_cuda_module_launch(void *kernel, const uint32_t *grid, const uint32_t *block,
                          uint32_t shared_bytes, void *stream, void **arguments, char *why,
                          size_t why_size)
{
    char what[120];
    snprintf(what, sizeof what, "a module's kernel on (%u,%u,%u) blocks of (%u,%u,%u)", grid[0],
             grid[1], grid[2], block[0], block[1], block[2]);
    return told(cudaLaunchKernel(kernel, dim3(grid[0], grid[1], grid[2]),
                                 dim3(block[0], block[1], block[2]), arguments, shared_bytes,
                                 static_cast<cudaStream_t>(stream)),
                what, why, why_size);
}
