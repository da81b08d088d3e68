/* worker.h: a process that runs trials for its parent: orders in, trial data out, over one socket
 * pair. Its death or its error is a message, never the parent's end. */
#ifndef DS_WORKER_H
#define DS_WORKER_H

#include "engine/trial.h"

#include <signal.h>
#include <sys/types.h>

struct ds_worker {
    pid_t pid; /* 0 = none */
    int fd;
    int32_t number;
    double time_limit; /* of one trial, in seconds; 0 = none */
    int late;          /* its last trial was ended because of that */
    /* Called a few times a second while a trial is awaited; NULL: never. */
    void (*waiting)(void *ctx);
    void *waiting_ctx;
};

/* What a worker needs; all of it is inherited by the fork. */
struct ds_worker_context {
    const struct ds_sweep *sweep;
    struct ds_hold *hold;
    const struct ds_site *sites;
    const uint8_t *site_on;
    struct ds_place *place; /* in memory shared with the parent; NULL: none */
    char blas_core[24];
    int open_blas;  /* an arm of this worker uses OpenBLAS */
    int open_cblas; /* ... the library of --blas */
    /* What runs a trial, in the worker; NULL: ds_trial_run, on the sweep. */
    int (*trial)(void *ctx, const struct ds_trial_order *order, struct ds_trial_data *out,
                 struct ds_error *err);
    void *ctx;
};
/* Which libraries an arm needs: those that no arm of a worker asks for are not opened, the pinned set must
 * not depend on one. */
void ds_worker_libraries(struct ds_worker_context *c, const struct ds_setting *s);

/* Forks. The caller must have no other thread. */
int ds_worker_start(struct ds_worker *w, const struct ds_worker_context *c, int32_t number,
                    struct ds_error *err);

enum { DS_WORKER_OK = 0, DS_WORKER_FAILED = -1, DS_WORKER_DIED = -2, DS_WORKER_STOPPED = -3 };

/* Sends the order and waits for the answer. OK: *out is owned by the caller. FAILED: the trial gave
 * an error, the worker lives. DIED: the worker is gone (err says by which signal, or that its time was over). STOPPED: *stop
 * became non-zero; the worker was killed. */
int ds_worker_trial(struct ds_worker *w, const struct ds_trial_order *order, const int32_t *forced,
                    const volatile sig_atomic_t *stop, struct ds_trial_data *out,
                    struct ds_error *err);

/* Ends it and waits for it. */
void ds_worker_stop(struct ds_worker *w);

/* One trial as bytes in the machine's own layout (the two ends are the same program): for the
 * socket. */
struct ds_buf;
/* The same piece by piece, so that a large trial is not in memory twice. Ends where put does not give 0. */
int ds_trial_pieces(const struct ds_trial_data *t,
                    int (*put)(void *ctx, const void *bytes, size_t n), void *ctx);
void ds_trial_pack(const struct ds_trial_data *t, struct ds_buf *out);
/* -1 when counts and length do not fit together. */
int ds_trial_unpack(const void *bytes, size_t size, struct ds_trial_data *out,
                    struct ds_error *err);

#endif
