/* serve.h: the serving simulation: which rows of which requests share a call. A continuous-batching
 * scheduler as a pure state machine (serve_plan.c, serve_check.c: no model, no clock, no files), and the
 * running of its plan, call by call, in worker processes (serve_trial.c, serve_run.c).
 *
 * Time is counted in steps; a step is a call, so a step with nothing to do does not exist. The number of
 * tokens of a request is fixed and prefixes are looked for among prompts only: a plan depends on no token
 * that a model chooses, and all kernel sets are run on the same one. */
#ifndef DS_SERVE_H
#define DS_SERVE_H

#include "base/error.h"
#include "engine/sweep.h"

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

struct ds_hold;
struct ds_place;

/* ---- the plan (pure) ------------------------------------------------------------------------- */

enum {
    DS_SERVE_MOST_REQUESTS = 100000,
    DS_SERVE_MOST_TOKENS = 100000,
    DS_SERVE_MOST_BATCH = 4096,
    DS_SERVE_RATE_UNIT = 1000000,
    DS_SERVE_MOST_RATE = 1000
};

struct ds_serve_config {
    int32_t max_batch;  /* requests that are served at a time, >= 1 */
    int32_t chunk;      /* most rows of a call: decode rows first, then prompts; 0 = no limit */
    int32_t cache_rows; /* of all requests together; 0 = as many as they need */
    int32_t tokens;     /* that a request generates, unless its prompt says, >= 1 */
    int64_t rate;  /* arrivals a step, in units of 1/DS_SERVE_RATE_UNIT; 0 = all at the start */
    uint64_t seed; /* of the arrivals */
    int reuse;     /* a request may start from what an earlier one's prompt left in its slot */
};

struct ds_serve_prompt {
    const int32_t *tokens;
    int32_t n;
    int32_t generates; /* tokens of its requests; 0: as the configuration says */
    int follows; /* its requests arrive when the one before them (in number) has all its tokens: the next call
                    of a conversation. Not prompt 0 */
};

/* What one request does in one step. */
struct ds_serve_piece {
    int32_t request;
    int32_t cached;   /* its tokens that are in the cache before */
    int32_t n_tokens; /* fed now */
    int32_t slot;     /* of the cache; -1: to be found by ds_serve_check */
    int begins;       /* it is admitted: what it had is given up, but for `cached` tokens */
    /* filled by ds_serve_check */
    /* The request that computed the cached rows, where this one begins with some; else -1. */
    int32_t from;
    int32_t copy; /* the slot in which they stand, if it is another one; else -1 */
    int takes;    /* of what stands in the slot only `cached` rows are kept */
    int chooses;  /* all its tokens are fed: the next one is chosen */
};

/* Requests 0..n_requests-1; request r has prompt r % n_prompts. */
struct ds_serve_plan {
    struct ds_serve_piece *pieces;
    size_t n_pieces, cap_pieces;
    size_t *first; /* [n_steps + 1] pieces of each step */
    size_t n_steps, cap_steps;
    int32_t *arrival; /* [n_requests] step */
    int32_t n_requests;
    int32_t preemptions, hits; /* hits: requests that started from another's rows */
    /* filled by ds_serve_check */
    int32_t slots, capacity, max_rows; /* slots in use, rows of the longest request, of a call */
    int32_t tokens;                    /* most that a request generates */
};
void ds_serve_plan_free(struct ds_serve_plan *p);

/* The schedule of n_requests requests. Same arguments, same plan, on every machine. */
int ds_serve_plan_new(const struct ds_serve_config *c, const struct ds_serve_prompt *prompts,
                      int32_t n_prompts, int32_t n_requests, struct ds_serve_plan *out,
                      struct ds_error *err);
/* For plans from elsewhere: an empty plan, a step after the last one, a piece in the last step. */
int ds_serve_add_step(struct ds_serve_plan *p, struct ds_error *err);
int ds_serve_add_piece(struct ds_serve_plan *p, const struct ds_serve_piece *piece,
                       struct ds_error *err);
/* Checks that the plan can be run, whoever made it, and finds out what follows from it. In *step, if not
 * NULL, the step that is wrong. Needs prompts of all requests; sets n_requests and, where there is none,
 * arrival (the step of the first piece). */
int ds_serve_check(struct ds_serve_plan *p, const struct ds_serve_prompt *prompts,
                   int32_t n_prompts, size_t *step, struct ds_error *err);
/* From a request's arrival to its first token, over all requests that get one: steps, and seconds, of which
 * seconds[step] says how many each step took. The step of the arrival counts: who is served at once waits one. */
struct ds_serve_wait {
    double median_steps, most_steps, median_s, most_s;
};
int ds_serve_waits(const struct ds_serve_plan *p, const double *seconds, struct ds_serve_wait *out,
                   struct ds_error *err);
/* Each text in a call of its own, from its first token to its last. */
int ds_serve_texts(const struct ds_serve_prompt *texts, int32_t n, struct ds_serve_plan *out,
                   struct ds_error *err);
/* The same requests, of which only one is served: its pieces as they were, but what it had from others'
 * rows it computes itself. */
int ds_serve_only(const struct ds_serve_plan *p, int32_t request,
                  const struct ds_serve_prompt *prompts, int32_t n_prompts,
                  struct ds_serve_plan *out, struct ds_error *err);

/* ---- running it ------------------------------------------------------------------------------ */

/* One trial an arm of the header, each in a worker of its own, in the order that needs the least memory. Every request follows its own tokens. All
 * rows are recorded, as (request, position, occurrence: how often that position was computed before).
 *
 * With `scored` nothing is generated: the prompts, one a request, are whole texts, of which the first
 * scored[r] tokens were the prompt. A piece that feeds the end of its text gets the logits of every row
 * from the prompt's last on; rows and steps are known by what they were when the text was generated. */
struct ds_serve_run { /* set up by the caller, borrowed, unchanged */
    struct ds_model *model;
    const struct ds_header *header; /* arms, sites, edges */
    const struct ds_serve_plan *plan;
    const struct ds_serve_prompt *prompts;
    int32_t n_prompts;
    uint64_t f32_at;           /* stages that are not rounded to the dtype, as DS_STAGE_BITs */
    int resid_only;            /* digest resid_ffn and what follows the layers only */
    struct ds_sampler sampler; /* requests whose prompts (of the header) are equal draw alike */
    const int32_t *scored;     /* [n_requests], or NULL */
    /* Where the rows from which tokens are chosen are kept, at the ends of layers, of the arms that it is for: of another
     * trial they are compared with those of arm *against, so that sizes are known. NULL: neither. */
    struct ds_hold *hold;
    const uint32_t *against;
    /* Where to keep each step's logits as the model gave them, [..][vocab], in memory that workers share:
     * step k of request r at row keep_at[r] + k. NULL: nowhere. */
    float *keep;
    const size_t *keep_at; /* [n_requests + 1] */
    int32_t first_arm, n_arms;
    int last; /* the model's weights are read by nobody afterwards: what no arm needs is given back */
    void *ctx;
    /* Takes a trial (borrowed), the wall time of each of its steps, and behind these [n_steps ..] what of it was the
     * scheduler's: slots, rows and tokens handed round, neither the forward pass nor probes. -1 stops. */
    int (*sink)(void *ctx, const struct ds_trial_data *t, const double *seconds,
                struct ds_error *err);
    void (*progress)(void *ctx, double done, double total); /* may be NULL */
    const volatile sig_atomic_t *stop;
};
/* A hold for arm `arm` of a run that chooses at most `rows` tokens. */
int ds_serve_hold(const struct ds_header *h, uint64_t f32_at, uint32_t arm, size_t rows,
                  struct ds_hold **out, struct ds_error *err);
/* 0 and *interrupted, or -1: unlike in a sweep, an arm that fails ends the run. */
int ds_serve_run(const struct ds_serve_run *s, int *interrupted, struct ds_error *err);

/* serve_trial.c: one arm, in this process. seconds: [2 * n_steps], as the sink gets it, or NULL; place: or NULL. */
struct ds_serve_trial {
    const struct ds_serve_run *run;
    struct ds_place *place;
    double *seconds;
    uint32_t trials, calls; /* that this process has run */
};
struct ds_trial_order;
int ds_serve_trial(void *trial, const struct ds_trial_order *order, struct ds_trial_data *out,
                   struct ds_error *err);

#endif
