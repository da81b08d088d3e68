/* contain.h: a function in a child process whose crash, hang or exit is a finding. Owns fork, the
 * signal handler and the memory shared with the parent; must not know what is run. */
#ifndef DS_LAB_CONTAIN_H
#define DS_LAB_CONTAIN_H

#include "base/error.h"
#include "kernels/lab/arena.h"

#include <stddef.h>
#include <stdint.h>

/* Memory that parent and children share, zeroed. NULL on failure. */
void *ds_contain_map(size_t bytes, struct ds_error *err);
void ds_contain_unmap(void *shared, size_t bytes);

/* Lies in shared memory. */
struct ds_contained {
    volatile uint64_t beats; /* the child counts; one that stands still hangs */
    struct ds_fault fault;   /* how it died; FAULT_NONE if it ended by itself */
    int rc;                  /* what fn returned */
    volatile int finished;
    struct ds_error error; /* of fn, when rc is -1 */
};

typedef int (*ds_contained_fn)(void *arg, struct ds_contained *c, struct ds_error *err);

/* Runs fn(arg, c, err) in a child and waits. `seconds`: at most so long between two beats. 0: c says
 * how it ended; -1: it could not be started. The child's stdout is its stderr. The caller must have
 * no other thread. */
int ds_contain(struct ds_contained *c, ds_contained_fn fn, void *arg, double seconds,
               struct ds_error *err);

/* The lab itself failed in the child, for want of memory: that says nothing of what was run. */
int ds_contained_lacks_memory(const struct ds_contained *c);

/* In the child: ends it with this as what was found. Elsewhere it does nothing. */
void ds_contain_die(const struct ds_fault *f);

/* In the child: the arrays among which a faulting address is looked for; NULL = none. */
void ds_contain_watch(const struct ds_arena *a);

#endif
