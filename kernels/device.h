/* device.h: a device with memory of its own, as the engine and the lab see it: memory, copies, a queue of
 * work, time, and what went wrong. Usable alone beside driftscope_kernel.h, from C and C++: the library
 * of the device cuda is built against these two headers only.
 *
 * Work is put in a queue in order: kernels by their launch function, and the functions below that say so.
 * Only copy_from, wait and elapsed wait for it. All pointers into a device's memory are the device's:
 * host code does not look at them, unless `memory` says that the two are one.
 *
 * Functions return 0, or -1 with the reason in `why` of the device: lower case, with what was asked for.
 * A device is used by one thread at a time; after a fault of a kernel it is of no use any more, and the
 * process that has it should end. Open it after a fork, never before. */
#ifndef DRIFTSCOPE_DEVICE_H
#define DRIFTSCOPE_DEVICE_H

#include "kernels/driftscope_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DS_DEVICE_ABI 4

struct ds_device_info {
    char name[96];   /* "NVIDIA H200", "simulated" */
    char arch[16];   /* "sm_90"; "" = does not apply */
    char driver[32]; /* versions as text */
    char runtime[32];
    char library
        [64]; /* the vendor's library of matmuls with its version; sim: whose tensor cores; "": none was found */
    int32_t multiprocessors;
    int32_t clock_khz, memory_clock_khz; /* now, where the device tells; 0 = unknown */
    uint64_t memory_bytes, free_bytes, l2_bytes;
};

/* Rows of row_bytes (a multiple of 2) from x to y: row i is x + x_at[i] * x_stride and goes to y + y_at[i]
 * * y_stride. An index list of NULL is 0, 1, 2, ...; lists lie in the device's memory. Nothing is written
 * twice, and x and y do not overlap. */
struct ds_device_rows {
    int64_t n, row_bytes;
    const void *x;
    int64_t x_stride;
    const int32_t *x_at;
    void *y;
    int64_t y_stride;
    const int32_t *y_at;
};

/* Between f32 and 16 bits (enum ds_element: F16 or BF16), to nearest even, every NaN as 7fc0 or 7e00. */
enum ds_device_convert {
    DS_CONVERT_ROUND = 0, /* half[i] = y[i] rounded */
    DS_CONVERT_WIDEN,     /* y[i] = half[i] */
    DS_CONVERT_FOLLOW     /* y[i] = half[i] where y[i] does not round to it */
};

/* Digests of n rows that lie in the device's memory at x + i * stride: XXH3-64, seed 0, over row_bytes
 * bytes, to digests[i]; and the magnitude bits of the row's largest element (the sign bit dropped, so that
 * bits compare like sizes and a NaN or an Inf is above every number; 0 for whole numbers), as bits of the
 * row's own format, to largest[i]. Both arrays lie in the device's memory; a caller gives each site its
 * own part of one array and reads that once a call. */
struct ds_device_digest {
    int64_t n, row_bytes, stride;
    const void *x;
    int32_t element; /* enum ds_element */
    uint64_t *digests;
    uint32_t *largest; /* NULL: not wanted */
};

/* What kernels may do with a stretch of memory. */
enum ds_device_access { DS_ACCESS_NONE = 0, DS_ACCESS_READ, DS_ACCESS_ALL };

/* In the error of a device that waited for a kernel as long as it ever does: asked again it would wait as long. */
#define DS_DEVICE_STUCK "does not come to an end"

struct ds_device {
    uint32_t abi; /* DS_DEVICE_ABI */
    int32_t kind; /* enum ds_device_kind */
    int32_t number;
    int32_t memory; /* enum ds_memory_space: DS_MEMORY_HOST where host code may read and write it */
    const char *name; /* "cpu", "sim", "cuda", "cuda:1": not which of them it imitates */
    void *stream;     /* what kernels get as exec->stream */
    void *self;       /* the implementation's */
    char why[512];

    /* Not zeroed; aligned to 256 bytes. `what` is named when there is not enough. */
    int (*alloc)(struct ds_device *d, size_t bytes, const char *what, void **out);
    void (*release)(struct ds_device *d, void *p);
    /* Queued; the source may change when the function returns. */
    int (*copy_to)(struct ds_device *d, void *dst, const void *host, size_t bytes);
    /* Queued, and waited for with all that stands before it. */
    int (*copy_from)(struct ds_device *d, void *host, const void *src, size_t bytes);
    int (*copy_within)(struct ds_device *d, void *dst, const void *src, size_t bytes);
    /* words times the same 32 bits. */
    int (*fill)(struct ds_device *d, void *dst, uint32_t word, size_t words);
    int (*rows)(struct ds_device *d, const struct ds_device_rows *r);
    int (*convert)(struct ds_device *d, int element, int how, void *half, float *y, int64_t n);
    int (*digest)(struct ds_device *d, const struct ds_device_digest *g);
    /* Kernels launched from now on may do no more than this (enum ds_device_access) with bytes p..p+bytes-1,
     * whole pages of 4096 in one allocation; one that does is a SIGSEGV at that address. What was said of
     * a stretch that this one touches is forgotten. Copies and fills are not bound by it. NULL: the device
     * has no such means. */
    int (*guard)(struct ds_device *d, void *p, size_t bytes, int access);

    /* Says what the launches that follow are for ("layer 3 q_proj: matmul/pinned, 4 rows, n 576, k 576"):
     * a fault that shows later is told with it. */
    void (*at)(struct ds_device *d, const char *site);
    /* Whether the launch that returned -1 last had begun, so that its reason is a fault of the kernel and not a refusal. NULL:
     * a fault shows in `wait`. */
    int (*failed)(struct ds_device *d);
    /* Until all queued work is done; -1 says which site's launch failed, as far as the device knows. */
    int (*wait)(struct ds_device *d);

    /* Times by the device's own clock. An event stands in the queue where it was put. */
    int (*event_new)(struct ds_device *d, void **event);
    void (*event_free)(struct ds_device *d, void *event);
    int (*event_put)(struct ds_device *d, void *event);
    int (*elapsed)(struct ds_device *d, void *begin, void *end, double *seconds);

    /* Graphs; NULL where a device has none. Between begin and end what is queued is recorded and not done:
     * launches of kernels, rows, convert, digest, fill, copies within the device. What waits, and copies from and to
     * the host, are refused meanwhile. The graph can be launched any number of times: all of it is done
     * again, with the arguments and addresses of the recording, on what lies at those addresses then. end
     * is called after a failure in between, too; its graph is NULL then, or what was recorded so far. */
    int (*graph_begin)(struct ds_device *d);
    int (*graph_end)(struct ds_device *d, void **graph);
    int (*graph_launch)(struct ds_device *d, void *graph); /* queued */
    void (*graph_free)(struct ds_device *d, void *graph);

    int (*info)(struct ds_device *d, struct ds_device_info *out);
    void (*close)(struct ds_device *d); /* frees d; memory not released yet goes with it */
};

/* What libdriftscope_cuda.so exports: device number `number`, and its variants, a list that ends with
 * NULL. NULL with a reason where the host's abi is another one, or there is no driver or device. */
#define DS_DEVICE_SYMBOL "ds_device_library"
struct ds_device_library {
    uint32_t abi, kernel_abi; /* DS_DEVICE_ABI, DS_KERNEL_ABI */
    const char *version;      /* "CUDA 13.0, for 80 90 100 120" */
    const struct ds_kernel *const *kernels;
    struct ds_device *(*open)(int number, char *why, size_t why_size);
    /* A kernel of a cubin or of PTX (text with a zero behind it), by its entry, for all devices of the process; and
     * its launch on a device's stream: `arguments` point at what each is given. NULL: it takes none. */
    int (*module_load)(const void *image, const char *entry, uint32_t shared_bytes, void **kernel,
                       char *why, size_t why_size);
    int (*module_launch)(void *kernel, const uint32_t grid[3], const uint32_t block[3],
                         uint32_t shared_bytes, void *stream, void **arguments, char *why,
                         size_t why_size);
};
typedef const struct ds_device_library *(*ds_device_library_fn)(void);

#ifdef __cplusplus
}
#endif
#endif
