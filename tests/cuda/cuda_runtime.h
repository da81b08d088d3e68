/* cuda_runtime.h: the part of the CUDA runtime's interface that kernels/cuda/library uses, declared for runtime.cc, which
 * makes it of the device sim. With it the host's side of the device cuda (kernels/cuda/library, and the launch
 * functions of kernels/cuda) is compiled by a C++ compiler and run by the tests, where there is neither nvcc nor a
 * GPU. Names and meanings are CUDA's; nothing is taken from its headers. See README.md. */
#ifndef DS_TEST_CUDA_RUNTIME_H
#define DS_TEST_CUDA_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#define CUDART_VERSION 13000

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInitializationError = 3,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorSymbolNotFound = 500,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchOutOfResources = 701,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorUnknown = 999
};

typedef struct ds_test_stream *cudaStream_t;
typedef struct ds_test_event *cudaEvent_t;
typedef struct ds_test_graph *cudaGraph_t, *cudaGraphExec_t;
typedef struct ds_test_library *cudaLibrary_t;
typedef struct ds_test_kernel *cudaKernel_t;
enum { cudaStreamNonBlocking = 1 };
enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice
};
enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone,
    cudaStreamCaptureStatusActive,
    cudaStreamCaptureStatusInvalidated
};
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeRelaxed = 2 };
enum cudaDeviceAttr { cudaDevAttrPageableMemoryAccess = 88 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
struct cudaFuncAttributes {
    int numRegs;
};
struct cudaDeviceProp {
    char name[256];
    int major, minor, multiProcessorCount, l2CacheSize, pciDomainID, pciBusID, pciDeviceID;
};

extern "C" {
const char *cudaGetErrorString(cudaError_t e);
const char *cudaGetErrorName(cudaError_t e);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *out, int device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr what, int device);
cudaError_t cudaMalloc(void **out, size_t bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *all);
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t s);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamQuery(cudaStream_t s);
cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus *out);
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long flags);
cudaError_t cudaGraphDestroy(cudaGraph_t g);
cudaError_t cudaGraphLaunch(cudaGraphExec_t g, cudaStream_t s);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t g);
cudaError_t cudaEventCreate(cudaEvent_t *out);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaLibraryLoadData(cudaLibrary_t *out, const void *image, void *, void *, unsigned,
                                void *, void *, unsigned);
cudaError_t cudaLibraryGetKernel(cudaKernel_t *out, cudaLibrary_t l, const char *entry);
cudaError_t cudaLibraryUnload(cudaLibrary_t l);
cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute what, int value);
/* Of the first kernel that the library has: whether there is code for this device. */
cudaError_t ds_test_cuda_code(void);
/* Before a kernel of this name and entry runs on the stream, with so much dynamic shared memory: whether it may (the error is what
 * a launch returns), and *run. */
void ds_test_cuda_launch(const char *kernel, const void *entry, size_t shared, cudaStream_t s,
                         int *run);
/* It had begun and could not go on: that shows when something waits. Or no device takes such a launch: that shows at once. */
void ds_test_cuda_fault(const char *why, int had_begun);
}

template <class F> static cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *out, F *)
{
    out->numRegs = 1;
    return ds_test_cuda_code();
}
template <class D>
static cudaError_t cudaLaunchKernel(const void *, D, D, void **, size_t, cudaStream_t)
{
    return cudaErrorInvalidResourceHandle; /* there is no code to run */
}

#endif
