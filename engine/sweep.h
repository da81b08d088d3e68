/* sweep.h: which settings are tried, and trying them: factors -> arms -> trials in worker processes
 * -> trial data for a sink. Knows models, the forward pass and probes; knows no record file and
 * prints nothing.
 *
 * The parent process plans, owns the sink and never loads a BLAS; every trial runs in a worker
 * forked from it, which shares the model's weights and the held reference rows. A worker serves one
 * (blas-core, process) pair; its crash ends that arm only. */
#ifndef DS_SWEEP_H
#define DS_SWEEP_H

#include "base/error.h"
#include "dumps/record.h"
#include "engine/model.h"
#include "engine/placement.h"
#include "kernels/registry.h"
#include "probes/driftscope_probe.h"

#include <signal.h>
#include <stdint.h>

/* ---- factors and arms (plan.c; pure) --------------------------------------------------------- */

enum ds_factor {
    DS_FACTOR_BATCH,
    DS_FACTOR_SLOT,
    DS_FACTOR_NEIGHBOURS,
    DS_FACTOR_PADDING,
    DS_FACTOR_THREADS,
    DS_FACTOR_CHUNK,
    DS_FACTOR_MODE,
    DS_FACTOR_PREFIX,
    DS_FACTOR_ROLLBACK,
    DS_FACTOR_KERNELS,
    DS_FACTOR_BLAS_CORE,
    DS_FACTOR_DTYPE,
    DS_FACTOR_PROCESS,
    DS_FACTOR_PLACE,
    DS_FACTOR_TP,
    DS_FACTOR_DEVICE,
    DS_FACTOR_GRAPH,
    DS_FACTOR_COUNT
};
/* "batch" .. "graph": names in records, verdicts and options. */
extern const char *const ds_factor_names[DS_FACTOR_COUNT];

/* Or an index from 0. */
enum { DS_SLOT_FIRST = -1, DS_SLOT_MIDDLE = -2, DS_SLOT_LAST = -3 };
enum { DS_NEIGHBOURS_COPIES, DS_NEIGHBOURS_VARIED };
enum { DS_MODE_PREFILL, DS_MODE_DECODE };

/* The largest values of the factors that are numbers; the option table uses the same. */
enum {
    DS_MOST_BATCH = 4096,
    DS_MOST_PADDING = 65536,
    DS_MOST_THREADS = 1024,
    DS_MOST_CHUNK = 1000000,
    DS_MOST_PREFIX = 1000000,
    DS_MOST_ROLLBACK = 1024,
    DS_MOST_PROCESSES = 1024
};

/* One arm, parsed from its texts. */
struct ds_setting {
    int32_t batch, threads;
    int32_t padding;  /* rows of the subject that are padding, in a rectangular batch ... */
    int pad_right;    /* ... behind its prompt instead of before it */
    int32_t prefix;   /* prompt tokens of the subject that an earlier pass left in the cache */
    int32_t rollback; /* drafts fed with the token of every decode step, and rejected */
    int32_t chunk;    /* most prompt tokens of a request in a call; 0 = all at once */
    int slot, neighbours, mode, dtype;
    int32_t processes; /* repeat r runs in fresh process r % processes; 1 = all in the worker */
    struct ds_kernel_set kernels;
    char blas_core[24]; /* "" = the library's own choice */
    struct ds_placement place;
    int32_t ranks;     /* of tensor parallelism */
    int device;        /* enum ds_device_kind: where the kernels run ... */
    int device_number; /* ... N of cuda:N */
    int graph;         /* calls are captured as graphs of the device and launched so */
};
/* values[f] for every factor. -1 names the factor and the value. */
int ds_setting_parse(char *const *values, struct ds_setting *out, struct ds_error *err);

/* The values of one factor as given, first = base. */
struct ds_factor_values {
    char **value;
    size_t n;
};

/* Splits "1,2,4" into values, checking each alone, dropping repeats; "all" for threads becomes the
 * number of CPUs this process may use. An empty list gives the factor's default single value. */
int ds_factor_parse(int factor, const char *text, struct ds_factor_values *out,
                    struct ds_error *err);
void ds_factor_free(struct ds_factor_values *v);

/* The arms of a sweep, arm 0 the base. One factor at a time around the base; slot, neighbours and
 * padding at the largest batch; the batch list at every thread count; all of it at every dtype
 * (unlike formats are never compared). full: the cross product. Every arm stands after the arms it
 * is compared with. */
int ds_plan_arms(const struct ds_factor_values *factors, int full, struct ds_arm **arms, size_t *n,
                 struct ds_error *err);

/* ---- the sweep ------------------------------------------------------------------------------- */

/* What a sweep is made of, beside the arms: kept in the record, so that a later process can resume
 * it. */
struct ds_sweep_options {
    int32_t repeats; /* trials per arm, >= 1 */
    int32_t steps;   /* decode steps after the prompt, >= 0 */
    int free_run; /* arms follow their own tokens; a trial ends at the first token that differs from
                     the base arm's */
    int dump;     /* enum ds_dump */
    int32_t dump_rows;
    int resid_only;    /* digest resid_ffn and what follows the layers only */
    int32_t page_size; /* cache page, 0 = one page per request */
    int poison;
    int heal; /* beside the natural trials of an arm, one healed to each reference it drifted from; of an
                 arm whose repeats part, as many as it has repeats */
    int32_t position_offset; /* position of every request's first token */
    int all_logits;          /* logits and tokens of every prompt row */
    int scores;              /* attention scores and probabilities, recomputed beside the kernel */
    int digest_packed;       /* digests of what matmul kernels packed, for every trial */
    int weights;             /* enum ds_weights: how the model keeps its weights */
    struct ds_sampler sampler; /* how tokens are chosen, in every arm */
    uint64_t f32_at;           /* stages that are f32 in every arm, as DS_STAGE_BITs (stages.h) */
    uint64_t hold;             /* memory for held reference rows, bytes */
    /* An arm ends at its first trial that disagrees with its first one; the flake rate that is
     * to be excluded, in millionths (1: not known), 0 = off. */
    int32_t until_stable;
    int32_t load;          /* busy neighbour processes beside the trials (load.h) */
    int32_t trial_timeout; /* seconds after which a trial counts as failed; 0 = no limit */
};

/* Requests: 0 is the subject, 1.. the varied neighbours. In decode steps a varied neighbour is fed
 * its own prompt again, from the start: its content must not depend on the drift under test. */
struct ds_sweep_request {
    const int32_t *tokens;
    int32_t n_prompt;
};

struct ds_sweep { /* set up by the caller, borrowed, unchanged */
    struct ds_model *model;
    struct ds_sweep_options options;
    const struct ds_header *header; /* factors, arms, sites, edges */
    const struct ds_sweep_request *requests;
    /* 1 + varied neighbours, at least the largest batch if any arm varies them. */
    int32_t n_requests;
    /* [n_forced] tokens of the subject's decode steps, or NULL: the base arm's own. */
    const int32_t *forced;
    int32_t n_forced;

    void *ctx;
    /* Takes one complete trial (borrowed). -1 stops the sweep. */
    int (*sink)(void *ctx, const struct ds_trial_data *t, struct ds_error *err);
    /* Whether a trial is there already (resume), by its arm, repeat, pass and healed_to; may be NULL. */
    int (*have)(void *ctx, const struct ds_trial *t);
    /* The natural trial that is there already: what it drifted from decides what is healed. NULL if it
     * cannot be had. Asked for only where `have` said yes; may be NULL. */
    const struct ds_trial_data *(*recall)(void *ctx, uint32_t arm, uint32_t repeat);
    void (*progress)(void *ctx, double done, double total);
    /* Something the user should hear; may be NULL. */
    void (*note)(void *ctx, const char *text);
    const volatile sig_atomic_t *stop; /* becomes non-zero to interrupt */
};

struct ds_sweep_result {
    uint32_t trials; /* handed to the sink */
    uint32_t failed; /* trials lost to failing or dying workers; `first_failure` says how */
    int interrupted;
    struct ds_error first_failure;
};

/* Whether the arms can be run on prompts of these lengths: every prefix is shorter than the subject's
 * prompt, and all positions are within the model's context. *positions: how many the longest arm needs.
 * Reads model, options, header and requests only. */
int ds_sweep_fits(const struct ds_sweep *s, int64_t *positions, struct ds_error *err);

/* Runs every trial not there yet. 0 also when single arms failed or the run was interrupted: see
 * result. */
int ds_sweep_run(const struct ds_sweep *s, struct ds_sweep_result *result, struct ds_error *err);

/* How many natural trials are not there yet; when all are, how many heal trials. Only header, options,
 * have and recall are used. */
int ds_sweep_missing(const struct ds_sweep *s, uint32_t *missing, struct ds_error *err);

/* Fills sites and edges of a header, whose arms are planned, for the base arm's dtype and what the
 * arms' kernels read before rounding; layers and heads, weights and
 * hyperparameters. score_keys: see struct ds_site_wants. */
int ds_sweep_describe_model(struct ds_model *m, int dtype, int32_t score_keys, struct ds_header *h,
                            struct ds_error *err);

#endif
