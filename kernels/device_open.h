/* device_open.h: devices by name: "cpu", "sim", "sim:80", "cuda", "cuda:1". The CPU as a device whose memory is the
 * host's; sim, whose number is the architecture of its tensor cores (0: that of mma.h); and the library of the device cuda, opened when first asked for. */
#ifndef DS_DEVICE_OPEN_H
#define DS_DEVICE_OPEN_H

#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ds_error;

/* Kind and number of a name; whether there is such a device is seen when it is opened. -1: no such
 * name. */
int ds_device_parse_name(const char *name, int *kind, int *number, struct ds_error *err);

/* Opens it for this process; the caller closes it. -1: one line that says what is missing. */
int ds_device_open(int kind, int number, struct ds_device **out, struct ds_error *err);
void ds_device_close(struct ds_device *d);
/* Whether it can be opened, asked in a child process: for the process that will fork workers. */
int ds_device_probe(int kind, int number, struct ds_error *err);

/* What the device says of itself, asked in a child process likewise. */
int ds_device_describe(int kind, int number, struct ds_device_info *out, struct ds_error *err);

/* Where libdriftscope_cuda.so lies: --device-library; NULL or never called: beside the program, then where
 * the system looks. Not thread-safe: before any device is opened. The text is borrowed. */
void ds_device_library_path(const char *path);
/* The library: opened once a process; NULL with the reason. */
const struct ds_device_library *ds_device_cuda_library(struct ds_error *err);

/* Turns what a function of the device returned into an error: 0 and -1 as they came. */
int ds_device_check(const struct ds_device *d, int rc, struct ds_error *err);

/* For device_open.c: the device sim, with the tensor cores of an architecture that mma.h knows, or 0. One architecture at a time
 * in a process: that of the one opened last. NULL: no memory. */
struct ds_device *ds_sim_device_new(int architecture);

#ifdef __cplusplus
}
#endif
#endif
