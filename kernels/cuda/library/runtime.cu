/* runtime.cu: a GPU as a struct ds_device, by the CUDA runtime: one stream, in which everything stands in
 * order. Owns opening a device and what went wrong on it; must not know what kernels compute.
 *
 * A launch that goes wrong shows when something waits. What is known then is which sites were launched
 * since the last wait that succeeded; a caller that waits after every launch gets the one. A stream that does
 * not come to its end is given up after DS_CUDA_WATCH_SECONDS with the same words. From then on, and after a fault,
 * nothing is asked of the device any more: CUDA would wait for what does not end (cudaFree does, and so may a copy
 * from or to pageable memory, before which the stream is therefore waited for here). The process is to end. */
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/library/library.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/probe_kernels.h"

#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

namespace
{

#ifndef DS_CUDA_WATCH_SECONDS
#define DS_CUDA_WATCH_SECONDS 120
#endif

enum { SITE = 192 };

struct cuda {
    struct ds_device d;
    cudaStream_t stream;
    struct ds_exec exec;
    char name[16];
    char first[SITE], last[SITE]; /* sites launched since all was known to be well */
    int dead;                     /* it hangs, or had a fault: `why` says */
    int reads_pageable; /* the device itself, later than a copy from such memory is asked for */
};

__attribute__((format(printf, 2, 3))) int fails(struct ds_device *d, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(d->why, sizeof d->why, fmt, ap);
    va_end(ap);
    return -1;
}

struct cuda *self_of(struct ds_device *d)
{
    return static_cast<struct cuda *>(d->self);
}

/* What is known of the launches that an error may be of. */
void describe_launches(const struct cuda *c, char *out, size_t size)
{
    if (!*c->last)
        snprintf(out, size, "no kernel was launched since");
    else if (strcmp(c->first, c->last) == 0)
        snprintf(out, size, "%s", c->last);
    else
        snprintf(out, size, "a launch from %.150s to %.150s", c->first, c->last);
}

int check(struct ds_device *d, cudaError_t e, const char *what)
{
    char launches[400];
    if (e == cudaSuccess)
        return 0;
    describe_launches(self_of(d), launches, sizeof launches);
    self_of(d)->dead |= ds_device_is_fault(e);
    return fails(d, "%s on %s: %s (%s): %s", what, d->name, cudaGetErrorString(e),
                 cudaGetErrorName(e), launches);
}

/* Calls of the runtime are for the thread's current device. */
int use(struct ds_device *d)
{
    if (self_of(d)->dead)
        return -1;
    return check(d, cudaSetDevice(d->number), "device");
}

/* ---- memory --------------------------------------------------------------------------------------- */

int cuda_alloc(struct ds_device *d, size_t bytes, const char *what, void **out)
{
    size_t free_bytes = 0, all = 0;
    if (use(d) != 0)
        return -1;
    const cudaError_t e = cudaMalloc(out, bytes ? bytes : 1);
    if (e != cudaErrorMemoryAllocation)
        return check(d, e, what);
    (void)cudaGetLastError(); /* it is told here, and not by the next launch again */
    *out = nullptr;
    (void)cudaMemGetInfo(&free_bytes, &all);
    return fails(d, "out of memory on %s: %s needs %zu bytes, %zu of %zu are free", d->name, what,
                 bytes, free_bytes, all);
}

void cuda_release(struct ds_device *d, void *p)
{
    if (use(d) == 0)
        (void)cudaFree(p);
}

double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What a stream that is being captured cannot do: pageable memory would be read when the graph runs. */
int not_now(struct ds_device *d, const char *what)
{
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (check(d, cudaStreamIsCapturing(self_of(d)->stream, &status), "a graph") != 0)
        return -1;
    if (status == cudaStreamCaptureStatusNone)
        return 0;
    return fails(d, "%s%s%s in a graph that is being captured", self_of(d)->last,
                 *self_of(d)->last ? ": " : "", what);
}

int cuda_wait(struct ds_device *d)
{
    struct cuda *c = self_of(d);
    char launches[400];
    double begin = 0;
    if (use(d) != 0 || not_now(d, "waiting") != 0)
        return -1;
    cudaError_t e;
    for (unsigned turn = 0; (e = cudaStreamQuery(c->stream)) == cudaErrorNotReady; turn++) {
        if (turn == 0)
            begin = now();
        if (turn < 4096 || turn % 64) {
            sched_yield();
            continue;
        }
        if (now() - begin > (double)DS_CUDA_WATCH_SECONDS) {
            c->dead = 1;
            describe_launches(c, launches, sizeof launches);
            return fails(d, "%s " DS_DEVICE_STUCK " in %d seconds: %s", d->name,
                         (int)DS_CUDA_WATCH_SECONDS, launches);
        }
    }
    if (check(d, e, "a kernel") != 0)
        return -1;
    *c->first = *c->last = '\0';
    return 0;
}

int cuda_copy_to(struct ds_device *d, void *dst, const void *host, size_t bytes)
{
    if (not_now(d, "a copy from the host's memory") != 0)
        return -1;
    if (bytes == 0)
        return 0;
    if ((*self_of(d)->last ? cuda_wait(d) : use(d)) != 0 ||
        check(d, cudaMemcpyAsync(dst, host, bytes, cudaMemcpyHostToDevice, self_of(d)->stream),
              "copy to the device") != 0)
        return -1;
    /* Pageable memory has been read when the call returns, unless the device need not have it read first. */
    return self_of(d)->reads_pageable ? cuda_wait(d) : 0;
}

int cuda_copy_from(struct ds_device *d, void *host, const void *src, size_t bytes)
{
    if (not_now(d, "a copy to the host's memory") != 0 || cuda_wait(d) != 0 ||
        (bytes &&
         check(d, cudaMemcpyAsync(host, src, bytes, cudaMemcpyDeviceToHost, self_of(d)->stream),
               "copy from the device") != 0))
        return -1;
    return cuda_wait(d);
}

int cuda_copy_within(struct ds_device *d, void *dst, const void *src, size_t bytes)
{
    if (bytes == 0)
        return 0;
    return use(d) != 0 ? -1
                       : check(d,
                               cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice,
                                               self_of(d)->stream),
                               "copy on the device");
}

int launched(struct ds_device *d, int rc, const char *why)
{
    struct cuda *c = self_of(d);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (rc == 0)
        return 0;
    /* The launch may have met what an earlier one left. */
    if (cudaStreamIsCapturing(c->stream, &status) != cudaSuccess ||
        status == cudaStreamCaptureStatusNone) {
        const cudaError_t e = cudaStreamQuery(c->stream);
        if (ds_device_is_fault(e))
            return check(d, e, "a kernel");
    }
    return fails(d, "%s%s%s", c->last, *c->last ? ": " : "", why);
}

__global__ void fill_words(uint32_t *y, uint32_t word, size_t words)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < words;
         i += (size_t)gridDim.x * blockDim.x)
        y[i] = word;
}

int cuda_fill(struct ds_device *d, void *dst, uint32_t word, size_t words)
{
    char why[256] = "";
    const struct ds_device_call call = {&self_of(d)->exec, why, sizeof why};
    const size_t blocks = (words + 255) / 256;
    if (words == 0)
        return 0;
    if (use(d) != 0)
        return -1;
    return launched(d,
                    DS_LAUNCH(call, fill_words, (unsigned)(blocks < 65535 ? blocks : 65535), 256, 0,
                              static_cast<uint32_t *>(dst), word, words),
                    why);
}

int cuda_rows(struct ds_device *d, const struct ds_device_rows *r)
{
    char why[256] = "";
    if (use(d) != 0)
        return -1;
    return launched(d, ds_cuda_move_rows(r, &self_of(d)->exec, why, sizeof why), why);
}

int cuda_convert(struct ds_device *d, int element, int how, void *half, float *y, int64_t n)
{
    char why[256] = "";
    if (use(d) != 0)
        return -1;
    return launched(
        d, ds_cuda_convert(element, how, half, y, n, &self_of(d)->exec, why, sizeof why), why);
}

int cuda_digest(struct ds_device *d, const struct ds_device_digest *g)
{
    char why[256] = "";
    if (use(d) != 0)
        return -1;
    return launched(d, ds_cuda_digest_rows(g, &self_of(d)->exec, why, sizeof why), why);
}

/* ---- sites, time, properties ------------------------------------------------------------------------ */

void cuda_at(struct ds_device *d, const char *site)
{
    struct cuda *c = self_of(d);
    (void)use(d); /* the launch that follows is for this device */
    snprintf(c->last, sizeof c->last, "%s", site);
    if (!*c->first)
        snprintf(c->first, sizeof c->first, "%s", site);
}

int cuda_event_new(struct ds_device *d, void **event)
{
    cudaEvent_t e = nullptr;
    if (use(d) != 0 || check(d, cudaEventCreate(&e), "event") != 0)
        return -1;
    *event = e;
    return 0;
}

void cuda_event_free(struct ds_device *d, void *event)
{
    if (use(d) == 0)
        (void)cudaEventDestroy(static_cast<cudaEvent_t>(event));
}

int cuda_event_put(struct ds_device *d, void *event)
{
    return use(d) != 0 || not_now(d, "an event") != 0
               ? -1
               : check(d, cudaEventRecord(static_cast<cudaEvent_t>(event), self_of(d)->stream),
                       "event");
}

int cuda_elapsed(struct ds_device *d, void *begin, void *end, double *seconds)
{
    float ms = 0;
    if (cuda_wait(d) != 0 || check(d,
                                   cudaEventElapsedTime(&ms, static_cast<cudaEvent_t>(begin),
                                                        static_cast<cudaEvent_t>(end)),
                                   "event") != 0)
        return -1;
    *seconds = 1e-3 * (double)ms;
    return 0;
}

/* ---- graphs ---------------------------------------------------------------------------------------- */

int cuda_graph_begin(struct ds_device *d)
{
    /* Relaxed: what else this thread asks of the runtime meanwhile is not recorded, and not refused. */
    return use(d) != 0
               ? -1
               : check(d, cudaStreamBeginCapture(self_of(d)->stream, cudaStreamCaptureModeRelaxed),
                       "a graph");
}

int cuda_graph_end(struct ds_device *d, void **graph)
{
    cudaGraph_t recorded = nullptr;
    cudaGraphExec_t ready = nullptr;
    *graph = nullptr;
    if (use(d) != 0 || check(d, cudaStreamEndCapture(self_of(d)->stream, &recorded),
                             "a graph could not be captured") != 0)
        return -1;
    const cudaError_t e = cudaGraphInstantiate(&ready, recorded, 0);
    (void)cudaGraphDestroy(recorded);
    *graph = ready;
    return check(d, e, "a graph could not be made ready");
}

int cuda_graph_launch(struct ds_device *d, void *graph)
{
    return use(d) != 0
               ? -1
               : check(d, cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), self_of(d)->stream),
                       "a graph");
}

void cuda_graph_free(struct ds_device *d, void *graph)
{
    if (graph && use(d) == 0)
        (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

void version(int v, char *out, size_t size)
{
    snprintf(out, size, "%d.%d", v / 1000, v % 1000 / 10);
}

int cuda_info(struct ds_device *d, struct ds_device_info *out)
{
    struct cudaDeviceProp p;
    size_t free_bytes = 0, all = 0;
    int driver = 0, runtime = 0;
    memset(out, 0, sizeof *out);
    if (use(d) != 0 || check(d, cudaGetDeviceProperties(&p, d->number), "properties") != 0 ||
        check(d, cudaMemGetInfo(&free_bytes, &all), "memory") != 0)
        return -1;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    snprintf(out->name, sizeof out->name, "%.95s", p.name);
    snprintf(out->arch, sizeof out->arch, "sm_%d%d", p.major, p.minor);
    version(driver, out->driver, sizeof out->driver);
    version(runtime, out->runtime, sizeof out->runtime);
    out->multiprocessors = p.multiProcessorCount;
    ds_cuda_clocks(p.pciDomainID, p.pciBusID, p.pciDeviceID, &out->clock_khz,
                   &out->memory_clock_khz);
    out->l2_bytes = (uint64_t)p.l2CacheSize;
    ds_cublaslt_version(out->library, sizeof out->library);
    out->memory_bytes = all;
    out->free_bytes = free_bytes;
    return 0;
}

void cuda_close(struct ds_device *d)
{
    struct cuda *c = self_of(d);
    if (c->stream && use(d) == 0)
        (void)cudaStreamDestroy(c->stream);
    free(c);
}

/* ---- opening ------------------------------------------------------------------------------------------ */

int no_device(cudaError_t e, char *why, size_t size)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (e == cudaErrorNoDevice && visible)
        snprintf(why, size, "no device: CUDA_VISIBLE_DEVICES is '%.60s'", visible);
    else if (e == cudaErrorInsufficientDriver) {
        char needs[16], has[16] = "none";
        int driver = 0, runtime = 0;
        (void)cudaDriverGetVersion(&driver);
        (void)cudaRuntimeGetVersion(&runtime);
        version(runtime, needs, sizeof needs);
        if (driver)
            version(driver, has, sizeof has);
        snprintf(why, size,
                 "the driver is too old, or there is none: this library needs CUDA %s, the "
                 "driver has %s",
                 needs, has);
    } else
        snprintf(why, size, "%s (%s)", cudaGetErrorString(e), cudaGetErrorName(e));
    return -1;
}

/* Whether the library has code for this device. */
int has_code(int number, char *why, size_t size)
{
    struct cudaFuncAttributes a;
    struct cudaDeviceProp p;
    const cudaError_t e = cudaFuncGetAttributes(&a, fill_words);
    if (e == cudaSuccess)
        return 0;
    if (e != cudaErrorNoKernelImageForDevice && e != cudaErrorInvalidDeviceFunction)
        return no_device(e, why, size);
    memset(&p, 0, sizeof p);
    (void)cudaGetDeviceProperties(&p, number);
    snprintf(why, size,
             "%.90s is of architecture %d%d, this library has code for " DS_CUDA_ARCHITECTURES,
             p.name, p.major, p.minor);
    return -1;
}

int check_device(int number, char *why, size_t size)
{
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e != cudaSuccess)
        return no_device(e, why, size);
    if (number >= n) {
        snprintf(why, size, "there %s %d device%s, from number 0 on", n == 1 ? "is" : "are", n,
                 n == 1 ? "" : "s");
        return -1;
    }
    e = cudaSetDevice(number);
    return e != cudaSuccess ? no_device(e, why, size) : has_code(number, why, size);
}

} /* namespace */

struct ds_device *ds_cuda_open(int number, char *why, size_t why_size)
{
    if (check_device(number, why, why_size) != 0)
        return nullptr;
    struct cuda *c = static_cast<struct cuda *>(calloc(1, sizeof *c));
    if (!c) {
        snprintf(why, why_size, "out of memory");
        return nullptr;
    }
    const cudaError_t e = cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking);
    if (e != cudaSuccess) {
        no_device(e, why, why_size);
        free(c);
        return nullptr;
    }
    if (number)
        snprintf(c->name, sizeof c->name, "cuda:%d", number);
    else
        snprintf(c->name, sizeof c->name, "cuda");
    c->d = {.abi = DS_DEVICE_ABI,
            .kind = DS_DEVICE_CUDA,
            .number = number,
            .memory = DS_MEMORY_DEVICE,
            .name = c->name,
            .stream = c->stream,
            .self = c,
            .why = "",
            .alloc = cuda_alloc,
            .release = cuda_release,
            .copy_to = cuda_copy_to,
            .copy_from = cuda_copy_from,
            .copy_within = cuda_copy_within,
            .fill = cuda_fill,
            .rows = cuda_rows,
            .convert = cuda_convert,
            .digest = cuda_digest,
            .guard = nullptr,
            .at = cuda_at,
            .failed = nullptr,
            .wait = cuda_wait,
            .event_new = cuda_event_new,
            .event_free = cuda_event_free,
            .event_put = cuda_event_put,
            .elapsed = cuda_elapsed,
            .graph_begin = cuda_graph_begin,
            .graph_end = cuda_graph_end,
            .graph_launch = cuda_graph_launch,
            .graph_free = cuda_graph_free,
            .info = cuda_info,
            .close = cuda_close};
    if (cudaDeviceGetAttribute(&c->reads_pageable, cudaDevAttrPageableMemoryAccess, number) !=
        cudaSuccess)
        c->reads_pageable = 1; /* the careful way */
    (void)cudaGetLastError();
    c->exec.threads = 1;
    c->exec.stream = c->stream;
    c->exec.memory = DS_MEMORY_DEVICE;
    return &c->d;
}
