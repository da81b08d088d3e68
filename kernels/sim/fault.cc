/* fault.cc: a thread that touches what it must not: memory that its arguments do not point into is opened, if a kernel
 * may have it at all; else the launch ends with a reason, and the process goes on. See run.h. x86-64 on Linux; elsewhere
 * all of the memory is open in a launch, and such a thread ends the process.
 *
 * What somebody else catches already (the lab knows which element of which array it was) is left to them, where it lies
 * in an allocation. */
#include "kernels/sim/memory.h"
#include "kernels/sim/run.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__) && defined(__linux__)

#include <ucontext.h>

namespace
{

const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
enum { N = sizeof numbers / sizeof numbers[0] };
struct sigaction before[N];
pthread_t launching; /* the thread that the launch runs on */

/* The lane's thread cannot go on, and its stack may be full: it leaves from the beginning of it. */
void leave(void)
{
    ds_sim_give_way();
    __builtin_unreachable();
}

struct ds_fiber *own_fiber(void)
{
    return ds_fiber_at(ds_sim_now.thread[ds_sim_now.current].fiber);
}

void end_launch(ucontext_t *u)
{
    /* As if it had been called from the top: 8 below a multiple of 16. */
    const uintptr_t top = reinterpret_cast<uintptr_t>(ds_fiber_abandon(own_fiber())) - 8;
    u->uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(reinterpret_cast<uintptr_t>(leave));
    u->uc_mcontext.gregs[REG_RSP] = static_cast<greg_t>(top);
    u->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)0x400; /* strings go up, as functions may expect */
}

void tell(const char *what)
{
    const struct ds_sim_launch *l = ds_sim_now.launch;
    const struct ds_sim_dim *t = &ds_sim_here.thread;
    ds_sim_trouble("thread (%u,%u,%u) of (%u,%u,%u) blocks of (%u,%u,%u) %s", t->x, t->y, t->z,
                   l->grid.x, l->grid.y, l->grid.z, l->block.x, l->block.y, l->block.z, what);
}

int is_caught(const struct sigaction *old)
{
    return (old->sa_flags & SA_SIGINFO) ||
           (old->sa_handler != SIG_DFL && old->sa_handler != SIG_IGN);
}

/* 1: told, and the launch is to end; 0: it is not this file's. */
int memory_fault(const void *p, int writes, int old)
{
    char where[160], text[256];
    const char *does = writes ? "writes" : "reads";
    const char *stack = own_fiber()->stack;
    const char *at = static_cast<const char *>(p);
    if (ds_sim_memory_is(p)) {
        if (ds_sim_memory_in_block(p) && is_caught(&before[old]))
            return 0;
        ds_sim_memory_where(p, where, sizeof where);
        snprintf(text, sizeof text, "%s at an illegal address: %s%s", does, where,
                 ds_sim_memory_in_block(p) ? "; nothing that it was given points there" : "");
    } else if (at < stack && stack - at <= 4096) {
        snprintf(text, sizeof text,
                 "needs more memory for its own variables than the %d KiB of sim",
                 DS_FIBER_STACK >> 10);
    } else {
        snprintf(text, sizeof text, "%s at an illegal address, %#zx, which is not the device's",
                 does, reinterpret_cast<size_t>(p));
    }
    tell(text);
    return 1;
}

void on_fault(int number, siginfo_t *info, void *context)
{
    ucontext_t *u = static_cast<ucontext_t *>(context);
    const int writes = (int)(u->uc_mcontext.gregs[REG_ERR] >> 1 & 1);
    int which = 0, told = 1;
    while (numbers[which] != number)
        which++;
    if (number == SIGSEGV && ds_sim_memory_reach(info->si_addr))
        return;
    if (!pthread_equal(launching, pthread_self()))
        told = 0;
    else if (number == SIGFPE)
        tell("divides an integer by 0, which gives no number on a GPU");
    else if (number == SIGILL)
        tell("stops at a trap: a misaligned address, where it is built to look for those, or "
             "__trap");
    else if (number == SIGSEGV && info->si_code == SI_KERNEL)
        tell("touches a misaligned address, or one that no memory can have");
    else
        told = memory_fault(info->si_addr, writes, which);
    if (told)
        end_launch(u);
    else
        sigaction(number, &before[which], nullptr); /* it comes again, to them */
}

} /* namespace */

void ds_sim_watch_faults(void)
{
    static thread_local int has_stack;
    static thread_local char stack[32 << 10];
    stack_t own = {}, old;
    struct sigaction sa = {};
    if (!has_stack && sigaltstack(nullptr, &old) == 0) {
        own.ss_sp = stack;
        own.ss_size = sizeof stack;
        if (old.ss_flags & SS_DISABLE)
            sigaltstack(&own, nullptr);
        has_stack = 1;
    }
    launching = pthread_self();
    sa.sa_sigaction = on_fault;
    sa.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&sa.sa_mask);
    for (int i = 0; i < N; i++)
        sigaction(numbers[i], &sa, &before[i]);
}

void ds_sim_unwatch_faults(void)
{
    for (int i = 0; i < N; i++)
        sigaction(numbers[i], &before[i], nullptr);
}

#else

void ds_sim_watch_faults(void)
{
    ds_sim_memory_open();
}

void ds_sim_unwatch_faults(void)
{
    ds_sim_memory_close();
}

#endif
