/* trial.h: one execution of one arm: the prompt pass and the decode steps, with probes. Runs inside
 * a worker process. */
#ifndef DS_TRIAL_H
#define DS_TRIAL_H

#include "engine/forward.h"
#include "engine/sweep.h"

/* What the parent asks a worker to do. */
struct ds_trial_order {
    uint32_t arm, repeat, pass;
    uint32_t healed_to; /* of a heal trial: its only reference */
    double start_s;
    int32_t worker;
    uint32_t n_refs;
    uint32_t refs[DS_FACTOR_COUNT + 1]; /* the arm itself among them: its repeats are sized, too */
    int32_t n_forced; /* tokens fed in the decode steps; fewer than steps: the arm's own from there
                         on */
};

/* Keeps the forward pass between trials of the same arm. Zero-initialise. */
struct ds_trial_runner {
    const struct ds_sweep *sweep;
    struct ds_hold *hold;        /* for the dtype of the arms this worker runs; NULL = none */
    const struct ds_site *sites; /* with that dtype */
    const uint8_t *site_on;
    struct ds_place *place; /* for the passes; NULL: none */
    uint32_t arm;           /* arm + 1 of `forward`, 0 = none */
    uint32_t trials, calls; /* that this process has run */
    int32_t most_threads;   /* of its last trial: what is left of them may spin; 0: none yet */
    struct ds_setting setting;
    struct ds_forward *forward;
    struct ds_probe *probe;
    uint8_t *unlike; /* [n_sites] shares of ranks, where the reference has other ranks; else NULL */
};

/* forced: [order->n_forced]. On success *out is owned by the caller. */
int ds_trial_run(struct ds_trial_runner *r, const struct ds_trial_order *order,
                 const int32_t *forced, struct ds_trial_data *out, struct ds_error *err);
void ds_trial_runner_free(struct ds_trial_runner *r);

/* What is known of a trial before it runs, and the seed of its launches. trials, calls: that the process
 * has run before. For whoever runs trials of another kind (serve_trial.c). */
struct ds_trial ds_trial_info(const struct ds_trial_order *order, const struct ds_setting *s,
                              struct ds_team *team, uint32_t trials, uint32_t calls);
uint64_t ds_trial_seed(const struct ds_trial_order *order);

/* Which rows of a trial without references are dumped (sample.c). sites: the header's, with the arm's
 * dtype. */
void ds_sample_plan(const struct ds_sweep *s, const struct ds_site *sites, struct ds_sample *out);

/* CPU time of every thread of this process, to count those that moved. */
struct ds_thread_times {
    int n;
    struct {
        long tid;
        unsigned long long ns;
    } t[256];
};
void ds_thread_times_read(struct ds_thread_times *out);
/* Threads whose CPU time grew between the two readings, by a share of the busiest one's; DS_UNKNOWN if the
 * system does not tell. */
int ds_thread_times_moved(const struct ds_thread_times *before,
                          const struct ds_thread_times *after);
/* Waits, 0.1 s at most, until no thread but the caller uses CPU time. */
void ds_thread_times_settle(void);

#endif
