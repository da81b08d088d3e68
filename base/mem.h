/* mem.h: checked allocation. Every size is count * size with overflow found, and every failure is
 * an error value. Tests make allocation number N fail with ds_mem_fail_at(). */
#ifndef DS_MEM_H
#define DS_MEM_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* Zeroed memory for count * size bytes, released with free(). A zero request yields a valid
 * pointer. NULL on overflow or exhaustion, with err naming `what`. */
void *ds_calloc(size_t count, size_t size, const char *what, struct ds_error *err);

/* Of memory that was just given and will be touched all over: asks for pages of 2 MiB, of which the system makes one
 * where it would make 512. It takes no more than was asked for. */
void ds_memory_touched_whole(void *p, size_t bytes);

/* Grows *ptr (an array of `size`-byte elements with capacity *cap) so that at least `need` fit; new
 * space is zeroed. Amortised doubling. 0, or -1 with *ptr and *cap untouched. */
int ds_grow(void *ptr, size_t *cap, size_t need, size_t size, const char *what,
            struct ds_error *err);

/* Makes room for one more behind the n elements of *ptr, for lists that keep no capacity: it
 * follows from n, as long as every element was added through this function. */
int ds_grow_by_one(void *ptr, size_t n, size_t size, const char *what, struct ds_error *err);

/* Zeroed memory aligned to 64 bytes, released with free(). */
void *ds_alloc_aligned(size_t count, size_t size, const char *what, struct ds_error *err);

/* Memory that is not zeroed, for what fills all of it at once; released with free(). */
void *ds_alloc(size_t bytes, const char *what, struct ds_error *err);

/* Bytes that can be touched before the machine, or this process's group, runs out; UINT64_MAX where
 * nobody says. */
uint64_t ds_memory_available(void);
/* 1 for a request, of a quarter of a GiB or more, that is above that. All functions here ask. */
int ds_memory_lacks(size_t bytes);

/* "854 bytes", "8.53 KB", "268 MB": three digits, units of a thousand. */
enum { DS_BYTES_WORDS = 24 };
const char *ds_bytes_words(uint64_t bytes, char out[DS_BYTES_WORDS]);

/* Failure injection: the n-th allocation from now on (1 = the next) fails, once. 0 turns it off. */
void ds_mem_fail_at(long n);
/* How many more allocations would have been made until then; 0: it has failed, or nothing is set. */
long ds_mem_fail_left(void);

/* Whether it was memory that a function had not enough of: then nothing is wrong with what was asked. */
int ds_error_is_memory(const struct ds_error *err);

#endif
