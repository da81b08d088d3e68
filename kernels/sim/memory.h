/* memory.h: the memory of the device sim: a range of addresses that nobody can touch but a launch and the
 * copies of the device. Host code that reads or writes there ends its process with SIGSEGV, as it would
 * read garbage, or worse, on a real device. Private to kernels/sim.
 *
 * Each allocation has pages of its own that end where it ends, up to its alignment, and a page that is never open on
 * both sides; what was released is closed again. What is left of its pages is filled with NaN and looked at after
 * every launch that could reach it. */
#ifndef DS_SIM_MEMORY_H
#define DS_SIM_MEMORY_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Filled with NaN that no kernel writes, aligned to 256 bytes. what: the name that a fault is told with. NULL: not
 * enough is left, or no address range could be had. */
void *ds_sim_memory_new(size_t bytes, const char *what);
/* 0, or -1: no memory of the device begins there. */
int ds_sim_memory_release(void *p);
/* Whether bytes p..p+bytes-1 are one allocation's. */
int ds_sim_memory_has(const void *p, size_t bytes);
/* Whether p points anywhere into the range, allocated or not. */
int ds_sim_memory_is(const void *p);
/* Whether p lies in the pages of an allocation. */
int ds_sim_memory_in_block(const void *p);
/* In bytes: how much there is, and how much of it is free. */
size_t ds_sim_memory_size(void);
size_t ds_sim_memory_free(void);
/* Less of it, for tests; 0: as much as there was. Nothing may be allocated. */
void ds_sim_memory_limit(size_t bytes);

/* Between the two, the calling process may touch all of it, or the allocation that p lies in. They nest. */
void ds_sim_memory_open(void);
void ds_sim_memory_close(void);
void ds_sim_memory_open_at(const void *p);
void ds_sim_memory_close_at(const void *p);

/* A launch begins: what the words of its arguments point into is open, as it is guarded. One at a time. */
void ds_sim_memory_begin(const void *arg, size_t bytes);
/* A kernel touched p and must not yet. 1: p lies in an allocation into which something points that the kernel was given,
 * and is open now; 0: it is not to touch it at all. May be called by a signal handler. */
int ds_sim_memory_reach(const void *p);
/* The launch is over. 0; -1: it wrote beside an allocation, which out names. */
int ds_sim_memory_end(char *out, size_t size);
/* "byte 4100 of logits, which has 4096": where p lies. */
void ds_sim_memory_where(const void *p, char *out, size_t size);

/* Pages p..p+bytes-1 are guarded (enum ds_device_access) in launches, and no longer what they were. 0; -1: not whole
 * pages of one allocation, or no room in the list. Goes with the allocation. */
int ds_sim_memory_guard(void *p, size_t bytes, int access);

#ifdef __cplusplus
}
#endif
#endif
