/* runtime.cc: the CUDA runtime of cuda_runtime.h, made of the device sim: memory that the host cannot touch, kernels that
 * sim runs, captures that sim records. It is stricter than CUDA where that finds mistakes: a fork after the first
 * call, a launch on no stream or on another device's, waiting or host copies in a capture, a copy or a free
 * that would wait for a kernel that does not end, each is an error, or ends the process where CUDA would block for ever.
 *
 * DS_TEST_CUDA has what goes wrong, separated by commas: devices=N, driver=VERSION, nocode, memory=BYTES, fault=KERNEL (an
 * illegal address; it shows when something waits, or at a later launch), hang=KERNEL (never ends), resources=KERNEL (is not launched: more registers than there are), pageable (a copy from
 * the host's memory is made when its turn comes), fails=FUNCTION or fails=FUNCTION:N (the Nth call of it is an
 * unknown error; cublasLt's, too). */
#include "tests/cuda/cuda_runtime.h"

#include "kernels/sim/graph.h"
#include "kernels/sim/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <vector>

struct ds_test_stream {
    int device;
};
struct ds_test_event {
    double at;
    int put;
};
/* A kernel's dynamic shared memory: what was asked for, what a captured launch of it has. */
struct amount {
    const void *kernel;
    size_t bytes;
};
struct ds_test_graph {
    struct ds_sim_graph *sim;
    int fault, hang, users;
    std::vector<amount> shared;
};

namespace
{

struct {
    pid_t process; /* that made the first call */
    int devices, driver, nocode;
    char fault[64], hang[64], fails[64], resources[64];
    int fails_at, pageable;
    int current;
    cudaError_t last, pending, sticky;
    int hung;
    cudaStream_t capturing;
    int invalid, captured_fault, captured_hang;
} cuda;

/* What kernels have without asking; with their static shared memory, which is not counted here. */
const size_t WITHOUT_ASKING = 48 << 10;
std::vector<amount> asked, captured_shared;

int may_have(const amount &wanted)
{
    for (const amount &a : asked)
        if (a.kernel == wanted.kernel)
            return wanted.bytes <= a.bytes;
    return wanted.bytes <= WITHOUT_ASKING;
}

void text_of(const char *asked, const char *name, char *out, size_t size)
{
    const char *at = asked ? strstr(asked, name) : nullptr;
    snprintf(out, size, "%.*s", at ? (int)strcspn(at + strlen(name), ",") : 0,
             at ? at + strlen(name) : "");
}

void read_environment(void)
{
    const char *asked = getenv("DS_TEST_CUDA"), *visible = getenv("CUDA_VISIBLE_DEVICES");
    char text[64];
    text_of(asked, "fault=", cuda.fault, sizeof cuda.fault);
    text_of(asked, "hang=", cuda.hang, sizeof cuda.hang);
    text_of(asked, "resources=", cuda.resources, sizeof cuda.resources);
    text_of(asked, "devices=", text, sizeof text);
    cuda.devices = *text ? atoi(text) : 1;
    if (visible && !*visible)
        cuda.devices = 0;
    text_of(asked, "driver=", text, sizeof text);
    cuda.driver = *text ? atoi(text) : CUDART_VERSION;
    cuda.nocode = asked && strstr(asked, "nocode");
    cuda.pageable = asked && strstr(asked, "pageable");
    text_of(asked, "fails=", cuda.fails, sizeof cuda.fails);
    cuda.fails_at = 1;
    if (char *n = strchr(cuda.fails, ':')) {
        cuda.fails_at = atoi(n + 1);
        *n = '\0';
    }
    text_of(asked, "memory=", text, sizeof text);
    if (*text)
        ds_sim_memory_limit((size_t)atoll(text));
}

cudaError_t says(cudaError_t e)
{
    if (e != cudaSuccess)
        cuda.last = e;
    return e;
}

/* Copies from the host's memory whose turn has not come. */
struct copy {
    void *dst;
    const void *src;
    size_t bytes;
} queued[64];
int n_queued;

void do_copies(void)
{
    for (int i = 0; i < n_queued; i++) { /* those of the host's memory are nobody's block */
        ds_sim_memory_open_at(queued[i].dst);
        ds_sim_memory_open_at(queued[i].src);
        memcpy(queued[i].dst, queued[i].src, queued[i].bytes);
        ds_sim_memory_close_at(queued[i].src);
        ds_sim_memory_close_at(queued[i].dst);
    }
    n_queued = 0;
}

/* What every call that needs a driver begins with. */
cudaError_t begin(const char *function = __builtin_FUNCTION())
{
    if (!cuda.process) {
        cuda.process = getpid();
        read_environment();
    }
    if (cuda.process != getpid())
        return says(cudaErrorInitializationError);
    if (cuda.driver < CUDART_VERSION)
        return says(cudaErrorInsufficientDriver);
    if (*cuda.fails && strcmp(function, cuda.fails) == 0 && --cuda.fails_at == 0)
        return says(cudaErrorUnknown);
    return says(cuda.devices == 0 ? cudaErrorNoDevice : cuda.sticky);
}

/* What CUDA would wait for does not come. */
void would_block(const char *what)
{
    if (!cuda.hung)
        return;
    fprintf(stderr, "test cuda: %s waits for a kernel that does not end\n", what);
    abort();
}

cudaError_t check_stream(cudaStream_t s)
{
    if (!s || s->device != cuda.current)
        return says(cudaErrorInvalidResourceHandle);
    if (cuda.pending) {
        cuda.sticky = cuda.pending;
        return says(cuda.sticky);
    }
    do_copies();
    return cudaSuccess;
}

/* Not allowed while the stream is captured, and the end of the capture. */
cudaError_t not_captured(void)
{
    if (!cuda.capturing)
        return cudaSuccess;
    cuda.invalid = 1;
    return says(cudaErrorStreamCaptureUnsupported);
}

} /* namespace */

/* ---- errors and devices ------------------------------------------------------------------------------ */

#define NAMED(X)                                                                                   \
    X(cudaSuccess, "no error")                                                                     \
    X(cudaErrorInvalidValue, "invalid argument")                                                   \
    X(cudaErrorMemoryAllocation, "out of memory")                                                  \
    X(cudaErrorInitializationError, "initialization error")                                        \
    X(cudaErrorInvalidConfiguration, "invalid configuration argument")                             \
    X(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version") \
    X(cudaErrorInvalidDeviceFunction, "invalid device function")                                   \
    X(cudaErrorNoDevice, "no CUDA-capable device is detected")                                     \
    X(cudaErrorInvalidDevice, "invalid device ordinal")                                            \
    X(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device") \
    X(cudaErrorInvalidResourceHandle, "invalid resource handle")                                   \
    X(cudaErrorSymbolNotFound, "named symbol not found")                                           \
    X(cudaErrorNotReady, "device not ready")                                                       \
    X(cudaErrorIllegalAddress, "an illegal memory access was encountered")                         \
    X(cudaErrorLaunchOutOfResources, "too many resources requested for launch")                    \
    X(cudaErrorUnknown, "unknown error")                                                           \
    X(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing")       \
    X(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during "        \
                                         "capture")

const char *cudaGetErrorString(cudaError_t e)
{
#define STRING(NAME, TEXT)                                                                         \
    case NAME:                                                                                     \
        return TEXT;
    switch (e) {
        NAMED(STRING)
    }
    return "unrecognized error code";
}

const char *cudaGetErrorName(cudaError_t e)
{
#define NAME(NAME, TEXT)                                                                           \
    case NAME:                                                                                     \
        return #NAME;
    switch (e) {
        NAMED(NAME)
    }
    return "cudaErrorUnknown";
}

cudaError_t cudaGetLastError(void)
{
    const cudaError_t e = cuda.sticky ? cuda.sticky : cuda.last;
    cuda.last = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError(void)
{
    return cuda.sticky ? cuda.sticky : cuda.last;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    read_environment();
    *version = cuda.driver;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    const cudaError_t e = begin();
    *n = e == cudaSuccess ? cuda.devices : 0;
    return e;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = cuda.current;
    return begin();
}

cudaError_t cudaSetDevice(int device)
{
    const cudaError_t e = begin();
    if (e != cudaSuccess)
        return e;
    if (device < 0 || device >= cuda.devices)
        return says(cudaErrorInvalidDevice);
    cuda.current = device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *out, int)
{
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "test GPU made of sim");
    out->major = 9;
    out->multiProcessorCount = DS_SIM_MULTIPROCESSORS;
    out->l2CacheSize = 1 << 18;
    return begin();
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int)
{
    *value = cuda.pageable;
    return begin();
}

/* ---- memory --------------------------------------------------------------------------------------------- */

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    const cudaError_t e = begin();
    if (e != cudaSuccess)
        return e;
    *out = ds_sim_memory_new(bytes, "an allocation");
    return *out ? cudaSuccess : says(cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void *p)
{
    const cudaError_t e = begin();
    would_block("cudaFree");
    if (e != cudaSuccess || !p)
        return e;
    return ds_sim_memory_release(p) == 0 ? cudaSuccess : says(cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *all)
{
    *free_bytes = ds_sim_memory_free();
    *all = ds_sim_memory_size();
    return begin();
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t s)
{
    cudaError_t e = begin();
    e = e != cudaSuccess ? e : check_stream(s);
    if (e == cudaSuccess && kind != cudaMemcpyDeviceToDevice) {
        would_block("a copy from or to the host's pageable memory");
        e = not_captured();
    }
    if (e != cudaSuccess)
        return e;
    if ((kind != cudaMemcpyHostToDevice && !ds_sim_memory_has(src, bytes)) ||
        (kind != cudaMemcpyDeviceToHost && !ds_sim_memory_has(dst, bytes)))
        return says(cudaErrorInvalidValue);
    if (cuda.capturing) {
        ds_sim_record_copy(dst, src, bytes);
        return cudaSuccess;
    }
    queued[n_queued++] = {dst, src, bytes};
    if (!cuda.pageable || kind != cudaMemcpyHostToDevice || n_queued == 64)
        do_copies();
    return cudaSuccess;
}

/* ---- streams and graphs ------------------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned)
{
    const cudaError_t e = begin();
    *out = e == cudaSuccess ? new ds_test_stream{cuda.current} : nullptr;
    return e;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    delete s;
    return begin();
}

cudaError_t cudaStreamQuery(cudaStream_t s)
{
    cudaError_t e = begin();
    e = e != cudaSuccess ? e : not_captured();
    e = e != cudaSuccess ? e : check_stream(s);
    return e != cudaSuccess ? e : cuda.hung ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus *out)
{
    *out = s != cuda.capturing || !s ? cudaStreamCaptureStatusNone
           : cuda.invalid            ? cudaStreamCaptureStatusInvalidated
                                     : cudaStreamCaptureStatusActive;
    return begin();
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode)
{
    cudaError_t e = begin();
    e = e != cudaSuccess ? e : check_stream(s);
    if (e != cudaSuccess)
        return e;
    if (ds_sim_record_begin() != 0)
        return says(cudaErrorStreamCaptureUnsupported);
    cuda.capturing = s;
    cuda.invalid = cuda.captured_fault = cuda.captured_hang = 0;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out)
{
    *out = nullptr;
    if (!s || s != cuda.capturing)
        return says(cudaErrorInvalidValue);
    cuda.capturing = nullptr;
    struct ds_sim_graph *g = ds_sim_record_end();
    if (cuda.invalid || !g) {
        ds_sim_graph_free(g);
        return says(cudaErrorStreamCaptureInvalidated);
    }
    *out = new ds_test_graph{g, cuda.captured_fault, cuda.captured_hang, 1, captured_shared};
    captured_shared.clear();
    return begin();
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long)
{
    const cudaError_t e = begin();
    *out = nullptr;
    if (e != cudaSuccess)
        return e;
    for (const amount &a : g->shared)
        if (!may_have(a))
            return says(cudaErrorInvalidValue);
    g->users++;
    *out = g;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    if (--g->users == 0) {
        ds_sim_graph_free(g->sim);
        delete g;
    }
    return begin();
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t g)
{
    return cudaGraphDestroy(g);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t g, cudaStream_t s)
{
    char why[512];
    cudaError_t e = begin();
    e = e != cudaSuccess ? e : not_captured();
    e = e != cudaSuccess ? e : check_stream(s);
    if (e != cudaSuccess)
        return e;
    cuda.hung |= g->hang;
    if (g->fault)
        cuda.pending = cudaErrorIllegalAddress;
    else if (!cuda.hung && ds_sim_graph_run(g->sim, why, sizeof why) != 0)
        ds_test_cuda_fault(why, 1);
    return cudaSuccess;
}

/* ---- launches ----------------------------------------------------------------------------------------- */

cudaError_t ds_test_cuda_code(void)
{
    const cudaError_t e = begin();
    return e != cudaSuccess ? e : says(cuda.nocode ? cudaErrorNoKernelImageForDevice : cudaSuccess);
}

void ds_test_cuda_launch(const char *kernel, const void *entry, size_t shared, cudaStream_t s,
                         int *run)
{
    const int fault = *cuda.fault && strstr(kernel, cuda.fault),
              hang = *cuda.hang && strstr(kernel, cuda.hang);
    *run = 0;
    if (begin() != cudaSuccess || check_stream(s) != cudaSuccess)
        return;
    if (*cuda.resources && strstr(kernel, cuda.resources)) {
        says(cudaErrorLaunchOutOfResources);
        return;
    }
    if (!may_have({entry, shared})) {
        says(cudaErrorInvalidValue);
        return;
    }
    if (cuda.capturing) {
        captured_shared.push_back({entry, shared});
        cuda.captured_fault |= fault;
        cuda.captured_hang |= hang;
        if (cuda.capturing != s) {
            cuda.invalid = 1;
            says(cudaErrorStreamCaptureUnsupported);
            return;
        }
    } else if (fault)
        cuda.pending = cudaErrorIllegalAddress;
    else
        cuda.hung |= hang;
    *run = cuda.capturing || (!cuda.hung && !cuda.pending);
}

void ds_test_cuda_fault(const char *why, int had_begun)
{
    fprintf(stderr, "test cuda: %s\n", why);
    if (had_begun)
        cuda.pending = cudaErrorIllegalAddress;
    else
        says(cudaErrorInvalidConfiguration);
}

/* For cublaslt.cc, which is opened by itself: body(arg) as a kernel of one thread. */
static cudaError_t run_for_library(const char *name, cudaStream_t s, void (*body)(const void *),
                                   const void *arg, size_t bytes)
{
    char why[512];
    int run;
    const struct ds_sim_launch launch = {
        name,  {1, 1, 1}, {1, 1, 1},       0, nullptr, nullptr, body, arg,
        bytes, {0, 0},    ds_sim_stream(), 1, 0};
    ds_test_cuda_launch(name, nullptr, 0, s, &run);
    if (run && ds_sim_run(&launch, why, sizeof why) != 0)
        ds_test_cuda_fault(why, 1);
    return cuda.sticky;
}

static int is_capturing(void)
{
    return cuda.capturing != nullptr;
}

__attribute__((constructor)) static void tell_library(void)
{
    char text[32];
    snprintf(text, sizeof text, "%p", reinterpret_cast<void *>(run_for_library));
    setenv("DS_TEST_CUDA_RUN", text, 1);
    snprintf(text, sizeof text, "%p", reinterpret_cast<void *>(is_capturing));
    setenv("DS_TEST_CUDA_CAPTURING", text, 1);
}

/* ---- events ------------------------------------------------------------------------------------------- */

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    *out = new ds_test_event{0, 0};
    return begin();
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    delete e;
    return begin();
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    cudaError_t error = begin();
    error = error != cudaSuccess ? error : check_stream(s);
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    e->at = (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
    e->put = 1;
    return error;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    const cudaError_t error = begin();
    if (error == cudaSuccess && (!from->put || !to->put))
        return says(cudaErrorInvalidResourceHandle);
    *ms = (float)(to->at - from->at);
    return error;
}

/* ---- modules: there is nobody who could run one ------------------------------------------------------------ */

cudaError_t cudaLibraryLoadData(cudaLibrary_t *, const void *, void *, void *, unsigned, void *,
                                void *, unsigned)
{
    return says(cudaErrorNoKernelImageForDevice);
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *, cudaLibrary_t, const char *)
{
    return says(cudaErrorSymbolNotFound);
}

cudaError_t cudaLibraryUnload(cudaLibrary_t)
{
    return says(cudaErrorInvalidResourceHandle);
}

/* Of dynamic shared memory as much as the device's blocks may have, and so much from then on, also where it is less. */
cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute what, int value)
{
    const cudaError_t e = begin();
    if (e != cudaSuccess)
        return e;
    if (what != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        value > DS_SIM_MOST_SHARED)
        return says(cudaErrorInvalidValue);
    for (amount &a : asked)
        if (a.kernel == kernel) {
            a.bytes = (size_t)value;
            return cudaSuccess;
        }
    asked.push_back({kernel, (size_t)value});
    return cudaSuccess;
}
