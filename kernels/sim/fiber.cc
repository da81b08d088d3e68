/* fiber.cc: see fiber.h. */
#include "kernels/sim/fiber.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

struct ds_fiber ds_fibers[DS_MOST_FIBERS];

namespace
{

enum { STACK = DS_FIBER_STACK };
/* Stacks begin at different distances from a page's end: at the same one, the frames of all threads of a block
 * would want the same few lines of the processor's first cache. */
enum { SHIFTS = 16, SHIFT = 256 };

struct ds_fiber home;
int made;

#if defined(__SANITIZE_ADDRESS__)
struct ds_fiber *left; /* the last one that somebody went away from */
size_t home_size;
#endif

int make_stack(struct ds_fiber *f)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *p = mmap(nullptr, STACK + page, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return -1;
    if (mprotect(p, page, PROT_NONE) != 0) {
        munmap(p, STACK + page);
        return -1;
    }
    f->stack = static_cast<char *>(p) + page;
    return 0;
}

} /* namespace */

#ifndef DS_SIM_UCONTEXT
asm(".text\n"
    ".p2align 4\n"
    ".hidden ds_fiber_switch\n"
    ".globl ds_fiber_switch\n"
    ".type ds_fiber_switch, @function\n"
    "ds_fiber_switch:\n"
    "    pushq %rbp\n"
    "    pushq %rbx\n"
    "    pushq %r12\n"
    "    pushq %r13\n"
    "    pushq %r14\n"
    "    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n"
    "    popq %r14\n"
    "    popq %r13\n"
    "    popq %r12\n"
    "    popq %rbx\n"
    "    popq %rbp\n"
    "    popq %rcx\n" /* not ret: the processor expects that to go back to this call's caller */
    "    jmp *%rcx\n"
    ".size ds_fiber_switch, .-ds_fiber_switch\n");
#endif

int ds_fibers_have(int n)
{
    for (; made < n && made < DS_MOST_FIBERS; made++)
        if (make_stack(&ds_fibers[made]) != 0)
            return -1;
    return n <= DS_MOST_FIBERS ? 0 : -1;
}

struct ds_fiber *ds_fiber_home(void)
{
    return &home;
}

void ds_fiber_start(struct ds_fiber *f, void (*entry)(void))
{
    f->fake = nullptr;
#ifdef DS_SIM_UCONTEXT
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK;
    f->context.uc_link = nullptr;
    makecontext(&f->context, entry, 0);
#else
    /* As if entry had been called from nowhere: it begins with the stack pointer 8 below a multiple of
     * 16. Below it lie the six registers that the switch takes off. */
    void **sp = reinterpret_cast<void **>(f->stack + STACK - (f - ds_fibers) % SHIFTS * SHIFT);
    *--sp = nullptr;
    *--sp = reinterpret_cast<void *>(entry);
    for (int i = 0; i < 6; i++)
        *--sp = nullptr;
    f->sp = sp;
#endif
}

namespace
{

/* The address sanitizer is told where the caller is now; what it says of where that came from is kept if that was
 * the launch's own stack, which differs from launch to launch. */
void arrived(void *fake)
{
#if defined(__SANITIZE_ADDRESS__)
    const void *stack;
    size_t size;
    __sanitizer_finish_switch_fiber(fake, &stack, &size);
    if (left == &home) {
        home.stack = static_cast<char *>(const_cast<void *>(stack));
        home_size = size;
    }
#else
    (void)fake;
#endif
}

} /* namespace */

#if defined(DS_SIM_UCONTEXT) || defined(__SANITIZE_ADDRESS__)
void ds_fiber_go(struct ds_fiber *from, struct ds_fiber *to)
{
#if defined(__SANITIZE_ADDRESS__)
    left = from;
    __sanitizer_start_switch_fiber(&from->fake, to->stack, to == &home ? home_size : (size_t)STACK);
#endif
#ifdef DS_SIM_UCONTEXT
    swapcontext(&from->context, &to->context);
#else
    ds_fiber_switch(&from->sp, to->sp);
#endif
    arrived(from->fake);
}
#endif

void ds_fiber_entered(void)
{
    arrived(nullptr);
}

void *ds_fiber_abandon(struct ds_fiber *f)
{
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(f->stack, STACK);
#endif
    return f->stack + STACK;
}

void ds_fibers_forget(int n)
{
    (void)n;
#if defined(__SANITIZE_ADDRESS__)
    for (int i = 0; i < n && i < made; i++)
        __asan_unpoison_memory_region(ds_fibers[i].stack, STACK);
#endif
}
