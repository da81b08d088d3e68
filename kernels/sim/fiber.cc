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

namespace
{

enum { MOST = 1024, STACK = 128 << 10 }; /* touched pages only cost memory */

struct ds_fiber fibers[MOST];
int made;

#ifdef DS_SIM_UCONTEXT
ucontext_t scheduler;
#else
void *scheduler;
#endif

#if defined(__SANITIZE_ADDRESS__)
void *scheduler_fake;
const void *scheduler_stack;
size_t scheduler_size;
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
/* Saves where the caller is in *from and goes on at `to`. */
extern "C" void ds_fiber_switch(void **from, void *to);
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
    "    ret\n"
    ".size ds_fiber_switch, .-ds_fiber_switch\n");
#endif

int ds_fibers_have(int n)
{
    for (; made < n && made < MOST; made++)
        if (make_stack(&fibers[made]) != 0)
            return -1;
    return n <= MOST ? 0 : -1;
}

struct ds_fiber *ds_fiber_at(int i)
{
    return &fibers[i];
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
    void **sp = reinterpret_cast<void **>(f->stack + STACK);
    *--sp = nullptr;
    *--sp = reinterpret_cast<void *>(entry);
    for (int i = 0; i < 6; i++)
        *--sp = nullptr;
    f->sp = sp;
#endif
}

void ds_fiber_enter(struct ds_fiber *f)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&scheduler_fake, f->stack, STACK);
#endif
#ifdef DS_SIM_UCONTEXT
    swapcontext(&scheduler, &f->context);
#else
    ds_fiber_switch(&scheduler, f->sp);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(scheduler_fake, nullptr, nullptr);
#endif
}

void ds_fiber_entered(void)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_size);
#endif
}

void ds_fiber_back(struct ds_fiber *f, int last)
{
    (void)last;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(last ? nullptr : &f->fake, scheduler_stack, scheduler_size);
#endif
#ifdef DS_SIM_UCONTEXT
    swapcontext(&f->context, &scheduler);
#else
    ds_fiber_switch(&f->sp, scheduler);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(f->fake, &scheduler_stack, &scheduler_size);
#endif
}

void ds_fibers_forget(int n)
{
    (void)n;
#if defined(__SANITIZE_ADDRESS__)
    for (int i = 0; i < n && i < made; i++)
        __asan_unpoison_memory_region(fibers[i].stack, STACK);
#endif
}
