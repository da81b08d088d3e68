/* placement.h: which CPUs the threads of this process may use while something is timed. Owns the
 * masks it changes and puts back; must not know what is timed.
 *
 * A call that takes less than the scheduler's tick keeps the placement that its threads woke up
 * with: with the second thread on the first one's CPU it takes twice as long, and the next sample
 * half. So for the timed section every team member gets a CPU of its own, and all other threads (a
 * BLAS library's) the same CPUs but the caller's, which works itself. */
#ifndef DS_LAB_PLACEMENT_H
#define DS_LAB_PLACEMENT_H

#include <sched.h>

/* What was done. */
struct ds_placed {
    int n_cpus;     /* 0: nothing was pinned, and why says the reason */
    cpu_set_t cpus; /* all that were used */
    int own;        /* threads with a CPU of their own: the caller and members of teams */
    int others;     /* other threads of the process */
    char why[64];
};

struct ds_placement;

/* Confines the calling thread to one CPU of those it may use and every other thread of the process to
 * the `threads - 1` others (threads = 1: to the same). CPUs that share a core come last. Nothing is
 * changed, and *placed says why, where fewer CPUs are allowed or the system refuses; that is no
 * error. NULL: nothing to give back. */
struct ds_placement *ds_placement_take(int threads, struct ds_placed *placed);
/* Confines threads that were started since. p may be NULL. */
void ds_placement_sweep(struct ds_placement *p);
/* The CPUs in use, the caller's first; *n = 0 when p is NULL. */
const int *ds_placement_cpus(const struct ds_placement *p, int *n);
/* Every thread gets the mask back that it had; one started since, the caller's. */
void ds_placement_give_back(struct ds_placement *p);

#endif
