/* schedule.h: the threads that a kernel under test gets, as scheduled or disturbed: in another
 * order, late, all on one core, overtaken where the kernel allows it. Owns the team; judges
 * nothing. */
#ifndef DS_LAB_SCHEDULE_H
#define DS_LAB_SCHEDULE_H

#include "base/error.h"
#include "kernels/driftscope_kernel.h"

#include <stdint.h>

struct ds_schedule;

struct ds_schedule *ds_schedule_new(int threads, struct ds_error *err);
void ds_schedule_free(struct ds_schedule *s);

/* Sets threads, team, run, pause of *exec. disturb 0: plain threads and no pause. Valid for launches
 * until the next call with the same schedule. */
void ds_schedule_exec(struct ds_schedule *s, uint64_t disturb, struct ds_exec *exec);

/* Each thread but the caller to a CPU of its own, see ds_team_bind. Not for disturbed launches. */
int ds_schedule_bind(struct ds_schedule *s, const int *cpus, int n);

/* Whether a member left its floating-point control word changed since the last call (it was put
 * back). */
int ds_schedule_fp_changed(struct ds_schedule *s);

/* The same for the calling thread: remember, then compare and put back. */
uint32_t ds_fp_now(void);
int ds_fp_put_back(uint32_t want); /* 1 = it had changed */

#endif
