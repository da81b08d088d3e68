/* team.h: a fixed team of threads that runs one function on every member.
 *
 * Why not OpenMP: the tool must know how many threads really ran, must fork worker processes, and
 * must not leave spinning threads beside a BLAS library's own (an OpenMP region that spins halves
 * sgemm on two threads). Members spin for some tens of microseconds only, then sleep. */
#ifndef DS_TEAM_H
#define DS_TEAM_H

#include "base/error.h"

struct ds_team;

/* CPUs that this process may use (its affinity, not those of the machine); 1 if the system does not
 * say. */
int ds_team_cpus(void);

/* Starts threads - 1 threads beside the caller (1 <= threads <= 1024). NULL with err set on
 * failure. */
struct ds_team *ds_team_new(int threads, struct ds_error *err);
/* Stops and joins them. NULL is allowed. */
void ds_team_free(struct ds_team *team);
int ds_team_threads(const struct ds_team *team);

/* Calls fn(arg, i, threads) once for every i in 0..threads-1, each on its own thread (0 = the
 * caller), and returns when all are done; what they wrote is visible to the caller. Not re-entrant.
 */
void ds_team_run(struct ds_team *team, void (*fn)(void *arg, int thread, int threads), void *arg);

/* Binds member i, the caller left out, to cpus[i % n] for good; returns how many the system let it
 * bind. */
int ds_team_bind(struct ds_team *team, const int *cpus, int n);

/* Sends all members that wait for a round, of every team in this process, to sleep now rather than
 * after their spin; the next round of any team lets them spin again. For callers about to use threads
 * that are not the team's: a member that spins on a core halves the library thread that was given the
 * same core. */
void ds_team_rest(void);
/* Members asleep at this moment. */
int ds_team_asleep(const struct ds_team *team);
/* Turns of a waiting member's loop before it sleeps; 0 = as built. For tests. */
void ds_team_set_spin(int rounds);

/* How many members' CPU time has moved since the team started or since the last call: the threads
 * really seen at work. The caller always counts. */
int ds_team_seen(struct ds_team *team);

/* The contiguous share [*begin, *end) of n items for member i of `threads`, in units of `grain`
 * items. */
void ds_team_share(long n, long grain, int thread, int threads, long *begin, long *end);

#endif
