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

#ifndef DS_SIM_UCONTEXT
/* Saves where the caller is in *from and goes on at `to`. */
extern "C" void ds_fiber_switch(void **from, void *to);
#endif

enum { DS_MOST_FIBERS = 1024, DS_FIBER_STACK = 128 << 10 }; /* touched pages only cost memory */
extern struct ds_fiber ds_fibers[DS_MOST_FIBERS];

/* Stacks for fibers 0..n-1 exist afterwards; kept until the process ends, since the next launch needs
 * them again. -1: no memory. */
int ds_fibers_have(int n);
static inline struct ds_fiber *ds_fiber_at(int i)
{
    return &ds_fibers[i];
}
/* The stack that a launch was called on, from which fibers are entered and to which they come back. */
struct ds_fiber *ds_fiber_home(void);
/* Makes the fiber begin at entry, which must not return. */
void ds_fiber_start(struct ds_fiber *f, void (*entry)(void));
/* From one, on which the caller is, to another, until somebody goes back to it. */
#if defined(DS_SIM_UCONTEXT) || defined(__SANITIZE_ADDRESS__)
void ds_fiber_go(struct ds_fiber *from, struct ds_fiber *to);
#else
static inline void ds_fiber_go(struct ds_fiber *from, struct ds_fiber *to)
{
    ds_fiber_switch(&from->sp, to->sp);
}
#endif
/* First thing in entry. */
void ds_fiber_entered(void);
/* What is on its stack is lost; where that begins (the highest address). */
void *ds_fiber_abandon(struct ds_fiber *f);
/* After fibers were left in the middle. */
void ds_fibers_forget(int n);

#endif
