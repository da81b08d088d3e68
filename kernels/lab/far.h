/* far.h: calls whose arrays their caller has in the host's memory, made on a device with memory of its own.
 * Owns the device of the lab, and which members of an op's arguments are arrays. Must not know what is
 * computed. The lab fills and reads arrays of the host everywhere; their twins on the device are
 * made, filled and read back here and in arena_far.c, around a launch. */
#ifndef DS_LAB_FAR_H
#define DS_LAB_FAR_H

#include "base/error.h"
#include "kernels/device.h"
#include "kernels/lab/any_args.h"

/* Which of the devices of its kind the lab uses: N of cuda:N. 0 if never said. */
void ds_lab_use_device(int kind, int number);
/* The device of a kind, opened when first asked for and kept until the process ends; a child process
 * opens its own. *out: NULL for the CPU, whose kernels read the host's memory. */
int ds_lab_device_of(int kind, struct ds_device **out, struct ds_error *err);
/* Puts the rest of what a kernel of that device is given into exec: queue, memory, multiprocessors. */
void ds_lab_device_exec(const struct ds_device *dev, struct ds_exec *exec);

/* Whether the lab's launches on devices are captured as graphs and launched so: the first of its kind (kernel,
 * arguments, new tokens of each sequence) is captured, the same again launches that. 0 if never said. */
void ds_lab_use_graphs(int on);
/* Says whose launches follow, for faults that show later. */
void ds_lab_tell(struct ds_device *dev, const struct ds_kernel *k);
/* A launch on a device; it may not be done when this returns. Like ds_call_launch_alone. */
int ds_lab_launch(struct ds_device *dev, const struct ds_kernel *k, const void *args,
                  const struct ds_exec *exec, char *why, size_t why_size);

/* A member of an op's arguments that points at an array which its kernel reads or writes. */
struct ds_far_field {
    size_t at;    /* of the pointer in the op's struct */
    size_t bytes; /* of the array; SIZE_MAX: prepared weights, whose size nobody says here */
    int written;
};
enum { DS_FAR_FIELDS = DS_CUSTOM_MAX_TENSORS };
/* All of them but sequences, their pages and the list of ranks; those that are NULL, too. */
int ds_far_fields(int op, const void *args, struct ds_far_field f[DS_FAR_FIELDS]);
/* The sequences of an op's arguments; NULL where it has none. */
const struct ds_sequence *ds_far_sequences(int op, const void *args, int64_t *n,
                                           int64_t *page_size);

/* Bytes of an op's struct. */
size_t ds_far_bytes(int op);

/* The same arguments with every array where `where` has it, which returns NULL for what it does not know.
 * device_sequences is set where they have sequences; what lies there, pages and all, is the caller's.
 * *ranks: the list that the arguments then point at, for the caller to free; NULL without one. */
int ds_far_args(int op, const void *host, union ds_any_args *far, const float ***ranks,
                void *(*where)(void *arg, const void *host), void *arg, struct ds_error *err);

/* ---- whole calls (far_call.c) -------------------------------------------------------------------- */

/* What the calls of one caller keep on the device; zero at first. */
struct ds_far;
/* Copies what the arguments point at, launches, waits, and copies back what was written; scratch is made on
 * the device. *far is made when it is NULL. `prepared_bytes` of a matmul's prepared weights. 0, or -1 with why:
 * as a launch. */
int ds_far_launch(struct ds_far **far, const struct ds_kernel *k, const void *args,
                  size_t prepared_bytes, const struct ds_exec *exec, char *why, size_t why_size);
void ds_far_free(struct ds_far *far);

#endif
