/* forward.h: the forward pass of a model over a ragged batch, with a KV cache, through the kernel
 * registry. Knows models, kernels and probes; knows nothing of sweeps and records. */
#ifndef DS_FORWARD_H
#define DS_FORWARD_H

#include "base/error.h"
#include "engine/model.h"
#include "engine/placement.h"
#include "kernels/registry.h"
#include "probes/driftscope_probe.h"

#include <stdint.h>

/* ---- sites ----------------------------------------------------------------------------------- */

/* The model's sites in execution order and the edges between them, with activations stored as
 * `dtype`, and none that an arm must ask for (site_map.h has those, too). malloc'ed; the caller
 * frees both. */
int ds_forward_sites(const struct ds_model *m, int dtype, struct ds_site **sites, uint32_t *n_sites,
                     struct ds_edge **edges, uint32_t *n_edges, struct ds_error *err);

/* Stages whose rows these kernels read as they were before rounding (DS_FEATURE_UNROUNDED), as
 * DS_STAGE_BITs; 0 = none. For ds_site_wants. */
uint64_t ds_forward_unrounded(const struct ds_model *m, const struct ds_kernel_set *kernels);

/* ---- the pass -------------------------------------------------------------------------------- */

/* What a pass is doing, kept where another process can read it when this one is gone. */
struct ds_place {
    int32_t doing; /* enum ds_doing */
    int32_t op;    /* of the kernel that is prepared */
    int32_t stage, layer, rows;
    int32_t phase, call, m; /* of the call under way; call: counted from the last reset */
    int32_t first,
        last; /* positions of its recorded rows that are no padding; last < first: none */
};
enum ds_doing { DS_DOING_NOTHING = 0, DS_DOING_PREPARE, DS_DOING_LAUNCH };
/* " in layer 3 q_proj: matmul/openblas, 4 rows", or "" when no kernel was at work. The place may
 * hold anything: a process that goes wild writes there too. */
void ds_place_text(const struct ds_place *p, const struct ds_kernel_set *kernels, int32_t n_layers,
                   char *out, size_t size);

/* A known change to the rows of one site, made before anybody sees them (mutate.h). */
struct ds_mutation;

struct ds_forward_config {
    struct ds_kernel_set kernels;
    int dtype; /* DS_F32, DS_BF16, DS_F16: every stage's output is rounded to it */
    int threads;
    int32_t max_rows; /* rows of the largest call */
    int32_t n_requests;
    int32_t capacity;            /* cache slots per request, left padding included */
    int32_t page_size;           /* 0 = one page per request */
    const struct ds_site *sites; /* [n_sites] the probe's (not kept); NULL: ds_forward_sites */
    size_t n_sites;
    int device_number;             /* of the device of `kernels`: N of cuda:N */
    int graph;                     /* calls are captured and launched as graphs: forward_graph.c */
    struct ds_placement placement; /* devices of the layers */
    int32_t ranks;                 /* of tensor parallelism; 0 and 1: none */
    int poison; /* fill buffers and cache with NaN first, so that a read of unwritten memory shows
                 */
    int32_t position_offset;   /* position of every request's first token */
    int32_t most_kept;         /* rows that ds_forward_show_kept will show at most */
    struct ds_sampler sampler; /* temperature 0: the largest logit */
    uint64_t f32_at;        /* stages that are not rounded to dtype, as DS_STAGE_BITs (stages.h) */
    struct ds_place *place; /* where to say what is being done; NULL: nowhere */
    struct ds_mutation *mutation; /* borrowed, may change between calls; NULL: none */
};

/* What a row is known by, where that is not its request in the cache and its place there: requests of
 * a serving run take over each other's slots, and compute rows again. */
struct ds_batch_row {
    int32_t request, occurrence, step;
};

/* One request's new tokens in a call. Pads: tokens of a request's first call may begin with n_pad
 * left-padding rows. The last n_extra tokens are drafts that will be rejected, or right padding:
 * their slots are given back after the call. */
struct ds_batch_seq {
    int32_t request; /* 0..n_requests-1, each at most once in a call */
    const int32_t *tokens;
    int32_t n_tokens; /* pads included */
    int32_t n_pad;    /* leading pad rows among tokens; allowed in the request's first call only */
    int32_t n_extra;  /* trailing rows that leave nothing behind */
    int drafts;       /* they are drafts, with logits, not recorded; 0: right padding */
    int32_t record;   /* its rows are given to the probe, but for pads and extra ones */
    int record_pads;  /* pads, left and right, too: kind pad */
    int prompt;       /* all its rows are the prompt's: their step is `step` */
    int32_t logits_from; /* index of the first token whose logits are wanted; n_tokens = none */
    int32_t step;        /* step of its first logits row */
    int32_t stream;      /* what the noise of its draws depends on beside seed and step */
    const struct ds_batch_row *rows; /* [n_tokens] what its rows are known by; NULL: by the above */
};

struct ds_batch {
    const struct ds_batch_seq *seqs;
    int32_t n_seqs;
    int phase; /* DS_PHASE_PREFILL or DS_PHASE_DECODE */
};

/* Whether a model can be dealt to so many ranks; the error names the option --tp. */
int ds_ranks_check(const struct ds_hparams *hp, int32_t ranks, struct ds_error *err);

/* Whether calls of such a pass can be captured (placement, ranks, kernels, poison of it are looked at), where it
 * asks for that; the error names the option --graph. */
int ds_graph_check(const struct ds_hparams *hp, const struct ds_forward_config *c,
                   struct ds_error *err);

struct ds_forward;
int ds_forward_new(struct ds_model *m, const struct ds_forward_config *config,
                   struct ds_forward **out, struct ds_error *err);
void ds_forward_free(struct ds_forward *f);
struct ds_team *ds_forward_team(struct ds_forward *f);

/* Forgets all requests: cache lengths 0, cache poisoned again if asked for. */
void ds_forward_reset(struct ds_forward *f);

/* Seeds what kernels that imitate races see as exec->seed, and starts its count of launches again.
 * Give every trial another seed: trials in fresh processes would else repeat each other's arrival
 * orders. Never called: seed 0. */
void ds_forward_seed(struct ds_forward *f, uint64_t seed);

/* Digests of what the matmul kernel packed, as it is now: malloc'ed, *n may be 0. */
int ds_forward_packed(const struct ds_forward *f, struct ds_packed **out, size_t *n,
                      struct ds_error *err);
/* Forgets all of a request but its first n tokens (and their left padding), as after a prefix cache
 * hit: n is at most what it has. */
void ds_forward_keep(struct ds_forward *f, int32_t request, int32_t n);
/* The first n tokens of request `to` are those that request `from` has: copies their cache rows. Neither has
 * padding; n is at most what `from` has computed, whatever was kept of it since. */
int ds_forward_copy(struct ds_forward *f, int32_t to, int32_t from, int32_t n,
                    struct ds_error *err);
/* Shows the probe what stands in the cache for the kept tokens of a request, at the sites kv_write, in
 * a call of its own without rows (m = 0), and leaves that open as ds_forward_run does. results, if not
 * NULL: [kept][vocab] logits of those rows, shown, too, and handed to op process where its site is. */
int ds_forward_show_kept(struct ds_forward *f, int32_t request, int phase, float *results,
                         struct ds_probe *probe, struct ds_error *err);
/* Logits of the last call, before anybody processed them: [n][vocab] as ds_forward_run gave n. */
const float *ds_forward_logits(const struct ds_forward *f);
/* What its tokens are the largest of, where they are drawn: as struct ds_sample_args has scores; NULL at
 * temperature 0, where they are the largest logit. */
const float *ds_forward_drawn(const struct ds_forward *f);

/* Runs one call. probe may be NULL. Positions continue from the request's cache length (pads not
 * counted). *logits: f32 [n][vocab], rows in call order of those asked for, valid until the next
 * call, as the tokens were chosen from; tokens: their argmax, or drawn. With a probe the run begins the probe's call and shows every site,
 * but leaves the call open: the caller adds the steps (ds_probe_step: only it knows what is fed
 * next) and ends it with ds_probe_end_call. On failure the caller aborts the probe's trial; cache
 * lengths have not moved. */
int ds_forward_run(struct ds_forward *f, const struct ds_batch *batch, struct ds_probe *probe,
                   const float **logits, const int32_t **tokens, int32_t *n, struct ds_error *err);

#endif
