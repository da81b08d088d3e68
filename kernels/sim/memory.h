/* memory.h: the memory of the device sim: a range of addresses that nobody can touch but a launch and the
 * copies of the device. Host code that reads or writes there ends its process with SIGSEGV, as it would
 * read garbage, or worse, on a real device. Private to kernels/sim. */
#ifndef DS_SIM_MEMORY_H
#define DS_SIM_MEMORY_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Filled with NaN that no kernel writes, aligned to 256 bytes. NULL: not enough is left, or no address
 * range could be had. */
void *ds_sim_memory_new(size_t bytes);
/* 0, or -1: no memory of the device begins there. */
int ds_sim_memory_release(void *p);
/* Whether bytes p..p+bytes-1 are one allocation's. */
int ds_sim_memory_has(const void *p, size_t bytes);
/* Whether p points anywhere into the range, allocated or not. */
int ds_sim_memory_is(const void *p);
/* In bytes: how much there is, and how much of it is free. */
size_t ds_sim_memory_size(void);
size_t ds_sim_memory_free(void);
/* Less of it, for tests; 0: as much as there was. Nothing may be allocated. */
void ds_sim_memory_limit(size_t bytes);

/* Between the two, the calling process may touch it. They nest. */
void ds_sim_memory_open(void);
void ds_sim_memory_close(void);
/* The same for a launch: what is guarded stays as it is guarded. Not inside of another pair. */
void ds_sim_memory_open_guarded(void);
/* Pages p..p+bytes-1 are guarded (enum ds_device_access), and no longer what they were. 0; -1: not whole pages
 * of one allocation, or no room in the list. Goes with the allocation. */
int ds_sim_memory_guard(void *p, size_t bytes, int access);

#ifdef __cplusplus
}
#endif
#endif
