/* fiber.h: stacks for the threads of a block, and going from one to another. Private to kernels/sim.
 *
 * On x86-64 a switch saves the six registers that the System V ABI gives to the callee and the stack
 * pointer; the floating-point control words are the same in all fibers and are left alone. Elsewhere,
 * and with -DDS_SIM_UCONTEXT, it is swapcontext (which makes two system calls). Every stack ends in a
 * page that cannot be touched. */
#ifndef DS_SIM_FIBER_H
#define DS_SIM_FIBER_H

#include <stddef.h>

#if !defined(__x86_64__) && !defined(DS_SIM_UCONTEXT)
#define DS_SIM_UCONTEXT 1
#endif

#ifdef DS_SIM_UCONTEXT
#include <ucontext.h>
#endif

struct ds_fiber {
    char *stack; /* the lowest usable byte */
#ifdef DS_SIM_UCONTEXT
    ucontext_t context;
#else
    void *sp;
#endif
    void *fake; /* of the address sanitizer */
};

/* Stacks for fibers 0..n-1 exist afterwards; kept until the process ends, since the next launch needs
 * them again. -1: no memory. */
int ds_fibers_have(int n);
struct ds_fiber *ds_fiber_at(int i);
/* Makes the fiber begin at entry, which must not return but end in ds_fiber_back(f, 1). */
void ds_fiber_start(struct ds_fiber *f, void (*entry)(void));
/* From the scheduler into a fiber, until that comes back. */
void ds_fiber_enter(struct ds_fiber *f);
/* First thing in entry. */
void ds_fiber_entered(void);
/* From a fiber to the scheduler; returns when it is entered again, never after the last time. */
void ds_fiber_back(struct ds_fiber *f, int last);
/* After fibers were left in the middle. */
void ds_fibers_forget(int n);

#endif
