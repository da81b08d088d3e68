/* sim.h: runs the threads of a CUDA kernel on this machine's CPU, one fiber a thread. Owns grids,
 * blocks, warps, barriers, shared memory and the order in which threads come to run; must not know
 * what a kernel computes. cuda_host.h is what kernels see of it.
 *
 * A launch runs on the calling thread, block after block; only one runs at a time in a process, a
 * second one waits. A thread of a block runs until it meets others (a barrier, a shuffle, a vote) or
 * ends; then another one does. So all that a kernel may rely on holds, and in another order of
 * threads whatever it must not rely on comes out otherwise: a value read before the barrier that it
 * needs, sums that depend on arrival. What is not imitated: two threads inside the same stretch
 * between two meetings at once, so a read, a change and a write without an atomic lose nothing. */
#ifndef DS_SIM_H
#define DS_SIM_H

#include "kernels/driftscope_kernel.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the simulated device is, where it shows in a kernel's choices. */
enum { DS_SIM_WARP = 32, DS_SIM_MOST_THREADS = 1024, DS_SIM_MULTIPROCESSORS = 64 };
/* Shared memory that a block may have, static and dynamic together; as on GPUs of architecture 80. */
enum { DS_SIM_MOST_SHARED = 163 << 10 };

/* The order in which blocks, the warps of a block and the threads of a warp come to run. */
enum ds_sim_order { DS_SIM_IN_ORDER = 0, DS_SIM_REVERSED, DS_SIM_RANDOM };
struct ds_sim_schedule {
    int order; /* enum ds_sim_order */
    uint64_t seed;
};
/* The schedule of a launch: in order with seed 0 or 1, random with any other seed (the engine's differ
 * from launch to launch, as arrival on a GPU does); reversed or random where the lab disturbs
 * schedules. */
struct ds_sim_schedule ds_sim_schedule_of(const struct ds_exec *exec);

struct ds_sim_dim {
    unsigned x, y, z;
};

struct ds_sim_launch {
    const char *kernel; /* its name, for errors */
    struct ds_sim_dim grid, block;
    size_t shared_bytes;              /* dynamic shared memory */
    char *static_shared, *static_end; /* what __shared__ made in the file's part of the program */
    void (*body)(const void *arg);    /* one thread */
    const void *arg;
    size_t arg_bytes;
    struct ds_sim_schedule schedule;
    const void *stream; /* the call's */
    int on_device; /* the arrays lie in the memory of the device: an argument that points to host memory
                      ends the launch, as it would end it on a device that cannot read that */
    int most_threads; /* of a block, as the kernel's __launch_bounds__ says; 0: nothing */
};

/* The number changes with what a plugin built against this header relies on: one of another number is not
 * loaded. */
#define ds_sim_run ds_sim_run_3
/* 0, or -1 with a reason that names the kernel: a launch that no device takes, threads that wait for
 * others that never come, a touch of what is none of the kernel's, a pointer to the wrong memory, another stream than
 * the device's. Never hangs on a barrier. */
int ds_sim_run(const struct ds_sim_launch *launch, char *why, size_t why_size);
/* Whether the last one that returned -1 had begun, or would have on a device: a fault of the kernel, not a refusal. */
int ds_sim_failed(void);
/* The one stream of the device sim. */
void *ds_sim_stream(void);

/* ---- what a thread of a kernel calls ----------------------------------------------------------- */

struct ds_sim_place {
    struct ds_sim_dim thread, block, block_dim, grid_dim;
};
/* Of the thread that runs now. */
extern struct ds_sim_place ds_sim_here;

void *ds_sim_dynamic_shared(void);
void ds_sim_syncthreads(const char *file, int line);

enum ds_sim_meeting {
    DS_SIM_SYNCWARP = 0,
    DS_SIM_SHUFFLE, /* value of lane `source` */
    DS_SIM_BALLOT,  /* bit l: the value of lane l is not 0 */
    DS_SIM_ANY,
    DS_SIM_ALL,
    DS_SIM_GATHER /* where the values of all lanes lie: const uint64_t[32], until the warp's next one */
};
/* Waits for all lanes of the mask, at the same place of the source. */
uint64_t ds_sim_meet(int meeting, unsigned mask, uint64_t value, int source, const char *file,
                     int line);
int ds_sim_lane(void);
/* Ends the launch with an error: __trap, assert. */
void ds_sim_trap(const char *what, const char *file, int line);

#ifdef __cplusplus
}
#endif
#endif
